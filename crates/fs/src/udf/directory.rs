//! Directories: the names in them, each with the ICB of its object.

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::contents::UdfContents;
use super::extents::open_copy;
use super::icb::{UdfFile, icb_of};
use super::layout::{NameRaw, TagRaw, characteristics, file_type, tag_id};
use super::names;
use super::space::{BlockAddress, BlockSpace};
use super::tag::{TagFault, check_sums};

/// Bytes of a directory that are read in one call. A name with what precedes it fits twice.
const WINDOW: u64 = 192 << 10;
/// Maximum length of a name with what precedes it, in bytes.
const MAX_ITEM: u64 = (size_of::<NameRaw>() + 0xFFFF + 0xFF + 3) as u64;
/// Alignment of names in bytes.
const ALIGNMENT: u64 = 4;
/// The name of the file with the space that must not be allocated.
const NO_SPACE: &str = "Non-Allocatable Space";

/// A name in a directory.
#[derive(Debug)]
pub(super) struct FoundName {
    pub(super) characteristics: u8,
    /// As it is shown.
    pub(super) name: String,
    /// `None`: it names no object.
    pub(super) icb: Option<BlockAddress>,
    pub(super) tag: TagRaw,
    /// Offset in the directory in bytes.
    pub(super) offset: u64,
}

/// An item of a directory.
#[derive(Debug)]
pub(super) enum DirectoryItem {
    Name(FoundName),
    /// Bytes that are no name. What follows begins with the next one that is right.
    Unreadable(Error),
}

