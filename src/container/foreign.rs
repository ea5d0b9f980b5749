//! Recognition of images and archives that are not supported, by their magic.

use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{Error, Result};

/// Number of bytes at the start of a file that [`recognize`] reads.
const HEAD: usize = 512;

/// A recognized but unsupported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// The name of the format.
    pub name: &'static str,
    /// True if it is one of Apple's image formats, to be supported by a later version.
    pub later: bool,
}

impl Foreign {
    /// Returns the error for an attempt to open the file.
    pub fn refusal(&self) -> Error {
        let why = if self.later {
            "which this version does not support"
        } else {
            "which does not contain a raw disk: convert or extract it first (`qemu-img convert -O \
             raw` for disks of virtual machines)"
        };
        Error::unsupported("image", format!("is {}, {why}", self.name))
    }
}

/// Apple's formats, each with the offset of its magic.
const APPLE: [(usize, &[u8], &str); 5] = [
    (0, b"koly", "a disk image (UDIF) with its header in front"),
    (0, b"AEA1", "an Apple encrypted archive"),
    (0, b"AA01", "an Apple archive"),
    (0, b"YAA1", "an Apple archive"),
    (0, b"pbzx", "an Apple pbzx archive"),
];

/// Disks of other systems, and archives that images are distributed in.
const OTHERS: [(usize, &[u8], &str); 19] = [
    (0, b"QED\0", "a QEMU disk (qed)"),
    (0, b"COWD", "a VMware disk (vmdk)"),
    (
        0,
        b"# Disk DescriptorFile",
        "the description of a VMware disk (vmdk)",
    ),
    (64, b"\x7f\x10\xda\xbe", "a VirtualBox disk (vdi)"),
    (0, b"WithoutFreeSpace", "a Parallels disk (hdd)"),
    (0, b"WithouFreSpacExt", "a Parallels disk (hdd)"),
    (0, b"EVF2\x0d\x0a\x81\0", "an EnCase image (Ex01)"),
    (
        0,
        b"LVF\x09\x0d\x0a\xff\0",
        "an EnCase archive of files (L01)",
    ),
    (0, b"MSWIM\0\0\0", "a Windows image (wim)"),
    (0, b"\x1f\x8b\x08", "a gzip file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"bvx", "an LZFSE file"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a rar archive"),
    (0, b"xar!", "a xar archive"),
    (257, b"ustar", "a tar archive"),
];

/// Recognizes the format of `file` by its magic. Reads the first sector.
pub fn recognize(file: &dyn BlockDevice) -> Result<Option<Foreign>> {
    let len = file.info().len;
    let head = file.read_vec(0, HEAD.min(usize::try_from(len).unwrap_or(HEAD)))?;
    let stands = |(offset, magic, _): &&(usize, &[u8], &'static str)| {
        let from = head.get(*offset..);
        from.is_some_and(|bytes| bytes.starts_with(magic))
    };
    let ours = APPLE
        .iter()
        .find(stands)
        .map(|(_, _, name)| Foreign { name, later: true });
    Ok(ours.or_else(|| {
        OTHERS
            .iter()
            .find(stands)
            .map(|(_, _, name)| Foreign { name, later: false })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;

    #[test]
    fn each_magic_is_recognized_and_named() {
        for (at, magic, name) in APPLE.iter().chain(&OTHERS) {
            let mut bytes = vec![0xa5; 4096];
            bytes[*at..at + magic.len()].copy_from_slice(magic);
            let found = recognize(&Memory::from(bytes)).unwrap().expect(name);
            assert_eq!(found.name, *name);
            assert!(found.refusal().to_string().contains(name));
        }
    }

    #[test]
    fn short_and_plain_files_are_nothing() {
        for len in [0, 1, 7, 8, 511, 512, 513, 4096] {
            assert_eq!(recognize(&Memory::zeros(len)).unwrap(), None);
        }
    }
}
