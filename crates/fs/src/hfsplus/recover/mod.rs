//! Files of a volume that its trees do not refer to any more: records in the unused parts of nodes, in
//! nodes that were freed, and in old transactions of the journal. If the trees are damaged, all records in
//! them.
//!
//! Memory: 24 bytes for each file record that is found, 16 for each folder, thread and attribute, 4 for
//! each object that exists.

mod area;
mod assemble;
mod carve;
mod found;
mod live;
mod paths;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use self::area::{Area, RecordPlace, parts};
use self::assemble::Assembler;
use self::carve::{Carved, Limits};
use self::found::{AttributeEntry, FoundRecords, NameEntry, OverflowEntry};
use self::live::LiveObjects;
use self::paths::FolderPaths;
use super::extents::{ForkDevice, ForkSpace, Owner};
use super::header::{self, LocatedHeader};
use super::journal::Journal;
use super::layout::{
    Cnid, Extent, ForkRaw, VolumeHeader, extents_of, fork_type, volume_attributes,
};
use super::overflow::Overflow;
use super::{HfsPlus, replay};
use crate::free::FreeMap;
use crate::recovered::paths::KnownPaths;
use crate::recovered::{BlockSet, Judge};
use crate::{EachRecovered, RecoverySummary};
use bandsaw_core::device::{BlockDevice, Slice};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

/// Largest number of problems that are kept.
const MAX_PROBLEMS: usize = 100;

/// A volume to be searched for files. Nothing is written to it.
#[derive(Debug)]
pub struct HfsPlusRecovery {
    space: ForkSpace,
    /// The device that the volume was opened on.
    device: Arc<dyn BlockDevice>,
    /// Offset of the volume on it, in bytes.
    start: u64,
    header: VolumeHeader,
    /// `None` if the volume does not open.
    volume: Option<HfsPlus>,
    problems: Vec<Error>,
}

/// The live part of a volume.
struct LiveVolume<'a> {
    volume: &'a HfsPlus,
    objects: LiveObjects,
}

impl HfsPlusRecovery {
    /// Opens the volume that begins at the first byte of `device` and ends with its last, even if its
    /// trees are damaged. One of its headers must be valid.
    pub fn open(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut located = header::locate(device.clone())?;
        replay(&mut located)?;
        let LocatedHeader {
            device: inner,
            start,
            header,
            mut problems,
        } = located;
        let space = ForkSpace {
            device: inner,
            block_size: header.block_size,
            total_blocks: header.total_blocks,
        };
        let volume = match HfsPlus::open(device.clone()) {
            Ok(volume) => Some(volume),
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => {
                problems.push(error);
                None
            }
        };
        Ok(Self {
            space,
            device,
            start,
            header,
            volume,
            problems,
        })
    }

    /// Returns the volume, if it opens.
    pub fn volume(&self) -> Option<&HfsPlus> {
        self.volume.as_ref()
    }

    /// Searches the volume, and calls `each` for the files that were found, those with the newest records
    /// first.
    pub fn scan(
        &self,
        progress: &dyn Progress,
        each: &mut EachRecovered<'_>,
    ) -> Result<RecoverySummary> {
        let mut summary = RecoverySummary {
            problems: self.problems.iter().map(Error::duplicate).collect(),
            ..RecoverySummary::default()
        };
        let live = self.live(progress, &mut summary)?;
        summary.is_damaged = live.is_none();
        let limits = Limits {
            block_size: self.header.block_size,
            total_blocks: self.header.total_blocks,
        };
        let mut areas = self.areas(&mut summary);
        let total: u64 = areas.iter().map(|area| area.device().info().len).sum();
        progress.stage("search", total);
        let mut found = FoundRecords::default();
        for number in 0..areas.len() {
            self.search(
                &areas,
                number,
                live.as_ref(),
                limits,
                &mut found,
                &mut summary,
                progress,
            )?;
        }
        if live.is_none() && found.files.is_empty() {
            // The place of the catalog is unknown, or it was overwritten.
            areas.push(Area::Volume(self.space.device.clone()));
            progress.stage("search all of the volume", self.space.device.info().len);
            let last = areas.len() - 1;
            self.search(
                &areas,
                last,
                None,
                limits,
                &mut found,
                &mut summary,
                progress,
            )?;
        }
        let is_live = |id| live.as_ref().is_some_and(|live| live.objects.has(id));
        found.sort(&is_live);
        let free = self.free_map(live.as_ref(), &mut summary);
        let assembler = Assembler {
            space: &self.space,
            start: self.start,
            areas: &areas,
            limits,
            found: &found,
            is_damaged: live.is_none(),
            live: live.as_ref().map(|live| (live.volume, &live.objects)),
        };
        let mut paths = FolderPaths {
            live: live.as_ref().map(|live| (live.volume, &live.objects)),
            areas: &areas,
            limits,
            known: KnownPaths::new(Cnid::ROOT.0),
        };
        let block_size = u64::from(self.header.block_size);
        let mut judge = Judge {
            free,
            device: self.device.clone(),
            block_size,
            start: self.start,
            end: self.start + u64::from(self.header.total_blocks) * block_size,
            is_damaged: live.is_none(),
            claimed: BlockSet::default(),
        };
        progress.stage("judge", (found.files.len() + found.threads.len()) as u64);
        for entry in &found.files {
            progress.check()?;
            progress.advance(1);
            if let Some(file) = assembler.file(entry, &mut judge, &mut paths)? {
                summary.files += 1;
                each(file)?;
            }
        }
        for thread in &found.threads {
            progress.advance(1);
            if let Some(file) = assembler.name(thread, &mut paths) {
                summary.files += 1;
                each(file)?;
            }
        }
        Ok(summary)
    }

