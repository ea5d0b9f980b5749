//! A volume in which backups are looked for.

use std::fmt;
use std::sync::Arc;

use bandsaw::fs::{FileSystem, Timestamp};
use bandsaw::{Error, Result};

/// A volume in which backups are looked for.
pub struct BackupVolume {
    /// Its name.
    pub name: String,
    /// Its current state. `None`: it cannot be read.
    pub fs: Option<Arc<dyn FileSystem>>,
    /// Its snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Opens one of the snapshots.
    pub open: SnapshotOpener,
    /// The reason why a part of it cannot be read.
    pub problem: Option<Error>,
}

impl fmt::Debug for BackupVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupVolume")
            .field("name", &self.name)
            .field("snapshots", &self.snapshots.len())
            .finish_non_exhaustive()
    }
}

/// A snapshot of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// A number that is larger for a later snapshot of the volume, whatever its clock was.
    pub sequence: u64,
    /// The time at which it was taken.
    pub created: Option<Timestamp>,
}

/// Opens a snapshot of a volume by name.
pub type SnapshotOpener = Box<dyn Fn(&str) -> Result<Arc<dyn FileSystem>> + Send + Sync>;
