//! Clusters, and the table that links them: the common part of FAT and exFAT.

pub(crate) mod build;
mod contents;
mod dates;
mod directory;
mod findings;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fixture;
mod name;
mod owners;
pub(crate) mod plan;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use std::sync::Arc;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

pub(crate) use contents::ClusterContents;
pub(crate) use dates::DosDate;
pub(crate) use directory::{DirectoryPlace, DirectoryReader, ENTRY_LEN};
pub(crate) use findings::{ClusterFindings, path_of};
pub(crate) use name::{same_but_case, shown};
pub(crate) use owners::{ClusterOwners, OwnedClusters};
pub(crate) use table::{AllocationTable, EntryWidth, TableEntry};

/// Number of the first cluster.
pub(crate) const FIRST: u64 = 2;
/// Maximum number of pieces of a file: 48 MiB of memory.
const MAX_RUNS: usize = 4 << 20;

/// Contiguous clusters of a file. In clusters; volumes have fewer than 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first of them within the file, from 0.
    pub(crate) logical: u32,
    /// The number of the first of them on the volume.
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Adds clusters to the end of a file; those that follow the last ones are joined with them.
pub(crate) fn push_run(runs: &mut Vec<Run>, first: u32, count: u32) {
    let logical = match runs.last_mut() {
        Some(last) if last.first + last.count == first => {
            last.count += count;
            return;
        }
        Some(last) => last.logical + last.count,
        None => 0,
    };
    runs.push(Run {
        logical,
        first,
        count,
    });
}

/// The clusters of a volume.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSpace {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) layer: &'static str,
    /// Offset of the first cluster on the volume, in bytes.
    pub(crate) start: u64,
    pub(crate) cluster_size: u64,
    /// Number of clusters, below 2^32.
    pub(crate) clusters: u64,
    pub(crate) table: Arc<AllocationTable>,
}

impl ClusterSpace {
    /// Returns the offset of a cluster on the volume in bytes.
    pub(crate) fn offset(&self, cluster: u64) -> u64 {
        self.start + (cluster - FIRST) * self.cluster_size
    }

    /// Returns the cluster that holds a byte of the volume.
    pub(crate) fn cluster_at(&self, offset: u64) -> Option<u64> {
        let number = offset.checked_sub(self.start)? / self.cluster_size;
        (number < self.clusters).then_some(number + FIRST)
    }

    /// Returns true if the volume has a cluster with this number.
    pub(crate) fn has(&self, cluster: u64) -> bool {
        (FIRST..self.clusters + FIRST).contains(&cluster)
    }

    /// Returns the number of a cluster; fails if the volume does not have it.
    pub(crate) fn checked(&self, cluster: u64) -> Result<u64> {
        if self.has(cluster) {
            return Ok(cluster);
        }
        let message = format!(
            "cluster {cluster} is outside the volume, whose clusters are {FIRST} to {}",
            self.clusters + 1
        );
        Err(self.corrupt(message))
    }

    /// Returns the number of clusters that hold `len` bytes.
    pub(crate) fn clusters_for(&self, len: u64) -> u64 {
        len.div_ceil(self.cluster_size)
    }

    fn corrupt(&self, message: String) -> Error {
        Error::new(Kind::Corrupt, self.layer, message)
    }

    /// Returns the cluster after `cluster` in its chain; `None` if it is the last.
    pub(crate) fn next(&self, cluster: u64) -> Result<Option<u64>> {
        match self.table.link(cluster)? {
            TableEntry::Next(next) => Ok(Some(next)),
            TableEntry::End => Ok(None),
            link => Err(self.corrupt(format!("the chain leads from cluster {cluster} to {link}"))),
        }
    }

    /// Returns the first `needed` clusters of a chain.
    ///
    /// Fails if the chain is shorter, or if a cluster is in it twice.
    pub(crate) fn chain(&self, first: u64, needed: u64) -> Result<Box<[Run]>> {
        self.check_fits(needed)?;
        let mut runs: Vec<Run> = Vec::new();
        let mut at = first;
        for number in 0..needed {
            let cluster = self.checked(at)?;
            let count = runs.len();
            match runs.last_mut() {
                Some(last) if u64::from(last.first) + u64::from(last.count) == cluster => {
                    last.count += 1;
                }
                _ if count >= MAX_RUNS => {
                    let message = format!("a file is in more than {MAX_RUNS} pieces");
                    return Err(Error::limit(self.layer, message));
                }
                _ => runs.push(Run {
                    logical: narrow(number),
                    first: narrow(cluster),
                    count: 1,
                }),
            }
            if number + 1 == needed {
                break;
            }
            at = self.next(cluster)?.ok_or_else(|| {
                let message = format!(
                    "the chain ends with cluster {cluster} after {} of {needed} clusters",
                    number + 1
                );
                self.corrupt(message)
            })?;
        }
        self.check_apart(&runs)?;
        Ok(runs.into())
    }

    /// Returns all clusters of a chain.
    ///
    /// Fails if a cluster is in it twice.
    pub(crate) fn whole_chain(&self, first: u64) -> Result<Vec<Run>> {
        let (mut runs, mut at, mut count) = (Vec::new(), self.checked(first)?, 0);
        loop {
            if count >= self.clusters {
                let message = format!("the chain that begins in cluster {first} is a loop");
                return Err(self.corrupt(message));
            }
            push_run(&mut runs, narrow(at), 1);
            if runs.len() > MAX_RUNS {
                let message = format!("a file is in more than {MAX_RUNS} pieces");
                return Err(Error::limit(self.layer, message));
            }
            count += 1;
            match self.next(at)? {
                Some(next) => at = next,
                None => break,
            }
        }
        self.check_apart(&runs)?;
        Ok(runs)
    }

    /// Returns `needed` contiguous clusters from `first`.
    pub(crate) fn contiguous(&self, first: u64, needed: u64) -> Result<Box<[Run]>> {
        self.check_fits(needed)?;
        if needed == 0 {
            return Ok(Box::default());
        }
        self.checked(first)?;
        self.checked(first + needed - 1)?;
        Ok([Run {
            logical: 0,
            first: narrow(first),
            count: narrow(needed),
        }]
        .into())
    }

    fn check_fits(&self, needed: u64) -> Result<()> {
        if needed <= self.clusters {
            return Ok(());
        }
        let message = format!(
            "{needed} clusters are more than the volume's {}",
            self.clusters
        );
        Err(self.corrupt(message))
    }

    fn check_apart(&self, runs: &[Run]) -> Result<()> {
        let mut sorted: Vec<_> = runs.iter().map(|run| (run.first, run.count)).collect();
        sorted.sort_unstable();
        let overlap = sorted.windows(2).find_map(|pair| match *pair {
            [(first, count), (next, _)] if u64::from(first) + u64::from(count) > next.into() => {
                Some(next)
            }
            _ => None,
        });
        match overlap {
            None => Ok(()),
            Some(cluster) => Err(self.corrupt(format!(
                "the chain is a loop: it has cluster {cluster} twice"
            ))),
        }
    }
}
