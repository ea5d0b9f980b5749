//! Parts of the results of operations: checksums, steps of a resize, what a compaction left.

use serde::Serialize;

use super::error::{ErrorInfo, Message, messages};
use crate::container::{Orphan, StoredChecksum};
use crate::error::Place;
use crate::ops::compact::{OrphanReport, SkippedVolume};
use crate::ops::resize::ResizeStep;

/// A checksum that an image stores.
#[derive(Debug, Serialize)]
pub struct ChecksumInfo {
    /// The table, `tables` or `data fork`.
    pub name: String,
    /// `crc32`, `disk_copy`, ...; `none` or `other`.
    pub algorithm: &'static str,
    /// The stored checksum, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
    /// The checksum of the data that was read, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computed: Option<String>,
    /// True if both agree; absent if nothing was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intact: Option<bool>,
}

/// A step of a resize.
#[derive(Debug, Serialize)]
pub struct ResizeStepInfo {
    /// `grow_disk`, `shrink_disk`, `resize_partition`, `resize_volume`, `move_backup_map`.
    pub action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// Length before in bytes, unless the step moves something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_before: Option<u64>,
    /// Length afterwards in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The text for people.
    pub message: String,
}

/// Stored data that belongs to no part of the disk.
#[derive(Debug, Serialize)]
pub struct OrphanInfo {
    /// Its size, in bytes.
    pub size: u64,
    /// Its places, for people.
    #[serde(serialize_with = "messages")]
    pub places: Vec<String>,
    /// The reason why it is kept; absent if it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Message>,
}

/// A volume whose free space was not used.
#[derive(Debug, Serialize)]
pub struct SkippedVolumeInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    pub error: ErrorInfo,
    /// The volume, for people.
    #[serde(skip)]
    pub place: String,
}

impl ChecksumInfo {
    /// Returns the facts of a comparison.
    pub fn new(of: &StoredChecksum) -> Self {
        Self {
            name: of.of.clone(),
            algorithm: of.algorithm,
            stored: of.stored.clone(),
            computed: of.computed.clone(),
            intact: of.agrees(),
        }
    }
}

impl ResizeStepInfo {
    /// Returns the facts of a step.
    pub fn new(step: ResizeStep) -> Self {
        let (action, sizes) = match step {
            ResizeStep::GrowDisk { from, to } => ("grow_disk", Some((from, to))),
            ResizeStep::ShrinkDisk { from, to } => ("shrink_disk", Some((from, to))),
            ResizeStep::ResizePartition { from, to, .. } => ("resize_partition", Some((from, to))),
            ResizeStep::ResizeVolume { from, to, .. } => ("resize_volume", Some((from, to))),
            ResizeStep::MoveBackupMap => ("move_backup_map", None),
        };
        let (partition, file_system) = match step {
            ResizeStep::ResizePartition { number, .. } => (Some(number), None),
            ResizeStep::ResizeVolume { format, .. } => (None, Some(format.to_string())),
            _ => (None, None),
        };
        Self {
            action,
            partition,
            file_system,
            size_before: sizes.map(|(before, _)| before),
            size: sizes.map(|(_, after)| after),
            message: step.to_string(),
        }
    }
}

impl OrphanInfo {
    /// Returns the facts of what was found.
    pub fn new(of: &OrphanReport) -> Self {
        let place = |orphan: &Orphan| match &orphan.place {
            Place::Offset(at) => format!("{} at byte {at}", orphan.what),
            Place::Name(name) => format!("{name}: {}", orphan.what),
            Place::None => orphan.what.clone(),
        };
        Self {
            size: of.bytes(),
            places: of.found.iter().map(place).collect(),
            kept: of.kept.clone().map(Message::new),
        }
    }
}

impl SkippedVolumeInfo {
    /// Returns the facts of all volumes that were skipped.
    pub fn all(skipped: &[SkippedVolume]) -> Vec<Self> {
        let one = |skipped: &SkippedVolume| Self {
            partition: skipped.partition,
            error: ErrorInfo::brief(&skipped.error),
            place: skipped.place.clone(),
        };
        skipped.iter().map(one).collect()
    }
}
