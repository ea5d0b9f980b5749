//! A volume some of whose bytes are read from other offsets of the same device.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::Result;
use bandsaw_core::device::{Access, BlockDevice, Extent, FileRange, Info, read_only};
use bandsaw_core::size::to_usize;

const LAYER: &str = "hfs+ journal";

/// Redirections of byte ranges of a volume to other offsets.
#[derive(Debug, Default)]
pub(super) struct Patches {
    /// Start to length and source; not empty, disjoint.
    places: BTreeMap<u64, (u64, u64)>,
}

impl Patches {
    /// Redirects the `len` bytes at `target` to those at `source`.
    pub(super) fn insert(&mut self, target: u64, len: u64, source: u64) {
        if len == 0 {
            return;
        }
        let end = target + len;
        // A range that overlaps the beginning of the new one keeps its head, and possibly a tail
        // after it.
        if let Some((&start, &(old, from))) = self.places.range(..target).next_back()
            && start + old > target
        {
            self.places.insert(start, (target - start, from));
            if start + old > end {
                self.places
                    .insert(end, (start + old - end, from + (end - start)));
            }
        }
        let covered: Vec<u64> = self
            .places
            .range(target..end)
            .map(|(&start, _)| start)
            .collect();
        for start in covered {
            if let Some((old, from)) = self.places.remove(&start)
                && start + old > end
            {
                self.places
                    .insert(end, (start + old - end, from + (end - start)));
            }
        }
        self.places.insert(target, (len, source));
    }

    /// Adds the redirections in `later`, which override these.
    pub(super) fn append(&mut self, later: Self) {
        for (target, (len, source)) in later.places {
            self.insert(target, len, source);
        }
    }

    /// Returns target, length and source of each redirection, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.places
            .iter()
            .map(|(&target, &(len, source))| (target, len, source))
    }

    /// Returns the source range of the bytes from `offset` on, at most `length`, up to the end of
    /// the contiguous run.
    fn locate(&self, offset: u64, length: u64) -> Range<u64> {
        if let Some((&start, &(len, source))) = self.places.range(..=offset).next_back()
            && offset < start + len
        {
            let within = offset - start;
            return source + within..source + within + length.min(len - within);
        }
        let next = self
            .places
            .range(offset..)
            .next()
            .map_or(length, |(&start, _)| start - offset);
        offset..offset + length.min(next)
    }
}

/// The volume as it will be after the replay of its journal. Read-only.
#[derive(Debug)]
pub(super) struct Replayed {
    device: Arc<dyn BlockDevice>,
    patches: Patches,
}

impl Replayed {
    /// Creates the device. All targets and sources must be within `device`.
    pub(super) fn new(device: Arc<dyn BlockDevice>, patches: Patches) -> Self {
        Self { device, patches }
    }
}

impl BlockDevice for Replayed {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadOnly,
            ..self.device.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.patches.locate(offset, rest.len() as u64);
            let length = place.end - place.start;
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(length));
            self.device.read_at(place.start, now)?;
            (offset, rest) = (offset + length, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        self.device
            .extent_at(self.patches.locate(range.start, range.end - range.start))
    }

    read_only!(LAYER);

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        self.device
            .file_range(self.patches.locate(range.start, range.end - range.start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    proptest! {
        #[test]
        fn patches_lie_over_each_other_as_copies_would(patches in prop::collection::vec((0_u64..64, 0_u64..32, 64_u64..96), 0..12)) {
            let before: Vec<u8> = (0..128).collect();
            let mut after = before.clone();
            let (mut early, mut late) = (Patches::default(), Patches::default());
            for (index, &(target, len, source)) in patches.iter().enumerate() {
                let (to, from, len_) = (target as usize, source as usize, len as usize);
                // Sources are past all targets, as the journal is separate from the blocks that it
                // changes.
                let len_ = len_.min(64 - to.min(64));
                after[to..to + len_].copy_from_slice(&before[from..from + len_]);
                let half = if index < patches.len() / 2 { &mut early } else { &mut late };
                half.insert(target, len_ as u64, source);
            }
            early.append(late);
            let device = Replayed::new(Arc::new(Memory::from(before)), early);
            prop_assert_eq!(device.read_vec(0, 128).unwrap(), after.clone());
            for start in (0..128).step_by(7) {
                prop_assert_eq!(&device.read_vec(start, 3.min(128 - start as usize)).unwrap(), &after[start as usize..(start as usize + 3).min(128)]);
            }
            let lens = device.extents(0..128).map(|run| run.unwrap().0);
            prop_assert_eq!(lens.map(|run| run.end - run.start).sum::<u64>(), 128);
        }
    }
}
