//! exFAT: the allocation bitmap of clusters, which an entry of the root directory refers to.

use std::borrow::Cow;
use std::sync::Arc;

use super::layout::{EntryRaw, flags};
use super::{Structures, check_sum, read_boot, space_of};
use crate::block_map::{BlockFreeMap, BlockMap, MapEntry, MapReader};
use crate::clusters::{ClusterContents, ClusterSpace, FIRST};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "exfat bitmap";
/// Number of clusters whose bits are read at a time.
const PER_PIECE: u64 = 1 << 16;

/// Opens the free map of the volume on all of `device`, clean or not.
pub fn free_map(device: Arc<dyn BlockDevice>) -> Result<BlockFreeMap> {
    let boot = read_boot(&*device, device.info().len)?;
    check_sum(&*device, &boot, 0)?;
    let space = space_of(device, &boot);
    let found = Structures::read(&space, &boot, false)?;
    let clusters = bitmap_clusters(&space, &found.bitmap)?;
    let geometry = BlockMap {
        start: boot.heap_at,
        block_size: boot.cluster_size,
        blocks: boot.clusters,
        per_piece: PER_PIECE,
    };
    let disorder = match boot.flags {
        flags if flags & flags::DIRTY != 0 => Some("not cleanly unmounted"),
        flags if flags & flags::FAILED != 0 => Some("the volume records an error of the medium"),
        _ => None,
    };
    let exfat = ExFat {
        root: boot.root,
        bitmap: clusters.contents,
        bitmap_clusters: clusters.numbers,
        upcase: space.checked(found.upcase.first.get().into())?,
    };
    Ok(BlockFreeMap::new(
        LAYER,
        geometry,
        exfat,
        disorder.map(Cow::Borrowed),
    ))
}

#[derive(Debug)]
struct ExFat {
    /// First cluster of the root directory.
    root: u64,
    bitmap: ClusterContents,
    /// First clusters of the pieces of the bitmap, with their counts.
    bitmap_clusters: Vec<(u64, u64)>,
    /// First cluster of the up-case table, which every volume has.
    upcase: u64,
}

/// The bitmap of a volume.
#[derive(Debug)]
pub(super) struct Bitmap {
    pub(super) contents: ClusterContents,
    /// First clusters of its pieces, with their counts.
    pub(super) numbers: Vec<(u64, u64)>,
}

/// Returns the bitmap that an entry names.
pub(super) fn bitmap_clusters(space: &ClusterSpace, raw: &EntryRaw) -> Result<Bitmap> {
    let needed = space.clusters.div_ceil(8);
    if raw.flags & 1 != 0 || raw.len.get() != needed {
        let message = format!(
            "the bitmap has {} bytes, expected {needed} for {} clusters",
            raw.len.get(),
            space.clusters
        );
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    let runs = space.chain(raw.first.get().into(), space.clusters_for(needed))?;
    let numbers = runs
        .iter()
        .map(|run| (u64::from(run.first), u64::from(run.count)))
        .collect();
    Ok(Bitmap {
        contents: ClusterContents::new(space, runs, needed, needed),
        numbers,
    })
}

impl MapReader for ExFat {
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
        let mut bits = bandsaw_core::device::zeros(count.div_ceil(8))?;
        self.bitmap.read_at(index * (PER_PIECE / 8), &mut bits)?;
        Ok(MapEntry::Bits(bits))
    }

    fn check(&self, map: &BlockFreeMap) -> Result<()> {
        map.check_used(self.root - FIRST, 1, "root directory")?;
        map.check_used(self.upcase - FIRST, 1, "table for upper case")?;
        self.bitmap_clusters
            .iter()
            .try_for_each(|&(first, count)| map.check_used(first - FIRST, count, "bitmap"))
    }
}
