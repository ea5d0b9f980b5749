//! The formats of volumes, by name.

use std::fmt;

/// A file system, or what another system keeps in its place, by name. Unsupported ones are included so
/// that messages can name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "their names")]
pub enum VolumeFormat {
    HfsPlus,
    Hfsx,
    Hfs,
    Mfs,
    Apfs,
    CoreStorage,
    Fat,
    ExFat,
    Ntfs,
    Ext,
    Xfs,
    Btrfs,
    Iso9660,
    Udf,
    AppleArchive,
    BitLocker,
    Luks,
    Lvm,
    Swap,
}

impl VolumeFormat {
    /// Returns the usual name of the format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::HfsPlus => "HFS+",
            Self::Hfsx => "HFSX",
            Self::Hfs => "HFS",
            Self::Mfs => "MFS",
            Self::Apfs => "APFS",
            Self::CoreStorage => "Core Storage",
            Self::Fat => "FAT",
            Self::ExFat => "exFAT",
            Self::Ntfs => "NTFS",
            Self::Ext => "ext2/3/4",
            Self::Xfs => "XFS",
            Self::Btrfs => "Btrfs",
            Self::Iso9660 => "ISO 9660",
            Self::Udf => "UDF",
            Self::AppleArchive => "Apple Archive",
            Self::BitLocker => "BitLocker encryption",
            Self::Luks => "LUKS encryption",
            Self::Lvm => "an LVM physical volume",
            Self::Swap => "Linux swap space",
        }
    }

    /// Returns the driver of the Linux kernel that mounts the format, if there is one and Bandsaw
    /// does not read it.
    pub(crate) const fn linux_driver(self) -> Option<&'static str> {
        match self {
            Self::Ntfs => Some("ntfs3"),
            Self::Ext => Some("ext4"),
            Self::Xfs => Some("xfs"),
            Self::Btrfs => Some("btrfs"),
            Self::HfsPlus | Self::Hfsx | Self::Hfs | Self::Apfs | Self::CoreStorage => None,
            Self::Fat | Self::ExFat => None,
            Self::BitLocker | Self::Iso9660 | Self::Udf | Self::Mfs => None,
            Self::AppleArchive => None,
            Self::Luks | Self::Lvm | Self::Swap => None,
        }
    }

    /// Returns true if it is HFS+ or HFSX.
    pub const fn is_hfs_plus(self) -> bool {
        matches!(self, Self::HfsPlus | Self::Hfsx)
    }

    /// Returns true if the format is a container of several volumes, which share its space: APFS.
    pub const fn is_container(self) -> bool {
        matches!(self, Self::Apfs)
    }

    /// Returns true if this version reads the format.
    pub const fn is_supported(self) -> bool {
        self.is_checked() || matches!(self, Self::Hfs)
    }

    /// Returns true if only the state of the volume tells whether its free map can be relied on, as on all
    /// file systems that are not Apple's.
    pub(crate) const fn is_foreign(self) -> bool {
        !self.is_supported() || matches!(self, Self::Fat | Self::ExFat)
    }

    /// Returns true if this version also checks volumes of the format.
    pub const fn is_checked(self) -> bool {
        self.is_hfs_plus()
            || self.is_container()
            || matches!(self, Self::CoreStorage | Self::AppleArchive)
            || (cfg!(feature = "foreign") && self.is_of_other_systems())
    }

    /// Returns true if builds without the feature `foreign` know the format by name only.
    const fn is_of_other_systems(self) -> bool {
        matches!(self, Self::Iso9660 | Self::Udf | Self::Fat | Self::ExFat)
    }
}

impl fmt::Display for VolumeFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
