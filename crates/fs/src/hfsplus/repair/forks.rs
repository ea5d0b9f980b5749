//! Repair of forks: sizes are cut to the existing extents, and no block is used twice (§4, §5).

use std::collections::{BTreeMap, HashMap};

use zerocopy::{FromBytes, IntoBytes};

use super::no_room;
use super::objects::AllObjects;
use super::salvage::SalvagedRecord;
use super::steps::Steps;
use crate::hfsplus::layout::{
    AllocBlock, Cnid, EXTENTS_KEY_LENGTH, EXTENTS_PER_RECORD, Extent, ExtentKeyRaw, ExtentRaw,
    ExtentRecordRaw, ExtentsRaw, ForkRaw, JOURNAL_TYPE, VolumeHeader, extents_of, fork_type,
};
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

/// Used blocks, as runs that are not adjacent.
#[derive(Debug, Default, Clone)]
pub(super) struct UsedBlocks {
    /// Runs, from start to end.
    runs: BTreeMap<u64, u64>,
}

impl UsedBlocks {
    pub(super) fn overlaps(&self, extent: Extent) -> bool {
        self.runs
            .range(..extent.end())
            .next_back()
            .is_some_and(|(_, &end)| end > u64::from(extent.start.0))
    }

    pub(super) fn insert(&mut self, extent: Extent) {
        if extent.count == 0 {
            return;
        }
        let (mut start, mut end) = (u64::from(extent.start.0), extent.end());
        while let Some((&from, &to)) = self
            .runs
            .range(..=end)
            .next_back()
            .filter(|(_, to)| **to >= start)
        {
            self.runs.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.runs.insert(start, end);
    }

    /// Returns the runs in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().map(|(&start, &end)| (start, end))
    }

    /// Allocates `count` free blocks of a volume of `total`: one run if it fits, otherwise at most
    /// eight, the largest first. Lengths of free runs are rounded down to multiples of `unit`.
    pub(super) fn allocate(&mut self, count: u32, unit: u32, total: u32) -> Result<Vec<Extent>> {
        let mut free = Vec::new();
        let mut at = 0;
        for (start, end) in self.runs().chain([(total.into(), total.into())]) {
            let room = (start.saturating_sub(at) / u64::from(unit)) * u64::from(unit);
            if room > 0 {
                free.push(Extent {
                    start: AllocBlock(narrow(at)),
                    count: narrow(room),
                });
            }
            at = end;
        }
        let fits = free
            .iter()
            .copied()
            .filter(|run| run.count >= count)
            .min_by_key(|run| run.count);
        let mut found = match fits {
            Some(run) => vec![Extent { count, ..run }],
            None => Vec::new(),
        };
        free.sort_by_key(|run| std::cmp::Reverse(run.count));
        let mut left = if fits.is_some() { 0 } else { count };
        for run in free.into_iter().take(EXTENTS_PER_RECORD) {
            if left == 0 {
                break;
            }
            let taken = run.count.min(left);
            found.push(Extent {
                count: taken,
                ..run
            });
            left -= taken;
        }
        if left > 0 {
            let message = format!(
                "not enough room for the rebuilt structures: {count} free blocks in at most \
                 {EXTENTS_PER_RECORD} runs are required"
            );
            return Err(no_room(message));
        }
        found.iter().for_each(|&extent| self.insert(extent));
        Ok(found)
    }
}

/// Contents to be copied to other blocks.
#[derive(Debug)]
pub(super) struct ContentCopy {
    pub(super) from: Vec<Extent>,
    pub(super) to: Vec<Extent>,
}

/// File number and type of a fork.
type ForkKey = (u32, u8);

/// The records of the overflow tree, by fork.
#[derive(Debug, Default)]
pub(super) struct OverflowRecords {
    records: HashMap<ForkKey, BTreeMap<u32, ExtentsRaw>>,
    /// Extents of the bad-block file.
    pub(super) bad: Vec<Extent>,
}

