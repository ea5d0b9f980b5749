//! Volumes of disk images as folders of Linux, through FUSE.
//!
//! | topic | file |
//! | --- | --- |
//! | mounting and unmounting | `session.rs` |
//! | FUSE requests for a volume | `volume/requests.rs` |
//! | cache lifetimes | `volume/mod.rs` |
//! | open files: sharing, growth, decompression before writing | `volume/files.rs` |
//! | a disk as one file | `disk.rs` |
//! | error numbers | `errno.rs` |
//! | `-o` options | `options.rs` |
//! | mounts of this host, and processes that use them | `host.rs`, `open_files.rs` |
//!
//! The process that mounts is the only one that changes the image, so the kernel may cache
//! everything that it reads. By default writes are passed through immediately, so that a full
//! volume fails the write itself; write-back caching makes small writes cheaper, but programs that
//! neither sync nor check the result of close do not notice the error. A sync makes all previous
//! changes durable; so does a timer every few seconds, but for mounts with an epoch.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod attributes;
mod disk;
mod errno;
mod events;
mod host;
mod open_files;
mod options;
mod seek;
mod session;
mod shutdown;
mod volume;

pub use events::Note;
pub use host::{MountPoint, mount_points, unmount};
pub use open_files::{User, users_of};
pub use options::MountOptions;
pub use session::{MountContent, Mounted};

/// Layer name in the errors of this crate.
const LAYER: &str = "mount";
/// File system subtype: the kernel shows `fuse.bandsaw`.
const SUBTYPE: &str = "bandsaw";
