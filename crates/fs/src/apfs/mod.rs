//! APFS containers and their volumes, read in place by any number of threads.
//!
//! [`Container::open`] finds the newest valid checkpoint (§3), [`Container::volumes`] lists the
//! volumes in it, and [`Container::open_volume`] opens a volume or a snapshot as a file system.
//! Nodes of trees are read and verified on demand. Sections of `docs/formats/apfs.md` are cited as
//! §n throughout.

mod btree;
pub mod build;
mod check;
mod checkpoint;
mod cipher;
mod container;
mod der;
mod file_system;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
mod fixture;
mod free;
#[cfg(feature = "testing")]
#[allow(clippy::cast_possible_truncation, reason = "test data is small")]
mod fuzz_api;
mod geometry;
mod keys;
pub(crate) mod layout;
mod names;
mod object;
mod omap;
mod projected_free;
mod recover;
mod snapshots;
mod store;
mod stream;
mod summary;
#[cfg(test)]
mod tests;
mod trusted;
mod volume;
mod write;
mod writer;

pub use self::writer::VolumeWriter;
#[cfg(feature = "testing")]
pub use check::corruptions::{corrupted_at_random, damaged};
pub use container::geometry;
pub use container::{Container, container_at};
pub use free::ApfsFree;
#[cfg(feature = "testing")]
pub use free::free_map_of;
#[cfg(feature = "testing")]
pub use fuzz_api::{
    read_keybag_bytes, read_node, read_record, reseal, sample, sample_keybag, sample_records,
};
pub use recover::ApfsRecovery;
pub use summary::{Label, Locking, Snapshot, Summary};
pub use volume::Apfs;
pub use write::{ApfsMut, ContainerMut, OlderCheckpoint, WriteOptions};
