//! The location of a fork's bytes: its extents, and the fork as a read-only device over them (§4).

use std::fmt;
use std::sync::Arc;

use super::layout::{Cnid, Extent, ExtentsRaw, ForkRaw, extents_of};
use crate::extent_device::ExtentDevice;
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Result};

const LAYER: &str = "hfs+ extents";

/// The volume below, as far as forks need it.
#[derive(Debug, Clone)]
pub(super) struct ForkSpace {
    /// The volume's bytes, beginning at its first block.
    pub(super) device: Arc<dyn BlockDevice>,
    /// Size of an allocation block in bytes.
    pub(super) block_size: u32,
    /// Number of allocation blocks, all within the device.
    pub(super) total_blocks: u32,
}

/// The owner of a fork, for error messages.
#[derive(Debug, Clone)]
pub(super) enum Owner {
    /// One of the volume's own files.
    Special(&'static str),
    /// The data fork of a file.
    Data(Cnid),
    /// The resource fork of a file.
    Resource(Cnid),
    /// An extended attribute.
    Attribute(Cnid, String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Special(name) => f.write_str(name),
            Self::Data(id) => write!(f, "data fork of file {id}"),
            Self::Resource(id) => write!(f, "resource fork of file {id}"),
            Self::Attribute(id, name) => write!(f, "attribute {name} of file {id}"),
        }
    }
}

/// The contents of a fork, read-only for users of the device.
pub(super) type ForkDevice = ExtentDevice;

impl ForkSpace {
    /// Returns the fork as a device. `more` returns the record with the extents from a given block
    /// of the fork on, where those in the fork's own record do not reach its end.
    pub(super) fn fork(
        &self,
        fork: &ForkRaw,
        owner: &Owner,
        more: &mut dyn FnMut(u32) -> Result<Option<ExtentsRaw>>,
    ) -> Result<ForkDevice> {
        let extents = self.collect(fork, owner, more)?;
        let len = fork.logical_size.get();
        let capacity = u64::from(fork.total_blocks.get()) * u64::from(self.block_size);
        if len > capacity {
            return Err(corrupt(
                owner,
                format!(
                    "the recorded length of {len} bytes exceeds its blocks, which have {capacity} \
                     bytes"
                ),
            ));
        }
        Ok(self.device_over(&extents, len))
    }

    /// Returns the first `len` bytes of `extents`, which must hold as many, as a device.
    pub(super) fn device_over(&self, extents: &[Extent], len: u64) -> ForkDevice {
        let range = |extent: &Extent| {
            let start = extent.start.offset(self.block_size);
            start..start + self.bytes(extent.count)
        };
        let ranges = extents.iter().map(range);
        ExtentDevice::new(self.device.clone(), ranges, len, "hfs+ fork")
    }

    /// Returns all extents of a fork. They are within the volume, not empty and disjoint, and their
    /// total is the fork's number of blocks.
    pub(super) fn collect(
        &self,
        fork: &ForkRaw,
        owner: &Owner,
        more: &mut dyn FnMut(u32) -> Result<Option<ExtentsRaw>>,
    ) -> Result<Vec<Extent>> {
        let wanted = fork.total_blocks.get();
        let mut extents = Vec::new();
        let mut found = self.append(&fork.extents, wanted, 0, owner, &mut extents)?;
        while found < wanted {
            // Each record adds at least one block and has a different key, so the loop ends with
            // the tree.
            let Some(record) = more(found)? else {
                return Err(corrupt(
                    owner,
                    format!("missing extents: {found} of {wanted} blocks found"),
                ));
            };
            let before = found;
            found = self.append(&record, wanted, before, owner, &mut extents)?;
            if found == before {
                return Err(corrupt(
                    owner,
                    format!("the record of extents from block {before} on is empty"),
                ));
            }
        }
        check_apart(&extents, owner)?;
        Ok(extents)
    }

    /// Appends the extents of one record; returns the total number of blocks so far.
    fn append(
        &self,
        record: &ExtentsRaw,
        wanted: u32,
        before: u32,
        owner: &Owner,
        extents: &mut Vec<Extent>,
    ) -> Result<u32> {
        let mut found = before;
        for extent in extents_of(record) {
            if extent.end() > u64::from(self.total_blocks) {
                let message = format!(
                    "the extent from block {} of {} blocks reaches past the end of the volume, \
                     which has {} blocks",
                    extent.start, extent.count, self.total_blocks
                );
                return Err(corrupt(owner, message));
            }
            found = match found.checked_add(extent.count) {
                Some(found) if found <= wanted => found,
                _ => {
                    return Err(corrupt(
                        owner,
                        format!(
                            "the extents have more blocks than the {wanted} that the fork records"
                        ),
                    ));
                }
            };
            match extents.last_mut() {
                Some(last) if last.end() == u64::from(extent.start.0) => last.count += extent.count,
                _ => extents.push(extent),
            }
        }
        Ok(found)
    }

