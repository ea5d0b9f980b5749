//! Common methods of read-only devices, and the read-only view of any device.

use std::ops::Range;
use std::sync::Arc;

use super::{Access, BlockDevice, Extent, FileRange, Info};
use crate::Result;

/// Expands to the methods of [`BlockDevice`](super::BlockDevice) that change it, all of which fail.
/// The argument is the name of the layer in errors.
#[macro_export]
macro_rules! read_only {
    ($layer:expr) => {
        fn write_at(&self, _offset: u64, _buf: &[u8]) -> $crate::Result<()> {
            Err($crate::Error::read_only($layer))
        }

        fn discard(
            &self,
            _range: ::std::ops::Range<u64>,
            _leave: $crate::device::AfterDiscard,
        ) -> $crate::Result<()> {
            Err($crate::Error::read_only($layer))
        }

        fn flush(&self) -> $crate::Result<()> {
            Ok(())
        }

        fn set_len(&self, _len: u64, _leave: $crate::device::AfterDiscard) -> $crate::Result<()> {
            Err($crate::Error::read_only($layer))
        }
    };
}

pub use crate::read_only;

/// A device that can only be read, whatever the access of the one below.
#[derive(Debug)]
pub struct ReadOnlyView(pub Arc<dyn BlockDevice>);

impl BlockDevice for ReadOnlyView {
    fn info(&self) -> Info {
        Info {
            access: Access::ReadOnly,
            ..self.0.info()
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }

    read_only!("device");

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.0.extent_at(range)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.0.file_range(range)
    }
}
