//! The file systems that can be created: their names, builders and partition types.
//!
//! To add one, add a row to [`NewFormat::ALL`] and an arm to each match below. No other code
//! depends on the format.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::{LAYER, attribute_files};
use crate::fs::apfs::build as apfs;
use crate::fs::exfat::build as exfat;
use crate::fs::fat::build as fat;
use crate::fs::hfsplus::build as hfsplus;
use crate::fs::source::Tree;
use crate::fs::{Timestamp, VolumeEncryption, VolumePlan};
use crate::ops::disk_layout::Layout;
use crate::partition::single::SingleType;
use crate::partition::{APPLE_APFS, APPLE_HFS, BASIC_DATA, MBR_HFS};
use crate::{Error, Result};

/// A file system to create.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NewFormat {
    /// HFS+ without a journal.
    #[default]
    HfsPlus,
    /// HFS+ with a journal.
    HfsPlusJournaled,
    /// HFSX, case-sensitive, without a journal.
    Hfsx,
    /// HFSX, case-sensitive, with a journal.
    HfsxJournaled,
    /// APFS, case-insensitive.
    Apfs,
    /// APFS, case-sensitive.
    ApfsCaseSensitive,
    /// FAT12, FAT16 or FAT32, by the length of the volume.
    Fat,
    /// FAT12.
    Fat12,
    /// FAT16.
    Fat16,
    /// FAT32.
    Fat32,
    /// exFAT.
    ExFat,
}

/// Properties of a new volume of any format.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// The volume name.
    pub name: String,
    /// Allocation block size in bytes. `None`: as chosen by Apple's formatter.
    pub block_size: Option<u32>,
    /// Creation date.
    pub created: Timestamp,
    /// Latest date on the volume, for reproducible volumes. Later dates are replaced by it.
    pub latest: Option<Timestamp>,
    /// True if the Finder is to open a window of the root folder when the volume is mounted; HFS+ only.
    pub opens: bool,
    /// Seed of the volume's identifiers, preferably a random number.
    pub id: Uuid,
    /// Names of further, empty volumes, for formats that hold several.
    pub more_volumes: Vec<String>,
    /// Encryption of the volumes, for formats that support it. `None`: not encrypted.
    pub encryption: Option<VolumeEncryption>,
}

impl NewFormat {
    /// All formats.
    pub const ALL: [Self; 11] = [
        Self::HfsPlus,
        Self::HfsPlusJournaled,
        Self::Hfsx,
        Self::HfsxJournaled,
        Self::Apfs,
        Self::ApfsCaseSensitive,
        Self::Fat,
        Self::Fat12,
        Self::Fat16,
        Self::Fat32,
        Self::ExFat,
    ];

