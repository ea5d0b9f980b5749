//! Volumes and, for APFS, their container.

use serde::Serialize;

use super::error::ErrorInfo;
use crate::fs::apfs::{Container, Locking, Snapshot, Summary};
use crate::open::{Volume, VolumeFormat};
use crate::{Error, Kind, fs};

/// A volume, as far as it opens.
#[derive(Debug, Serialize)]
pub struct VolumeInfo {
    /// The number of its partition, from 1; absent if it is the whole disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    pub file_system: &'static str,
    /// The position in the disk, in bytes.
    pub offset: u64,
    /// The size, in bytes; of a volume in a container, that of the container.
    pub size: u64,
    /// True if files can be read; for an encrypted volume, with its key.
    pub readable: bool,
    /// True if it could not be opened for lack of its key.
    #[serde(skip)]
    pub locked: bool,
    /// The reason if they cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<ErrorInfo>,
    /// The contents, if they are known.
    #[serde(flatten)]
    pub content: Option<VolumeContents>,
    /// Facts that only volumes of one kind have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<VolumeDetails>,
}

/// Facts that only volumes of one kind have.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum VolumeDetails {
    HfsPlus {
        /// True if it has a journal.
        journaled: bool,
        /// True if it was cleanly unmounted.
        clean: bool,
    },
    Apfs(ApfsInfo),
}

/// The contents of a volume. Sizes are in bytes, times as in RFC 3339.
#[derive(Debug, Serialize)]
pub struct VolumeContents {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    pub used: u64,
    pub free: u64,
    /// Bytes held by older checkpoints: neither used nor free.
    pub pending: u64,
    /// The size of an allocation block.
    pub block_size: u32,
    /// The number of files, if the volume records it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folders: Option<u64>,
    pub case_sensitive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
}

/// Facts that only APFS volumes have.
#[derive(Debug, Serialize)]
pub struct ApfsInfo {
    /// The position in the container, from 1.
    pub number: u32,
    /// `System`, `Data`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// True if it opens with a key.
    pub encrypted: bool,
    /// True if the volume opens only on its own Mac.
    pub hardware_key: bool,
    /// True for a sealed system volume.
    pub sealed: bool,
    /// The most bytes that it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// Bytes that are reserved for it.
    pub reserve: u64,
    pub formatted_by: String,
    /// Its snapshots, oldest first.
    pub snapshots: Vec<ApfsSnapshot>,
    pub container: ApfsContainer,
}

/// The container of a volume.
#[derive(Debug, Clone, Serialize)]
pub struct ApfsContainer {
    pub uuid: String,
    /// Bytes used by volumes and container structures.
    pub used: u64,
    /// Bytes held by older checkpoints.
    pub pending: u64,
    pub free: u64,
    /// The transaction of the checkpoint that was read.
    pub checkpoint: u64,
    /// The transactions of all checkpoints, newest first.
    pub checkpoints: Vec<u64>,
}

/// A snapshot of a volume.
#[derive(Debug, Serialize)]
pub struct ApfsSnapshot {
    pub name: String,
    pub xid: u64,
    /// The time of its creation, as in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
}

/// The facts about one volume or all volumes of a container, their problems, and the first error of
/// a volume that should open.
pub(super) struct FoundVolumes {
    pub(super) volumes: Vec<VolumeInfo>,
    pub(super) warnings: Vec<String>,
    pub(super) failed: Option<Error>,
}

impl VolumeInfo {
    /// Returns the facts about a volume, or about each in a container. A container without any has
    /// one that cannot be read.
    pub fn all(volume: &Volume) -> Vec<Self> {
        FoundVolumes::of(volume).volumes
    }

    /// Returns the facts that only APFS volumes have.
    pub fn apfs(&self) -> Option<&ApfsInfo> {
        match &self.details {
            Some(VolumeDetails::Apfs(apfs)) => Some(apfs),
            _ => None,
        }
    }

    fn new(volume: &Volume) -> Self {
        Self {
            partition: volume.partition,
            file_system: volume.format.name(),
            offset: volume.range.start,
            size: volume.range.end - volume.range.start,
            readable: true,
            locked: false,
            problem: None,
            content: None,
            details: None,
        }
    }

    fn unread(volume: &Volume, problem: ErrorInfo) -> Self {
        Self {
            readable: false,
            problem: Some(problem),
            ..Self::new(volume)
        }
    }

    fn failed(volume: &Volume, error: &Error) -> Self {
        let problem = match error.kind() {
            Kind::Unsupported => ErrorInfo::brief(error),
            _ => ErrorInfo::new(error),
        };
        Self {
            locked: error.kind() == Kind::WrongKey,
            ..Self::unread(volume, problem)
        }
    }
}

impl FoundVolumes {
    fn one(volume: VolumeInfo, failed: Option<Error>) -> Self {
        Self {
            volumes: vec![volume],
            warnings: Vec::new(),
            failed,
        }
    }

