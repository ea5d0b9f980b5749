//! One tree of files, made equal to another of a later date.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use bandsaw::fs::{
    Ancestors, Attributes, ExistingTarget, FileKind, FileSystem, FileSystemExt, NewKind, NodeId,
};
use bandsaw::{Error, Kind, Result};

use super::objects::{Copied, Copier, Failed, new_node};
use super::{Conversion, LAYER};
use crate::folders::about;

/// Maximum number of folders that a date changes: hard links of folders can make a small volume endless.
const MAX_FOLDERS: u64 = 50_000_000;

/// Numbers in the target of files of the source with several names.
pub(super) type Known = HashMap<NodeId, NodeId>;

/// The change of the target from one date to the next.
pub(super) struct Update<'a> {
    pub(super) copier: Copier<'a>,
    pub(super) known: &'a mut Known,
    /// True if the target has exactly the files of the date before.
    pub(super) is_exact: bool,
    pub(super) report: &'a mut Conversion,
    /// Names that the new date does not have. They are removed at the end, so that a file can get its
    /// new name before it loses its old one.
    removals: Vec<(NodeId, String)>,
    /// Changed folders, and those of the source whose attributes they get at the end.
    changed: Vec<(NodeId, NodeId, String)>,
}

/// A folder in the source and in the target.
struct Pair {
    path: String,
    depth: usize,
    /// The same folder in the date before, if it has one.
    old: Option<NodeId>,
    new: NodeId,
    target: NodeId,
}

