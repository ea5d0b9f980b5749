//! The free blocks of a container, from its space manager (§14).

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::layout::{
    BlockSize, CHUNK_COUNT_MASK, ChunkInfoRaw, ChunkRaw, ObjectRaw, POOL_SCATTERED, Paddr,
    RING_SCATTERED, SpacemanRaw, blocks_per_chunk, chunks_per_cib, cibs_per_cab, object_type,
    space_device, verify,
};
use crate::bitmap::{count_clear, run_at};
use crate::free::{FreeMap, free_blocks};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::to_usize;
use bandsaw_core::sync::Mutex;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs space manager";

/// The free map of a container: the bitmaps of its space manager, which are read on demand. Blocks
/// in a free queue count as used: older checkpoints still need them.
#[derive(Debug)]
pub struct ApfsFree {
    device: Arc<dyn BlockDevice>,
    block_size: BlockSize,
    blocks: u64,
    cibs: u64,
    cabs: u64,
    /// Addresses of all CABs, or of all CIBs if there are no CABs.
    addresses: Vec<u64>,
    in_order: bool,
    kept: Mutex<BlockCache>,
}

/// The blocks read last, by kind.
#[derive(Debug, Default)]
struct BlockCache {
    cab: Option<(u64, Vec<u8>)>,
    cib: Option<(u64, Vec<u8>)>,
    bitmap: Option<(u64, Vec<u8>)>,
}

/// The record of a chunk.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    blocks: u64,
    free: u64,
    bitmap: Option<Paddr>,
}

