//! Detection of file systems, and of what other systems keep in their place, by their magic.

use super::volume_format::VolumeFormat;
use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::fs::{apple_archive, core_storage, exfat, fat, foreign, hfsplus, udf};

/// Magic numbers and their offsets.
const MAGICS: [(u64, &[u8], VolumeFormat); 12] = [
    (32, b"NXSB", VolumeFormat::Apfs),
    (exfat::MAGIC.0, exfat::MAGIC.1, VolumeFormat::ExFat),
    (3, b"-FVE-FS-", VolumeFormat::BitLocker),
    (3, &foreign::NTFS_NAME, VolumeFormat::Ntfs),
    (0, b"XFSB", VolumeFormat::Xfs),
    (0x1_0040, b"_BHRfS_M", VolumeFormat::Btrfs),
    (0x8001, b"CD001", VolumeFormat::Iso9660),
    (0, b"LUKS\xba\xbe", VolumeFormat::Luks),
    (512, b"LABELONE", VolumeFormat::Lvm),
    (4086, b"SWAPSPACE2", VolumeFormat::Swap),
    (0, &apple_archive::MAGICS[0], VolumeFormat::AppleArchive),
    (0, &apple_archive::MAGICS[1], VolumeFormat::AppleArchive),
];

/// Bytes read in one call for the magics near the front.
const HEAD: usize = 2048;

/// Returns the file system that begins at the first byte of `device`.
pub(super) fn detect_file_system(device: &dyn BlockDevice) -> Result<Option<VolumeFormat>> {
    if let Some(found) = hfsplus::probe_front(device)? {
        return Ok(Some(of_apple(found)));
    }
    let len = device.info().len;
    let head = device.read_vec(0, HEAD.min(usize::try_from(len).unwrap_or(HEAD)))?;
    for (offset, magic, format) in MAGICS {
        let end = offset + magic.len() as u64;
        let matches = match usize::try_from(offset)
            .ok()
            .and_then(|start| head.get(start..))
        {
            Some(bytes) if bytes.len() >= magic.len() => bytes.starts_with(magic),
            _ => end <= len && device.read_vec(offset, magic.len())? == magic,
        };
        if matches && format == VolumeFormat::Iso9660 && udf::is_recognized(device)? {
            // A bridge disc has both, and UDF is the larger.
            return Ok(Some(VolumeFormat::Udf));
        }
        if matches {
            return Ok(Some(format));
        }
    }
    if udf::is_recognized(device)? {
        return Ok(Some(VolumeFormat::Udf));
    }
    if core_storage::group_of(device)?.is_some() {
        return Ok(Some(VolumeFormat::CoreStorage));
    }
    let by_fields = [
        (foreign::is_mfs(&head), VolumeFormat::Mfs),
        (foreign::is_ext(&head), VolumeFormat::Ext),
        (fat::is_boot_sector(&head), VolumeFormat::Fat),
    ];
    if let Some((_, format)) = by_fields.into_iter().find(|(is, _)| *is) {
        return Ok(Some(format));
    }
    // Last: the alternate header survives when another file system is created over the volume.
    Ok(hfsplus::probe_copy(device)?.map(of_apple))
}

