//! The extents of a file by its allocation descriptors.

use std::collections::HashSet;

use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::contents::{RunStorage, UdfContents};
use super::icb::UdfFile;
use super::layout::{
    AllocationExtentRaw, ExtendedAdRaw, ExtentLengthRaw, LongAdRaw, ShortAdRaw, allocation,
    extent_kind, icb_flags, tag_id,
};
use super::space::{BlockAddress, BlockSpace};

/// Maximum number of extents of a file.
const MAX_EXTENTS: usize = 1 << 20;
/// Maximum number of contiguous pieces of a file on the device.
const MAX_PIECES: usize = 1 << 22;
/// Maximum number of blocks with more allocation descriptors.
const MAX_TABLES: usize = 1 << 16;

/// An extent of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileExtent {
    /// Of [`extent_kind`].
    pub(super) kind: u32,
    /// In bytes.
    pub(super) len: u64,
    pub(super) at: BlockAddress,
}

/// The extents of a file.
#[derive(Debug, Default)]
pub(super) struct ExtentList {
    pub(super) extents: Vec<FileExtent>,
    /// The blocks with more allocation descriptors.
    pub(super) tables: Vec<BlockAddress>,
}

/// An allocation descriptor of any form.
struct AllocationDescriptor {
    kind: u32,
    len: u64,
    at: BlockAddress,
    is_encoded: bool,
}

impl ExtentList {
    /// Reads the extents of a file. There are none if the contents are in the file entry.
    pub(super) fn read(space: &BlockSpace, file: &UdfFile) -> Result<Self> {
        let form = file.icb.flags.get() & icb_flags::ALLOCATION;
        let mut list = Self::default();
        if form == allocation::EMBEDDED {
            return Ok(list);
        }
        let mut seen = HashSet::new();
        let mut next = list.add(file, form, file.allocation(), file.address.partition)?;
        while let Some(at) = next {
            if list.tables.len() == MAX_TABLES || !seen.insert(at) {
                let message = "the allocation descriptors of a file continue without an end";
                return Err(Error::corrupt(LAYER, file.offset, message));
            }
            list.tables.push(at);
            let table = space.descriptor(at, &[tag_id::ALLOCATION_EXTENT], "allocation extent")?;
            let descriptors = AllocationExtentRaw::read_from_prefix(&table.bytes)
                .ok()
                .and_then(|(raw, rest)| rest.get(..usize::try_from(raw.len.get()).ok()?));
            let descriptors = descriptors.ok_or_else(|| {
                let message = "allocation descriptors are longer than their block";
                Error::corrupt(LAYER, table.offset, message)
            })?;
            next = list.add(file, form, descriptors, at.partition)?;
        }
        Ok(list)
    }

    /// Adds descriptors, up to one of length 0. Returns the place of more of them.
    fn add(
        &mut self,
        file: &UdfFile,
        form: u16,
        mut bytes: &[u8],
        partition: u16,
    ) -> Result<Option<BlockAddress>> {
        while let Some((found, rest)) = AllocationDescriptor::parse(form, bytes, partition)
            .ok_or_else(|| {
                let message = format!("allocation descriptors of form {form} are not defined");
                Error::corrupt(LAYER, file.offset, message)
            })?
        {
            if found.is_encoded {
                let message = "extents that are encoded are not supported";
                return Err(Error::unsupported(LAYER, message).at(file.offset));
            }
            match found.kind {
                _ if found.len == 0 => return Ok(None),
                extent_kind::CONTINUATION => return Ok(Some(found.at)),
                _ if self.extents.len() == MAX_EXTENTS => {
                    let message = format!("a file has more than {MAX_EXTENTS} extents");
                    return Err(Error::limit(LAYER, message).at(file.offset));
                }
                kind => self.extents.push(FileExtent {
                    kind,
                    len: found.len,
                    at: found.at,
                }),
            }
            bytes = rest;
        }
        Ok(None)
    }
}

impl AllocationDescriptor {
    /// Parses the descriptor at the start of `bytes`. `None`: there is no such form; `Some(None)`: no
    /// descriptor follows.
    #[allow(clippy::option_option, reason = "an invalid form, and the end")]
    fn parse(form: u16, bytes: &[u8], partition: u16) -> Option<Option<(Self, &[u8])>> {
        let new = |len: ExtentLengthRaw, at, is_encoded| Self {
            kind: len.kind(),
            len: u64::from(len.bytes()),
            at,
            is_encoded,
        };
        match form {
            allocation::SHORT => {
                Some(ShortAdRaw::read_from_prefix(bytes).ok().map(|(raw, rest)| {
                    let block = raw.block.get();
                    let at = BlockAddress { partition, block };
                    (new(raw.len, at, false), rest)
                }))
            }
            allocation::LONG => Some(
                LongAdRaw::read_from_prefix(bytes)
                    .ok()
                    .map(|(raw, rest)| (new(raw.len, raw.address.into(), false), rest)),
            ),
            allocation::EXTENDED => Some(ExtendedAdRaw::read_from_prefix(bytes).ok().map(
                |(raw, rest)| {
                    let recorded = raw.recorded.bytes();
                    let is_encoded = recorded != raw.information.get()
                        && raw.len.kind() == extent_kind::RECORDED;
                    (new(raw.len, raw.address.into(), is_encoded), rest)
                },
            )),
            _ => None,
        }
    }
}

/// Opens the contents of a file.
pub(super) fn open_contents(space: &BlockSpace, file: &UdfFile) -> Result<UdfContents> {
    open_copy(space, file, 0)
}

/// Opens a copy of the contents of a file, which may be in a partition with a mirror.
pub(super) fn open_copy(space: &BlockSpace, file: &UdfFile, copy: usize) -> Result<UdfContents> {
    let flags = file.icb.flags.get();
    if flags & icb_flags::TRANSFORMED != 0 {
        let message = "files that are encoded, for example encrypted, are not supported";
        return Err(Error::unsupported(LAYER, message).at(file.offset));
    }
    let mut contents = UdfContents::new(space.device.clone(), file.len);
    if flags & icb_flags::ALLOCATION == allocation::EMBEDDED {
        let storage = RunStorage::Recorded(file.allocation_offset());
        contents.push(file.allocation().len() as u64, storage);
        return Ok(contents);
    }
    let mut pieces = 0;
    for extent in ExtentList::read(space, file)?.extents {
        // Extents past the length are allocated in advance.
        if contents.stored_len() >= file.len {
            break;
        }
        match extent.kind {
            extent_kind::RECORDED => {}
            extent_kind::ALLOCATED => {
                contents.push(extent.len, RunStorage::Allocated);
                continue;
            }
            _ => {
                contents.push(extent.len, RunStorage::Unallocated);
                continue;
            }
        }
        let (mut at, mut left) = (extent.at, extent.len);
        while left > 0 {
            pieces += 1;
            if pieces > MAX_PIECES {
                let message = format!("a file has more than {MAX_PIECES} pieces");
                return Err(Error::limit(LAYER, message).at(file.offset));
            }
            let blocks = left.div_ceil(space.block_size);
            let (start, contiguous) = space.place(at, blocks, copy)?;
            let len = left.min(contiguous * space.block_size);
            contents.push(len, RunStorage::Recorded(start));
            left -= len;
            if left > 0 {
                at = at.plus(contiguous).ok_or_else(|| {
                    let message = "an extent is past the last block that has a number";
                    Error::corrupt(LAYER, file.offset, message)
                })?;
            }
        }
    }
    Ok(contents)
}
