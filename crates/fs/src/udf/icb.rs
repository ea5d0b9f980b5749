//! Information control blocks: the file entry of an object, which one of a chain may be the newest.

use std::ops::Range;

use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::layout::{
    ExtendedEntryRaw, FileEntryRaw, IcbTagRaw, IndirectRaw, LongAdRaw, TagRaw, TimeRaw,
    icb_strategy, tag_id,
};
use super::space::{BlockAddress, BlockSpace, DescriptorBlock};
use super::tag::{TagFault, check_tag};

/// Maximum number of indirect entries of a chain.
const MAX_INDIRECTIONS: usize = 1024;

/// A file entry, or an extended one.
#[derive(Debug)]
pub(super) struct UdfFile {
    /// Its block.
    pub(super) address: BlockAddress,
    /// Byte of the device.
    pub(super) offset: u64,
    pub(super) icb: IcbTagRaw,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) permissions: u32,
    pub(super) links: u16,
    /// In bytes.
    pub(super) len: u64,
    /// Number of blocks that are recorded.
    pub(super) blocks: u64,
    pub(super) accessed: TimeRaw,
    pub(super) modified: TimeRaw,
    pub(super) changed: TimeRaw,
    /// Of extended entries only.
    pub(super) created: Option<TimeRaw>,
    pub(super) unique_id: u64,
    /// The ICB of more extended attributes.
    pub(super) attributes_icb: Option<BlockAddress>,
    /// The ICB of the directory of streams.
    pub(super) streams_icb: Option<BlockAddress>,
    attributes: Range<usize>,
    allocation: Range<usize>,
    bytes: Vec<u8>,
    /// The ICBs before this one, if it is the last of a chain.
    pub(super) older: Vec<BlockAddress>,
}

impl UdfFile {
    /// Reads the file entry of the object whose ICB begins with a block.
    pub(super) fn read(space: &BlockSpace, icb: BlockAddress) -> Result<Self> {
        let (mut at, mut older) = (icb, Vec::new());
        loop {
            let wanted = [tag_id::FILE, tag_id::EXTENDED_FILE];
            let file = Self::parse(space.descriptor(at, &wanted, "file entry")?)?;
            match file.icb.strategy.get() {
                icb_strategy::SINGLE => return Ok(Self { older, ..file }),
                icb_strategy::CHAIN => {}
                other => {
                    let message = format!("ICBs of strategy {other} are not supported");
                    return Err(Error::unsupported(LAYER, message).at(file.offset));
                }
            }
            match next_of_chain(space, at)? {
                None => return Ok(Self { older, ..file }),
                Some(_) if older.len() == MAX_INDIRECTIONS => {
                    let message = format!(
                        "a chain of ICBs has more than {MAX_INDIRECTIONS} indirect entries"
                    );
                    return Err(Error::corrupt(LAYER, file.offset, message));
                }
                Some(next) => {
                    older.push(at);
                    at = next;
                }
            }
        }
    }

    fn parse(found: DescriptorBlock) -> Result<Self> {
        let bytes = &found.bytes;
        let (head, mut file) = match found.tag.identifier.get() {
            tag_id::FILE => match FileEntryRaw::read_from_prefix(bytes) {
                Ok((raw, _)) => (size_of::<FileEntryRaw>(), Self::of(&raw)),
                Err(_) => return Err(too_long(&found)),
            },
            _ => match ExtendedEntryRaw::read_from_prefix(bytes) {
                Ok((raw, _)) => (size_of::<ExtendedEntryRaw>(), Self::of_extended(&raw)),
                Err(_) => return Err(too_long(&found)),
            },
        };
        // Until here the ranges have the lengths.
        let middle = head.checked_add(file.attributes.end);
        let end = middle.and_then(|middle| middle.checked_add(file.allocation.end));
        match (middle, end) {
            (Some(middle), Some(end)) if end <= bytes.len() => {
                file.attributes = head..middle;
                file.allocation = middle..end;
            }
            _ => return Err(too_long(&found)),
        }
        file.address = found.address;
        file.offset = found.offset;
        file.bytes = found.bytes;
        Ok(file)
    }

