//! The sizes of a new volume's parts (§5).

use bandsaw_core::{Error, Result};

use super::super::layout::Width;
use super::LAYER;

/// Sectors before the first table on FAT32, as Microsoft's specification says.
const RESERVED_32: u64 = 32;
/// Number of tables.
pub(super) const TABLES: u64 = 2;
/// Entries of the root directory on FAT12 and FAT16, unless it needs more.
const ROOT_ENTRIES: u64 = 512;
/// Maximum number of them.
const MAX_ROOT_ENTRIES: u64 = 65_520;
/// Drivers disagree about the type of volumes whose number of clusters is this close to a limit.
const MARGIN: u64 = 16;
/// Maximum number of sectors of a cluster.
const MAX_PER_CLUSTER: u64 = 128;
/// Maximum size of a cluster in bytes that all readers know.
const MAX_CLUSTER: u64 = 32 << 10;

/// Lengths of volumes in sectors of 512 bytes, up to which a cluster has so many of them.
///
/// Source: Microsoft, FAT: General Overview of On-Disk Format, 1.03, "FAT Volume Initialization".
const CLUSTERS_16: [(u64, u64); 6] = [
    (32_680, 2),
    (262_144, 4),
    (524_288, 8),
    (1_048_576, 16),
    (2_097_152, 32),
    (u64::MAX, 64),
];
const CLUSTERS_32: [(u64, u64); 5] = [
    (532_480, 1),
    (16_777_216, 8),
    (33_554_432, 16),
    (67_108_864, 32),
    (u64::MAX, 64),
];
/// Lengths of volumes in sectors of 512 bytes below which FAT12 is chosen, and up to which FAT16 is.
const FAT12_BELOW: u64 = 8_400;
const FAT16_UP_TO: u64 = 1_048_576;

/// Returns the type that is chosen for a volume of `len` bytes.
pub(super) const fn width_of(len: u64) -> Width {
    match len / 512 {
        ..FAT12_BELOW => Width::Fat12,
        FAT12_BELOW..=FAT16_UP_TO => Width::Fat16,
        _ => Width::Fat32,
    }
}

/// The properties that decide about the parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) width: Option<Width>,
    /// Bytes of a cluster.
    pub(super) cluster: Option<u64>,
    /// Entries of the root directory that are needed.
    pub(super) root_entries: u64,
}

/// The parts of a volume, in sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FatGeometry {
    pub(super) width: Width,
    /// Bytes of a sector.
    pub(super) sector: u64,
    pub(super) sectors: u64,
    pub(super) per_cluster: u64,
    pub(super) reserved: u64,
    /// Sectors of a table.
    pub(super) table: u64,
    /// 0 on FAT32.
    pub(super) root_entries: u64,
    pub(super) clusters: u64,
}

/// Returns the least and the largest number of clusters.
const fn limits(width: Width) -> (u64, u64) {
    match width {
        Width::Fat12 => (1, 4084 - MARGIN),
        Width::Fat16 => (4085 + MARGIN, 65_524 - MARGIN),
        Width::Fat32 => (65_525 + MARGIN, Width::Fat32.max_clusters() - MARGIN),
    }
}

impl FatGeometry {
    /// Returns the parts of a volume of `len` bytes.
    ///
    /// [`Kind::Limit`](bandsaw_core::Kind) if it is too small or too large for the type.
    pub(super) fn new(len: u64, sector: u64, wanted: Wanted) -> Result<Self> {
        let usual_sectors = len / 512;
        let width = wanted.width.unwrap_or(width_of(len));
        let (least, most) = limits(width);
        let sectors = len / sector;
        if u32::try_from(sectors).is_err() {
            let message =
                format!("a volume of {len} bytes has too many sectors for FAT; use exFAT");
            return Err(Error::limit(LAYER, message));
        }
        let by_table = |rows: &[(u64, u64)]| {
            rows.iter()
                .find(|(up_to, _)| usual_sectors <= *up_to)
                .map_or(1, |(_, per_cluster)| (per_cluster * 512).div_ceil(sector))
        };
        let mut per_cluster = match (wanted.cluster, width) {
            (Some(cluster), _) => checked_cluster(cluster, sector)?,
            (None, Width::Fat12) => 1,
            (None, Width::Fat16) => by_table(&CLUSTERS_16),
            (None, Width::Fat32) => by_table(&CLUSTERS_32),
        };
        loop {
            let found = Self::with(width, sector, sectors, per_cluster, wanted.root_entries)?;
            let can_change = wanted.cluster.is_none();
            if found.clusters > most && can_change && per_cluster * 2 * sector <= MAX_CLUSTER {
                per_cluster *= 2;
            } else if found.clusters < least && can_change && per_cluster > 1 {
                per_cluster /= 2;
                // Half of the size may be too small for the largest number.
                let smaller = Self::with(width, sector, sectors, per_cluster, wanted.root_entries)?;
                if smaller.clusters > most {
                    return Err(outside(width, len));
                }
            } else if !(least..=most).contains(&found.clusters) {
                return Err(outside(width, len));
            } else {
                return Ok(found);
            }
        }
    }