impl OverflowRecords {
    pub(super) fn read(records: &[SalvagedRecord]) -> Self {
        let mut more = Self::default();
        for record in records {
            let Ok((record, _)) = ExtentRecordRaw::read_from_prefix(&record.bytes()) else {
                continue;
            };
            let file = record.key.file_id.get();
            if file == Cnid::BAD_BLOCKS.0 {
                more.bad.extend(extents_of(&record.extents));
            } else {
                let fork = more
                    .records
                    .entry((file, record.key.fork_type))
                    .or_default();
                fork.insert(record.key.start_block.get(), record.extents);
            }
        }
        more
    }

    /// Returns the numbers of the files that records exist for.
    pub(super) fn files(&self) -> impl Iterator<Item = u32> + '_ {
        self.records.keys().map(|&(file, _)| file)
    }

    /// Returns the extents in all records, whether or not they belong to a fork.
    pub(super) fn all_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let records = self.records.values().flat_map(BTreeMap::values);
        records.flat_map(extents_of)
    }

    /// Returns the extents of a fork from block `from` of it on, with the block that each begins at.
    fn extents_from(&self, name: ForkKey, from: u32) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let records = self.records.get(&name).into_iter();
        records
            .flat_map(move |records| records.range(from..))
            .flat_map(|(&start, extents)| {
                let mut at = u64::from(start);
                extents_of(extents).map(move |extent| {
                    let begin = at;
                    at += u64::from(extent.count);
                    (begin, extent)
                })
            })
    }

    /// Returns the extents of a fork up to the first invalid one, limited to the larger of its
    /// number of blocks and its size.
    fn extents(&self, fork: &ForkRaw, name: ForkKey, header: &VolumeHeader) -> Vec<Extent> {
        let total = header.total_blocks;
        let size = fork.logical_size.get().div_ceil(header.block_size.into());
        // A fork counts its blocks in 32 bits; extents that overlap could add up to more.
        let wanted = u64::from(fork.total_blocks.get())
            .max(size)
            .min(u32::MAX.into());
        let mut found: Vec<Extent> = Vec::new();
        let mut blocks = 0_u64;
        let mut record = Some(&fork.extents);
        while let Some(extents) = record {
            for extent in extents_of(extents) {
                if extent.end() > u64::from(total) || blocks >= wanted {
                    return found;
                }
                let count = narrow(u64::from(extent.count).min(wanted - blocks));
                found.push(Extent { count, ..extent });
                blocks += u64::from(count);
            }
            let next = u32::try_from(blocks).ok().filter(|_| blocks < wanted);
            record = next.and_then(|next| self.records.get(&name)?.get(&next));
            if extents
                .first()
                .is_none_or(|first| first.block_count.get() == 0)
            {
                return found;
            }
        }
        found
    }
}

/// The repaired forks.
#[derive(Debug, Default)]
pub(super) struct RepairedForks {
    pub(super) taken: UsedBlocks,
    /// Blocks that will be free, but hold data that is needed after a crash or still has to be
    /// copied.
    pub(super) reserved: Vec<Extent>,
    pub(super) copies: Vec<ContentCopy>,
    /// Forks whose contents must be copied, processed when all blocks that stay in place are known.
    moving: Vec<(ForkKey, Vec<Extent>)>,
    /// Serial numbers of the files of which a fork was moved, and its former place.
    pub(super) moved: Vec<(u32, Vec<Extent>)>,
    /// Forks that end before blocks which the overflow tree has for them: serial number of the file,
    /// key, and number of blocks.
    short: Vec<(u32, ForkKey, u32)>,
    /// Those of which the blocks are still there: serial number of the file, type of the fork, and its
    /// length in blocks.
    pub(super) longer: Vec<(u32, u8, u64)>,
    /// The overflow tree, in key order.
    pub(super) overflow: BTreeMap<(u32, u8, u32), ExtentsRaw>,
}