    /// Reads the objects that exist; `None` if the catalog cannot be read as a whole.
    fn live(
        &self,
        progress: &dyn Progress,
        summary: &mut RecoverySummary,
    ) -> Result<Option<LiveVolume<'_>>> {
        let Some(volume) = &self.volume else {
            return Ok(None);
        };
        match LiveObjects::read(volume, progress) {
            Ok(objects) => Ok(Some(LiveVolume { volume, objects })),
            Err(error) if error.kind() == Kind::Cancelled => Err(error),
            Err(error) => {
                summary.problems.push(error);
                Ok(None)
            }
        }
    }

    /// Returns the map of free blocks; `None` if it cannot be read.
    fn free_map(
        &self,
        live: Option<&LiveVolume<'_>>,
        summary: &mut RecoverySummary,
    ) -> Option<Box<dyn FreeMap>> {
        let map = match (live, &self.volume) {
            (Some(live), _) => live.volume.free_map(),
            (None, Some(volume)) => volume.free_map(),
            (None, None) => HfsPlus::bitmap_of(&self.space, &self.header, self.start),
        };
        match map {
            Ok(map) => Some(Box::new(map)),
            Err(error) => {
                summary.problems.push(error);
                None
            }
        }
    }

    /// Returns the parts of the volume that are searched.
    fn areas(&self, summary: &mut RecoverySummary) -> Vec<Area> {
        let raw = &self.header.raw;
        let overflow = Overflow::open(&self.space, &raw.extents_file).ok();
        let file = |fork: &ForkRaw, id, name| -> Option<ForkDevice> {
            if fork.total_blocks.get() == 0 {
                return None;
            }
            let mut more = |block| match &overflow {
                Some(tree) => tree.get(id, fork_type::DATA, block),
                None => Ok(None),
            };
            let whole = self.space.fork(fork, &Owner::Special(name), &mut more);
            Some(whole.unwrap_or_else(|_| self.readable_part(fork)))
        };
        let mut areas = Vec::new();
        areas.extend(file(&raw.catalog_file, Cnid::CATALOG, "catalog file").map(Area::Catalog));
        areas.extend(file(&raw.extents_file, Cnid::EXTENTS, "extents file").map(Area::Extents));
        let attributes = file(&raw.attributes_file, Cnid::ATTRIBUTES, "attributes file");
        areas.extend(attributes.map(Area::Attributes));
        if self.header.has(volume_attributes::JOURNALED) {
            match self.journal() {
                Ok(journal) => areas.extend(journal.map(Area::Journal)),
                Err(error) => summary.problems.push(error),
            }
        }
        areas
    }

    /// Returns the bytes of a fork in the extents of its own record that are within the volume.
    fn readable_part(&self, fork: &ForkRaw) -> ForkDevice {
        let total = u64::from(self.header.total_blocks);
        let extents: Vec<Extent> = extents_of(&fork.extents)
            .take_while(|extent| extent.end() <= total)
            .collect();
        let blocks: u64 = extents.iter().map(|extent| u64::from(extent.count)).sum();
        let len = blocks * u64::from(self.header.block_size);
        self.space.device_over(&extents, len)
    }

    fn journal(&self) -> Result<Option<Slice>> {
        let Some(journal) = Journal::find(&self.space.device, &self.header)? else {
            return Ok(None);
        };
        Slice::new(self.space.device.clone(), journal.ring()).map(Some)
    }

    /// Adds the records of area `number` to `found`.
    #[expect(clippy::too_many_arguments, reason = "the state of one scan")]
    fn search(
        &self,
        areas: &[Area],
        number: usize,
        live: Option<&LiveVolume<'_>>,
        limits: Limits,
        found: &mut FoundRecords,
        summary: &mut RecoverySummary,
        progress: &dyn Progress,
    ) -> Result<()> {
        let area = &areas[number];
        let problems = &mut summary.problems;
        let mut failed = |error: Error| {
            if problems.len() < MAX_PROBLEMS {
                problems.push(error);
            }
        };
        let node_size = match (area, live) {
            (Area::Catalog(_), Some(live)) => Some(live.volume.catalog.tree().node_size()),
            _ => None,
        };
        let is_live = |id| live.is_some_and(|live| live.objects.has(id));
        let slack = |node: u32, bytes: &[u8]| -> Option<Range<usize>> {
            live.and_then(|live| live.objects.slack(node, bytes))
        };
        let searched = area.pieces(progress, &mut failed, &mut |at, bytes, own| {
            for (part, is_slack) in parts(at, bytes, own, node_size, &slack) {
                // A record may reach past the end of its part only where parts are no nodes.
                let end = if node_size.is_some() {
                    part.end
                } else {
                    bytes.len()
                };
                let within = &bytes[..end];
                let mut from = part.start.next_multiple_of(2);
                while from < part.end {
                    let place = RecordPlace::new(number, at + from as u64, is_slack);
                    let len = record(area, &within[from..], limits, &is_live, place, found);
                    from += len.map_or(2, |len| len.next_multiple_of(2).max(2));
                }
            }
            Ok(())
        })?;
        summary.searched += searched;
        Ok(())
    }
}

