//! A file from the records that were found of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::nodes::NodeReader;
use super::paths::{FolderPaths, inode, named};
use super::records::{FoundRecord, FoundRecords};
use crate::apfs::cipher::VolumeCipher;
use crate::apfs::layout::{
    FileExtentRaw, FileId, KeyRest, Paddr, RecordKey, XattrValue, extent_flags, record_type,
    xattr_name,
};
use crate::apfs::object::{Object, Xattr};
use crate::apfs::store::Store;
use crate::apfs::stream::{StoredRun, Stream, StreamRun};
use crate::recovered::{
    Certainty, FileRun, FoundContents, Judge, LossReason, LostRange, Masked, RecordSource,
    RecoveredFile, join,
};
use crate::{Attributes, FileKind, Fork, NodeId, UF_COMPRESSED};
use bandsaw_core::Result;
use bandsaw_core::decmpfs::Compression;
use bandsaw_core::device::BlockDevice;

/// Largest number of records of a stream or of attributes of a file that are read.
const MAX_RECORDS: usize = 1 << 20;

/// Largest length of a stream in bytes: that of the largest container.
const MAX_LEN: u64 = 1 << 60;

/// Assembles files.
pub(super) struct Assembler<'a> {
    pub(super) store: &'a Store,
    pub(super) cipher: Option<&'a Arc<VolumeCipher>>,
    pub(super) found: &'a FoundRecords,
    pub(super) hashed: bool,
}

/// A run of a stream in whole blocks.
#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    /// The first block, `None` for a hole.
    paddr: Option<u64>,
    is_unwritten: bool,
    crypto_id: u64,
}

/// A stream as far as it was found.
struct FoundStream {
    len: u64,
    pieces: BTreeMap<u64, Piece>,
}

/// Attributes of a file that were found.
#[derive(Default)]
struct FoundAttributes {
    parsed: Vec<Xattr>,
    values: Vec<(String, Vec<u8>)>,
    /// Number and length of the stream of the resource fork.
    resource: Option<(u64, u64)>,
    resource_value: Option<Vec<u8>>,
    compression: Option<Vec<u8>>,
}

