//! Changes of a FAT volume in place.

use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Kind, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::directory::{DirectoryItem, Items};
use super::file_system::described;
use super::free::{first_of, state_bits};
use super::layout::{
    Boot, BootRaw, EXTENDED_SIGNATURE, ExtendedRaw, INFO_LEAD, INFO_SIGNATURE, InfoRaw,
    MAX_DIRECTORY, ShortEntryRaw, TailRaw, Width, attributes, boot_flags, first_byte,
};
use super::names::long_entries;
use super::short_names::ShortNames;
use super::{FatVolume, LAYER, free_map, table_of};
use crate::clusters::write::{
    EachSet, EntryBytes, FoundSet, FreeClusters, MutableClusters, Stream, WriteFormat, buffer,
};
use crate::clusters::{
    AllocationTable, ClusterSpace, DirectoryPlace, DosDate, ENTRY_LEN, FIRST, TableEntry,
};
use crate::{
    Attributes, Change, FileSystemMut, FreeMap, NewNode, NodeId, SF_ARCHIVED, Timestamp, UF_HIDDEN,
    UF_IMMUTABLE, VolumeInfo,
};

/// Number of entries that are compared or written at a time; even.
const PER_PIECE: u64 = 1 << 14;
/// Bytes of a FAT32 boot sector that are equal in its copy: the flags change while the volume is in use.
const COPIED: usize = 0x40;

