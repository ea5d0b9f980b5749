//! Changes of an exFAT volume in place.

use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::directory::{DirectoryItem, Items};
use super::file_system::{attributes_in, directory_of};
use super::free::{Bitmap, bitmap_clusters};
use super::layout::{
    BootRaw, CHANGING, FileRaw, MAX_DIRECTORY, NameRaw, REGION_SECTORS, StreamRaw, UNITS_PER_ENTRY,
    ZONE_IS_KNOWN, attributes, entry, flags, name_hash, set_sum, stored_time, stream_flags,
    table_sum,
};
use super::upcase::UpcaseTable;
use super::{ExFatVolume, LAYER, Structures, check_sum, free_map, read_upcase};
use crate::bitmap::{clear_bits, set_bits};
use crate::clusters::write::{
    EachSet, EntryBytes, FoundSet, FreeClusters, MutableClusters, Stream, WriteFormat, buffer,
};
use crate::clusters::{ClusterSpace, DirectoryPlace, ENTRY_LEN, FIRST, TableEntry};
use crate::{
    Attributes, Change, FileSystemMut, FreeMap, NewNode, SF_ARCHIVED, Timestamp, UF_HIDDEN,
    UF_IMMUTABLE, VolumeInfo,
};

/// Value of [`BootRaw::percent_used`] if it is not known.
const PERCENT_UNKNOWN: u8 = 0xFF;
/// Number of entries of a set after the first one: the clusters, and one to 17 parts of the name, and as many
/// others as fit.
const MIN_OTHERS: u8 = 2;

