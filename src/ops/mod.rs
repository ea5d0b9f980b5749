//! Operations on images, one per file or folder. Private modules are what they share, such as
//! `new_file` (contents of new files), `host_folders`, `pipeline` (reads ahead) and `planned_disk`.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod advise;
pub mod checkpoint;
pub mod checksum;
pub mod compact;
pub mod compress;
pub mod convert;
pub mod create;
pub mod describe;
pub mod diagnose;
pub mod disk_areas;
mod disk_layout;
pub mod export;
pub mod finder;
pub mod format;
#[cfg(unix)]
mod host_folders;
pub mod import;
mod new_file;
pub mod orphans;
mod pipeline;
mod planned_disk;
pub mod put;
pub mod reband;
pub mod rename;
pub mod repair;
pub mod report;
pub mod resize;
pub mod resources;
pub mod segment;
pub mod snapshot;
pub mod space;
pub mod stack;
mod tar;
pub mod trim;
pub mod usage;
pub mod verify;
pub mod writable_volume;
