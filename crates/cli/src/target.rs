//! What a verb makes: the container of a new image.

use std::path::Path;

use bandsaw::container::Format;
use bandsaw::{Error, Kind, size};
use clap::Args;

use crate::failure::{Failure, Outcome};

/// The container of a new image, for every verb that makes one.
#[derive(Debug, Args)]
pub(crate) struct Container {
    /// Format: udrw (raw) or udsb (sparse bundle), in any case; without it the name decides: .sparsebundle is udsb,
    /// .dmg, .img, .iso and .raw are udrw
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Size of a sparse bundle's bands, 1m to 8g; without it 8m, or more where a full bundle had more than 65,536 bands
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) band_size: Option<u64>,
    /// Replace an image that exists
    #[arg(long, visible_alias = "ov")]
    pub(crate) overwrite: bool,
}

impl Container {
    /// The format asked for, or else what the name says.
    pub(crate) fn format(&self, target: &Path) -> Outcome<Format> {
        if let Some(format) = self.format.or_else(|| Format::from_extension(target)) {
            return Ok(format);
        }
        Err(Failure::from(Error::new(Kind::Invalid, "image", "its name does not say which format it is to have").in_file(target))
            .hint("give it an extension such as .sparsebundle or .img, or say --format udsb or --format udrw"))
    }
}

/// What to do about an image that cannot be made.
pub(crate) fn advise(error: Error, container: &Container) -> Failure {
    let hint = match error.kind() {
        Kind::Conflict if !container.overwrite => "--overwrite replaces it",
        Kind::Unsupported if error.layer() == "image" => "formats that can be written are udrw and udsb",
        _ => return error.into(),
    };
    Failure::from(error).hint(hint)
}
