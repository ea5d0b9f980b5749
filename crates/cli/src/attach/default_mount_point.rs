//! Default mount points.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw_mount::mount_points;

use crate::failure::Outcome;

const LAYER: &str = "mount point";
/// The number of folders of one name that are tried.
const MAX_FOLDERS: u32 = 1000;

/// A mount point. If it was made for the mount, it is removed with it.
pub(super) struct ChosenMountPoint {
    pub(super) folder: PathBuf,
    pub(super) made: bool,
}

/// Returns `/Volumes`, as on macOS, or `Volumes` in the home folder of users who cannot write
/// there.
pub(super) fn root() -> PathBuf {
    let own = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join("Volumes"));
    if rustix::process::geteuid().is_root() {
        "/Volumes".into()
    } else {
        own().unwrap_or_else(|| "/Volumes".into())
    }
}

/// Returns a given folder; makes it if it is missing. Fails if it is not empty or is a mount point.
pub(super) fn named(folder: &Path) -> Outcome<ChosenMountPoint> {
    let failed = |source| Error::io(LAYER, "read metadata", source).in_file(folder);
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if is_mounted(folder)? {
                return Err(Error::conflict(LAYER, "is already a mount point")
                    .in_file(folder)
                    .into());
            }
            match entries.next() {
                None => Ok(ChosenMountPoint {
                    folder: folder.to_owned(),
                    made: false,
                }),
                Some(_) => {
                    let message = "the folder is not empty: a mount would hide its contents";
                    Err(Error::conflict(LAYER, message).in_file(folder).into())
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(Error::invalid(
            LAYER,
            "is a file, expected a folder to mount on",
        )
        .in_file(folder)
        .into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(folder)
                .map_err(|source| Error::io(LAYER, "create", source).in_file(folder))?;
            Ok(ChosenMountPoint {
                folder: folder.to_owned(),
                made: true,
            })
        }
        Err(source) => Err(failed(source).into()),
    }
}

/// Returns a new folder in `root` with the name of the volume, and a number if that name is taken.
pub(super) fn for_volume(root: &Path, volume: &str) -> Outcome<ChosenMountPoint> {
    fs::create_dir_all(root).map_err(|source| Error::io(LAYER, "create", source).in_file(root))?;
    let name = usable(volume);
    for number in 0..MAX_FOLDERS {
        let numbered = if number == 0 {
            name.clone()
        } else {
            format!("{name} {number}")
        };
        let folder = root.join(numbered);
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(ChosenMountPoint { folder, made: true }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(Error::io(LAYER, "create", source).in_file(folder).into()),
        }
    }
    Err(Error::limit(
        LAYER,
        "cannot choose a mount point: too many folders have the name of the volume and a number; \
         name a folder",
    )
    .in_file(root)
    .into())
}

/// Returns the name of a volume as a valid name of a folder.
fn usable(volume: &str) -> String {
    let name: String = volume
        .chars()
        .map(|char| {
            if matches!(char, '/' | '\0') {
                ':'
            } else {
                char
            }
        })
        .collect();
    match name.trim() {
        "" | "." | ".." => "Untitled".into(),
        _ => name,
    }
}

fn is_mounted(folder: &Path) -> Outcome<bool> {
    let path = folder
        .canonicalize()
        .map_err(|source| Error::io(LAYER, "find", source).in_file(folder))?;
    Ok(mount_points()?.iter().any(|mount| mount.path == path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw::Kind;

    #[test]
    fn folders_are_called_as_volumes_are() {
        let root = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            for_volume(root.path(), name)
                .unwrap()
                .folder
                .file_name()
                .unwrap()
                .to_owned()
        };
        assert_eq!(made("Docs"), "Docs");
        assert_eq!(made("Docs"), "Docs 1");
        assert_eq!(made("a/b"), "a:b");
        assert_eq!(
            (made(".."), made("")),
            ("Untitled".into(), "Untitled 1".into())
        );
        assert!(named(&root.path().join("Docs")).is_ok_and(|place| !place.made));
        assert!(named(&root.path().join("new")).is_ok_and(|place| place.made));
        assert_eq!(
            named(root.path()).err().map(|failure| failure.kind()),
            Some(Kind::Conflict)
        );
    }
}