fn of_apple(found: hfsplus::Probed) -> VolumeFormat {
    match found {
        hfsplus::Probed::HfsPlus | hfsplus::Probed::Wrapped => VolumeFormat::HfsPlus,
        hfsplus::Probed::Hfsx => VolumeFormat::Hfsx,
        hfsplus::Probed::Hfs => VolumeFormat::Hfs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;

    const LEN: usize = 1 << 20;

    fn found(change: impl FnOnce(&mut [u8])) -> Option<VolumeFormat> {
        let mut bytes = vec![0; LEN];
        change(&mut bytes);
        detect_file_system(&Memory::from(bytes)).unwrap()
    }

    fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
        bytes[at..at + what.len()].copy_from_slice(what);
    }

    /// Writes a boot sector as mkfs.fat does.
    fn fat(bytes: &mut [u8]) {
        put(bytes, 0, &[0xeb, 0x3c, 0x90]);
        put(bytes, 11, &[0x00, 0x02, 4, 1, 0, 2, 0, 2, 0, 8, 0xf8]);
        put(bytes, 510, &[0x55, 0xaa]);
    }

    fn ext(bytes: &mut [u8]) {
        for (at, value) in [(0, 128u32), (4, 1024), (24, 2), (76, 1)] {
            put(bytes, 1024 + at, &value.to_le_bytes());
        }
        put(bytes, 1080, &[0x53, 0xef]);
    }

    /// Writes a master directory block as the Finder of 1984 does on a disk of 400 KB.
    fn mfs(bytes: &mut [u8]) {
        put(bytes, 1024, &[0xd2, 0xd7]);
        for (at, value) in [(14, 4_u16), (18, 391), (22, 1024), (28, 16)] {
            put(bytes, 1024 + at, &value.to_be_bytes());
        }
        put(bytes, 1024 + 36, b"\x04Disk");
    }

    #[test]
    fn each_magic_is_known() {
        for (at, magic, format) in MAGICS {
            assert_eq!(found(|bytes| put(bytes, at as usize, magic)), Some(format));
        }
        let udf = |bytes: &mut [u8]| {
            put(bytes, 0x8001, b"BEA01");
            put(bytes, 0x8801, b"NSR03");
        };
        assert_eq!(found(udf), Some(VolumeFormat::Udf));
        assert_eq!(found(|bytes| put(bytes, 0x8801, b"NSR03")), None);
        assert_eq!(
            found(|bytes| put(bytes, 1024, b"H+\0\x04")),
            Some(VolumeFormat::HfsPlus)
        );
        assert_eq!(
            found(|bytes| put(bytes, 1024, b"HX\0\x05")),
            Some(VolumeFormat::Hfsx)
        );
        let hfs = |bytes: &mut [u8]| {
            put(bytes, 1024, b"BD");
            put(bytes, 1044, &512_u32.to_be_bytes());
        };
        assert_eq!(found(hfs), Some(VolumeFormat::Hfs));
        assert_eq!(found(mfs), Some(VolumeFormat::Mfs));
        assert_eq!(found(|_| {}), None);
    }

    #[test]
    fn the_copy_of_a_header_counts_where_nothing_else_is() {
        let of_blocks = |bytes: &mut [u8], count: u32| {
            put(bytes, LEN - 1024, b"H+\0\x04");
            put(
                bytes,
                LEN - 1024 + 40,
                &[4096_u32.to_be_bytes(), count.to_be_bytes()].concat(),
            );
        };
        let copy = |bytes: &mut [u8]| of_blocks(bytes, (LEN / 4096) as u32);
        assert_eq!(found(copy), Some(VolumeFormat::HfsPlus));
        for of_another in [LEN / 4096 - 1, LEN / 4096 + 1] {
            assert_eq!(
                found(|bytes| of_blocks(bytes, of_another as u32)),
                None,
                "of a partition, not of the disk"
            );
        }
        let made_over = |change: fn(&mut [u8])| {
            found(|bytes| {
                copy(bytes);
                change(bytes);
            })
        };
        assert_eq!(made_over(fat), Some(VolumeFormat::Fat));
        assert_eq!(made_over(ext), Some(VolumeFormat::Ext));
        assert_eq!(
            made_over(|bytes| put(bytes, 32, b"NXSB")),
            Some(VolumeFormat::Apfs)
        );
    }

    #[test]
    fn two_bytes_alone_prove_nothing() {
        assert_eq!(found(fat), Some(VolumeFormat::Fat));
        assert_eq!(found(ext), Some(VolumeFormat::Ext));
        for spoilt in [0, 12, 13, 14, 16, 21, 511] {
            let change = |bytes: &mut [u8]| {
                fat(bytes);
                bytes[spoilt] = if spoilt == 13 { 3 } else { 0 };
            };
            assert_eq!(found(change), None, "byte {spoilt}");
        }
        for spoilt in [1024, 1025, 1039, 1047, 1053, 1060] {
            let change = |bytes: &mut [u8]| {
                mfs(bytes);
                bytes[spoilt] = if spoilt == 1047 { 1 } else { 0 };
            };
            assert_eq!(found(change), None, "byte {spoilt}");
        }
        assert_eq!(found(|bytes| put(bytes, 1080, &[0x53, 0xef])), None);
        assert_eq!(found(|bytes| put(bytes, 1024, b"H+")), None);
    }

    #[test]
    fn short_disks_are_looked_at_with_care() {
        for len in [0, 1, 40, 511, 512, 1026, 1100, 2048, 0x8005] {
            assert_eq!(
                detect_file_system(&Memory::from(vec![0; len])).unwrap(),
                None
            );
        }
    }
}
