//! Image formats.
//!
//! A container is a device over stored bytes: [`raw`], [`sparseimage`], [`asif`] and [`udif`] over
//! one file, [`sparsebundle`] over a folder. Unsupported formats are recognized by their magic
//! ([`foreign`]) and refused, so that they are never read as a raw disk.

pub mod asif;
pub mod foreign;
pub mod overlay;
pub(crate) mod property_list;
pub mod raw;
pub mod sparsebundle;
pub mod sparseimage;
pub mod stack;
pub mod udif;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::error::Place;
use crate::{Error, Kind, Reason, Result};

/// Size of a sector in bytes; the part of a file after the last whole sector is not part of the
/// disk.
pub const SECTOR: u64 = 512;

/// Location of the start of a disk range in the file of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMapping {
    /// File offset of the start of the range, in bytes; for an encrypted file, without the header
    /// of the encryption. `None`: it is not stored.
    pub at: Option<u64>,
    /// Length of the run in bytes, at least 1.
    pub len: u64,
}

/// Data that an image stores and that no part of its disk refers to: left by an interrupted change,
/// or hidden by damage to the index. All zeros are no data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// A noun phrase: "slot 6, which has no band".
    pub what: String,
    /// File offset, or the name of a file of its own.
    pub place: Place,
    /// Length in bytes.
    pub len: u64,
}

/// The treatment of the [`Orphan`]s of an image by a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// They stay in place.
    Keep,
    /// They are removed.
    Remove,
}

/// The valid band sizes of a format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BandSizes {
    pub(crate) least: u64,
    pub(crate) most: u64,
    /// Unit of band sizes in bytes; `least` and `most` are multiples of it.
    pub(crate) unit: u64,
}

impl BandSizes {
    /// Fails for an invalid size; the error suggests the nearest valid ones.
    pub(crate) fn check(self, layer: &'static str, size: u64) -> Result<()> {
        let Self { least, most, unit } = self;
        let (below, above) = self.around(size);
        if below == size {
            return Ok(());
        }
        let nearest = if below == above {
            format!("the nearest is {below}")
        } else {
            format!("the nearest are {below} and {above}")
        };
        let message = format!(
            "invalid band size {size}: expected a multiple of {unit} from {least} to {most} \
             bytes; {nearest}"
        );
        Err(Error::new(Kind::Invalid, layer, message).because(Reason::BandSize))
    }

    /// Returns the valid size nearest to `size`.
    pub(crate) fn nearest(self, size: u64) -> u64 {
        let (below, above) = self.around(size);
        if size.saturating_sub(below) <= above.saturating_sub(size) {
            below
        } else {
            above
        }
    }

    /// Returns the largest valid size not above `size`, and the smallest not below.
    fn around(self, size: u64) -> (u64, u64) {
        let Self { least, most, unit } = self;
        let size = size.clamp(least, most);
        let below = size - size % unit;
        (below, if below == size { size } else { below + unit })
    }
}

/// An image format with hdiutil's code, including formats that are not supported yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `UDRW`: a raw disk.
    #[default]
    Udrw,
    /// `UDTO`: a raw disk, too, the master of a CD or DVD.
    Udto,
    /// `UDSB`: sparse bundle, a folder of bands.
    Udsb,
    /// `UDSP`: sparse image, bands in one file.
    Udsp,
    /// `ASIF`: Apple sparse image format of macOS 26.
    Asif,
    /// `UDRO`: UDIF, read-only.
    Udro,
    /// `UDCO`: UDIF compressed by ADC.
    Udco,
    /// `UDZO`: UDIF compressed by zlib.
    Udzo,
    /// `UDBZ`: UDIF compressed by bzip2.
    Udbz,
    /// `ULFO`: UDIF compressed by LZFSE.
    Ulfo,
    /// `ULMO`: UDIF compressed by LZMA.
    Ulmo,
}

impl Format {
    /// All formats, the supported ones first.
    pub const ALL: [Self; 11] = [
        Self::Udrw,
        Self::Udsb,
        Self::Udto,
        Self::Udsp,
        Self::Asif,
        Self::Udro,
        Self::Udco,
        Self::Udzo,
        Self::Udbz,
        Self::Ulfo,
        Self::Ulmo,
    ];

