//! A disk with a planned volume, as a device to be read: neither the disk nor the contents of its
//! files are stored anywhere before.

use std::ops::Range;
use std::sync::Arc;

use super::disk_layout::Layout;
use crate::device::{
    Access, AfterDiscard, BlockDevice, Changes, CowDevice, Extent, ExtentKind, FileRange, Info,
    Slice, Spill, read_only,
};
use crate::fs::{NewVolumeInfo, PlacedContents, VolumePlan};
use crate::partition::single::SingleType;
use crate::partition::{gpt, single};
use crate::size::{narrow, to_usize};
use crate::sync::Mutex;
use crate::{Error, Result};

const LAYER: &str = "planned disk";
/// Maximum number of bytes of metadata in memory, of partition map and volume together: that of
/// 30,000,000 files.
const MAX_METADATA: u64 = 16 << 30;
/// Unit of reads from the source in bytes, as a volume's contents require.
const UNIT: u64 = 512;

/// The read-only disk. Metadata is in memory; contents of files are read from their source with
/// each request.
#[derive(Debug)]
pub(super) struct PlannedDisk<'a> {
    metadata: Arc<dyn BlockDevice>,
    contents: Box<dyn PlacedContents + 'a>,
    /// The bytes of the disk that are the volume.
    volume: Range<u64>,
    built: NewVolumeInfo,
}

impl<'a> PlannedDisk<'a> {
    /// Lays out a disk of `len` bytes.
    pub(super) fn new(
        plan: &'a dyn VolumePlan,
        len: u64,
        layout: Layout,
        partition_type: impl Into<SingleType>,
        guids: gpt::Guids,
    ) -> Result<Self> {
        let metadata = blank(len, MAX_METADATA);
        let volume = match layout.scheme() {
            None => 0..len,
            Some(scheme) => single::create(scheme, &*metadata, partition_type, guids)?,
        };
        let (built, contents) =
            plan.build_metadata(&Slice::new(metadata.clone(), volume.clone())?)?;
        Ok(Self {
            metadata,
            contents,
            volume,
            built,
        })
    }

    /// Returns the properties of the volume.
    pub(super) fn built(&self) -> NewVolumeInfo {
        self.built
    }

    /// Fills `bytes`, whole units at `start` of the disk that hold contents.
    fn read_contents(&self, start: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        let start = start - self.volume.start;
        let range = start..start + bytes.len() as u64;
        let bytes = Mutex::new(bytes);
        self.contents.write(range, &Window { start, bytes })
    }

    /// Returns the bytes of the disk that hold contents.
    fn contents(&self) -> Range<u64> {
        let Range { start, end } = self.contents.range();
        self.volume.start + start..self.volume.start + end
    }
}

/// A part of a volume in memory, from byte `start`, to be filled.
#[derive(Debug)]
struct Window<'b> {
    start: u64,
    bytes: Mutex<&'b mut [u8]>,
}

impl Window<'_> {
    /// Returns the place of `len` bytes at `offset` of the volume.
    fn index_range(&self, offset: u64, len: usize) -> Result<Range<usize>> {
        self.info().check(LAYER, offset, len as u64)?;
        let start = offset.checked_sub(self.start);
        let start =
            start.ok_or_else(|| Error::out_of_range(LAYER, offset, len as u64, self.info().len))?;
        let start = to_usize(start);
        Ok(start..start + len)
    }
}

