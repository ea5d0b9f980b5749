//! Folders in sorted order, one at a time.

use std::collections::HashSet;
use std::vec::IntoIter;

use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use crate::LAYER;

/// Maximum number of nested folders. A Mac's paths have at most 1024 bytes.
pub(crate) const MAX_DEPTH: usize = 1024;

/// An object of a walk.
#[derive(Debug)]
pub(crate) struct WalkedObject<'a> {
    /// Path from the root of the volume; `/` for the root itself.
    pub(crate) path: &'a str,
    pub(crate) attributes: &'a Attributes,
    /// The reason why the contents of the folder are incomplete.
    pub(crate) unlisted: Option<Error>,
    /// True for a folder whose contents were walked under another path.
    pub(crate) is_repeated: bool,
}

/// Returns the entries of a folder, sorted by the bytes of their names.
pub(crate) fn sorted(fs: &dyn FileSystem, folder: NodeId) -> Result<Vec<Entry>> {
    let mut entries = fs.entries(folder)?;
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Calls `each` for the root and everything below it: a folder before its contents, names in the order
/// of their bytes. Memory holds one folder of each level, and the number of each folder.
pub(crate) fn walk(
    fs: &dyn FileSystem,
    progress: &dyn Progress,
    each: &mut dyn FnMut(WalkedObject<'_>) -> Result<()>,
) -> Result<()> {
    let root = fs.attributes(fs.root())?;
    let mut seen = HashSet::new();
    let mut levels = Vec::new();
    levels.extend(enter(fs, "", &root, &mut seen, each)?);
    while let Some((folder, entries)) = levels.last_mut() {
        progress.check()?;
        let Some(entry) = entries.next() else {
            levels.pop();
            continue;
        };
        let path = format!("{folder}/{}", entry.name);
        let of = entry.attributes;
        if of.kind == FileKind::Folder {
            if levels.len() >= MAX_DEPTH {
                return Err(Error::limit(
                    LAYER,
                    format!("folders are nested more than {MAX_DEPTH} deep"),
                )
                .named(path));
            }
            levels.extend(enter(fs, &path, &of, &mut seen, each)?);
        } else {
            each(WalkedObject {
                path: &path,
                attributes: &of,
                unlisted: None,
                is_repeated: false,
            })?;
        }
    }
    Ok(())
}

/// Reports a folder, and returns its entries unless they were walked before.
fn enter(
    fs: &dyn FileSystem,
    path: &str,
    attributes: &Attributes,
    seen: &mut HashSet<NodeId>,
    each: &mut dyn FnMut(WalkedObject<'_>) -> Result<()>,
) -> Result<Option<(String, IntoIter<Entry>)>> {
    let is_repeated = !seen.insert(attributes.id);
    let listed = match is_repeated {
        true => Ok(Vec::new()),
        false => sorted(fs, attributes.id),
    };
    let (entries, unlisted) = match listed {
        Ok(entries) => (entries, None),
        Err(error) if error.kind() == Kind::Cancelled => return Err(error),
        Err(error) => (Vec::new(), Some(error)),
    };
    each(WalkedObject {
        path: if path.is_empty() { "/" } else { path },
        attributes,
        unlisted,
        is_repeated,
    })?;
    Ok((!is_repeated).then(|| (path.to_owned(), entries.into_iter())))
}
