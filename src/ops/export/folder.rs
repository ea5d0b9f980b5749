//! Export of a folder of a volume to a folder of the host.
//!
//! One thread walks the volume and creates the folders, and all threads create the other entries.
//! Hard links are created when their targets exist. Folder attributes (owner, permissions, dates)
//! are set last, from the deepest folder up, because earlier steps would change them. On macOS,
//! creation dates are set, except of symbolic links, and those BSD flags that the owner of a file may
//! choose. On other hosts both are lost, and extended attributes get the prefix `user.`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::host_node::{CreatedNodes, NodeMaker, Owners};
use super::walk::ExportWalk;
use super::{BUFFER, Exported, FolderOptions, LAYER, MAX_PROBLEMS, about, is_fatal};
use crate::fs::{Entry, FileKind, FileSystem, FileSystemExt};
use crate::parallel::{self, Queue};
use crate::progress::Progress;
use crate::sync::Mutex;
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
/// Number of entries in a batch, all of one folder, so that threads seldom contend for the same
/// folder.
pub(super) const BATCH: usize = 128;
/// Number of queued batches above which the walking thread creates entries too.
const MAX_WAITING: usize = 32;

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

/// Entries of one folder to be created.
pub(super) struct Batch {
    pub(super) folder: Arc<OwnedFd>,
    /// Path in the volume, for messages.
    pub(super) path: Arc<str>,
    pub(super) entries: Vec<Entry>,
}

/// The report shared by several threads.
#[derive(Debug, Default)]
pub(super) struct Exports(Mutex<Exported>);

impl Exports {
    pub(super) fn add(&self, part: Exported) {
        let whole = &mut *self.0.lock();
        whole.files += part.files;
        whole.folders += part.folders;
        whole.symlinks += part.symlinks;
        whole.bytes += part.bytes;
        whole.problem_count += part.problem_count;
        whole.note_count += part.note_count;
        let room = MAX_PROBLEMS.saturating_sub(whole.problems.len());
        whole.problems.extend(part.problems.into_iter().take(room));
        let room = MAX_PROBLEMS.saturating_sub(whole.notes.len());
        whole.notes.extend(part.notes.into_iter().take(room));
    }

    fn into_inner(self) -> Exported {
        self.0.into_inner()
    }
}

/// State shared by all threads.
pub(super) struct ExportShared<'a> {
    pub(super) maker: NodeMaker<'a>,
    pub(super) report: Exports,
    pub(super) queue: Queue<Batch>,
}

impl ExportShared<'_> {
    fn make(&self, batch: Batch, buffer: &mut [u8]) -> Result<()> {
        let mut report = Exported::default();
        for Entry { name, attributes } in &batch.entries {
            let mut problems = Vec::new();
            if self.maker.leaves_out(attributes) {
                report.add_problem(about(
                    Error::unsupported(LAYER, "special file: skipped"),
                    &batch.path,
                    name,
                ));
                continue;
            }
            if self.maker.clears_bits(attributes) {
                let message = "its set-user-ID and set-group-ID bits are cleared";
                report.add_problem(about(Error::unsupported(LAYER, message), &batch.path, name));
            }
            let made = self.maker.make(
                batch.folder.as_fd(),
                name,
                attributes,
                buffer,
                &mut |error| problems.push(error),
            );
            match (made, attributes.kind) {
                (Ok(_), FileKind::Symlink) => report.symlinks += 1,
                (Ok(bytes), _) => {
                    report.files += 1;
                    report.bytes += bytes;
                }
                (Err(error), _) if is_fatal(&error) => {
                    self.report.add(report);
                    return Err(about(error, &batch.path, name));
                }
                (Err(error), _) => problems.push(error),
            }
            problems
                .into_iter()
                .for_each(|error| report.problem(about(error, &batch.path, name)));
        }
        self.report.add(report);
        Ok(())
    }

    /// Queues a batch. If the queue is long, processes one batch itself.
    pub(super) fn push(&self, batch: Batch, buffer: &mut Vec<u8>) -> Result<()> {
        let Some(batch) = self.queue.push(batch, MAX_WAITING) else {
            return Ok(());
        };
        buffer.resize(BUFFER, 0);
        self.make(batch, buffer)
    }
}
