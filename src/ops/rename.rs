//! Renaming and moving of objects within a volume.

use super::put;
use crate::fs::{Attributes, ExistingTarget, FileKind, FileSystemExt, FileSystemMut};
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "mv";

/// The target of a move.
#[derive(Debug, Clone, Copy)]
pub struct MoveTarget<'a> {
    /// A folder to move objects into, or the new path of one object.
    pub path: &'a str,
    /// True if the target is a folder even if nothing has its path: a path that the user wrote with a slash at
    /// its end.
    pub is_folder: bool,
    /// The treatment of an existing object of the same name.
    pub existing: ExistingTarget,
}

/// Moves the objects at `paths`, in the manner of mv(1): each keeps its name if the target is an existing
/// folder, and otherwise becomes the target. Each move is atomic. Returns the new paths.
///
/// # Errors
///
/// [`Kind::Invalid`] for several objects and a target that is not an existing folder, and for the root of the
/// volume; [`Kind::NotFound`] for a missing object or folder. Objects before the one with the error are moved.
pub fn move_all(
    fs: &dyn FileSystemMut,
    paths: &[String],
    target: &MoveTarget<'_>,
) -> Result<Vec<String>> {
    let into = match fs.resolve(target.path) {
        Ok(found) => Some(found).filter(|found| found.kind == FileKind::Folder),
        Err(error) if error.kind() == Kind::NotFound => None,
        Err(error) => return Err(error),
    };
    if into.is_none() && paths.len() > 1 {
        let message = "several objects can only be moved to an existing folder";
        return Err(Error::invalid(LAYER, message).named(target.path));
    }
    let mut moved = Vec::with_capacity(paths.len());
    for path in paths {
        moved.push(move_one(fs, path, into.as_ref(), target)?);
    }
    Ok(moved)
}

fn move_one(
    fs: &dyn FileSystemMut,
    path: &str,
    into: Option<&Attributes>,
    target: &MoveTarget<'_>,
) -> Result<String> {
    let (folder, name) = put::parent_of_object(fs, path)?;
    let found = fs.resolve(path)?;
    if target.is_folder && into.is_none() && found.kind != FileKind::Folder {
        return Err(not_a_folder(LAYER, target.path));
    }
    // A folder whose own name is written in another case is renamed, not moved into itself.
    let into = into.filter(|into| into.id != found.id);
    let (new_folder, new_name) = match into {
        Some(into) => (into.id, name.clone()),
        None => put::parent_of_object(fs, target.path)?,
    };
    fs.rename((folder, &name), (new_folder, &new_name), target.existing)
        .map_err(|error| error.named(path))?;
    Ok(match into {
        Some(_) => format!("{}/{name}", target.path),
        None => target.path.to_owned(),
    })
}

/// Returns the error for a target that is written as a folder, and is not an existing one.
pub fn not_a_folder(layer: &'static str, path: &str) -> Error {
    Error::new(Kind::NotFound, layer, "is not an existing folder")
        .because(Reason::NoSuchPath)
        .named(format!("{path}/"))
}
