//! Time Machine backups on the volumes of an image.
//!
//! | topic | file |
//! | --- | --- |
//! | dates in names, and dates as people write them | `date.rs` |
//! | a backup and its state | `backup.rs` |
//! | the backups on volumes, of both kinds | `backups.rs`, `folders.rs`, `snapshots.rs` |
//! | the volumes of an image | `image.rs` |
//! | a folder of this host with backups | `host.rs` |
//! | property lists of bundles and of backup volumes | `lists.rs` |
//! | paths within a backup | `opened.rs` |
//! | versions of a file | `versions.rs` |
//! | names over all dates | `find.rs`, `glob.rs` |
//! | differences between two dates | `diff.rs` |
//! | all dates as one volume | `merged.rs` |
//! | folders of dates as snapshots on APFS | `convert/` |
//!
//! Everything but `image.rs` and `host.rs` stands over [`FileSystem`](bandsaw::fs::FileSystem) and names of
//! snapshots. The facts about backups are in `docs/formats/time-machine.md`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod backup;
mod backup_volume;
mod backups;
mod convert;
mod date;
mod diff;
mod find;
mod folders;
mod glob;
mod host;
mod image;
mod lists;
mod merged;
mod opened;
mod reading;
mod snapshots;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod versions;

pub use backup::{Backup, BackupState};
pub use backup_volume::{BackupVolume, Snapshot, SnapshotOpener};
pub use backups::Backups;
pub use convert::{Conversion, check_convertible, convert, verify_conversion};
pub use date::{BackupDate, DateQuery};
pub use diff::{Difference, DifferenceKind, Differences, diff};
pub use find::{Found, FoundNames, find};
pub use glob::Glob;
pub use host::host_volume;
pub use image::volumes_of;
pub use lists::{BundleLists, Recorded, quota_of_share};
pub use merged::Merged;
pub use opened::{Located, OpenBackup};
pub use versions::{Version, Versions, is_same_version, versions};

/// Layer name in the errors of this crate.
const LAYER: &str = "backups";
