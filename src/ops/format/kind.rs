//! The file systems that can be made: their names, their builders, what a partition map calls them.
//!
//! Whoever adds one adds a row to [`NewFormat::ALL`] and an arm to each match below; nothing else
//! in the project asks which it is.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::LAYER;
use crate::fs::apfs::build as apfs;
use crate::fs::hfsplus::build as hfsplus;
use crate::fs::source::Tree;
use crate::fs::{Timestamp, VolumeEncryption, VolumePlan};
use crate::partition::{APPLE_APFS, APPLE_HFS};
use crate::{Error, Kind, Result};

/// A file system to make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NewFormat {
    /// HFS Plus.
    #[default]
    HfsPlus,
    /// The same with a journal.
    HfsPlusJournaled,
    /// HFSX whose names tell `A` from `a`.
    Hfsx,
    /// The same with a journal.
    HfsxJournaled,
    /// APFS.
    Apfs,
    /// APFS whose names tell `A` from `a`.
    ApfsCaseSensitive,
}

/// What a new volume is like, whatever its format.
#[derive(Debug, Clone)]
pub struct VolumeOptions {
    /// Its name.
    pub name: String,
    /// Bytes of an allocation block. `None`: as Apple's formatter chooses.
    pub block_size: Option<u32>,
    /// When it is made.
    pub created: Timestamp,
    /// No date on it is later than this, for volumes that are the same whenever they are made.
    pub latest: Option<Timestamp>,
    /// From which its identifiers are made; best a random number.
    pub id: Uuid,
    /// Names of further, empty volumes, of formats that hold several.
    pub more_volumes: Vec<String>,
    /// Whether and how its volumes are encrypted, of formats that can be.
    pub encryption: Option<VolumeEncryption>,
}

impl NewFormat {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::HfsPlus,
        Self::HfsPlusJournaled,
        Self::Hfsx,
        Self::HfsxJournaled,
        Self::Apfs,
        Self::ApfsCaseSensitive,
    ];

    /// Its names, the one it goes by here first; the others are those of `hdiutil` and `diskutil`.
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
        }
    }

    /// Returns whether what is a hole in a sparse file takes no room.
    pub const fn has_holes(self) -> bool {
        matches!(self, Self::Apfs | Self::ApfsCaseSensitive)
    }

    /// Plans a volume that holds `tree`. Refuses, naming the file, what the volume cannot hold.
    pub fn plan(self, tree: Tree, options: VolumeOptions) -> Result<Box<dyn VolumePlan>> {
        if !options.more_volumes.is_empty() && !self.holds_several() {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                format!("{self} is one volume; APFS holds several"),
            ));
        }
        if options.encryption.is_some() && self.is_hfs() {
            let message = format!(
                "a volume of {self} is not encrypted; one of APFS can be, and any image as a whole"
            );
            return Err(Error::new(Kind::Invalid, LAYER, message));
        }
        match self {
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled => {
                Ok(Box::new(hfsplus::Plan::new(tree, self.hfsplus(options))?))
            }
            Self::Apfs | Self::ApfsCaseSensitive => self.plan_apfs(tree, options),
        }
    }

    fn hfsplus(self, options: VolumeOptions) -> hfsplus::Options {
        let VolumeOptions {
            name,
            block_size,
            created,
            latest,
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
            identifier,
        }
    }

    /// The number that `node` will have on the volume that is made of `tree`, for aliases, which
    /// have 32 bits for it: 0 where the numbers of files are longer, and aliases go by names.
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
            Self::Apfs | Self::ApfsCaseSensitive => Ok(0),
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
        } = options;
        if let Some(size) = block_size.filter(|&size| size != apfs::BLOCK_BYTES) {
            let message = format!(
                "a block of {size} bytes, but APFS is made with blocks of {}",
                apfs::BLOCK_BYTES
            );
            return Err(Error::new(Kind::Invalid, LAYER, message));
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

    /// Returns whether several volumes share the room of one.
    pub const fn holds_several(self) -> bool {
        matches!(self, Self::Apfs | Self::ApfsCaseSensitive)
    }

    /// Returns whether it is HFS+ or HFSX.
    pub const fn is_hfs(self) -> bool {
        matches!(
            self,
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled
        )
    }

    /// What a GPT calls a partition that holds it.
    pub const fn partition_type(self) -> Uuid {
        match self {
            Self::HfsPlus | Self::HfsPlusJournaled | Self::Hfsx | Self::HfsxJournaled => APPLE_HFS,
            Self::Apfs | Self::ApfsCaseSensitive => APPLE_APFS,
        }
    }
}

impl fmt::Display for NewFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.names()[0])
    }
}

impl FromStr for NewFormat {
    type Err = Error;

    /// Any of its names in any case.
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
            Error::new(
                Kind::Invalid,
                LAYER,
                format!(
                    "no file system of this name can be made; there are {}",
                    known.join(", ")
                ),
            )
            .named(text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
