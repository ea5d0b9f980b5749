//! FolderPaths of files that do not exist any more, through folders that do, and through those that were found.

use std::collections::HashMap;
use std::sync::Arc;

use super::area::Area;
use super::carve::{self, Carved, Limits, MAX_RECORD};
use super::found::FoundRecords;
use super::live::LiveObjects;
use crate::hfsplus::HfsPlus;
use crate::hfsplus::layout::Cnid;
use crate::hfsplus::unicode::decode_name;
use crate::recovered::{ORPHANS, join};

/// Largest number of folders of a path.
const MAX_DEPTH: usize = 512;
/// Largest length of a path in bytes; the rest of a longer one counts as unknown.
const MAX_PATH: usize = 1 << 16;
/// Number of paths in memory.
const KEPT: usize = 4096;

/// The path of a folder, empty for the root, and true if one of its folders is unknown.
pub(super) type FolderPath = (Arc<str>, bool);

/// Resolves paths of folders.
pub(super) struct FolderPaths<'a> {
    pub(super) live: Option<(&'a HfsPlus, &'a LiveObjects)>,
    pub(super) areas: &'a [Area],
    pub(super) limits: Limits,
    pub(super) known: HashMap<u32, FolderPath>,
}

impl FolderPaths<'_> {
    /// Returns the path of a folder.
    pub(super) fn folder(&mut self, id: u32, found: &FoundRecords) -> FolderPath {
        let mut names: Vec<(u32, String)> = Vec::new();
        let (mut at, mut len) = (id, 0);
        let (mut path, is_orphan) = loop {
            if at == Cnid::ROOT.0 {
                break (String::new(), false);
            }
            if let Some((path, is_orphan)) = self.known.get(&at) {
                break (path.to_string(), *is_orphan);
            }
            let is_cycle = names.len() >= MAX_DEPTH || len > MAX_PATH;
            match self.parent(at, found).filter(|_| !is_cycle) {
                Some((parent, name)) => {
                    len += name.len() + 1;
                    names.push((at, name));
                    at = parent;
                }
                None => break (format!("/{ORPHANS}/{at}"), true),
            }
        };
        if self.known.len() + names.len() > KEPT {
            self.known.clear();
        }
        for (id, name) in names.into_iter().rev() {
            path = join(&path, &name);
            self.known.insert(id, (path.as_str().into(), is_orphan));
        }
        (path.into(), is_orphan)
    }

    /// Returns the parent and the name of a folder.
    fn parent(&self, id: u32, found: &FoundRecords) -> Option<(u32, String)> {
        if let Some((volume, live)) = self.live
            && live.has(id)
        {
            let object = volume.catalog.by_id(Cnid(id)).ok()??;
            return Some((object.parent.0, decode_name(&object.name)));
        }
        let place = found.folder(id)?;
        let bytes = self
            .areas
            .get(place.area())?
            .read(place.at(), MAX_RECORD)
            .ok()?;
        match carve::catalog(&bytes, self.limits)?.0 {
            Carved::Folder(key, _) => Some((key.parent.0, decode_name(key.name))),
            Carved::Thread(_, thread) => Some((thread.parent.0, decode_name(thread.name))),
            Carved::File(..) => None,
        }
    }
}
