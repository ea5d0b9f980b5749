//! Differences between two backups.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bandsaw::fs::{Attributes, FileKind, NodeId};
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Reason, Result};

use crate::LAYER;
use crate::folders::about;
use crate::opened::{Located, OpenBackup};

/// Maximum number of nested folders. A Mac's paths have at most 1024 bytes.
const MAX_DEPTH: usize = 1024;
/// Maximum number of folders that are compared: hard links of folders can make a small volume endless.
const MAX_FOLDERS: u64 = 50_000_000;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// It exists in the newer backup only.
    Added,
    /// It exists in the older backup only.
    Removed,
    /// Its size or modification time differs, or the target of a link.
    Changed,
    /// Its permissions, owner, group or flags differ.
    Attributes,
}

impl DifferenceKind {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Attributes => "attributes",
        }
    }
}

/// A difference between two backups.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its kind.
    pub kind: DifferenceKind,
    /// Path within the backups: `/VOLUME/...`.
    pub path: String,
    /// Attributes in the older backup.
    pub old: Option<Attributes>,
    /// Attributes in the newer backup.
    pub new: Option<Attributes>,
    /// Number of files in a folder that was added or removed, at all depths; else 1, or 0 for a folder.
    pub files: u64,
    /// Bytes of these files; of a changed file, those of the newer backup.
    pub bytes: u64,
}

/// The differences between two backups.
#[derive(Debug, Default)]
pub struct Differences {
    /// The differences, sorted by path. What is in a folder that was added or removed is not listed.
    pub list: Vec<Difference>,
    /// Folders that cannot be read.
    pub problems: Vec<Error>,
}

/// Compares the object at `path` in two backups, with all folders below it. Folders that are the same
/// one, as hard links are, are not read. [`Kind::NotFound`] if neither backup has the object.
pub fn diff(
    old: &OpenBackup,
    new: &OpenBackup,
    path: &str,
    progress: &dyn Progress,
) -> Result<Differences> {
    let mut comparison = BackupComparison {
        old,
        new,
        progress,
        folders: 0,
        result: Differences::default(),
    };
    let (a, b) = (old.find(path)?, new.find(path)?);
    let place = a.as_ref().or(b.as_ref()).map(|one| one.path.clone());
    let Some(place) = place else {
        return Err(Error::not_found("path", path).because(Reason::NoSuchPath));
    };
    let attributes = |one: Option<Located>| one.map(|one| one.attributes);
    comparison.compare(place, attributes(a), attributes(b))?;
    let mut result = comparison.result;
    result
        .list
        .sort_by(|a, b| (&a.path, a.kind).cmp(&(&b.path, b.kind)));
    Ok(result)
}

struct BackupComparison<'a> {
    old: &'a OpenBackup,
    new: &'a OpenBackup,
    progress: &'a dyn Progress,
    folders: u64,
    result: Differences,
}

/// Two folders of the same path.
struct Pair {
    path: String,
    depth: usize,
    old: NodeId,
    new: NodeId,
}

