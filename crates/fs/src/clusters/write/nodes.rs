//! The numbers of objects, which stay the same when entries move.

use std::collections::HashMap;

use bandsaw_core::sync::Mutex;

/// The first number of objects whose entry has the number of another.
const FIRST_NEW: u64 = 1 << 62;

/// The folder of each folder that was seen in it, so that it need not be searched for.
#[derive(Debug, Default)]
pub(super) struct ParentCache(Mutex<HashMap<u64, u64>>);

impl ParentCache {
    pub(super) fn get(&self, folder: u64) -> Option<u64> {
        self.0.lock().get(&folder).copied()
    }

    pub(super) fn insert(&self, folder: u64, parent: u64) {
        self.0.lock().insert(folder, parent);
    }

    /// Replaces the parent of a folder that was seen.
    pub(super) fn replace(&self, folder: u64, parent: u64) {
        if let Some(known) = self.0.lock().get_mut(&folder) {
            *known = parent;
        }
    }
}

/// The place of an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodePlace<R> {
    /// The offset of its main entry on the volume, in bytes.
    Entry(u64),
    /// It has no entry.
    Nameless {
        raw: R,
        /// True if it may get a name; otherwise it is deleted when it is closed.
        is_new: bool,
    },
}

/// The objects whose number is not the offset of their entry.
#[derive(Debug)]
pub(super) struct ClusterNodes<R> {
    places: HashMap<u64, NodePlace<R>>,
    numbers: HashMap<u64, u64>,
    next: u64,
    undo: Vec<NodeChange<R>>,
}

#[derive(Debug)]
enum NodeChange<R> {
    Place(u64, Option<NodePlace<R>>),
    Number(u64, Option<u64>),
}

impl<R: Copy> ClusterNodes<R> {
    pub(super) fn new() -> Self {
        Self {
            places: HashMap::new(),
            numbers: HashMap::new(),
            next: FIRST_NEW,
            undo: Vec::new(),
        }
    }

    /// Returns the place of an object. `None`: it does not exist.
    pub(super) fn place(&self, id: u64) -> Option<NodePlace<R>> {
        match self.places.get(&id) {
            Some(place) => Some(*place),
            None if self.numbers.contains_key(&id) || id >= FIRST_NEW => None,
            None => Some(NodePlace::Entry(id)),
        }
    }

    /// Returns the number of the object whose entry is at a byte of the volume.
    pub(super) fn id_of(&self, entry: u64) -> u64 {
        self.numbers.get(&entry).copied().unwrap_or(entry)
    }

    /// Returns true for an object without a name.
    pub(super) fn is_nameless(&self, id: u64) -> bool {
        matches!(self.places.get(&id), Some(NodePlace::Nameless { .. }))
    }

    /// Returns the objects without a name.
    pub(super) fn nameless(&self) -> Vec<(u64, R)> {
        let nameless = |(id, place): (&u64, &NodePlace<R>)| match place {
            NodePlace::Nameless { raw, .. } => Some((*id, *raw)),
            NodePlace::Entry(_) => None,
        };
        self.places.iter().filter_map(nameless).collect()
    }

    /// Returns true if there are objects without a name.
    pub(super) fn has_nameless(&self) -> bool {
        let mut places = self.places.values();
        places.any(|place| matches!(place, NodePlace::Nameless { .. }))
    }

    fn set_place(&mut self, id: u64, place: Option<NodePlace<R>>) {
        let old = match place {
            Some(place) => self.places.insert(id, place),
            None => self.places.remove(&id),
        };
        if let Some(NodePlace::Entry(entry)) = old {
            self.set_number(entry, None);
        } else if old.is_none() {
            self.set_number(id, None);
        }
        self.undo.push(NodeChange::Place(id, old));
    }

    fn set_number(&mut self, entry: u64, id: Option<u64>) {
        let old = match id {
            Some(id) => self.numbers.insert(entry, id),
            None => self.numbers.remove(&entry),
        };
        if old != id {
            self.undo.push(NodeChange::Number(entry, old));
        }
    }

    /// Records that the entry of an object is at a byte of the volume.
    pub(super) fn set_entry(&mut self, id: u64, entry: u64) {
        if id == entry {
            self.set_place(id, None);
        } else {
            self.set_place(id, Some(NodePlace::Entry(entry)));
            self.set_number(entry, Some(id));
        }
    }

    /// Returns the number of a new object with an entry.
    pub(super) fn add(&mut self, entry: u64) -> u64 {
        if !self.places.contains_key(&entry) && !self.numbers.contains_key(&entry) {
            return entry;
        }
        let id = self.new_number();
        self.set_entry(id, entry);
        id
    }

    fn new_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns the number of a new object without an entry.
    pub(super) fn add_nameless(&mut self, raw: R) -> u64 {
        let id = self.new_number();
        self.set_nameless(id, raw, true);
        id
    }

    /// Records that an object has no entry.
    pub(super) fn set_nameless(&mut self, id: u64, raw: R, is_new: bool) {
        self.set_place(id, Some(NodePlace::Nameless { raw, is_new }));
    }

    /// Records that an object does not exist any more.
    pub(super) fn remove(&mut self, id: u64) {
        if self.places.contains_key(&id) {
            self.set_place(id, None);
        }
    }

    pub(super) fn accept(&mut self) {
        self.undo.clear();
    }

    pub(super) fn rollback(&mut self) {
        while let Some(change) = self.undo.pop() {
            match change {
                NodeChange::Place(id, Some(place)) => drop(self.places.insert(id, place)),
                NodeChange::Place(id, None) => drop(self.places.remove(&id)),
                NodeChange::Number(entry, Some(id)) => drop(self.numbers.insert(entry, id)),
                NodeChange::Number(entry, None) => drop(self.numbers.remove(&entry)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(nodes: &ClusterNodes<()>, id: u64) -> Option<u64> {
        match nodes.place(id) {
            Some(NodePlace::Entry(entry)) => Some(entry),
            _ => None,
        }
    }

    #[test]
    fn numbers_stay_when_entries_move() {
        let mut nodes = ClusterNodes::new();
        nodes.set_entry(64, 128);
        nodes.accept();
        assert_eq!((entry(&nodes, 64), nodes.id_of(128)), (Some(128), 64));
        assert_eq!(entry(&nodes, 128), None);
        let new = nodes.add(64);
        assert_ne!(new, 64);
        assert_eq!((entry(&nodes, new), nodes.id_of(64)), (Some(64), new));
        nodes.rollback();
        assert_eq!((nodes.id_of(64), entry(&nodes, new)), (64, None));
        nodes.set_entry(64, 64);
        assert_eq!(
            (entry(&nodes, 64), entry(&nodes, 128)),
            (Some(64), Some(128))
        );
        let nameless = nodes.add_nameless(());
        assert!(nodes.has_nameless());
        nodes.set_entry(nameless, 256);
        assert_eq!(
            (entry(&nodes, nameless), nodes.id_of(256)),
            (Some(256), nameless)
        );
        nodes.remove(nameless);
        assert_eq!(
            (entry(&nodes, nameless), entry(&nodes, 256)),
            (None, Some(256))
        );
    }
}
