//! The free map of a volume: its allocation file (§5), read in pieces.

use std::ops::Range;
use std::sync::Arc;

use super::HfsPlus;
use super::extents::{ForkDevice, ForkSpace, Owner};
use super::layout::{
    Cnid, Extent, ExtentsRaw, HEADER_OFFSET, VolumeHeader, VolumeHeaderRaw, fork_type,
};
use super::write::run_in;
use crate::free::{FreeMap, free_blocks};
use bandsaw_core::device::{BlockDevice, ExtentKind};
use bandsaw_core::size::narrow;
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "hfs+ bitmap";
/// Bytes of the bitmap that are cached: half a million blocks.
const PIECE: u64 = 64 << 10;

/// The free blocks of a volume. Positions are byte offsets of the device that the volume was opened
/// on, including a wrapper.
#[derive(Debug)]
pub struct HfsPlusFree {
    file: ForkDevice,
    /// Offset of the volume's first block, in bytes.
    start: u64,
    block_size: u64,
    /// Number of blocks of the volume.
    total: u32,
    /// The blocks that may be free: all but those of the headers.
    blocks: Range<u32>,
    in_order: bool,
    kept: Mutex<BitmapPart>,
}

/// A part of the bitmap in memory.
#[derive(Debug, Default)]
struct BitmapPart {
    /// Offset of the first byte in the bitmap.
    start: u32,
    bytes: Vec<u8>,
}

impl HfsPlusFree {
    /// Opens the free map of the volume that takes all of `device`, with its journal replayed in
    /// memory.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        HfsPlus::open(device)?.free_map()
    }
}

impl HfsPlus {
    /// Returns the map of the volume's free space.
    pub fn free_map(&self) -> Result<HfsPlusFree> {
        let more = &mut |block| self.overflow.get(Cnid::ALLOCATION, fork_type::DATA, block);
        let in_order = self.clean && self.problems.is_empty();
        HfsPlusFree::of(&self.space, &self.header, self.start, in_order, more)
    }

    /// Returns the map of a volume whose trees cannot be read, if its header has all extents of the map.
    pub(super) fn bitmap_of(
        space: &ForkSpace,
        header: &VolumeHeader,
        start: u64,
    ) -> Result<HfsPlusFree> {
        HfsPlusFree::of(space, header, start, false, &mut |_| Ok(None))
    }
}

impl HfsPlusFree {
    fn of(
        space: &ForkSpace,
        header: &VolumeHeader,
        start: u64,
        in_order: bool,
        more: &mut dyn FnMut(u32) -> Result<Option<ExtentsRaw>>,
    ) -> Result<Self> {
        let block_size = u64::from(header.block_size);
        let owner = Owner::Special("allocation file");
        let file = space.fork(&header.raw.allocation_file, &owner, more)?;
        let needed = u64::from(header.total_blocks).div_ceil(8);
        if file.len() < needed {
            let message = format!(
                "the bitmap needs {needed} bytes for {} blocks, but has {}",
                header.total_blocks,
                file.len()
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message).named(owner.to_string()));
        }
        let head = (HEADER_OFFSET + size_of::<VolumeHeaderRaw>() as u64).div_ceil(block_size);
        // A valid bitmap marks the blocks of the headers as used as well.
        let last = space.device.info().len.saturating_sub(HEADER_OFFSET) / block_size;
        let end =
            u32::try_from(last).map_or(header.total_blocks, |last| last.min(header.total_blocks));
        Ok(Self {
            file,
            start,
            block_size,
            total: header.total_blocks,
            blocks: u32::try_from(head).unwrap_or(end).min(end)..end,
            in_order,
            kept: Mutex::default(),
        })
    }
}

impl HfsPlusFree {
    /// Returns true if `block` is used, and the end of the known run of equal blocks.
    fn run_at(&self, block: u32) -> Result<(bool, u32)> {
        let byte = block / 8;
        let mut kept = self.kept.lock();
        let within = byte >= kept.start && u64::from(byte - kept.start) < kept.bytes.len() as u64;
        if !within {
            let needed = u64::from(self.blocks.end).div_ceil(8);
            let extent = self.file.extent_at(byte.into()..needed)?;
            if extent.kind != ExtentKind::Data {
                // A hole has no bits set: on a large volume that is nearly all of the bitmap.
                let until = (u64::from(byte) + extent.len)
                    .saturating_mul(8)
                    .min(self.blocks.end.into());
                return Ok((false, u32::try_from(until).unwrap_or(self.blocks.end)));
            }
            kept.bytes.clear();
            kept.bytes.resize(extent.len.min(PIECE) as usize, 0);
            kept.start = byte;
            let read = self.file.read_at(byte.into(), &mut kept.bytes);
            if read.is_err() {
                kept.bytes.clear();
            }
            read?;
        }
        let known = (u64::from(kept.start) + kept.bytes.len() as u64) * 8;
        let end = u32::try_from(known).map_or(self.blocks.end, |known| known.min(self.blocks.end));
        Ok(run_in(&kept.bytes, 8 * kept.start, block, end))
    }

