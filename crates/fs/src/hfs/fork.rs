//! The location of a fork's bytes (§3, §4).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::layout::{ExtentsRaw, LAYER};
use crate::extent_device::{ExtentDevice, push_joined};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};

/// The volume below, as far as forks need it.
#[derive(Debug)]
pub(super) struct BlockSpace {
    pub(super) device: Arc<dyn BlockDevice>,
    /// Offset of allocation block 0 in bytes.
    pub(super) start: u64,
    /// Size of an allocation block in bytes.
    pub(super) block_size: u32,
    /// Number of allocation blocks, which may exceed the device.
    pub(super) total_blocks: u16,
}

/// The owner of a fork, for error messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum ForkOwner {
    /// One of the volume's own files.
    Volume(&'static str),
    /// The data fork of the file with a number.
    Data(u32),
    /// The resource fork of the file with a number.
    Resource(u32),
}

impl fmt::Display for ForkOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(name) => f.write_str(name),
            Self::Data(id) => write!(f, "data fork of file {id}"),
            Self::Resource(id) => write!(f, "resource fork of file {id}"),
        }
    }
}

impl BlockSpace {
    /// Returns the first `len` bytes of a fork as a device. `more` returns the record with the extents
    /// from a given block of the fork on.
    pub(super) fn fork(
        &self,
        extents: &ExtentsRaw,
        len: u32,
        owner: ForkOwner,
        more: &mut dyn FnMut(u16) -> Result<Option<ExtentsRaw>>,
    ) -> Result<ExtentDevice> {
        let (len, block_size) = (u64::from(len), u64::from(self.block_size));
        let mut ranges = Vec::new();
        let mut blocks = self.append(extents, 0, owner, &mut ranges)?;
        while u64::from(blocks) * block_size < len {
            // Each record adds at least one block, so the loop ends with the 16 bits of the count.
            let added = match more(blocks)? {
                Some(record) => self.append(&record, blocks, owner, &mut ranges)?,
                None => blocks,
            };
            if added == blocks {
                let message = format!(
                    "missing extents: {blocks} blocks of {block_size} bytes found for {len} bytes"
                );
                return Err(corrupt(owner, message));
            }
            blocks = added;
        }
        check_disjoint(&ranges, owner)?;
        let fork = ExtentDevice::new(self.device.clone(), ranges, len, LAYER);
        let end = fork.places().map(|place| place.end).max();
        let available = self.device.info().len;
        if let Some(end) = end.filter(|&end| end > available) {
            let message = format!(
                "the fork extends to byte {end} of the volume, of which only {available} exist"
            );
            return Err(corrupt(owner, message));
        }
        Ok(fork)
    }

    /// Appends the extents of one record; returns the total number of blocks so far.
    fn append(
        &self,
        record: &ExtentsRaw,
        before: u16,
        owner: ForkOwner,
        ranges: &mut Vec<Range<u64>>,
    ) -> Result<u16> {
        let mut blocks = before;
        for extent in record {
            let (start, count) = (extent.start_block.get(), extent.block_count.get());
            if count == 0 {
                break;
            }
            if u32::from(start) + u32::from(count) > u32::from(self.total_blocks) {
                let message = format!(
                    "the extent from block {start} of {count} blocks reaches past the end of the \
                     volume, which has {} blocks",
                    self.total_blocks
                );
                return Err(corrupt(owner, message));
            }
            let bytes = |blocks: u16| u64::from(blocks) * u64::from(self.block_size);
            let start = self.start + bytes(start);
            push_joined(ranges, start..start + bytes(count));
            blocks = blocks.checked_add(count).ok_or_else(|| {
                let message = "the extents have more than 65535 blocks".to_owned();
                corrupt(owner, message)
            })?;
        }
        Ok(blocks)
    }
}