impl RepairedForks {
    /// Cuts forks to the contents of their extents and claims their blocks. Forks with blocks that
    /// are already in use are copied elsewhere, within `total_blocks`.
    pub(super) fn objects(
        &mut self,
        objects: &mut AllObjects,
        more: &OverflowRecords,
        header: &VolumeHeader,
        total_blocks: u32,
        steps: &mut Steps,
    ) -> Result<()> {
        for &extent in &more.bad {
            if extent.end() <= u64::from(header.total_blocks) {
                self.taken.insert(extent);
            }
        }
        // The journal is found by its location, so it stays in place; then lower file numbers take
        // precedence, and the file with the higher number is moved.
        let mut order: Vec<usize> = (0..objects.all.len()).collect();
        let is_journal = |at: usize| {
            objects.all[at]
                .file()
                .is_some_and(|file| file.kind() == JOURNAL_TYPE)
        };
        order.sort_by_cached_key(|&at| (!is_journal(at), objects.all[at].id()));
        for at in order {
            let object = &mut objects.all[at];
            let (id, serial) = (object.id(), object.serial);
            object.edit_file(|file| {
                for (kind, fork) in [
                    (fork_type::DATA, &mut file.data_fork),
                    (fork_type::RESOURCE, &mut file.resource_fork),
                ] {
                    self.fork(fork, (id, kind), more, header, serial, steps);
                }
            });
        }
        self.place_moved(objects, total_blocks)
    }

    /// Cuts a fork to the contents of its extents.
    fn fork(
        &mut self,
        fork: &mut ForkRaw,
        name: ForkKey,
        more: &OverflowRecords,
        header: &VolumeHeader,
        serial: u32,
        steps: &mut Steps,
    ) {
        let extents = more.extents(fork, name, header);
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        let capacity = blocks * u64::from(header.block_size);
        if blocks != u64::from(fork.total_blocks.get()) || fork.logical_size.get() > capacity {
            steps.on("truncate files to the blocks that they still have", serial);
            fork.total_blocks = narrow::<u32>(blocks).into();
            fork.logical_size = fork.logical_size.get().min(capacity).into();
        }
        // The record of a file may be of an earlier state.
        let blocks = narrow::<u32>(blocks);
        if more.extents_from(name, blocks).next().is_some() {
            self.short.push((serial, name, blocks));
        }
        let twice = extents.iter().enumerate().any(|(at, &extent)| {
            self.taken.overlaps(extent)
                || extents[..at].iter().any(|before| {
                    before.end() > u64::from(extent.start.0)
                        && extent.end() > u64::from(before.start.0)
                })
        });
        if twice {
            steps.on("copy files that share blocks with others", serial);
            self.moved.push((serial, extents.clone()));
            self.moving.push((name, extents));
        } else {
            extents.iter().for_each(|&extent| self.taken.insert(extent));
            self.write_down(fork, name, &extents);
        }
    }

    /// Finds the files of which a fork was longer than its record states: blocks that the overflow
    /// tree has for it are marked used, and nothing else states them.
    pub(super) fn find_longer(
        &mut self,
        more: &OverflowRecords,
        is_used: impl Fn(Extent) -> Result<bool>,
    ) -> Result<()> {
        for &(serial, name, blocks) in &self.short {
            let mut len = None;
            for (start, extent) in more.extents_from(name, blocks) {
                if !self.taken.overlaps(extent) && is_used(extent)? {
                    len = len.max(Some(start + u64::from(extent.count)));
                }
            }
            self.longer.extend(len.map(|len| (serial, name.1, len)));
        }
        Ok(())
    }