/// Adds the record at the beginning of `bytes`, and returns its length if it is one.
fn record(
    area: &Area,
    bytes: &[u8],
    limits: Limits,
    is_live: &dyn Fn(u32) -> bool,
    place: RecordPlace,
    found: &mut FoundRecords,
) -> Option<usize> {
    let is_any = matches!(area, Area::Journal(_) | Area::Volume(_));
    if (is_any || matches!(area, Area::Catalog(_)))
        && let Some((carved, len)) = carve::catalog(bytes, limits)
    {
        add(carved, limits, is_live, place, found);
        return Some(len);
    }
    if (is_any || matches!(area, Area::Extents(_)))
        && let Some(record) = carve::overflow(bytes, limits)
    {
        let id = record.key.file_id.get();
        if !is_live(id) {
            found.overflow.push(OverflowEntry {
                id,
                start: record.key.start_block.get(),
                fork: record.key.fork_type,
                place,
            });
        }
        return Some(size_of_val(&record));
    }
    if (is_any || matches!(area, Area::Attributes(_)))
        && let Some((key, _, len)) = carve::attribute(bytes)
    {
        let id = key.file.0;
        if !is_live(id) {
            found.attributes.push(AttributeEntry { id, place });
        }
        return Some(len);
    }
    None
}

/// Adds a record of the catalog. Records of folders that exist, and threads of objects that do, are not needed.
fn add(
    carved: Carved<'_>,
    limits: Limits,
    is_live: &dyn Fn(u32) -> bool,
    place: RecordPlace,
    found: &mut FoundRecords,
) {
    match carved {
        Carved::File(_, file) => found.add_file(file, limits.block_size, place),
        Carved::Folder(_, folder) if !is_live(folder.folder_id.get()) => {
            found.add_folder(folder, place);
        }
        Carved::Thread(id, thread) if !is_live(id.0) => {
            let entry = NameEntry {
                id: id.0,
                date: 0,
                place,
            };
            match thread.folder {
                true => found.folders.push(entry),
                false => found.threads.push(entry),
            }
        }
        Carved::Folder(..) | Carved::Thread(..) => {}
    }
}
