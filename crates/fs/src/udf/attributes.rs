//! Extended attributes, and the streams beside the contents of a file: what belongs to it but is not in
//! its file entry.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory, Slice};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::directory::{DirectoryItem, DirectoryReader};
use super::extents::open_contents;
use super::icb::UdfFile;
use super::layout::{
    AttributeRaw, DeviceRaw, FileTimesRaw, FinderRaw, ImplementationRaw, TagRaw, attribute_type,
    file_type, tag_id,
};
use super::space::{BlockAddress, BlockSpace};
use super::tag::check_sums;
use crate::{FINDER_INFO, RESOURCE_FORK, Timestamp};

/// Maximum number of extended attributes of a file.
const MAX_ATTRIBUTES: usize = 4096;
/// Maximum number of streams of a file.
const MAX_STREAMS: usize = 4096;
/// Length of the header before the first attribute in bytes.
const HEADER: u64 = 24;
/// Bytes that are read of each attribute.
const MAX_HEAD: u64 = 96;
/// The stream with the resource fork of a file.
const RESOURCE_STREAM: &str = "*UDF Macintosh Resource Fork";
/// Offset of the Finder flags in Finder info, in bytes.
const FINDER_FLAGS: usize = 8;
/// The Finder flag of files that are not shown.
const INVISIBLE: u16 = 0x4000;

/// The resource fork of a file.
#[derive(Debug, Clone)]
pub(super) enum ResourceFork {
    /// In a stream.
    Stream(BlockAddress),
    /// In an extended attribute.
    Attribute(Arc<dyn BlockDevice>, Range<u64>),
}

/// The properties of a file that are not in its file entry.
#[derive(Debug, Default)]
pub(super) struct FileExtras {
    /// `None` also if it is all zero.
    pub(super) finder: Option<[u8; 32]>,
    /// From an attribute; extended file entries have the time themselves.
    pub(super) created: Option<Timestamp>,
    /// Device number in the format of macOS.
    pub(super) device: u32,
    pub(super) resource: Option<ResourceFork>,
    /// The other streams by name.
    pub(super) streams: Vec<(String, BlockAddress)>,
}

impl FileExtras {
    /// Reads the extended attributes of a file and the names of its streams.
    pub(super) fn read(space: &BlockSpace, file: &UdfFile) -> Result<Self> {
        let mut found = Self::read_attributes(space, file)?;
        if let Some(icb) = file.streams_icb {
            found.add_streams(space, &UdfFile::read(space, icb)?)?;
        }
        Ok(found)
    }

    /// Reads the extended attributes only.
    pub(super) fn read_attributes(space: &BlockSpace, file: &UdfFile) -> Result<Self> {
        let mut found = Self::default();
        if !file.attributes().is_empty() {
            found.add_attributes(&(Arc::new(Memory::read_only(file.attributes())) as _))?;
        }
        if let Some(icb) = file.attributes_icb {
            let outside = UdfFile::read(space, icb)?;
            if outside.icb.kind != file_type::ATTRIBUTES {
                let message = "expected a file of extended attributes";
                return Err(Error::corrupt(LAYER, outside.offset, message));
            }
            found.add_attributes(&(Arc::new(open_contents(space, &outside)?) as _))?;
        }
        Ok(found)
    }

    fn add_attributes(&mut self, all: &Arc<dyn BlockDevice>) -> Result<()> {
        let len = all.info().len;
        if len < HEADER {
            return Ok(());
        }
        let header = all.read_vec(0, to_usize(HEADER))?;
        let is_header = check_sums(&header[..])
            .is_ok_and(|tag: TagRaw| tag.identifier.get() == tag_id::ATTRIBUTE_HEADER);
        if !is_header {
            return Ok(());
        }
        let mut at = HEADER;
        for _ in 0..MAX_ATTRIBUTES {
            if at + size_of::<AttributeRaw>() as u64 > len {
                break;
            }
            let head = all.read_vec(at, to_usize(MAX_HEAD.min(len - at)))?;
            let Ok((raw, _)) = AttributeRaw::read_from_prefix(&head) else {
                break;
            };
            let end = at + u64::from(raw.len.get());
            if end < at + size_of::<AttributeRaw>() as u64 || end > len {
                break;
            }
            self.add_attribute(all, at..end, &head, raw.kind.get());
            at = end;
        }
        Ok(())
    }