    /// Returns the names of the format: the primary one first, then those of `hdiutil` and
    /// `diskutil`.
    pub const fn names(self) -> &'static [&'static str] {
        match self {
            Self::HfsPlus => &["HFS+", "HFSPlus"],
            Self::HfsPlusJournaled => &["HFS+J", "JHFS+", "Journaled HFS+", "HFSPlusJ"],
            Self::Hfsx => &["HFSX", "Case-sensitive HFS+", "HFS+X"],
            Self::HfsxJournaled => &[
                "HFSX+J",
                "JHFS+X",
                "Case-sensitive Journaled HFS+",
                "HFSXJ",
                "JHFSX",
            ],
            Self::Apfs => &["APFS"],
            Self::ApfsCaseSensitive => &["APFS-case-sensitive", "Case-sensitive APFS", "APFSX"],
            Self::Fat => &["FAT", "MS-DOS", "MS-DOS FAT"],
            Self::Fat12 => &["FAT12", "MS-DOS FAT12"],
            Self::Fat16 => &["FAT16", "MS-DOS FAT16"],
            Self::Fat32 => &["FAT32", "MS-DOS FAT32"],
            Self::ExFat => &["exFAT"],
        }
    }

    /// Returns true if holes in a sparse file take no storage on the volume.
    pub const fn has_holes(self) -> bool {
        matches!(self, Self::Apfs | Self::ApfsCaseSensitive)
    }

    /// Plans a volume that holds `tree`. Fails, naming the file, if the volume cannot hold it.
    pub fn plan(self, mut tree: Tree, options: VolumeOptions) -> Result<Box<dyn VolumePlan>> {
        if self.is_fat() || self == Self::ExFat {
            attribute_files::add(&mut tree)?;
        }
        if !options.more_volumes.is_empty() && !self.holds_several() {
            return Err(Error::invalid(
                LAYER,
                format!("{self} has one volume; APFS can have several"),
            ));
        }
        if options.encryption.is_some() && !self.holds_several() {
            let message =
                format!("{self} volumes cannot be encrypted; use APFS, or encrypt the image");
            return Err(Error::invalid(LAYER, message));
        }
        match self {
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled => {
                Ok(Box::new(hfsplus::Plan::new(tree, self.hfsplus(options))?))
            }
            Self::Apfs | Self::ApfsCaseSensitive => self.plan_apfs(tree, options),
            Self::Fat | Self::Fat12 | Self::Fat16 | Self::Fat32 => {
                let options = fat::FatOptions {
                    name: options.name,
                    width: self.fat_width(),
                    block_size: options.block_size,
                    created: options.created,
                    latest: options.latest,
                    serial: serial(options.id),
                };
                Ok(Box::new(fat::FatPlan::new(tree, options)?))
            }
            Self::ExFat => {
                let options = exfat::ExFatOptions {
                    name: options.name,
                    block_size: options.block_size,
                    created: options.created,
                    latest: options.latest,
                    serial: serial(options.id),
                };
                Ok(Box::new(exfat::ExFatPlan::new(tree, options)?))
            }
        }
    }

    const fn fat_width(self) -> Option<fat::Width> {
        match self {
            Self::Fat12 => Some(fat::Width::Fat12),
            Self::Fat16 => Some(fat::Width::Fat16),
            Self::Fat32 => Some(fat::Width::Fat32),
            _ => None,
        }
    }

    fn hfsplus(self, options: VolumeOptions) -> hfsplus::Options {
        let VolumeOptions {
            name,
            block_size,
            created,
            latest,
            opens,
            id,
            ..
        } = options;
        let (identifier, _) = id.as_u64_pair();
        let case_sensitive = matches!(self, Self::Hfsx | Self::HfsxJournaled);
        let journaled = matches!(self, Self::HfsPlusJournaled | Self::HfsxJournaled);
        hfsplus::Options {
            name,
            case_sensitive,
            journaled,
            block_size,
            created,
            latest,
            opens,
            identifier,
        }
    }

    /// Returns the number that `node` will have on the volume built from `tree`, for the 32-bit
    /// field of aliases. 0 for file systems with longer numbers, where aliases use names.
    pub(in crate::ops) fn number_of(
        self,
        tree: &Tree,
        options: &VolumeOptions,
        node: u32,
    ) -> Result<u32> {
        match self {
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled => {
                hfsplus::number_of(tree, &self.hfsplus(options.clone()), node)
            }
            _ => Ok(0),
        }
    }

    fn plan_apfs(self, tree: Tree, options: VolumeOptions) -> Result<Box<dyn VolumePlan>> {
        let VolumeOptions {
            name,
            block_size,
            created,
            latest,
            id,
            more_volumes,
            encryption,
            opens: _,
        } = options;
        if let Some(size) = block_size.filter(|&size| size != apfs::BLOCK_BYTES) {
            let message = format!("invalid block size {size}: APFS uses {}", apfs::BLOCK_BYTES);
            return Err(Error::invalid(LAYER, message));
        }
        let case_sensitive = self == Self::ApfsCaseSensitive;
        let names = std::iter::once(name).chain(more_volumes);
        let uuid = |number: usize| Uuid::new_v5(&id, format!("volume {number}").as_bytes());
        let volume = |(number, name)| apfs::NewVolume {
            name,
            case_sensitive,
            uuid: uuid(number),
        };
        let volumes = names.enumerate().map(volume).collect();
        let options = apfs::Options {
            volumes,
            created,
            latest,
            uuid: id,
        };
        Ok(Box::new(apfs::Plan::encrypted(
            tree,
            options,
            encryption.as_ref(),
        )?))
    }

    /// Returns true if several volumes can share the space of one container.
    pub(crate) const fn holds_several(self) -> bool {
        matches!(self, Self::Apfs | Self::ApfsCaseSensitive)
    }

    /// Returns true for HFS+ and HFSX.
    pub const fn is_hfs(self) -> bool {
        matches!(
            self,
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled
        )
    }

    /// Returns true for FAT12, FAT16 and FAT32.
    pub const fn is_fat(self) -> bool {
        matches!(self, Self::Fat | Self::Fat12 | Self::Fat16 | Self::Fat32)
    }

    /// Returns the GPT type of a partition that holds the format.
    pub const fn partition_type(self) -> Uuid {
        match self {
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled => APPLE_HFS,
            Self::Apfs | Self::ApfsCaseSensitive => APPLE_APFS,
            Self::Fat | Self::Fat12 | Self::Fat16 | Self::Fat32 | Self::ExFat => BASIC_DATA,
        }
    }

    /// Returns the type of a single partition in each kind of map.
    pub(crate) fn single_type(self) -> SingleType {
        SingleType {
            guid: self.partition_type(),
            mbr: self.mbr_type(),
            apm: self.is_hfs() || self.holds_several(),
        }
    }

    /// Returns the MBR type of a partition by its length in bytes. `None`: an MBR has none.
    pub(crate) fn mbr_type(self) -> Option<fn(u64) -> u8> {
        /// Length in bytes from which the type of FAT16 is another.
        const LARGE: u64 = 32 << 20;
        const FAT12: u8 = 0x01;
        const FAT32: u8 = 0x0b;
        const SMALL_FAT16: u8 = 0x04;
        const FAT16: u8 = 0x06;
        const EXFAT: u8 = 0x07;
        let of_len: fn(u64) -> u8 = match self {
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled => {
                |_| MBR_HFS
            }
            Self::Apfs | Self::ApfsCaseSensitive => return None,
            Self::Fat12 => |_| FAT12,
            Self::Fat16 => |len| if len < LARGE { SMALL_FAT16 } else { FAT16 },
            Self::Fat32 => |_| FAT32,
            Self::Fat => |len| match fat::width_of(len) {
                fat::Width::Fat12 => FAT12,
                fat::Width::Fat16 if len < LARGE => SMALL_FAT16,
                fat::Width::Fat16 => FAT16,
                fat::Width::Fat32 => FAT32,
            },
            Self::ExFat => |_| EXFAT,
        };
        Some(of_len)
    }

    /// Returns the layout of a disk that is created for the format.
    pub const fn usual_layout(self) -> Layout {
        match self.partition_type().as_u128() == BASIC_DATA.as_u128() {
            true => Layout::MbrSpud,
            false => Layout::Gptspud,
        }
    }
}

