//! Apple's disk images and the volumes inside them.
//!
//! Every layer is *a run of bytes at positions*, laid over another:
//!
//! ```text
//!  a file's contents ......... decmpfs            unpacked, where they are compressed
//!  a file .................... fs::hfsplus        a device over a volume's extents
//!  a volume .................. partition          a window on a disk (GPT, APM, MBR)
//!  an overlay ................ container::stack   a device over devices
//!  a disk .................... container          raw, sparse bundle, sparse image, ASIF, UDIF
//!  plain bytes ............... crypt              over one encrypted file
//!  stored bytes .............. store              a local folder, memory
//! ```
//!
//! so one trait carries the library, [`device::BlockDevice`], and one sister, a folder of such
//! devices, [`store::Store`]. [`open`](mod@open) lays the layers over each other until nothing more
//! matches:
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
//! [`ops`] holds what people ask for: create, convert, bring files in and out. The library never
//! prints and never asks; long work tells a [`progress::Progress`] and asks it whether to go on.

pub mod address;
pub mod codec;
pub mod container;
pub mod crypt;
pub mod decision;
pub mod decmpfs;
pub mod device;
pub mod error;
pub mod fs;
pub mod open;
pub mod ops;
pub mod partition;
pub mod platform;
pub mod problem;
pub mod progress;
pub mod size;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Error, Kind, Reason, Result};

// The example in README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
