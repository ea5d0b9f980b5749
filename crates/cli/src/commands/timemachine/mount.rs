//! `bandsaw timemachine mount`: all dates as folders.

use std::path::PathBuf;

use bandsaw_registry::Use;
use clap::{Args, ValueHint};

use super::backups::BackupsArgs;
use crate::attach::{MountPlan, ServerTask};
use crate::commands::mount::MountArgs;
use crate::failure::Outcome;
use crate::output::Output;

/// Mount all backups on a folder, read-only
///
/// The folder has a folder for each date, with the volumes of the Mac in it; if there are several
/// machines, it has a folder for each of them. A background process serves it through FUSE until it
/// is unmounted (`bandsaw detach`, `umount`).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw tm mount Mac.sparsebundle /mnt/backups
  ls /mnt/backups/2026-11-01-143012
  bandsaw detach /mnt/backups")]
pub(super) struct Mount {
    #[command(flatten)]
    at: BackupsArgs,
    /// The mount point, an empty folder
    ///
    /// A missing folder is made, and removed after unmounting.
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    serving: MountArgs,
}

impl Mount {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let address = self.at.address()?;
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let mut options = self.serving.mount_options()?;
        options.read_only = true;
        let job = ServerTask {
            address,
            opening: &self.at.opening,
            verifying: &self.serving.verifying,
            options,
            places: MountPlan::Backups(folder, self.at.machine.clone()),
            for_kernel: false,
            or_disk: false,
            used: Use::Mounted,
            trim: false,
            background: self.serving.serving,
        };
        self.serving.run("mount", &job, output)
    }
}
