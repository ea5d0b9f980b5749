//! The places of files on the disk of an image.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bandsaw::device::{Access, BlockDevice, Extent, FileRange, Info, read_only};
use bandsaw::{Error, Result};

use crate::LAYER;

/// A view of a volume's device whose file ranges are offsets on the device, in place of those in a file
/// of the host: what a file system returns for a file is then the place of its bytes in the volume.
#[derive(Debug)]
pub(crate) struct Locator {
    device: Arc<dyn BlockDevice>,
    /// An empty file, for [`FileRange`].
    file: Arc<File>,
}

impl Locator {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let path = "/dev/null";
        let opened = File::open(path);
        let file = opened.map_err(|error| Error::io(LAYER, "open", error).in_file(path))?;
        Ok(Self {
            device,
            file: Arc::new(file),
        })
    }
}

impl BlockDevice for Locator {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadOnly,
            ..self.device.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(offset, buf)
    }

    read_only!(LAYER);

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.device.extent_at(range)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok((!range.is_empty())
            .then(|| FileRange::new(self.file.clone(), range.start, range.end - range.start)))
    }
}
