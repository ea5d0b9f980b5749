//! The file system of a new volume for which none is named: APFS if it fits, otherwise HFS+.

use super::NewFormat;
use crate::Result;
use crate::fs::apfs::build as apfs;
use crate::ops::disk_layout::Layout;

/// The requirements on a new image that decide its file system.
#[derive(Debug, Clone, Copy)]
pub struct FormatRequirements {
    /// The layout of the disk.
    pub layout: Layout,
    /// Sector size in bytes.
    pub sector: u32,
    /// Length of the disk in bytes. `None`: as the contents require.
    pub disk_len: Option<u64>,
    /// Allocation block size in bytes. `None`: that of the file system.
    pub block_size: Option<u64>,
    /// True if the volume is encrypted, or is one of several: features that only APFS has.
    pub requires_apfs: bool,
}

/// The file system of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultFormat {
    /// APFS or HFS+.
    pub format: NewFormat,
    /// The reason why it is not APFS. `None`: it is.
    pub reason: Option<String>,
}

impl DefaultFormat {
    /// Returns the file system of a new image: APFS, as in Disk Utility, or HFS+ if the image cannot hold
    /// APFS.
    pub fn of_image(requirements: &FormatRequirements) -> Result<Self> {
        let FormatRequirements {
            layout,
            sector,
            disk_len,
            block_size,
            requires_apfs,
        } = *requirements;
        let least = layout.disk_len_for(apfs::MIN_LEN, sector)?;
        let reason = match (disk_len, block_size) {
            _ if layout == Layout::MbrSpud => Some("an MBR cannot hold APFS".to_owned()),
            _ if requires_apfs => None,
            (Some(len), _) if len < least => {
                Some(format!("APFS requires a disk of at least {least} bytes"))
            }
            (_, Some(size)) if size != u64::from(apfs::BLOCK_BYTES) => Some(format!(
                "the block size of APFS is {} bytes",
                apfs::BLOCK_BYTES
            )),
            _ => None,
        };
        let format = match reason {
            Some(_) => NewFormat::HfsPlus,
            None => NewFormat::Apfs,
        };
        Ok(Self { format, reason })
    }

    /// Returns the file system of a volume in an existing image: HFS+, or APFS if it is encrypted.
    pub fn of_existing(is_encrypted: bool) -> NewFormat {
        match is_encrypted {
            true => NewFormat::Apfs,
            false => NewFormat::HfsPlus,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hfs_plus_is_chosen_where_apfs_does_not_fit() {
        let roomy = FormatRequirements {
            layout: Layout::default(),
            sector: 512,
            disk_len: Some(1 << 30),
            block_size: None,
            requires_apfs: false,
        };
        let chosen = |requirements| DefaultFormat::of_image(&requirements).unwrap();
        let apfs = DefaultFormat {
            format: NewFormat::Apfs,
            reason: None,
        };
        assert_eq!(chosen(roomy), apfs);
        let small = FormatRequirements {
            disk_len: Some(400 << 10),
            ..roomy
        };
        let blocks = FormatRequirements {
            block_size: Some(8192),
            ..roomy
        };
        let mbr = FormatRequirements {
            layout: Layout::MbrSpud,
            requires_apfs: true,
            ..roomy
        };
        for (requirements, reason) in [(small, "at least"), (blocks, "block size"), (mbr, "MBR")] {
            let chosen = chosen(requirements);
            assert_eq!(chosen.format, NewFormat::HfsPlus);
            assert!(chosen.reason.unwrap().contains(reason), "{reason}");
        }
        let encrypted = FormatRequirements {
            requires_apfs: true,
            ..small
        };
        assert_eq!(chosen(encrypted), apfs);
    }
}