/// Opens the volume on all of `device` for changes. Nothing is written before the first change.
///
/// # Errors
///
/// [`Kind::Corrupt`] if the volume was not cleanly unmounted, or its tables or boot sectors differ from each
/// other; [`Kind::ReadOnly`] for a device that cannot be written.
pub fn open_mut(device: Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystemMut>> {
    device.info().check_writable(LAYER)?;
    let buffer = buffer(device.clone());
    let volume = FatVolume::open(buffer.clone())?;
    let map = free_map(device.clone())?;
    if !map.is_in_order() {
        return Err(refused(
            "the volume was not cleanly unmounted, or records an error of the medium",
        ));
    }
    map.trusted()?;
    check_copies(&*device, &volume.boot)?;
    let boot = &volume.boot;
    let tables = boot.tables.clone().skip(1);
    let format = FatFormat {
        others: tables
            .map(|number| table_of(buffer.clone(), boot, number))
            .collect(),
        written: boot
            .tables
            .clone()
            .map(|number| table_of(device.clone(), boot, number))
            .collect(),
        flags_at: flags_at(&*device, boot.width)?,
        volume,
    };
    let clusters = format.read_tables()?;
    Ok(Arc::new(MutableClusters::new(
        format, device, buffer, clusters,
    )))
}

/// Returns the error about a volume that is not changed.
fn refused(why: &str) -> Error {
    let message = format!("read-only: {why}; run `fsck.fat` first");
    Error::new(Kind::Corrupt, LAYER, message)
}

/// Fails if the copy of the boot sector or FSInfo is damaged.
fn check_copies(device: &dyn BlockDevice, boot: &Boot) -> Result<()> {
    if let Some(copy) = boot.copy_at {
        let one = device.read_array::<COPIED>(0)?;
        if one != device.read_array::<COPIED>(copy)? {
            return Err(refused("the boot sector differs from its copy"));
        }
    }
    if let Some(at) = boot.info_at {
        let info = read_info(device, at)?;
        if info.lead.get() != INFO_LEAD || info.signature.get() != INFO_SIGNATURE {
            return Err(refused("the sector FSInfo has no signature"));
        }
    }
    Ok(())
}

fn read_info(device: &dyn BlockDevice, at: u64) -> Result<InfoRaw> {
    let mut info = InfoRaw::new_zeroed();
    device.read_at(at, info.as_mut_bytes())?;
    Ok(info)
}

/// Returns the offset of the flags in the boot sector. `None`: it has none.
fn flags_at(device: &dyn BlockDevice, width: Width) -> Result<Option<u64>> {
    let extended = offset_of!(BootRaw, tail)
        + match width {
            Width::Fat32 => offset_of!(TailRaw, extended),
            Width::Fat12 | Width::Fat16 => 0,
        };
    let mut raw = ExtendedRaw::new_zeroed();
    device.read_at(extended as u64, raw.as_mut_bytes())?;
    let has_flags = matches!(raw.signature, EXTENDED_SIGNATURE | OLD_SIGNATURE);
    Ok(has_flags.then_some((extended + offset_of!(ExtendedRaw, flags)) as u64))
}

/// Value of [`ExtendedRaw::signature`] if only the serial number follows.
const OLD_SIGNATURE: u8 = 0x28;

#[derive(Debug)]
struct FatFormat {
    /// The volume with all changes.
    volume: FatVolume,
    /// The tables after the first one that is maintained, with all changes.
    others: Vec<AllocationTable>,
    /// The tables that are maintained, as the device has them.
    written: Vec<AllocationTable>,
    flags_at: Option<u64>,
}

impl FatFormat {
    /// Returns the clusters in use. Fails if the tables differ.
    fn read_tables(&self) -> Result<FreeClusters> {
        let space = &self.volume.space;
        let mut clusters = FreeClusters::new(space.clusters)?;
        let end = space.clusters + FIRST;
        let Some((one, others)) = self.written.split_first() else {
            return Err(refused("the volume has no table"));
        };
        for first in (FIRST..end).step_by(to_usize(PER_PIECE)) {
            let count = to_usize((end - first).min(PER_PIECE));
            let entries = one.entries(first, count)?;
            for other in others {
                if other.entries(first, count)? != entries {
                    return Err(refused("the copies of the table differ"));
                }
            }
            for (cluster, &entry) in (first..).zip(&entries) {
                if one.decode(entry) != TableEntry::Free {
                    clusters.set_used(cluster);
                }
            }
        }
        Ok(clusters)
    }

    fn store_flags(&self, device: &dyn BlockDevice, flags: u8) -> Result<()> {
        match self.flags_at {
            Some(at) => device.write_at(at, &[flags]),
            None => Ok(()),
        }
    }

    fn store_info(&self, device: &dyn BlockDevice, free: u32, next: u32) -> Result<()> {
        let Some(at) = self.volume.boot.info_at else {
            return Ok(());
        };
        let mut info = read_info(device, at)?;
        info.free = free.into();
        info.next = next.into();
        device.write_at(at, info.as_bytes())
    }
}

impl WriteFormat for FatFormat {
    type Raw = ShortEntryRaw;

    const LAYER: &'static str = LAYER;
    const MAX_FILE: u64 = u32::MAX as u64;
    const MAX_FOLDER: u64 = MAX_DIRECTORY;
    const HAS_CONTIGUOUS: bool = false;

    fn space(&self) -> &ClusterSpace {
        &self.volume.space
    }

    fn name(&self) -> &'static str {
        self.volume.boot.width.name()
    }

    fn info(&self) -> VolumeInfo {
        self.volume.fixed_info()
    }

    fn root(&self) -> DirectoryPlace {
        self.volume.root.clone()
    }

    fn is_allocation(&self, offset: u64) -> bool {
        let boot = &self.volume.boot;
        (boot.tables_at..boot.root_range.start.min(boot.clusters_at)).contains(&offset)
    }

    fn store_links(&self, first: u64, entries: &[u32]) -> Result<()> {
        self.volume.space.table.store(first, entries)?;
        self.others
            .iter()
            .try_for_each(|table| table.store(first, entries))
    }

    fn forget_links(&self) {
        self.volume.space.table.forget();
    }

    fn claim(&self, _clusters: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn release(&self, clusters: Range<u64>) -> Result<()> {
        for first in clusters.clone().step_by(to_usize(PER_PIECE)) {
            let count = to_usize((clusters.end - first).min(PER_PIECE));
            self.store_links(first, &vec![0; count])?;
        }
        Ok(())
    }

    fn mark_dirty(&self, device: &dyn BlockDevice) -> Result<()> {
        self.store_flags(device, self.volume.boot.flags | boot_flags::DIRTY)?;
        self.store_info(device, u32::MAX, u32::MAX)?;
        if let Some((clean, _)) = state_bits(self.volume.boot.width) {
            let entry = first_of(&self.volume.space.table, 1)?;
            self.store_links(1, &[entry & !clean])?;
        }
        Ok(())
    }

    fn mark_clean(&self, device: &dyn BlockDevice, free: u64, next: u64) -> Result<()> {
        if let Some((clean, _)) = state_bits(self.volume.boot.width) {
            for table in &self.written {
                let entry = first_of(table, 1)?;
                table.store(1, &[entry | clean])?;
            }
        }
        let next = next.min(self.volume.space.clusters + FIRST - 1);
        self.store_info(device, narrow(free), narrow(next))?;
        device.flush()?;
        self.store_flags(device, self.volume.boot.flags & !boot_flags::DIRTY)
    }

    fn scan(&self, place: &DirectoryPlace, each: EachSet<'_, ShortEntryRaw>) -> Result<()> {
        let mut items = Items::new(&self.volume.space, place)?;
        while let Some(item) = items.read_next()? {
            if let DirectoryItem::Entry(entry) = item {
                let set = FoundSet {
                    name: entry.name,
                    main: entry.offset,
                    slots: entry.slot - entry.parts..entry.slot + 1,
                    raw: entry.raw,
                };
                if each(set)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn locate(&self, main: u64) -> Result<Option<(ShortEntryRaw, Vec<u64>)>> {
        match self.volume.entry(NodeId(main)) {
            Ok(entry) => Ok(Some((entry.raw, vec![main]))),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn main_entry(&self, count: usize) -> usize {
        count.saturating_sub(1)
    }

    fn folder_place(&self, raw: &ShortEntryRaw) -> Result<DirectoryPlace> {
        let first = self
            .volume
            .space
            .checked(raw.first(self.volume.boot.width))?;
        Ok(DirectoryPlace::Chain {
            first,
            max: MAX_DIRECTORY,
        })
    }

    fn is_folder(&self, raw: &ShortEntryRaw) -> bool {
        raw.is_directory()
    }

    fn stream(&self, raw: &ShortEntryRaw) -> Stream {
        let len = match raw.is_directory() {
            true => 0,
            false => raw.size.get().into(),
        };
        Stream {
            first: narrow(raw.first(self.volume.boot.width)),
            len,
            valid: len,
            is_contiguous: false,
        }
    }

    fn set_stream(&self, raw: &mut ShortEntryRaw, stream: Stream) {
        raw.set_first(stream.first);
        if !raw.is_directory() {
            raw.size = narrow::<u32>(stream.len).into();
        }
    }

    fn attributes(&self, raw: &ShortEntryRaw) -> Attributes {
        described(raw)
    }

    fn new_raw(&self, new: &NewNode, is_folder: bool, now: Timestamp) -> ShortEntryRaw {
        let mut raw = ShortEntryRaw {
            attributes: match is_folder {
                true => attributes::DIRECTORY,
                false => attributes::ARCHIVE,
            },
            ..ShortEntryRaw::new_zeroed()
        };
        let date = new.created.unwrap_or(now);
        raw.set_times(date, date, date);
        set_flags(&mut raw, new.flags);
        raw
    }

    fn apply(&self, raw: &mut ShortEntryRaw, change: &Change) {
        if let Some(created) = change.created.map(DosDate::of) {
            (raw.created_date, raw.created_time) = (created.date.into(), created.time.into());
            raw.created_hundredths = created.hundredths;
        }
        if let Some(modified) = change.modified.map(DosDate::of) {
            (raw.modified_date, raw.modified_time) = (modified.date.into(), modified.time.into());
        }
        if let Some(accessed) = change.accessed.map(DosDate::of) {
            raw.accessed_date = accessed.date.into();
        }
        if let Some(flags) = change.flags {
            set_flags(raw, flags);
        }
    }

    fn touch(&self, raw: &mut ShortEntryRaw, now: Timestamp) {
        let modified = DosDate::of(now);
        (raw.modified_date, raw.modified_time) = (modified.date.into(), modified.time.into());
        raw.attributes |= attributes::ARCHIVE;
    }

    fn short_name(&self, raw: &ShortEntryRaw) -> Option<[u8; 11]> {
        Some(raw.name)
    }

    fn key(&self, name: &str) -> Vec<u16> {
        name.to_uppercase().encode_utf16().collect()
    }

    fn new_entries(
        &self,
        raw: &ShortEntryRaw,
        name: &str,
        short_names: HashSet<[u8; 11]>,
    ) -> Result<Vec<EntryBytes>> {
        let mut names = ShortNames::of_folder(short_names);
        if names.has(name) {
            let message = "another object of the folder has this as its short name";
            return Err(Error::conflict(LAYER, message).named(name));
        }
        let short = match names.take_exact(name) {
            Some(short) => short,
            None => names.derive(name)?,
        };
        let raw = ShortEntryRaw {
            name: short.bytes,
            case: 0,
            ..*raw
        };
        let mut entries = Vec::new();
        if !short.is_exact {
            let units: Vec<u16> = name.encode_utf16().collect();
            let long = long_entries(&units, raw.checksum());
            entries.extend(long.iter().map(bytes_of));
        }
        entries.push(bytes_of(&raw));
        Ok(entries)
    }

    fn update_entries(&self, raw: &ShortEntryRaw, entries: &mut [EntryBytes]) {
        for entry in entries {
            let Ok(old) = ShortEntryRaw::read_from_bytes(entry) else {
                continue;
            };
            *entry = bytes_of(&ShortEntryRaw {
                name: old.name,
                case: old.case,
                ..*raw
            });
        }
    }

    fn new_folder(&self, raw: &ShortEntryRaw, parent: u32) -> Vec<EntryBytes> {
        let own = narrow(raw.first(self.volume.boot.width));
        [(b".          ", own), (b"..         ", parent)]
            .map(|(name, first)| {
                let mut dot = ShortEntryRaw {
                    name: *name,
                    attributes: attributes::DIRECTORY,
                    ..*raw
                };
                dot.set_first(first);
                bytes_of(&dot)
            })
            .to_vec()
    }

    fn parent_entry(&self, raw: &ShortEntryRaw, parent: u32) -> Result<Option<(u64, EntryBytes)>> {
        let space = &self.volume.space;
        let first = space.checked(raw.first(self.volume.boot.width))?;
        let at = space.offset(first) + ENTRY_LEN as u64;
        let mut dots = ShortEntryRaw::new_zeroed();
        space.device.read_at(at, dots.as_mut_bytes())?;
        if &dots.name != b"..         " {
            let message = "the folder has no entry `..`; check the volume";
            return Err(Error::corrupt(LAYER, at, message));
        }
        dots.set_first(parent);
        Ok(Some((at, bytes_of(&dots))))
    }

    fn deleted(&self, entry: EntryBytes) -> EntryBytes {
        let mut entry = entry;
        entry[0] = first_byte::DELETED;
        entry
    }

    fn is_free(&self, entry: &EntryBytes) -> bool {
        entry[0] == first_byte::DELETED
    }
}

fn bytes_of(entry: &(impl IntoBytes + zerocopy::Immutable)) -> EntryBytes {
    let mut bytes = [0; ENTRY_LEN];
    bytes.copy_from_slice(entry.as_bytes());
    bytes
}

/// Sets the attributes of an entry by the flags of an object. System files stay such.
fn set_flags(raw: &mut ShortEntryRaw, flags: u32) {
    for (flag, bit) in [
        (UF_IMMUTABLE, attributes::READ_ONLY),
        (UF_HIDDEN, attributes::HIDDEN),
    ] {
        match flags & flag {
            0 => raw.attributes &= !bit,
            _ => raw.attributes |= bit,
        }
    }
    if flags & SF_ARCHIVED != 0 {
        raw.attributes &= !attributes::ARCHIVE;
    }
}