impl ApfsFree {
    /// Opens the map of a container of `blocks` blocks. `spaceman` are all bytes of the space
    /// manager, which has been verified. `in_order` is the value that [`FreeMap::is_in_order`]
    /// returns.
    ///
    /// The counts of all chunks are read and compared with the total. If this fails, the map must
    /// not be used.
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        blocks: u64,
        spaceman: &[u8],
        in_order: bool,
    ) -> Result<Self> {
        let (head, _) =
            SpacemanRaw::ref_from_prefix(spaceman).map_err(|_| corrupt("is truncated"))?;
        check_head(head, block_size, blocks)?;
        let device_head = &head.devices[space_device::MAIN];
        let (cibs, cabs) = (
            u64::from(device_head.cibs.get()),
            u64::from(device_head.cabs.get()),
        );
        let listed = if cabs > 0 { cabs } else { cibs };
        let start = usize::try_from(device_head.addresses.get()).ok();
        // The list is within the object, so its length is bounded.
        let list = start
            .and_then(|start| spaceman.get(start..))
            .zip(usize::try_from(listed).ok());
        let list =
            list.and_then(|(bytes, count)| <[U64]>::ref_from_prefix_with_elems(bytes, count).ok());
        let Some((list, _)) = list else {
            return Err(corrupt(format!(
                "records {listed} addresses, which do not fit in its block"
            )));
        };
        let addresses = list.iter().map(|address| address.get()).collect();
        let map = Self {
            device,
            block_size,
            blocks,
            cibs,
            cabs,
            addresses,
            in_order,
            kept: Mutex::default(),
        };
        map.check_sum(device_head.free.get())?;
        Ok(map)
    }

    fn per_chunk(&self) -> u64 {
        blocks_per_chunk(self.block_size).into()
    }

    fn chunks(&self) -> u64 {
        self.blocks.div_ceil(self.per_chunk())
    }

    fn check_sum(&self, expected: u64) -> Result<()> {
        let mut kept = self.kept.lock();
        let mut free = 0;
        for chunk in 0..self.chunks() {
            // No overflow: each is at most 2^19, and there are less than 2^49 chunks.
            free += self.chunk(&mut kept, chunk)?.free;
        }
        if free != expected {
            return Err(corrupt(format!(
                "records {expected} free blocks, but its chunks have {free}"
            )));
        }
        Ok(())
    }

    /// Returns the record of chunk `index`, which must exist.
    fn chunk(&self, kept: &mut BlockCache, index: u64) -> Result<Chunk> {
        let per_cib = u64::from(chunks_per_cib(self.block_size));
        let (cib, place) = (index / per_cib, index % per_cib);
        if kept.cib.as_ref().is_none_or(|(number, _)| *number != cib) {
            let address = self.cib_address(kept, cib)?;
            let count = (self.chunks() - cib * per_cib).min(per_cib);
            kept.cib = Some((
                cib,
                self.info_block(object_type::CHUNK_INFO, address, cib, count)?,
            ));
        }
        let raw = kept.cib.as_ref().and_then(|(_, block)| {
            let at = size_of::<ChunkInfoRaw>() + to_usize(place) * size_of::<ChunkRaw>();
            Some(ChunkRaw::ref_from_prefix(block.get(at..)?).ok()?.0)
        });
        let Some(raw) = raw else {
            return Err(corrupt(format!("no record of chunk {index}")));
        };
        let first = index * self.per_chunk();
        let blocks = (self.blocks - first).min(self.per_chunk());
        let count = |raw: u32| u64::from(raw & CHUNK_COUNT_MASK);
        let (found, free) = (count(raw.blocks.get()), count(raw.free.get()));
        let bitmap = Some(Paddr(raw.bitmap.get())).filter(|place| place.0 != 0);
        if raw.first.get() != first
            || found != blocks
            || free > blocks
            || (bitmap.is_none() && free != blocks)
        {
            let message = format!(
                "the record of chunk {index} has block {} as its first, {found} blocks and {free} \
                 free ones; expected {blocks} blocks from block {first}",
                raw.first.get()
            );
            return Err(corrupt(message));
        }
        Ok(Chunk {
            blocks,
            free,
            bitmap,
        })
    }

    fn cib_address(&self, kept: &mut BlockCache, cib: u64) -> Result<u64> {
        let missing = || {
            corrupt(format!(
                "the address of block {cib} of chunk records is missing"
            ))
        };
        if self.cabs == 0 {
            return self
                .addresses
                .get(to_usize(cib))
                .copied()
                .ok_or_else(missing);
        }
        let per_cab = u64::from(cibs_per_cab(self.block_size));
        let (cab, place) = (cib / per_cab, cib % per_cab);
        if kept.cab.as_ref().is_none_or(|(number, _)| *number != cab) {
            let address = self
                .addresses
                .get(to_usize(cab))
                .copied()
                .ok_or_else(missing)?;
            let count = self.cibs.saturating_sub(cab * per_cab).min(per_cab);
            kept.cab = Some((
                cab,
                self.info_block(object_type::CHUNK_INFO_ADDRESSES, address, cab, count)?,
            ));
        }
        let address = kept.cab.as_ref().and_then(|(_, block)| {
            let at = size_of::<ChunkInfoRaw>() + to_usize(place) * size_of::<U64>();
            Some(U64::ref_from_prefix(block.get(at..)?).ok()?.0.get())
        });
        address.ok_or_else(missing)
    }

    /// Reads a CIB or CAB and verifies it.
    fn info_block(&self, kind: u32, address: u64, index: u64, count: u64) -> Result<Vec<u8>> {
        let block = self.read(address)?;
        let wrong = |message: String| corrupt(format!("object in block {address}: {message}"));
        let Ok((head, _)) = ChunkInfoRaw::ref_from_prefix(&block) else {
            return Err(wrong("is truncated".into()));
        };
        if !verify(&block) {
            return Err(wrong("checksum mismatch".into()));
        }
        let ObjectRaw { oid, .. } = head.object;
        if head.object.object_type() != kind || oid.get() != address {
            let found = head.object.object_type();
            return Err(wrong(format!(
                "expected type {kind:#x}, found type {found:#x} with number {}",
                oid.get()
            )));
        }
        if u64::from(head.index.get()) != index || u64::from(head.count.get()) != count {
            let found = (head.index.get(), head.count.get());
            return Err(wrong(format!(
                "expected the block of chunk records with number {index} and {count} entries, \
                 found number {} with {} entries",
                found.0, found.1
            )));
        }
        Ok(block)
    }

    fn read(&self, address: u64) -> Result<Vec<u8>> {
        let offset = self
            .block_size
            .offset(Paddr(address))
            .filter(|_| address > 0 && address < self.blocks);
        let Some(offset) = offset else {
            return Err(corrupt(format!(
                "block {address} is past the end of the container ({} blocks)",
                self.blocks
            )));
        };
        let mut block = vec![0; self.block_size.bytes()];
        self.device.read_at(offset, &mut block)?;
        Ok(block)
    }

    /// Returns true if `block` is used, and the first block after it for which that may differ.
    fn run_at(&self, block: u64) -> Result<(bool, u64)> {
        let mut kept = self.kept.lock();
        let index = block / self.per_chunk();
        let chunk = self.chunk(&mut kept, index)?;
        let first = index * self.per_chunk();
        let Some(place) = chunk.bitmap.filter(|_| chunk.free > 0) else {
            return Ok((chunk.bitmap.is_some(), first + chunk.blocks));
        };
        if kept
            .bitmap
            .as_ref()
            .is_none_or(|(number, _)| *number != index)
        {
            kept.bitmap = Some((index, self.bitmap(index, place, &chunk)?));
        }
        let bits = kept.bitmap.as_ref().map_or(&[][..], |(_, bits)| bits);
        // The bitmap of a chunk is one block.
        let (used, until) = run_at(bits, to_usize(block - first), to_usize(chunk.blocks));
        Ok((used, first + until as u64))
    }

    fn bitmap(&self, index: u64, place: Paddr, chunk: &Chunk) -> Result<Vec<u8>> {
        let bits = self.read(place.0)?;
        let (clear, all) = (
            count_clear(&bits, to_usize(chunk.blocks)),
            count_clear(&bits, to_usize(self.per_chunk())),
        );
        let past = self.per_chunk() - chunk.blocks;
        if clear as u64 != chunk.free || (all - clear) as u64 != past {
            let message = format!(
                "the bitmap of chunk {index} in block {place} has {clear} free blocks, expected {}",
                chunk.free
            );
            return Err(corrupt(message));
        }
        Ok(bits)
    }

    /// Returns the offset of a block in bytes; `u64::MAX` if it overflows.
    fn offset(&self, block: u64) -> u64 {
        self.block_size.offset(Paddr(block)).unwrap_or(u64::MAX)
    }
}

