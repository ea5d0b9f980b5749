//! A disk whose free blocks read as zeros, for copies without deleted data.

use std::ops::Range;
use std::sync::Arc;

use crate::device::{Access, BlockDevice, Extent, ExtentKind, FileRange, Info, read_only};
use crate::open::{Image, Volume};
use crate::ops::space::{FreeSpace, UnconfirmedVolumes};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

const LAYER: &str = "free space";

/// The disk of an image with its free space read as zeros. Read-only.
#[derive(Debug)]
pub(super) struct UsedSpaceDisk {
    disk: Arc<dyn BlockDevice>,
    free: FreeSpace,
}

impl UsedSpaceDisk {
    /// Fails if the allocation map of a volume cannot be trusted, or the volume is damaged: copying that volume completely
    /// would silently ignore the request.
    pub(super) fn of(image: &Image, progress: &dyn Progress) -> Result<Self> {
        let confirm = |volume: &Volume| volume.confirm_free_map(None, progress);
        let unconfirmed = UnconfirmedVolumes::default().and(image, &confirm)?;
        let mut free = FreeSpace::of(image).without(&unconfirmed);
        if free.volumes.is_empty() {
            return Err(Error::unsupported(
                LAYER,
                "no known volume on the disk: its free blocks are unknown",
            ));
        }
        if let Some(at) = free.volumes.iter().position(|found| found.map.is_err())
            && let Err(error) = free.volumes.swap_remove(at).map
        {
            return Err(error);
        }
        Ok(Self {
            disk: image.disk().clone(),
            free,
        })
    }

    /// Returns true if the first of these bytes is free, and the end of the run with the same
    /// state.
    fn run_at(&self, range: Range<u64>) -> Result<(bool, u64)> {
        let Range { start, mut end } = range;
        for found in &self.free.volumes {
            let volume = &found.volume.range;
            if volume.start > start {
                end = end.min(volume.start);
            }
            let Some(map) = found.map.as_ref().ok().filter(|_| volume.contains(&start)) else {
                continue;
            };
            end = end.min(volume.end);
            let free = map.free_from(start - volume.start)?;
            let free =
                free.map(|free| volume.start + free.start..(volume.start + free.end).min(end));
            return Ok(match free {
                Some(free) if free.start == start => (true, free.end),
                Some(free) => (false, free.start.min(end)),
                None => (false, end),
            });
        }
        Ok((false, end))
    }
}

impl BlockDevice for UsedSpaceDisk {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadOnly,
            ..self.disk.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (free, until) = self.run_at(at..at + rest.len() as u64)?;
            // Not past the end of the rest, so the cast cannot truncate.
            let (now, later) = rest.split_at_mut(to_usize(until - at));
            if free {
                now.fill(0)
            } else {
                self.disk.read_at(at, now)?
            }
            (at, rest) = (until, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let (free, until) = self.run_at(range.clone())?;
        if free {
            Ok(Extent {
                kind: ExtentKind::Zero,
                len: until - range.start,
            })
        } else {
            self.disk.extent_at(range.start..until)
        }
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        let (free, until) = self.run_at(range.clone())?;
        if free {
            Ok(None)
        } else {
            self.disk.file_range(range.start..until)
        }
    }

    read_only!(LAYER);
}
