//! Operations on names: create, rename, link, remove, look up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::life::Life;
use super::nature::Habit;
use super::world::{Body, Object, is_journal};
use crate::Kind;
use crate::fs::{
    Change, ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, NewKind, NewNode,
    NodeId,
};

impl Life {
    /// Returns any name; on a volume that is not crowded it is often an existing one.
    pub(super) fn name(&mut self) -> String {
        let number = if self.nature.habit == Habit::Crowded {
            self.below(8000)
        } else {
            self.below(40)
        };
        let text = match number % 7 {
            0 => format!(
                "{}{number}",
                "a rather long name that fills nodes ".repeat(6)
            ),
            1 => format!("é 漢字 {number}"),
            2 => format!("with: colon {number}"),
            _ => format!("Name {number}"),
        };
        match self.below(6) {
            0 => text.to_uppercase(),
            1 => text.to_lowercase(),
            _ => text,
        }
    }

    /// Returns any object that `wanted` selects.
    pub(super) fn some(&mut self, wanted: impl Fn(&Object) -> bool) -> Option<u64> {
        let from = self.random.within(0..self.world.last() + 2);
        self.world.some(from, wanted)
    }

    fn dir(&mut self) -> u64 {
        if self.nature.habit == Habit::Crowded && !self.random.one_in(8) {
            return self.world.root();
        }
        self.some(Object::is_folder).expect("the root is a folder")
    }

    /// Returns any name of an object: its folder, the name, the object.
    fn place(&mut self, wanted: impl Fn(&Object) -> bool) -> Option<(u64, String, u64)> {
        let id = self.some(|object| !object.places.is_empty() && wanted(object))?;
        let places = &self.world.get(id).places;
        let nth = self.random.within(0..places.len() as u64) as usize;
        let (dir, key) = self.world.get(id).places.iter().nth(nth)?.clone();
        let (name, _) = self.world.folder(dir).get(&key)?.clone();
        Some((dir, self.respelled(name), id))
    }

    /// Returns an equivalent spelling of a name.
    fn respelled(&mut self, name: String) -> String {
        if self.nature.case_sensitive || !self.random.one_in(8) {
            name
        } else {
            name.to_uppercase()
        }
    }

    pub(super) fn create(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let (kind, body) = match self.below(16) {
            0..=2 => (NewKind::Folder, Body::Folder(BTreeMap::new())),
            3 | 4 => {
                let target = format!("to/{}", "somewhere/".repeat(self.below(90) as usize));
                (NewKind::Symlink(target.clone()), Body::Symlink(target))
            }
            5 => (
                NewKind::Special(FileKind::Fifo, 0),
                Body::Special(FileKind::Fifo, 0),
            ),
            6 => (
                NewKind::Special(FileKind::BlockDevice, 77),
                Body::Special(FileKind::BlockDevice, 77),
            ),
            _ => (NewKind::File, Body::File([Arc::default(), Arc::default()])),
        };
        let owner = self.owner();
        let new = NewNode {
            mode: owner.0,
            uid: owner.1,
            gid: owner.2,
            flags: owner.3,
            ..NewNode::new(kind)
        };
        let taken = self.world.lookup(dir, &name).map(|_| Kind::Conflict);
        let made = self.fs().create(NodeId(dir), &name, &new);
        if let Some(id) = self.done(made, taken) {
            self.world.add(
                dir,
                &name,
                id.0,
                Object {
                    body,
                    xattrs: BTreeMap::new(),
                    owner,
                    places: BTreeSet::new(),
                },
            );
        }
        self.did(None);
    }

    fn owner(&mut self) -> (u16, u32, u32, u32) {
        let flags = [0, 0, 1, 0x1_0000][self.below(4) as usize];
        (
            self.below(0o10000) as u16,
            self.below(1000) as u32,
            self.random.number() as u32,
            flags,
        )
    }

    pub(super) fn remove(&mut self) {
        let root = self.world.root();
        if self.random.one_in(16) {
            let (dir, name) = (self.dir(), self.name());
            if self.world.lookup(dir, &name).is_none() {
                let removed = self.fs().remove(NodeId(dir), &name);
                self.done(removed, Some(Kind::NotFound));
                return self.did(None);
            }
        }
        // Folders are removed less often, so that some remain.
        let folders = self.random.one_in(4);
        let Some((dir, name, id)) = self.place(|object| folders || !object.is_folder()) else {
            return;
        };
        let full = id == root
            || matches!(&self.world.get(id).body, Body::Folder(entries) if !entries.is_empty());
        let removed = self.fs().remove(NodeId(dir), &name);
        if self.done(removed, full.then_some(Kind::Conflict)).is_some() {
            let open = self.is_open(id);
            self.world.leave(dir, &name, open);
        }
        self.did(None);
    }

