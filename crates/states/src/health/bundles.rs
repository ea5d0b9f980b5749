//! The bundles in folders of a file server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use bandsaw::container::sparsebundle;
use bandsaw::store::Local;

/// Number of folders below the one that is named in which bundles are looked for.
const DEPTH: usize = 4;
/// Folders of file servers that hold copies or metadata.
const SKIPPED: [&str; 5] = [
    "@eaDir",
    "#recycle",
    "#snapshot",
    "lost+found",
    "Network Trash Folder",
];

/// A bundle, or a folder that cannot be read.
pub type FoundBundle = Result<PathBuf, (PathBuf, Error)>;

/// Returns the bundle at `path`, or those in the folder there.
pub fn find_bundles(path: &Path) -> Vec<FoundBundle> {
    match bundle_kind(path) {
        Ok(FolderKind::Bundle) => vec![Ok(path.to_owned())],
        _ => bundles_in(path),
    }
}

/// Returns the bundles in a folder and those below it, sorted. States are no bundles.
pub fn bundles_in(folder: &Path) -> Vec<FoundBundle> {
    let mut found = Vec::new();
    look_in(folder, DEPTH, &mut found);
    found.sort_by_key(|one| match one {
        Ok(path) | Err((path, _)) => path.clone(),
    });
    found
}

fn look_in(folder: &Path, depth: usize, found: &mut Vec<FoundBundle>) {
    let unreadable = |path: &Path, source: io::Error| {
        let error = Error::io("health", "read", source).in_file(path);
        Err((path.to_owned(), error))
    };
    let entries = match fs::read_dir(folder) {
        Err(source) => {
            found.push(unreadable(folder, source));
            return;
        }
        Ok(entries) => entries,
    };
    for entry in entries {
        let entry = match entry {
            Err(source) => {
                found.push(unreadable(folder, source));
                continue;
            }
            Ok(entry) => entry,
        };
        let path = entry.path();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        match fs::metadata(&path) {
            Err(source) => found.push(unreadable(&path, source)),
            Ok(meta) if !meta.is_dir() => {}
            Ok(_) => match bundle_kind(&path) {
                Err(error) => found.push(Err((path, error))),
                Ok(FolderKind::Bundle) => found.push(Ok(path)),
                Ok(FolderKind::State) => {}
                Ok(FolderKind::Other) => {
                    let name = entry.file_name();
                    let name = name.to_string_lossy();
                    let is_skipped = name.starts_with('.') || SKIPPED.contains(&&*name);
                    // A link could lead out of the share, or back into it.
                    if depth > 0 && !is_link && !is_skipped {
                        look_in(&path, depth - 1, found);
                    }
                }
            },
        }
    }
}

enum FolderKind {
    /// A bundle, also one that has lost its lists.
    Bundle,
    /// A kept state of a bundle.
    State,
    Other,
}

fn bundle_kind(path: &Path) -> bandsaw::Result<FolderKind> {
    let store = Local::new(path);
    if sparsebundle::is_state(&store)? {
        return Ok(FolderKind::State);
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    let has_name = matches!(extension, Some("sparsebundle" | "backupbundle"));
    let is_bundle = sparsebundle::is_bundle(&store)? || (has_name && path.join("bands").is_dir());
    Ok(match is_bundle {
        true => FolderKind::Bundle,
        false => FolderKind::Other,
    })
}