impl<'a> Update<'a> {
    pub(super) fn new(
        copier: Copier<'a>,
        known: &'a mut Known,
        is_exact: bool,
        report: &'a mut Conversion,
    ) -> Self {
        Self {
            copier,
            known,
            is_exact,
            report,
            removals: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Makes the folder `target` equal to the folder `new` of the source. `old` is the folder of the
    /// date before.
    pub(super) fn run(
        mut self,
        path: &str,
        old: Option<NodeId>,
        new: NodeId,
        target: NodeId,
    ) -> Result<()> {
        let mut ahead = vec![Pair {
            path: path.to_owned(),
            depth: 0,
            old,
            new,
            target,
        }];
        let (mut ancestors, mut folders) = (Ancestors::default(), 0);
        while let Some(pair) = ahead.pop() {
            self.copier.progress.check()?;
            folders += 1;
            let entered = match folders > MAX_FOLDERS {
                true => Err(Error::limit(
                    LAYER,
                    format!("more than {MAX_FOLDERS} folders to copy"),
                )),
                false => ancestors.enter(pair.new, pair.depth),
            };
            if let Err(error) = entered {
                self.report.problem(error.named(pair.path));
                continue;
            }
            self.folder(&pair, &mut ahead)?;
            self.changed.push((pair.target, pair.new, pair.path));
        }
        for (folder, name) in std::mem::take(&mut self.removals) {
            self.remove(folder, &name)?;
        }
        for (target, source, path) in std::mem::take(&mut self.changed) {
            let done = self.copy_attributes(target, source);
            self.tolerate(done, &path)?;
        }
        Ok(())
    }

    fn folder(&mut self, pair: &Pair, ahead: &mut Vec<Pair>) -> Result<()> {
        let mut before = match pair.old {
            Some(old) => self.entries(old, &pair.path)?,
            None => BTreeMap::new(),
        };
        let mut there = match self.is_exact {
            true => BTreeMap::new(),
            false => {
                let entries = self.copier.to.entries(pair.target)?.into_iter();
                entries.map(|one| (one.name, one.attributes)).collect()
            }
        };
        for (name, new) in self.entries(pair.new, &pair.path)? {
            let old = before.remove(&name);
            let listed = there.remove(&name);
            let is_same = old
                .as_ref()
                .is_some_and(|old| old.id == new.id && old.kind == new.kind);
            if is_same {
                continue;
            }
            let path = format!("{}/{name}", pair.path);
            let target = match (self.is_exact, &old) {
                (true, None) => None,
                (true, Some(_)) => self.copier.to.lookup(pair.target, &name)?,
                (false, _) => listed,
            };
            if new.kind == FileKind::Folder {
                let target = self.make_folder(pair.target, &name, &new, target)?;
                ahead.push(Pair {
                    path,
                    depth: pair.depth + 1,
                    old: old
                        .filter(|old| old.kind == FileKind::Folder)
                        .map(|old| old.id),
                    new: new.id,
                    target,
                });
            } else {
                let done = self.file((pair.target, &name), &new, target, &path);
                if let Some(old) = old.filter(|old| old.links > 1) {
                    self.forget_unlinked(old.id);
                }
                self.tolerate(done, &path)?;
            }
        }
        let rest = match self.is_exact {
            true => before,
            false => there,
        };
        self.removals
            .extend(rest.into_keys().map(|name| (pair.target, name)));
        Ok(())
    }

    /// Forgets a file that has lost its last name in the target.
    fn forget_unlinked(&mut self, source: NodeId) {
        if let Some(id) = self.known.get(&source)
            && self.copier.to.attributes(*id).is_err()
        {
            self.known.remove(&source);
        }
    }

    /// Returns the folder of this name in the target, which is made if it does not exist.
    fn make_folder(
        &mut self,
        folder: NodeId,
        name: &str,
        new: &Attributes,
        target: Option<Attributes>,
    ) -> Result<NodeId> {
        match target {
            Some(found) if found.kind == FileKind::Folder => return Ok(found.id),
            Some(_) => self.remove(folder, name)?,
            None => {}
        }
        self.report.folders += 1;
        let node = new_node(new, NewKind::Folder);
        self.copier.to.create(folder, name, &node)
    }

    /// Makes an entry that is no folder. `target` is the entry of this name.
    fn file(
        &mut self,
        (folder, name): (NodeId, &str),
        new: &Attributes,
        target: Option<Attributes>,
        path: &str,
    ) -> Copied<()> {
        let is_folder = |found: &Attributes| found.kind == FileKind::Folder;
        if target.as_ref().is_some_and(is_folder) {
            self.remove(folder, name).map_err(Failed::Target)?;
        }
        let target = target.filter(|found| !is_folder(found));
        let is_shared = new.links > 1 && new.kind == FileKind::File;
        let known = match is_shared {
            true => self.still_there(new.id).map_err(Failed::Target)?,
            false => None,
        };
        if let Some(known) = known {
            let linked = self.link(known, (folder, name), target.as_ref());
            return linked.map_err(Failed::Target);
        }
        if !self.is_exact
            && let Some(found) = &target
            && found.links == 1
            && self.copier.is_equal(new, found)?
        {
            if is_shared {
                self.known.insert(new.id, found.id);
            }
            return Ok(());
        }
        let copy = match self.copier.copy(new) {
            Err(Failed::Source(error)) => {
                // An older version must not stand for one that cannot be read.
                if target.is_some() {
                    self.remove(folder, name).map_err(Failed::Target)?;
                }
                return Err(Failed::Source(error));
            }
            copy => copy?,
        };
        let linked = copy
            .unlinked
            .link_unlinked(folder, name, ExistingTarget::Replace);
        linked.map_err(Failed::Target)?;
        if is_shared {
            self.known.insert(new.id, copy.id);
        }
        self.report.files += 1;
        self.report.bytes += new.size + new.resource_size;
        for lost in copy.lost {
            self.report.problem(lost.named(path));
        }
        Ok(())
    }

    /// Gives a file of the target another name. `target` is the entry of this name.
    fn link(
        &mut self,
        known: NodeId,
        (folder, name): (NodeId, &str),
        target: Option<&Attributes>,
    ) -> Result<()> {
        match target {
            Some(found) if found.id == known => return Ok(()),
            Some(_) => self.copier.to.link_over(known, folder, name)?,
            None => self.copier.to.link(known, folder, name)?,
        }
        self.report.linked += 1;
        Ok(())
    }

    /// Returns the number in the target of a file of the source, if it still has a name.
    fn still_there(&self, source: NodeId) -> Result<Option<NodeId>> {
        let Some(id) = self.known.get(&source) else {
            return Ok(None);
        };
        match self.copier.to.attributes(*id) {
            Ok(found) if found.links > 0 => Ok(Some(*id)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes an entry of the target with everything below it.
    fn remove(&self, folder: NodeId, name: &str) -> Result<()> {
        let to = self.copier.to;
        let Some(found) = to.lookup(folder, name)? else {
            return Ok(());
        };
        if found.kind != FileKind::Folder {
            return to.remove(folder, name);
        }
        // Each folder twice: to empty it, and to remove it.
        let mut ahead = vec![(folder, name.to_owned(), found.id, false)];
        while let Some((folder, name, id, is_empty)) = ahead.pop() {
            self.copier.progress.check()?;
            if is_empty {
                to.remove(folder, &name)?;
                continue;
            }
            ahead.push((folder, name, id, true));
            for entry in to.entries(id)? {
                match entry.attributes.kind {
                    FileKind::Folder => ahead.push((id, entry.name, entry.attributes.id, false)),
                    _ => to.remove(id, &entry.name)?,
                }
            }
        }
        Ok(())
    }

    /// Gives a folder the attributes of one of the source.
    fn copy_attributes(&mut self, target: NodeId, source: NodeId) -> Copied<()> {
        let found = self
            .copier
            .from
            .attributes(source)
            .map_err(Failed::Source)?;
        let lost = self.copier.set_xattrs(&found, target)?;
        lost.into_iter()
            .for_each(|error| self.report.problem(error));
        self.copier.set_attributes(&found, target)
    }

    /// Keeps the reason why an object cannot be read, and returns all other errors.
    fn tolerate(&mut self, done: Copied<()>, path: &str) -> Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(Failed::Source(error)) if error.kind() != Kind::Cancelled => {
                self.report.problem(about(error, path));
                Ok(())
            }
            Err(Failed::Source(error)) => Err(error),
            Err(Failed::Target(error)) => Err(about(error, path)),
        }
    }

    /// Returns the entries of a folder of the source; those before damage, which is a problem.
    fn entries(&mut self, folder: NodeId, path: &str) -> Result<BTreeMap<String, Attributes>> {
        let mut entries = BTreeMap::new();
        let listed = self.copier.from.list(folder, &mut |entry| {
            entries.insert(entry.name, entry.attributes);
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            Err(error) => self.report.problem(about(error, path)),
            Ok(()) => {}
        }
        Ok(entries)
    }
}

/// Returns the numbers in the target of all files of a date with several names, by comparing the
/// names below two folders that are equal.
pub(super) fn known_files(
    from: &dyn FileSystem,
    folder: NodeId,
    to: &dyn FileSystem,
    target: NodeId,
) -> Result<Known> {
    let mut known = Known::new();
    let mut ancestors = Ancestors::default();
    let mut ahead = vec![(folder, target, 0)];
    while let Some((folder, target, depth)) = ahead.pop() {
        // Whatever cannot be read is copied again.
        if ancestors.enter(folder, depth).is_err() {
            continue;
        }
        let mut there: HashMap<_, _> = match to.entries(target) {
            Ok(entries) => entries
                .into_iter()
                .map(|one| (one.name, one.attributes))
                .collect(),
            Err(_) => continue,
        };
        let listed = from.list(folder, &mut |entry| {
            let (found, other) = (entry.attributes, there.remove(&entry.name));
            match other {
                Some(other) if other.kind == found.kind => match found.kind {
                    FileKind::Folder => ahead.push((found.id, other.id, depth + 1)),
                    FileKind::File if found.links > 1 => drop(known.insert(found.id, other.id)),
                    _ => {}
                },
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        });
        match listed {
            Err(error) if error.kind() == Kind::Cancelled => return Err(error),
            _ => {}
        }
    }
    Ok(known)
}
