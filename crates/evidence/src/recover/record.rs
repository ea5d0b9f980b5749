//! Files and volumes of a search, as documents state them.

use bandsaw::fs::{FileKind, Fork, RecoveredFile, Timestamp};
use bandsaw::ops::describe::ErrorInfo;
use serde::Serialize;

/// A volume that was searched.
#[derive(Debug, Clone, Serialize)]
pub struct VolumeEntry {
    /// Number among those that were searched, from 1; files refer to it.
    pub volume: u32,
    /// Number of its partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Number in its container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Format.
    pub file_system: String,
    /// Name, if it could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// First byte on the disk.
    pub disk_offset: u64,
    /// Bytes of its partition or container.
    pub size: u64,
    /// True if it was found by a search of the disk, as no partition map or header leads to it.
    pub lost: bool,
    /// True if its trees could not be read as a whole.
    pub damaged: bool,
    /// Number of files that were found and selected.
    pub files: u64,
    /// Bytes that were searched.
    pub searched: u64,
    /// Number of nodes whose volume is unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub unassigned_nodes: u64,
    /// Damage that was found.
    pub problems: Vec<ErrorInfo>,
}

/// A file that was found.
#[derive(Debug, Clone, Serialize)]
pub struct FileEntry {
    /// Number of its volume.
    pub volume: u32,
    /// Path in the volume.
    pub volume_path: String,
    /// Kind of the object.
    pub kind: &'static str,
    /// Its number in the volume.
    pub id: u64,
    /// Bytes of the data fork.
    pub size: u64,
    /// Bytes of the resource fork.
    #[serde(skip_serializing_if = "is_zero")]
    pub resource_fork_size: u64,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Modification time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// Time of the last change of attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
    /// `whole`, `existing`, `partial` or `name_only`.
    pub certainty: &'static str,
    /// The place of its record.
    pub source: &'static str,
    /// Offset of its record on the disk, in bytes.
    pub disk_offset: u64,
    /// Transaction of its record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<u64>,
    /// True if a folder of its path is unknown.
    pub orphan: bool,
    /// True if a file with its number exists.
    pub earlier_version: bool,
    /// Number of lost bytes of both forks as they are stored.
    pub lost_size: u64,
    /// The lost bytes.
    pub losses: Vec<LossEntry>,
    /// The places of its bytes.
    pub extents: Vec<RunEntry>,
    /// The file of the host that it was written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_path: Option<String>,
}

/// Lost bytes of a file.
#[derive(Debug, Clone, Serialize)]
pub struct LossEntry {
    /// `data` or `resource`.
    pub fork: &'static str,
    /// Offset in the fork as it is stored.
    pub offset: u64,
    /// Number of bytes; 0 if nothing is known of the contents.
    pub size: u64,
    /// The reason of the loss.
    pub reason: &'static str,
}

/// A run of bytes of a file.
#[derive(Debug, Clone, Serialize)]
pub struct RunEntry {
    /// `data` or `resource`.
    pub fork: &'static str,
    /// Offset in the fork as it is stored.
    pub offset: u64,
    /// Number of bytes.
    pub size: u64,
    /// Offset on the disk.
    pub disk_offset: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn fork(fork: Fork) -> &'static str {
    match fork {
        Fork::Data => "data",
        Fork::Resource => "resource",
    }
}

impl FileEntry {
    /// Describes a file of volume number `volume`, which begins at byte `start` of the disk.
    pub(super) fn new(file: &RecoveredFile, volume: u32, start: u64) -> Self {
        let attributes = &file.attributes;
        let text = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let losses = file.losses.iter().map(|loss| LossEntry {
            fork: fork(loss.fork),
            offset: loss.range.start,
            size: loss.range.end - loss.range.start,
            reason: loss.reason.name(),
        });
        let extents = file.runs.iter().map(|run| RunEntry {
            fork: fork(run.fork),
            offset: run.start,
            size: run.range.end - run.range.start,
            disk_offset: start + run.range.start,
        });
        Self {
            volume,
            volume_path: file.path.clone(),
            kind: match attributes.kind {
                FileKind::Folder => FileKind::File.name(),
                kind => kind.name(),
            },
            id: attributes.id.0,
            size: attributes.size,
            resource_fork_size: attributes.resource_size,
            created: text(attributes.created),
            modified: text(attributes.modified),
            changed: text(attributes.changed),
            certainty: file.certainty.name(),
            source: file.source.name(),
            disk_offset: start + file.record_offset,
            transaction: file.transaction,
            orphan: file.is_orphan,
            earlier_version: file.is_earlier_version,
            lost_size: file.lost_bytes(),
            losses: losses.collect(),
            extents: extents.collect(),
            target_path: None,
        }
    }
}