fn corrupt(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}

/// Checks that the head is consistent with a container of `blocks` blocks. All later limits follow
/// from those fields.
pub(super) fn check_head(head: &SpacemanRaw, block_size: BlockSize, blocks: u64) -> Result<()> {
    if head.devices[space_device::TIER_2].blocks.get() > 0 {
        return Err(Error::unsupported(
            LAYER,
            "unsupported: second device (Fusion)",
        ));
    }
    if head.pool_blocks.get() & POOL_SCATTERED != 0 || head.ring_blocks.get() & RING_SCATTERED != 0
    {
        return Err(Error::unsupported(
            LAYER,
            "unsupported: the pool is not contiguous",
        ));
    }
    let main = &head.devices[space_device::MAIN];
    let chunks = blocks.div_ceil(blocks_per_chunk(block_size).into());
    let cibs = chunks.div_ceil(chunks_per_cib(block_size).into());
    let cabs = Some(cibs.div_ceil(cibs_per_cab(block_size).into()))
        .filter(|&cabs| cabs > 1)
        .unwrap_or(0);
    for (what, found, expected) in [
        (
            "bytes in a block",
            head.block_size.get().into(),
            block_size.get().into(),
        ),
        (
            "blocks in a chunk",
            head.blocks_per_chunk.get().into(),
            blocks_per_chunk(block_size).into(),
        ),
        (
            "chunks in a block of descriptions",
            head.chunks_per_cib.get().into(),
            chunks_per_cib(block_size).into(),
        ),
        (
            "addresses in a block",
            head.cibs_per_cab.get().into(),
            cibs_per_cab(block_size).into(),
        ),
        ("blocks", main.blocks.get(), blocks),
        ("chunks", main.chunks.get(), chunks),
        ("blocks of descriptions", main.cibs.get().into(), cibs),
        ("blocks of addresses", main.cabs.get().into(), cabs),
    ] {
        if found != expected {
            return Err(corrupt(format!(
                "records {found} {what}, expected {expected}"
            )));
        }
    }
    Ok(())
}

impl FreeMap for ApfsFree {
    fn is_in_order(&self) -> bool {
        self.in_order
    }

    fn free_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let first = at / u64::from(self.block_size.get());
        let found = free_blocks(first, self.blocks, |block| self.run_at(block))?;
        Ok(found.map(|run| self.offset(run.start).max(at)..self.offset(run.end)))
    }
}

