//! Volumes on a disk without a partition map that leads to them: headers of HFS+, and superblocks of APFS
//! with a valid checksum, at any sector.

use std::ops::Range;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, BlockDeviceExt, ExtentKind, Slice};
use bandsaw::fs::apfs::Container;
use bandsaw::fs::hfsplus::layout::{HEADER_OFFSET, SIGNATURE_HFS_PLUS, SIGNATURE_HFSX};
use bandsaw::fs::hfsplus::{probe_front, stated_len};
use bandsaw::progress::Progress;
use bandsaw::size::{counted, to_usize};
use bandsaw::{Error, Kind, Result};

use crate::LAYER;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Offset of the magic number in a superblock of APFS.
const APFS_MAGIC: usize = 32;
/// Largest number of volumes.
const MAX_VOLUMES: usize = 128;
/// Offset of the kind of a node in its descriptor, and the kind of a header node.
const NODE_KIND: (u64, u8) = (8, 1);

/// The format of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LostFormat {
    HfsPlus,
    Apfs,
}

impl LostFormat {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::HfsPlus => "HFS+",
            Self::Apfs => "APFS",
        }
    }
}

/// A volume, or a container of APFS.
#[derive(Debug)]
pub(super) struct LostVolume {
    pub(super) format: LostFormat,
    /// Its bytes on the disk.
    pub(super) range: Range<u64>,
    pub(super) device: Arc<dyn BlockDevice>,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct LostVolumes {
    pub(super) found: Vec<LostVolume>,
    /// The error about sectors that cannot be read: a volume that begins in one is not found.
    pub(super) unread: Option<Error>,
}

/// Searches a disk for volumes, which do not overlap.
pub(super) fn find_volumes(
    disk: &Arc<dyn BlockDevice>,
    progress: &dyn Progress,
) -> Result<LostVolumes> {
    let len = disk.info().len / SECTOR * SECTOR;
    progress.stage("search for volumes", len);
    let mut found: Vec<LostVolume> = Vec::new();
    let mut unread = Unread::default();
    let (mut at, mut buffer) = (0, Vec::new());
    while at < len && found.len() < MAX_VOLUMES {
        progress.check()?;
        let extent = disk.extent_at(at..len)?;
        let skipped = extent.len / SECTOR * SECTOR;
        if extent.kind != ExtentKind::Data && skipped > 0 {
            progress.advance(skipped);
            at += skipped;
            continue;
        }
        let piece = PIECE.min(len - at);
        buffer.resize(to_usize(piece), 0);
        let is_whole = disk.read_at(at, &mut buffer).is_ok();
        for (place, sector) in (at..).step_by(512).zip(buffer.chunks_exact_mut(512)) {
            // A bad sector must not hide its neighbors.
            if !is_whole && let Err(error) = disk.read_at(place, sector) {
                unread.add(place, error);
                continue;
            }
            let is_inside = |volume: &LostVolume| volume.range.contains(&place);
            if found.iter().any(is_inside) {
                continue;
            }
            match volume_at(disk, place, sector) {
                Ok(volume) => found.extend(volume),
                Err(error) => unread.add(place, error),
            }
        }
        progress.advance(piece);
        at += piece;
    }
    let unread = unread.into_error();
    Ok(LostVolumes { found, unread })
}

/// Sectors that cannot be read, or lead to what cannot be read.
#[derive(Default)]
struct Unread {
    sectors: u64,
    first: Option<(u64, Error)>,
}

impl Unread {
    fn add(&mut self, place: u64, error: Error) {
        self.sectors += 1;
        self.first.get_or_insert((place, error));
    }

    fn into_error(self) -> Option<Error> {
        let (place, error) = self.first?;
        let sectors = counted(self.sectors, "sector", "sectors");
        let message = format!(
            "{sectors} cannot be read: a volume that begins there is not found; the first is at \
             byte {place}"
        );
        Some(Error::new(Kind::Corrupt, LAYER, message).caused_by(error))
    }
}

fn volume_at(disk: &Arc<dyn BlockDevice>, place: u64, sector: &[u8]) -> Result<Option<LostVolume>> {
    if sector.get(APFS_MAGIC..APFS_MAGIC + 4) == Some(b"NXSB") {
        return container_at(disk, place);
    }
    let signature = u16::from_be_bytes([sector[0], sector[1]]);
    if !matches!(signature, SIGNATURE_HFS_PLUS | SIGNATURE_HFSX) {
        return Ok(None);
    }
    let Some(start) = place.checked_sub(HEADER_OFFSET) else {
        return Ok(None);
    };
    let len = disk.info().len;
    let behind = slice(disk, start..len)?;
    if probe_front(&*behind)?.is_none() {
        return Ok(None);
    }
    // The alternate header counts if it is valid for the rest of the disk.
    let Some(stated) = stated_len(&*behind)?.filter(|&stated| stated > 2 * HEADER_OFFSET) else {
        return Ok(None);
    };
    let block_size = field(sector, 40);
    let catalog = field(sector, 272 + 16);
    let as_primary = start..start.saturating_add(stated);
    let end = place + HEADER_OFFSET;
    let as_alternate = end.checked_sub(stated).map(|start| start..end);
    // The first node of the catalog tells the header from the alternate.
    for range in [Some(as_primary.clone()), as_alternate]
        .into_iter()
        .flatten()
    {
        let catalog = u64::from(catalog) * u64::from(block_size);
        let node = range.start.checked_add(catalog);
        let kind = node.and_then(|node| node.checked_add(NODE_KIND.0));
        let kind = kind.and_then(|at| disk.read_array::<1>(at).ok());
        if range.end <= len && kind == Some([NODE_KIND.1]) {
            return hfs_plus(disk, range).map(Some);
        }
    }
    match as_primary.end <= len {
        true => hfs_plus(disk, as_primary).map(Some),
        false => Ok(None),
    }
}

fn field(sector: &[u8], at: usize) -> u32 {
    let bytes = sector
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    u32::from_be_bytes(bytes.unwrap_or_default())
}

fn slice(disk: &Arc<dyn BlockDevice>, range: Range<u64>) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(Slice::new(disk.clone(), range)?))
}

fn hfs_plus(disk: &Arc<dyn BlockDevice>, range: Range<u64>) -> Result<LostVolume> {
    Ok(LostVolume {
        format: LostFormat::HfsPlus,
        device: slice(disk, range.clone())?,
        range,
    })
}

fn container_at(disk: &Arc<dyn BlockDevice>, place: u64) -> Result<Option<LostVolume>> {
    let len = disk.info().len;
    let behind = slice(disk, place..len)?;
    // It opens only if its superblock has a valid checksum, and a checkpoint is whole.
    let Ok(container) = Container::open(behind, None) else {
        return Ok(None);
    };
    let range = place..place.saturating_add(container.size()).min(len);
    Ok(Some(LostVolume {
        format: LostFormat::Apfs,
        device: slice(disk, range.clone())?,
        range,
    }))
}