    /// Returns hdiutil's code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Udrw => "UDRW",
            Self::Udto => "UDTO",
            Self::Udsb => "UDSB",
            Self::Udsp => "UDSP",
            Self::Asif => "ASIF",
            Self::Udro => "UDRO",
            Self::Udco => "UDCO",
            Self::Udzo => "UDZO",
            Self::Udbz => "UDBZ",
            Self::Ulfo => "ULFO",
            Self::Ulmo => "ULMO",
        }
    }

    /// Returns a description for users.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Udrw => "raw image",
            Self::Udto => "CD or DVD master",
            Self::Udsb => "sparse bundle",
            Self::Udsp => "sparse image",
            Self::Asif => "Apple sparse image",
            Self::Udro => "read-only disk image",
            Self::Udco => "disk image compressed by ADC",
            Self::Udzo => "disk image compressed by zlib",
            Self::Udbz => "disk image compressed by bzip2",
            Self::Ulfo => "disk image compressed by LZFSE",
            Self::Ulmo => "disk image compressed by LZMA",
        }
    }

    /// Returns true if this version can read the format.
    pub const fn can_read(self) -> bool {
        self.can_write()
    }

    /// Returns true if this version can create the format.
    pub const fn can_write(self) -> bool {
        self.can_change() || self.is_udif()
    }

    /// Returns true if the disk in an image is writable. An image of another format is created as a
    /// whole from an existing disk.
    pub const fn can_change(self) -> bool {
        matches!(
            self,
            Self::Udrw | Self::Udto | Self::Udsb | Self::Udsp | Self::Asif
        )
    }

    /// Returns true if the disk is stored in bands, whose size can be chosen.
    pub const fn has_bands(self) -> bool {
        matches!(self, Self::Udsb | Self::Udsp)
    }

    /// Returns true if the file holds exactly the bytes of the disk.
    pub const fn is_plain(self) -> bool {
        matches!(self, Self::Udrw | Self::Udto)
    }

    /// Returns true if it is a UDIF format. These differ only in the compression of chunks.
    pub const fn is_udif(self) -> bool {
        matches!(
            self,
            Self::Udro | Self::Udco | Self::Udzo | Self::Udbz | Self::Ulfo | Self::Ulmo
        )
    }

    /// Returns the format of a new image at `path` by its extension, ignoring case. `None` if the
    /// extension implies none.
    pub fn from_extension(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "sparsebundle" | "backupbundle" => Some(Self::Udsb),
            "sparseimage" => Some(Self::Udsp),
            "asif" => Some(Self::Asif),
            "cdr" => Some(Self::Udto),
            "dmg" | "img" | "iso" | "raw" => Some(Self::Udrw),
            _ => None,
        }
    }

    /// Returns true if the format is usual for the extension of `path`. An unknown extension
    /// matches every format.
    pub fn fits_name(self, path: &Path) -> bool {
        match Self::from_extension(path) {
            None => true,
            Some(Self::Udrw | Self::Udto) if self.is_plain() => true,
            // `.dmg` is used for all formats without an extension of their own.
            Some(Self::Udrw) => {
                self.is_udif()
                    && path
                        .extension()
                        .is_some_and(|extension| extension.eq_ignore_ascii_case("dmg"))
            }
            Some(named) => named == self,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

impl FromStr for Format {
    type Err = Error;

    /// Parses hdiutil's code, ignoring case.
    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|format| format.code().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL
                    .iter()
                    .map(|format| format.code().to_ascii_lowercase())
                    .collect();
                Error::new(
                    Kind::Invalid,
                    "format",
                    format!("unknown name; expected one of {}", known.join(", ")),
                )
                .named(text)
            })
    }
}

/// Fails if `len` is not a valid length of a disk.
pub(crate) fn check_len(layer: &'static str, len: u64) -> Result<()> {
    if len == 0 || !len.is_multiple_of(SECTOR) {
        return Err(Error::new(
            Kind::Invalid,
            layer,
            format!("{len} bytes are not a whole number of {SECTOR}-byte sectors"),
        ));
    }
    // hdiutil's limit, and that of file offsets.
    if len > i64::MAX as u64 {
        return Err(Error::new(
            Kind::Limit,
            layer,
            format!("{len} bytes are more than 2^63 - {SECTOR}"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_in_any_case() {
        for format in Format::ALL {
            assert_eq!(
                format
                    .code()
                    .to_ascii_lowercase()
                    .parse::<Format>()
                    .unwrap(),
                format
            );
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert_eq!("vmdk".parse::<Format>().unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn extensions_tell_the_format() {
        let of = |path: &str| Format::from_extension(Path::new(path));
        assert_eq!(of("Docs.SparseBundle"), Some(Format::Udsb));
        assert_eq!(of("mac.backupbundle"), Some(Format::Udsb));
        assert_eq!(of("a/b.dmg"), Some(Format::Udrw));
        assert_eq!(of("disc.cdr"), Some(Format::Udto));
        assert_eq!(of("sparsebundle"), None);
        assert_eq!(of("x.txt"), None);
    }

    #[test]
    fn names_are_expected_or_not() {
        let fits = |format: Format, path: &str| format.fits_name(Path::new(path));
        assert!(
            Format::ALL
                .into_iter()
                .all(|format| fits(format, "x") && fits(format, "x.bin"))
        );
        assert!(
            fits(Format::Udzo, "x.DMG")
                && fits(Format::Udrw, "x.dmg")
                && fits(Format::Udrw, "x.cdr")
        );
        assert!(
            fits(Format::Udsp, "x.sparseimage")
                && fits(Format::Asif, "x.asif")
                && fits(Format::Udsb, "x.sparsebundle")
        );
        assert!(
            !fits(Format::Udzo, "x.iso")
                && !fits(Format::Udsp, "x.dmg")
                && !fits(Format::Asif, "x.sparseimage")
        );
    }
}
