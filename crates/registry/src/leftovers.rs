//! What a process leaves that did not end by itself.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::Entry;

/// Removes what the process of an entry has left: sockets, mounts, folders that were made for
/// these, a disk of the kernel's.
pub(crate) fn remove(entry: &Entry) {
    entry
        .sockets
        .iter()
        .for_each(|socket| remove_socket(socket));
    #[cfg(target_os = "linux")]
    {
        entry.mounts.iter().for_each(remove_mount);
        entry
            .kernel_disk
            .into_iter()
            .for_each(|disk| disk.id().forget());
    }
}

/// Removes a socket at which nobody listens any more.
fn remove_socket(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let answers = || std::os::unix::net::UnixStream::connect(path).is_ok();
    if is_socket && !answers() {
        let _ = fs::remove_file(path);
    }
}

/// Unmounts what nobody answers for any more.
#[cfg(target_os = "linux")]
fn remove_mount(mount: &crate::Mount) {
    let all = bandsaw_mount::mount_points().unwrap_or_default();
    let there: Vec<_> = all
        .iter()
        .filter(|found| found.path == mount.folder)
        .collect();
    let dead = there
        .last()
        .is_some_and(|found| found.is_ours() && found.is_dead());
    let gone = there.is_empty() || dead && bandsaw_mount::unmount(&mount.folder, true).is_ok();
    if gone && mount.made {
        // Somebody may have put something there.
        let _ = fs::remove_dir(&mount.folder);
    }
}
