//! Images in use: a process of its own for each, which shows its volumes as folders until it is told to end.
//!
//! [`launch`] starts such a process and returns what it tells once everything is mounted; [`detach`] ends it. Verbs and the
//! faces of other programs are arguments and output around these two.

mod background;
mod detach;
mod faces;
mod server;
mod whereabouts;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use background::launch;
pub(crate) use detach::detach;
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
    /// Whether nothing on it can be changed.
    pub(crate) read_only: bool,
    /// What is mounted.
    pub(crate) volumes: Vec<AttachedVolume>,
}

/// A volume, or a disk, and the folder that shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AttachedVolume {
    /// Its name while it is in use: `disk1s2`, or `disk1` for a disk.
    pub(crate) device: String,
    /// The volume's own name.
    pub(crate) name: String,
    /// What it is: `HFS+`, `APFS`, or the code of the image for a disk.
    pub(crate) format: String,
    /// The folder.
    pub(crate) mount_point: PathBuf,
    /// Whether nothing on it can be changed.
    pub(crate) read_only: bool,
}

/// The word after which a verb's own arguments stand, and what is put there for the process that serves.
pub(crate) fn as_server(mut args: Vec<OsString>, verb: &str) -> Vec<OsString> {
    let at = args.iter().position(|word| word == verb).map_or(args.len(), |at| at + 1);
    args.insert(at, "--serving".into());
    args
}