/// Returns the serial number of a volume with an identifier.
const fn serial(id: Uuid) -> u32 {
    let (number, _) = id.as_u64_pair();
    // Its upper half is as random as the rest.
    (number >> 32) as u32
}

impl fmt::Display for NewFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.names()[0])
    }
}

impl FromStr for NewFormat {
    type Err = Error;

    /// Parses any of the names in any case.
    fn from_str(text: &str) -> Result<Self> {
        let is_named = |format: &Self| {
            format
                .names()
                .iter()
                .any(|name| name.eq_ignore_ascii_case(text))
        };
        Self::ALL.into_iter().find(is_named).ok_or_else(|| {
            let known: Vec<_> = Self::ALL
                .iter()
                .map(|format| format.to_string().to_ascii_lowercase())
                .collect();
            Error::invalid(
                LAYER,
                format!("unknown file system: expected one of {}", known.join(", ")),
            )
            .named(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_types_of_partitions() {
        const MIB: u64 = 1 << 20;
        for (format, guid, mbr, layout) in [
            (
                NewFormat::HfsPlus,
                APPLE_HFS,
                Some([0xAF; 4]),
                Layout::Gptspud,
            ),
            (
                NewFormat::HfsxJournaled,
                APPLE_HFS,
                Some([0xAF; 4]),
                Layout::Gptspud,
            ),
            (NewFormat::Apfs, APPLE_APFS, None, Layout::Gptspud),
            (
                NewFormat::Fat,
                BASIC_DATA,
                Some([1, 4, 6, 0xB]),
                Layout::MbrSpud,
            ),
            (NewFormat::Fat12, BASIC_DATA, Some([1; 4]), Layout::MbrSpud),
            (
                NewFormat::Fat16,
                BASIC_DATA,
                Some([4, 4, 6, 6]),
                Layout::MbrSpud,
            ),
            (
                NewFormat::Fat32,
                BASIC_DATA,
                Some([0xB; 4]),
                Layout::MbrSpud,
            ),
            (NewFormat::ExFat, BASIC_DATA, Some([7; 4]), Layout::MbrSpud),
        ] {
            let of = [MIB, 31 * MIB, 33 * MIB, 4096 * MIB];
            let found = format.mbr_type().map(|of_len| of.map(of_len));
            assert_eq!(found, mbr, "{format}");
            assert_eq!(format.partition_type(), guid, "{format}");
            assert_eq!(format.usual_layout(), layout, "{format}");
            assert_eq!(format.single_type().apm, guid != BASIC_DATA, "{format}");
        }
    }

    #[test]
    fn only_apfs_has_several_volumes_and_encrypts_them() {
        let options = |name: &str| VolumeOptions {
            name: name.to_owned(),
            block_size: None,
            created: Timestamp::from_seconds(0),
            latest: None,
            opens: false,
            id: Uuid::nil(),
            more_volumes: Vec::new(),
            encryption: None,
        };
        for format in NewFormat::ALL {
            let plan = format.plan(Tree::empty(Timestamp::from_seconds(0)), options("A"));
            assert!(plan.unwrap().minimum_len().unwrap() > 0, "{format}");
            let several = VolumeOptions {
                more_volumes: vec!["B".to_owned()],
                ..options("A")
            };
            let planned = format.plan(Tree::empty(Timestamp::from_seconds(0)), several);
            assert_eq!(planned.is_ok(), format.holds_several(), "{format}");
            assert_eq!(format.has_holes(), format.holds_several(), "{format}");
        }
        let blocks = VolumeOptions {
            block_size: Some(8192),
            ..options("A")
        };
        let error = NewFormat::Apfs
            .plan(Tree::empty(Timestamp::from_seconds(0)), blocks)
            .unwrap_err();
        assert!(error.message().contains("block size 8192"), "{error}");
    }

    #[test]
    fn names_are_read_in_any_case_and_belong_to_one() {
        for format in NewFormat::ALL {
            for name in format.names() {
                assert_eq!(name.to_uppercase().parse::<NewFormat>().unwrap(), format);
                assert_eq!(name.to_lowercase().parse::<NewFormat>().unwrap(), format);
            }
        }
        let names: Vec<_> = NewFormat::ALL
            .iter()
            .flat_map(|format| format.names())
            .map(|name| name.to_lowercase())
            .collect();
        let mut apart = names.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), names.len());
        let error = "ext4".parse::<NewFormat>().unwrap_err();
        assert!(
            error.to_string().contains("hfs+") && error.to_string().contains("ext4"),
            "{error}"
        );
    }
}