/// Returns the free map of a container in memory, with the given bytes of the space manager, for
/// fuzzing. Blocks that the map reads get valid checksums, as otherwise nothing behind the checksum
/// test would be reached.
#[cfg(feature = "testing")]
pub fn free_map_of(container: &[u8], spaceman: &[u8]) -> Result<ApfsFree> {
    use super::layout::{object_type::MASK, store_checksum};
    let size = BlockSize::DEFAULT;
    let mut bytes = container.to_vec();
    for block in bytes.chunks_exact_mut(size.bytes()) {
        let kind =
            ObjectRaw::read_from_prefix(block).map_or(0, |(object, _)| object.kind.get() & MASK);
        if matches!(
            kind,
            object_type::CHUNK_INFO | object_type::CHUNK_INFO_ADDRESSES
        ) {
            store_checksum(block);
        }
    }
    let blocks = container.len() as u64 / u64::from(size.get());
    ApfsFree::new(
        Arc::new(bandsaw_core::device::Memory::read_only(bytes)),
        size,
        blocks,
        spaceman,
        true,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FreeMapExt;
    use crate::apfs::check::sample::empty_container;
    use crate::apfs::layout::store_checksum;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    const SIZE: BlockSize = BlockSize::DEFAULT;

    /// Returns an empty container of `blocks` blocks, the bytes of its space manager, and its free
    /// bytes.
    fn container(blocks: u64) -> (Arc<Memory>, Vec<u8>, u64) {
        let (device, free) = empty_container(blocks as usize * 4096);
        // The first object of the data area, whose block is in the superblock.
        let data = device
            .read_array::<8>(0x78)
            .map(u64::from_le_bytes)
            .unwrap();
        let spaceman = device.read_vec(data * 4096, 4096).unwrap();
        (device, spaceman, free)
    }

    #[test]
    fn the_free_runs_are_what_the_builder_left() {
        for blocks in [256, 1014, 32767, 32769] {
            let (device, spaceman, free) = container(blocks);
            let map = ApfsFree::new(device, SIZE, blocks, &spaceman, true).unwrap();
            let runs: Vec<_> = map
                .free_runs(0..blocks * 4096)
                .map(Result::unwrap)
                .collect();
            assert_eq!(
                runs.iter().map(|run| run.end - run.start).sum::<u64>(),
                free
            );
            assert_eq!(
                runs.last().unwrap().end,
                blocks * 4096,
                "a run goes on into the next chunk"
            );
            assert_eq!(runs.len(), if blocks > 32768 { 2 } else { 1 });
            let inside = runs[0].start + 5000;
            assert_eq!(map.free_from(inside).unwrap(), Some(inside..runs[0].end));
            assert_eq!(map.free_from(blocks * 4096).unwrap(), None);
            assert_eq!(map.free_from(u64::MAX).unwrap(), None);
        }
    }

    #[test]
    fn inconsistent_counts_are_refused() {
        let (device, spaceman, _) = container(1014);
        let open =
            |spaceman: &[u8]| ApfsFree::new(device.clone(), SIZE, 1014, spaceman, true).map(drop);
        assert!(open(&spaceman).is_ok());
        // All counts of the head and of the main device, and the address of the list.
        for at in [
            0x20, 0x24, 0x28, 0x2C, 0x30, 0x38, 0x40, 0x44, 0x48, 0x50, 0x60,
        ] {
            for value in [u32::MAX, 0x7FFF_FFFF, 2] {
                let mut bad = spaceman.clone();
                bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
                assert!(open(&bad).is_err(), "{value:#x} at {at:#x}");
            }
        }
        for len in [0, 0x14F, 0x150, 0xA0F] {
            assert!(open(&spaceman[..len]).is_err());
        }
    }

    #[test]
    fn lying_descriptions_and_bitmaps_are_refused() {
        let (device, spaceman, _) = container(1014);
        let address = u64::from_le_bytes(spaceman[0xA08..0xA10].try_into().unwrap());
        let cib = device.read_vec(address * 4096, 4096).unwrap();
        let bitmap = u64::from_le_bytes(cib[0x40..0x48].try_into().unwrap());
        let open = || {
            ApfsFree::new(device.clone(), SIZE, 1014, &spaceman, true)
                .and_then(|map| map.free_from(0))
        };
        assert!(open().is_ok());
        for at in [0x08, 0x20, 0x24, 0x30, 0x38, 0x3C, 0x40] {
            let mut bad = cib.clone();
            bad[at] ^= 1;
            store_checksum(&mut bad);
            device.write_at(address * 4096, &bad).unwrap();
            assert_eq!(open().unwrap_err().kind(), Kind::Corrupt, "{at:#x}");
        }
        let mut unsealed = cib.clone();
        unsealed[100] ^= 1;
        device.write_at(address * 4096, &unsealed).unwrap();
        assert!(open().unwrap_err().message().contains("checksum"));
        device.write_at(address * 4096, &cib).unwrap();
        device.write_at(bitmap * 4096 + 4095, &[0x80]).unwrap();
        assert!(
            open().unwrap_err().message().contains("bitmap"),
            "a bit past the last block"
        );
    }
}
