//! The check of a volume: every descriptor is right, both volume descriptor sequences agree, and every
//! file has its blocks to itself.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::attributes::{FileExtras, ResourceFork, each_stream};
use super::directory::{DirectoryItem, DirectoryReader, FoundName};
use super::extents::{ExtentList, open_contents};
use super::file_system::kind_of;
use super::icb::UdfFile;
use super::layout::{allocation, extent_kind, icb_flags, icb_strategy};
use super::owners::BlockOwners;
use super::recognition::{FIRST_ANCHOR, anchors};
use super::sequence::VolumeDescriptors;
use super::space::BlockAddress;
use super::space_bitmap::SpaceBitmap;
use super::{LAYER, UdfVolume, VolumeStructures};
use crate::FileKind;
use crate::clusters::{ClusterFindings, path_of};

/// Bytes of a bitmap that are compared at a time.
const PIECE: u64 = 64 << 10;
/// Maximum number of folders in a path that is reported.
const MAX_PARTS: usize = 64;
/// Maximum number of files with another number of names that are reported.
const MAX_WRONG: usize = 1000;
/// The root folder, and the volume's own files.
const ROOT: NamePlace<'_> = NamePlace {
    folder: 0,
    name: "",
};

/// Returns the problems of a volume. An error is damage that prevents any check.
///
/// Memory grows with the number of files and, by a bit each, of blocks. Contents have no checksums and
/// are not read.
pub fn check(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    progress.stage("folders", 0);
    let mut found = ClusterFindings::new(LAYER, progress);
    let structures = VolumeStructures::read(&device)?;
    check_sequences(&*device, &structures, &mut found)?;
    if let Some(stated) = structures
        .stated_len()
        .filter(|stated| *stated > device.info().len)
    {
        let len = device.info().len;
        let message =
            format!("the volume has {stated} bytes by its descriptors, but space for {len}");
        found.add(
            Severity::Warning,
            Error::new(Kind::OutOfRange, LAYER, message),
        )?;
    }
    for fault in &structures.mapped.faults {
        found.add(Severity::Warning, fault.duplicate())?;
    }
    let own_files = (
        structures.mapped.files.clone(),
        structures.mapped.mirrors.clone(),
    );
    let integrity = structures.integrity.clone();
    if structures.mapped.table.is_none() {
        match &integrity {
            None => found.of_volume(
                Severity::Warning,
                "the volume has no integrity descriptor that can be read",
            )?,
            Some(integrity) if !integrity.is_closed => found.of_volume(
                Severity::Warning,
                "the volume was not cleanly unmounted: its integrity descriptor is open",
            )?,
            Some(_) => {}
        }
    }
    let descriptors = structures.descriptors.clone();
    let file_set = descriptors
        .logical
        .as_ref()
        .map(|logical| logical.raw.file_set);
    let volume = UdfVolume::from_structures(structures)?;
    let mut check = FileCheck {
        owners: BlockOwners::new(&volume.space)?,
        volume: &volume,
        found: &mut found,
        seen: HashMap::new(),
        unique_ids: HashSet::new(),
        folders: Vec::new(),
        ahead: Vec::new(),
    };
    if let Some(raw) = file_set {
        let blocks = u64::from(raw.len.bytes()).div_ceil(volume.space.block_size);
        check.take(raw.address.into(), blocks, "file set descriptor")?;
    }
    for icb in own_files.0 {
        match UdfFile::read(&volume.space, icb) {
            Ok(file) => check.take_file(ROOT, &file)?,
            Err(error) => check.found.add(Severity::Warning, error)?,
        }
    }
    for icb in own_files.1 {
        check.take(icb, 1, "mirror of the metadata file")?;
    }
    if let Some(icb) = volume.system_streams
        && let Err(error) = check.take_streams(icb)
    {
        check.found.add(Severity::Warning, error)?;
    }
    check.run()?;
    let is_whole = !check.found.is_full();
    let mut owners = check.owners;
    if is_whole {
        for (index, partition) in volume.space.partitions.iter().enumerate() {
            let (Some(range), Ok(index)) = (partition.range(), u16::try_from(index)) else {
                continue;
            };
            let Some(raw) = descriptors.partitions.get(&range.number) else {
                continue;
            };
            let opened = SpaceBitmap::open(&volume.space, index, &raw.header.free_bitmap);
            match opened {
                Err(error) => found.add(Severity::Damage, error)?,
                Ok(None) => {}
                Ok(Some(bitmap)) => {
                    let taken = owners.take(&volume.space, bitmap.at, bitmap.blocks);
                    if let Err(error) = taken {
                        found.add(Severity::Damage, error)?;
                    }
                    let free = compare_bitmap(
                        &bitmap,
                        owners.bits(index.into()),
                        range.blocks,
                        &mut found,
                    )?;
                    let counted = integrity.as_ref().filter(|integrity| integrity.is_closed);
                    let counted = counted.and_then(|integrity| {
                        integrity.free.get(usize::from(index)).copied().flatten()
                    });
                    if let Some(counted) = counted.filter(|counted| u64::from(*counted) != free) {
                        let message = format!(
                            "the integrity descriptor counts {counted} free blocks of partition \
                             {index}, its bitmap has {free}"
                        );
                        found.of_volume(Severity::Warning, message)?;
                    }
                }
            }
        }
    }
    Ok(found.into_problems())
}