    /// Returns the parts with clusters of `per_cluster` sectors.
    fn with(
        width: Width,
        sector: u64,
        sectors: u64,
        per_cluster: u64,
        root_entries: u64,
    ) -> Result<Self> {
        let per_sector = sector / 32;
        let (reserved, root_entries) = match width {
            Width::Fat32 => (RESERVED_32, 0),
            _ => (
                1,
                ROOT_ENTRIES.max(root_entries.next_multiple_of(per_sector)),
            ),
        };
        if root_entries > MAX_ROOT_ENTRIES {
            let message = format!(
                "the root folder needs {root_entries} entries, {} has at most {MAX_ROOT_ENTRIES}",
                width.name()
            );
            return Err(Error::limit(LAYER, message));
        }
        let head = reserved + root_entries / per_sector;
        let mut table = 1;
        loop {
            let clusters = sectors.saturating_sub(head + TABLES * table) / per_cluster;
            let needed = width.entry().bytes(clusters + 2).div_ceil(sector);
            if needed <= table {
                return Ok(Self {
                    width,
                    sector,
                    sectors,
                    per_cluster,
                    reserved,
                    table,
                    root_entries,
                    clusters,
                });
            }
            table = needed;
        }
    }

    /// Returns a length in bytes that a volume of the type can have, near the least one.
    pub(super) fn least_len(sector: u64, wanted: Wanted) -> Result<u64> {
        let per_cluster = match wanted.cluster {
            Some(cluster) => checked_cluster(cluster, sector)?,
            None => 1,
        };
        let width = wanted.width.unwrap_or(Width::Fat12);
        let (clusters, _) = limits(width);
        let table = width.entry().bytes(clusters + 2).div_ceil(sector) + 1;
        let root = wanted.root_entries.max(ROOT_ENTRIES) * 32 / sector + 1;
        let head = RESERVED_32 + root + TABLES * table;
        Ok((head + clusters * per_cluster) * sector)
    }

    pub(super) fn cluster_size(&self) -> u64 {
        self.per_cluster * self.sector
    }

    /// Returns the offset of a table in bytes.
    pub(super) fn table_at(&self, number: u64) -> u64 {
        (self.reserved + number * self.table) * self.sector
    }

    /// Returns the offset of the root directory on FAT12 and FAT16 in bytes.
    pub(super) fn root_at(&self) -> u64 {
        self.table_at(TABLES)
    }

    /// Returns the offset of cluster 2 in bytes.
    pub(super) fn clusters_at(&self) -> u64 {
        self.root_at() + self.root_entries * 32
    }
}

fn checked_cluster(cluster: u64, sector: u64) -> Result<u64> {
    let per_cluster = cluster / sector;
    if cluster.is_power_of_two()
        && (1..=MAX_PER_CLUSTER).contains(&per_cluster)
        && cluster <= MAX_CLUSTER * 2
    {
        return Ok(per_cluster);
    }
    let message = format!(
        "invalid block size {cluster}: expected a power of two from {sector} to {}",
        MAX_CLUSTER * 2
    );
    Err(Error::invalid(LAYER, message))
}

fn outside(width: Width, len: u64) -> Error {
    let (least, most) = limits(width);
    let message = format!(
        "a volume of {len} bytes does not have the {least} to {most} clusters of {}; choose \
         another size, block size or file system",
        width.name()
    );
    Error::limit(LAYER, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len: u64, width: Option<Width>) -> Result<FatGeometry> {
        let wanted = Wanted {
            width,
            cluster: None,
            root_entries: 10,
        };
        FatGeometry::new(len, 512, wanted)
    }

    #[test]
    fn types_and_clusters_follow_the_specification() {
        let (mib, gib) = (1 << 20, 1 << 30);
        for (len, width, expected, cluster) in [
            (mib, None, Width::Fat12, 512),
            (4 * mib, None, Width::Fat12, 1024),
            (5 * mib, None, Width::Fat16, 1024),
            (100 * mib, None, Width::Fat16, 2048),
            (512 * mib, None, Width::Fat16, 8192),
            (513 * mib, None, Width::Fat32, 4096),
            (40 * mib, Some(Width::Fat32), Width::Fat32, 512),
            (260 * mib, Some(Width::Fat32), Width::Fat32, 512),
            (261 * mib, Some(Width::Fat32), Width::Fat32, 4096),
            (9 * gib, None, Width::Fat32, 8192),
            (64 * gib, None, Width::Fat32, 32768),
            (2 * gib - mib, Some(Width::Fat16), Width::Fat16, 32768),
            (100 * mib, Some(Width::Fat12), Width::Fat12, 32768),
        ] {
            let found = of(len, width).unwrap();
            assert_eq!(
                (found.width, found.cluster_size()),
                (expected, cluster),
                "{len}"
            );
            let end = found.clusters_at() + found.clusters * found.cluster_size();
            assert!(
                end <= len && len - end < found.cluster_size() + 4096,
                "{found:?}"
            );
        }
        for (len, width) in [
            (20 * mib, Some(Width::Fat32)),
            (mib, Some(Width::Fat16)),
            (4 * gib, Some(Width::Fat16)),
            (gib, Some(Width::Fat12)),
            (3 << 40, None),
        ] {
            assert_eq!(
                of(len, width).unwrap_err().kind(),
                bandsaw_core::Kind::Limit,
                "{len}"
            );
        }
    }
}
