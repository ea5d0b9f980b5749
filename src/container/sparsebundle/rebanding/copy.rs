//! Copying of the stored data of a range from old bands into new ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::run::MoveTask;
use crate::Result;
use crate::device::ExtentKind;
use crate::progress::Progress;

/// Bytes copied at a time by each thread; small enough to stay in the CPU cache between read and
/// write.
const PIECE: u64 = 256 << 10;
const MAX_THREADS: usize = 4;

impl MoveTask<'_> {
    /// Copies a range of the disk, several new bands in parallel.
    pub(super) fn copy(&self, start: u64, end: u64, progress: &dyn Progress) -> Result<()> {
        let to = self.state.to;
        let (next, failed) = (AtomicU64::new(start), AtomicBool::new(false));
        let work = || loop {
            let start = next.fetch_add(to, Ordering::Relaxed);
            if start >= end || failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let copied = self.copy_band(start, start.saturating_add(to).min(end), progress);
            if copied.is_err() {
                failed.store(true, Ordering::Relaxed);
                return copied;
            }
        };
        let cores = thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_THREADS);
        let others = cores.min((end - start).div_ceil(to) as usize) - 1;
        thread::scope(|scope| {
            let others: Vec<_> = (0..others).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                done = done.and(
                    other
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            done
        })
    }

    /// Copies the stored data of a range within one new band.
    fn copy_band(&self, mut at: u64, end: u64, progress: &dyn Progress) -> Result<()> {
        let mut buf = vec![0; PIECE.min(end - at) as usize];
        while at < end {
            progress.check()?;
            // One query per run: some hosts walk all pages of a file to find the end of an extent.
            let extent = self.old.extent_at(at..end)?;
            match extent.kind {
                ExtentKind::Data => self.copy_run(at, at + extent.len, &mut buf, progress)?,
                ExtentKind::Zero => progress.advance(extent.len),
                ExtentKind::Hole => {}
            }
            at += extent.len;
        }
        Ok(())
    }

    fn copy_run(
        &self,
        mut at: u64,
        end: u64,
        buf: &mut [u8],
        progress: &dyn Progress,
    ) -> Result<()> {
        while at < end {
            progress.check()?;
            let piece = (end - at).min(buf.len() as u64);
            let bytes = &mut buf[..piece as usize];
            self.old.read_at(at, bytes)?;
            self.new.write_at(at, bytes)?;
            self.copied.fetch_add(piece, Ordering::Relaxed);
            progress.advance(piece);
            at += piece;
        }
        Ok(())
    }
}
