//! The contents of all files, written in the order in which they lie, by several threads.
//!
//! The data area is cut into stretches; a thread takes the next one, reads what belongs there, small files side by side in
//! one buffer, and writes it in large pieces. Stretches are as long as a sparse bundle's default bands, because two
//! threads are faster in two files than in one.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::forks::{Blocks, Content, body, contents};
use super::objects::path;
use super::output::{BUFFER, Output};
use crate::device::BlockDevice;
use crate::fs::source::{ContentReader, Tree};
use crate::platform::{self, Next};
use crate::progress::Progress;
use crate::{Error, Result};

const STRETCH: u64 = 8 << 20;

/// What the threads share.
pub(super) struct Filling<'a> {
    tree: &'a Tree,
    blocks: &'a Blocks,
    device: &'a dyn BlockDevice,
    progress: &'a dyn Progress,
    /// Where the next stretch begins.
    next: AtomicU64,
    stopped: AtomicBool,
    failure: Mutex<Option<Error>>,
}

impl<'a> Filling<'a> {
    pub(super) fn new(tree: &'a Tree, blocks: &'a Blocks, device: &'a dyn BlockDevice, progress: &'a dyn Progress) -> Self {
        let next = AtomicU64::new(blocks.range().start);
        Self { tree, blocks, device, progress, next, stopped: AtomicBool::new(false), failure: Mutex::new(None) }
    }

    /// Writes stretches until none is left, or somebody failed. Called by each thread.
    pub(super) fn work(&self) {
        let end = self.blocks.range().end;
        let mut out = None;
        while !self.stopped.load(Ordering::Relaxed) {
            let Some(stretch) = self.take(end) else { return };
            let out = out.get_or_insert_with(|| Output::new(self.device, stretch.start));
            if let Err(error) = self.write(out, stretch) {
                self.fail(error);
            }
        }
    }

    /// Stops all threads; the first failure is the one that [`finish`](Self::finish) returns.
    pub(super) fn fail(&self, error: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether all was written.
    pub(super) fn finish(self) -> Result<()> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn take(&self, end: u64) -> Option<Range<u64>> {
        let until = |start: u64| (start / STRETCH + 1) * STRETCH;
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |start| (start < end).then(|| until(start)));
        taken.ok().map(|start| start..until(start).min(end))
    }

    fn write(&self, out: &mut Output<'_>, stretch: Range<u64>) -> Result<()> {
        out.seek(stretch.start)?;
        let block = u64::from(self.blocks.block_size());
        for node in self.blocks.node_at(stretch.start)..self.tree.nodes.len() as u32 {
            let mut at = self.blocks.first(node).offset(self.blocks.block_size());
            if at >= stretch.end {
                break;
            }
            for (_, content) in body(self.tree, node).into_iter().flat_map(contents) {
                let after = at + content.len().next_multiple_of(block);
                let inside = at.max(stretch.start)..after.min(stretch.end);
                if !inside.is_empty() {
                    self.copy(out, content, at, inside).map_err(|error| self.name(error, node))?;
                }
                at = after;
            }
        }
        out.flush()
    }

    /// Puts what of `content`, which begins at `start` of the volume, belongs to `inside`, and zeros behind its end.
    fn copy(&self, out: &mut Output<'_>, content: Content<'_>, start: u64, inside: Range<u64>) -> Result<()> {
        let end = start + content.len();
        let mut reader = match content {
            Content::Extern(stream) if inside.start < end => Some(self.tree.contents.open(stream)?),
            _ => None,
        };
        self.progress.check()?;
        while out.position() < inside.end.min(end) {
            let here = out.position();
            let length = out.room().min((inside.end.min(end) - here) as usize);
            let from = here - start;
            match (content, &mut reader) {
                (Content::InHand(bytes), _) => out.append(&bytes[from as usize..from as usize + length])?,
                // The last bytes are always read: that is when a reader finds out whether the file has changed.
                (_, Some(reader)) if here + (length as u64) < end && is_hole(&**reader, from, length) => {
                    out.seek(here + length as u64)?;
                }
                (_, Some(reader)) => out.append_with(length, |place| reader.read_at(from, place))?,
                (_, None) => break,
            }
            self.progress.advance(length as u64);
            if length == BUFFER {
                self.progress.check()?;
            }
        }
        out.pad_to(inside.end)
    }

    fn name(&self, error: Error, node: u32) -> Error {
        if error.file().is_none() { error.in_file(path(self.tree, node)) } else { error }
    }
}

/// Whether a whole buffer's worth of a host file is a hole, which needs neither reading nor writing.
fn is_hole(reader: &dyn ContentReader, from: u64, length: usize) -> bool {
    if length < BUFFER {
        return false;
    }
    let Some((file, base)) = reader.host_file() else { return false };
    match platform::next_data(file, base + from) {
        Ok(Next::At(data)) => data >= base + from + length as u64,
        Ok(Next::Nowhere) => true,
        Ok(Next::Unknown) | Err(_) => false,
    }
}
