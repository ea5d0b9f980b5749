//! `bandsaw mount`: a volume as a folder.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw_mount::MountOptions;
use bandsaw_registry::Use;
use clap::{Args, ValueHint};

use crate::attach::{self, Job, Places};
use crate::failure::{Failure, Outcome};
use crate::mount_helper;
use crate::output::Output;
use crate::source::{self, Opening};

/// Show a volume as a folder, to be read and changed by any program
///
/// A server in the background answers for the folder, through FUSE, until it is unmounted (`bandsaw
/// detach`, `umount`, `fusermount3 -u`) or gets a signal; both leave the volume clean. What a
/// program has synced, or what is a few seconds old, survives whatever ends the server. HFS+, HFSX
/// and APFS volumes can be changed.
///
/// First the space is given back that the volumes do not use. Files that macOS stored compressed
/// are stored plain when they are opened for writing. Everything belongs to a user who mounts it;
/// recorded owners count if root does, or with -o owners. Attributes have `user.` before their
/// names. Where a volume takes `A` and `a` for one name, so does Linux, which then renames nothing
/// from one to the other.
///
/// A name is found composed (`é` as one character, NFC) and decomposed (NFD), whichever it was made
/// with. APFS lists it as it was made. HFS+ keeps every name decomposed; it is listed composed, as
/// programs on Linux write names, or, with -o nfd, as on macOS: for trees that were made there, if
/// rsync is to find them unchanged.
#[derive(Debug, Args)]
#[command(after_help = "\
In /etc/fstab, with a link /sbin/mount.bandsaw to this program:
  /srv/Docs.sparsebundle  /mnt/docs  bandsaw  noauto,allow_other,passfile=/etc/docs.key  0 0

Examples:
  bandsaw mount Docs.sparsebundle /mnt/docs
  bandsaw mount disk.dmg:Data /mnt/data -o ro,uid=1000
  bandsaw mount --as-disk Backup.asif /mnt/disk       one file, Backup.img, for programs that know disks
  bandsaw mount base.img --shadow changes.asif /mnt   base.img stays as it is
  bandsaw detach /mnt/docs")]
pub(crate) struct Mount {
    /// The image, or a volume in it; without a volume, the first
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    address: OsString,
    /// The folder, which is empty, or made for as long as the volume is mounted
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    serving: Serving,
    /// Show the whole disk as a file IMAGE.img in the folder instead
    #[arg(long)]
    as_disk: bool,
    #[command(flatten)]
    opening: Opening,
}

/// How something is mounted.
#[derive(Debug, Args)]
pub(crate) struct Serving {
    /// Let nobody change it
    #[arg(long, short)]
    pub(crate) read_only: bool,
    /// Options as those of mount(8): ro, allow_other, owners, noowners, uid=, gid=, umask=, noexec,
    /// suid, dev, writeback (the kernel gathers small writes; a program hears only from fsync and
    /// close that the volume is full), nfd, threads=
    #[arg(short = 'o', long = "options", value_name = "OPTION,...")]
    pub(crate) options: Vec<String>,
    /// Mount a volume for changes although the quick check before that finds it damaged; without
    /// this it is mounted read-only
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not give back first what the volumes do not use
    #[arg(long)]
    pub(crate) no_trim: bool,
    /// Stay in the foreground until Ctrl-C, or until it is unmounted
    #[arg(long, short)]
    pub(crate) foreground: bool,
    /// For the server that this program starts
    #[arg(long, hide = true, conflicts_with = "foreground")]
    pub(crate) serving: bool,
}

impl Serving {
    pub(crate) fn mount_options(&self) -> Outcome<MountOptions> {
        let mut options = MountOptions {
            read_only: self.read_only,
            ..MountOptions::default()
        };
        for list in &self.options {
            if let Some((name, _)) = options.apply(list)?.first() {
                return Err(Failure::usage(
                    "-o",
                    format!("{name} is no option of a mount"),
                ));
            }
        }
        Ok(options)
    }

    /// Does the job in this process, or has a process in the background do it: the command line
    /// again as its server's.
    pub(crate) fn run(&self, verb: &str, job: &Job<'_>, output: &Output) -> Outcome {
        if self.foreground || self.serving {
            return attach::serve(job, output, |attached| attach::tell(attached, output));
        }
        let args = mount_helper::translated(std::env::args_os().collect())
            .into_iter()
            .skip(1)
            .collect();
        attach::tell(&attach::launch(&attach::as_server(args, verb))?, output)
    }
}

impl Mount {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let address = source::address(&self.address)?;
        if address.path.is_some() {
            return Err(Failure::usage(
                "address",
                "a volume as a whole is mounted, not a folder of it",
            ));
        }
        let folder = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let opening = self.opening.forced(self.serving.force);
        let job = Job {
            address,
            opening: &opening,
            options: self.serving.mount_options()?,
            places: if self.as_disk {
                Places::Disk(folder)
            } else {
                Places::Volume(folder)
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
