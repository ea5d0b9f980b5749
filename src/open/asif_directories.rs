//! The two directories of an ASIF image. The one with the higher version counts. A damaged version
//! makes the other one count, with which the disk may be blank; a damaged directory cannot be
//! loaded. One whose place in the header is damaged is found at its usual place, if it is newer than
//! the other.

use std::sync::Arc;

use super::contents;
use crate::container::asif::{self, Asif};
use crate::decision::{Alternative, Undecided};
use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

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
    if !has_contents(&other)? {
        return Ok(None);
    }
    let ((active, version), (number, lower)) = (image.directory(), other.directory());
    let why = format!(
        "directory {active} of version {version} gives an empty disk, directory {number} of \
         version {lower} does not: the version is damaged"
    );
    Ok(Some((other, why)))
}

/// Returns the image in `file` with its other directory, and the reason, if the active one cannot be
/// loaded and a map or volume is found with the other one.
pub(super) fn that_loads(file: &Arc<dyn BlockDevice>) -> Result<Option<(Asif, String)>> {
    let lost = match Asif::open(file.clone()) {
        Err(error) if error.kind() == Kind::Corrupt => error,
        Err(error) if error.kind() == Kind::Io => return Err(error),
        _ => return Ok(None),
    };
    let (active, number) = match asif::directories(&**file) {
        Ok(Some([active, other])) => (active, other),
        Err(error) if error.kind() == Kind::Io => return Err(error),
        _ => return Ok(None),
    };
    let other = match Asif::open_directory(file.clone(), number) {
        Ok(other) => Arc::new(other),
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(_) => return Ok(None),
    };
    if !has_contents(&other)? {
        return Ok(None);
    }
    let why = match asif::lost_newer(&**file)? {
        Some(_) => format!("{lost}; that one is used"),
        None => format!(
            "directory {active} cannot be used ({lost}); directory {number} is used: later changes \
             may be missing"
        ),
    };
    Ok(Arc::into_inner(other).map(|other| (other, why)))
}

/// Refuses changes of an image that is read with its other directory, for the reason `why`.
pub(super) fn refusal(other: &Asif, why: String) -> Error {
    let (number, _) = other.directory();
    Undecided {
        what: why,
        alternatives: vec![Alternative {
            assume: format!("directory={number}"),
            evidence: "the disk has contents with it".to_owned(),
        }],
    }
    .into_error(asif::LAYER)
}

fn has_contents(image: &Arc<Asif>) -> Result<bool> {
    let disk: Arc<dyn BlockDevice> = image.clone();
    match contents::find(&disk) {
        Ok((map, volumes)) => Ok(map.is_some() || !volumes.is_empty()),
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(_) => Ok(false),
    }
}
