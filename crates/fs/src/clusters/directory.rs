//! The entries of a directory, 32 bytes each, with their places on the volume.

use std::ops::Range;

use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::ClusterSpace;

/// Bytes of an entry.
pub(crate) const ENTRY_LEN: usize = 32;
/// Bytes that are read in one call.
const PIECE: u64 = 16 << 10;

/// The place of a directory on its volume.
#[derive(Debug, Clone)]
pub(crate) enum DirectoryPlace {
    /// Bytes of the volume outside the clusters.
    Fixed(Range<u64>),
    /// A chain of clusters that is read to its end, at most so many bytes.
    Chain { first: u64, max: u64 },
    /// A chain of clusters of this length in bytes.
    ChainOf { first: u64, len: u64 },
    /// Contiguous clusters of this length in bytes, which the table does not link.
    Contiguous { first: u64, len: u64 },
}

impl DirectoryPlace {
    /// Returns the first bytes of the directory, to count its entries: entries of many folders could name
    /// the same long directory.
    pub(crate) fn counted(&self) -> Self {
        /// Room for 8192 entries.
        const MAX_COUNTED: u64 = 256 << 10;
        match *self {
            Self::Fixed(_) => self.clone(),
            Self::Chain { first, max } => Self::Chain {
                first,
                max: max.min(MAX_COUNTED),
            },
            Self::ChainOf { first, len } => Self::ChainOf {
                first,
                len: len.min(MAX_COUNTED),
            },
            Self::Contiguous { first, len } => Self::Contiguous {
                first,
                len: len.min(MAX_COUNTED),
            },
        }
    }
}

/// A reader of entries in order.
#[derive(Debug)]
pub(crate) struct DirectoryReader<'a> {
    space: &'a ClusterSpace,
    place: DirectoryPlace,
    /// The bytes of the current cluster, or of the fixed place, that are not yet read.
    rest: Range<u64>,
    /// The current cluster. `None`: a fixed place.
    cluster: Option<u64>,
    /// Bytes of clusters that were begun.
    begun: u64,
    piece: Vec<u8>,
    piece_at: u64,
    within: usize,
    /// Number of entries that were read.
    position: u64,
}

impl<'a> DirectoryReader<'a> {
    /// Begins to read a directory.
    pub(crate) fn new(space: &'a ClusterSpace, place: &DirectoryPlace) -> Result<Self> {
        let mut reader = Self {
            space,
            place: place.clone(),
            rest: 0..0,
            cluster: None,
            begun: 0,
            piece: Vec::new(),
            piece_at: 0,
            within: 0,
            position: 0,
        };
        match *place {
            DirectoryPlace::Fixed(ref range) => reader.rest = range.clone(),
            DirectoryPlace::Chain { first, .. }
            | DirectoryPlace::ChainOf { first, .. }
            | DirectoryPlace::Contiguous { first, .. } => reader.begin(first)?,
        }
        Ok(reader)
    }

    /// Returns the number of entries that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Continues with a cluster.
    fn begin(&mut self, cluster: u64) -> Result<()> {
        let size = self.space.cluster_size;
        let len = match self.place {
            DirectoryPlace::ChainOf { len, .. } | DirectoryPlace::Contiguous { len, .. } => {
                len.saturating_sub(self.begun).min(size)
            }
            _ => size,
        };
        if len == 0 {
            self.rest = 0..0;
            return Ok(());
        }
        let start = self.space.offset(self.space.checked(cluster)?);
        self.rest = start..start + len;
        self.cluster = Some(cluster);
        self.begun += len;
        Ok(())
    }

    /// Returns true if another cluster was begun.
    fn advance(&mut self) -> Result<bool> {
        let Some(cluster) = self.cluster else {
            return Ok(false);
        };
        let next = match self.place {
            DirectoryPlace::Fixed(_) => None,
            DirectoryPlace::Contiguous { len, .. } => (self.begun < len).then_some(cluster + 1),
            DirectoryPlace::ChainOf { len, .. } if self.begun >= len => None,
            DirectoryPlace::ChainOf { len, .. } => {
                let next = self.space.next(cluster)?;
                if next.is_none() {
                    let message = format!("ends after {} of its {len} bytes", self.begun);
                    return Err(Error::new(Kind::Corrupt, self.space.layer, message));
                }
                next
            }
            DirectoryPlace::Chain { max, .. } => match self.space.next(cluster)? {
                Some(_) if self.begun >= max => {
                    let message = format!("is longer than {max} bytes, or its chain is a loop");
                    return Err(Error::new(Kind::Corrupt, self.space.layer, message));
                }
                next => next,
            },
        };
        match next {
            Some(next) => self.begin(next).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns the next entry and its offset on the volume; `None` at the end of the directory's space.
    pub(crate) fn read_next(&mut self) -> Result<Option<(u64, [u8; ENTRY_LEN])>> {
        loop {
            let bytes = self.piece.get(self.within..);
            if let Some(entry) = bytes.and_then(|bytes| bytes.first_chunk()) {
                let offset = self.piece_at + self.within as u64;
                self.within += ENTRY_LEN;
                self.position += 1;
                return Ok(Some((offset, *entry)));
            }
            if self.rest.is_empty() && !self.advance()? {
                return Ok(None);
            }
            let end = self.rest.end.min(self.rest.start + PIECE);
            let len = to_usize(end - self.rest.start);
            self.piece = self.space.device.read_vec(self.rest.start, len)?;
            (self.piece_at, self.within) = (self.rest.start, 0);
            self.rest.start = end;
        }
    }
}
