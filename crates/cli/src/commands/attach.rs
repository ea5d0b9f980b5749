//! `bandsaw attach`: an image as macOS attaches one.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw_registry::Use;
use clap::{Args, ValueHint};

use super::mount::Serving;
use crate::attach::{Job, Places};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source::{self, Opening};

/// Attach an image: every volume in it becomes a folder of the volume's name
///
/// The folders are in /Volumes, for users who are not root in ~/Volumes, and go when the image is detached. The image gets the
/// name of a device, disk1 and so on, by which `detach` and `list` know it; its volumes are disk1s1, disk1s2. What is said of
/// `mount` holds for each of them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw attach App.dmg                       disk1s1  HFS+  App  /Volumes/App  read-only
  bandsaw attach Docs.sparsebundle --mountpoint /mnt/docs
  bandsaw attach Disk.asif --nomount           the disk as one file, for programs that know disks
  bandsaw detach disk1")]
pub(crate) struct Attach {
    /// The image, or a volume in it; without a volume, all
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Mount the volume, or the first of several, on this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with_all = ["mountroot", "nomount"])]
    mountpoint: Option<PathBuf>,
    /// Mount volumes on folders in this one
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with = "nomount")]
    mountroot: Option<PathBuf>,
    /// Mount no volume: show the disk as one file
    #[arg(long)]
    nomount: bool,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    opening: Opening,
}

impl Attach {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        if address.path.is_some() {
            return Err(Failure::usage("address", "an image or a volume is attached, not a folder of one"));
        }
        let absolute = |folder: &PathBuf| std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        let job = Job {
            address,
            opening: &self.opening,
            options: self.serving.mount_options()?,
            places: match (&self.mountpoint, self.nomount) {
                (Some(folder), _) => Places::Volume(absolute(folder)),
                (None, true) => Places::DiskAnywhere,
                (None, false) => Places::Volumes(self.mountroot.as_ref().map(absolute)),
            },
            used: Use::Attached,
            trim: !self.serving.no_trim,
            background: self.serving.serving,
        };
        self.serving.run("attach", &job, output)
    }
}
