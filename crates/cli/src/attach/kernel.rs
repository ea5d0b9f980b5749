//! The disk of an image as a kernel device: `/dev/nbd0`.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::open::Image;
use bandsaw_mount::{MountPoint, User, mount_points};
use bandsaw_nbd::kernel::{DiskId, KernelDisk};
use bandsaw_nbd::{Event, EventReceiver, Export, Options, Server};

use crate::failure::Outcome;
use crate::output::Output;

/// Prints failures, of which the kernel receives only a number.
#[derive(Debug)]
struct FailurePrinter(Output);

impl EventReceiver for FailurePrinter {
    fn on_event(&self, event: &Event) {
        if let Event::Failed { .. } = event {
            self.0.error(&event.to_string(), None);
        }
    }
}

/// Creates a kernel device for the disk; `on_end` is called when it is removed. Returns `None` if
/// the kernel has no such devices.
pub(super) fn create_device(
    image: &Image,
    output: &Output,
    on_end: impl FnOnce() + Send + 'static,
) -> Outcome<Option<KernelDisk>> {
    let options = Options {
        events: Arc::new(FailurePrinter(output.clone())),
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

/// Removes the device, after writing the data of its mounted volumes.
pub(super) fn remove_device(disk: KernelDisk) -> bandsaw::Result<()> {
    for mount in mounts_of(disk.id()) {
        // The disk reports data that cannot be written.
        let _ = File::open(&mount.path).map(|folder| rustix::fs::syncfs(&folder));
    }
    disk.end()
}

/// Claims a kernel device exclusively; `None` if it is gone. Fails with a list of its users.
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

/// Returns the mount points of a kernel device.
fn mounts_of(disk: DiskId) -> Vec<MountPoint> {
    // A mount may have another name of the disk, such as `/dev/disk/by-label/x`.
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
