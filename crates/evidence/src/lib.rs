//! Differences between volumes, manifests and timelines of all files of an image, and deleted files.
//!
//! | topic | file |
//! | --- | --- |
//! | comparison of two volumes, snapshots or folders | `diff/` |
//! | volumes and snapshots of an image | `volumes.rs` |
//! | offsets of files on the disk | `locator.rs` |
//! | folders in sorted order | `walk.rs` |
//! | lines of a manifest | `record.rs`, `describe.rs` |
//! | manifests: written, read, compared with an image | `manifest.rs`, `reader.rs`, `verify.rs` |
//! | files for sleuthkit, plaso and Timesketch | `bodyfile.rs`, `timeline.rs` |
//! | dates in text | `time.rs` |
//! | deleted files, and files of damaged volumes | `recover/` |
//!
//! Nothing here writes to an image.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod bodyfile;
mod describe;
mod diff;
mod hashing;
mod locator;
mod manifest;
mod reader;
mod record;
mod recover;
mod time;
mod timeline;
mod verify;
mod volumes;
mod walk;

pub use diff::{
    ComparedFolder, Comparison, Difference, DifferenceKind, Field, Options, RenameEvidence, diff,
    page::{PageTitle, html},
};
pub use manifest::{ManifestFormat, ManifestSummary, write_manifest};
pub use recover::{
    Extractor, FileEntry, LossEntry, Recovered, RecoverySink, ReportFormat, ReportWriter, RunEntry,
    Selection, VolumeEntry, recover,
};
pub use timeline::{TimelineSummary, write_timeline};
pub use verify::{Mismatch, MismatchKind, VerifiedManifest, verify};

/// Layer name in the errors of this crate.
const LAYER: &str = "evidence";
