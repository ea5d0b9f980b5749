//! The versions of an object over all backups.

use bandsaw::fs::{Attributes, FileKind};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use crate::backups::Backups;

/// A version of an object: the same in some backups, usually one after the other.
#[derive(Debug, Clone)]
pub struct Version {
    /// Path within the first of the backups.
    pub path: String,
    /// Its attributes in the first of the backups.
    pub attributes: Attributes,
    /// Numbers of the backups that have this version, in the order of their dates.
    pub backups: Vec<usize>,
}

/// The versions of an object.
#[derive(Debug, Default)]
pub struct Versions {
    /// The versions, in the order of their first backups.
    pub versions: Vec<Version>,
    /// Numbers of the backups without the object.
    pub absent: Vec<usize>,
    /// Numbers of the backups that cannot be read, and the reasons.
    pub unread: Vec<(usize, Error)>,
}

/// Returns true if an object is the same version in two states. A folder's entries do not make a
/// version.
pub fn is_same_version(a: &Attributes, b: &Attributes) -> bool {
    let of = |one: &Attributes| {
        let size = if one.kind == FileKind::Folder {
            0
        } else {
            one.size
        };
        (one.id, one.kind, size, one.resource_size, one.modified)
    };
    of(a) == of(b)
}

/// Returns the versions of the object at `path` over all backups; see
/// [`OpenBackup::resolve`](crate::OpenBackup::resolve) for the path. A backup that cannot be read does
/// not end the search. Reports a stage with the number of backups.
pub fn versions(backups: &Backups, path: &str, progress: &dyn Progress) -> Result<Versions> {
    let mut found = Versions::default();
    progress.stage("search", backups.all().len() as u64);
    for number in 0..backups.all().len() {
        progress.check()?;
        progress.advance(1);
        let located = backups.open(number).and_then(|open| open.find(path));
        match located {
            Ok(None) => found.absent.push(number),
            Ok(Some(located)) => {
                // A version returns when it is restored, so not only the last is compared.
                let known = found.versions.iter_mut().rev();
                match known
                    .into_iter()
                    .find(|one| is_same_version(&one.attributes, &located.attributes))
                {
                    Some(version) => version.backups.push(number),
                    None => found.versions.push(Version {
                        path: located.path,
                        attributes: located.attributes,
                        backups: vec![number],
                    }),
                }
            }
            Err(error) if matches!(error.kind(), Kind::Invalid | Kind::Cancelled) => {
                return Err(error);
            }
            Err(error) => found.unread.push((number, error)),
        }
    }
    Ok(found)
}
