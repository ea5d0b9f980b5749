//! Repair of the attributes tree: keeps complete attributes of objects that exist (§8).

use std::collections::{HashMap, HashSet};

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use super::forks::{UsedBlocks, raw};
use super::salvage::SalvagedRecord;
use super::steps::{Steps, Subject};
use crate::hfsplus::layout::{
    AttributeKey, AttributeRecord, Extent, ExtentsAttributeRaw, ExtentsRaw, ForkAttributeRaw,
    ForkRaw, InlineAttributeHeadRaw, SECURITY, VolumeHeader, extents_of,
};
use crate::hfsplus::unicode::decode_attribute_name;
use bandsaw_core::decmpfs::{self, Compression, Place};

/// An attribute: its records, and the blocks of its value.
#[derive(Debug)]
struct RepairedValue {
    records: Vec<Box<[u8]>>,
    blocks: Vec<Extent>,
    wanted: u64,
    sound: bool,
    /// Recorded size of the value in bytes.
    size: u64,
}

/// An object that has attributes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owner {
    /// True if one is its access control list.
    pub(super) has_security: bool,
    /// True if one describes compressed contents.
    pub(super) is_compressed: bool,
    /// True if it holds these contents itself.
    pub(super) has_contents: bool,
}

/// An attribute that is lost, or a part of its value.
#[derive(Debug)]
pub(super) struct LostAttribute {
    /// Number of the object.
    pub(super) file: u32,
    pub(super) name: String,
    pub(super) is_live: bool,
}

/// The attributes that are kept.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) records: Vec<Box<[u8]>>,
    pub(super) owners: HashMap<u32, Owner>,
    pub(super) lost: Vec<LostAttribute>,
    /// The blocks of values that are not kept.
    pub(super) dropped_blocks: Vec<Extent>,
}

/// Keeps the records of complete attributes of objects in `ids` and claims their blocks.
/// `compressed` are the empty files with the flag of compressed contents.
pub(super) fn repair(
    records: Vec<SalvagedRecord>,
    ids: &HashSet<u32>,
    compressed: &HashSet<u32>,
    VolumeHeader {
        total_blocks,
        block_size,
        ..
    }: &VolumeHeader,
    taken: &mut UsedBlocks,
    steps: &mut Steps,
) -> Values {
    let mut kept = Values::default();
    let (total_blocks, block_size) = (*total_blocks, *block_size);
    let mut records = records.into_iter().peekable();
    while let Some(record) = records.next() {
        let Some((file, name)) = name_of(&record.bytes()) else {
            continue;
        };
        let mut value = RepairedValue {
            records: Vec::new(),
            blocks: Vec::new(),
            wanted: 0,
            sound: true,
            size: 0,
        };
        let mut is_live = record.is_live();
        value.add(record.bytes(), total_blocks);
        let is_same = |next: &SalvagedRecord| {
            name_of(&next.bytes()).is_some_and(|other| other == (file, name.clone()))
        };
        while let Some(next) = records.next_if(is_same) {
            is_live |= next.is_live();
            value.add(next.bytes(), total_blocks);
        }
        let text = decode_attribute_name(&name);
        let subject = || Subject::Value(file, text.clone());
        let lost = || LostAttribute {
            file,
            name: text.clone(),
            is_live,
        };
        value.repair_extents();
        let blocks: u64 = value
            .blocks
            .iter()
            .map(|extent| u64::from(extent.count))
            .sum();
        let mut is_cut = value.sound && blocks != value.wanted && value.set_blocks(blocks);
        // Number 1 holds attributes of the volume itself.
        if !value.sound
            || blocks != value.wanted
            || !(file == 1 || ids.contains(&file))
            || !taken.insert_all(&value.blocks)
        {
            steps.on_subject(
                "remove attributes that are damaged or have no object",
                subject(),
            );
            kept.lost.push(lost());
            kept.dropped_blocks.append(&mut value.blocks);
            continue;
        }
        let capacity = blocks * u64::from(block_size);
        if value.size > capacity {
            kept.lost.push(lost());
            value.cut(capacity);
            is_cut = true;
        }
        if is_cut {
            steps.on_subject(
                "truncate attributes to the blocks that they have",
                subject(),
            );
        }
        let is_compression = text == decmpfs::ATTRIBUTE;
        if is_compression && compressed.contains(&file) && value.restore_magic() {
            steps.on_subject("restore the mark of compressed contents", subject());
        }
        let owner = kept.owners.entry(file).or_default();
        owner.has_security |= text == SECURITY;
        owner.is_compressed |= is_compression && value.is_compression();
        owner.has_contents |= is_compression && value.has_contents();
        kept.records.append(&mut value.records);
    }
    kept
}

/// Returns the numbers of the objects that records exist for.
pub(super) fn files(records: &[SalvagedRecord]) -> impl Iterator<Item = u32> + '_ {
    let file = |record: &SalvagedRecord| Some(AttributeKey::split(&record.bytes())?.0.file.0);
    records.iter().filter_map(file)
}

fn name_of(record: &[u8]) -> Option<(u32, Vec<U16>)> {
    let (key, _) = AttributeKey::split(record)?;
    Some((key.file.0, key.name.to_vec()))
}

