//! Recognition of images, archives and other files that are not supported, by their magic, with the
//! programs that open them.

use crate::device::{BlockDevice, BlockDeviceExt};
use crate::{Error, Result};

/// Number of bytes at the start of a file that [`recognize`] reads.
const HEAD: usize = 512;

/// A recognized but unsupported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// The name of the format, with an article.
    pub name: &'static str,
    /// The kind of file.
    pub kind: ForeignKind,
    /// Sentences that name programs that open it; `{}` stands for the name of the file.
    pub advice: &'static [&'static str],
}

/// Kinds of files that are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKind {
    /// One compressed file: the image is in it.
    Compressed,
    /// Files, among which an image may be.
    Archive,
    /// The disk of another system or program.
    Disk,
    /// An old image of Apple's.
    OldImage,
    /// No disk at all.
    Other,
}

impl Foreign {
    /// Returns the error for an attempt to open the file.
    pub fn refusal(&self) -> Error {
        let how = self.advice.first().map_or_else(String::new, |advice| {
            format!(": {}", advice.replace("{}", "FILE"))
        });
        let message = format!("is {}, which does not contain a raw disk{how}", self.name);
        Error::unsupported("image", message)
    }
}

/// Offset and bytes of a magic.
type Magic = (usize, &'static [u8]);

use ForeignKind::{Archive, Compressed, Disk, OldImage, Other};

const QEMU: &[&str] = &["convert it to a raw image: `qemu-img convert -O raw {} disk.img`"];
const SEVEN: &[&str] = &["unpack it: `7zz x {}`"];
const UNAR: &[&str] = &[
    "unpack it: `unar {}`; older versions also with StuffIt Expander",
    "resource forks are kept by `unar -forks visible`: an NDIF image needs its own",
];

/// All formats, the more specific magics first.
const TABLE: &[(Magic, &str, ForeignKind, &[&str])] = &[
    // Apple's.
    (
        (0, b"koly"),
        "a disk image (UDIF) with its header in front, an unsupported old variant",
        OldImage,
        &["convert it on an old Mac: `hdiutil convert -format UDZO`"],
    ),
    (
        (0, b"AEA1"),
        "an Apple encrypted archive, the format of Apple's system images",
        Archive,
        &["decrypt it on a Mac with `aea decrypt` and the key from its download page"],
    ),
    (
        (0, b"pbzx"),
        "a pbzx file of something else than an Apple archive, as of an installer",
        Archive,
        &["unpack it: `pbzx -n {} | cpio -i`"],
    ),
    (
        (0, b"xar!"),
        "a xar archive: an installer package (.pkg) or signed archive (.xip)",
        Archive,
        &["unpack it: `7zz x {}`, or on a Mac `pkgutil --expand {} FOLDER`"],
    ),
    // Classic Mac OS.
    (
        (0, b"StuffIt (c)1997-"),
        "a StuffIt archive (.sit)",
        Archive,
        UNAR,
    ),
    (
        (0, b"StuffIt!"),
        "a StuffIt X archive (.sitx)",
        Archive,
        UNAR,
    ),
    (
        (0, b"StuffIt?"),
        "a StuffIt X archive (.sitx)",
        Archive,
        UNAR,
    ),
    ((10, b"rLau"), "a StuffIt archive (.sit)", Archive, UNAR),
    (
        (0, b"\xab\xcd\x00\x54"),
        "a DiskDoubler file",
        Archive,
        UNAR,
    ),
    (
        (0, b"\x00\x05\x16\x07"),
        "an AppleDouble file: the attributes and resource fork of the file of this name without `._`",
        Other,
        &["open the file of this name without `._`"],
    ),
    // Disks of virtual machines and emulators.
    ((0, b"QED\0"), "a QEMU disk (qed)", Disk, QEMU),
    ((0, b"COWD"), "a VMware disk (vmdk)", Disk, QEMU),
    (
        (64, b"\x7f\x10\xda\xbe"),
        "a VirtualBox disk (vdi)",
        Disk,
        QEMU,
    ),
    (
        (0, b"WithoutFreeSpace"),
        "a Parallels disk (hdd)",
        Disk,
        QEMU,
    ),
    (
        (0, b"WithouFreSpacExt"),
        "a Parallels disk (hdd)",
        Disk,
        QEMU,
    ),
    ((0, b"Bochs Virtual HD Image"), "a Bochs disk", Disk, QEMU),
    (
        (0, b"MComprHD"),
        "a compressed disk of MAME (chd)",
        Disk,
        &["extract it: `chdman extracthd -i {} -o disk.img`"],
    ),
    // Forensic images and backups.
    (
        (0, b"EVF2\x0d\x0a\x81\0"),
        "an EnCase image (Ex01)",
        Disk,
        &["export it: `ewfexport -f raw -t disk {}`"],
    ),
    (
        (0, b"LVF\x09\x0d\x0a\xff\0"),
        "an EnCase archive of files (L01)",
        Archive,
        &["open it in the program that made it"],
    ),
    (
        (0, b"LEF2\x0d\x0a\x81\0"),
        "an EnCase archive of files (Lx01)",
        Archive,
        &["open it in the program that made it"],
    ),
    (
        (0, b"AFF10\r\n\0"),
        "an AFF image",
        Disk,
        &["convert it: `affconvert -r {}` (afflib)"],
    ),
    (
        (0, b"ADSEGMENTEDFILE"),
        "an archive of FTK Imager (AD1)",
        Archive,
        &["open it in FTK Imager"],
    ),
    (
        (0, b"partclone-image"),
        "a partclone image",
        Disk,
        &["restore it: `partclone.restore -C -s {} -O partition.img`"],
    ),
    (
        (0, b"\xb4\x6e\x68\x44"),
        "an Acronis backup (tib)",
        Disk,
        &["restore it with Acronis True Image"],
    ),
    // Of phones, Windows and Linux.
    (
        (0, b"\x3a\xff\x26\xed"),
        "an Android sparse image",
        Disk,
        &["expand it: `simg2img {} disk.img`"],
    ),
    (
        (0, b"ANDROID!"),
        "a boot image of Android",
        Other,
        &["unpack it: `unpack_bootimg --boot_img {}`"],
    ),
    (
        (0, b"MSWIM\0\0\0"),
        "a Windows image (wim, esd)",
        Archive,
        &["apply it: `wimapply {} FOLDER`, or unpack it: `7zz x {}`"],
    ),
    (
        (0, b"MSCF\0\0\0\0"),
        "a Windows cabinet (cab)",
        Archive,
        SEVEN,
    ),
    (
        (0, b"hsqs"),
        "a SquashFS file system",
        Archive,
        &["unpack it: `unsquashfs {}`"],
    ),
    (
        (0, b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0"),
        "a CD in raw sectors of 2352 bytes (bin)",
        Disk,
        &["convert it with its .cue file: `bchunk {} disc.cue disc`"],
    ),
    (
        (0, b"MEDIA DESCRIPTOR"),
        "the description of a disc (mds)",
        Other,
        &["open the file of this name that ends in .mdf"],
    ),
    (
        (0, b"IsZ!"),
        "a compressed disc image (isz)",
        Disk,
        &["expand it with UltraISO"],
    ),
    // Compressed files.
    (
        (0, b"\x1f\x8b\x08"),
        "a gzip file",
        Compressed,
        &["unpack it: `gzip -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"BZh"),
        "a bzip2 file",
        Compressed,
        &["unpack it: `bzip2 -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"\xfd7zXZ\0"),
        "an xz file",
        Compressed,
        &["unpack it: `xz -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"\x28\xb5\x2f\xfd"),
        "a zstd file",
        Compressed,
        &["unpack it: `zstd -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"\x04\x22\x4d\x18"),
        "an LZ4 file",
        Compressed,
        &["unpack it: `lz4 -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"LZIP"),
        "an lzip file",
        Compressed,
        &["unpack it: `lzip -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"\x1f\x9d\x90"),
        "a compress file (.Z)",
        Compressed,
        &["unpack it: `gzip -dc {} > unpacked.dmg`"],
    ),
    (
        (0, b"bvx"),
        "an LZFSE file",
        Compressed,
        &["unpack it on a Mac: `compression_tool -decode -i {} -o unpacked.dmg`"],
    ),
    // Archives.
    (
        (0, b"PK\x03\x04"),
        "a zip archive",
        Compressed,
        &["unpack it: `unzip {}`"],
    ),
    (
        (0, b"PK\x05\x06"),
        "an empty zip archive",
        Other,
        &["download it again"],
    ),
    (
        (0, b"7z\xbc\xaf\x27\x1c"),
        "a 7z archive",
        Compressed,
        SEVEN,
    ),
    ((0, b"Rar!\x1a\x07"), "a rar archive", Compressed, SEVEN),
    (
        (257, b"ustar"),
        "a tar archive",
        Compressed,
        &["unpack it: `tar xf {}`"],
    ),
    (
        (0, b"070701"),
        "a cpio archive",
        Archive,
        &["unpack it: `cpio -id < {}`"],
    ),
    (
        (0, b"!<arch>\n"),
        "an ar archive, or a package of Debian",
        Archive,
        &["unpack it: `ar x {}`"],
    ),
    (
        (0, b"\xed\xab\xee\xdb"),
        "an RPM package",
        Archive,
        &["unpack it: `rpm2cpio {} | cpio -id`"],
    ),
];

/// Recognizes the format of `file` by its magic. Reads the first sector.
pub fn recognize(file: &dyn BlockDevice) -> Result<Option<Foreign>> {
    let len = file.info().len;
    let head = file.read_vec(0, HEAD.min(usize::try_from(len).unwrap_or(HEAD)))?;
    let found = TABLE.iter().find(|((offset, magic), ..)| {
        let from = head.get(*offset..);
        from.is_some_and(|bytes| bytes.starts_with(magic))
    });
    Ok(found.map(|(_, name, kind, advice)| Foreign {
        name,
        kind: *kind,
        advice,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;

    #[test]
    fn each_magic_is_recognized_and_named() {
        for ((at, magic), name, kind, advice) in TABLE {
            let mut bytes = vec![0xa5; 4096];
            bytes[*at..at + magic.len()].copy_from_slice(magic);
            let found = recognize(&Memory::from(bytes)).unwrap().expect(name);
            assert_eq!((found.name, found.kind), (*name, *kind));
            assert!(found.refusal().to_string().contains(name));
            assert!(!advice.is_empty(), "{name}: no program is named");
        }
    }

    #[test]
    fn short_and_plain_files_are_nothing() {
        for len in [0, 1, 7, 8, 511, 512, 513, 4096] {
            assert_eq!(recognize(&Memory::zeros(len)).unwrap(), None);
        }
    }
}
