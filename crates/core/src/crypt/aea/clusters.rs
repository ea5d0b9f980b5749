//! The chain of cluster headers. Each holds the MAC of the next, so that the header of a cluster is
//! authenticated only by way of all before it: their places and MACs are kept, the headers read
//! again.

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::LAYER;
use super::derive::{DerivationKey, KeySchedule};
use super::layout::{MAC, Mac, RootHeader, SEGMENT_SIZE, SegmentRaw};
use super::prologue::UnlockedArchive;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::{narrow, to_usize};
use crate::sync::Mutex;
use crate::{Error, Reason, Result};

/// Maximum size of the headers that are kept, in bytes; one is kept in any case.
const KEPT: usize = 8 << 20;
/// Maximum number of headers that are kept.
const MAX_KEPT: usize = 64;

/// A segment of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    /// File offset in bytes.
    pub(super) at: u64,
    /// Stored length in bytes; at most `len`.
    pub(super) stored: u32,
    /// Length of the contents in bytes, at least 1.
    pub(super) len: u32,
    pub(super) mac: Mac,
    /// The checksum; shorter ones are followed by zeros.
    pub(super) sum: [u8; 32],
}

/// An authenticated cluster header.
pub(super) struct Cluster {
    pub(super) key: DerivationKey,
    /// The segments with contents.
    pub(super) segments: Vec<Segment>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}

/// The place and the MAC of a cluster header.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: u64,
    mac: Mac,
}

/// The clusters of an archive, by their numbers from 0.
#[derive(Debug)]
pub(super) struct Clusters {
    /// Of all clusters up to the last that was reached, at least the first. Less than the headers take in the
    /// file.
    known: Mutex<Vec<Start>>,
    recent: Mutex<VecDeque<(u32, Arc<Cluster>)>>,
}

impl Clusters {
    pub(super) fn new(archive: &UnlockedArchive) -> Self {
        let first = Start {
            at: archive.first,
            mac: archive.first_mac,
        };
        Self {
            known: Mutex::new(vec![first]),
            recent: Mutex::default(),
        }
    }

    /// Returns cluster `number`, which must be less than their number. Reads the headers on the
    /// way to it that were not reached yet.
    pub(super) fn get(
        &self,
        number: u32,
        file: &dyn BlockDevice,
        root: &RootHeader,
        keys: &KeySchedule,
    ) -> Result<Arc<Cluster>> {
        if let Some(kept) = self.cached(number) {
            return Ok(kept);
        }
        let mut known = self.known.lock();
        // Another thread may have read it meanwhile.
        if let Some(kept) = self.cached(number) {
            return Ok(kept);
        }
        let mut at = narrow::<u32>(known.len().saturating_sub(1)).min(number);
        loop {
            let Some(start) = known.get(at as usize).copied() else {
                return Err(Error::out_of_range(
                    LAYER,
                    number.into(),
                    1,
                    root.clusters(),
                ));
            };
            let (cluster, next) = read(at, start, file, root, keys)?;
            if known.len() == at as usize + 1 {
                known.push(next);
            }
            if at == number {
                let cluster = Arc::new(cluster);
                self.cache_cluster(number, cluster.clone());
                return Ok(cluster);
            }
            at += 1;
        }
    }

    fn cached(&self, number: u32) -> Option<Arc<Cluster>> {
        let recent = self.recent.lock();
        let found = recent.iter().find(|(kept, _)| *kept == number);
        found.map(|(_, cluster)| cluster.clone())
    }

    fn cache_cluster(&self, number: u32, cluster: Arc<Cluster>) {
        let mut recent = self.recent.lock();
        recent.push_front((number, cluster));
        let bytes = |recent: &VecDeque<(u32, Arc<Cluster>)>| -> usize {
            let segments = recent.iter().map(|(_, cluster)| cluster.segments.len());
            segments.sum::<usize>() * size_of::<Segment>()
        };
        while recent.len() > MAX_KEPT || (recent.len() > 1 && bytes(&recent) > KEPT) {
            recent.pop_back();
        }
    }
}

/// Reads and authenticates the header of a cluster. Returns it with the place of the next.
fn read(
    number: u32,
    start: Start,
    file: &dyn BlockDevice,
    root: &RootHeader,
    keys: &KeySchedule,
) -> Result<(Cluster, Start)> {
    let damaged = |at: u64, message: String| Error::corrupt(LAYER, at, message);
    let file_len = file.info().len;
    let cut = |what: String| {
        let message = format!("the file is truncated within {what}");
        damaged(file_len, message).because(Reason::Truncated)
    };
    let len = root.cluster_header_len();
    let data = start.at.saturating_add(len as u64);
    if data > file_len {
        return Err(cut(format!("the header of cluster {number}")));
    }
    let mut bytes = file.read_vec(start.at, len)?;
    let (headers, macs) = bytes.split_at_mut(root.headers_len());
    let key = keys.cluster(number);
    if !keys
        .cluster_header(&key)
        .open(&[&*macs], headers, &start.mac)
    {
        let message = format!("the MAC of the header of cluster {number} does not match");
        return Err(damaged(start.at, message));
    }
    let (next, macs) = macs.as_chunks::<MAC>().0.split_first().ok_or_else(|| {
        damaged(
            start.at,
            format!("the header of cluster {number} has no MACs"),
        )
    })?;
    let first = u64::from(number) * u64::from(root.segments_per_cluster);
    let mut segments = Vec::new();
    let mut at = data;
    let sum_len = root.checksum.len();
    for (place, (header, mac)) in headers
        .chunks_exact(SEGMENT_SIZE + sum_len)
        .zip(macs)
        .enumerate()
    {
        let expected = root.segment_len(first + place as u64);
        if expected == 0 {
            break;
        }
        let (raw, sum) = SegmentRaw::read_from_prefix(header)
            .map_err(|_| damaged(start.at, "the header is too short".to_owned()))?;
        let (len, stored) = (raw.size.get(), raw.stored.get());
        if len != expected || stored == 0 || stored > len {
            let message = format!(
                "segment {place} of cluster {number} has {len} bytes, stored in {stored}: \
                 expected {expected}, stored in at most as many"
            );
            return Err(damaged(start.at, message));
        }
        let mut padded = [0; 32];
        padded[..sum_len].copy_from_slice(sum);
        segments.push(Segment {
            at,
            stored,
            len,
            mac: *mac,
            sum: padded,
        });
        at = at.saturating_add(u64::from(stored));
        if at > file_len {
            return Err(cut(format!("segment {place} of cluster {number}")));
        }
    }
    let next = Start { at, mac: *next };
    Ok((Cluster { key, segments }, next))
}

/// Returns the number of the cluster of a segment, and the place of the segment in it.
pub(super) fn place_of(segment: u32, root: &RootHeader) -> (u32, usize) {
    let in_each = root.segments_per_cluster;
    (segment / in_each, to_usize(u64::from(segment % in_each)))
}
