//! Trees to build volumes from: a folder of the host, or a tar archive.
//!
//! What a volume of Apple's cannot hold (a name that is not UTF-8, say) is an error that names the file, before a byte
//! of the volume is written.

mod apple_double;
mod folder;
mod host_contents;
mod look;
mod tar;
mod tar_contents;
mod walk;

pub use folder::{FolderOptions, folder};
pub use tar::{tar, tar_stream};
