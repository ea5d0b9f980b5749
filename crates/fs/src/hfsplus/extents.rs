//! The location of a fork's bytes: its extents, and the fork as a read-only device over them (§4).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::layout::{Cnid, Extent, ExtentsRaw, ForkRaw, extents_of};
use bandsaw_core::device::{Access, AfterDiscard, BlockDevice, FileRange, Info, read_only};
use bandsaw_core::size::to_usize;
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

/// A run of a fork's bytes that are contiguous on the volume.
#[derive(Debug, Clone, Copy)]
struct ForkRun {
    /// Offset in the fork, in bytes.
    fork: u64,
    /// Offset on the volume, in bytes.
    volume: u64,
    /// Length in bytes, at least 1.
    len: u64,
}

/// The contents of a fork, read-only for users of the device.
#[derive(Debug, Clone)]
pub(super) struct ForkDevice {
    device: Arc<dyn BlockDevice>,
    /// Runs in ascending order without gaps; together they hold at least `len` bytes.
    runs: Box<[ForkRun]>,
    len: u64,
}

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
        let mut at = 0;
        let run = |extent: &Extent| {
            let run = ForkRun {
                fork: at,
                volume: extent.start.offset(self.block_size),
                len: self.bytes(extent.count),
            };
            at += run.len;
            run
        };
        ForkDevice {
            device: self.device.clone(),
            runs: extents.iter().map(run).collect(),
            len,
        }
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

impl ForkDevice {
    /// Returns the volume range of the bytes from `offset` on, at most `length`, up to the end of
    /// the contiguous run. `offset` is below the fork's length.
    fn locate(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        let at = self
            .runs
            .partition_point(|run| run.fork + run.len <= offset);
        let Some(run) = self.runs.get(at) else {
            return Err(Error::out_of_range("hfs+ fork", offset, length, self.len));
        };
        let within = offset - run.fork;
        let start = run.volume + within;
        Ok(start..start + length.min(run.len - within))
    }

    /// Returns the volume offset of the byte at `offset`, or `offset` itself past the end. For
    /// error messages.
    pub(super) fn volume_offset(&self, offset: u64) -> u64 {
        self.locate(offset, 1).map_or(offset, |place| place.start)
    }

    /// Returns the number of bytes from `offset` on that are contiguous on the volume; 0 past the
    /// end.
    pub(super) fn volume_run(&self, offset: u64) -> u64 {
        self.locate(offset, u64::MAX)
            .map_or(0, |place| place.end - place.start)
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fills a range of the fork with zeros; its blocks remain allocated.
    pub(super) fn zero(&self, range: Range<u64>) -> Result<()> {
        self.info().check_range("hfs+ fork", &range)?;
        let mut at = range.start;
        while at < range.end {
            let place = self.locate(at, range.end - at)?;
            let length = place.end - place.start;
            self.device.discard(place, AfterDiscard::Zeros)?;
            at += length;
        }
        Ok(())
    }

    /// Writes `buf` at `offset`; the range must be within the fork. Used for the volume's own
    /// files; the device interface is read-only.
    pub(super) fn overwrite(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check("hfs+ fork", offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.locate(offset, rest.len() as u64)?;
            // At most the buffer's length.
            let (now, later) = rest.split_at(to_usize(place.end - place.start));
            self.device.write_at(place.start, now)?;
            (offset, rest) = (offset + now.len() as u64, later);
        }
        Ok(())
    }
}

impl BlockDevice for ForkDevice {
    fn info(&self) -> Info {
        Info {
            len: self.len,
            access: Access::ReadOnly,
            ..self.device.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check("hfs+ fork", offset, buf.len() as u64)?;
        let (mut offset, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let place = self.locate(offset, rest.len() as u64)?;
            let length = place.end - place.start;
            // At most the buffer's length.
            let (now, later) = rest.split_at_mut(to_usize(length));
            self.device.read_at(place.start, now)?;
            (offset, rest) = (offset + length, later);
        }
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> Result<bandsaw_core::device::Extent> {
        self.info().check_range("hfs+ fork", &range)?;
        self.device
            .extent_at(self.locate(range.start, range.end - range.start)?)
    }

    read_only!("hfs+ fork");

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range("hfs+ fork", &range)?;
        if range.is_empty() {
            return Ok(None);
        }
        self.device
            .file_range(self.locate(range.start, range.end - range.start)?)
    }
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