    pub(super) fn rename(&mut self) {
        let Some((dir, name, id)) = self.place(|_| true) else {
            return;
        };
        let (mut to_dir, mut to_name) = (self.dir(), self.name());
        if self.random.one_in(3)
            && let Some((dir, name, _)) = self.place(|_| true)
        {
            (to_dir, to_name) = (dir, name);
        }
        let existing = if self.random.one_in(3) {
            ExistingTarget::Error
        } else {
            ExistingTarget::Replace
        };
        let there = self.world.lookup(to_dir, &to_name).map(|(_, there)| *there);
        let in_place = (dir, self.world.key(&name)) == (to_dir, self.world.key(&to_name));
        let object = self.world.get(id);
        let refused = if object.is_folder() && self.is_within(to_dir, id) {
            Some(Kind::Invalid)
        } else {
            there
                .filter(|_| !in_place)
                .and_then(|there| self.refusal(object, there, existing))
        };
        let moved = self
            .fs()
            .rename((NodeId(dir), &name), (NodeId(to_dir), &to_name), existing);
        if self.done(moved, refused).is_some() && (in_place || there != Some(id)) {
            if let Some(there) = there.filter(|_| !in_place) {
                let open = self.is_open(there);
                self.world.leave(to_dir, &to_name, open);
            }
            self.world.leave(dir, &name, true);
            self.world.enter(to_dir, &to_name, id);
        }
        self.did(None);
    }

    fn refusal(&self, object: &Object, there: u64, existing: ExistingTarget) -> Option<Kind> {
        let there = self.world.get(there);
        let refused = match &there.body {
            _ if existing == ExistingTarget::Error => true,
            Body::Folder(entries) => !object.is_folder() || !entries.is_empty(),
            _ => object.is_folder(),
        };
        refused.then_some(Kind::Conflict)
    }

    fn is_within(&self, mut dir: u64, folder: u64) -> bool {
        loop {
            if dir == folder {
                return true;
            }
            match self.world.get(dir).places.first() {
                Some((above, _)) => dir = *above,
                None => return false,
            }
        }
    }

    pub(super) fn link(&mut self) {
        let any = self.random.one_in(10);
        let Some(id) = self.some(|object| any || object.is_file()) else {
            return;
        };
        let (dir, name) = (self.dir(), self.name());
        let object = self.world.get(id);
        let refused = match self.world.lookup(dir, &name) {
            Some(_) => Some(Kind::Conflict),
            None if object.is_file() && object.places.is_empty() => Some(Kind::NotFound),
            None => (!object.is_file()).then_some(Kind::Unsupported),
        };
        let linked = self.fs().link(NodeId(id), NodeId(dir), &name);
        if self.done(linked, refused).is_some() {
            self.world.enter(dir, &name, id);
        }
        self.did(None);
    }

    pub(super) fn lookup_name(&mut self) {
        let (dir, name) = (self.dir(), self.name());
        let found = self
            .fs()
            .lookup(NodeId(dir), &name)
            .expect("a lookup")
            .map(|found| found.id.0);
        assert_eq!(
            found,
            self.world.lookup(dir, &name).map(|(_, id)| *id),
            "lookup of {name}"
        );
        if self.random.one_in(8) {
            let entries = self.fs().entries(NodeId(dir)).expect("a list");
            let count = entries
                .iter()
                .filter(|entry| !is_journal(dir, &entry.name, self.world.root()))
                .count();
            assert_eq!(
                count,
                self.world.folder(dir).len(),
                "entries of folder {dir}"
            );
        }
    }

    pub(super) fn set_attributes(&mut self) {
        let Some(id) = self.some(|_| true) else {
            return;
        };
        let (mode, uid, gid, flags) = self.owner();
        let change = Change {
            mode: self.random.one_in(2).then_some(mode),
            uid: self.random.one_in(2).then_some(uid),
            gid: self.random.one_in(2).then_some(gid),
            flags: self.random.one_in(2).then_some(flags),
            ..Change::default()
        };
        let changed = self.fs().set_attributes(NodeId(id), &change);
        if self.done(changed, None).is_some() {
            let owner = &mut self.world.get_mut(id).owner;
            let old = *owner;
            *owner = (
                change.mode.unwrap_or(old.0),
                change.uid.unwrap_or(old.1),
                change.gid.unwrap_or(old.2),
                change.flags.unwrap_or(old.3),
            );
        }
        self.did(None);
    }
}
