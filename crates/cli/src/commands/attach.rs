//! `bandsaw attach`: an image as macOS attaches one.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::open::Section;
use bandsaw_registry::Use;
use clap::{Args, ValueHint};

use super::mount::Serving;
use crate::attach::{Job, Places};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source::{self, Opening};

/// Attach an image: as a disk of the kernel's, or each volume as a folder
///
/// Where Linux has network block devices (`modprobe nbd`), root gets the disk as /dev/nbd0, its
/// partitions as /dev/nbd0p1 and so on, to be mounted as those of any other disk. Anywhere else,
/// and with --folders or an option that says where or how volumes are mounted, volumes become
/// folders in /Volumes, for users who are not root in ~/Volumes, which go when the image is
/// detached; what is said of `mount` holds for each of them.
///
/// Either way the image gets the name of a device, disk1 and so on, by which `detach` and `list`
/// know it; volumes that are folders are disk1s1, disk1s2. A disk of the kernel's that is mounted
/// is not detached without --force.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw attach App.dmg                       disk1s1  HFS+  App  /Volumes/App  read-only
  bandsaw attach vm.asif                       disk1    ASIF  vm.img  /dev/nbd0
  bandsaw attach Docs.sparsebundle --mountpoint /mnt/docs
  bandsaw attach Stick.img --section 2048,65536    a partition that no map tells of
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
    /// Mount no volume: show the disk as one of the kernel's or, without such, as one file
    #[arg(long)]
    nomount: bool,
    /// Mount volumes on folders, or show the disk of --nomount as a file, also where the kernel
    /// would take the disk
    #[arg(long)]
    folders: bool,
    /// Take these sectors of the disk for all of it: START, FIRST-LAST or START,COUNT
    #[arg(long, value_name = "SECTORS")]
    section: Option<Section>,
    /// For the faces of other programs: as --nomount where no volume can be mounted
    #[arg(long, hide = true, conflicts_with = "nomount")]
    or_disk: bool,
    #[command(flatten)]
    serving: Serving,
    #[command(flatten)]
    opening: Opening,
}

impl Attach {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        if address.path.is_some() {
            return Err(Failure::usage(
                "address",
                "an image or a volume is attached, not a folder of one",
            ));
        }
        // A volume that is named is to be mounted, as are those of which it is said where or how.
        let is_told = self.mountpoint.is_some()
            || self.mountroot.is_some()
            || !self.serving.options.is_empty();
        let for_kernel = !(self.folders || is_told || address.volume.is_some());
        let absolute =
            |folder: &PathBuf| std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        let opening = self
            .opening
            .of_section(self.section)
            .forced(self.serving.force);
        let job = Job {
            address,
            opening: &opening,
            options: self.serving.mount_options()?,
            places: match (&self.mountpoint, self.nomount) {
                (Some(folder), _) => Places::Volume(absolute(folder)),
                (None, true) => Places::DiskAnywhere,
                (None, false) => Places::Volumes(self.mountroot.as_ref().map(absolute)),
            },
            for_kernel,
            or_disk: self.or_disk,
            used: Use::Attached,
            trim: !self.serving.no_trim,
            background: self.serving.serving,
        };
        self.serving.run("attach", &job, output)
    }
}
