//! Paths of folders, by the numbers and names that records state.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;
use std::sync::Arc;

use super::{ORPHANS, join};

/// Largest number of folders of a path.
const MAX_DEPTH: usize = 512;
/// Largest length of a path in bytes; the rest of a longer one counts as unknown.
const MAX_PATH: usize = 1 << 16;
/// Number of paths in memory.
const KEPT: usize = 4096;

/// The path of a folder, empty for the root, and true if one of its folders is unknown.
pub(crate) type FolderPath = (Arc<str>, bool);

/// The paths of folders that were resolved last, by the number of the folder.
pub(crate) struct KnownPaths<Id> {
    root: Id,
    known: HashMap<Id, FolderPath>,
}

impl<Id: Copy + Eq + Hash + Display> KnownPaths<Id> {
    /// Returns no paths of a volume whose root folder has the number `root`.
    pub(crate) fn new(root: Id) -> Self {
        let known = HashMap::new();
        Self { root, known }
    }

    /// Returns the path of a folder. `parent` returns the parent and the name of a folder, `None` if
    /// they are unknown.
    pub(crate) fn folder(
        &mut self,
        id: Id,
        mut parent: impl FnMut(Id) -> Option<(Id, String)>,
    ) -> FolderPath {
        let mut names: Vec<(Id, String)> = Vec::new();
        let (mut at, mut len) = (id, 0);
        let (mut path, is_orphan) = loop {
            if at == self.root {
                break (String::new(), false);
            }
            if let Some((path, is_orphan)) = self.known.get(&at) {
                break (path.to_string(), *is_orphan);
            }
            let is_cycle = names.len() >= MAX_DEPTH || len > MAX_PATH;
            match parent(at).filter(|_| !is_cycle) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_at_the_root_or_at_an_unknown_folder() {
        let mut paths = KnownPaths::new(2);
        let parent = |id: u32| match id {
            3 => Some((2, "a".to_owned())),
            4 => Some((3, "b/c".to_owned())),
            5 => Some((9, "d".to_owned())),
            6 => Some((6, "e".to_owned())),
            _ => None,
        };
        for (id, path, is_orphan) in [
            (2, "", false),
            (4, "/a/b:c", false),
            (3, "/a", false),
            (5, &*format!("/{ORPHANS}/9/d"), true),
            (9, &*format!("/{ORPHANS}/9"), true),
        ] {
            let found = paths.folder(id, parent);
            assert_eq!((&*found.0, found.1), (path, is_orphan), "{id}");
        }
        let (cycle, is_orphan) = paths.folder(6, parent);
        assert!(is_orphan && cycle.starts_with(&format!("/{ORPHANS}/6/e/e")));
        assert_eq!(cycle.matches("/e").count(), MAX_DEPTH);
        let known = paths.folder(4, |_| None);
        assert_eq!(&*known.0, "/a/b:c", "the paths are remembered");
    }
}
