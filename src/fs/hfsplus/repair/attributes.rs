//! Repair of the attributes tree: keeps complete attributes of objects that exist (§8).

use std::collections::{HashMap, HashSet};

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use super::forks::{Taken, raw};
use super::steps::Steps;
use crate::fs::hfsplus::layout::{
    AttributeKey, AttributeRecord, Extent, ExtentsAttributeRaw, ExtentsRaw, ForkAttributeRaw,
    ForkRaw, SECURITY, VolumeHeader, extents_of,
};
use crate::fs::hfsplus::unicode::decode_attribute_name;

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

/// Keeps the records of complete attributes of objects in `ids` and claims their blocks. Returns
/// the objects that have attributes, with true if an access control list is among them.
pub(super) fn mend(
    records: Vec<Box<[u8]>>,
    ids: &HashSet<u32>,
    VolumeHeader {
        total_blocks,
        block_size,
        ..
    }: &VolumeHeader,
    taken: &mut Taken,
    steps: &mut Steps,
) -> (Vec<Box<[u8]>>, HashMap<u32, bool>) {
    let mut kept = Vec::with_capacity(records.len());
    let mut owners: HashMap<u32, bool> = HashMap::new();
    let (total_blocks, block_size) = (*total_blocks, *block_size);
    let mut records = records.into_iter().peekable();
    while let Some(record) = records.next() {
        let Some((file, name)) = name_of(&record) else {
            continue;
        };
        let mut value = RepairedValue {
            records: Vec::new(),
            blocks: Vec::new(),
            wanted: 0,
            sound: true,
            size: 0,
        };
        value.add(record, total_blocks);
        while let Some(next) =
            records.next_if(|next| name_of(next).is_some_and(|other| other == (file, name.clone())))
        {
            value.add(next, total_blocks);
        }
        value.mend_extents();
        let blocks: u64 = value
            .blocks
            .iter()
            .map(|extent| u64::from(extent.count))
            .sum();
        if value.sound && blocks != value.wanted && value.set_blocks(blocks) {
            steps.add("cut attributes to the blocks that they have", || {
                format!("{} of object {file}", decode_attribute_name(&name))
            });
        }
        // Number 1 holds attributes of the volume itself.
        if !value.sound
            || blocks != value.wanted
            || !(file == 1 || ids.contains(&file))
            || !taken.insert_all(&value.blocks)
        {
            steps.add("drop attributes that are damaged or of nothing", || {
                format!("{} of object {file}", decode_attribute_name(&name))
            });
            continue;
        }
        let capacity = blocks * u64::from(block_size);
        if value.size > capacity {
            steps.add("cut attributes to the blocks that they have", || {
                format!("{} of object {file}", decode_attribute_name(&name))
            });
            value.cut(capacity);
        }
        *owners.entry(file).or_default() |= decode_attribute_name(&name) == SECURITY;
        kept.append(&mut value.records);
    }
    (kept, owners)
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
                self.take(&fork.extents, total_blocks);
            }
            Some((start, AttributeRecord::Extents(extents)))
                if u64::from(start) == found && !self.records.is_empty() =>
            {
                self.take(extents, total_blocks);
            }
            _ => self.sound = false,
        }
        self.records.push(record);
    }

    /// Clears the entries after the last extent of each record.
    fn mend_extents(&mut self) {
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

    fn take(&mut self, extents: &ExtentsRaw, total_blocks: u32) {
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

impl Taken {
    /// Claims all of `extents` and returns true, or none of them if one overlaps.
    fn insert_all(&mut self, extents: &[Extent]) -> bool {
        if extents.iter().any(|&extent| self.overlaps(extent)) {
            return false;
        }
        extents.iter().for_each(|&extent| self.insert(extent));
        true
    }
}
