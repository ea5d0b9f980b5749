//! The two directories of an ASIF image. The one with the higher version counts; a damaged version
//! makes the other one count, with which the disk may be blank.

use std::sync::Arc;

use super::contents;
use crate::container::asif::Asif;
use crate::device::BlockDevice;
use crate::{Kind, Result};

/// Returns the image with its other directory, and the reason, if nothing is found on the disk with
/// the active one and a map or volume is with the other.
pub(super) fn that_opens(image: &Asif) -> Result<Option<(Arc<Asif>, String)>> {
    // An image that cannot be opened with its other directory has no alternative.
    let other = match image.with_other_directory() {
        Ok(Some(other)) => Arc::new(other),
        Ok(None) => return Ok(None),
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(_) => return Ok(None),
    };
    let disk: Arc<dyn BlockDevice> = other.clone();
    match contents::find(&disk) {
        Ok((map, volumes)) if map.is_some() || !volumes.is_empty() => {}
        Err(error) if error.kind() == Kind::Io => return Err(error),
        _ => return Ok(None),
    }
    let ((active, version), (number, lower)) = (image.directory(), other.directory());
    let why = format!(
        "directory {active} of version {version} gives an empty disk, directory {number} of \
         version {lower} does not: the version is damaged"
    );
    Ok(Some((other, why)))
}
