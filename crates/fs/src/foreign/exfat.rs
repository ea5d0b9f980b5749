//! exFAT: the allocation bitmap of clusters, which an entry of the root directory refers to.

use std::borrow::Cow;
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::layout::exfat::{Boot, BootRaw, EntryRaw, SUMMED_SECTORS, boot_sum, entry, flags};
use super::map::{BlockMap, ForeignFree, MapEntry, MapReader};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "exfat bitmap";
/// Number of clusters whose bits are read at a time.
const PER_PIECE: u64 = 1 << 16;
/// Number of the first cluster.
const FIRST: u64 = 2;
/// Maximum length of a directory in bytes.
const MAX_OF_DIRECTORY: u64 = 256 << 20;

/// Opens the free map of the volume on all of `device`.
pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<ForeignFree> {
    let mut raw = BootRaw::new_zeroed();
    device.info().check(LAYER, 0, size_of::<BootRaw>() as u64)?;
    device.read_at(0, raw.as_mut_bytes())?;
    let boot = Boot::parse(&raw, device.info().len)?;
    check_sum(&*device, &boot)?;
    let (bitmap, upcase) = find_structures(&*device, &boot)?;
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
        device,
        boot,
        bitmap,
        upcase,
    };
    Ok(ForeignFree::new(
        LAYER,
        geometry,
        exfat,
        disorder.map(Cow::Borrowed),
    ))
}

#[derive(Debug)]
struct ExFat {
    device: Arc<dyn BlockDevice>,
    boot: Boot,
    /// Clusters of the bitmap, in its order.
    bitmap: Vec<u64>,
    /// First cluster of the up-case table, which every volume has.
    upcase: u64,
}

fn check_sum(device: &dyn BlockDevice, boot: &Boot) -> Result<()> {
    // At most 4096 bytes per sector, and the table begins behind sector 23.
    let sector = to_usize(boot.sector);
    let bytes = device.read_vec(0, (SUMMED_SECTORS + 1) * sector)?;
    let (summed, sums) = bytes.split_at(SUMMED_SECTORS * sector);
    let sum = boot_sum(summed);
    if sums
        .chunks_exact(4)
        .all(|recorded| recorded == sum.to_le_bytes())
    {
        return Ok(());
    }
    Err(Error::corrupt(
        LAYER,
        (SUMMED_SECTORS * sector) as u64,
        format!("checksum mismatch of the boot sectors: expected {sum:#010x}"),
    ))
}

/// Returns the clusters of the bitmap, and the first one of the up-case table.
fn find_structures(device: &dyn BlockDevice, boot: &Boot) -> Result<(Vec<u64>, u64)> {
    let (mut bitmap, mut upcase) = (None, None);
    let mut cluster = boot.root;
    'directory: for _ in 0..boot
        .clusters
        .min(MAX_OF_DIRECTORY.div_ceil(boot.cluster_size))
    {
        // Read by sector, because these entries are at the front.
        let at = boot.place(cluster);
        for sector in (at..at + boot.cluster_size).step_by(to_usize(boot.sector)) {
            for bytes in device
                .read_vec(sector, to_usize(boot.sector))?
                .chunks_exact(size_of::<EntryRaw>())
            {
                let Ok(raw) = EntryRaw::read_from_bytes(bytes) else {
                    continue;
                };
                match raw.kind {
                    entry::END => break 'directory,
                    entry::BITMAP => bitmap = bitmap.or(Some(raw)),
                    entry::UPCASE => upcase = upcase.or(Some(raw)),
                    _ => {}
                }
                if let Some((bitmap, upcase)) = bitmap.zip(upcase) {
                    return Ok((
                        bitmap_clusters(device, boot, &bitmap)?,
                        boot.checked(upcase.first.get())?,
                    ));
                }
            }
        }
        match next(device, boot, cluster)? {
            Some(following) => cluster = following,
            None => break,
        }
    }
    Err(Error::corrupt(
        LAYER,
        boot.place(boot.root),
        "the root directory has no bitmap or no upper-case table",
    ))
}

fn bitmap_clusters(device: &dyn BlockDevice, boot: &Boot, raw: &EntryRaw) -> Result<Vec<u64>> {
    let needed = boot.clusters.div_ceil(8);
    if raw.flags & 1 != 0 || raw.len.get() != needed {
        let message = format!(
            "the bitmap has {} bytes, expected {needed} for {} clusters",
            raw.len.get(),
            boot.clusters
        );
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    let mut clusters = vec![boot.checked(raw.first.get())?];
    // A cluster has at least 512 bytes, so the bitmap has no more clusters than the volume.
    while (clusters.len() as u64) * boot.cluster_size < needed {
        let last = clusters.last().copied().unwrap_or(FIRST);
        let Some(following) = next(device, boot, last)? else {
            let message = format!(
                "truncated bitmap: it ends after {} clusters, before all of its {needed} bytes",
                clusters.len()
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        };
        clusters.push(following);
    }
    Ok(clusters)
}

/// Returns the cluster after `cluster` in the table; `None` if it is the last.
fn next(device: &dyn BlockDevice, boot: &Boot, cluster: u64) -> Result<Option<u64>> {
    let entry = u32::from_le_bytes(device.read_array(boot.table_at + 4 * cluster)?);
    if entry == u32::MAX {
        Ok(None)
    } else {
        boot.checked(entry).map(Some)
    }
}

impl Boot {
    /// Returns the offset of a cluster on the volume in bytes.
    fn place(&self, cluster: u64) -> u64 {
        self.heap_at + (cluster - FIRST) * self.cluster_size
    }

    /// Returns the number of a cluster; fails if the volume does not have it.
    fn checked(&self, cluster: u32) -> Result<u64> {
        let cluster = u64::from(cluster);
        if (FIRST..self.clusters + FIRST).contains(&cluster) {
            return Ok(cluster);
        }
        Err(Error::new(
            Kind::Corrupt,
            LAYER,
            format!(
                "cluster {cluster} is past the end of the volume, whose last cluster is {}",
                self.clusters + 1
            ),
        ))
    }
}

impl MapReader for ExFat {
    fn piece(&self, index: u64, count: usize) -> Result<MapEntry> {
        let mut bits = bandsaw_core::device::zeros(count.div_ceil(8))?;
        let (mut at, mut rest) = (index * (PER_PIECE / 8), &mut bits[..]);
        while !rest.is_empty() {
            let (number, within) = (at / self.boot.cluster_size, at % self.boot.cluster_size);
            let cluster = usize::try_from(number)
                .ok()
                .and_then(|number| self.bitmap.get(number));
            let cluster = cluster
                .ok_or_else(|| Error::new(Kind::Corrupt, LAYER, "the bitmap is too short"))?;
            let (now, later) =
                rest.split_at_mut(rest.len().min(to_usize(self.boot.cluster_size - within)));
            self.device
                .read_at(self.boot.place(*cluster) + within, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(MapEntry::Bits(bits))
    }

    fn check(&self, map: &ForeignFree) -> Result<()> {
        map.check_used(self.boot.root - FIRST, 1, "root directory")?;
        map.check_used(self.upcase - FIRST, 1, "table for upper case")?;
        self.bitmap
            .iter()
            .try_for_each(|cluster| map.check_used(cluster - FIRST, 1, "bitmap"))
    }
}
