//! The encrypted metadata of a group: a log of blocks, of which the newest of each object counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw_core::codec::Codec;
use bandsaw_core::crypt::decrypt_xts_unit;
use bandsaw_core::device::{BlockDevice, is_zero};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;
use zeroize::Zeroizing;

use super::LAYER;
use super::layout::{
    BLOCK, BLOCK_HEADER, BlockRaw, ContinuedRaw, FamilyRaw, VolumeRaw, kind, sound_block,
};
use super::property_list::{MAX_LEN, Value};

/// Maximum number of blocks of the log: 1 GiB.
const MAX_BLOCKS: u64 = 1 << 17;
/// Maximum number of objects that are kept: 8 MiB.
const MAX_OBJECTS: usize = 1024;
/// Blocks read at a time.
const BATCH: usize = 64;
/// The beginning of a block that macOS has erased.
const WIPED: &[u8; 8] = b"LVFwiped";

/// One of the copies of the metadata.
#[derive(Debug)]
pub(super) struct MetadataCopy {
    pub(super) device: Arc<dyn BlockDevice>,
    /// Offset in bytes.
    pub(super) start: u64,
    /// Key of the physical volume that holds the copy.
    pub(super) key: Zeroizing<[u8; 32]>,
}

/// The objects of a group.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    objects: BTreeMap<(u16, u64), MetadataBlock>,
    /// The highest transaction of a valid block.
    pub(super) newest: u64,
    /// Number of blocks that no copy holds intact.
    pub(super) damaged: u64,
}

/// The newest block of an object.
#[derive(Debug)]
struct MetadataBlock {
    transaction: u64,
    bytes: Box<[u8; BLOCK]>,
}

impl Metadata {
    /// Reads `count` blocks from the copies, of which each block is taken from one that holds it
    /// intact.
    pub(super) fn read(copies: &[MetadataCopy], count: u64) -> Result<Self> {
        if count > MAX_BLOCKS {
            let message = format!("{count} blocks of metadata, at most {MAX_BLOCKS}");
            return Err(Error::limit(LAYER, message));
        }
        for copy in copies {
            let len = count * BLOCK as u64;
            copy.device
                .info()
                .check(LAYER, copy.start, len)
                .map_err(|error| {
                    let message = "the metadata extends past the end of the physical volume";
                    Error::corrupt(LAYER, copy.start, message).caused_by(error)
                })?;
        }
        let mut found = Self::default();
        let mut batches: Vec<_> = copies.iter().map(|_| Vec::new()).collect();
        for first in (0..count).step_by(BATCH) {
            let blocks = BATCH.min(usize::try_from(count - first).unwrap_or(BATCH));
            for (copy, batch) in copies.iter().zip(&mut batches) {
                batch.resize(blocks * BLOCK, 0);
                copy.device
                    .read_at(copy.start + first * BLOCK as u64, batch)?;
            }
            for at in 0..blocks {
                let start = at * BLOCK;
                let each = copies.iter().zip(&batches).filter_map(|(copy, batch)| {
                    Some((copy, batch.get(start..)?.first_chunk::<BLOCK>()?))
                });
                found.add(first + at as u64, each)?;
            }
        }
        Ok(found)
    }

