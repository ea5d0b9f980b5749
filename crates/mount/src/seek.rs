//! lseek(2) to the next data or hole.

use bandsaw::device::{BlockDevice, ExtentKind};
use fuser::{Errno, ReplyLseek};

/// Values of `whence` of lseek(2).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The bytes that a request looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sought {
    Data,
    Hole,
}

impl Sought {
    /// Returns the offset of the first such byte at or after `offset`; the end of a device is a hole.
    /// Fails with ENXIO if there is none.
    pub(crate) fn find(
        self,
        device: &dyn BlockDevice,
        offset: u64,
    ) -> bandsaw::Result<Result<u64, Errno>> {
        let len = device.info().len;
        let mut at = offset;
        while at < len {
            let extent = device.extent_at(at..len)?;
            if (extent.kind == ExtentKind::Data) == (self == Self::Data) {
                return Ok(Ok(at));
            }
            at += extent.len;
        }
        Ok(match self == Self::Hole && offset < len {
            true => Ok(len),
            false => Err(Errno::ENXIO),
        })
    }
}

/// Answers a request. `seek` returns the offset of what is looked for.
pub(crate) fn answer(
    offset: i64,
    whence: i32,
    reply: ReplyLseek,
    seek: impl FnOnce(u64, Sought) -> Result<u64, Errno>,
) {
    let sought = match whence {
        SEEK_DATA => Ok(Sought::Data),
        SEEK_HOLE => Ok(Sought::Hole),
        _ => Err(Errno::EINVAL),
    };
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL);
    match sought.and_then(|sought| seek(offset?, sought)) {
        Ok(at) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
        Err(errno) => reply.error(errno),
    }
}
