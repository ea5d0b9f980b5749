//! The sizes of a new volume's parts (§6).

use bandsaw_core::{Error, Result};

use super::LAYER;
use crate::clusters::FIRST;

/// Minimum length of a volume in bytes.
pub(super) const MIN_LEN: u64 = 1 << 20;
/// Sector of the table, behind both boot regions.
pub(super) const TABLE_SECTOR: u32 = 24;
/// Maximum number of clusters.
const MAX_CLUSTERS: u64 = 0xFFFF_FFF5;
/// Maximum size of a cluster in bytes.
const MAX_CLUSTER: u64 = 32 << 20;

/// Lengths of volumes in bytes, up to which a cluster has so many bytes.
///
/// Source: Microsoft, "Default cluster size for NTFS, FAT, and exFAT", the table of exFAT.
const CLUSTERS: [(u64, u64); 3] = [
    (256 << 20, 4 << 10),
    (32 << 30, 32 << 10),
    (256 << 40, 128 << 10),
];

/// The parts of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExFatGeometry {
    /// Bytes of a sector.
    pub(super) sector: u64,
    pub(super) sectors: u64,
    /// Sectors of the table.
    pub(super) table: u64,
    /// Sector of cluster 2.
    pub(super) heap: u64,
    pub(super) cluster_size: u64,
    pub(super) clusters: u64,
}

impl ExFatGeometry {
    /// Returns the parts of a volume of `len` bytes.
    pub(super) fn new(len: u64, sector: u64, cluster: Option<u64>) -> Result<Self> {
        if len < MIN_LEN {
            let message =
                format!("a volume of {len} bytes is too small for exFAT: {MIN_LEN} is the least");
            return Err(Error::limit(LAYER, message));
        }
        let usual = CLUSTERS
            .iter()
            .find(|(up_to, _)| len <= *up_to)
            .map_or(MAX_CLUSTER, |(_, size)| *size);
        let cluster_size = cluster.unwrap_or(usual).max(match cluster {
            Some(_) => 0,
            None => sector,
        });
        if !cluster_size.is_power_of_two() || !(sector..=MAX_CLUSTER).contains(&cluster_size) {
            let message = format!(
                "invalid block size {cluster_size}: expected a power of two from {sector} to \
                 {MAX_CLUSTER}"
            );
            return Err(Error::invalid(LAYER, message));
        }
        let (sectors, per_cluster) = (len / sector, cluster_size / sector);
        let table_at = u64::from(TABLE_SECTOR);
        let mut table = 1;
        loop {
            // Cluster 2 begins at a multiple of the clusters' size.
            let heap = (table_at + table).next_multiple_of(per_cluster);
            let clusters = (sectors.saturating_sub(heap) / per_cluster).min(MAX_CLUSTERS);
            let needed = ((clusters + FIRST) * 4).div_ceil(sector);
            if needed > table {
                table = needed;
                continue;
            }
            if clusters == 0 || u32::try_from(heap).is_err() {
                let message = format!(
                    "a volume of {len} bytes has no room for clusters of {cluster_size} bytes"
                );
                return Err(Error::limit(LAYER, message));
            }
            return Ok(Self {
                sector,
                sectors,
                table,
                heap,
                cluster_size,
                clusters,
            });
        }
    }

    /// Returns the offset of a cluster in bytes.
    pub(super) fn offset(&self, cluster: u64) -> u64 {
        self.heap * self.sector + (cluster - FIRST) * self.cluster_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_follow_the_table() {
        for (len, cluster) in [
            (1 << 20, 4096),
            (256 << 20, 4096),
            ((256 << 20) + 512, 32768),
            (32 << 30, 32768),
            (64 << 30, 131_072),
        ] {
            let found = ExFatGeometry::new(len, 512, None).unwrap();
            assert_eq!(found.cluster_size, cluster, "{len}");
            let end = found.offset(FIRST + found.clusters);
            assert!(end <= len && len - end < cluster, "{found:?}");
            assert!((found.clusters + 2) * 4 <= found.table * 512);
            assert_eq!(found.heap * 512 % cluster, 0);
        }
        assert!(ExFatGeometry::new(4096, 512, None).is_err());
        assert!(ExFatGeometry::new(1 << 20, 512, Some(1000)).is_err());
        assert!(ExFatGeometry::new(1 << 20, 512, Some(1 << 20)).is_err());
        assert!(ExFatGeometry::new(1 << 20, 4096, Some(512)).is_err());
    }
}
