//! One backup.

use bandsaw::fs::{NodeId, Timestamp};

use crate::date::BackupDate;

/// The state of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupState {
    /// It was finished.
    Complete,
    /// It is being made, or was when the volume was last written.
    InProgress,
    /// It was interrupted, and may lack files.
    Interrupted,
}

impl BackupState {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::InProgress => "in_progress",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A backup of one machine.
#[derive(Debug, Clone)]
pub struct Backup {
    /// Name of the machine.
    pub machine: String,
    /// Name of the folder or snapshot, as it is on the volume.
    pub name: String,
    /// The date in its name.
    pub date: BackupDate,
    /// Its state.
    pub state: BackupState,
    /// The time at which it began, if recorded.
    pub started: Option<Timestamp>,
    /// The time at which it was finished, if recorded.
    pub completed: Option<Timestamp>,
    /// Bytes that were copied for it, if recorded.
    pub copied: Option<u64>,
    pub(crate) volume: usize,
    pub(crate) place: Place,
    /// The position in which it was made among those of its volume, if that is known apart from the
    /// clock.
    pub(crate) sequence: Option<u64>,
}

/// The place of a backup on its volume.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A folder of the current state, with its path.
    Folder(NodeId, String),
    /// A snapshot of this name.
    Snapshot(String),
}

impl Backup {
    /// Returns the difference between the Mac's clock and UTC in seconds, if a recorded time shows
    /// it: a multiple of a quarter of an hour.
    pub(crate) fn offset(&self) -> Option<i64> {
        /// Seconds between the name and the recorded time of the same event.
        const NEAR: i64 = 90;
        const QUARTER: i64 = 900;
        const LARGEST: i64 = 14 * 3600;
        let times = [self.completed, self.started].into_iter().flatten();
        let offsets = times.filter_map(|time| {
            let distance = self.date.0.checked_sub(time.seconds)?;
            let offset = (distance + QUARTER / 2).div_euclid(QUARTER) * QUARTER;
            let is_near = (distance - offset).abs() <= NEAR && offset.abs() <= LARGEST;
            is_near.then_some(offset)
        });
        offsets.into_iter().next()
    }
}
