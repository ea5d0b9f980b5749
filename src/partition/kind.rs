//! Partition types in the three kinds of map.

use std::borrow::Cow;
use std::fmt;

use uuid::{Uuid, uuid};

/// GPT type of an HFS+ or HFSX volume.
pub const APPLE_HFS: Uuid = uuid!("48465300-0000-11aa-aa11-00306543ecac");
/// GPT type of an APFS container.
pub const APPLE_APFS: Uuid = uuid!("7c3457ef-0000-11aa-aa11-00306543ecac");
/// GPT type of the EFI system partition, from which firmware boots.
pub const EFI_SYSTEM: Uuid = uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
/// GPT type of FAT, exFAT and NTFS volumes.
pub const BASIC_DATA: Uuid = uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7");

/// MBR type of an HFS+ or HFSX volume.
pub const MBR_HFS: u8 = 0xaf;

/// MBR type of the protective partition, which hides a GPT disk from programs that do not support
/// GPT.
pub(super) const PROTECTIVE: u8 = 0xee;

const GPT_KINDS: [(Uuid, &str); 15] = [
    (APPLE_HFS, "Apple_HFS"),
    (APPLE_APFS, "Apple_APFS"),
    (EFI_SYSTEM, "EFI System"),
    (BASIC_DATA, "Microsoft Basic Data"),
    (uuid!("426f6f74-0000-11aa-aa11-00306543ecac"), "Apple_Boot"),
    (
        uuid!("53746f72-6167-11aa-aa11-00306543ecac"),
        "Apple_CoreStorage",
    ),
    (uuid!("52414944-0000-11aa-aa11-00306543ecac"), "Apple_RAID"),
    (
        uuid!("69646961-6700-11aa-aa11-00306543ecac"),
        "Apple_APFS_ISC",
    ),
    (
        uuid!("52637672-7900-11aa-aa11-00306543ecac"),
        "Apple_APFS_Recovery",
    ),
    (uuid!("55465300-0000-11aa-aa11-00306543ecac"), "Apple_UFS"),
    (
        uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"),
        "Microsoft Reserved",
    ),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "BIOS Boot"),
    (
        uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"),
        "Linux Filesystem",
    ),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux Swap"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
];

const MBR_KINDS: [(u8, &str); 16] = [
    (0x01, "DOS_FAT_12"),
    (0x04, "DOS_FAT_16_S"),
    (0x05, "DOS_Extended"),
    (0x06, "DOS_FAT_16"),
    (0x07, "Windows_NTFS"),
    (0x0b, "DOS_FAT_32"),
    (0x0c, "Windows_FAT_32"),
    (0x0e, "Windows_FAT_16"),
    (0x0f, "DOS_Extended"),
    (0x82, "Linux Swap"),
    (0x83, "Linux Filesystem"),
    (0x85, "DOS_Extended"),
    (0xa8, "Apple_UFS"),
    (0xab, "Apple_Boot"),
    (MBR_HFS, "Apple_HFS"),
    (PROTECTIVE, "GPT Protective"),
];

/// The type of a partition in the terms of its map. `Display` writes it as a GUID, a name, or
/// `0x0b`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeId {
    /// Type of a GPT partition.
    Guid(Uuid),
    /// Type of a partition in an Apple partition map.
    Name(String),
    /// Type of an MBR partition.
    Byte(u8),
}

impl TypeId {
    /// Returns the name of the type on macOS (`Apple_HFS`), otherwise the type in the terms of its
    /// map.
    pub fn kind(&self) -> Cow<'_, str> {
        let known = match self {
            Self::Guid(guid) => GPT_KINDS
                .iter()
                .find(|(known, _)| known == guid)
                .map(|(_, kind)| *kind),
            Self::Byte(byte) => MBR_KINDS
                .iter()
                .find(|(known, _)| known == byte)
                .map(|(_, kind)| *kind),
            Self::Name(name) => return name.into(),
        };
        known.map_or_else(|| self.to_string().into(), Into::into)
    }

    /// Returns true for a partition from which firmware starts a computer.
    pub(crate) fn starts_computer(&self) -> bool {
        const MBR_EFI_SYSTEM: u8 = 0xef;
        match self {
            Self::Guid(guid) => *guid == EFI_SYSTEM,
            Self::Byte(byte) => *byte == MBR_EFI_SYSTEM,
            Self::Name(_) => false,
        }
    }

    /// Returns true if the partition may contain a volume: false for the map itself, free space,
    /// drivers and containers of other partitions.
    pub fn may_hold_volume(&self) -> bool {
        match self {
            Self::Guid(_) => true,
            Self::Byte(byte) => *byte != PROTECTIVE && !is_extended(*byte),
            Self::Name(name) => {
                ![
                    "Apple_partition_map",
                    "Apple_Free",
                    "Apple_Void",
                    "Apple_Scratch",
                    "Apple_Patches",
                ]
                .contains(&name.as_str())
                    && !name.starts_with("Apple_Driver")
                    && name != "Apple_FWDriver"
            }
        }
    }
}

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guid(guid) => guid.fmt(f),
            Self::Name(name) => f.write_str(name),
            Self::Byte(byte) => write!(f, "{byte:#04x}"),
        }
    }
}

/// Returns true if an MBR partition of this type contains further partitions.
pub(super) fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0f | 0x85)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_in_words() {
        for (id, shown, kind, volume) in [
            (
                TypeId::Guid(APPLE_HFS),
                "48465300-0000-11aa-aa11-00306543ecac",
                "Apple_HFS",
                true,
            ),
            (
                TypeId::Guid(EFI_SYSTEM),
                "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
                "EFI System",
                true,
            ),
            (
                TypeId::Guid(Uuid::nil()),
                "00000000-0000-0000-0000-000000000000",
                "00000000-0000-0000-0000-000000000000",
                true,
            ),
            (
                TypeId::Name("Apple_HFS".into()),
                "Apple_HFS",
                "Apple_HFS",
                true,
            ),
            (
                TypeId::Name("Apple_Free".into()),
                "Apple_Free",
                "Apple_Free",
                false,
            ),
            (
                TypeId::Name("Apple_Driver43".into()),
                "Apple_Driver43",
                "Apple_Driver43",
                false,
            ),
            (TypeId::Byte(0xaf), "0xaf", "Apple_HFS", true),
            (TypeId::Byte(0x05), "0x05", "DOS_Extended", false),
            (TypeId::Byte(0x99), "0x99", "0x99", true),
        ] {
            assert_eq!(
                (
                    id.to_string().as_str(),
                    id.kind().as_ref(),
                    id.may_hold_volume()
                ),
                (shown, kind, volume)
            );
        }
    }
}
