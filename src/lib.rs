//! Apple's disk images and the volumes inside them.
//!
//! Every layer is *a run of bytes at positions*, laid over another:
//!
//! ```text
//!  a file .................... fs::hfsplus        a device over a volume's extents
//!  a volume .................. partition          a window on a disk (GPT, APM, MBR)
//!  a disk .................... container          raw, sparse bundle
//!  stored bytes .............. store              a local folder, memory
//! ```
//!
//! so one trait carries the library, [`device::BlockDevice`], and one sister, a folder of such
//! devices, [`store::Store`]. [`open`](mod@open) lays the layers over each other until nothing more matches.

pub mod address;
pub mod codec;
pub mod container;
pub mod crypt;
pub mod device;
pub mod error;
pub mod fs;
pub mod open;
pub mod ops;
pub mod partition;
pub mod platform;
pub mod progress;
pub mod size;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Error, Kind, Result};