    /// Adds block `number`, as each of the copies holds it.
    fn add<'a>(
        &mut self,
        number: u64,
        copies: impl Iterator<Item = (&'a MetadataCopy, &'a [u8; BLOCK])>,
    ) -> Result<()> {
        let mut best: Option<(BlockRaw, Box<[u8; BLOCK]>)> = None;
        let mut is_damaged = false;
        for (copy, stored) in copies {
            if is_zero(stored) {
                continue;
            }
            let mut plain = Box::new(*stored);
            decrypt_xts_unit(&copy.key, number, &mut *plain);
            if plain.starts_with(WIPED) {
                continue;
            }
            match sound_block(&plain) {
                Some(header) if header.number == number => {
                    let is_newer = best
                        .as_ref()
                        .is_none_or(|(other, _)| other.transaction < header.transaction);
                    if is_newer {
                        best = Some((header, plain));
                    }
                }
                _ => is_damaged = true,
            }
        }
        let Some((header, bytes)) = best else {
            self.damaged += u64::from(is_damaged);
            return Ok(());
        };
        let transaction = header.transaction.get();
        self.newest = self.newest.max(transaction);
        let kind = header.kind.get();
        let is_used = matches!(
            kind,
            kind::FAMILY | kind::VOLUME | kind::CONTINUED | kind::MAP | kind::REGION
        );
        if !is_used {
            return Ok(());
        }
        let key = (kind, header.object.get());
        let is_newest = self
            .objects
            .get(&key)
            .is_none_or(|known| known.transaction <= transaction);
        if is_newest {
            self.objects
                .insert(key, MetadataBlock { transaction, bytes });
        }
        if self.objects.len() > MAX_OBJECTS {
            let message = format!("more than {MAX_OBJECTS} objects in the metadata");
            return Err(Error::limit(LAYER, message));
        }
        Ok(())
    }

    /// Returns the bytes of an object after the header of its block.
    pub(super) fn object(&self, kind: u16, object: u64) -> Option<&[u8]> {
        self.block(kind, object)?.get(BLOCK_HEADER..)
    }

    fn block(&self, kind: u16, object: u64) -> Option<&[u8; BLOCK]> {
        self.objects.get(&(kind, object)).map(|block| &*block.bytes)
    }

    /// Returns the numbers of all objects of a kind.
    pub(super) fn numbers(&self, kind: u16) -> impl Iterator<Item = u64> + '_ {
        let range = (kind, 0)..=(kind, u64::MAX);
        self.objects.range(range).map(|((_, object), _)| *object)
    }

    /// Returns a logical volume, and its property list.
    pub(super) fn volume(&self, object: u64) -> Result<Option<(VolumeRaw, Value)>> {
        let Some(block) = self.block(kind::VOLUME, object) else {
            return Ok(None);
        };
        let (raw, _) = VolumeRaw::read_from_prefix(&block[BLOCK_HEADER..])
            .map_err(|_| corrupt("the record of a logical volume is truncated"))?;
        let list = part(block, raw.list.get(), raw.list_len.get())?;
        Ok(Some((raw, Value::parse(&inflated(list, raw.len.get())?)?)))
    }

    /// Returns the property list of a family of logical volumes. `None`: it does not exist, or was
    /// erased.
    pub(super) fn family(&self, object: u64) -> Result<Option<Value>> {
        let Some(block) = self.block(kind::FAMILY, object) else {
            return Ok(None);
        };
        let (raw, _) = FamilyRaw::read_from_prefix(&block[BLOCK_HEADER..])
            .map_err(|_| corrupt("the record of a family of logical volumes is truncated"))?;
        let mut list = part(block, raw.list.get(), raw.list_len.get())?.to_vec();
        let mut next = raw.next.get();
        // Every part has its own block, so that a circle would exceed their number.
        let mut parts = 0;
        while next != 0 {
            parts += 1;
            if parts > MAX_OBJECTS || list.len() > MAX_LEN {
                return Err(corrupt("a property list does not end"));
            }
            let more = self
                .object(kind::CONTINUED, next)
                .ok_or_else(|| corrupt("a part of a property list is missing"))?;
            let (raw, bytes) = ContinuedRaw::read_from_prefix(more)
                .map_err(|_| corrupt("a part of a property list is truncated"))?;
            let bytes = usize::try_from(raw.len.get())
                .ok()
                .and_then(|len| bytes.get(..len))
                .ok_or_else(|| corrupt("a part of a property list is longer than its block"))?;
            list.extend(bytes);
            next = raw.next.get();
        }
        Value::parse(&inflated(&list, raw.len.get())?).map(Some)
    }
}

/// Returns a part of a block.
fn part(block: &[u8; BLOCK], start: u32, len: u32) -> Result<&[u8]> {
    let place = usize::try_from(start).ok().zip(usize::try_from(len).ok());
    place
        .and_then(|(start, len)| block.get(start..start.checked_add(len)?))
        .ok_or_else(|| corrupt("a property list is outside of its block"))
}

/// Returns a property list, which may be a zlib stream that inflates to `len` bytes.
fn inflated(list: &[u8], len: u32) -> Result<Vec<u8>> {
    if list.first() != Some(&0x78) {
        return Ok(list.to_vec());
    }
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    // Deflate shrinks to a thousandth at best.
    if len > MAX_LEN || len > list.len().saturating_mul(1100) {
        let message = format!("a property list of {len} bytes is too long: at most {MAX_LEN}");
        return Err(Error::limit(LAYER, message));
    }
    let mut plain = vec![0; len];
    Codec::Zlib.decode(list, &mut plain)?;
    Ok(plain)
}

fn corrupt(message: &'static str) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}