/// Opens the volume on all of `device` for changes. Nothing is written before the first change.
///
/// # Errors
///
/// [`Kind::Corrupt`] if the volume was not cleanly unmounted, its boot regions differ, or its bitmap or
/// up-case table is damaged; [`Kind::ReadOnly`] for a device that cannot be written.
pub fn open_mut(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystemMut>> {
    device.info().check_writable(LAYER)?;
    let buffer = buffer(device.clone());
    let volume = ExFatVolume::open(buffer.clone())?;
    let map = free_map(device.clone())?;
    if !map.is_in_order() {
        return Err(refused(
            "the volume was not cleanly unmounted, or records an error of the medium",
        ));
    }
    map.trusted()?;
    check_boot_copy(&*device, &volume)?;
    let structures = Structures::read(&volume.space, &volume.boot, false)?;
    let upcase = read_upcase(&volume.space, &structures.upcase)?;
    if table_sum(&upcase) != structures.upcase.upcase_sum() {
        return Err(refused("the up-case table is damaged"));
    }
    let bitmap = bitmap_clusters(&volume.space, &structures.bitmap)?;
    let bits = bitmap
        .contents
        .read_vec(0, to_usize(volume.space.clusters.div_ceil(8)))?;
    let clusters = FreeClusters::from_bits(bits, volume.space.clusters);
    let format = ExFatFormat {
        upcase: UpcaseTable::decode(&upcase)?,
        bitmap,
        volume,
    };
    Ok(Arc::new(MutableClusters::new(
        format, device, buffer, clusters,
    )))
}

/// Returns the error about a volume that is not changed.
fn refused(why: &str) -> Error {
    let message = format!("read-only: {why}; run `fsck.exfat` first");
    Error::new(Kind::Corrupt, LAYER, message)
}

/// Fails if the boot region differs from its copy.
fn check_boot_copy(device: &dyn BlockDevice, volume: &ExFatVolume) -> Result<()> {
    check_sum(device, &volume.boot, REGION_SECTORS)?;
    let read = |first: u64| -> Result<[u8; size_of::<BootRaw>()]> {
        let mut bytes: [u8; size_of::<BootRaw>()] =
            device.read_array(first * volume.boot.sector)?;
        CHANGING.into_iter().for_each(|range| bytes[range].fill(0));
        Ok(bytes)
    };
    match read(0)? == read(REGION_SECTORS)? {
        true => Ok(()),
        false => Err(refused("the boot sector differs from its copy")),
    }
}

/// The two entries of an object that describe it.
#[derive(Debug, Clone, Copy)]
struct ExFatRaw {
    file: FileRaw,
    stream: StreamRaw,
}

#[derive(Debug)]
struct ExFatFormat {
    /// The volume with all changes.
    volume: ExFatVolume,
    upcase: UpcaseTable,
    bitmap: Bitmap,
}

impl ExFatFormat {
    /// Changes the bits of clusters in the bitmap.
    fn mark(&self, clusters: Range<u64>, change: fn(&mut [u8], Range<usize>)) -> Result<()> {
        let bits = clusters.start - FIRST..clusters.end - FIRST;
        let first = bits.start / 8;
        let len = to_usize(bits.end.div_ceil(8) - first);
        let contents = &self.bitmap.contents;
        let mut bytes = contents.read_vec(first, len)?;
        change(
            &mut bytes,
            to_usize(bits.start - first * 8)..to_usize(bits.end - first * 8),
        );
        contents.overwrite(first, &bytes)
    }

    /// Returns the places of the entries of a set, which continue in the next cluster of the table, or
    /// in the adjacent one.
    fn places(&self, main: u64, count: usize, is_linked: bool) -> Result<Option<Vec<u64>>> {
        let space = &self.volume.space;
        let (mut at, mut places) = (main, Vec::with_capacity(count));
        let Some(mut cluster) = space.cluster_at(main) else {
            return Ok(None);
        };
        while places.len() < count {
            places.push(at);
            at += ENTRY_LEN as u64;
            if at == space.offset(cluster) + space.cluster_size && places.len() < count {
                let next = match is_linked {
                    true => match space.table.link(cluster)? {
                        TableEntry::Next(next) => Some(next),
                        _ => None,
                    },
                    false => Some(cluster + 1).filter(|next| space.has(*next)),
                };
                let Some(next) = next else {
                    return Ok(None);
                };
                (cluster, at) = (next, space.offset(next));
            }
        }
        Ok(Some(places))
    }

    /// Returns the object whose entries are at these places. `None`: there is no whole set.
    fn read_set(&self, places: &[u64]) -> Result<Option<ExFatRaw>> {
        let mut sum = 0;
        let (mut file, mut stream) = (None, None);
        for (number, &place) in places.iter().enumerate() {
            let bytes = self.volume.space.device.read_array::<ENTRY_LEN>(place)?;
            sum = set_sum(sum, &bytes, number == 0);
            match (number, bytes[0]) {
                (0, entry::FILE) => file = FileRaw::read_from_bytes(&bytes).ok(),
                (1, entry::STREAM) => stream = StreamRaw::read_from_bytes(&bytes).ok(),
                (2.., entry::VENDOR_CLUSTERS) => return Err(has_vendor_clusters(place)),
                (2.., _) => {}
                _ => return Ok(None),
            }
        }
        Ok(match (file, stream) {
            (Some(file), Some(stream)) if file.sum.get() == sum => Some(ExFatRaw { file, stream }),
            _ => None,
        })
    }
}

/// Returns the error about an object whose clusters are not all known.
fn has_vendor_clusters(place: u64) -> Error {
    let message = "read-only: an object of the folder has clusters of a vendor's extension";
    Error::unsupported(LAYER, message).at(place)
}

impl WriteFormat for ExFatFormat {
    type Raw = ExFatRaw;

    const LAYER: &'static str = LAYER;
    const MAX_FILE: u64 = u64::MAX >> 1;
    const MAX_FOLDER: u64 = MAX_DIRECTORY;
    const HAS_CONTIGUOUS: bool = true;

    fn space(&self) -> &ClusterSpace {
        &self.volume.space
    }

    fn name(&self) -> &'static str {
        "exFAT"
    }

    fn info(&self) -> VolumeInfo {
        self.volume.fixed_info()
    }

    fn root(&self) -> DirectoryPlace {
        self.volume.root.clone()
    }

    fn is_allocation(&self, offset: u64) -> bool {
        let space = &self.volume.space;
        let in_bitmap = |&(first, count): &(u64, u64)| {
            (space.offset(first)..space.offset(first + count)).contains(&offset)
        };
        offset < space.start || self.bitmap.numbers.iter().any(in_bitmap)
    }

    fn store_links(&self, first: u64, entries: &[u32]) -> Result<()> {
        self.volume.space.table.store(first, entries)
    }

    fn forget_links(&self) {
        self.volume.space.table.forget();
    }

    fn claim(&self, clusters: Range<u64>) -> Result<()> {
        self.mark(clusters, set_bits)
    }

    fn release(&self, clusters: Range<u64>) -> Result<()> {
        self.mark(clusters, clear_bits)
    }

    fn mark_dirty(&self, device: &dyn BlockDevice) -> Result<()> {
        let flags = self.volume.boot.flags | flags::DIRTY;
        device.write_at(offset_of!(BootRaw, flags) as u64, &flags.to_le_bytes())
    }

    fn mark_clean(&self, device: &dyn BlockDevice, free: u64, _next: u64) -> Result<()> {
        let place = offset_of!(BootRaw, percent_used) as u64;
        let [percent] = device.read_array(place)?;
        if percent != PERCENT_UNKNOWN {
            let clusters = self.volume.space.clusters;
            let used = (clusters - free) * 100 / clusters;
            device.write_at(place, &[narrow(used)])?;
        }
        let flags = self.volume.boot.flags & !flags::DIRTY;
        device.write_at(offset_of!(BootRaw, flags) as u64, &flags.to_le_bytes())
    }

    fn scan(&self, place: &DirectoryPlace, each: EachSet<'_, ExFatRaw>) -> Result<()> {
        let mut items = Items::new(&self.volume.space, place)?;
        while let Some(item) = items.read_next()? {
            match item {
                DirectoryItem::Set(set) => {
                    if let Some(fault) = set.fault {
                        return Err(Error::corrupt(LAYER, set.offset, fault));
                    }
                    if !set.others.is_empty() {
                        return Err(has_vendor_clusters(set.offset));
                    }
                    let found = FoundSet {
                        name: set.name(),
                        main: set.offset,
                        slots: set.slot..set.slot + 1 + u64::from(set.file.others),
                        raw: ExFatRaw {
                            file: set.file,
                            stream: set.stream,
                        },
                    };
                    if each(found)?.is_break() {
                        break;
                    }
                }
                DirectoryItem::Unreadable(offset, why) => {
                    return Err(Error::corrupt(LAYER, offset, why));
                }
                DirectoryItem::Bitmap(_) | DirectoryItem::Upcase(_) | DirectoryItem::Label(_) => {}
            }
        }
        Ok(())
    }

    fn locate(&self, main: u64) -> Result<Option<(ExFatRaw, Vec<u64>)>> {
        let space = &self.volume.space;
        let is_place = main.is_multiple_of(ENTRY_LEN as u64) && space.cluster_at(main).is_some();
        if !is_place {
            return Ok(None);
        }
        let first = space.device.read_array::<ENTRY_LEN>(main)?;
        let Ok(file) = FileRaw::read_from_bytes(&first) else {
            return Ok(None);
        };
        if file.kind != entry::FILE || file.others < MIN_OTHERS {
            return Ok(None);
        }
        // Links of contiguous clusters are undefined: the checksum tells where the set continues.
        for is_linked in [true, false] {
            let places = self.places(main, 1 + usize::from(file.others), is_linked)?;
            if let Some(places) = places
                && let Some(raw) = self.read_set(&places)?
            {
                return Ok(Some((raw, places)));
            }
        }
        Ok(None)
    }

    fn main_entry(&self, _count: usize) -> usize {
        0
    }

    fn folder_place(&self, raw: &ExFatRaw) -> Result<DirectoryPlace> {
        directory_of(&raw.stream)
    }

    fn is_folder(&self, raw: &ExFatRaw) -> bool {
        raw.file.attributes.get() & attributes::DIRECTORY != 0
    }

    fn stream(&self, raw: &ExFatRaw) -> Stream {
        let stream = &raw.stream;
        Stream {
            first: stream.first.get(),
            len: stream.len.get(),
            valid: stream.valid_len.get(),
            is_contiguous: stream.first.get() == 0 || stream.flags & stream_flags::CONTIGUOUS != 0,
        }
    }

    fn set_stream(&self, raw: &mut ExFatRaw, stream: Stream) {
        raw.stream.first = stream.first.into();
        raw.stream.len = stream.len.into();
        raw.stream.valid_len = stream.valid.into();
        raw.stream.flags = match stream.is_contiguous && stream.first != 0 {
            true => stream_flags::ALLOCATABLE | stream_flags::CONTIGUOUS,
            false => stream_flags::ALLOCATABLE,
        };
    }

    fn attributes(&self, raw: &ExFatRaw) -> Attributes {
        attributes_in(&raw.file)
    }

    fn new_raw(&self, new: &NewNode, is_folder: bool, now: Timestamp) -> ExFatRaw {
        let mut raw = ExFatRaw {
            file: FileRaw {
                kind: entry::FILE,
                attributes: match is_folder {
                    true => attributes::DIRECTORY,
                    false => attributes::ARCHIVE,
                }
                .into(),
                ..FileRaw::new_zeroed()
            },
            stream: StreamRaw {
                kind: entry::STREAM,
                flags: stream_flags::ALLOCATABLE,
                ..StreamRaw::new_zeroed()
            },
        };
        let date = Some(new.created.unwrap_or(now));
        let change = Change {
            created: date,
            modified: date,
            accessed: date,
            flags: Some(new.flags),
            ..Change::default()
        };
        self.apply(&mut raw, &change);
        raw
    }

    fn apply(&self, raw: &mut ExFatRaw, change: &Change) {
        let file = &mut raw.file;
        if let Some(created) = change.created {
            (file.created, file.created_hundredths) = stored_time(created);
            file.created_zone = ZONE_IS_KNOWN;
        }
        if let Some(modified) = change.modified {
            (file.modified, file.modified_hundredths) = stored_time(modified);
            file.modified_zone = ZONE_IS_KNOWN;
        }
        if let Some(accessed) = change.accessed {
            (file.accessed, _) = stored_time(accessed);
            file.accessed_zone = ZONE_IS_KNOWN;
        }
        if let Some(flags) = change.flags {
            let mut bits = file.attributes.get();
            for (flag, bit) in [
                (UF_IMMUTABLE, attributes::READ_ONLY),
                (UF_HIDDEN, attributes::HIDDEN),
            ] {
                match flags & flag {
                    0 => bits &= !bit,
                    _ => bits |= bit,
                }
            }
            if flags & SF_ARCHIVED != 0 {
                bits &= !attributes::ARCHIVE;
            }
            file.attributes = bits.into();
        }
    }

    fn touch(&self, raw: &mut ExFatRaw, now: Timestamp) {
        let change = Change {
            modified: Some(now),
            ..Change::default()
        };
        self.apply(raw, &change);
        raw.file.attributes = (raw.file.attributes.get() | attributes::ARCHIVE).into();
    }

    fn short_name(&self, _raw: &ExFatRaw) -> Option<[u8; 11]> {
        None
    }

    fn key(&self, name: &str) -> Vec<u16> {
        self.upcase.capitals(name)
    }

    fn new_entries(
        &self,
        raw: &ExFatRaw,
        name: &str,
        _short_names: HashSet<[u8; 11]>,
    ) -> Result<Vec<EntryBytes>> {
        let units: Vec<u16> = name.encode_utf16().collect();
        let parts = units.chunks(UNITS_PER_ENTRY);
        let file = FileRaw {
            others: narrow(1 + parts.len()),
            ..raw.file
        };
        let stream = StreamRaw {
            name_len: narrow(units.len()),
            name_hash: name_hash(self.upcase.capitals(name)).into(),
            ..raw.stream
        };
        let mut entries = vec![bytes_of(&file), bytes_of(&stream)];
        for part in parts {
            let mut named = NameRaw::new_zeroed();
            named.kind = entry::NAME;
            for (place, unit) in named.units.iter_mut().zip(part) {
                place.set(*unit);
            }
            entries.push(bytes_of(&named));
        }
        store_sum(&mut entries);
        Ok(entries)
    }

    fn update_entries(&self, raw: &ExFatRaw, entries: &mut [EntryBytes]) {
        if let [first, second, ..] = entries
            && let Ok(old_file) = FileRaw::read_from_bytes(first)
            && let Ok(old_stream) = StreamRaw::read_from_bytes(second)
        {
            *first = bytes_of(&FileRaw {
                others: old_file.others,
                ..raw.file
            });
            *second = bytes_of(&StreamRaw {
                name_len: old_stream.name_len,
                name_hash: old_stream.name_hash,
                ..raw.stream
            });
        }
        store_sum(entries);
    }

    fn new_folder(&self, _raw: &ExFatRaw, _parent: u32) -> Vec<EntryBytes> {
        Vec::new()
    }

    fn parent_entry(&self, _raw: &ExFatRaw, _parent: u32) -> Result<Option<(u64, EntryBytes)>> {
        Ok(None)
    }

    fn deleted(&self, entry: EntryBytes) -> EntryBytes {
        /// A file whose entry is not in use.
        const UNUSED: u8 = entry::FILE & !entry::IN_USE;
        let mut bytes = entry;
        bytes[0] = match bytes[0] & !entry::IN_USE {
            entry::END => UNUSED,
            kind => kind,
        };
        bytes
    }

    fn is_free(&self, entry: &EntryBytes) -> bool {
        entry[0] & entry::IN_USE == 0
    }
}

/// Sets the checksum of a set.
fn store_sum(entries: &mut [EntryBytes]) {
    let sum = entries
        .iter()
        .enumerate()
        .fold(0, |sum, (number, entry)| set_sum(sum, entry, number == 0));
    if let Some(first) = entries.first_mut()
        && let Ok(file) = FileRaw::mut_from_bytes(first)
    {
        file.sum = sum.into();
    }
}

fn bytes_of(entry: &(impl IntoBytes + zerocopy::Immutable)) -> EntryBytes {
    let mut bytes = [0; ENTRY_LEN];
    bytes.copy_from_slice(entry.as_bytes());
    bytes
}
