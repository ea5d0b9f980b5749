//! `bandsaw attach`: images as disks or folders, as on macOS.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw::address::redacted;
use bandsaw::open::Section;
use bandsaw::{Kind, Reason};
use bandsaw_registry::Use;
use clap::{Args, ValueHint};

use super::mount::MountArgs;
use crate::attach::{MountPlan, ServerTask};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source::{self, OpenArgs};

/// Attach an image as a disk, or its volumes as folders
///
/// If run by root on a Linux system with network block devices (`modprobe nbd`), the disk becomes
/// /dev/nbd0 and its partitions /dev/nbd0p1 and so on, which can be mounted like those of any other
/// disk. Otherwise, and with --folders or an option for mounted volumes, each volume is mounted on
/// a folder in /Volumes, or in ~/Volumes for users other than root. These folders are removed when
/// the image is detached. See `bandsaw mount` for the properties of mounted volumes.
///
/// A local image that stores checksums, such as a compressed one, is compared with them first, and is
/// not attached if one differs. The result is remembered in ~/.cache/bandsaw until a file of the
/// image changes.
///
/// In both cases the image gets a device name such as disk1, which `detach` accepts and `list`
/// shows; mounted volumes are disk1s1, disk1s2 and so on. A kernel disk with mounted partitions is
/// detached only with --force.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw attach App.dmg                       disk1s1  HFS+  App  /Volumes/App  read-only
  bandsaw attach vm.asif                       disk1    ASIF  vm.img  /dev/nbd0
  bandsaw attach Docs.sparsebundle --mountpoint /mnt/docs
  bandsaw attach Stick.img --section 2048,65536    a partition missing in the map
  bandsaw attach Disk.asif --nomount           no volumes, only the disk
  bandsaw detach disk1")]
pub(crate) struct Attach {
    /// The image, or one volume of it (default: all volumes)
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// Mount the volume, or the first of several, on this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with_all = ["mountroot", "nomount"])]
    mountpoint: Option<PathBuf>,
    /// Mount volumes on folders below this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with = "nomount")]
    mountroot: Option<PathBuf>,
    /// Mount no volume; provide the disk only
    ///
    /// The disk is a kernel device, or a file if the kernel has no network block devices.
    #[arg(long)]
    nomount: bool,
    /// Mount volumes on folders without a kernel device
    ///
    /// With --nomount the disk is shown as a file.
    ///
    /// The kernel's network block devices are not used.
    #[arg(long)]
    folders: bool,
    /// Attach only these sectors of the disk
    ///
    /// SECTORS is START, FIRST-LAST or START,COUNT.
    #[arg(long, value_name = "SECTORS")]
    section: Option<Section>,
    /// Behave as --nomount if no volume can be mounted
    #[arg(long, hide = true, conflicts_with = "nomount")]
    or_disk: bool,
    /// Leave the report that no volume can be mounted to the caller
    #[arg(long, hide = true)]
    quiet_if_empty: bool,
    /// Report a failure as this program of Apple's does
    #[arg(long, hide = true, value_name = "PROGRAM")]
    report_as: Option<String>,
    #[command(flatten)]
    serving: MountArgs,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Attach {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        if address.path.is_some() {
            return Err(Failure::usage(
                "address",
                "only an image or a volume can be attached, not a folder",
            ));
        }
        // A named volume, or one with options for its mount, is meant to be mounted.
        let is_named = self.mountpoint.is_some()
            || self.mountroot.is_some()
            || !self.serving.options.is_empty();
        let for_kernel = !(self.folders || is_named || address.volume.is_some());
        let absolute =
            |folder: &PathBuf| std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        let options = self.serving.mount_options()?;
        let opening = self
            .opening
            .of_section(self.section)
            .forced(self.serving.force)
            .dated(options.epoch);
        let job = ServerTask {
            address,
            opening: &opening,
            verifying: &self.serving.verifying,
            options,
            places: match (&self.mountpoint, self.nomount) {
                (Some(folder), _) => MountPlan::Volume(absolute(folder)),
                (None, true) => MountPlan::DiskAnywhere,
                (None, false) => MountPlan::Volumes(self.mountroot.as_ref().map(absolute)),
            },
            for_kernel,
            or_disk: self.or_disk,
            used: Use::Attached,
            trim: !self.serving.no_trim,
            background: self.serving.serving,
        };
        self.serving
            .run("attach", &job, output)
            .map_err(|failure| match failure.reason() {
                Some(Reason::NoVolumes) if self.quiet_if_empty => failure.silent(),
                _ => match &self.report_as {
                    Some(program) if !failure.is_reported() => {
                        let advice = match failure.kind() {
                            Kind::WrongKey => "; -stdinpass reads it from standard input",
                            _ => "",
                        };
                        eprintln!("{program}: {}{advice}", redacted(&failure.message()));
                        failure.silent()
                    }
                    _ => failure,
                },
            })
    }
}