    fn of(raw: &FileEntryRaw) -> Self {
        Self {
            address: BlockAddress {
                partition: 0,
                block: 0,
            },
            offset: 0,
            icb: raw.icb,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            permissions: raw.permissions.get(),
            links: raw.links.get(),
            len: raw.len.get(),
            blocks: raw.blocks.get(),
            accessed: raw.accessed,
            modified: raw.modified,
            changed: raw.changed,
            created: None,
            unique_id: raw.unique_id.get(),
            attributes_icb: icb_of(&raw.attributes),
            streams_icb: None,
            attributes: 0..to_usize(raw.attributes_len.get().into()),
            allocation: 0..to_usize(raw.allocation_len.get().into()),
            bytes: Vec::new(),
            older: Vec::new(),
        }
    }

    fn of_extended(raw: &ExtendedEntryRaw) -> Self {
        Self {
            address: BlockAddress {
                partition: 0,
                block: 0,
            },
            offset: 0,
            icb: raw.icb,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            permissions: raw.permissions.get(),
            links: raw.links.get(),
            len: raw.len.get(),
            blocks: raw.blocks.get(),
            accessed: raw.accessed,
            modified: raw.modified,
            changed: raw.changed,
            created: Some(raw.created),
            unique_id: raw.unique_id.get(),
            attributes_icb: icb_of(&raw.attributes),
            streams_icb: icb_of(&raw.streams),
            attributes: 0..to_usize(raw.attributes_len.get().into()),
            allocation: 0..to_usize(raw.allocation_len.get().into()),
            bytes: Vec::new(),
            older: Vec::new(),
        }
    }

    /// Returns the extended attributes in the file entry.
    pub(super) fn attributes(&self) -> &[u8] {
        self.bytes.get(self.attributes.clone()).unwrap_or_default()
    }

    /// Returns the allocation descriptors, or the contents in their place.
    pub(super) fn allocation(&self) -> &[u8] {
        self.bytes.get(self.allocation.clone()).unwrap_or_default()
    }

    /// Returns the byte of the device at which the allocation descriptors begin.
    pub(super) fn allocation_offset(&self) -> u64 {
        self.offset + self.allocation.start as u64
    }
}

/// Returns the ICB of a long allocation descriptor. `None`: there is none.
pub(super) fn icb_of(raw: &LongAdRaw) -> Option<BlockAddress> {
    (raw.len.bytes() != 0).then(|| raw.address.into())
}

/// Returns the newer ICB that an entry behind the file entry in a block refers to.
fn next_of_chain(space: &BlockSpace, at: BlockAddress) -> Result<Option<BlockAddress>> {
    let Some((behind, place)) = at.plus(1).and_then(|behind| {
        // The last block of a partition has none behind it.
        Some((behind, space.place(behind, 1, 0).ok()?.0))
    }) else {
        return Ok(None);
    };
    if place + space.block_size > space.device.info().len {
        return Ok(None);
    }
    let bytes = space.device.read_vec(place, to_usize(space.block_size))?;
    let Ok((raw, _)) = IndirectRaw::read_from_prefix(&bytes) else {
        return Ok(None);
    };
    if raw.tag.identifier.get() != tag_id::INDIRECT {
        return Ok(None);
    }
    match check_tag(&bytes, behind.block) {
        Ok(TagRaw { .. }) => Ok(icb_of(&raw.next)),
        // A block that was used by another file before.
        Err(TagFault::Location(_)) => Ok(None),
        Err(fault) => {
            let message = format!("the indirect entry of a chain of ICBs is damaged: {fault}");
            Err(Error::corrupt(LAYER, place, message))
        }
    }
}

fn too_long(found: &DescriptorBlock) -> Error {
    let message = "extended attributes and allocation descriptors are longer than their block";
    Error::corrupt(LAYER, found.offset, message)
}
