//! The entries of folders: creation, removal, renaming.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bandsaw_core::{Error, Reason, Result};

use super::folder::Folder;
use super::format::{FoundSet, WriteFormat, check_device_name};
use super::nodes::NodePlace;
use super::volume::{Contents, OpenFiles, ROOT, SECTOR, Volume, WriteStep, missing, now};
use crate::clusters::build::name_units;
use crate::{Change, ExistingTarget, NewKind, NewNode, NodeId};

impl<F: WriteFormat> Volume<F> {
    fn expect(&self, folder: &Folder<F::Raw>, name: &str) -> Result<FoundSet<F::Raw>> {
        let found = self.find(folder, name)?;
        found.ok_or_else(|| Error::not_found(F::LAYER, name).because(Reason::NoSuchPath))
    }

    /// Fails if the format or Windows does not allow a name.
    pub(super) fn check_name(&self, name: &str) -> Result<()> {
        let format = self.format.name();
        name_units(name, F::LAYER, format).map_err(|error| error.named(name))?;
        check_device_name(name, F::LAYER, format)
    }

    /// Fails if the folder has an object with a name.
    fn check_new(&self, folder: &Folder<F::Raw>, name: &str) -> Result<()> {
        self.check_name(name)?;
        match self.find(folder, name)? {
            Some(_) => Err(exists::<F>(name)),
            None => Ok(()),
        }
    }

    /// Adds an object to a folder; one that is moved has its entries `from` already deleted, which is true
    /// if they were to be written after others. Returns the offset of its main entry.
    fn insert(
        &mut self,
        folder: &mut Folder<F::Raw>,
        raw: &F::Raw,
        name: &str,
        from: Option<(&[u64], bool)>,
    ) -> Result<u64> {
        let mut short_names = HashSet::new();
        self.format.scan(&folder.place, &mut |set| {
            short_names.extend(self.format.short_name(&set.raw));
            Ok(ControlFlow::Continue(()))
        })?;
        let entries = self.format.new_entries(raw, name, short_names)?;
        let (offsets, is_later) = self.free_entries(folder, entries.len() as u64)?;
        let step = match from {
            Some((from, was_deferred)) if was_deferred || !in_one_sector(from, &offsets) => {
                Some(WriteStep::Third)
            }
            _ => is_later.then_some(WriteStep::Second),
        };
        for (&offset, entry) in offsets.iter().zip(&entries) {
            if let Some(step) = step {
                let until = self.format.deleted(self.read_entry(offset)?);
                self.defer(offset, step, until);
            }
            self.write_entry(offset, entry)?;
        }
        let main = offsets.get(self.format.main_entry(offsets.len()));
        main.copied()
            .ok_or_else(|| Error::invalid(F::LAYER, "an object without entries").named(name))
    }

    pub(super) fn create(&mut self, dir: NodeId, name: &str, new: &NewNode) -> Result<NodeId> {
        let is_folder = self.check_kind(new)?;
        self.change(|volume| {
            let mut folder = volume.folder(dir)?;
            volume.check_new(&folder, name)?;
            let mut raw = volume.format.new_raw(new, is_folder, now());
            if is_folder {
                let (contents, start) = volume.grow_folder(&volume.no_contents())?;
                volume.format.set_stream(&mut raw, contents.stream());
                let parent = volume.parent_cluster(&folder);
                volume.write_new(start, &volume.format.new_folder(&raw, parent))?;
            }
            let main = volume.insert(&mut folder, &raw, name, None)?;
            Ok(NodeId(volume.nodes.add(main)))
        })
    }

    /// Returns true for a folder. Fails for objects that the format does not have.
    fn check_kind(&self, new: &NewNode) -> Result<bool> {
        match &new.kind {
            NewKind::File => Ok(false),
            NewKind::Folder => Ok(true),
            NewKind::Symlink(_) => Err(self.lacks("symbolic links")),
            NewKind::Special(kind, _) => Err(self.lacks(&format!("{} files", kind.name()))),
        }
    }

