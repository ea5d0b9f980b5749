//! The extended attributes of an entry: a blob of names and values.

use std::ops::{ControlFlow, Range};

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Result};
use zerocopy::FromBytes;

use super::LAYER;
use super::entry::Blob;
use super::layout::XattrRaw;

/// Maximum length of a name, with the zero byte after it, in bytes. macOS allows 127.
const MAX_NAME: u64 = 256;
/// Maximum number of attributes of an object.
const MAX_XATTRS: u32 = 4096;

/// An extended attribute.
pub(super) struct FoundXattr {
    pub(super) name: String,
    /// The value in the stream.
    pub(super) value: Range<u64>,
}

/// Calls `each` for the attributes in a blob, until it returns [`ControlFlow::Break`].
pub(super) fn walk(
    stream: &dyn BlockDevice,
    blob: &Blob,
    each: &mut dyn FnMut(FoundXattr) -> ControlFlow<()>,
) -> Result<()> {
    let (mut at, mut count) = (blob.start, 0);
    while at < blob.end {
        let damaged = |message: &'static str| Error::corrupt(LAYER, at, message);
        count += 1;
        if count > MAX_XATTRS {
            let message = format!("more than {MAX_XATTRS} extended attributes");
            return Err(Error::limit(LAYER, message).at(at));
        }
        let head = size_of::<XattrRaw>() as u64;
        let room = blob.end - at;
        let bytes = stream.read_vec(at, to_usize(room.min(head + MAX_NAME)))?;
        let (raw, rest) = XattrRaw::read_from_prefix(&bytes)
            .map_err(|_| damaged("an extended attribute is truncated"))?;
        let len = u64::from(raw.length.get());
        if len > room || len <= head {
            return Err(damaged("an extended attribute exceeds its blob"));
        }
        let within = &rest[..rest.len().min(to_usize(len - head))];
        let end = within.iter().position(|byte| *byte == 0);
        let name = end.and_then(|end| std::str::from_utf8(&within[..end]).ok());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err(damaged("an extended attribute has no name"));
        };
        let value = at + head + name.len() as u64 + 1..at + len;
        let found = FoundXattr {
            name: name.to_owned(),
            value,
        };
        if each(found).is_break() {
            return Ok(());
        }
        at += len;
    }
    Ok(())
}
