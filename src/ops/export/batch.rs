//! Entries of one folder that are created together, by any thread of an export.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::host_node::NodeMaker;
use super::{BUFFER, Exported, LAYER, MAX_PROBLEMS, about, is_fatal};
use crate::fs::{Entry, FileKind};
use crate::parallel::Queue;
use crate::sync::Mutex;
use crate::{Error, Result};

/// Number of entries in a batch, all of one folder, so that threads seldom contend for the same
/// folder.
pub(super) const BATCH: usize = 128;
/// Number of queued batches above which the walking thread creates entries too.
const MAX_WAITING: usize = 32;

/// Entries of one folder to be created.
pub(super) struct Batch {
    pub(super) folder: Arc<OwnedFd>,
    /// Path in the volume, for messages.
    pub(super) path: Arc<str>,
    pub(super) entries: Vec<Entry>,
}

/// State shared by all threads.
pub(super) struct ExportShared<'a> {
    pub(super) maker: NodeMaker<'a>,
    pub(super) report: Exports,
    pub(super) queue: Queue<Batch>,
}

impl ExportShared<'_> {
    pub(super) fn make(&self, batch: Batch, buffer: &mut [u8]) -> Result<()> {
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

    pub(super) fn into_inner(self) -> Exported {
        self.0.into_inner()
    }
}
