//! An open backup, and paths in it.

use std::sync::Arc;

use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use bandsaw::{Error, Reason, Result};

use crate::LAYER;

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
