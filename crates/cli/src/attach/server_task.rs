//! The task of a server: the image, and where what is mounted.

use std::path::PathBuf;

use bandsaw::address::Address;
use bandsaw_mount::MountOptions;
use bandsaw_registry::Use;

use crate::checksum_args::VerifyArgs;
use crate::source::OpenArgs;

/// The task of a server.
#[derive(Debug)]
pub(crate) struct ServerTask<'a> {
    /// The image, and a volume if one is named.
    pub(crate) address: Address,
    pub(crate) opening: &'a OpenArgs,
    pub(crate) verifying: &'a VerifyArgs,
    pub(crate) options: MountOptions,
    pub(crate) places: MountPlan,
    /// Provide the disk to the kernel, if it has network block devices.
    pub(crate) for_kernel: bool,
    /// Provide the disk if no volume can be mounted.
    pub(crate) or_disk: bool,
    pub(crate) used: Use,
    /// Free unused space first.
    pub(crate) trim: bool,
    /// Run in the background for a waiting launcher; otherwise until Ctrl-C.
    pub(crate) background: bool,
}

/// The objects to mount, and their mount points.
#[derive(Debug)]
pub(crate) enum MountPlan {
    /// One volume on a folder.
    Volume(PathBuf),
    /// The Time Machine backups on a folder, of one machine if one is named.
    Backups(PathBuf, Option<String>),
    /// The disk as a file in a folder.
    Disk(PathBuf),
    /// The disk as a file in a private folder of the user.
    DiskAnywhere,
    /// Every volume, each on a new folder in this one, or in the default folder.
    Volumes(Option<PathBuf>),
}
