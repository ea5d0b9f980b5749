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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::Memory;
    use crate::fs::hfsplus::build::{Options, Plan};
    use crate::fs::hfsplus::{HfsPlusMut, WriteOptions};
    use crate::fs::source::Tree;
    use crate::fs::{FileSystem, NewKind, NewNode, Timestamp};
    use crate::progress::Silent;

    /// Returns a case-insensitive volume with the files `/a` and `/b`, and the folder `/Folder`.
    fn volume() -> HfsPlusMut {
        let created = Timestamp::from_seconds(1_700_000_000);
        let options = Options {
            name: "Moves".into(),
            case_sensitive: false,
            journaled: false,
            block_size: None,
            created,
            latest: None,
            opens: false,
            identifier: 7,
        };
        let device = Arc::new(Memory::zeros(8 << 20));
        let plan = Plan::new(Tree::empty(created), options).unwrap();
        plan.build(&*device, &Silent).unwrap();
        let fs = HfsPlusMut::open(device, WriteOptions::default()).unwrap();
        for (name, kind) in [
            ("a", NewKind::File),
            ("b", NewKind::File),
            ("Folder", NewKind::Folder),
        ] {
            fs.create(fs.root(), name, &NewNode::new(kind)).unwrap();
        }
        fs
    }

    fn move_to(fs: &HfsPlusMut, paths: &[&str], path: &str) -> Result<Vec<String>> {
        let target = MoveTarget {
            path,
            is_folder: false,
            existing: ExistingTarget::Error,
        };
        let paths: Vec<_> = paths.iter().map(|&path| path.to_owned()).collect();
        move_all(fs, &paths, &target)
    }

    fn exists(fs: &HfsPlusMut, path: &str) -> bool {
        match fs.resolve(path) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "{path}: {error}");
                false
            }
        }
    }

    #[test]
    fn objects_keep_their_names_in_an_existing_folder() {
        let fs = volume();
        let moved = move_to(&fs, &["/a", "/b"], "/Folder").unwrap();
        assert_eq!(moved, ["/Folder/a", "/Folder/b"]);
        assert!(moved.iter().all(|path| exists(&fs, path)));
        assert!(!exists(&fs, "/a") && !exists(&fs, "/b"));
    }

    #[test]
    fn one_object_becomes_a_target_that_is_no_folder() {
        let fs = volume();
        let id = fs.resolve("/a").unwrap().id;
        assert_eq!(move_to(&fs, &["/a"], "/Folder/c").unwrap(), ["/Folder/c"]);
        assert_eq!(fs.resolve("/Folder/c").unwrap().id, id);
        assert!(!exists(&fs, "/a"));
    }

    #[test]
    fn several_objects_need_an_existing_folder() {
        let fs = volume();
        for path in ["/missing", "/b"] {
            let error = move_to(&fs, &["/a", "/Folder"], path).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{path}");
        }
        assert!(exists(&fs, "/a") && exists(&fs, "/Folder"));
    }

    #[test]
    fn a_path_with_a_slash_at_its_end_is_no_new_file() {
        let fs = volume();
        let target = MoveTarget {
            path: "/New",
            is_folder: true,
            existing: ExistingTarget::Error,
        };
        let error = move_all(&fs, &["/a".to_owned()], &target).unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert_eq!(error.reason(), Some(Reason::NoSuchPath));
        assert!(exists(&fs, "/a"));
        let moved = move_all(&fs, &["/Folder".to_owned()], &target).unwrap();
        assert_eq!(moved, ["/New"]);
    }

    #[test]
    fn a_folder_gets_its_own_name_in_another_case() {
        let fs = volume();
        assert_eq!(move_to(&fs, &["/Folder"], "/FOLDER").unwrap(), ["/FOLDER"]);
        let names = fs.entries(fs.root()).unwrap();
        assert!(names.iter().any(|entry| entry.name == "FOLDER"));
        assert!(!names.iter().any(|entry| entry.name == "Folder"));
    }

    #[test]
    fn an_existing_file_is_replaced_only_if_that_is_asked_for() {
        let fs = volume();
        let id = fs.resolve("/a").unwrap().id;
        let error = move_to(&fs, &["/a"], "/b").unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        let target = MoveTarget {
            path: "/b",
            is_folder: false,
            existing: ExistingTarget::Replace,
        };
        move_all(&fs, &["/a".to_owned()], &target).unwrap();
        assert_eq!(fs.resolve("/b").unwrap().id, id);
        assert!(!exists(&fs, "/a"));
    }

    #[test]
    fn objects_before_an_error_are_moved() {
        let fs = volume();
        let error = move_to(&fs, &["/a", "/missing", "/b"], "/Folder").unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound);
        assert!(exists(&fs, "/Folder/a") && exists(&fs, "/b"));
        let root = move_to(&fs, &[""], "/Folder").unwrap_err();
        assert_eq!(root.kind(), Kind::Invalid);
    }
}
