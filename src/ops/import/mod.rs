//! Import of trees, from which volumes are built or extended: a folder or file of the host, a tar
//! archive, a part of a volume.
//!
//! An entry that an Apple volume cannot hold, such as a name that is not UTF-8, is an error that
//! names the file, before any byte of the volume is written.

mod apple_double;
mod folder;
mod host_contents;
mod host_metadata;
mod items;
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
