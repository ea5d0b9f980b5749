//! JSON of volumes and, for APFS, their container.

use bandsaw::fs::VolumeInfo;
use bandsaw::fs::apfs::{Container, Locking, Snapshot, Summary};
use bandsaw::open::{Volume, VolumeFormat};
use bandsaw::{Error, Kind};
use serde::Serialize;

use crate::failure::Described;
use crate::text::rfc3339;

#[derive(Debug, Serialize)]
pub(crate) struct VolumeJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partition: Option<u32>,
    pub(crate) file_system: &'static str,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// True if files can be read; for an encrypted volume, with its key.
    pub(crate) readable: bool,
    /// The reason if they cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<Described>,
    #[serde(flatten)]
    pub(crate) content: Option<ContentJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Details>,
}

/// Facts that only volumes of one kind have.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Details {
    HfsPlus { journaled: bool, clean: bool },
    Apfs(ApfsJson),
}

#[derive(Debug, Serialize)]
pub(crate) struct ContentJson {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    pub(crate) used: u64,
    pub(crate) free: u64,
    /// Bytes held by older checkpoints: neither used nor free.
    pub(crate) pending: u64,
    pub(crate) block_size: u32,
    pub(crate) files: u64,
    pub(crate) folders: u64,
    pub(crate) case_sensitive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<String>,
}

/// Facts that only APFS volumes have.
#[derive(Debug, Serialize)]
pub(crate) struct ApfsJson {
    /// The position in the container, from 1.
    pub(crate) number: u32,
    /// `System`, `Data`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<&'static str>,
    pub(crate) encrypted: bool,
    /// True if the volume opens only on its own Mac.
    pub(crate) hardware_key: bool,
    pub(crate) sealed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) quota: Option<u64>,
    pub(crate) reserve: u64,
    pub(crate) formatted_by: String,
    pub(crate) snapshots: Vec<SnapshotJson>,
    pub(crate) container: ContainerJson,
}

/// The container of a volume.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ContainerJson {
    pub(crate) uuid: String,
    /// Bytes used by volumes and container structures, bytes that are pending, and free bytes.
    pub(crate) used: u64,
    pub(crate) pending: u64,
    pub(crate) free: u64,
    /// The transaction of the checkpoint that was read.
    pub(crate) checkpoint: u64,
    /// The transactions of all checkpoints, newest first.
    pub(crate) checkpoints: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SnapshotJson {
    pub(crate) name: String,
    pub(crate) xid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<String>,
}

/// The facts about one volume or all volumes of a container, their problems, and the first error of
/// a volume that should open.
pub(super) struct FoundVolumes {
    pub(super) volumes: Vec<VolumeJson>,
    pub(super) warnings: Vec<String>,
    pub(super) failed: Option<Error>,
}

impl VolumeJson {
    /// Returns the facts that only APFS volumes have.
    pub(crate) fn apfs(&self) -> Option<&ApfsJson> {
        match &self.details {
            Some(Details::Apfs(apfs)) => Some(apfs),
            _ => None,
        }
    }

    /// Returns the facts about a volume, or about each in a container.
    pub(super) fn all(volume: &Volume) -> FoundVolumes {
        if volume.format == VolumeFormat::Apfs {
            return match volume.container() {
                Ok(container) => in_container(volume, &container),
                Err(error) => FoundVolumes {
                    volumes: vec![Self::unread(volume, &error)],
                    warnings: Vec::new(),
                    failed: Some(error),
                },
            };
        }
        match volume.open() {
            Ok(fs) => {
                let info = fs.volume();
                let details = Details::HfsPlus {
                    journaled: info.journaled,
                    clean: info.clean,
                };
                let facts = Self {
                    content: Some(ContentJson::new(info)),
                    details: Some(details),
                    ..Self::of(volume)
                };
                FoundVolumes {
                    volumes: vec![facts],
                    warnings: Vec::new(),
                    failed: None,
                }
            }
            Err(error) => {
                let volumes = vec![Self::unread(volume, &error)];
                // Its name is known without a key, and the names of several are listed.
                let is_closed = volume.format == VolumeFormat::CoreStorage
                    && matches!(error.kind(), Kind::WrongKey | Kind::Undecided);
                FoundVolumes {
                    volumes,
                    warnings: Vec::new(),
                    failed: Some(error).filter(|_| volume.format.is_supported() && !is_closed),
                }
            }
        }
    }

    fn of(volume: &Volume) -> Self {
        Self {
            partition: volume.partition,
            file_system: volume.format.name(),
            offset: volume.range.start,
            size: volume.range.end - volume.range.start,
            readable: true,
            problem: None,
            content: None,
            details: None,
        }
    }

    fn unread(volume: &Volume, error: &Error) -> Self {
        let problem = match error.kind() {
            Kind::Unsupported => Described::brief(error),
            _ => Described::new(error),
        };
        Self {
            readable: false,
            problem: Some(problem),
            ..Self::of(volume)
        }
    }
}

fn in_container(volume: &Volume, container: &Container) -> FoundVolumes {
    let warnings = container.problems().iter().map(Error::to_string).collect();
    let mut found = FoundVolumes {
        volumes: Vec::new(),
        warnings,
        failed: None,
    };
    let facts = ContainerJson {
        uuid: container.uuid().to_string(),
        used: container
            .size()
            .saturating_sub(container.free())
            .saturating_sub(container.pending()),
        pending: container.pending(),
        free: container.free(),
        checkpoint: container.checkpoint(),
        checkpoints: container.checkpoints().to_vec(),
    };
    for summary in container.volumes() {
        match summary {
            Ok(summary) => {
                let readable = summary.locking != Locking::Hardware;
                let content = Some(ContentJson::of_summary(&summary, container));
                let details = Some(Details::Apfs(ApfsJson::new(summary, facts.clone())));
                found.volumes.push(VolumeJson {
                    readable,
                    content,
                    details,
                    ..VolumeJson::of(volume)
                });
            }
            Err(error) => {
                found.volumes.push(VolumeJson::unread(volume, &error));
                found.failed = found.failed.or(Some(error));
            }
        }
    }
    if found.volumes.is_empty() {
        let empty = Error::new(Kind::NotFound, "apfs", "a container without volumes");
        let problem = Some(Described::brief(&empty));
        found.volumes.push(VolumeJson {
            readable: false,
            problem,
            ..VolumeJson::of(volume)
        });
    }
    found
}

impl ContentJson {
    fn new(volume: VolumeInfo) -> Self {
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
            files: volume.files,
            folders: volume.folders,
            case_sensitive: volume.case_sensitive,
            created: volume.created.map(rfc3339),
            modified: volume.modified.map(rfc3339),
        }
    }

    fn of_summary(volume: &Summary, container: &Container) -> Self {
        Self {
            name: volume.label.name.clone(),
            uuid: Some(volume.uuid.to_string()),
            used: volume.used,
            free: container.free(),
            pending: container.pending(),
            block_size: container.block_size(),
            files: volume.files,
            folders: volume.folders,
            case_sensitive: volume.case_sensitive,
            created: volume.created.map(rfc3339),
            modified: volume.modified.map(rfc3339),
        }
    }
}

impl ApfsJson {
    fn new(volume: Summary, container: ContainerJson) -> Self {
        let snapshot = |Snapshot { name, xid, created }| SnapshotJson {
            name,
            xid,
            created: created.map(rfc3339),
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