/// Fails if two extents share a block.
fn check_disjoint(ranges: &[Range<u64>], owner: ForkOwner) -> Result<()> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable_by_key(|range| range.start);
    let shared = sorted.windows(2).find(|pair| pair[0].end > pair[1].start);
    shared.map_or(Ok(()), |pair| {
        let message = format!(
            "two extents of the fork share byte {} of the volume",
            pair[1].start
        );
        Err(corrupt(owner, message))
    })
}

fn corrupt(owner: ForkOwner, message: String) -> Error {
    Error::new(Kind::Corrupt, LAYER, message).named(owner.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::layout::ExtentRaw;
    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};
    use bandsaw_testing::conformance;

    fn space(total_blocks: u16) -> BlockSpace {
        let bytes: Vec<u8> = (0..17_u8).flat_map(|block| [block; 512]).collect();
        BlockSpace {
            device: Arc::new(Memory::from(bytes)),
            start: 512,
            block_size: 512,
            total_blocks,
        }
    }

    fn record(extents: &[(u16, u16)]) -> ExtentsRaw {
        let mut record = ExtentsRaw::default();
        for (raw, &(start, count)) in record.iter_mut().zip(extents) {
            *raw = ExtentRaw {
                start_block: start.into(),
                block_count: count.into(),
            };
        }
        record
    }

    #[test]
    fn a_fork_reads_across_its_extents_in_order() {
        let mut asked = Vec::new();
        let extents = record(&[(9, 1), (3, 1), (4, 1)]);
        let fork = space(16)
            .fork(&extents, 4 * 512 - 5, ForkOwner::Data(20), &mut |block| {
                asked.push(block);
                Ok(Some(record(&[(12, 2)])))
            })
            .unwrap();
        assert_eq!(asked, [3]);
        let expected: Vec<u8> = [10, 4, 5, 13]
            .into_iter()
            .flat_map(|block: u8| [block; 512])
            .take(4 * 512 - 5)
            .collect();
        assert_eq!(fork.read_vec(0, expected.len()).unwrap(), expected);
        assert_eq!(fork.read_vec(510, 4).unwrap(), [10, 10, 4, 4]);
        // The two neighbors were merged.
        let extent = fork.extent_at(512..expected.len() as u64).unwrap();
        assert_eq!(extent.len, 1024);
        conformance::read_only(Arc::new(fork));
    }

    #[test]
    fn malformed_extents_are_refused() {
        let table = [
            (512, record(&[(15, 2)]), "has 16 blocks"),
            (512, record(&[(u16::MAX, u16::MAX)]), "has 16 blocks"),
            (513, record(&[(3, 1)]), "1 blocks of 512 bytes found"),
            (1, record(&[]), "0 blocks of 512 bytes found"),
            (1024, record(&[(3, 2), (7, 1), (4, 1)]), "share byte"),
        ];
        for (len, extents, expected) in table {
            for answer in [None, Some(record(&[]))] {
                let error = space(16)
                    .fork(&extents, len, ForkOwner::Resource(20), &mut |_| Ok(answer))
                    .unwrap_err()
                    .to_string();
                assert!(error.contains(expected), "{error}");
                assert!(error.contains("resource fork of file 20"), "{error}");
            }
        }
    }

    #[test]
    fn extents_past_the_end_of_the_device_are_refused() {
        let read = |len| {
            let none = &mut |_| Ok(None);
            space(20).fork(&record(&[(14, 4)]), len, ForkOwner::Data(20), none)
        };
        assert_eq!(read(1024).unwrap().read_vec(1023, 1).unwrap(), [16]);
        let error = read(1025).unwrap_err();
        assert!(
            error.kind() == Kind::Corrupt && error.to_string().contains("only 8704 exist"),
            "{error}"
        );
    }

    #[test]
    fn an_empty_fork_needs_no_extents() {
        let none = &mut |_| Ok(None);
        let fork = space(16).fork(&record(&[]), 0, ForkOwner::Data(20), none);
        assert_eq!(fork.unwrap().len(), 0);
    }
}
