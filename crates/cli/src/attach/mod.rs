//! Images in use: one process for each, which mounts its volumes on folders, or provides its disk
//! to the kernel, until it is told to end.
//!
//! [`launch`] starts such a process and returns its report once everything is mounted; [`detach`]
//! ends it. Verbs and emulated programs add arguments and output to these two.

#[cfg(target_os = "linux")]
mod background;
#[cfg(target_os = "linux")]
mod default_mount_point;
#[cfg(target_os = "linux")]
mod detach;
#[cfg(target_os = "linux")]
mod failure_file;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod mount_session;
#[cfg(target_os = "linux")]
mod mountables;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod server_task;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub(crate) use background::launch;
#[cfg(target_os = "linux")]
pub(crate) use detach::detach;
#[cfg(target_os = "linux")]
pub(crate) use server::{print, serve};
#[cfg(target_os = "linux")]
pub(crate) use server_task::{MountPlan, ServerTask};
#[cfg(not(target_os = "linux"))]
pub(crate) use unsupported::{detach, launch};

/// An attached or mounted image, as `--json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Attached {
    /// The device name: `disk1`.
    pub(crate) device: String,
    /// The path of the image, with bytes that are not UTF-8 as `\xFF`.
    #[serde(serialize_with = "bandsaw_registry::as_text")]
    pub(crate) path: PathBuf,
    /// The kind of partition map on it: `gpt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scheme: Option<String>,
    /// The process that serves it.
    pub(crate) process: u32,
    /// True if everything is read-only.
    pub(crate) read_only: bool,
    /// The mounted volumes.
    pub(crate) volumes: Vec<AttachedVolume>,
}

/// A mounted volume or disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AttachedVolume {
    /// The device name: `disk1s2`, or `disk1` for a disk.
    pub(crate) device: String,
    /// The volume's own name.
    pub(crate) name: String,
    /// The file system, such as `HFS+` or `APFS`; not of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file_system: Option<String>,
    /// The image format, of a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<String>,
    /// The mount point; for a kernel device, its path.
    pub(crate) mount_point: PathBuf,
    /// True if it is read-only.
    pub(crate) read_only: bool,
}

impl AttachedVolume {
    /// Returns the file system, or the image format for a disk.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn contents(&self) -> &str {
        let known = self.file_system.as_ref().or(self.format.as_ref());
        known.map_or("", String::as_str)
    }
}

/// A detached image, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Detached {
    /// The former device name.
    pub(crate) device: String,
    /// The path of the image, with bytes that are not UTF-8 as `\xFF`.
    #[serde(serialize_with = "bandsaw_registry::as_text")]
    pub(crate) path: PathBuf,
    /// The former mount points.
    pub(crate) mount_points: Vec<PathBuf>,
}

/// Returns the arguments with `--serving` after the verb, for the process that serves.
#[cfg(target_os = "linux")]
pub(crate) fn as_server(mut args: Vec<OsString>, verb: &str) -> Vec<OsString> {
    let at = args
        .iter()
        .position(|word| word == verb)
        .map_or(args.len(), |at| at + 1);
    args.insert(at, "--serving".into());
    args
}
