//! NTFS: the cluster bitmap, a file that the master file table refers to.
//!
//! A volume is clean according to a flag in `$NtfsVolume` and the state of the log. Linux programs
//! leave the log empty, which proves nothing, so the map is only trusted if it has all clusters of
//! every file as used: the whole master file table is read.

mod record;

use std::borrow::Cow;
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::layout::ntfs::{
    Boot, BootRaw, NO_CLIENT, RestartAreaRaw, RestartPageRaw, VOLUME_IS_CLEAN,
    VolumeInformationRaw, attribute, record as number, volume_flags,
};
use crate::block_map::{BlockFreeMap, BlockMap, MapEntry, MapReader};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};
use record::{AttributeValue, ClusterRun, MftRecord, restore};

const LAYER: &str = "ntfs bitmap";
/// Number of clusters whose bits are read at a time.
const PER_PIECE: u64 = 1 << 16;
/// Maximum number of records that are read: 64 GiB.
const MAX_RECORDS: u64 = 1 << 26;
/// Number of bytes of records per read.
const RECORDS: usize = 256 << 10;

/// Offset of the second page of the log: one system page after the first.
const LOG_PAGE: usize = 4096;

/// Opens the free map of the volume on all of `device`.
pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<BlockFreeMap> {
    let mut raw = BootRaw::new_zeroed();
    device.info().check(LAYER, 0, size_of::<BootRaw>() as u64)?;
    device.read_at(0, raw.as_mut_bytes())?;
    let boot = Boot::parse(&raw, device.info().len)?;
    // The table's own record is its first one, and locates the others.
    let mut bytes = vec![0; boot.record_size];
    device
        .info()
        .check(LAYER, boot.table * boot.cluster_size, bytes.len() as u64)?;
    device.read_at(boot.table * boot.cluster_size, &mut bytes)?;
    let table = MftRecord::parse(number::TABLE, bytes)?;
    let table = table.ok_or_else(|| wrong("the master file table has no record of itself"))?;
    let table = File::of(&table, &boot)?;
    let volume = NtfsVolume {
        device,
        boot,
        table,
    };
    let bitmap = volume.file(number::BITMAP)?;
    let needed = volume.boot.clusters.div_ceil(8);
    if bitmap.initialised < needed {
        return Err(wrong(format!(
            "the bitmap has {} bytes, {needed} are needed",
            bitmap.initialised
        )));
    }
    let log = volume.file(number::LOG)?;
    let disorder = if volume.flags()? & (volume_flags::DIRTY | volume_flags::CHECKING) != 0 {
        Some("not cleanly unmounted, or marked for a check")
    } else {
        log_disorder(&volume, &log)?
    };
    let geometry = BlockMap {
        start: 0,
        block_size: volume.boot.cluster_size,
        blocks: volume.boot.clusters,
        per_piece: PER_PIECE,
    };
    let ntfs = Ntfs {
        volume,
        bitmap,
        log,
    };
    Ok(BlockFreeMap::new(
        LAYER,
        geometry,
        ntfs,
        disorder.map(Cow::Borrowed),
    ))
}

fn wrong(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(Kind::Corrupt, LAYER, message)
}

/// The volume and its master file table.
#[derive(Debug)]
struct NtfsVolume {
    device: Arc<dyn BlockDevice>,
    boot: Boot,
    table: File,
}

/// The contents of one of the volume's own files.
#[derive(Debug)]
struct File {
    runs: Vec<ClusterRun>,
    /// Initialized length in bytes; the rest reads as zeros and is not needed.
    initialised: u64,
}

impl File {
    /// Returns the contents of a file, which `record` must describe in full.
    fn of(record: &MftRecord, boot: &Boot) -> Result<Self> {
        let (mut found, mut has_list) = (None, false);
        record.attributes(boot.clusters, &mut |attribute| {
            has_list |= attribute.kind == attribute::LIST;
            if attribute.kind == attribute::DATA && !attribute.is_named {
                found = Some((attribute.flags, attribute.value));
            }
            Ok(())
        })?;
        match found {
            Some((
                0,
                AttributeValue::Clusters {
                    first: 0,
                    runs,
                    len,
                    initialised,
                },
            )) => {
                let clusters = runs
                    .iter()
                    .fold(0_u64, |sum, run| sum.saturating_add(run.count));
                if has_list && clusters.saturating_mul(boot.cluster_size) < len {
                    return Err(Error::unsupported(
                        LAYER,
                        "unsupported: metadata files with extension records",
                    ));
                }
                let is_whole = runs.iter().all(|run| run.start.is_some());
                if !is_whole
                    || initialised > len
                    || clusters.saturating_mul(boot.cluster_size) < len
                {
                    return Err(wrong(format!(
                        "a metadata file has {clusters} clusters for {len} bytes"
                    )));
                }
                Ok(Self { runs, initialised })
            }
            _ if has_list => Err(Error::unsupported(
                LAYER,
                "unsupported: metadata files with extension records",
            )),
            _ => Err(wrong("a metadata file has no regular contents")),
        }
    }
}

impl NtfsVolume {
    fn record(&self, number: u64) -> Result<Option<MftRecord>> {
        let mut bytes = vec![0; self.boot.record_size];
        self.read(
            &self.table,
            number * self.boot.record_size as u64,
            &mut bytes,
        )?;
        MftRecord::parse(number, bytes)
    }

    fn file(&self, number: u64) -> Result<File> {
        let record = self.record(number)?.ok_or_else(|| {
            wrong(format!(
                "record {number} of a metadata file is marked as not in use"
            ))
        })?;
        File::of(&record, &self.boot)
    }

