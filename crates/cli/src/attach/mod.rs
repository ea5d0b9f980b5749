//! Images in use: a process of its own for each, which shows its volumes as folders, or gives its
//! disk to the kernel, until it is told to end.
//!
//! [`launch`] starts such a process and returns what it tells once everything is mounted;
//! [`detach`] ends it. Verbs and the faces of other programs are arguments and output around these
//! two.

#[cfg(target_os = "linux")]
mod background;
#[cfg(target_os = "linux")]
mod detach;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod faces;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod whereabouts;

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub(crate) use background::launch;
#[cfg(target_os = "linux")]
pub(crate) use detach::detach;
#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{detach, launch};
#[cfg(target_os = "linux")]
pub(crate) use server::{Job, Places, serve, tell};

/// What is known of an image that was attached or mounted: what `--json` prints.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Attached {
    pub(crate) schema: u32,
    /// Its name while it is in use: `disk1`.
    pub(crate) device: String,
    /// Where the image is.
    pub(crate) image: PathBuf,
    /// The kind of partition map on it: `GPT`.
    #[serde(default)]
    pub(crate) scheme: Option<String>,
    /// The process that serves it.
    pub(crate) process: u32,
    /// True if nothing on it can be changed.
    pub(crate) read_only: bool,
    /// What is mounted.
    pub(crate) volumes: Vec<AttachedVolume>,
}

/// A volume, or a disk, and where it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AttachedVolume {
    /// Its name while it is in use: `disk1s2`, or `disk1` for a disk.
    pub(crate) device: String,
    /// The volume's own name.
    pub(crate) name: String,
    /// What it is: `HFS+`, `APFS`, or the code of the image for a disk.
    pub(crate) format: String,
    /// The folder that shows it; of a disk of the kernel's, that disk.
    pub(crate) mount_point: PathBuf,
    /// True if nothing on it can be changed.
    pub(crate) read_only: bool,
}

/// What was ended: what `--json` prints.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Detached {
    pub(crate) schema: u32,
    /// Its name while it was in use.
    pub(crate) device: String,
    /// Where the image is.
    pub(crate) image: PathBuf,
    /// Where its volumes were mounted.
    pub(crate) mount_points: Vec<PathBuf>,
}

/// The word after which a verb's own arguments stand, and what is put there for the process that
/// serves.
#[cfg(target_os = "linux")]
pub(crate) fn as_server(mut args: Vec<OsString>, verb: &str) -> Vec<OsString> {
    let at = args
        .iter()
        .position(|word| word == verb)
        .map_or(args.len(), |at| at + 1);
    args.insert(at, "--serving".into());
    args
}
