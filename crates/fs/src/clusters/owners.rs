//! The clusters that files own, for checks.

use bandsaw_core::device::zeros;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::{ClusterSpace, DirectoryPlace, FIRST, TableEntry};

/// A bit for each cluster, set if something owns it.
#[derive(Debug)]
pub(crate) struct ClusterOwners {
    bits: Vec<u8>,
}

/// The clusters of a file, and what is wrong with them.
#[derive(Debug, Default)]
pub(crate) struct OwnedClusters {
    /// Number of clusters that were followed.
    pub(crate) count: u64,
    pub(crate) problem: Option<Error>,
}

impl ClusterOwners {
    /// Returns the bits of a volume, none of them set.
    pub(crate) fn new(space: &ClusterSpace) -> Result<Self> {
        Ok(Self {
            bits: zeros(to_usize(space.clusters.div_ceil(8)))?,
        })
    }

    /// Returns true if something owns a cluster.
    pub(crate) fn has(&self, cluster: u64) -> bool {
        let (byte, bit) = place(cluster);
        self.bits.get(byte).is_some_and(|byte| byte & bit != 0)
    }

    /// Returns the bits, cluster 2 in the lowest bit of the first byte.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Records an owner. False: the cluster has one already.
    fn set_owned(&mut self, cluster: u64) -> bool {
        let (byte, bit) = place(cluster);
        match self.bits.get_mut(byte) {
            Some(byte) if *byte & bit == 0 => {
                *byte |= bit;
                true
            }
            _ => false,
        }
    }

    /// Takes a chain to its end, or to the first cluster that is not its own.
    pub(crate) fn take_chain(&mut self, space: &ClusterSpace, first: u64) -> Result<OwnedClusters> {
        let mut owned = OwnedClusters::default();
        let fault = |message: String| Some(Error::new(Kind::Corrupt, space.layer, message));
        if !space.has(first) {
            owned.problem = fault(format!("begins in cluster {first}, outside the volume"));
            return Ok(owned);
        }
        let mut at = first;
        loop {
            if !self.set_owned(at) {
                owned.problem = fault(format!(
                    "shares cluster {at} with another file, or its chain is a loop"
                ));
                return Ok(owned);
            }
            owned.count += 1;
            at = match space.table.link(at)? {
                TableEntry::Next(next) => next,
                TableEntry::End => return Ok(owned),
                link => {
                    owned.problem = fault(format!("the chain leads from cluster {at} to {link}"));
                    return Ok(owned);
                }
            };
        }
    }

    /// Takes contiguous clusters.
    pub(crate) fn take_range(
        &mut self,
        space: &ClusterSpace,
        first: u64,
        count: u64,
    ) -> OwnedClusters {
        let mut owned = OwnedClusters::default();
        for cluster in first..first.saturating_add(count) {
            let why = match space.has(cluster) {
                true if self.set_owned(cluster) => {
                    owned.count += 1;
                    continue;
                }
                true => format!("shares cluster {cluster} with another file"),
                false => format!("has cluster {cluster}, outside the volume"),
            };
            owned.problem = Some(Error::new(Kind::Corrupt, space.layer, why));
            break;
        }
        owned
    }

    /// Takes the clusters of a directory.
    pub(crate) fn take_directory(
        &mut self,
        space: &ClusterSpace,
        place: &DirectoryPlace,
    ) -> Result<OwnedClusters> {
        match *place {
            DirectoryPlace::Fixed(_) => Ok(OwnedClusters::default()),
            DirectoryPlace::Chain { first, .. } | DirectoryPlace::ChainOf { first, .. } => {
                self.take_chain(space, first)
            }
            DirectoryPlace::Contiguous { first, len } => {
                Ok(self.take_range(space, first, space.clusters_for(len)))
            }
        }
    }
}

fn place(cluster: u64) -> (usize, u8) {
    let number = cluster - FIRST;
    (to_usize(number / 8), 1 << (number % 8))
}
