//! Paths of the objects that findings are about.

use std::collections::HashMap;

use super::report::Report;
use crate::apfs::btree::Key;
use crate::apfs::layout::{FileId, InodeRaw, RecordKey, inode_field, record_type, until_nul};
use crate::apfs::volume::Apfs;
use crate::{FileSystem as _, NodeId};
use bandsaw_core::error::Subject;

/// Maximum number of objects whose names are read, folders above included.
const MAX_NAMES: usize = 20_000;
/// Maximum number of folders above an object.
const MAX_DEPTH: usize = 256;
/// Maximum length of a path in bytes.
const MAX_PATH: usize = 8192;

/// Gives the objects that the findings, from number `first` on, are about the paths that they have
/// in `volume`. An object whose inode and folder do not agree on its name keeps its number.
pub(super) fn resolve(volume: &Apfs, first: usize, report: &mut Report<'_>) {
    let mut paths = Paths {
        volume,
        names: HashMap::new(),
    };
    report.resolve_subjects(first, |subject| {
        let path = match subject {
            Subject::Number(id) => paths.path(*id)?,
            Subject::Entry(folder, name) => match &*paths.path(*folder)? {
                "/" => format!("/{name}"),
                folder => format!("{folder}/{name}"),
            },
            Subject::Path(_) => return None,
        };
        (path.len() <= MAX_PATH).then_some(path)
    });
}

struct Paths<'a> {
    volume: &'a Apfs,
    /// Folder and name of each object that was looked up; `None` if they cannot be read.
    names: HashMap<u64, Option<(u64, String)>>,
}

impl Paths<'_> {
    /// Returns the path of an object; `None` if it does not lead to the root.
    fn path(&mut self, id: u64) -> Option<String> {
        let (mut parts, mut len, mut at) = (Vec::new(), 0, id);
        while at != FileId::ROOT.0 {
            if !self.names.contains_key(&at) {
                if self.names.len() == MAX_NAMES {
                    return None;
                }
                let name = self.name(at);
                self.names.insert(at, name);
            }
            let (folder, name) = self.names.get(&at)?.clone()?;
            len += name.len() + 1;
            if parts.len() == MAX_DEPTH || len > MAX_PATH {
                return None;
            }
            parts.push(name);
            at = folder;
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }

    /// Returns the folder and the name in an inode, if the folder has such an entry.
    fn name(&self, id: u64) -> Option<(u64, String)> {
        let key = RecordKey::single(FileId(id), record_type::INODE);
        let found = self.volume.files.get(&Key::Record(key), |value| {
            let (raw, fields) = InodeRaw::parse(value)?;
            let name = until_nul(fields.get(inode_field::NAME)?);
            Some((raw.parent_id.get(), str::from_utf8(name).ok()?.to_owned()))
        });
        let (folder, name) = found.ok()???;
        let entry = self.volume.lookup(NodeId(folder), &name).ok()??;
        (entry.id == NodeId(id)).then_some((folder, name))
    }
}
