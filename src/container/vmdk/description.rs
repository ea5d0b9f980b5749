//! The description of a disk of VMware: a text, in a sparse file or in a file of its own, that lists the
//! extents of the disk.

use std::collections::HashMap;
use std::ops::Range;

use super::{LAYER, damaged};
use crate::container::SECTOR;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;
use crate::{Error, Kind, Result};

/// The beginning of a description in a file of its own.
pub(super) const SIGNATURE: &[u8; 21] = b"# Disk DescriptorFile";
/// Longest description, in bytes.
const MAX_LEN: u64 = 1 << 20;
/// Maximum number of extents: each is a file that stays open.
const MAX_EXTENTS: usize = 2048;
/// Longest disk in sectors.
const MAX_SECTORS: u64 = i64::MAX.cast_unsigned() / SECTOR;
/// End of the names of extents that are opened.
const SUFFIX: &str = ".vmdk";

/// A description of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    kind: String,
    extents: Vec<DescribedExtent>,
}

/// An extent of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DescribedExtent {
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) contents: DescribedContents,
}

/// The contents of an extent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DescribedContents {
    /// Nothing is stored.
    Zero,
    /// The bytes of a file from an offset on.
    Flat { name: String, offset: u64 },
    /// The contents of a sparse file.
    Sparse { name: String },
}

/// Returns the value of a key.
pub(super) fn value(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        let is_it = name.trim().eq_ignore_ascii_case(key);
        is_it.then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Returns the lines with extents.
pub(super) fn extent_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| {
        ["RW ", "RDONLY ", "NOACCESS "]
            .iter()
            .any(|access| line.starts_with(access))
    })
}

/// Fails if the disk is a layer over another.
pub(super) fn check_no_parent(text: &str) -> Result<()> {
    let parent = value(text, "parentCID").filter(|id| !id.eq_ignore_ascii_case("ffffffff"));
    let Some(id) = parent else { return Ok(()) };
    let named = match value(text, "parentFileNameHint") {
        Some(name) => format!("{name:?} (CID {id})"),
        None => format!("another disk (CID {id})"),
    };
    let message = format!(
        "VMware disk that is a layer over {named}: join both first: `qemu-img convert -O raw DISK.vmdk \
         disk.img`"
    );
    Err(Error::unsupported(LAYER, message))
}

impl Description {
    /// Returns true if `file` begins as a description in a file of its own.
    pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
        const LEN: usize = SIGNATURE.len();
        Ok(file.info().len >= LEN as u64 && file.read_array::<LEN>(0)? == *SIGNATURE)
    }

    /// Reads the description in `file`.
    ///
    /// [`Kind::Unsupported`] if the disk is a layer over another, or has extents that are no files.
    pub fn read(file: &dyn BlockDevice) -> Result<Self> {
        let len = file.info().len;
        if len > MAX_LEN {
            let message = format!("a description of {len} bytes: at most {MAX_LEN} are supported");
            return Err(Error::limit(LAYER, message));
        }
        let text = file.read_vec(0, to_usize(len))?;
        let text = std::str::from_utf8(&text).map_err(|error| {
            let at = error.valid_up_to() as u64;
            damaged(at, "the description is not in UTF-8")
        })?;
        Self::parse(text)
    }

    /// Parses a description.
    pub fn parse(text: &str) -> Result<Self> {
        check_no_parent(text)?;
        let Some(kind) = value(text, "createType") else {
            return Err(wrong("the description has no `createType`"));
        };
        let mut extents = Vec::new();
        let mut sectors = 0_u64;
        for line in extent_lines(text) {
            if extents.len() == MAX_EXTENTS {
                let message = format!("a disk of more than {MAX_EXTENTS} extents");
                return Err(Error::limit(LAYER, message));
            }
            let extent = parse_extent(line)?;
            sectors += extent.len / SECTOR;
            if sectors > MAX_SECTORS {
                return Err(wrong(format!(
                    "the disk has more than {MAX_SECTORS} sectors"
                )));
            }
            extents.push(extent);
        }
        if extents.is_empty() {
            return Err(wrong("the description has no extents"));
        }
        check_overlaps(&extents)?;
        Ok(Self { kind, extents })
    }

    /// Returns the kind of disk, such as `twoGbMaxExtentSparse`.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the extents in the order of the disk.
    pub(super) fn extents(&self) -> &[DescribedExtent] {
        &self.extents
    }

    /// Returns the names of the files of the extents, each once. They are beside the description, and have
    /// no folder.
    pub fn file_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for extent in &self.extents {
            match &extent.contents {
                DescribedContents::Flat { name, .. } | DescribedContents::Sparse { name }
                    if !names.contains(&name.as_str()) =>
                {
                    names.push(name);
                }
                _ => {}
            }
        }
        names
    }
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message.into())
}