impl RepairedValue {
    fn add(&mut self, record: Box<[u8]>, total_blocks: u32) {
        let parsed = AttributeKey::split(&record)
            .and_then(|(key, data)| Some((key.start_block, AttributeRecord::parse(data)?)));
        let found: u64 = self
            .blocks
            .iter()
            .map(|extent| u64::from(extent.count))
            .sum();
        match parsed {
            Some((0, AttributeRecord::Inline(_))) => self.sound &= self.records.is_empty(),
            Some((0, AttributeRecord::Fork(fork))) => {
                self.sound &= self.records.is_empty();
                self.wanted = fork.total_blocks.get().into();
                self.size = fork.logical_size.get();
                self.add_extents(&fork.extents, total_blocks);
            }
            Some((start, AttributeRecord::Extents(extents)))
                if u64::from(start) == found && !self.records.is_empty() =>
            {
                self.add_extents(extents, total_blocks);
            }
            _ => self.sound = false,
        }
        self.records.push(record);
    }

    /// Clears the entries after the last extent of each record.
    fn repair_extents(&mut self) {
        for record in &mut self.records {
            if let Some(extents) = extents_mut(record) {
                *extents = raw(&extents_of(extents).collect::<Vec<_>>());
            }
        }
    }

    /// Sets the number of blocks of a value that is stored in blocks; returns false if it is not,
    /// or if `blocks` does not fit in 32 bits.
    fn set_blocks(&mut self, blocks: u64) -> bool {
        let fork = self.records.first_mut().and_then(|record| fork_mut(record));
        let (Some(fork), Ok(count)) = (fork, u32::try_from(blocks)) else {
            return false;
        };
        fork.total_blocks = count.into();
        self.wanted = blocks;
        true
    }

    /// Sets the recorded size of the value to `size` bytes.
    fn cut(&mut self, size: u64) {
        if let Some(fork) = self.records.first_mut().and_then(|record| fork_mut(record)) {
            fork.logical_size = size.into();
        }
    }

    /// Returns the bytes of a value that is stored in its record.
    fn inline(&mut self) -> Option<&mut [u8]> {
        let data = data_mut(self.records.first_mut()?)?;
        let len = match AttributeRecord::parse(data)? {
            AttributeRecord::Inline(value) => value.len(),
            AttributeRecord::Fork(_) | AttributeRecord::Extents(_) => return None,
        };
        let at = size_of::<InlineAttributeHeadRaw>();
        data.get_mut(at..at + len)
    }

    /// Returns false if the value is stored in its record and does not describe compressed
    /// contents.
    fn is_compression(&mut self) -> bool {
        self.inline()
            .is_none_or(|value| Compression::parse(value).is_some())
    }

    /// Returns true if the value is stored in its record and holds compressed contents.
    fn has_contents(&mut self) -> bool {
        self.inline()
            .and_then(|value| Compression::parse(value)?.method())
            .is_some_and(|(_, place)| matches!(place, Place::Attribute | Place::Nowhere))
    }

    /// Restores the first bytes of the description of compressed contents, which are the same in
    /// all, if the rest describes a known compression. Returns true if that changed anything.
    fn restore_magic(&mut self) -> bool {
        let Some(value) = self.inline() else {
            return false;
        };
        let mut restored = value.to_vec();
        let Some(magic) = restored.first_chunk_mut() else {
            return false;
        };
        *magic = decmpfs::layout::MAGIC;
        let is_known = Compression::parse(&restored).is_some_and(|found| found.method().is_some());
        if Compression::parse(value).is_none() && is_known {
            value.copy_from_slice(&restored);
            return true;
        }
        false
    }

    fn add_extents(&mut self, extents: &ExtentsRaw, total_blocks: u32) {
        for extent in extents_of(extents) {
            self.sound &= extent.end() <= u64::from(total_blocks);
            self.blocks.push(extent);
        }
    }
}

/// Returns the data of an attribute's record.
fn data_mut(record: &mut [u8]) -> Option<&mut [u8]> {
    let data = AttributeKey::split(record)?.1.len();
    let at = record.len().checked_sub(data)?;
    record.get_mut(at..)
}

fn fork_mut(record: &mut [u8]) -> Option<&mut ForkRaw> {
    let data = data_mut(record)?;
    matches!(AttributeRecord::parse(data)?, AttributeRecord::Fork(_)).then_some(())?;
    Some(&mut ForkAttributeRaw::mut_from_prefix(data).ok()?.0.fork)
}

fn extents_mut(record: &mut [u8]) -> Option<&mut ExtentsRaw> {
    match AttributeRecord::parse(AttributeKey::split(record)?.1)? {
        AttributeRecord::Inline(_) => None,
        AttributeRecord::Fork(_) => Some(&mut fork_mut(record)?.extents),
        AttributeRecord::Extents(_) => Some(
            &mut ExtentsAttributeRaw::mut_from_prefix(data_mut(record)?)
                .ok()?
                .0
                .extents,
        ),
    }
}

impl UsedBlocks {
    /// Claims all of `extents` and returns true, or none of them if one overlaps.
    fn insert_all(&mut self, extents: &[Extent]) -> bool {
        if extents.iter().any(|&extent| self.overlaps(extent)) {
            return false;
        }
        extents.iter().for_each(|&extent| self.insert(extent));
        true
    }
}
