//! The resource fork that stores the chunks.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt, Info};
use crate::size::to_usize;

/// Maximum length of a fork that is read as a whole, in bytes.
const SMALL: u64 = 2 * super::CHUNK;

/// A resource fork. A small one is in memory, which costs one read and avoids copies.
#[derive(Debug)]
pub(super) enum PackedFork {
    Memory(Vec<u8>),
    Device(Arc<dyn BlockDevice>),
}

impl PackedFork {
    pub(super) fn new(fork: Arc<dyn BlockDevice>) -> Result<Self> {
        let len = fork.info().len;
        if len <= SMALL {
            Ok(Self::Memory(fork.read_vec(0, to_usize(len))?))
        } else {
            Ok(Self::Device(fork))
        }
    }

    pub(super) fn info(&self) -> Info {
        match self {
            Self::Memory(bytes) => Info::read_only(bytes.len() as u64),
            Self::Device(fork) => fork.info(),
        }
    }

    /// Fills `buf` from `offset`, all of which must be within the fork.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self {
            Self::Memory(bytes) => buf.copy_from_slice(&bytes[to_usize(offset)..][..buf.len()]),
            Self::Device(fork) => fork.read_at(offset, buf)?,
        }
        Ok(())
    }

    /// Calls `each` with the bytes at `place`, which must be within the fork.
    pub(super) fn with<R>(
        &self,
        place: Range<u64>,
        each: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        thread_local! {
            static PACKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let fork = match self {
            Self::Memory(bytes) => return each(&bytes[to_usize(place.start)..to_usize(place.end)]),
            Self::Device(fork) => fork,
        };
        // Taken rather than borrowed: the underlying device may be in a compressed file, too.
        let mut packed = PACKED.take();
        packed.resize(to_usize(place.end - place.start), 0);
        let result = fork
            .read_at(place.start, &mut packed)
            .and_then(|()| each(&packed));
        PACKED.set(packed);
        result
    }
}
