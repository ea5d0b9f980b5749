//! Common methods of read-only devices.

/// Expands to the methods of [`BlockDevice`](super::BlockDevice) that change it, all of which fail.
/// The argument is the name of the layer in errors.
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

pub(crate) use read_only;
