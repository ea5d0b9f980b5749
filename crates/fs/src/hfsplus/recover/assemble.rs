//! A file from the records that were found of it.

use std::sync::Arc;

use super::area::{Area, RecordPlace};
use super::carve::{self, Carved, Limits, MAX_RECORD};
use super::found::{FileEntry, FoundRecords, NameEntry};
use super::live::LiveObjects;
use super::paths::FolderPaths;
use crate::hfsplus::catalog::Object;
use crate::hfsplus::extents::ForkSpace;
use crate::hfsplus::layout::{
    CatalogKey, Cnid, Extent, FILE_LINK_TYPE, FOLDER_LINK_TYPE, FileRaw, ForkRaw, extents_of,
    fork_type,
};
use crate::hfsplus::unicode::{decode_attribute_name, decode_name};
use crate::hfsplus::{HfsPlus, stat};
use crate::recovered::{
    Certainty, FileRun, FoundContents, Judge, LossReason, LostRange, Masked, RecoveredFile,
    apply_compression, join,
};
use crate::{Attributes, FINDER_INFO, FileKind, Fork, NodeId, UF_COMPRESSED};
use bandsaw_core::Result;
use bandsaw_core::decmpfs::{self, Compression};
use bandsaw_core::device::BlockDevice;

/// Most bytes of an attribute's record that are read.
const MAX_ATTRIBUTE: usize = 4096;
/// Most attributes of a file that are looked at.
const MAX_ATTRIBUTES: usize = 1000;
/// Largest number of records of extents of a fork: far more than a real file has.
const MAX_EXTENT_RECORDS: usize = 1 << 20;

/// Assembles files.
pub(super) struct Assembler<'a> {
    pub(super) space: &'a ForkSpace,
    /// Offset of the volume on the device that was scanned, in bytes.
    pub(super) start: u64,
    pub(super) areas: &'a [Area],
    pub(super) limits: Limits,
    pub(super) found: &'a FoundRecords,
    pub(super) is_damaged: bool,
    pub(super) live: Option<(&'a HfsPlus, &'a LiveObjects)>,
}

/// Attributes of a file that were found.
#[derive(Default)]
struct FoundAttributes {
    compression: Option<Vec<u8>>,
    others: Vec<(String, Vec<u8>)>,
}