    /// Allocates blocks for the forks to be moved, after all others have claimed theirs.
    fn place_moved(&mut self, objects: &mut AllObjects, total_blocks: u32) -> Result<()> {
        let moving = std::mem::take(&mut self.moving);
        // No copy may overwrite the source of another.
        self.reserved
            .extend(moving.iter().flat_map(|(_, from)| from));
        let places: HashMap<u32, usize> = objects
            .all
            .iter()
            .enumerate()
            .map(|(at, object)| (object.id(), at))
            .collect();
        let mut avoid = self.taken.clone();
        self.reserved
            .iter()
            .for_each(|&extent| avoid.insert(extent));
        for ((id, kind), from) in moving {
            let blocks = from.iter().map(|extent| extent.count).sum();
            let to = avoid.allocate(blocks, 1, total_blocks)?;
            to.iter().for_each(|&extent| self.taken.insert(extent));
            let Some(object) = places.get(&id).map(|&at| &mut objects.all[at]) else {
                continue;
            };
            let is_file = object.edit_file(|file| {
                let fork = if kind == fork_type::DATA {
                    &mut file.data_fork
                } else {
                    &mut file.resource_fork
                };
                self.write_down(fork, (id, kind), &to);
            });
            if is_file.is_some() {
                self.copies.push(ContentCopy { from, to });
            }
        }
        Ok(())
    }

    /// Stores the extents of a fork in its record, and those that do not fit there in the overflow
    /// tree.
    pub(super) fn write_down(
        &mut self,
        fork: &mut ForkRaw,
        (id, kind): ForkKey,
        extents: &[Extent],
    ) {
        let mut start = 0;
        for (number, group) in extents.chunks(EXTENTS_PER_RECORD).enumerate() {
            if number == 0 {
                fork.extents = raw(group);
            } else {
                self.overflow.insert((id, kind, start), raw(group));
            }
            start += group.iter().map(|extent| extent.count).sum::<u32>();
        }
        if extents.is_empty() {
            fork.extents = ExtentsRaw::default();
        }
    }

    /// Returns the records of the overflow tree, in order.
    pub(super) fn overflow_records(&self, bad: &[Extent]) -> Vec<Box<[u8]>> {
        let mut start = 0;
        let mut all = self.overflow.clone();
        for group in bad.chunks(EXTENTS_PER_RECORD) {
            all.insert((Cnid::BAD_BLOCKS.0, fork_type::DATA, start), raw(group));
            start += group.iter().map(|extent| extent.count).sum::<u32>();
        }
        let record = |((file, kind, start), extents): ((u32, u8, u32), ExtentsRaw)| {
            let key_length = EXTENTS_KEY_LENGTH.into();
            let key = ExtentKeyRaw {
                key_length,
                fork_type: kind,
                pad: 0,
                file_id: file.into(),
                start_block: start.into(),
            };
            ExtentRecordRaw { key, extents }.as_bytes().into()
        };
        all.into_iter().map(record).collect()
    }
}

/// Encodes extents as a record.
pub(super) fn raw(extents: &[Extent]) -> ExtentsRaw {
    let mut record = ExtentsRaw::default();
    for (place, &extent) in record.iter_mut().zip(extents) {
        *place = ExtentRaw::from(extent);
    }
    record
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::hfsplus::layout::{Variant, VolumeHeaderRaw};

    #[test]
    fn overlapping_extents_are_cut_to_the_blocks_that_a_fork_can_count() {
        const HALF: u32 = 1 << 31;
        let header = VolumeHeader {
            variant: Variant::HfsPlus,
            block_size: 512,
            total_blocks: u32::MAX,
            free_blocks: 0,
            raw: VolumeHeaderRaw::new_zeroed(),
        };
        let run = Extent {
            start: AllocBlock(1),
            count: HALF,
        };
        let mut fork = ForkRaw {
            logical_size: u64::MAX.into(),
            total_blocks: HALF.into(),
            extents: raw(&[run; 3]),
            ..ForkRaw::default()
        };
        let mut forks = RepairedForks::default();
        let mut steps = Steps::default();
        let more = OverflowRecords::default();
        forks.fork(
            &mut fork,
            (16, fork_type::DATA),
            &more,
            &header,
            1,
            &mut steps,
        );
        assert_eq!(fork.total_blocks.get(), u32::MAX);
        assert_eq!(fork.logical_size.get(), u64::from(u32::MAX) * 512);
        let [(_, moving)] = &forks.moving[..] else {
            panic!("the fork shares blocks with itself");
        };
        let counts: Vec<_> = moving.iter().map(|extent| extent.count).collect();
        assert_eq!(counts, [HALF, HALF - 1]);
    }
}