impl BlockDevice for Window<'_> {
    fn info(&self) -> Info {
        Info {
            len: self.start + self.bytes.lock().len() as u64,
            block: narrow(UNIT),
            write: 1,
            discard: UNIT,
            access: Access::ReadWrite,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let place = self.index_range(offset, buf.len())?;
        buf.copy_from_slice(&self.bytes.lock()[place]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let place = self.index_range(offset, buf.len())?;
        self.bytes.lock()[place].copy_from_slice(buf);
        Ok(())
    }

    fn discard(&self, _range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        Err(Error::unsupported(
            LAYER,
            "cannot discard space of a disk that is written in one pass",
        ))
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(Error::unsupported(
            LAYER,
            "cannot change the length of a disk that is written in one pass",
        ))
    }

    fn file_range(&self, _range: Range<u64>) -> Result<Option<FileRange>> {
        Ok(None)
    }
}

/// Returns a device of zeros, for at most `bytes` of changes in memory.
fn blank(len: u64, bytes: u64) -> Arc<dyn BlockDevice> {
    let changes = Changes::new(len, Arc::new(Spill::in_memory(bytes)));
    Arc::new(CowDevice::with(Arc::new(changes), None, Access::ReadWrite))
}

impl BlockDevice for PlannedDisk<'_> {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadOnly,
            ..self.metadata.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        let contents = self.contents();
        let inside = offset.max(contents.start)..end.min(contents.end);
        if inside.is_empty() {
            return self.metadata.read_at(offset, buf);
        }
        let (before, rest) = buf.split_at_mut(to_usize(inside.start - offset));
        let (within, after) = rest.split_at_mut(to_usize(inside.end - inside.start));
        self.metadata.read_at(offset, before)?;
        self.metadata.read_at(inside.end, after)?;
        let whole = inside.start / UNIT * UNIT..inside.end.next_multiple_of(UNIT);
        if whole == inside {
            return self.read_contents(whole.start, within);
        }
        let mut bytes = vec![0; to_usize(whole.end - whole.start)];
        self.read_contents(whole.start, &mut bytes)?;
        let skipped = to_usize(inside.start - whole.start);
        within.copy_from_slice(&bytes[skipped..skipped + within.len()]);
        Ok(())
    }

    read_only!(LAYER);

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let contents = self.contents();
        if range.start >= contents.end {
            return self.metadata.extent_at(range);
        }
        if range.start < contents.start {
            return self
                .metadata
                .extent_at(range.start..range.end.min(contents.start));
        }
        if !range.start.is_multiple_of(UNIT) {
            let sector = range.start.next_multiple_of(UNIT).min(range.end);
            return Ok(Extent {
                kind: ExtentKind::Data,
                len: sector - range.start,
            });
        }
        let base = self.volume.start;
        self.contents
            .extent_at(range.start - base..range.end.min(contents.end) - base)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::crypt::Secret;
    use crate::device::{BlockDeviceExt, Memory};
    use crate::fs::{Timestamp, VolumeEncryption};
    use crate::ops::format::{NewFormat, VolumeOptions};
    use crate::ops::import::{FolderOptions, folder};
    use crate::progress::Silent;
    use crate::testing::Random;
    use uuid::Uuid;

    /// Fills a folder with small, large, empty, sparse and linked files.
    fn fill(source: &Path) {
        let mut random = Random::new(5);
        for number in 0..300_usize {
            let bytes = random.bytes(number * 37 % 9001);
            fs::write(source.join(format!("small {number}")), bytes).unwrap();
        }
        fs::write(source.join("large"), random.bytes(9_000_001)).unwrap();
        let sparse = fs::File::create(source.join("sparse")).unwrap();
        for at in [0, 3 << 20, (12 << 20) + 77] {
            sparse.write_all_at(&random.bytes(5000), at).unwrap();
        }
        sparse.set_len(20_000_001).unwrap();
        fs::hard_link(source.join("large"), source.join("same")).unwrap();
        symlink("large", source.join("link")).unwrap();
    }

    /// Returns the bytes of a device by its extents; holes are not read.
    fn read(disk: &dyn BlockDevice) -> (Vec<u8>, u64) {
        let len = disk.info().len;
        let (mut bytes, mut holes) = (vec![0; len as usize], 0);
        for extent in disk.extents(0..len) {
            let (range, kind) = extent.unwrap();
            if kind == ExtentKind::Data {
                let place = &mut bytes[range.start as usize..range.end as usize];
                disk.read_at(range.start, place).unwrap();
            } else {
                holes += range.end - range.start;
            }
        }
        (bytes, holes)
    }

    #[test]
    fn it_reads_as_the_disk_that_is_built() {
        let source = tempfile::tempdir().unwrap();
        fill(source.path());
        let encryption = VolumeEncryption {
            passphrase: Secret::new(b"secret".to_vec()),
            recovery_key: None,
            hint: None,
            iterations: crate::crypt::MIN_ITERATIONS,
        };
        let cases = [
            (NewFormat::HfsPlus, Layout::Gptspud, None, None),
            (NewFormat::HfsxJournaled, Layout::None, Some(512), None),
            (NewFormat::HfsPlus, Layout::Spud, Some(16384), None),
            (NewFormat::Apfs, Layout::Gptspud, None, None),
            (NewFormat::Apfs, Layout::None, None, Some(encryption)),
        ];
        for (format, layout, block_size, encryption) in cases {
            let what = format!("{format} {layout} {block_size:?}");
            let tree = folder(source.path(), &FolderOptions::default(), &Silent).unwrap();
            let is_encrypted = encryption.is_some();
            let options = VolumeOptions {
                name: "Planned".into(),
                block_size,
                created: Timestamp::from_seconds(1_700_000_000),
                latest: None,
                opens: false,
                id: Uuid::from_bytes([7; 16]),
                more_volumes: Vec::new(),
                encryption,
            };
            let plan = format.plan(tree, options).unwrap();
            let len = layout
                .disk_len_for(plan.comfortable_len().unwrap(), 512)
                .unwrap();
            let kind = format.partition_type();
            let guids = || gpt::Guids::derived("planned");
            let built: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(len as usize));
            let range = match layout.scheme() {
                None => 0..len,
                Some(scheme) => single::create(scheme, &*built, kind, guids()).unwrap(),
            };
            let result = plan
                .build(&Slice::new(built.clone(), range).unwrap(), &Silent)
                .unwrap();
            let disk = PlannedDisk::new(&*plan, len, layout, kind, guids()).unwrap();
            assert_eq!(disk.built(), result, "{what}");
            let expected = built.read_vec(0, len as usize).unwrap();
            let (bytes, holes) = read(&disk);
            assert!(bytes == expected, "{what}");
            // APFS leaves holes out, and an encrypted volume has none.
            let sparse = if format.is_hfs() { 14 << 20 } else { 0 };
            assert!(holes >= sparse && holes < len, "{what}: {holes}");
            assert!(is_encrypted || holes > 1 << 20, "{what}: {holes}");
            let mut random = Random::new(9);
            for _ in 0..200 {
                let start = random.within(0..len);
                let end = (start + random.within(1..700_000)).min(len);
                let bytes = disk.read_vec(start, (end - start) as usize).unwrap();
                assert!(
                    bytes == expected[start as usize..end as usize],
                    "{what}: {start}..{end}"
                );
            }
        }
    }

    #[test]
    fn a_file_that_changed_is_named() {
        let source = tempfile::tempdir().unwrap();
        fs::write(source.path().join("file"), vec![1; 100_000]).unwrap();
        let tree = folder(source.path(), &FolderOptions::default(), &Silent).unwrap();
        let options = VolumeOptions {
            name: "Planned".into(),
            block_size: None,
            created: Timestamp::from_seconds(1_700_000_000),
            latest: None,
            opens: false,
            id: Uuid::from_bytes([7; 16]),
            more_volumes: Vec::new(),
            encryption: None,
        };
        let plan = NewFormat::HfsPlus.plan(tree, options).unwrap();
        let len = plan.comfortable_len().unwrap();
        let disk = PlannedDisk::new(
            &*plan,
            len,
            Layout::None,
            NewFormat::HfsPlus.partition_type(),
            gpt::Guids::random(),
        )
        .unwrap();
        fs::write(source.path().join("file"), vec![1; 50_000]).unwrap();
        let error = disk.read_vec(0, len as usize).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Conflict);
        assert!(error.to_string().contains("file"), "{error}");
    }
}