/// Parses `ACCESS SECTORS TYPE "NAME" OFFSET`, where the name and the offset can be absent.
fn parse_extent(line: &str) -> Result<DescribedExtent> {
    let malformed = || wrong(format!("malformed extent in the description: {line:?}"));
    let mut words = line.splitn(4, ' ');
    let (Some(access), Some(sectors), Some(kind)) = (words.next(), words.next(), words.next())
    else {
        return Err(malformed());
    };
    if access == "NOACCESS" {
        let message = format!("VMware disk with an extent without access: {line:?}");
        return Err(Error::unsupported(LAYER, message));
    }
    let sectors: u64 = sectors.parse().map_err(|_| malformed())?;
    if sectors == 0 || sectors > MAX_SECTORS {
        return Err(wrong(format!(
            "invalid extent of {sectors} sectors in the description: expected 1 to {MAX_SECTORS}"
        )));
    }
    let mut quoted = words.next().unwrap_or_default().trim().splitn(3, '"');
    let (before, name) = (quoted.next().unwrap_or_default(), quoted.next());
    let rest = quoted.next();
    // A name ends with a quote.
    if !before.is_empty() || name.is_some() != rest.is_some() {
        return Err(malformed());
    }
    let rest = rest.unwrap_or_default().trim();
    let file = || {
        let name = name.ok_or_else(malformed)?;
        check_name(name)?;
        Ok::<_, Error>(name.to_owned())
    };
    let contents = match kind {
        "ZERO" => DescribedContents::Zero,
        "FLAT" | "VMFS" => {
            let offset = match rest.split(' ').next() {
                None | Some("") => 0,
                Some(offset) => offset.parse::<u64>().map_err(|_| malformed())?,
            };
            if offset > MAX_SECTORS {
                return Err(malformed());
            }
            DescribedContents::Flat {
                name: file()?,
                offset: offset * SECTOR,
            }
        }
        "SPARSE" => DescribedContents::Sparse { name: file()? },
        other => {
            let message = format!(
                "VMware disk with an extent of the type {other}: convert it first: `qemu-img convert -O raw \
                 DISK.vmdk disk.img`"
            );
            return Err(Error::unsupported(LAYER, message));
        }
    };
    Ok(DescribedExtent {
        len: sectors * SECTOR,
        contents,
    })
}

/// Fails if a name could lead out of the folder of the description, or to a file of another kind.
fn check_name(name: &str) -> Result<()> {
    let is_plain = !name.contains(['/', '\\', ':', '\0']);
    let is_extent = name.len() > SUFFIX.len()
        && name.is_char_boundary(name.len() - SUFFIX.len())
        && name[name.len() - SUFFIX.len()..].eq_ignore_ascii_case(SUFFIX);
    if is_plain && is_extent {
        return Ok(());
    }
    let message = format!(
        "the description names the extent {name:?}: expected a file beside it, without a folder, whose name \
         ends in {SUFFIX}; move the file there and change its name in the description"
    );
    Err(Error::unsupported(LAYER, message))
}

