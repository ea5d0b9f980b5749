//! The space that a repair frees: blocks of old trees, for example. Their bytes stay, and are used
//! again after an undo, but a trim discards them.

use std::ops::Range;
use std::sync::Arc;

use super::ranges::without;
use super::target::Target;
use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt, ExtentKind};
use crate::fs::{FreeMap, FreeMapExt};
use crate::open::{self, OpenOptions, Volume};
use crate::partition;
use crate::size::to_usize;
use crate::store::{Open, Staged, Store};

/// Bytes read at a time.
const PIECE: u64 = 1 << 20;

/// Reads through `view`, a traced view of `staged`, the stored bytes that the image uses before the
/// repair and not after it. What cannot be read is left out: a trim discards only free space that
/// it can find.
pub(super) fn read_freed(
    target: &Target,
    staged: &Staged,
    view: &Staged,
    options: &OpenOptions<'_>,
) -> Result<()> {
    let disk_of = |store: Arc<dyn Store>| {
        let stored = super::stored(target, store, Open::Read)?;
        open::disk_of(&target.path, stored, options)
    };
    let Ok(freed) = disk_of(Arc::new(staged.clone())).and_then(|after| {
        let before = disk_of(staged.below().clone()).ok();
        find_freed(&after, before.as_ref())
    }) else {
        return Ok(());
    };
    if freed.is_empty() {
        return Ok(());
    }
    let disk = disk_of(Arc::new(view.clone()))?;
    for range in freed {
        let mut at = range.start;
        while at < range.end {
            let extent = disk.extent_at(at..range.end)?;
            let end = match extent.kind {
                ExtentKind::Data => at + extent.len.min(PIECE),
                _ => at + extent.len,
            };
            if extent.kind == ExtentKind::Data {
                let _ = disk.read_vec(at, to_usize(end - at));
            }
            at = end;
        }
    }
    Ok(())
}

/// Returns the ranges of a disk that its volumes leave free after the repair, and that they use
/// before: all others, if they cannot be read before.
fn find_freed(
    after: &Arc<dyn BlockDevice>,
    before: Option<&Arc<dyn BlockDevice>>,
) -> Result<Vec<Range<u64>>> {
    let map = partition::probe(&**after)?;
    let mut freed = Vec::new();
    for volume in open::find_volumes(after, map.as_ref())? {
        let Ok(Some(free_after)) = volume.trusted_free_map() else {
            continue;
        };
        let len = volume.range.end - volume.range.start;
        let free_after = runs(&free_after, len);
        let free_before = before.map_or(Vec::new(), |disk| free_before(&volume, disk));
        let ranges = without(free_after, &free_before).into_iter();
        let on_disk =
            |range: Range<u64>| volume.range.start + range.start..volume.range.start + range.end;
        freed.extend(ranges.map(on_disk));
    }
    freed.sort_unstable_by_key(|range| range.start);
    Ok(freed)
}

/// Returns what a volume leaves free before the repair, by its map and its own structures: of a
/// damaged volume they may disagree. Empty if it cannot be read.
fn free_before(volume: &Volume, disk: &Arc<dyn BlockDevice>) -> Vec<Range<u64>> {
    let found = volume.on(disk).and_then(|volume| match volume {
        Some(volume) if !volume.format.is_foreign() => {
            Ok(volume.free_map()?.zip(Some(volume.own_ranges()?)))
        }
        Some(volume) => Ok(volume.free_map()?.zip(Some(Vec::new()))),
        None => Ok(None),
    });
    let Ok(Some((map, own))) = found else {
        return Vec::new();
    };
    without(runs(&map, volume.range.end - volume.range.start), &own)
}

/// Returns the free runs of a map, up to the first that cannot be read.
fn runs(map: &Arc<dyn FreeMap>, len: u64) -> Vec<Range<u64>> {
    map.free_runs(0..len).map_while(Result::ok).collect()
}