    fn bytes(&self, blocks: u32) -> u64 {
        u64::from(blocks) * u64::from(self.block_size)
    }
}

/// Fails if two extents share a block.
fn check_apart(extents: &[Extent], owner: &Owner) -> Result<()> {
    if extents.len() < 2 {
        return Ok(());
    }
    let mut sorted = extents.to_vec();
    sorted.sort_unstable_by_key(|extent| extent.start);
    match sorted
        .windows(2)
        .find(|pair| pair[0].end() > u64::from(pair[1].start.0))
    {
        None => Ok(()),
        Some(pair) => Err(corrupt(
            owner,
            format!("block {} is in two extents of the fork", pair[1].start),
        )),
    }
}

fn corrupt(owner: &Owner, message: String) -> Error {
    Error::new(bandsaw_core::Kind::Corrupt, LAYER, message).named(owner.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::layout::{AllocBlock, ExtentRaw};
    use super::*;
    use bandsaw_core::device::{BlockDeviceExt, Memory};

    fn space() -> ForkSpace {
        let bytes: Vec<u8> = (0..16_u8).flat_map(|block| [block; 512]).collect();
        ForkSpace {
            device: Arc::new(Memory::from(bytes)),
            block_size: 512,
            total_blocks: 16,
        }
    }

    fn record(extents: &[(u32, u32)]) -> ExtentsRaw {
        let mut record = ExtentsRaw::default();
        for (raw, &(start, count)) in record.iter_mut().zip(extents) {
            *raw = ExtentRaw::from(Extent {
                start: AllocBlock(start),
                count,
            });
        }
        record
    }

    fn fork(len: u64, blocks: u32, extents: &[(u32, u32)]) -> ForkRaw {
        ForkRaw {
            logical_size: len.into(),
            clump_size: 0.into(),
            total_blocks: blocks.into(),
            extents: record(extents),
        }
    }

    fn none(_: u32) -> Result<Option<ExtentsRaw>> {
        Ok(None)
    }

    #[test]
    fn a_fork_reads_across_its_extents_in_order() {
        let mut asked = Vec::new();
        let fork = fork(4 * 512 - 5, 4, &[(9, 1), (3, 2)]);
        let device = space()
            .fork(&fork, &Owner::Data(Cnid(20)), &mut |block| {
                asked.push(block);
                Ok(Some(record(&[(5, 1)])))
            })
            .unwrap();
        assert_eq!(asked, [3]);
        let expected: Vec<u8> = [9, 3, 4, 5]
            .into_iter()
            .flat_map(|block: u8| [block; 512])
            .take(4 * 512 - 5)
            .collect();
        assert_eq!(device.read_vec(0, expected.len()).unwrap(), expected);
        assert_eq!(device.read_vec(510, 4).unwrap(), [9, 9, 3, 3]);
        assert!(device.read_vec(0, expected.len() + 1).is_err());
        // The two neighbors were merged: one run of three blocks.
        assert_eq!(
            device.extent_at(512..expected.len() as u64).unwrap().len,
            expected.len() as u64 - 512
        );
    }

    #[test]
    fn extents_that_make_no_sense_are_refused() {
        let table = [
            (
                fork(512, 1, &[(15, 2)]),
                "reaches past the end of the volume, which has 16 blocks",
            ),
            (
                fork(512, 1, &[(u32::MAX, u32::MAX)]),
                "reaches past the end of the volume, which has 16 blocks",
            ),
            (
                fork(513, 1, &[(3, 1)]),
                "length of 513 bytes exceeds its blocks, which have 512 bytes",
            ),
            (
                fork(512, 1, &[(3, 2)]),
                "more blocks than the 1 that the fork records",
            ),
            (
                fork(512, 3, &[(3, 2)]),
                "missing extents: 2 of 3 blocks found",
            ),
            (fork(512, 4, &[(3, 2), (7, 1), (4, 1)]), "block 4 is in two"),
        ];
        for (fork, expected) in table {
            let error = space()
                .fork(&fork, &Owner::Resource(Cnid(20)), &mut none)
                .unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(
                error.to_string().contains("resource fork of file 20"),
                "{error}"
            );
        }
        let empty = space().fork(
            &fork(512, 3, &[(3, 2)]),
            &Owner::Data(Cnid(20)),
            &mut |_| Ok(Some(record(&[]))),
        );
        assert!(
            empty
                .unwrap_err()
                .to_string()
                .contains("from block 2 on is empty")
        );
    }
}