    /// Returns the flags of `$NtfsVolume`.
    fn flags(&self) -> Result<u16> {
        let record = self
            .record(number::VOLUME)?
            .ok_or_else(|| wrong("the volume record is missing"))?;
        let mut flags = None;
        record.attributes(self.boot.clusters, &mut |attribute| {
            if let (attribute::VOLUME_INFORMATION, AttributeValue::Resident(bytes)) =
                (attribute.kind, attribute.value)
            {
                flags = VolumeInformationRaw::read_from_prefix(bytes)
                    .ok()
                    .map(|(raw, _)| raw.flags.get());
            }
            Ok(())
        })?;
        flags.ok_or_else(|| {
            wrong("the volume record has no flags, so the state of the volume is unknown")
        })
    }

    /// Fills `buf` from offset `at` of a file.
    fn read(&self, file: &File, at: u64, buf: &mut [u8]) -> Result<()> {
        let end = at
            .checked_add(buf.len() as u64)
            .filter(|end| *end <= file.initialised);
        end.ok_or_else(|| {
            wrong(format!(
                "offset {at} is past the end of a metadata file of {} bytes",
                file.initialised
            ))
        })?;
        let size = self.boot.cluster_size;
        let (mut skip, mut rest) = (at, buf);
        // No overflow: runs are within the volume.
        for ClusterRun { start, count } in &file.runs {
            let bytes = count * size;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let now = rest
                .len()
                .min(usize::try_from(bytes - skip).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(now);
            let start =
                start.ok_or_else(|| wrong("a metadata file has a hole, which is unsupported"))?;
            self.device.read_at(start * size + skip, now)?;
            (skip, rest) = (0, later);
            if rest.is_empty() {
                break;
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(wrong("a metadata file is truncated"))
        }
    }
}

#[derive(Debug)]
struct Ntfs {
    volume: NtfsVolume,
    bitmap: File,
    log: File,
}

impl Ntfs {
    /// Fails if the map has a cluster of any file as free.
    fn check_files(&self, map: &BlockFreeMap) -> Result<()> {
        let (volume, size) = (&self.volume, self.volume.boot.record_size);
        let records = volume.table.initialised / size as u64;
        if records > MAX_RECORDS {
            let message = format!("too many files: {records} (limit {MAX_RECORDS})");
            return Err(Error::unsupported(LAYER, message));
        }
        let per = (RECORDS / size) as u64;
        for first in (0..records).step_by(RECORDS / size) {
            let mut bytes = vec![0; to_usize((records - first).min(per)) * size];
            volume.read(&volume.table, first * size as u64, &mut bytes)?;
            for (number, bytes) in (first..).zip(bytes.chunks_exact(size)) {
                let Some(record) = MftRecord::parse(number, bytes.to_vec())? else {
                    continue;
                };
                record.attributes(
                    volume.boot.clusters,
                    &mut |attribute| match attribute.value {
                        AttributeValue::Clusters { runs, .. } => {
                            check_runs(map, &runs, &format!("file of record {number}"))
                        }
                        AttributeValue::Resident(_) => Ok(()),
                    },
                )?;
            }
        }
        Ok(())
    }
}

fn check_runs(map: &BlockFreeMap, runs: &[ClusterRun], what: &str) -> Result<()> {
    runs.iter()
        .filter_map(|run| Some((run.start?, run.count)))
        .try_for_each(|(start, count)| map.check_used(start, count, what))
}

impl MapReader for Ntfs {
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
        let mut bits = vec![0; count.div_ceil(8)];
        self.volume
            .read(&self.bitmap, index * (PER_PIECE / 8), &mut bits)?;
        Ok(MapEntry::Bits(bits))
    }

    fn check(&self, map: &BlockFreeMap) -> Result<()> {
        let copy = self.volume.file(number::TABLE_COPY)?;
        if copy.runs.first().and_then(|run| run.start) != Some(self.volume.boot.table_copy) {
            return Err(wrong(
                "the copy of the master file table is not at the place recorded in the boot sector",
            ));
        }
        map.check_used(0, 1, "boot sector")?;
        for (file, what) in [
            (&self.volume.table, "master file table"),
            (&copy, "copy of the master file table"),
            (&self.bitmap, "bitmap"),
            (&self.log, "log"),
        ] {
            check_runs(map, &file.runs, what)?;
        }
        self.check_files(map)
    }
}

/// Returns the reason if the volume is not clean. Both restart pages must say that the log was
/// closed, or the log must be empty, as Linux programs leave it.
fn log_disorder(volume: &NtfsVolume, log: &File) -> Result<Option<&'static str>> {
    let mut pages = vec![0; 2 * LOG_PAGE];
    volume.read(log, 0, &mut pages)?;
    let is_closed = || {
        pages
            .chunks_exact(LOG_PAGE)
            .all(|page| is_log_page_clean(page) == Some(true))
    };
    let in_order = pages.iter().all(|&byte| byte == 0xFF) || is_closed();
    Ok((!in_order)
        .then_some("not cleanly unmounted, or Windows is hibernated: its log may have changes"))
}

/// Returns true if a page says that the log was closed cleanly, `None` if it is invalid.
fn is_log_page_clean(page: &[u8]) -> Option<bool> {
    let (head, _) = RestartPageRaw::read_from_prefix(page).ok()?;
    if head.magic != *b"RSTR"
        || head.major.get() != 1
        || head.system_page.get() as usize != LOG_PAGE
    {
        return None;
    }
    let mut page = page.to_vec();
    restore(
        &mut page,
        head.fixups.get().into(),
        head.fixup_count.get().into(),
    )?;
    let (area, _) =
        RestartAreaRaw::read_from_prefix(page.get(usize::from(head.area.get())..)?).ok()?;
    Some(area.client_in_use.get() == NO_CLIENT || area.flags.get() & VOLUME_IS_CLEAN != 0)
}