    fn add_attribute(
        &mut self,
        all: &Arc<dyn BlockDevice>,
        range: Range<u64>,
        head: &[u8],
        kind: u32,
    ) {
        let len = to_usize((range.end - range.start).min(MAX_HEAD));
        let head = head.get(..len).unwrap_or(head);
        match kind {
            attribute_type::FILE_TIMES => {
                if let Ok((raw, _)) = FileTimesRaw::read_from_prefix(head)
                    && raw.existence.get() & 1 != 0
                {
                    self.created = raw.first.get();
                }
            }
            attribute_type::DEVICE => {
                if let Ok((raw, _)) = DeviceRaw::read_from_prefix(head) {
                    self.device = raw.major.get() << 24 | raw.minor.get() & 0x00FF_FFFF;
                }
            }
            attribute_type::IMPLEMENTATION => {
                let Ok((raw, _)) = ImplementationRaw::read_from_prefix(head) else {
                    return;
                };
                const USE: u64 = (size_of::<ImplementationRaw>() - 2) as u64;
                let start = range.start + USE;
                let end = start + u64::from(raw.use_len.get());
                if raw.kind.is(b"*UDF Mac FinderInfo") {
                    let finder = head.get(to_usize(USE)..).unwrap_or_default();
                    let finder = FinderRaw::read_from_prefix(finder).ok();
                    self.finder = finder
                        .map(|(raw, _)| raw.info)
                        .filter(|info| *info != [0; 32]);
                } else if raw.kind.is(b"*UDF Mac ResourceFork") && end <= range.end {
                    // After the checksum.
                    let fork = (start + 2).min(end)..end;
                    self.resource = Some(ResourceFork::Attribute(all.clone(), fork));
                }
            }
            _ => {}
        }
    }

    fn add_streams(&mut self, space: &BlockSpace, directory: &UdfFile) -> Result<()> {
        if directory.icb.kind != file_type::STREAMS {
            let message = "expected a directory of streams";
            return Err(Error::corrupt(LAYER, directory.offset, message));
        }
        each_stream(space, directory, &mut |name, icb| {
            if name == RESOURCE_STREAM {
                self.resource = Some(ResourceFork::Stream(icb));
                return ControlFlow::Continue(());
            }
            // Those that stand for attributes of this name are elsewhere.
            if name != FINDER_INFO && name != RESOURCE_FORK {
                self.streams.push((name, icb));
            }
            match self.streams.len() {
                MAX_STREAMS.. => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })
    }

    /// Returns true if the Finder does not show the file.
    pub(super) fn is_invisible(&self) -> bool {
        let flags = self.finder.and_then(|info| {
            let bytes = info.get(FINDER_FLAGS..FINDER_FLAGS + 2)?.try_into();
            Some(u16::from_be_bytes(bytes.ok()?))
        });
        flags.is_some_and(|flags| flags & INVISIBLE != 0)
    }

    /// Opens the resource fork. `None`: there is none, or it is empty.
    pub(super) fn open_resource(&self, space: &BlockSpace) -> Result<Option<Arc<dyn BlockDevice>>> {
        let fork: Arc<dyn BlockDevice> = match &self.resource {
            None => return Ok(None),
            Some(ResourceFork::Stream(icb)) => {
                Arc::new(open_contents(space, &UdfFile::read(space, *icb)?)?)
            }
            Some(ResourceFork::Attribute(all, range)) => {
                Arc::new(Slice::new(all.clone(), range.clone())?)
            }
        };
        Ok(Some(fork).filter(|fork| fork.info().len > 0))
    }

    /// Returns length and allocated bytes of the resource fork.
    pub(super) fn resource_len(&self, space: &BlockSpace) -> Result<(u64, u64)> {
        match &self.resource {
            None => Ok((0, 0)),
            Some(ResourceFork::Stream(icb)) => {
                let file = UdfFile::read(space, *icb)?;
                Ok((file.len, file.blocks.saturating_mul(space.block_size)))
            }
            Some(ResourceFork::Attribute(_, range)) => Ok((range.end - range.start, 0)),
        }
    }
}

/// Calls `each` for the name and the ICB of each stream of a directory.
pub(super) fn each_stream(
    space: &BlockSpace,
    directory: &UdfFile,
    each: &mut dyn FnMut(String, BlockAddress) -> ControlFlow<()>,
) -> Result<()> {
    let mut reader = DirectoryReader::new(space, directory)?;
    let mut left = 2 * MAX_STREAMS;
    while let Some(item) = reader.read_next()? {
        match item {
            DirectoryItem::Unreadable(error) => return Err(error),
            DirectoryItem::Name(found) => {
                if let Some(icb) = found.icb.filter(|_| found.is_object())
                    && each(found.name, icb).is_break()
                {
                    break;
                }
            }
        }
        left -= 1;
        if left == 0 {
            break;
        }
    }
    Ok(())
}