/// Checks the anchors, and compares both volume descriptor sequences.
fn check_sequences(
    device: &dyn BlockDevice,
    structures: &VolumeStructures,
    found: &mut ClusterFindings<'_>,
) -> Result<()> {
    let used = &structures.anchor;
    let all = anchors(device, used.sector_size)?;
    if !all.iter().any(|anchor| anchor.sector == FIRST_ANCHOR) {
        let message = format!(
            "no anchor in sector {FIRST_ANCHOR}; that in sector {} is used",
            used.sector
        );
        found.of_volume(Severity::Warning, message)?;
    }
    let differs = |raw: &super::layout::AnchorRaw| {
        (raw.main, raw.reserve) != (used.raw.main, used.raw.reserve)
    };
    if let Some(other) = all.iter().find(|anchor| differs(&anchor.raw)) {
        let message = format!(
            "the anchors in sectors {} and {} differ",
            used.sector, other.sector
        );
        found.of_volume(Severity::Warning, message)?;
    }
    let read = |extent| VolumeDescriptors::read(device, used.sector_size, extent);
    let (main, reserve) = (read(used.raw.main)?, read(used.raw.reserve)?);
    for (what, sequence) in [("main", &main), ("reserve", &reserve)] {
        for (at, fault) in &sequence.faults {
            let message = format!("the {what} volume descriptor sequence is damaged: {fault}");
            found.add(Severity::Warning, Error::corrupt(LAYER, *at, message))?;
        }
        if sequence.faults.is_empty() && sequence.is_incomplete() {
            let message = format!(
                "the {what} volume descriptor sequence has no logical volume or no partition"
            );
            found.of_volume(Severity::Warning, message)?;
        }
    }
    if !main.is_incomplete() && !reserve.is_incomplete() && !main.agrees_with(&reserve) {
        let message = "the main and the reserve volume descriptor sequence differ";
        found.of_volume(Severity::Warning, message)?;
    }
    Ok(())
}

