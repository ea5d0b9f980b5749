//! Volumes of disk images as folders of Linux, through FUSE.
//!
//! | you look for | it is in |
//! | --- | --- |
//! | how a folder comes to show a volume, and ceases to | `session.rs` |
//! | what the kernel asks of a volume, request by request | `volume/requests.rs` |
//! | how long it may keep what it was told | `volume/mod.rs` |
//! | open files: shared, grown, unpacked before they are written | `volume/files.rs` |
//! | a disk as one file | `disk.rs` |
//! | which errors programs see | `errno.rs` |
//! | what `-o` understands | `options.rs` |
//! | what is mounted on this host, and who uses it | `host.rs`, `users.rs` |
//!
//! The process that mounts is the only one that changes the image, so the kernel may keep what it
//! has read. What is written goes through at once, so that a full volume is told to who fills it;
//! gathered, small writes are cheaper, and a program that neither syncs nor looks at what close
//! says hears nothing. A sync makes everything so far durable, and a clock does so every few
//! seconds.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod disk;
mod errno;
mod gate;
mod host;
mod notes;
mod options;
mod session;
mod stat;
mod users;
mod volume;

pub use host::{MountPoint, mount_points, unmount};
pub use notes::Note;
pub use options::MountOptions;
pub use session::{Mounted, Shown};
pub use users::{User, users_of};

/// The layer that errors of this crate name.
const LAYER: &str = "mount";
/// The file system's type as the kernel shows it: `fuse.bandsaw`.
const SUBTYPE: &str = "bandsaw";
