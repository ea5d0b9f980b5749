//! `bandsaw mount`: a volume mounted on a folder.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw_mount::MountOptions;
use bandsaw_registry::Use;
use clap::{Args, ValueHint};

use crate::attach::{self, MountPlan, ServerTask};
use crate::checksum_args::VerifyArgs;
use crate::failure::{Failure, Outcome};
use crate::mount_helper::{self, MOUNT_OPTIONS};
use crate::output::Output;
use crate::source::{self, OpenArgs};

/// Mount a volume on a folder
///
/// A background process serves the folder through FUSE until it is unmounted (`bandsaw detach`,
/// `umount`, `fusermount3 -u`) or receives a signal; in both cases the volume is left clean. If the
/// process is killed, synced data and everything older than a few seconds are safe. HFS+, HFSX and
/// APFS volumes are writable.
///
/// Unused space of the volume is first given back to the host. Compressed files of macOS are
/// decompressed when they are opened for writing. All files belong to the user who mounts the
/// volume; the recorded owners apply if root mounts it, or with -o owners. Names of extended
/// attributes get the prefix `user.`. Setting `system.bandsaw.compress` to zlib, lzvn or lzfse
/// compresses a file as `bandsaw compress` does, unless it is open for writing or has hard links. If
/// the volume ignores the case of names, `A` and `a` are the same name for Linux too, and Linux does
/// not rename one to the other.
///
/// Names are found in composed (`é` as one character, NFC) and decomposed form (NFD). APFS lists
/// names as they were created. HFS+ stores names decomposed, and lists them composed, as usual on
/// Linux; with -o nfd they are listed decomposed, as on macOS. Use that to compare the volume with
/// trees made on macOS, for example with rsync.
///
/// A local image that stores checksums, such as a compressed one, is compared with them first, and is
/// not mounted if one differs. The result is remembered in ~/.cache/bandsaw until a file of the image
/// changes.
///
/// For /etc/fstab make /sbin/mount.bandsaw a link to this program, and add a line such as
/// `/srv/Docs.sparsebundle /mnt/docs bandsaw noauto,allow_other,passfile=/etc/docs.key 0 0`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw mount Docs.sparsebundle /mnt/docs
  bandsaw mount disk.dmg:Data /mnt/data -o ro,uid=1000
  bandsaw mount disk.dmg:Data@before-update /mnt      a snapshot of an APFS volume, read-only
  bandsaw mount --as-disk Backup.asif /mnt/disk       the disk as /mnt/disk/Backup.img
  bandsaw mount base.img --shadow changes.asif /mnt   keep base.img unchanged
  bandsaw detach /mnt/docs")]
pub(crate) struct Mount {
    /// The image, or one volume of it (default: the first volume)
    ///
    /// IMAGE:VOLUME@SNAPSHOT is a snapshot of an APFS volume, mounted read-only.
    #[arg(value_name = "IMAGE[:VOLUME[@SNAPSHOT]]", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// The mount point, an empty folder
    ///
    /// A missing folder is made, and removed after unmounting.
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    serving: MountArgs,
    /// Show the whole disk as a file IMAGE.img in the folder
    #[arg(long)]
    as_disk: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The options of a mount.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Mount read-only
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// Set mount options, as of mount(8)
    ///
    /// Options are ro, allow_other, owners, noowners, uid=, gid=, umask=, noexec, suid, dev, nfd,
    /// threads=, epoch= and writeback. With epoch=SECONDS since 1970 the same changes give the same
    /// bytes: no date is later than that, and the volume is synced only when a program asks for it
    /// and at the end. With writeback the kernel collects small writes,
    /// and programs learn only from fsync and close that the volume is full.
    #[arg(short = 'o', long = "options", value_name = "OPTION,...")]
    pub(crate) options: Vec<String>,
    /// Mount a damaged volume for writing
    ///
    /// By default a volume is mounted read-only if a quick check finds damage.
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not give unused space back to the host first
    #[arg(long)]
    pub(crate) no_trim: bool,
    /// Stay in the foreground until Ctrl-C or unmounting
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// Run as the server that this program starts
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub(crate) serving: bool,
    #[command(flatten)]
    pub(crate) verifying: VerifyArgs,
}

impl MountArgs {
    /// Returns the options of the mount. Fails for names after `-o` that are unknown.
    pub(crate) fn mount_options(&self) -> Outcome<MountOptions> {
        let mut options = MountOptions {
            read_only: self.read_only,
            ..MountOptions::default()
        };
        for list in &self.options {
            if let Some((name, _)) = options.apply(list)?.first() {
                let failure = Failure::usage("-o", format!("unknown mount option {name}"));
                return Err(failure.hint(format!("use one of {}", MOUNT_OPTIONS.join(", "))));
            }
        }
        Ok(options)
    }

    /// Serves in this process, or starts a background process with the same command line as its
    /// server.
    pub(crate) fn run(&self, verb: &str, job: &ServerTask<'_>, output: &Output) -> Outcome {
        if self.foreground || self.serving {
            return attach::serve(job, output, |attached| attach::print(attached, output));
        }
        let args = mount_helper::translated(std::env::args_os().collect())
            .into_iter()
            .skip(1)
            .collect();
        attach::print(&attach::launch(&attach::as_server(args, verb))?, output)
    }
}

impl Mount {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        if address.path.is_some() {
            return Err(Failure::usage(
                "address",
                "only a whole volume can be mounted, not a folder",
            ));
        }
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let options = self.serving.mount_options()?;
        let opening = self.opening.forced(self.serving.force).dated(options.epoch);
        let job = ServerTask {
            address,
            opening: &opening,
            verifying: &self.serving.verifying,
            options,
            places: if self.as_disk {
                MountPlan::Disk(folder)
            } else {
                MountPlan::Volume(folder)
            },
            for_kernel: false,
            or_disk: false,
            used: Use::Mounted,
            trim: !self.serving.no_trim,
            background: self.serving.serving,
        };
        self.serving.run("mount", &job, output)
    }
}