/// A reader of the items of a directory, in order.
#[derive(Debug)]
pub(super) struct DirectoryReader {
    /// The contents, and those in the mirror of a metadata partition.
    copies: Vec<UdfContents>,
    /// Bytes that are read in one call.
    window_len: u64,
    at: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl DirectoryReader {
    /// Opens the directory of a file entry.
    pub(super) fn new(space: &BlockSpace, file: &UdfFile) -> Result<Self> {
        if !matches!(file.icb.kind, file_type::DIRECTORY | file_type::STREAMS) {
            let message = format!(
                "expected a directory, found a file of type {}",
                file.icb.kind
            );
            return Err(Error::invalid(LAYER, message).at(file.offset));
        }
        // Its blocks are its own, so that it is not longer than the volume.
        let max = space.device.info().len;
        if file.len > max {
            let message = format!("a directory has {} bytes, the volume {max}", file.len);
            return Err(Error::corrupt(LAYER, file.offset, message));
        }
        let copies = 0..space.copies(file.address.partition);
        let copies: Result<_> = copies.map(|copy| open_copy(space, file, copy)).collect();
        Ok(Self {
            copies: copies?,
            window_len: WINDOW,
            at: 0,
            window: Vec::new(),
            window_start: 0,
        })
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.copies
            .first()
            .map_or(0, |contents| contents.info().len)
    }

    /// Returns the next item.
    pub(super) fn read_next(&mut self) -> Result<Option<DirectoryItem>> {
        let (len, at) = (self.len(), self.at);
        if at >= len {
            return Ok(None);
        }
        let mut failed = None;
        for copy in 0..self.copies.len() {
            match self.parse_at(copy, at) {
                Ok((name, item_len)) => {
                    self.at = at + item_len;
                    return Ok(Some(DirectoryItem::Name(name)));
                }
                Err(error) if error.kind() == Kind::Corrupt => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        let failed = failed.unwrap_or_else(|| Error::corrupt(LAYER, at, "no copy"));
        self.at = self.next_valid(at)?;
        Ok(Some(DirectoryItem::Unreadable(failed)))
    }

    /// Returns the place of the next name after a damaged one; the end if there is none.
    fn next_valid(&mut self, damaged: u64) -> Result<u64> {
        let len = self.len();
        let mut at = damaged + ALIGNMENT;
        while at + size_of::<NameRaw>() as u64 <= len {
            match self.bytes(0, at) {
                Ok(bytes) if bytes.starts_with(&tag_id::NAME.to_le_bytes()) => {
                    if parse(bytes).is_ok() {
                        return Ok(at);
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == Kind::Corrupt => return Ok(len),
                Err(error) => return Err(error),
            }
            at += ALIGNMENT;
        }
        Ok(len)
    }

    /// Parses the name at an offset of a copy; returns it with its length in bytes.
    fn parse_at(&mut self, copy: usize, at: u64) -> Result<(FoundName, u64)> {
        let bytes = self.bytes(copy, at)?;
        match parse(bytes) {
            Ok((name, len)) => Ok((FoundName { offset: at, ..name }, len)),
            Err(fault) => {
                let message = format!("a name in a directory is damaged: {fault}");
                let place = self.copies.get(copy).map(|contents| contents.locate(at, 1));
                let error = Error::new(Kind::Corrupt, LAYER, message);
                Err(match place {
                    Some(Ok((super::contents::RunStorage::Recorded(place), _))) => error.at(place),
                    _ => error,
                })
            }
        }
    }

    /// Returns the bytes of a copy from an offset on, at least an item if there are as many. Those of the
    /// first copy are kept.
    fn bytes(&mut self, copy: usize, at: u64) -> Result<&[u8]> {
        let len = self.len();
        let wanted = MAX_ITEM.min(len - at);
        let window_end = self.window_start + self.window.len() as u64;
        let is_kept = copy == 0 && at >= self.window_start && at + wanted <= window_end;
        if !is_kept {
            let length = self.window_len.max(MAX_ITEM).min(len - at);
            let contents = self.copies.get(copy);
            let contents = contents.ok_or_else(|| Error::corrupt(LAYER, at, "no copy"))?;
            self.window = contents.read_vec(at, to_usize(length))?;
            // Bytes of the mirror are not taken for those of the first copy.
            self.window_start = if copy == 0 { at } else { u64::MAX >> 1 };
            return Ok(&self.window);
        }
        let within = to_usize(at - self.window_start);
        Ok(self.window.get(within..).unwrap_or_default())
    }
}

/// Parses the name at the start of `bytes`; returns it with its length in bytes.
fn parse(bytes: &[u8]) -> Result<(FoundName, u64), TagFault> {
    let tag = check_sums(bytes)?;
    if tag.identifier.get() != tag_id::NAME {
        return Err(TagFault::Identifier(tag.identifier.get()));
    }
    let (raw, rest) = NameRaw::read_from_prefix(bytes).map_err(|_| TagFault::Truncated)?;
    let start = usize::from(raw.use_len.get());
    let name_len = usize::from(raw.name_len);
    let name = rest
        .get(start..start + name_len)
        .ok_or(TagFault::Truncated)?;
    let len = (size_of::<NameRaw>() + start + name_len) as u64;
    let found = FoundName {
        characteristics: raw.characteristics,
        name: names::shown(&names::decode(name)),
        icb: icb_of(&raw.icb),
        tag,
        offset: 0,
    };
    Ok((found, len.next_multiple_of(ALIGNMENT)))
}

impl FoundName {
    /// Returns true if it is neither deleted nor that of the parent.
    pub(super) fn is_object(&self) -> bool {
        self.characteristics & (characteristics::DELETED | characteristics::PARENT) == 0
    }

    /// Returns true if it also is not that of the space that UDF 1.x keeps from being allocated.
    pub(super) fn is_shown(&self) -> bool {
        let is_hidden = self.characteristics & characteristics::HIDDEN != 0;
        self.is_object() && !(is_hidden && self.name == NO_SPACE)
    }

    /// Returns true if it is that of the parent.
    pub(super) fn is_parent(&self) -> bool {
        self.characteristics & characteristics::PARENT != 0
            && self.characteristics & characteristics::DELETED == 0
    }

    /// Returns true if it says that it names a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.characteristics & characteristics::DIRECTORY != 0
    }
}
