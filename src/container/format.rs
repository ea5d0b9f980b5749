//! The formats of images, with what is known of each.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::codec::Codec;
use crate::{Error, Result};

/// An image format, in the order in which they are listed for users. Those of Apple since Mac OS X have
/// hdiutil's code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `UDRW`: a raw disk.
    #[default]
    Udrw,
    /// `UDSB`: sparse bundle, a folder of bands.
    Udsb,
    /// `UDTO`: a raw disk, too, the master of a CD or DVD.
    Udto,
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
    /// `DC42`: Disk Copy 4.2. Only read.
    Dc42,
    /// `NDIF`: Disk Copy 6, in two forks. Only read.
    Ndif,
    /// `DART`: Disk Archive/Retrieval Tool. Only read.
    Dart,
    /// `QCOW2`, of QEMU. Only read.
    Qcow2,
    /// `VHD`, of Virtual PC and Hyper-V. Only read.
    Vhd,
    /// `VHDX`, of Hyper-V. Only read.
    Vhdx,
    /// `VMDK`, of VMware. Only read.
    Vmdk,
    /// `EWF`: the format of EnCase, `.E01`. Only read.
    Ewf,
    /// `AAR`: Apple Archive, a tree of files, whose entries are the disk. Only read.
    Aar,
}

/// The structure of an image's file or folder, which several formats share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// A file that holds exactly the bytes of the disk.
    Raw,
    /// A folder of bands.
    Bundle,
    /// A sparse image.
    SparseImage,
    /// An Apple sparse image.
    Asif,
    /// UDIF. Its formats differ only in the compression of chunks.
    Udif,
    /// A container that is only read, of another program or of classic Mac OS.
    ReadOnly,
}

/// A row of the table of formats.
struct FormatInfo {
    format: Format,
    /// hdiutil's code, or a name.
    code: &'static str,
    /// Description for users.
    description: &'static str,
    container: ContainerKind,
    /// The compression of chunks.
    codec: Option<Codec>,
    /// Extensions of file names that mean this format in lower case, the usual one first. UDIF uses
    /// `.dmg`, too, which for a new image means a raw disk.
    extensions: &'static [&'static str],
}

/// A row for each format, in the order of [`Format`].
static TABLE: [FormatInfo; 20] = {
    const fn row(
        format: Format,
        code: &'static str,
        description: &'static str,
        container: ContainerKind,
        extensions: &'static [&'static str],
    ) -> FormatInfo {
        FormatInfo {
            format,
            code,
            description,
            container,
            codec: None,
            extensions,
        }
    }
    const fn udif(
        format: Format,
        code: &'static str,
        description: &'static str,
        codec: Option<Codec>,
    ) -> FormatInfo {
        FormatInfo {
            codec,
            ..row(format, code, description, ContainerKind::Udif, &[])
        }
    }
    use ContainerKind::{Asif, Bundle, Raw, ReadOnly, SparseImage};
    use Format::{Udbz, Udco, Udro, Udrw, Udsb, Udsp, Udto, Udzo, Ulfo, Ulmo};
    [
        row(
            Udrw,
            "UDRW",
            "raw image",
            Raw,
            &["dmg", "img", "iso", "raw"],
        ),
        row(
            Udsb,
            "UDSB",
            "sparse bundle",
            Bundle,
            &["sparsebundle", "backupbundle"],
        ),
        row(Udto, "UDTO", "CD or DVD master", Raw, &["cdr"]),
        row(Udsp, "UDSP", "sparse image", SparseImage, &["sparseimage"]),
        row(Format::Asif, "ASIF", "Apple sparse image", Asif, &["asif"]),
        udif(Udro, "UDRO", "read-only disk image", None),
        udif(
            Udco,
            "UDCO",
            "disk image compressed by ADC",
            Some(Codec::Adc),
        ),
        udif(
            Udzo,
            "UDZO",
            "disk image compressed by zlib",
            Some(Codec::Zlib),
        ),
        udif(
            Udbz,
            "UDBZ",
            "disk image compressed by bzip2",
            Some(Codec::Bzip2),
        ),
        udif(
            Ulfo,
            "ULFO",
            "disk image compressed by LZFSE",
            Some(Codec::Lzfse),
        ),
        udif(
            Ulmo,
            "ULMO",
            "disk image compressed by LZMA",
            Some(Codec::Lzma),
        ),
        row(
            Format::Dc42,
            "DC42",
            "Disk Copy 4.2 image",
            ReadOnly,
            &["dc42", "diskcopy42"],
        ),
        row(
            Format::Ndif,
            "NDIF",
            "Disk Copy 6 image",
            ReadOnly,
            &["ndif"],
        ),
        row(Format::Dart, "DART", "DART image", ReadOnly, &["dart"]),
        row(
            Format::Qcow2,
            "QCOW2",
            "QEMU disk",
            ReadOnly,
            &["qcow2", "qcow"],
        ),
        row(
            Format::Vhd,
            "VHD",
            "Virtual PC disk",
            ReadOnly,
            &["vhd", "vpc"],
        ),
        row(Format::Vhdx, "VHDX", "Hyper-V disk", ReadOnly, &["vhdx"]),
        row(Format::Vmdk, "VMDK", "VMware disk", ReadOnly, &["vmdk"]),
        row(
            Format::Ewf,
            "EWF",
            "EnCase image",
            ReadOnly,
            &["e01", "s01"],
        ),
        row(
            Format::Aar,
            "AAR",
            "Apple Archive",
            ReadOnly,
            &["aar", "yaa"],
        ),
    ]
};

