//! Trees to build volumes from, or to put into them: a folder or file of the host, a tar archive, a
//! part of a volume.
//!
//! What a volume of Apple's cannot hold (a name that is not UTF-8, say) is an error that names the
//! file, before a byte of the volume is written.

mod apple_double;
mod folder;
mod host_contents;
mod items;
mod look;
mod single;
mod tar;
mod tar_contents;
mod volume;
mod walk;

pub use folder::{FolderOptions, folder};
pub use items::{Item, items};
pub use single::single;
pub use tar::{tar, tar_stream};
pub use volume::volume;
