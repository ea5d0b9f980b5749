//! The container of a new image.

use std::borrow::Cow;
use std::path::Path;

use bandsaw::address::Address;
use bandsaw::codec::Level;
use bandsaw::container::Format;
use bandsaw::store::FileMode;
use bandsaw::{Error, Kind, Reason, size};
use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::text;

/// The container of a new image, for every verb that makes one.
#[derive(Debug, Default, Args)]
pub(crate) struct Container {
    /// Set the image format, such as udrw, udsb, asif or udzo
    ///
    /// Without it the extension decides: .sparsebundle is udsb, .sparseimage is udsp, .asif is
    /// asif, and .dmg, .img, .iso and .raw are udrw. Formats that can be changed: udrw (raw), udsb
    /// (sparse bundle), udsp (sparse image), asif (Apple sparse image). Read-only formats: udzo
    /// (zlib), ulfo (LZFSE), ulmo (LZMA), udbz (bzip2), udco (ADC), udro (not compressed). Upper
    /// and lower case are the same.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Set the band size of a sparse bundle or sparse image
    ///
    /// A sparse bundle has bands of 1m to 8g, in multiples of 4096 bytes as macOS requires; the
    /// default is 8m, or more if a full bundle would have over 65,536 bands. A sparse image has bands of 512 bytes to 8g; the default is 1m.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) band_size: Option<u64>,
    /// Round --band-size to the nearest supported size
    #[arg(long, requires = "band_size", hide_short_help = true)]
    pub(crate) round: bool,
    /// Set the permissions of the image, in octal, as 640
    ///
    /// The default for a copy is the mode of its source. An image that replaces another one gets no
    /// more permissions than that one had. Encrypted images and decrypted copies are readable only
    /// by their owner.
    #[arg(long, value_name = "MODE", value_parser = text::mode, hide_short_help = true)]
    pub(crate) mode: Option<u16>,
    /// Set the sector size of an Apple sparse image: 512 or 4096
    #[arg(long, value_name = "SIZE", value_parser = size::parse, hide_short_help = true)]
    pub(crate) sector_size: Option<u64>,
    /// Set the compression level: 1 (fastest) to 9 (smallest)
    ///
    /// It applies to udzo. The default is 6.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) level: Option<u8>,
    /// Replace an existing image
    #[arg(long, visible_alias = "ov")]
    pub(crate) overwrite: bool,
}

/// Converts a mode to the type of the library.
pub(crate) fn file_mode(mode: u16) -> FileMode {
    FileMode::new(mode.into())
}

impl Container {
    /// Returns the requested sector size. A number that is too large for the field is refused
    /// later, like any other unsupported size.
    pub(crate) fn sector_size(&self) -> Option<u32> {
        self.sector_size
            .map(|size| u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// Returns the requested compression level.
    pub(crate) fn level(&self) -> Outcome<Option<Level>> {
        Ok(self.level.map(Level::new).transpose()?)
    }

    /// Returns the requested level as a number.
    pub(crate) fn asked_level(&self) -> Option<u8> {
        self.level
    }

    /// Returns the format given by name.
    pub(crate) fn asked_format(&self) -> Option<Format> {
        self.format
    }

    /// Returns the requested format, or the one of the file extension.
    pub(crate) fn format(&self, target: &Path) -> Outcome<Format> {
        if let Some(format) = self.format.or_else(|| Format::from_extension(target)) {
            return Ok(format);
        }
        let message = "the extension does not determine the format";
        let error = Error::invalid("image", message).in_file(target);
        Err(Failure::from(error)
            .hint("use an extension such as .sparsebundle or .img, or --format"))
    }
}

/// Returns the path of a new image; `file://` URLs become paths.
pub(crate) fn new_image_path(named: &Path) -> Outcome<Cow<'_, Path>> {
    match named.to_str() {
        Some(url) if url.starts_with("file://") => {
            Ok(Cow::Owned(Address::parse_on_host(url)?.image.into()))
        }
        _ => Ok(Cow::Borrowed(named)),
    }
}

/// Adds a hint to an error of making an image.
pub(crate) fn advise(error: Error, container: &Container) -> Failure {
    let failure = Failure::from(error);
    match failure.reason() {
        Some(Reason::BandSize) if container.band_size.is_some() => {
            failure.hint("add --round for the nearest possible size")
        }
        _ => failure.hint_if_exists(container.overwrite),
    }
}

/// Adds a hint to an error about a missing passphrase for a new image.
pub(crate) fn advise_passphrase(error: Error) -> Failure {
    match error.kind() {
        Kind::WrongKey => Failure::from(error)
            .hint("it is read by --passfile FILE, --passfd N, --passenv NAME or --stdinpass"),
        _ => error.into(),
    }
}