impl Format {
    /// All formats.
    pub const ALL: [Self; 20] = {
        let mut all = [Self::Udrw; 20];
        let mut at = 0;
        while at < all.len() {
            all[at] = TABLE[at].format;
            at += 1;
        }
        all
    };

    const fn row(self) -> &'static FormatInfo {
        &TABLE[self as usize]
    }

    /// Returns hdiutil's code, or the name of the format.
    pub const fn code(self) -> &'static str {
        self.row().code
    }

    /// Returns a description for users.
    pub const fn description(self) -> &'static str {
        self.row().description
    }

    /// Returns the structure of its file or folder.
    pub const fn container(self) -> ContainerKind {
        self.row().container
    }

    /// Returns the compression of chunks, if any.
    pub const fn codec(self) -> Option<Codec> {
        self.row().codec
    }

    /// Returns the usual extension of file names, without the point.
    pub const fn extension(self) -> &'static str {
        match self.row().extensions {
            [first, ..] => first,
            [] => "dmg",
        }
    }

    /// Returns true if the disk in an image is writable. An image of another format is created as a
    /// whole from an existing disk.
    pub(crate) const fn can_change(self) -> bool {
        !self.is_udif() && self.can_create()
    }

    /// Returns true if images of the format can be created. All others are only read.
    pub const fn can_create(self) -> bool {
        !matches!(self.container(), ContainerKind::ReadOnly)
    }

    /// Returns true if the disk is stored in bands, whose size can be chosen.
    pub const fn has_bands(self) -> bool {
        matches!(
            self.container(),
            ContainerKind::Bundle | ContainerKind::SparseImage
        )
    }

    /// Returns true if the compression has levels.
    pub const fn has_levels(self) -> bool {
        matches!(self.codec(), Some(Codec::Zlib))
    }

    /// Returns the sizes of a sector of the disk that the format supports, in bytes.
    pub(crate) const fn sector_sizes(self) -> &'static [u32] {
        match self.container() {
            ContainerKind::Asif => &[512, 4096],
            _ => &[512],
        }
    }

    /// Returns true if an image is a folder of files.
    pub const fn is_folder(self) -> bool {
        matches!(self.container(), ContainerKind::Bundle)
    }

    /// Returns true if the file holds exactly the bytes of the disk.
    pub const fn is_plain(self) -> bool {
        matches!(self.container(), ContainerKind::Raw)
    }

    /// Returns true if it is a UDIF format. These differ only in the compression of chunks.
    pub const fn is_udif(self) -> bool {
        matches!(self.container(), ContainerKind::Udif)
    }

    /// Returns the format of a new image at `path` by its extension, ignoring case. `None` if the
    /// extension implies none.
    pub fn from_extension(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|format| format.row().extensions.contains(&&*extension))
    }

    /// Returns true if the format is usual for the extension of `path`. An unknown extension
    /// matches every format.
    pub fn fits_name(self, path: &Path) -> bool {
        match Self::from_extension(path) {
            None => true,
            Some(named) if named.is_plain() && self.is_plain() => true,
            // Images of diskettes, and of disks of emulators, are often called so.
            Some(named) if !self.can_create() && (named.is_plain() || !named.can_create()) => true,
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
                Error::invalid(
                    "format",
                    format!("unknown name; expected one of {}", known.join(", ")),
                )
                .named(text)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn the_table_is_in_the_order_of_the_formats() {
        for (at, format) in Format::ALL.into_iter().enumerate() {
            assert_eq!(format as usize, at, "{format}");
        }
    }

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
        assert_eq!("vdi".parse::<Format>().unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn extensions_determine_the_format() {
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