    /// Returns the number of blocks of the volume that are never free, regardless of the map.
    pub(super) fn left_out(&self) -> u64 {
        u64::from(self.total - (self.blocks.end - self.blocks.start))
    }

    /// Returns the byte range of `extent`, as the map counts it.
    pub(super) fn bytes(&self, extent: Extent) -> Range<u64> {
        let start = self.offset(extent.start.0.into());
        start..start.saturating_add(u64::from(extent.count) * self.block_size)
    }

    fn offset(&self, block: u64) -> u64 {
        self.start + block * self.block_size
    }
}

impl FreeMap for HfsPlusFree {
    fn is_in_order(&self) -> bool {
        self.in_order
    }

    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let Range { start, end } = self.blocks;
        let first = (at.saturating_sub(self.start) / self.block_size).max(start.into());
        let found = free_blocks(first, end.into(), |block| {
            let (used, until) = self.run_at(narrow(block))?; // before `end`, which has 32 bits
            Ok((used, until.into()))
        })?;
        Ok(found.map(|run| self.offset(run.start).max(at)..self.offset(run.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hfsplus::build::{Options, Plan, set_bits};
    use crate::hfsplus::check::check;
    use crate::hfsplus::{HfsPlusMut, WriteOptions};
    use crate::source::Tree;
    use crate::{
        FileSystem, FileSystemMut, FileSystemMutExt, FreeMapExt, NewKind, NewNode, Timestamp,
    };
    use bandsaw_core::device::{BlockDeviceExt, Memory};
    use bandsaw_core::progress::Silent;
    use bandsaw_testing::Random;

    fn volume(len: usize, block_size: u32) -> Arc<Memory> {
        let created = Timestamp::from_seconds(1_700_000_000);
        let options = Options {
            name: "Free".into(),
            case_sensitive: false,
            journaled: false,
            block_size: Some(block_size),
            created,
            latest: None,
            opens: false,
            identifier: 9,
        };
        let device = Arc::new(Memory::zeros(len));
        Plan::new(Tree::empty(created), options)
            .unwrap()
            .build(&*device, &Silent)
            .unwrap();
        device
    }

    /// Reads the bitmap bit by bit.
    fn bits(volume: &HfsPlus) -> Vec<bool> {
        let place = volume.header.raw.allocation_file.extents[0]
            .start_block
            .get();
        let at = u64::from(place) * u64::from(volume.header.block_size);
        let bytes = volume
            .space
            .device
            .read_vec(at, volume.header.total_blocks.div_ceil(8) as usize)
            .unwrap();
        (0..volume.header.total_blocks as usize)
            .map(|block| bytes[block / 8] & (0x80 >> (block % 8)) != 0)
            .collect()
    }

    #[test]
    fn a_new_volume_is_free_where_nothing_is() {
        for (len, block_size) in [
            (512 << 10, 512),
            (5 << 20, 4096),
            ((5 << 20) + 3 * 512, 4096),
            (9 << 20, 65536),
        ] {
            let device = volume(len, block_size);
            assert_eq!(check(device.clone(), &Silent).unwrap().len(), 0);
            let volume = HfsPlus::open(device).unwrap();
            assert!(volume.free_map().unwrap().is_in_order());
            assert_eq!(
                free(&volume),
                volume.volume().free,
                "{len} bytes in blocks of {block_size}"
            );
        }
    }

    #[test]
    fn runs_are_those_of_the_bits() {
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let block_size = 512 << random.within(0..3);
            let len = random.within(512 << 10..4 << 20) as usize / 512 * 512;
            let device = volume(len, block_size);
            let bitmap = HfsPlus::open(device.clone())
                .unwrap()
                .header
                .raw
                .allocation_file;
            let at = u64::from(bitmap.extents[0].start_block.get()) * u64::from(block_size);
            let mut bytes = vec![0; bitmap.logical_size.get() as usize];
            for _ in 0..random.within(0..40) {
                let start = random.within(0..8 * bytes.len() as u64) as usize;
                let end = (start + random.within(0..200) as usize).min(8 * bytes.len());
                set_bits(&mut bytes, start..end);
            }
            device.write_at(at, &bytes).unwrap();

            let volume = HfsPlus::open(device).unwrap();
            let (map, used) = (volume.free_map().unwrap(), bits(&volume));
            let block = u64::from(block_size);
            let free = |byte: u64| {
                let (start, end) = (byte / block * block, byte / block * block + block);
                start >= 1536 && end <= len as u64 - 1024 && !used[(byte / block) as usize]
            };
            let mut reached = 0;
            for run in map.free_runs(0..u64::MAX) {
                let run = run.unwrap();
                assert!(
                    (reached..run.start).step_by(512).all(|byte| !free(byte)),
                    "seed {seed}: {run:?}"
                );
                assert!(run.clone().step_by(512).all(&free), "seed {seed}: {run:?}");
                assert!(
                    reached == 0 || run.start > reached,
                    "seed {seed}: {run:?} goes on where the last ended"
                );
                reached = run.end;
            }
            assert!(
                (reached..u64::from(volume.header.total_blocks) * block)
                    .step_by(512)
                    .all(|byte| !free(byte))
            );
            // Search from random positions.
            for _ in 0..100 {
                let at = random.within(0..len as u64 + 5000);
                let found = map.free_from(at).unwrap();
                let end = u64::from(volume.header.total_blocks) * block;
                let first = (at..end.max(at)).find(|&byte| free(byte));
                assert_eq!(
                    found.as_ref().map(|run| run.start),
                    first,
                    "seed {seed}, from {at}"
                );
                assert!(found.is_none_or(|run| run.end == end || !free(run.end)));
            }
        }
    }

    fn free(volume: &HfsPlus) -> u64 {
        let map = volume.free_map().unwrap();
        map.free_runs(0..u64::MAX)
            .map(|run| run.unwrap())
            .map(|run| run.end - run.start)
            .sum()
    }

    #[test]
    fn changes_in_a_journal_count() {
        let device = volume(8 << 20, 4096);
        let before = free(&HfsPlus::open(device.clone()).unwrap());
        let changed = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
        changed.enable_journal(None).unwrap();
        let journal = before - free(&HfsPlus::open(device.clone()).unwrap());
        assert!(journal >= 512 << 10);
        let file = changed
            .create(changed.root(), "file", &NewNode::new(NewKind::File))
            .unwrap();
        changed.write_all(file, &[1; 300_000]).unwrap();
        changed.sync().unwrap();
        // The state after a crash: the last transaction is in the journal, and perhaps in place.
        let crashed = HfsPlus::open(Arc::new(Memory::from(device.to_vec()))).unwrap();
        assert!(!crashed.free_map().unwrap().is_in_order());
        assert_eq!(free(&crashed), before - journal - 303_104);
        assert_eq!(free(&crashed), crashed.volume().free);
    }

    #[test]
    fn behind_a_wrapper_positions_are_those_of_the_whole() {
        let inner = volume(1 << 20, 4096);
        let expected: Vec<_> = HfsPlusFree::open(inner.clone())
            .unwrap()
            .free_runs(0..u64::MAX)
            .map(|run| run.unwrap())
            .collect();
        let mut bytes = vec![0; 8192];
        bytes[1024..1026].copy_from_slice(b"BD");
        bytes[1024 + 0x14..][..4].copy_from_slice(&4096_u32.to_be_bytes());
        bytes[1024 + 0x1c..][..2].copy_from_slice(&8_u16.to_be_bytes());
        bytes[1024 + 0x7c..][..6].copy_from_slice(&[b'H', b'+', 0, 1, 1, 0]);
        bytes.extend(inner.to_vec());
        bytes.extend([0; 4096]);
        let map = HfsPlusFree::open(Arc::new(Memory::from(bytes))).unwrap();
        let found: Vec<_> = map
            .free_runs(0..u64::MAX)
            .map(|run| run.unwrap())
            .map(|run| run.start - 8192..run.end - 8192)
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_volume_out_of_order_says_so_and_a_short_map_is_refused() {
        let device = volume(1 << 20, 4096);
        let mut header = HfsPlus::open(device.clone()).unwrap().header.raw;
        header.attributes = 0.into();
        device
            .write_at(HEADER_OFFSET, zerocopy::IntoBytes::as_bytes(&header))
            .unwrap();
        assert!(!HfsPlusFree::open(device.clone()).unwrap().is_in_order());
        header.allocation_file.logical_size = 31.into();
        device
            .write_at(HEADER_OFFSET, zerocopy::IntoBytes::as_bytes(&header))
            .unwrap();
        let error = HfsPlusFree::open(device).unwrap_err();
        assert!(
            error.kind() == Kind::Corrupt && error.to_string().contains("needs 32 bytes"),
            "{error}"
        );
    }
}
