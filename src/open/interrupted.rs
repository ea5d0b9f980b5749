//! Detection of interrupted repairs, by the undo data beside an image.

use std::path::{Path, PathBuf};

use super::{LAYER, remote};
use crate::device::Access;
use crate::store::{Local, Store};
use crate::{Error, Kind, Reason, Result};

/// The suffix of the folder of an image's undo data.
pub(crate) const UNDO_SUFFIX: &str = ".undo";

/// Files of the undo data of one repair, in a folder of its number: the log of changes; the state
/// of the image when the repair ended, written last; and a mark that exists while the repair is
/// being undone.
pub(crate) const LOG: &str = "log";
pub(crate) const SEALED: &str = "sealed";
pub(crate) const UNDOING: &str = "undoing";

/// Returns the folder of the undo data of the image at `path`, beside the image.
pub(crate) fn undo_folder(path: &Path) -> PathBuf {
    let text = path.to_string_lossy();
    let trimmed = Path::new(text.trim_end_matches('/'));
    let mut name = trimmed.file_name().unwrap_or_default().to_owned();
    name.push(UNDO_SUFFIX);
    trimmed.with_file_name(name)
}

/// Refuses changes of an image with an interrupted repair; for a read-only open, returns a warning.
/// Undo data in a folder of the user's choice is not found.
pub(super) fn check(path: &Path, access: Access) -> Result<Option<String>> {
    let folder = undo_folder(path);
    if remote::url(path).is_some() || !folder.is_dir() || !is_unfinished(&Local::new(&folder))? {
        return Ok(None);
    }
    let message = "a repair of this image was interrupted: run `bandsaw repair --undo` on it first";
    match access {
        Access::ReadWrite => Err(Error::new(Kind::Conflict, LAYER, message)
            .because(Reason::RepairInterrupted)
            .in_file(path)),
        Access::ReadOnly => Ok(Some(message.to_owned())),
    }
}

/// Returns true if one of the repairs in a folder of undo data, or its undo, was interrupted.
pub(crate) fn is_unfinished(undo: &dyn Store) -> Result<bool> {
    let mut numbers = Vec::new();
    undo.list("", &mut |entry| {
        numbers.extend(
            entry
                .name
                .split_once('/')
                .and_then(|(number, _)| number.parse::<u64>().ok()),
        );
        Ok(())
    })?;
    numbers.dedup();
    for number in numbers {
        let there = |name: &str| {
            undo.stat(&format!("{number}/{name}"))
                .map(|found| found.is_some())
        };
        if there(LOG)? && (!there(SEALED)? || there(UNDOING)?) {
            return Ok(true);
        }
    }
    Ok(false)
}
