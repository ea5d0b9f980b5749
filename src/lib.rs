//! Apple's disk images and the volumes inside them.
//!
//! Every layer is a device: a sequence of bytes with positions, which reads and writes the device
//! below it.
//!
//! ```text
//!  file contents ...... decmpfs                    decoded, if the file is compressed
//!  file ............... fs::hfsplus, fs::apfs      a device over the extents of a volume
//!  volume ............. partition                  a part of a disk (GPT, APM, MBR)
//!  overlay ............ container::stack           a disk over an unchanged disk
//!  disk ............... container                  raw, sparse bundle, sparse image, ASIF, UDIF; others, read only
//!  plain text ......... crypt                      an encrypted file or archive, unlocked
//!  stored bytes ....... store                      local folder, memory, object store
//! ```
//!
//! The library is built on one trait, [`device::BlockDevice`], and a second, a folder of such
//! devices, [`store::Store`]. [`open`](mod@open) stacks the layers until no further layer is
//! recognized:
//!
//! ```no_run
//! use bandsaw::fs::FileSystemExt;
//! use bandsaw::open::{OpenOptions, open};
//!
//! # fn main() -> bandsaw::Result<()> {
//! let image = open("Docs.sparsebundle".as_ref(), &OpenOptions::default())?;
//! let volume = image.file_system(None)?;
//! for entry in volume.entries(volume.root())? {
//!     println!("{:>12} {}", entry.attributes.size, entry.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`ops`] holds the operations: create, convert, copy files in and out. The library never prints
//! or prompts; long operations report to a [`progress::Progress`] and poll it for cancellation.
#![forbid(unsafe_code)]

pub mod address;
pub mod container;
pub mod open;
pub mod ops;
pub mod partition;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

use bandsaw_core::parallel;

pub use bandsaw_core::parallel::start_threads;

pub use bandsaw_core::{
    Error, Kind, Reason, Result, codec, crypt, decision, decmpfs, device, error, platform, problem,
    progress, rate, size, sync,
};
pub use bandsaw_fs as fs;

// Compiles the example in README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
