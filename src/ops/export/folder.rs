//! Export of a folder of a volume to a folder of the host.
//!
//! One thread walks the volume and creates the folders, and all threads create the other entries.
//! Hard links are created when their targets exist. Folder attributes (owner, permissions, dates)
//! are set last, from the deepest folder up, because earlier steps would change them. On macOS,
//! creation dates are set, except of symbolic links, and those BSD flags that the owner of a file may
//! choose. On other hosts both are lost, and extended attributes get the prefix `user.`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::batch::{ExportShared, Exports};
use super::host_node::{CreatedNodes, NodeMaker, Owners};
use super::walk::ExportWalk;
use super::{BUFFER, Exported, FolderOptions, LAYER};
use crate::fs::{FileKind, FileSystem, FileSystemExt};
use crate::parallel::{self, Queue};
use crate::progress::Progress;
use crate::{Error, Result};

/// Exports the contents of the folder at `path` of a volume to `target`, which is created if it
/// does not exist. Any other entry at `path` is exported into `target` under its own name.
///
/// Without `overwrite`, no existing file is changed. Owners are restored if the process has the
/// privilege.
pub fn to_folder(
    fs: &dyn FileSystem,
    path: &str,
    target: &Path,
    options: &FolderOptions,
    progress: &dyn Progress,
) -> Result<Exported> {
    let top = fs.resolve(path)?;
    let volume = fs.volume();
    progress.stage(
        "copy",
        if top.id == fs.root() {
            volume.total.saturating_sub(volume.free)
        } else {
            top.size
        },
    );
    let (target, made) =
        open_target(target).map_err(|error| Error::io(LAYER, "open", error).in_file(target))?;
    let owners = Owners::new(target.as_fd())
        .map_err(|error| Error::io(LAYER, "read metadata of the target", error))?;
    let made_here = CreatedNodes::default();
    let FolderOptions {
        overwrite,
        special_files,
        setuid,
        resume,
        fresh,
        ..
    } = *options;
    let maker = NodeMaker {
        fs,
        progress,
        overwrite,
        special_files,
        setuid,
        resume,
        fresh,
        owners,
        made_here: &made_here,
    };
    let shared = ExportShared {
        maker,
        report: Exports::default(),
        queue: Queue::new(),
    };
    let mut walk = ExportWalk::new(&shared, path, top.clone(), target, made);
    let walked = || match top.kind {
        FileKind::Folder => walk.walk(top.id),
        _ => walk.single(path, options.name.as_deref(), top),
    };
    let begin = || vec![0; BUFFER];
    let make = |buffer: &mut Vec<u8>, batch| shared.make(batch, buffer);
    let threads = parallel::cores(MAX_THREADS);
    shared.queue.run(threads, walked, begin, make)?;
    walk.finish()?;
    drop(walk);
    Ok(shared.report.into_inner())
}

/// Number of threads sufficient to keep a disk busy.
const MAX_THREADS: usize = 4;

fn open_target(path: &Path) -> std::io::Result<(OwnedFd, bool)> {
    let made = match std::fs::create_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    let target = std::fs::File::open(path)?;
    match target.metadata()?.is_dir() {
        true => Ok((target.into(), made)),
        false => Err(std::io::ErrorKind::NotADirectory.into()),
    }
}