/// Compares a bitmap with the blocks that are in use. Returns the number of free blocks by the bitmap.
fn compare_bitmap(
    bitmap: &SpaceBitmap,
    owned: &[u8],
    blocks: u32,
    found: &mut ClusterFindings<'_>,
) -> Result<u64> {
    if bitmap.bits < blocks {
        let message = format!(
            "the space bitmap of partition {} has {} bits, expected {blocks}",
            bitmap.at.partition, bitmap.bits
        );
        found.of_volume(Severity::Damage, message)?;
    }
    let bits = u64::from(bitmap.bits.min(blocks));
    let (mut free, mut at) = (0, 0);
    let (mut lost, mut first_lost) = (0_u64, 0);
    let (mut used, mut first_used) = (0_u64, 0);
    let len = bitmap.len().min(bits.div_ceil(8));
    while at < len {
        let piece = bitmap.read(at, to_usize(PIECE.min(len - at)))?;
        for (number, &stored) in (at..).zip(&piece) {
            let valid = match bits - number * 8 {
                0..8 => (1_u8 << (bits - number * 8)) - 1,
                _ => 0xFF,
            };
            let owned = owned.get(to_usize(number)).copied().unwrap_or(0);
            free += u64::from((stored & valid).count_ones());
            let (both, none) = (stored & owned & valid, !stored & !owned & valid);
            if both != 0 {
                first_used = if used == 0 {
                    number * 8 + u64::from(both.trailing_zeros())
                } else {
                    first_used
                };
                used += u64::from(both.count_ones());
            }
            if none != 0 {
                first_lost = if lost == 0 {
                    number * 8 + u64::from(none.trailing_zeros())
                } else {
                    first_lost
                };
                lost += u64::from(none.count_ones());
            }
        }
        at += piece.len() as u64;
    }
    let partition = bitmap.at.partition;
    if used > 0 {
        let message = format!(
            "{used} blocks of files are marked as free in partition {partition}, the first of which is {first_used}"
        );
        found.of_volume(Severity::Damage, message)?;
    }
    if lost > 0 {
        let message = format!(
            "{lost} blocks are marked as used in partition {partition} and belong to no file, the first of which is {first_lost}"
        );
        found.of_volume(Severity::Note, message)?;
    }
    Ok(free)
}

/// An object that was found.
#[derive(Debug)]
struct SeenObject {
    is_folder: bool,
    /// Number of names by its file entry.
    links: u16,
    /// Number of names that were found.
    names: u32,
    /// The last name if that is not the only one, and its folder.
    last: Option<(usize, String)>,
}

/// A folder that was found.
#[derive(Debug)]
struct FoundFolder {
    /// Index of its parent.
    parent: usize,
    name: String,
}

/// The name of an object in a folder.
#[derive(Debug, Clone, Copy)]
struct NamePlace<'a> {
    /// Index of the folder.
    folder: usize,
    name: &'a str,
}

struct FileCheck<'a, 'b> {
    volume: &'a UdfVolume,
    owners: BlockOwners,
    found: &'a mut ClusterFindings<'b>,
    seen: HashMap<BlockAddress, SeenObject>,
    unique_ids: HashSet<u64>,
    /// All folders by their index, the root first. Paths are made of them when they are needed.
    folders: Vec<FoundFolder>,
    /// Folders that are still to be checked: index, ICB, ICB of the parent.
    ahead: Vec<(usize, BlockAddress, BlockAddress)>,
}

impl FileCheck<'_, '_> {
    fn run(&mut self) -> Result<()> {
        let root = self.volume.root;
        self.check_object(ROOT, root, root, true)?;
        // Directories share no bytes, so that together they are not longer than the volume.
        let mut room = self.volume.space.device.info().len;
        while let Some((folder, icb, parent)) = self.ahead.pop() {
            self.found.advance()?;
            if self.found.is_full() {
                return Ok(());
            }
            if let Err(error) = self.check_folder(folder, icb, parent, &mut room) {
                self.found.failed(&self.folder_path(folder), error)?;
            }
        }
        let mut wrong = Vec::new();
        for seen in std::mem::take(&mut self.seen).into_values() {
            if let Some((folder, name)) = seen.last
                && !seen.is_folder
                && u32::from(seen.links) != seen.names
            {
                let message = format!("has {} names, expected {}", seen.names, seen.links);
                let name = &name;
                wrong.push((self.path(NamePlace { folder, name }), message));
            }
            if wrong.len() >= MAX_WRONG {
                break;
            }
        }
        wrong.sort_unstable();
        for (path, message) in wrong {
            self.found.of_path(Severity::Warning, &path, message)?;
        }
        Ok(())
    }

