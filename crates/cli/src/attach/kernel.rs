//! The disk of an image as one of the kernel's: `/dev/nbd0`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::open::Image;
use bandsaw_mount::{MountPoint, User, mount_points};
use bandsaw_nbd::kernel::{DiskId, KernelDisk};
use bandsaw_nbd::{Export, Note, Options, Server, Watch};

use crate::failure::Outcome;
use crate::output::Output;

/// Tells the owner of failures, of which the kernel hears no more than a number.
#[derive(Debug)]
struct Lines(Output);

impl Watch for Lines {
    fn note(&self, note: &Note) {
        if let Note::Failed { .. } = note {
            self.0.error(&note.to_string(), None);
        }
    }
}

/// Gives the kernel the disk; `on_end` is called when it is taken away. `None` where the kernel
/// takes none.
pub(super) fn give(
    image: &Image,
    output: &Output,
    on_end: impl FnOnce() + Send + 'static,
) -> Outcome<Option<KernelDisk>> {
    let options = Options {
        watch: Arc::new(Lines(output.clone())),
        ..Options::default()
    };
    let server = Server::new(
        vec![Export::new("", "the disk", image.disk().clone())],
        options,
    )?;
    match KernelDisk::new(server, on_end) {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if error.kind() == Kind::Unsupported => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the disk away, with all that was written to what is mounted of it.
pub(super) fn take_away(disk: KernelDisk) -> bandsaw::Result<()> {
    for mount in mounts_of(disk.id()) {
        // What cannot be written is told by the disk.
        let _ = File::open(&mount.path).map(|folder| rustix::fs::syncfs(&folder));
    }
    disk.end()
}

/// Takes a disk of the kernel's into use, so that nobody else does; `None` for one that is gone.
/// Fails with its users.
pub(super) fn claim(disk: DiskId, server: u32) -> Result<Option<File>, Vec<User>> {
    let claimed = disk.claim();
    let mounted = mounts_of(disk).into_iter().map(|mount| User {
        process: 0,
        command: "a mount".into(),
        uses: mount.path,
    });
    let ours = [server, std::process::id()];
    let programs = disk
        .nodes()
        .into_iter()
        .flat_map(|node| bandsaw_mount::users_of(&node));
    let users: Vec<_> = mounted
        .chain(programs.filter(|user| !ours.contains(&user.process)))
        .collect();
    match claimed {
        Ok(claim) if users.is_empty() => Ok(Some(claim)),
        Err(error) if error.kind() != io::ErrorKind::ResourceBusy => Ok(None),
        _ => Err(users),
    }
}

/// What is mounted of a disk of the kernel's.
fn mounts_of(disk: DiskId) -> Vec<MountPoint> {
    // A mount may have been told another name of the disk, `/dev/disk/by-label/x`.
    let source = |mount: &MountPoint| match Path::new(&mount.source) {
        path if path.is_absolute() => fs::canonicalize(path).is_ok_and(|path| disk.has(&path)),
        _ => false,
    };
    mount_points()
        .unwrap_or_default()
        .into_iter()
        .filter(source)
        .collect()
}