    /// Records that an object has lost its name: it is deleted, at the latest when it is closed.
    fn unname(&mut self, id: u64, raw: &F::Raw, open: &OpenFiles<'_>) -> Result<()> {
        if open(id) {
            self.nodes.set_nameless(id, *raw, false);
        } else {
            let contents = self.contents(raw)?;
            self.free_contents(&contents);
            self.nodes.remove(id);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, dir: NodeId, name: &str, open: &OpenFiles<'_>) -> Result<()> {
        self.change(|volume| {
            let folder = volume.folder(dir)?;
            let found = volume.expect(&folder, name)?;
            if volume.format.is_folder(&found.raw) && !volume.is_empty(&found.raw)? {
                return Err(not_empty::<F>(name));
            }
            let offsets = volume
                .space_of(&folder.place)?
                .offsets(found.slots.clone())?;
            volume.delete_entries(&offsets)?;
            volume.unname(volume.nodes.id_of(found.main), &found.raw, open)
        })
    }

    /// Fails if an object must not take the place of another.
    fn check_replaceable(
        &self,
        raw: &F::Raw,
        target: &FoundSet<F::Raw>,
        existing: ExistingTarget,
        name: &str,
    ) -> Result<()> {
        if existing == ExistingTarget::Error {
            return Err(exists::<F>(name));
        }
        match (
            self.format.is_folder(raw),
            self.format.is_folder(&target.raw),
        ) {
            (false, false) => Ok(()),
            (true, true) if self.is_empty(&target.raw)? => Ok(()),
            (true, true) => Err(not_empty::<F>(name)),
            (true, false) => {
                Err(Error::conflict(F::LAYER, "already exists and is not a folder").named(name))
            }
            (false, true) => {
                Err(Error::conflict(F::LAYER, "a folder cannot be replaced").named(name))
            }
        }
    }

    /// Gives the entries of `target`, whose name stays, to the object `id`. `from` is as for
    /// [`insert`](Self::insert).
    fn take_over(
        &mut self,
        id: u64,
        raw: &F::Raw,
        target: &FoundSet<F::Raw>,
        from: Option<(&[u64], bool)>,
        open: &OpenFiles<'_>,
    ) -> Result<()> {
        let located = self.format.locate(target.main)?;
        let (_, offsets) = located.ok_or_else(|| missing::<F>(target.main))?;
        if let Some((from, was_deferred)) = from
            && (was_deferred || !in_one_sector(from, &offsets))
        {
            for &offset in &offsets {
                let until = self.read_entry(offset)?;
                self.defer(offset, WriteStep::Third, until);
            }
        }
        self.store(raw, &offsets)?;
        self.unname(self.nodes.id_of(target.main), &target.raw, open)?;
        self.nodes.set_entry(id, target.main);
        Ok(())
    }

    /// Returns the number of the object.
    pub(super) fn rename(
        &mut self,
        from: (NodeId, &str),
        to: (NodeId, &str),
        existing: ExistingTarget,
        open: &OpenFiles<'_>,
    ) -> Result<u64> {
        self.check_name(to.1)?;
        self.change(|volume| {
            let from_folder = volume.folder(from.0)?;
            let mut folder = volume.folder(to.0)?;
            let source = volume.expect(&from_folder, from.1)?;
            let id = volume.nodes.id_of(source.main);
            let is_folder = volume.format.is_folder(&source.raw);
            if is_folder && from.0 != to.0 {
                volume.check_outside(id, &source.raw, to.0)?;
            }
            let target = volume.find(&folder, to.1)?;
            let target = target.filter(|target| target.main != source.main);
            if target.is_none() && from.0 == to.0 && source.name == to.1 {
                return Ok(id);
            }
            if let Some(target) = &target {
                volume.check_replaceable(&source.raw, target, existing, to.1)?;
            }
            let slots = volume.space_of(&from_folder.place)?;
            let old = slots.offsets(source.slots.clone())?;
            let was_deferred = old.iter().any(|&offset| volume.is_deferred(offset));
            volume.delete_entries(&old)?;
            let moved = Some((&*old, was_deferred));
            match &target {
                Some(target) => volume.take_over(id, &source.raw, target, moved, open)?,
                None => {
                    let main = volume.insert(&mut folder, &source.raw, to.1, moved)?;
                    volume.nodes.set_entry(id, main);
                }
            }
            if is_folder && from.0 != to.0 {
                let parent = volume.parent_cluster(&folder);
                if let Some((offset, entry)) = volume.format.parent_entry(&source.raw, parent)? {
                    let until = volume.read_entry(offset)?;
                    volume.defer(offset, WriteStep::Second, until);
                    volume.write_entry(offset, &entry)?;
                }
            }
            Ok(id)
        })
    }

    /// Fails if the folder `dir` is within the folder `id`.
    fn check_outside(&self, id: u64, raw: &F::Raw, dir: NodeId) -> Result<()> {
        let inside = || {
            let message = "a folder cannot be moved into itself";
            Err(Error::invalid(F::LAYER, message).at(id))
        };
        let mut at = dir;
        loop {
            if at.0 == id {
                return inside();
            }
            if at == ROOT {
                return Ok(());
            }
            match self.parents.get(at.0) {
                Some(parent) => at = NodeId(parent),
                None => break,
            }
        }
        // The folder was never seen below its parent: search for it.
        let mut ahead = vec![self.format.folder_place(raw)?];
        let mut is_inside = false;
        while let Some(place) = ahead.pop() {
            self.format.scan(&place, &mut |set| {
                if self.format.is_folder(&set.raw) {
                    is_inside |= self.nodes.id_of(set.main) == at.0;
                    ahead.push(self.format.folder_place(&set.raw)?);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if is_inside {
                return inside();
            }
        }
        Ok(())
    }

    pub(super) fn create_unlinked(&mut self, new: &NewNode) -> Result<NodeId> {
        if self.check_kind(new)? {
            let message = "cannot create a folder without a name";
            return Err(Error::invalid(F::LAYER, message));
        }
        let raw = self.format.new_raw(new, false, now());
        let id = self.nodes.add_nameless(raw);
        self.nodes.accept();
        Ok(NodeId(id))
    }

    /// Returns an object that has no name yet.
    fn nameless(&self, node: NodeId) -> Result<F::Raw> {
        match self.nodes.place(node.0) {
            Some(NodePlace::Nameless { raw, is_new: true }) => Ok(raw),
            _ => Err(missing::<F>(node.0)),
        }
    }

    pub(super) fn link_unlinked(
        &mut self,
        node: NodeId,
        dir: NodeId,
        name: &str,
        existing: ExistingTarget,
        open: &OpenFiles<'_>,
    ) -> Result<()> {
        self.check_name(name)?;
        self.change(|volume| {
            let raw = volume.nameless(node)?;
            let mut folder = volume.folder(dir)?;
            match volume.find(&folder, name)? {
                Some(target) => {
                    volume.check_replaceable(&raw, &target, existing, name)?;
                    volume.take_over(node.0, &raw, &target, None, open)
                }
                None => {
                    let main = volume.insert(&mut folder, &raw, name, None)?;
                    volume.nodes.set_entry(node.0, main);
                    Ok(())
                }
            }
        })
    }

    pub(super) fn discard_unlinked(&mut self, node: NodeId, open: &OpenFiles<'_>) -> Result<()> {
        self.change(|volume| {
            let raw = volume.nameless(node)?;
            volume.unname(node.0, &raw, open)
        })
    }

    /// Deletes an object without a name that is closed now.
    pub(super) fn reap(&mut self, id: u64, contents: &Contents) -> Result<()> {
        self.change(|volume| {
            volume.free_contents(contents);
            volume.nodes.remove(id);
            Ok(())
        })
    }

    pub(super) fn set_attributes(&mut self, node: NodeId, change: &Change) -> Result<()> {
        let is_owner = |id: Option<u32>| id.is_some_and(|id| id != crate::UNKNOWN_OWNER);
        if is_owner(change.uid) || is_owner(change.gid) {
            return Err(self.lacks("owners").at(node.0));
        }
        if node == ROOT {
            return Ok(());
        }
        self.change(|volume| volume.update(node.0, &mut |format, raw| format.apply(raw, change)))
    }
}

/// Returns true if all entries are in the same sector of the volume.
fn in_one_sector(some: &[u64], others: &[u64]) -> bool {
    let mut sectors = some.iter().chain(others).map(|offset| offset / SECTOR);
    let first = sectors.next();
    sectors.all(|sector| Some(sector) == first)
}

fn exists<F: WriteFormat>(name: &str) -> Error {
    Error::conflict(F::LAYER, "already exists")
        .because(Reason::Exists)
        .named(name)
}

fn not_empty<F: WriteFormat>(name: &str) -> Error {
    Error::conflict(F::LAYER, "the folder is not empty").named(name)
}
