//! Cleanup after a process that crashed or was killed.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::Entry;

/// Removes the leftovers of an entry's process: sockets, mounts, folders created for these, a
/// kernel disk.
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
            .for_each(|disk| disk.id().detach_unserved());
    }
}

/// Removes a stale socket.
fn remove_socket(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let answers = || std::os::unix::net::UnixStream::connect(path).is_ok();
    if is_socket && !answers() {
        let _ = fs::remove_file(path);
    }
}

/// Unmounts a mount whose server has ended.
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
        // Fails if the folder is not empty, which is intended.
        let _ = fs::remove_dir(&mount.folder);
    }
}
