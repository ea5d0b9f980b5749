//! What a verb makes: the container of a new image.

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
#[derive(Debug, Args)]
pub(crate) struct Container {
    /// Format: udrw (raw), udsb (sparse bundle), udsp (sparse image), asif (Apple sparse image), or
    /// one that cannot be changed: udzo (compressed by zlib), ulfo (LZFSE), ulmo (LZMA), udbz
    /// (bzip2), udco (ADC), udro (not compressed), in any case; without it the name decides:
    /// .sparsebundle is udsb, .sparseimage is udsp, .asif is asif, .dmg, .img, .iso and .raw are
    /// udrw
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Size of bands: of a sparse bundle 1m to 8g, without it 8m, or more where a full bundle had
    /// more than 65,536 bands; of a sparse image 512 to 8g, without it 1m
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) band_size: Option<u64>,
    /// Take the nearest size of bands that is possible, where --band-size is not
    #[arg(long, requires = "band_size")]
    pub(crate) round: bool,
    /// Permissions of the image in octal, such as 640. Without it a copy has those of its source,
    /// an image that replaces another no more than that, and only the owner may read what is
    /// encrypted, or was
    #[arg(long, value_name = "MODE", value_parser = text::mode)]
    pub(crate) mode: Option<u16>,
    /// Size of an Apple sparse image's sectors: 512 or 4096
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    sector_size: Option<u64>,
    /// How hard to compress udzo: 1 (fast, the default) to 9 (small)
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(1..=9))]
    level: Option<u8>,
    /// Replace an image that exists
    #[arg(long, visible_alias = "ov")]
    pub(crate) overwrite: bool,
}

/// The mode of a new image as the library has it.
pub(crate) fn file_mode(mode: u16) -> FileMode {
    FileMode::new(mode.into())
}

impl Container {
    /// The size of sectors asked for. What no number of the field holds is refused like any other
    /// odd size.
    pub(crate) fn sector_size(&self) -> Option<u32> {
        self.sector_size
            .map(|size| u32::try_from(size).unwrap_or(u32::MAX))
    }

    /// The level of compression asked for.
    pub(crate) fn level(&self) -> Outcome<Option<Level>> {
        Ok(self.level.map(Level::new).transpose()?)
    }

    /// The same as a number.
    pub(crate) fn asked_level(&self) -> Option<u8> {
        self.level
    }

    /// The format asked for by name.
    pub(crate) fn asked_format(&self) -> Option<Format> {
        self.format
    }

    /// The format asked for, or else what the name says.
    pub(crate) fn format(&self, target: &Path) -> Outcome<Format> {
        if let Some(format) = self.format.or_else(|| Format::from_extension(target)) {
            return Ok(format);
        }
        Err(Failure::from(Error::new(Kind::Invalid, "image", "its name does not say which format it is to have").in_file(target))
            .hint("give it an extension such as .sparsebundle or .img, or say --format udsb or --format udrw"))
    }
}

/// Where a new image is to be: what `file://` says is a path like any other.
pub(crate) fn place(named: &Path) -> Outcome<Cow<'_, Path>> {
    match named.to_str() {
        Some(url) if url.starts_with("file://") => {
            Ok(Cow::Owned(Address::parse_on_host(url)?.image.into()))
        }
        _ => Ok(Cow::Borrowed(named)),
    }
}

/// What to do about an image that cannot be made.
pub(crate) fn advise(error: Error, container: &Container) -> Failure {
    let hint = match error.kind() {
        Kind::Conflict if !container.overwrite => "--overwrite replaces it",
        Kind::Invalid
            if container.band_size.is_some() && error.reason() == Some(Reason::BandSize) =>
        {
            "add --round to take the nearest possible size"
        }
        Kind::Unsupported if error.layer() == "image" => {
            let written = Format::ALL.into_iter().filter(|format| format.can_write());
            let written: Vec<_> = written
                .map(|format| format.code().to_ascii_lowercase())
                .collect();
            return Failure::from(error).hint(format!(
                "formats that can be written are {}",
                written.join(", ")
            ));
        }
        _ => return error.into(),
    };
    Failure::from(error).hint(hint)
}

/// What to do about a passphrase for a new image that nobody gave.
pub(crate) fn advise_passphrase(error: Error) -> Failure {
    match error.kind() {
        Kind::WrongKey => Failure::from(error)
            .hint("it is read by --passfile FILE, --passfd N, --passenv NAME or --stdinpass, with --new- in front for what convert makes"),
        _ => error.into(),
    }
}
