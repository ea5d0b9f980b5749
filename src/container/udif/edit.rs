//! Replacing the resources of a finished image: writes a new list and a new trailer after the data
//! fork, which stays unchanged.

use std::ops::Range;

use zerocopy::IntoBytes;

use super::index::{read_resources, read_trailer};
use super::layout::KOLY_SIZE;
use super::resources::{BLOCK_TABLE, MAX_BYTES, Resource};
use super::{BlockDevice, LAYER, image_list};
use crate::device::AfterDiscard;
use crate::{Error, Result};

/// Returns the resources of the image in `file`, which may be the first of a set, and the range of
/// its code signature.
pub fn read_list(file: &dyn BlockDevice) -> Result<(Vec<Resource>, Option<Range<u64>>)> {
    let (_, koly) = read_trailer(file)?;
    if koly.segment.number > 1 {
        let message = format!(
            "this file is part {} of a set, but the resources are in the first part: open that",
            koly.segment.number
        );
        return Err(Error::invalid(LAYER, message));
    }
    let signature = Some(koly.signature.clone()).filter(|signature| !signature.is_empty());
    Ok((read_resources(file, &koly)?, signature))
}

/// Replaces the resources of the image in `file` with an XML list and flushes. A resource fork and
/// a code signature are removed. Only the tail of the file changes, but it changes in place, so
/// callers should work on a copy.
///
/// [`Kind::Invalid`](crate::Kind) if the block tables are not those of the image, [`Kind::Limit`](crate::Kind) if the list
/// exceeds the limits of the reader.
pub fn write_list(file: &dyn BlockDevice, resources: &[Resource]) -> Result<()> {
    let (old, _) = read_list(file)?;
    let tables = |resources: &[Resource]| -> Vec<Vec<u8>> {
        resources
            .iter()
            .filter(|resource| resource.kind == BLOCK_TABLE)
            .map(|table| table.data.clone())
            .collect()
    };
    if tables(&old) != tables(resources) {
        return Err(Error::invalid(
            LAYER,
            "cannot change the block tables (blkx), the index of the disk",
        ));
    }
    let (raw, koly) = read_trailer(file)?;
    let list = image_list(resources)?;
    if list.len() as u64 > MAX_BYTES {
        let message = format!(
            "too many resources: {} bytes, at most {MAX_BYTES} are possible",
            list.len()
        );
        return Err(Error::limit(LAYER, message));
    }
    let (at, end) = (koly.data_fork.end, koly.data_fork.end + list.len() as u64);
    file.set_len(end + KOLY_SIZE, AfterDiscard::Any)?;
    file.write_at(at, &list)?;
    file.write_at(end, raw.relisted(at..end).as_bytes())?;
    file.flush()
}