impl BackupComparison<'_> {
    fn compare(
        &mut self,
        path: String,
        old: Option<Attributes>,
        new: Option<Attributes>,
    ) -> Result<()> {
        let mut ahead = Vec::new();
        self.object(path, 0, (old, new), &mut ahead)?;
        while let Some(pair) = ahead.pop() {
            self.count(&pair.path, pair.depth)?;
            let is_same = self.old.instance == self.new.instance && pair.old == pair.new;
            if is_same {
                continue;
            }
            let mut before = self.entries(self.old, pair.old, &pair.path)?;
            let after = self.entries(self.new, pair.new, &pair.path)?;
            for (name, new) in after {
                let old = before.remove(&name);
                let path = format!("{}/{name}", pair.path);
                self.object(path, pair.depth + 1, (old, Some(new)), &mut ahead)?;
            }
            for (name, old) in before {
                let path = format!("{}/{name}", pair.path);
                self.object(path, pair.depth + 1, (Some(old), None), &mut ahead)?;
            }
        }
        Ok(())
    }

    /// Counts a folder, so that a volume whose folders contain each other ends the comparison.
    fn count(&mut self, path: &str, depth: usize) -> Result<()> {
        self.progress.check()?;
        self.folders += 1;
        match depth > MAX_DEPTH || self.folders > MAX_FOLDERS {
            true => Err(Error::limit(LAYER, "too many nested folders").named(path)),
            false => Ok(()),
        }
    }

    /// Compares an object, and adds a pair of folders to those that are compared later.
    fn object(
        &mut self,
        path: String,
        depth: usize,
        both: (Option<Attributes>, Option<Attributes>),
        ahead: &mut Vec<Pair>,
    ) -> Result<()> {
        match both {
            (None, None) => {}
            (Some(old), Some(new)) if old.kind == new.kind => {
                if let Some(kind) = self.difference(&old, &new)? {
                    let is_file = new.kind != FileKind::Folder;
                    self.result.list.push(Difference {
                        kind,
                        path: path.clone(),
                        files: u64::from(is_file),
                        bytes: if is_file { new.size } else { 0 },
                        old: Some(old.clone()),
                        new: Some(new.clone()),
                    });
                }
                if new.kind == FileKind::Folder {
                    ahead.push(Pair {
                        path,
                        depth,
                        old: old.id,
                        new: new.id,
                    });
                }
            }
            (old, new) => {
                if let Some(old) = old {
                    self.add_subtree(DifferenceKind::Removed, path.clone(), depth, old)?;
                }
                if let Some(new) = new {
                    self.add_subtree(DifferenceKind::Added, path, depth, new)?;
                }
            }
        }
        Ok(())
    }

    /// Compares two objects of one kind.
    fn difference(&self, old: &Attributes, new: &Attributes) -> Result<Option<DifferenceKind>> {
        let contents = |of: &Attributes| (of.size, of.resource_size, of.modified);
        let is_folder = new.kind == FileKind::Folder;
        let changed = match new.kind {
            FileKind::Folder => false,
            // The target of a link is changed by making a new link, which can have the same length and date.
            FileKind::Symlink if contents(old) == contents(new) && old.id != new.id => {
                self.old.fs.read_link(old.id)? != self.new.fs.read_link(new.id)?
            }
            _ => contents(old) != contents(new),
        };
        let attributes = |of: &Attributes| (of.mode, of.uid, of.gid, of.flags);
        Ok(match changed && !is_folder {
            true => Some(DifferenceKind::Changed),
            false => (attributes(old) != attributes(new)).then_some(DifferenceKind::Attributes),
        })
    }

    /// Adds an object that only one backup has, with the number and size of all files below it.
    fn add_subtree(
        &mut self,
        kind: DifferenceKind,
        path: String,
        depth: usize,
        of: Attributes,
    ) -> Result<()> {
        let side = match kind {
            DifferenceKind::Removed => self.old,
            _ => self.new,
        };
        let (mut files, mut bytes) = (0_u64, 0_u64);
        let mut add = |of: &Attributes| {
            files += 1;
            bytes = bytes.saturating_add(of.size);
        };
        match of.kind {
            FileKind::Folder => {
                let mut ahead = vec![(of.id, path.clone(), depth)];
                while let Some((id, path, depth)) = ahead.pop() {
                    self.count(&path, depth)?;
                    for (name, found) in self.entries(side, id, &path)? {
                        match found.kind {
                            FileKind::Folder => {
                                ahead.push((found.id, format!("{path}/{name}"), depth + 1));
                            }
                            _ => add(&found),
                        }
                    }
                }
            }
            _ => add(&of),
        }
        let (old, new) = match kind {
            DifferenceKind::Removed => (Some(of), None),
            _ => (None, Some(of)),
        };
        self.result.list.push(Difference {
            kind,
            path,
            old,
            new,
            files,
            bytes,
        });
        Ok(())
    }

    /// Returns the entries of a folder; those before damage, which is added to the problems.
    fn entries(
        &mut self,
        of: &OpenBackup,
        folder: NodeId,
        path: &str,
    ) -> Result<BTreeMap<String, Attributes>> {
        let mut entries = BTreeMap::new();
        let listed = of.fs.list(folder, &mut |entry| {
            entries.insert(entry.name, entry.attributes);
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => self.result.problems.push(about(error, path)),
            Ok(()) => {}
        }
        Ok(entries)
    }
}