/// Fails if two extents have bytes of a file in common.
fn check_overlaps(extents: &[DescribedExtent]) -> Result<()> {
    let mut uses: HashMap<&str, Vec<Range<u64>>> = HashMap::new();
    for extent in extents {
        let (name, range) = match &extent.contents {
            DescribedContents::Zero => continue,
            DescribedContents::Flat { name, offset } => (name, *offset..*offset + extent.len),
            // All of it.
            DescribedContents::Sparse { name } => (name, 0..u64::MAX),
        };
        let ranges = uses.entry(name).or_default();
        if ranges
            .iter()
            .any(|other| other.start < range.end && range.start < other.end)
        {
            return Err(wrong(format!(
                "two extents in the description share a part of {name:?}"
            )));
        }
        ranges.push(range);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(lines: &str) -> Result<Description> {
        Description::parse(&format!(
            "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"custom\"\n{lines}\n"
        ))
    }

    #[test]
    fn extents_are_read_in_order() {
        let text = "RW 8 FLAT \"a b.vmdk\" 16\r\nRDONLY 1 ZERO\n  RW 2 SPARSE \"c.VMDK\"\nRW 3 VMFS \"d.vmdk\"";
        let found = described(text).unwrap();
        assert_eq!(found.kind(), "custom");
        assert_eq!(found.file_names(), ["a b.vmdk", "c.VMDK", "d.vmdk"]);
        let lens: Vec<_> = found.extents().iter().map(|extent| extent.len).collect();
        assert_eq!(lens, [4096, 512, 1024, 1536]);
        let flat = DescribedContents::Flat {
            name: "a b.vmdk".into(),
            offset: 8192,
        };
        assert_eq!(found.extents()[0].contents, flat);
        assert_eq!(found.extents()[1].contents, DescribedContents::Zero);
    }

    #[test]
    fn parts_of_one_file_may_be_extents() {
        let text = "RW 8 FLAT \"a.vmdk\" 0\nRW 8 FLAT \"a.vmdk\" 8";
        assert_eq!(described(text).unwrap().file_names(), ["a.vmdk"]);
        let text = "RW 8 FLAT \"a.vmdk\" 0\nRW 8 FLAT \"a.vmdk\" 7";
        let error = described(text).unwrap_err();
        assert!(error.to_string().contains("share a part"), "{error}");
    }

    #[test]
    fn malformed_descriptions_are_refused() {
        for (lines, kind, words) in [
            ("", Kind::Corrupt, "no extents"),
            ("RW", Kind::Corrupt, "no extents"),
            ("RW x FLAT \"a.vmdk\" 0", Kind::Corrupt, "malformed"),
            ("RW -1 FLAT \"a.vmdk\" 0", Kind::Corrupt, "malformed"),
            ("RW 8 FLAT a.vmdk 0", Kind::Corrupt, "malformed"),
            ("RW 8 FLAT \"a.vmdk", Kind::Corrupt, "malformed"),
            ("RW 8 FLAT \"a.vmdk\" x", Kind::Corrupt, "malformed"),
            ("RW 8 FLAT", Kind::Corrupt, "malformed"),
            ("RW 0 ZERO", Kind::Corrupt, "invalid extent of 0 sectors"),
            (
                "RW 18446744073709551615 ZERO",
                Kind::Corrupt,
                "invalid extent",
            ),
            (
                "RW 18014398509481983 ZERO\nRW 1 ZERO",
                Kind::Corrupt,
                "more than",
            ),
            (
                "RW 8 SPARSE \"a.vmdk\"\nRW 8 SPARSE \"a.vmdk\"",
                Kind::Corrupt,
                "share a part",
            ),
            ("RW 8 VMFSRDM \"a.vmdk\"", Kind::Unsupported, "VMFSRDM"),
            ("NOACCESS 8 ZERO", Kind::Unsupported, "without access"),
        ] {
            let error = described(lines).unwrap_err();
            assert_eq!(error.kind(), kind, "{lines:?}: {error}");
            assert!(error.to_string().contains(words), "{lines:?}: {error}");
        }
        let many = "RW 1 ZERO\n".repeat(MAX_EXTENTS + 1);
        assert_eq!(described(&many).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [
            "../a.vmdk",
            "/a.vmdk",
            "b/a.vmdk",
            "..\\a.vmdk",
            "C:a.vmdk",
            "secret.pdf",
            ".vmdk",
            "",
            "é",
        ] {
            let error = described(&format!("RW 8 FLAT \"{name}\" 0")).unwrap_err();
            assert_eq!(error.kind(), Kind::Unsupported, "{name}: {error}");
        }
    }

    #[test]
    fn layers_are_refused_with_the_name_of_the_other() {
        let text =
            "parentCID=12345678\nparentFileNameHint=\"below.vmdk\"\ncreateType=\"x\"\nRW 1 ZERO";
        let error = Description::parse(text).unwrap_err().to_string();
        for word in ["below.vmdk", "12345678", "qemu-img convert"] {
            assert!(error.contains(word), "{error}");
        }
    }
}
