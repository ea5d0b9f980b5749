//! Volumes on a disk without a partition map that leads to them: headers of HFS+, and superblocks of APFS
//! with a valid checksum, at any sector.

use std::ops::Range;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, ExtentKind, Slice};
use bandsaw::fs::apfs::container_at;
use bandsaw::fs::hfsplus::volume_around;
use bandsaw::progress::Progress;
use bandsaw::size::{counted, to_usize};
use bandsaw::{Error, Kind, Result};

use crate::LAYER;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Largest number of volumes.
const MAX_VOLUMES: usize = 128;

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

/// Returns the volume that the header or superblock in a sector describes.
fn volume_at(disk: &Arc<dyn BlockDevice>, place: u64, sector: &[u8]) -> Result<Option<LostVolume>> {
    let found = match container_at(disk, place, sector)? {
        Some(range) => Some((LostFormat::Apfs, range)),
        None => volume_around(disk, place, sector)?.map(|range| (LostFormat::HfsPlus, range)),
    };
    let Some((format, range)) = found else {
        return Ok(None);
    };
    Ok(Some(LostVolume {
        format,
        device: Arc::new(Slice::new(disk.clone(), range.clone())?),
        range,
    }))
}
