//! An open backup, and paths in it.

use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use bandsaw::{Error, Kind, Reason, Result};

use crate::LAYER;
use crate::glob::Glob;

/// Maximum number of paths that a pattern stands for.
const MAX_MATCHES: usize = 100_000;

/// The state of a volume: numbers of objects are the same within one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Instance {
    pub(crate) volume: usize,
    /// The number of the backup whose snapshot it is. `None`: the current state.
    pub(crate) snapshot: Option<usize>,
}

/// An open backup.
#[derive(Debug, Clone)]
pub struct OpenBackup {
    /// The volume, in the state of the backup.
    pub fs: Arc<dyn FileSystem>,
    /// The folder with the volumes of the machine.
    pub root: NodeId,
    /// Path of that folder in `fs`.
    pub path: String,
    pub(crate) instance: Instance,
}

/// An object of a backup.
#[derive(Debug, Clone)]
pub struct Located {
    /// Path within the backup: empty for the backup itself, else `/VOLUME/...`.
    pub path: String,
    /// Its attributes.
    pub attributes: Attributes,
}

impl OpenBackup {
    /// Returns the folders of the volumes of the machine.
    pub fn volumes(&self) -> Result<Vec<Entry>> {
        let mut entries = self.fs.entries(self.root)?;
        entries.retain(|entry| {
            entry.attributes.kind == FileKind::Folder && !entry.name.starts_with('.')
        });
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Returns the object at a path, which begins with the name of a volume; or without that name, if
    /// only one volume has such a path.
    ///
    /// [`Kind::NotFound`](bandsaw::Kind::NotFound) if there is none;
    /// [`Kind::Invalid`](bandsaw::Kind::Invalid) if several volumes have one.
    pub fn resolve(&self, path: &str) -> Result<Located> {
        self.find(path)?
            .ok_or_else(|| Error::not_found("path", path).because(Reason::NoSuchPath))
    }

    /// Like [`resolve`](Self::resolve), with `None` for an object that does not exist.
    pub fn find(&self, path: &str) -> Result<Option<Located>> {
        let parts: Vec<&str> = path
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        let root = self.fs.attributes(self.root)?;
        if let Some(found) = self.descend(String::new(), root, &parts)? {
            return Ok(Some(found));
        }
        let mut found = Vec::new();
        for volume in self.volumes()? {
            let place = format!("/{}", volume.name);
            found.extend(self.descend(place, volume.attributes, &parts)?);
        }
        if found.len() > 1 {
            let paths: Vec<_> = found.iter().map(|one| one.path.as_str()).collect();
            let message = format!("several volumes have this path: {}", paths.join(", "));
            return Err(Error::invalid(LAYER, message).named(path));
        }
        Ok(found.pop())
    }

    /// Returns the objects at all paths that a pattern stands for, in the order of their paths: `*`, `?`
    /// and `[a-z]` stand for characters of one name, as in [`Glob`]. Names that begin with a period
    /// need one in the pattern. A path that exists as it is written stands for itself.
    ///
    /// [`Kind::NotFound`](bandsaw::Kind::NotFound) if there is none;
    /// [`Kind::Limit`](bandsaw::Kind::Limit) for more than 100,000.
    pub fn resolve_all(&self, pattern: &str) -> Result<Vec<Located>> {
        let literal = self.find(pattern);
        if !pattern.contains(['*', '?', '[']) {
            let missing = || Error::not_found("path", pattern).because(Reason::NoSuchPath);
            return literal?.ok_or_else(missing).map(|found| vec![found]);
        }
        if let Ok(Some(found)) = literal {
            return Ok(vec![found]);
        }
        let parts: Vec<&str> = pattern
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        let root = Located {
            path: String::new(),
            attributes: self.fs.attributes(self.root)?,
        };
        let mut found = self.expand(root, &parts)?;
        if found.is_empty() {
            for volume in self.volumes()? {
                let volume = Located {
                    path: format!("/{}", volume.name),
                    attributes: volume.attributes,
                };
                found.extend(self.expand(volume, &parts)?);
            }
        }
        if found.is_empty() {
            let message = "nothing has a path of this pattern";
            let error = Error::new(Kind::NotFound, LAYER, message).named(pattern);
            return Err(error.because(Reason::NoSuchPath));
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Returns the objects below another that a pattern stands for.
    fn expand(&self, from: Located, parts: &[&str]) -> Result<Vec<Located>> {
        let mut found = vec![from];
        for part in parts {
            let glob = Glob::new(part, false);
            let mut next = Vec::new();
            for folder in found {
                if folder.attributes.kind != FileKind::Folder {
                    continue;
                }
                let mut add = |name: &str, attributes: Attributes| {
                    if next.len() >= MAX_MATCHES {
                        let message = "too many paths; use a more specific pattern";
                        return Err(Error::limit(LAYER, message));
                    }
                    next.push(Located {
                        path: format!("{}/{name}", folder.path),
                        attributes,
                    });
                    Ok(())
                };
                if !part.contains(['*', '?', '[']) {
                    let known = self.fs.lookup(folder.attributes.id, part)?;
                    known.map_or(Ok(()), |attributes| add(part, attributes))?;
                    continue;
                }
                self.fs.list(folder.attributes.id, &mut |entry| {
                    let is_hidden = entry.name.starts_with('.') && !part.starts_with('.');
                    if !is_hidden && glob.matches(&entry.name) {
                        add(&entry.name, entry.attributes)?;
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            found = next;
        }
        Ok(found)
    }

    fn descend(
        &self,
        mut path: String,
        mut at: Attributes,
        parts: &[&str],
    ) -> Result<Option<Located>> {
        for part in parts {
            if at.kind != FileKind::Folder {
                return Ok(None);
            }
            match self.fs.lookup(at.id, part)? {
                Some(found) => at = found,
                None => return Ok(None),
            }
            path.push('/');
            path.push_str(part);
        }
        Ok(Some(Located {
            path,
            attributes: at,
        }))
    }

    /// Returns the path in the volume of an object of the backup.
    pub fn path_of(&self, located: &Located) -> String {
        format!("{}{}", self.path, located.path)
    }
}