impl Assembler<'_> {
    /// Assembles the object with the newest record `newest`. `None` for a folder.
    pub(super) fn file(
        &self,
        newest: &FoundRecord,
        judge: &mut Judge,
        paths: &mut FolderPaths<'_>,
        reader: &mut NodeReader<'_>,
    ) -> Result<Option<RecoveredFile>> {
        let id = newest.id();
        if newest.kind() == record_type::DIRECTORY_ENTRY {
            return Ok(self.name(newest, paths, reader));
        }
        let Some((record, value)) = inode(self.found, id, reader) else {
            return Ok(None);
        };
        let Some(mut object) = Object::parse(FileId(id), &value) else {
            return Ok(None);
        };
        if object.kind() == FileKind::Folder {
            return Ok(None);
        }
        let (parent, name) = match named(&value) {
            Some(found) => found,
            None => (object.inode.parent_id.get(), format!("{id}")),
        };
        let mut found = self.attributes(id, reader);
        object.xattrs = std::mem::take(&mut found.parsed);
        let is_compressed =
            object.kind() == FileKind::File && object.inode.bsd_flags.get() & UF_COMPRESSED != 0;
        let value = found.compression.take().filter(|_| is_compressed);
        let attributes = object.attributes(value.as_deref().and_then(Compression::parse));
        let len = object.stream.map_or(0, |stream| stream.size.get());
        let data = self.stream(object.inode.private_id.get(), len, reader);
        let resource = match found.resource {
            Some((stream, len)) => self.stream(stream, len, reader),
            None => FoundStream::empty(),
        };
        let mut runs = self.runs(Fork::Data, &data);
        runs.extend(self.runs(Fork::Resource, &resource));
        let mut judged = judge.judge(&runs, true)?;
        let target = object
            .link_target()
            .map(|target| String::from_utf8_lossy(target).into_owned());
        let is_target_lost = object.kind() == FileKind::Symlink && target.is_none();
        if (is_compressed && value.is_none()) || is_target_lost {
            judged.certainty = Certainty::NameOnly;
            judged.losses.push(LostRange {
                fork: Fork::Data,
                range: 0..0,
                reason: LossReason::NoExtent,
            });
        }
        let resource_contents: Arc<dyn BlockDevice> = match found.resource_value {
            Some(value) => Arc::new(bandsaw_core::device::Memory::read_only(value)),
            None => self.contents(Fork::Resource, &resource, &judged.losses),
        };
        let contents = FoundContents {
            data: self.contents(Fork::Data, &data, &judged.losses),
            resource: resource_contents,
            compression: value,
            target,
        };
        let (folder, is_orphan) = paths.folder(parent, reader);
        Ok(Some(RecoveredFile {
            attributes,
            path: join(&folder, &name),
            is_orphan,
            is_earlier_version: false,
            source: RecordSource::OldNode,
            record_offset: self.store.offset(record.paddr()),
            transaction: Some(record.xid),
            certainty: judged.certainty,
            losses: judged.losses,
            runs: judged.runs,
            xattrs: found.values,
            contents,
        }))
    }

    /// Returns a file of which only a directory entry was found.
    fn name(
        &self,
        record: &FoundRecord,
        paths: &mut FolderPaths<'_>,
        reader: &mut NodeReader<'_>,
    ) -> Option<RecoveredFile> {
        let node = reader.read(record.paddr())?;
        let key = RecordKey::parse(node.key(record.index())?, self.hashed)?;
        let (KeyRest::Hashed(_, name) | KeyRest::Name(name)) = key.rest else {
            return None;
        };
        let name = String::from_utf8_lossy(name).into_owned();
        let (folder, is_orphan) = paths.folder(key.id.0, reader);
        Some(RecoveredFile {
            attributes: Attributes::plain(NodeId(record.id()), FileKind::File),
            path: join(&folder, &name),
            is_orphan,
            is_earlier_version: false,
            source: RecordSource::OldNode,
            record_offset: self.store.offset(record.paddr()),
            transaction: Some(record.xid),
            certainty: Certainty::NameOnly,
            losses: Vec::new(),
            runs: Vec::new(),
            xattrs: Vec::new(),
            contents: FoundContents::none(),
        })
    }

    fn attributes(&self, id: u64, reader: &mut NodeReader<'_>) -> FoundAttributes {
        let mut found = FoundAttributes::default();
        let mut names: Vec<Vec<u8>> = Vec::new();
        for record in self.found.of(id, record_type::XATTR).iter().take(4096) {
            let Some(node) = reader.read(record.paddr()) else {
                continue;
            };
            let Some((key, value)) = node.record(record.index()) else {
                continue;
            };
            let Some(KeyRest::Name(name)) = RecordKey::parse(key, self.hashed).map(|key| key.rest)
            else {
                continue;
            };
            // The first is the newest.
            if names.iter().any(|known| known == name) {
                continue;
            }
            names.push(name.to_vec());
            found.parsed.extend(Xattr::parse(name, value));
            let text = String::from_utf8_lossy(name).into_owned();
            match (XattrValue::parse(value), &*text) {
                (Some(XattrValue::Embedded(value)), xattr_name::DECMPFS) => {
                    found.compression = Some(value.to_vec());
                }
                (Some(XattrValue::Embedded(value)), xattr_name::RESOURCE_FORK) => {
                    found.resource_value = Some(value.to_vec());
                }
                (Some(XattrValue::Stream(at)), xattr_name::RESOURCE_FORK) => {
                    found.resource = Some((at.stream_id.get(), at.stream.size.get()));
                }
                (_, xattr_name::SYMLINK) => {}
                (Some(XattrValue::Embedded(value)), _)
                    if !text.starts_with("com.apple.system.") =>
                {
                    found.values.push((text, value.to_vec()));
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the newest extents of a stream that were found.
    fn stream(&self, id: u64, len: u64, reader: &mut NodeReader<'_>) -> FoundStream {
        let len = len.min(MAX_LEN);
        let block = u64::from(self.store.block_size.get());
        let mut pieces = BTreeMap::new();
        let records = self.found.of(id, record_type::FILE_EXTENT);
        for record in records.iter().take(MAX_RECORDS) {
            let Some(node) = reader.read(record.paddr()) else {
                continue;
            };
            let Some((key, value)) = node.record(record.index()) else {
                continue;
            };
            let Some(KeyRest::Number(start)) =
                RecordKey::parse(key, self.hashed).map(|key| key.rest)
            else {
                continue;
            };
            let Ok((extent, _)) = FileExtentRaw::read_from_prefix(value) else {
                continue;
            };
            let end = start.checked_add(extent.len());
            let is_sound = extent.len() > 0
                && start.is_multiple_of(block)
                && extent.len().is_multiple_of(block)
                && start < len;
            let Some(end) = end.filter(|_| is_sound) else {
                continue;
            };
            let piece = Piece {
                end,
                paddr: Some(extent.paddr.get()).filter(|&paddr| paddr != 0),
                is_unwritten: extent.flags() & extent_flags::UNWRITTEN != 0,
                crypto_id: extent.crypto_id.get(),
            };
            fill(&mut pieces, start, piece, block);
        }
        FoundStream { len, pieces }
    }

    /// Returns the runs of a stream for its judgment, without holes; parts that were not found have no
    /// place.
    fn runs(&self, fork: Fork, stream: &FoundStream) -> Vec<FileRun> {
        let (mut runs, mut at) = (Vec::new(), 0);
        for (&start, piece) in &stream.pieces {
            if start >= stream.len {
                break;
            }
            if at < start {
                runs.push(FileRun {
                    fork,
                    start: at,
                    len: start - at,
                    place: None,
                });
            }
            at = piece.end.min(stream.len);
            if let Some(paddr) = piece.paddr.filter(|_| !piece.is_unwritten) {
                runs.push(FileRun {
                    fork,
                    start,
                    len: at - start,
                    place: Some(self.store.offset(Paddr(paddr))),
                });
            }
        }
        if at < stream.len {
            runs.push(FileRun {
                fork,
                start: at,
                len: stream.len - at,
                place: None,
            });
        }
        runs
    }

    fn contents(
        &self,
        fork: Fork,
        found: &FoundStream,
        losses: &[LostRange],
    ) -> Arc<dyn BlockDevice> {
        let block = u64::from(self.store.block_size.get());
        let blocks = self.store.blocks;
        let runs: Vec<StreamRun> = found
            .pieces
            .iter()
            .filter_map(|(&start, piece)| {
                let len = piece.end - start;
                let end = piece.paddr?.checked_add(len / block);
                end.filter(|&end| end <= blocks)?;
                let stored = match piece.is_unwritten {
                    true => StoredRun::Unwritten,
                    false => StoredRun::Data {
                        at: self.store.offset(Paddr(piece.paddr?)),
                        crypto_id: piece.crypto_id,
                    },
                };
                Some(StreamRun { start, len, stored })
            })
            .collect();
        let mut stream = Stream::empty(self.store, self.cipher);
        stream.change(0..0, &runs, found.len);
        let lost = losses
            .iter()
            .filter(|loss| loss.fork == fork && !loss.range.is_empty())
            .map(|loss| loss.range.clone())
            .collect();
        Arc::new(Masked::new(Arc::new(stream), lost, found.len))
    }
}

impl FoundStream {
    fn empty() -> Self {
        Self {
            len: 0,
            pieces: BTreeMap::new(),
        }
    }
}

/// Adds the parts of a piece that no newer one covers.
fn fill(pieces: &mut BTreeMap<u64, Piece>, start: u64, piece: Piece, block: u64) {
    let part = |from: u64, end: u64| Piece {
        end,
        paddr: piece
            .paddr
            .map(|paddr| paddr.saturating_add((from - start) / block)),
        crypto_id: piece.crypto_id.wrapping_add((from - start) / block),
        ..piece
    };
    let before = pieces.range(..=start).next_back();
    let mut at = before.map_or(start, |(_, before)| before.end.max(start));
    if at >= piece.end {
        return;
    }
    let mut gaps = Vec::new();
    for (&next, newer) in pieces.range(at..piece.end) {
        if at < next {
            gaps.push((at, next));
        }
        at = newer.end;
    }
    if at < piece.end {
        gaps.push((at, piece.end));
    }
    for (from, end) in gaps {
        pieces.insert(from, part(from, end));
    }
}