    pub(super) fn of(volume: &Volume) -> Self {
        if volume.format.is_container() {
            return match volume.container() {
                Ok(container) => Self::in_container(volume, &container),
                Err(error) => Self::one(VolumeInfo::failed(volume, &error), Some(error)),
            };
        }
        match volume.open() {
            Ok(fs) => {
                let info = fs.volume();
                // None of these has a journal, and only HFS, UDF and archives have counts of files.
                let has_counts = match volume.format {
                    VolumeFormat::Iso9660 | VolumeFormat::Fat | VolumeFormat::ExFat => false,
                    // The root is one of the folders.
                    VolumeFormat::Udf => info.folders > 0,
                    _ => true,
                };
                let has_details = has_counts
                    && !matches!(
                        volume.format,
                        VolumeFormat::Hfs | VolumeFormat::Udf | VolumeFormat::AppleArchive
                    );
                let details = VolumeDetails::HfsPlus {
                    journaled: info.journaled,
                    clean: info.clean,
                };
                let facts = VolumeInfo {
                    content: Some(VolumeContents::new(info, has_counts)),
                    details: has_details.then_some(details),
                    ..VolumeInfo::new(volume)
                };
                Self::one(facts, None)
            }
            Err(error) => {
                // Its name is known without a key, and the names of several are listed.
                let is_closed = volume.format == VolumeFormat::CoreStorage
                    && matches!(error.kind(), Kind::WrongKey | Kind::Undecided);
                let facts = VolumeInfo::failed(volume, &error);
                let should_open = volume.format.is_supported() && !is_closed;
                Self::one(facts, Some(error).filter(|_| should_open))
            }
        }
    }

    fn in_container(volume: &Volume, container: &Container) -> Self {
        let mut found = Self {
            volumes: Vec::new(),
            warnings: container.problems().iter().map(Error::to_string).collect(),
            failed: None,
        };
        let (free, pending) = (container.free(), container.pending());
        let facts = ApfsContainer {
            uuid: container.uuid().to_string(),
            used: container
                .size()
                .saturating_sub(free)
                .saturating_sub(pending),
            pending,
            free,
            checkpoint: container.checkpoint(),
            checkpoints: container.checkpoints().to_vec(),
        };
        for summary in container.volumes() {
            match summary {
                Ok(summary) => found.volumes.push(VolumeInfo {
                    readable: summary.locking != Locking::Hardware,
                    content: Some(VolumeContents::in_container(&summary, container)),
                    details: Some(VolumeDetails::Apfs(ApfsInfo::new(summary, facts.clone()))),
                    ..VolumeInfo::new(volume)
                }),
                Err(error) => {
                    found.volumes.push(VolumeInfo::failed(volume, &error));
                    found.failed = found.failed.or(Some(error));
                }
            }
        }
        if found.volumes.is_empty() {
            let empty = Error::new(Kind::NotFound, "apfs", "a container without volumes");
            let empty = VolumeInfo::unread(volume, ErrorInfo::brief(&empty));
            found.volumes.push(empty);
        }
        found
    }
}

impl VolumeContents {
    fn new(volume: fs::VolumeInfo, has_counts: bool) -> Self {
        Self {
            name: volume.name,
            uuid: volume.uuid.map(|uuid| uuid.to_string()),
            used: volume
                .total
                .saturating_sub(volume.free)
                .saturating_sub(volume.pending),
            free: volume.free,
            pending: volume.pending,
            block_size: volume.block_size,
            files: has_counts.then_some(volume.files),
            folders: has_counts.then_some(volume.folders),
            case_sensitive: volume.case_sensitive,
            created: volume.created.map(|time| time.to_string()),
            modified: volume.modified.map(|time| time.to_string()),
        }
    }

    fn in_container(volume: &Summary, container: &Container) -> Self {
        Self {
            name: volume.label.name.clone(),
            uuid: Some(volume.uuid.to_string()),
            used: volume.used,
            free: container.free(),
            pending: container.pending(),
            block_size: container.block_size(),
            files: Some(volume.files),
            folders: Some(volume.folders),
            case_sensitive: volume.case_sensitive,
            created: volume.created.map(|time| time.to_string()),
            modified: volume.modified.map(|time| time.to_string()),
        }
    }
}

impl ApfsInfo {
    fn new(volume: Summary, container: ApfsContainer) -> Self {
        let snapshot = |Snapshot { name, xid, created }| ApfsSnapshot {
            name,
            xid,
            created: created.map(|time| time.to_string()),
        };
        Self {
            number: volume.label.number,
            role: volume.label.role,
            encrypted: volume.locking != Locking::Plain,
            hardware_key: volume.locking == Locking::Hardware,
            sealed: volume.sealed,
            quota: volume.quota,
            reserve: volume.reserve,
            formatted_by: volume.formatted_by,
            snapshots: volume.snapshots.into_iter().map(snapshot).collect(),
            container,
        }
    }
}