    /// Returns the path of a folder; of one that is very deep only the end.
    fn folder_path(&self, folder: usize) -> String {
        let (mut parts, mut at) = (Vec::new(), folder);
        while at != 0 {
            let Some(found) = self.folders.get(at) else {
                break;
            };
            if parts.len() == MAX_PARTS {
                parts.push("...");
                break;
            }
            parts.push(&found.name);
            at = found.parent;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    fn path(&self, place: NamePlace<'_>) -> String {
        match place.name {
            "" => self.folder_path(place.folder),
            name => path_of(&self.folder_path(place.folder), name),
        }
    }

    /// Records what is wrong with an object.
    fn note(
        &mut self,
        severity: Severity,
        place: NamePlace<'_>,
        message: impl Into<String>,
    ) -> Result<()> {
        let path = self.path(place);
        self.found.of_path(severity, &path, message)
    }

    fn check_folder(
        &mut self,
        folder: usize,
        icb: BlockAddress,
        parent: BlockAddress,
        room: &mut u64,
    ) -> Result<()> {
        let space = &self.volume.space;
        let file = UdfFile::read(space, icb)?;
        let mut reader = DirectoryReader::new(space, &file)?;
        *room = room.checked_sub(reader.len()).ok_or_else(|| {
            Error::new(
                Kind::Corrupt,
                LAYER,
                "directories are longer than the volume",
            )
        })?;
        let place = NamePlace { folder, name: "" };
        let extents = ExtentList::read(space, &file)?;
        let (mut names, mut is_first) = (HashSet::new(), true);
        let mut misplaced = 0_u64;
        while let Some(item) = reader.read_next()? {
            if self.found.is_full() {
                return Ok(());
            }
            let name = match item {
                DirectoryItem::Name(name) => name,
                DirectoryItem::Unreadable(error) => {
                    self.failed(place, error)?;
                    is_first = false;
                    continue;
                }
            };
            let block = block_of(&file, &extents, name.offset, space.block_size);
            misplaced += u64::from(block.is_some_and(|block| block != name.tag.location.get()));
            if is_first && (!name.is_parent() || name.icb != Some(parent)) {
                let message = "the first entry of the folder does not refer to its parent";
                self.note(Severity::Warning, place, message)?;
            }
            is_first = false;
            if name.is_object() {
                self.check_name(folder, icb, &name, &mut names)?;
            }
        }
        if misplaced > 0 {
            let message =
                format!("{misplaced} entries of the folder have tags with another location");
            self.note(Severity::Note, place, message)?;
        }
        Ok(())
    }

    fn check_name(
        &mut self,
        folder: usize,
        parent: BlockAddress,
        found: &FoundName,
        names: &mut HashSet<u64>,
    ) -> Result<()> {
        let name = &*found.name;
        let place = NamePlace { folder, name };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        if !names.insert(hasher.finish()) {
            let message = "another entry of the folder has the same name";
            self.note(Severity::Damage, place, message)?;
        }
        match found.icb {
            Some(icb) => self.check_object(place, icb, parent, found.is_directory()),
            None => self.note(Severity::Damage, place, "the entry has no file entry"),
        }
    }

    fn check_object(
        &mut self,
        place: NamePlace<'_>,
        icb: BlockAddress,
        parent: BlockAddress,
        is_directory: bool,
    ) -> Result<()> {
        let last = Some((place.folder, place.name.to_owned()));
        if let Some(seen) = self.seen.get_mut(&icb) {
            seen.names = seen.names.saturating_add(1);
            seen.last = last;
            if seen.is_folder {
                let message = "the folder contains itself, or has two names";
                self.note(Severity::Damage, place, message)?;
            }
            return Ok(());
        }
        let file = match UdfFile::read(&self.volume.space, icb) {
            Ok(file) => file,
            Err(error) => return self.failed(place, error),
        };
        let kind = kind_of(&file);
        let is_folder = kind == Some(FileKind::Folder);
        self.seen.insert(
            icb,
            SeenObject {
                is_folder,
                links: file.links,
                names: 1,
                last: last.filter(|_| file.links != 1),
            },
        );
        if kind.is_none() {
            let message = format!("files of type {} are not supported", file.icb.kind);
            return self.failed(place, Error::unsupported(LAYER, message));
        }
        if is_folder != is_directory {
            let message = "the entry and the file entry disagree on whether it is a folder";
            self.note(Severity::Damage, place, message)?;
        }
        if file.unique_id != 0 && !self.unique_ids.insert(file.unique_id) {
            let message = format!("another file has the unique number {}, too", file.unique_id);
            self.note(Severity::Warning, place, message)?;
        }
        self.take_file(place, &file)?;
        if let Err(error) = self.check_extras(place, &file) {
            self.failed(place, error)?;
        }
        if is_folder {
            let folder = self.folders.len();
            self.folders.push(FoundFolder {
                parent: place.folder,
                name: place.name.to_owned(),
            });
            self.ahead.push((folder, icb, parent));
        }
        Ok(())
    }

    /// Checks the extended attributes and the streams of a file.
    fn check_extras(&mut self, place: NamePlace<'_>, file: &UdfFile) -> Result<()> {
        let space = &self.volume.space;
        for icb in [file.attributes_icb, file.streams_icb]
            .into_iter()
            .flatten()
        {
            self.take_file(place, &UdfFile::read(space, icb)?)?;
        }
        let extras = FileExtras::read(space, file)?;
        let mut streams: Vec<_> = extras.streams.into_iter().map(|(_, icb)| icb).collect();
        if let Some(ResourceFork::Stream(icb)) = extras.resource {
            streams.push(icb);
        }
        for icb in streams {
            self.take_file(place, &UdfFile::read(space, icb)?)?;
        }
        Ok(())
    }

    /// Takes the blocks of the streams that belong to the volume.
    fn take_streams(&mut self, icb: BlockAddress) -> Result<()> {
        let space = &self.volume.space;
        let directory = UdfFile::read(space, icb)?;
        self.take_file(ROOT, &directory)?;
        let mut streams = Vec::new();
        each_stream(space, &directory, &mut |_, icb| {
            streams.push(icb);
            ControlFlow::Continue(())
        })?;
        for icb in streams {
            self.take_file(ROOT, &UdfFile::read(space, icb)?)?;
        }
        Ok(())
    }

    /// Takes the blocks of a file, and compares them with its length.
    fn take_file(&mut self, place: NamePlace<'_>, file: &UdfFile) -> Result<()> {
        match self.take_blocks(place, file) {
            Err(error) => self.failed(place, error),
            Ok(()) => Ok(()),
        }
    }

    fn take_blocks(&mut self, place: NamePlace<'_>, file: &UdfFile) -> Result<()> {
        let space = &self.volume.space;
        let icb_blocks = if file.icb.strategy.get() == icb_strategy::CHAIN {
            2
        } else {
            1
        };
        for icb in file.older.iter().chain([&file.address]) {
            self.owners.take(space, *icb, icb_blocks)?;
        }
        open_contents(space, file)?.check_places()?;
        let list = ExtentList::read(space, file)?;
        for table in &list.tables {
            self.owners.take(space, *table, 1)?;
        }
        let mut recorded = 0;
        for extent in &list.extents {
            let blocks = extent.len.div_ceil(space.block_size);
            match extent.kind {
                extent_kind::RECORDED => recorded += blocks,
                extent_kind::ALLOCATED => {}
                _ => continue,
            }
            self.owners.take(space, extent.at, blocks)?;
        }
        let is_embedded = file.icb.flags.get() & icb_flags::ALLOCATION == allocation::EMBEDDED;
        if file.blocks != recorded && !is_embedded {
            let message = format!("has {recorded} recorded blocks, expected {}", file.blocks);
            self.note(Severity::Note, place, message)?;
        }
        Ok(())
    }

    /// Takes blocks of the volume's own structures.
    fn take(&mut self, at: BlockAddress, blocks: u64, what: &str) -> Result<()> {
        match self.owners.take(&self.volume.space, at, blocks) {
            Ok(()) => Ok(()),
            Err(error) => {
                let message = format!("the {what}: {}", error.message());
                self.found.of_volume(Severity::Damage, message)
            }
        }
    }

    /// Records an error about an object. What is not supported is no damage.
    fn failed(&mut self, place: NamePlace<'_>, error: Error) -> Result<()> {
        let path = self.path(place);
        match error.kind() {
            Kind::Unsupported => {
                let error = error.about(Subject::Path(path));
                self.found.add(Severity::Note, error)
            }
            _ => self.found.failed(&path, error),
        }
    }
}

/// Returns the block of a file's byte in its partition. `None`: it has none.
fn block_of(file: &UdfFile, list: &ExtentList, offset: u64, block_size: u64) -> Option<u32> {
    if list.extents.is_empty() {
        return Some(file.address.block);
    }
    let mut start = 0;
    for extent in &list.extents {
        if offset < start + extent.len {
            return Some(extent.at.plus((offset - start) / block_size)?.block);
        }
        start += extent.len;
    }
    None
}