impl Assembler<'_> {
    /// Assembles a file. `None`: it exists like this, or it is an older record without contents.
    pub(super) fn file(
        &self,
        entry: &FileEntry,
        judge: &mut Judge,
        paths: &mut FolderPaths<'_>,
    ) -> Result<Option<RecoveredFile>> {
        let Some(bytes) = self.read(entry.place, MAX_RECORD) else {
            return Ok(None);
        };
        let Some((Carved::File(key, file), _)) = carve::catalog(&bytes, self.limits) else {
            return Ok(None);
        };
        let is_live = self.live.is_some_and(|(_, live)| live.has(entry.id));
        if is_live && self.exists_like_this(entry.id, file) {
            return Ok(None);
        }
        let file = *file;
        let mut built = self.assembled(entry, key, &file, judge, paths)?;
        built.is_earlier_version = is_live;
        // Of an older record of a deleted file, a part is most likely a part of the newer one.
        let is_left = match built.certainty {
            Certainty::Whole | Certainty::Existing => true,
            Certainty::Partial => !entry.is_older,
            Certainty::NameOnly => !entry.is_older && !is_live,
        };
        Ok(is_left.then_some(built))
    }

    fn assembled(
        &self,
        entry: &FileEntry,
        key: CatalogKey<'_>,
        file: &FileRaw,
        judge: &mut Judge,
        paths: &mut FolderPaths<'_>,
    ) -> Result<RecoveredFile> {
        let (folder, is_orphan) = paths.folder(key.parent.0, self.found);
        let mut attributes = stat::attributes(&Object::File(*file), self.limits.block_size, 1);
        let mut found = self.attributes_of(entry.id);
        if let Some(info) = stat::finder_info(&Object::File(*file)) {
            found.others.push((FINDER_INFO.to_owned(), info.to_vec()));
        }
        let data = self.extents(entry.id, fork_type::DATA, &file.data_fork);
        let resource = self.extents(entry.id, fork_type::RESOURCE, &file.resource_fork);
        let mut runs = self.runs(Fork::Data, &data, &file.data_fork);
        runs.extend(self.runs(Fork::Resource, &resource, &file.resource_fork));
        let is_link = [FILE_LINK_TYPE, FOLDER_LINK_TYPE].contains(&file.kind());
        let mut judged = judge.judge(&runs, true)?;
        let is_compressed =
            attributes.flags & UF_COMPRESSED != 0 && attributes.kind == FileKind::File;
        let lost = |fork| LostRange {
            fork,
            range: 0..0,
            reason: LossReason::NoExtent,
        };
        let compression = found.compression.filter(|_| is_compressed);
        match &compression {
            Some(value) => apply_compression(&mut attributes, value),
            // The contents cannot be told from the resource fork alone. Those of a hard link are another
            // file's.
            None if is_compressed || is_link => {
                judged.certainty = Certainty::NameOnly;
                judged.losses.push(lost(Fork::Data));
            }
            None => {}
        }
        let contents = FoundContents {
            data: self.contents(Fork::Data, &data, &file.data_fork, &judged.losses),
            resource: self.contents(
                Fork::Resource,
                &resource,
                &file.resource_fork,
                &judged.losses,
            ),
            compression,
            target: None,
        };
        let area = &self.areas[entry.place.area()];
        Ok(RecoveredFile {
            attributes,
            path: join(&folder, &decode_name(key.name)),
            is_orphan,
            is_earlier_version: false,
            source: area.source(entry.place.is_slack(), self.is_damaged),
            record_offset: self.start + area.volume_offset(entry.place.at()),
            transaction: None,
            certainty: judged.certainty,
            losses: judged.losses,
            runs: judged.runs,
            xattrs: found.others,
            contents,
        })
    }

    /// Returns a file of which only the thread was found.
    pub(super) fn name(
        &self,
        entry: &NameEntry,
        paths: &mut FolderPaths<'_>,
    ) -> Option<RecoveredFile> {
        let bytes = self.read(entry.place, MAX_RECORD)?;
        let (Carved::Thread(_, thread), _) = carve::catalog(&bytes, self.limits)? else {
            return None;
        };
        let (folder, is_orphan) = paths.folder(thread.parent.0, self.found);
        let area = &self.areas[entry.place.area()];
        Some(RecoveredFile {
            attributes: Attributes::plain(NodeId(entry.id.into()), FileKind::File),
            path: join(&folder, &decode_name(thread.name)),
            is_orphan,
            is_earlier_version: false,
            source: area.source(entry.place.is_slack(), self.is_damaged),
            record_offset: self.start + area.volume_offset(entry.place.at()),
            transaction: None,
            certainty: Certainty::NameOnly,
            losses: Vec::new(),
            runs: Vec::new(),
            xattrs: Vec::new(),
            contents: FoundContents::none(),
        })
    }

    fn read(&self, place: RecordPlace, most: usize) -> Option<Vec<u8>> {
        self.areas.get(place.area())?.read(place.at(), most).ok()
    }

    /// Returns true if the file with this number has the same contents as `file`: both forks have the same
    /// sizes and places.
    fn exists_like_this(&self, id: u32, file: &FileRaw) -> bool {
        let Some((volume, _)) = self.live else {
            return false;
        };
        let Ok(Some(object)) = volume.catalog.by_id(Cnid(id)) else {
            return true; // nothing can be said about a number that is used twice
        };
        let Object::File(now) = object.object else {
            return true;
        };
        let is_same = |one: &ForkRaw, other: &ForkRaw| {
            one.logical_size == other.logical_size
                && carve::used_extents(one, self.limits.block_size)
                    .eq(carve::used_extents(other, self.limits.block_size))
        };
        is_same(&now.data_fork, &file.data_fork) && is_same(&now.resource_fork, &file.resource_fork)
    }

    /// Returns all extents of a fork that are known, in order, at most as many blocks as it has.
    fn extents(&self, id: u32, kind: u8, fork: &ForkRaw) -> Vec<Extent> {
        let wanted = fork.total_blocks.get();
        let mut extents: Vec<_> = extents_of(&fork.extents).collect();
        let mut blocks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        for _ in 0..MAX_EXTENT_RECORDS {
            let Some(block) = u32::try_from(blocks).ok().filter(|&block| block < wanted) else {
                break;
            };
            let next = self.found.overflow((id, kind, block)).last();
            let record = next
                .and_then(|place| self.read(place, MAX_RECORD))
                .and_then(|bytes| carve::overflow(&bytes, self.limits));
            let Some(record) = record else { break };
            for extent in extents_of(&record.extents) {
                blocks += u64::from(extent.count);
                extents.push(extent);
            }
        }
        extents
    }

    /// Returns the runs of a fork up to its logical size; the last has no place if extents are missing.
    fn runs(&self, fork: Fork, extents: &[Extent], raw: &ForkRaw) -> Vec<FileRun> {
        let len = raw.logical_size.get();
        let (mut runs, mut at) = (Vec::new(), 0);
        for extent in extents {
            let rest = len.saturating_sub(at);
            let bytes = u64::from(extent.count) * u64::from(self.limits.block_size);
            if rest == 0 {
                break;
            }
            runs.push(FileRun {
                fork,
                start: at,
                len: bytes.min(rest),
                place: Some(self.start + extent.start.offset(self.limits.block_size)),
            });
            at += bytes;
        }
        if at < len {
            runs.push(FileRun {
                fork,
                start: at,
                len: len - at,
                place: None,
            });
        }
        runs
    }

    fn contents(
        &self,
        fork: Fork,
        extents: &[Extent],
        raw: &ForkRaw,
        losses: &[LostRange],
    ) -> Arc<dyn BlockDevice> {
        let len = raw.logical_size.get();
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        let known = len.min(blocks * u64::from(self.limits.block_size));
        let device = self.space.device_over(extents, known);
        let lost = losses
            .iter()
            .filter(|loss| loss.fork == fork && !loss.range.is_empty())
            .map(|loss| loss.range.clone())
            .collect();
        Arc::new(Masked::new(Arc::new(device), lost, len))
    }

    fn attributes_of(&self, id: u32) -> FoundAttributes {
        let mut found = FoundAttributes::default();
        for place in self.found.attributes(id).take(MAX_ATTRIBUTES) {
            let Some(bytes) = self.read(place, MAX_ATTRIBUTE) else {
                continue;
            };
            let Some((key, value, _)) = carve::attribute(&bytes) else {
                continue;
            };
            let name = decode_attribute_name(key.name);
            if name == decmpfs::ATTRIBUTE {
                if Compression::parse(value).is_some() {
                    found.compression = Some(value.to_vec());
                }
            } else if !name.starts_with("com.apple.system.")
                && found.others.iter().all(|(other, _)| *other != name)
            {
                found.others.push((name, value.to_vec()));
            }
        }
        found
    }
}
