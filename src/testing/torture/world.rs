//! The expected contents of a volume.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;

use crate::device::{BlockDevice, BlockDeviceExt};
use crate::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId};

const RESOURCE_FORK: &str = "com.apple.ResourceFork";

/// The name of an entry in its original spelling, and its object.
pub(super) type WorldEntry = (String, u64);

/// The contents of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// Entries by their names in the form used for comparison.
    Folder(BTreeMap<String, WorldEntry>),
    /// Data fork and resource fork.
    File([Arc<Vec<u8>>; 2]),
    Symlink(String),
    Special(FileKind, u32),
}

/// An object, independent of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) body: Body,
    pub(super) xattrs: BTreeMap<String, Arc<Vec<u8>>>,
    /// Mode, owner, group, flags.
    pub(super) owner: (u16, u32, u32, u32),
    /// Folders and names that refer to it.
    pub(super) places: BTreeSet<(u64, String)>,
}

impl Object {
    pub(super) fn is_folder(&self) -> bool {
        matches!(self.body, Body::Folder(_))
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.body, Body::File(_))
    }
}

/// All objects by number.
#[derive(Debug, Clone)]
pub(super) struct World {
    objects: BTreeMap<u64, Arc<Object>>,
    root: u64,
    case_sensitive: bool,
}

impl World {
    /// Reads everything on a volume. Panics on contradictions.
    pub(super) fn read(fs: &dyn FileSystem, case_sensitive: bool) -> Self {
        let root = fs.attributes(fs.root()).expect("the root's attributes");
        let mut world = Self {
            objects: BTreeMap::new(),
            root: root.id.0,
            case_sensitive,
        };
        let mut folders = vec![root.id];
        world
            .objects
            .insert(root.id.0, Arc::new(read_object(fs, &root)));
        while let Some(dir) = folders.pop() {
            for entry in fs
                .entries(dir)
                .unwrap_or_else(|error| panic!("folder {dir:?}: {error}"))
            {
                let id = entry.attributes.id;
                // In its original spelling: composed.
                if is_journal(dir.0, &entry.name, root.id.0) {
                    continue;
                }
                let name = entry.name.replace("e\u{301}", "é").replace("E\u{301}", "É");
                if let btree_map::Entry::Vacant(new) = world.objects.entry(id.0) {
                    new.insert(Arc::new(read_object(fs, &entry.attributes)));
                    if entry.attributes.kind == FileKind::Folder {
                        folders.push(id);
                    }
                }
                world.enter(dir.0, &name, id.0);
            }
        }
        for object in world.objects.values() {
            let Object {
                body: Body::File(_),
                places,
                ..
            } = &**object
            else {
                continue;
            };
            let Some((dir, name)) = places.first() else {
                continue;
            };
            let found = fs
                .lookup(NodeId(*dir), name)
                .expect("a lookup")
                .unwrap_or_else(|| panic!("{name} is not found"));
            assert_eq!(found.links as usize, places.len(), "names of {name}");
        }
        world
    }

    pub(super) fn root(&self) -> u64 {
        self.root
    }

    /// Returns a name in the form used for comparison.
    pub(super) fn key(&self, name: &str) -> String {
        if self.case_sensitive {
            name.to_owned()
        } else {
            name.to_lowercase()
        }
    }

    pub(super) fn get(&self, id: u64) -> &Object {
        self.objects
            .get(&id)
            .unwrap_or_else(|| panic!("object {id} is not in the model"))
    }

    pub(super) fn get_mut(&mut self, id: u64) -> &mut Object {
        Arc::make_mut(self.objects.get_mut(&id).expect("an object of the model"))
    }

    pub(super) fn folder(&self, id: u64) -> &BTreeMap<String, WorldEntry> {
        match &self.get(id).body {
            Body::Folder(entries) => entries,
            body => panic!("{id} is no folder: {body:?}"),
        }
    }

    pub(super) fn lookup(&self, dir: u64, name: &str) -> Option<&WorldEntry> {
        self.folder(dir).get(&self.key(name))
    }

    pub(super) fn add(&mut self, dir: u64, name: &str, id: u64, object: Object) {
        assert!(
            self.objects.insert(id, Arc::new(object)).is_none(),
            "number {id} is given twice"
        );
        self.enter(dir, name, id);
    }

    pub(super) fn enter(&mut self, dir: u64, name: &str, id: u64) {
        let key = self.key(name);
        self.get_mut(id).places.insert((dir, key.clone()));
        match &mut self.get_mut(dir).body {
            Body::Folder(entries) => assert!(
                entries.insert(key, (name.to_owned(), id)).is_none(),
                "{name} is there twice"
            ),
            _ => panic!("{dir} is no folder"),
        }
    }

    /// Removes a name. Its object stays in the model while it has other names, or if it is `open`.
    pub(super) fn leave(&mut self, dir: u64, name: &str, open: bool) {
        let key = self.key(name);
        let Body::Folder(entries) = &mut self.get_mut(dir).body else {
            panic!("{dir} is no folder")
        };
        let (_, id) = entries.remove(&key).expect("an entry of the model");
        self.get_mut(id).places.remove(&(dir, key));
        if !open {
            self.forget_if_nameless(id);
        }
    }

    pub(super) fn forget_if_nameless(&mut self, id: u64) {
        if id != self.root
            && self
                .objects
                .get(&id)
                .is_some_and(|object| object.places.is_empty())
        {
            self.objects.remove(&id);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the first object that `wanted` selects, from number `from` on, wrapping around at
    /// the end, with its number.
    pub(super) fn some(&self, from: u64, wanted: impl Fn(&Object) -> bool) -> Option<u64> {
        let mut all = self.objects.range(from..).chain(self.objects.range(..from));
        all.find(|(_, object)| wanted(object)).map(|(id, _)| *id)
    }

    /// Returns the highest number.
    pub(super) fn last(&self) -> u64 {
        self.objects.last_key_value().map_or(0, |(id, _)| *id)
    }

    /// Describes the first difference between `found` and this; of objects in `touched` only the
    /// lengths are compared.
    pub(super) fn difference(&self, found: &Self, touched: &BTreeSet<u64>) -> Option<String> {
        let named = |world: &Self| -> Vec<u64> {
            let all = world
                .objects
                .iter()
                .filter(|(id, object)| **id == world.root || !object.places.is_empty());
            all.map(|(id, _)| *id).collect()
        };
        let (ours, theirs) = (named(self), named(found));
        if ours != theirs {
            let missing: Vec<_> = ours
                .iter()
                .filter(|id| theirs.binary_search(id).is_err())
                .collect();
            let more: Vec<_> = theirs
                .iter()
                .filter(|id| ours.binary_search(id).is_err())
                .collect();
            return Some(format!(
                "objects {missing:?} are missing, {more:?} should not be there"
            ));
        }
        ours.into_iter().find_map(|id| {
            let (ours, theirs) = (self.get(id), found.get(id));
            let what = match (&ours.body, &theirs.body) {
                (Body::File(ours), Body::File(theirs)) => {
                    different_file(ours, theirs, touched.contains(&id))
                }
                (ours, theirs) if ours != theirs => {
                    Some(format!("{ours:?} expected, {theirs:?} found"))
                }
                _ => None,
            };
            let what = what.or_else(|| different_xattrs(&ours.xattrs, &theirs.xattrs));
            let what = what.or_else(|| {
                let (ours, theirs) = ((&ours.places, ours.owner), (&theirs.places, theirs.owner));
                (ours != theirs).then(|| format!("{ours:?} expected, {theirs:?} found"))
            });
            what.map(|what| format!("object {id}: {what}"))
        })
    }
}

fn different_file(
    ours: &[Arc<Vec<u8>>; 2],
    theirs: &[Arc<Vec<u8>>; 2],
    touched: bool,
) -> Option<String> {
    ["data", "resource"]
        .iter()
        .zip(ours.iter().zip(theirs))
        .find_map(|(fork, (ours, theirs))| {
            if ours.len() != theirs.len() {
                return Some(format!(
                    "{fork} fork of {} bytes expected, {} found",
                    ours.len(),
                    theirs.len()
                ));
            }
            if touched || ours == theirs {
                return None;
            }
            let differs = ours.iter().zip(&***theirs).position(|(a, b)| a != b);
            differs.map(|at| {
                format!(
                    "{fork} fork of {} bytes differs from byte {at} on",
                    ours.len()
                )
            })
        })
}

fn different_xattrs(
    ours: &BTreeMap<String, Arc<Vec<u8>>>,
    theirs: &BTreeMap<String, Arc<Vec<u8>>>,
) -> Option<String> {
    let names =
        |xattrs: &BTreeMap<String, Arc<Vec<u8>>>| xattrs.keys().cloned().collect::<Vec<_>>();
    if names(ours) != names(theirs) {
        return Some(format!(
            "attributes {:?} expected, {:?} found",
            names(ours),
            names(theirs)
        ));
    }
    ours.iter()
        .find(|(name, value)| theirs[*name] != **value)
        .map(|(name, _)| format!("attribute {name} differs"))
}

/// Returns true if an entry is one of the files of the volume's journal, which must not be changed.
pub(super) fn is_journal(dir: u64, name: &str, root: u64) -> bool {
    dir == root && name.starts_with(".journal")
}

/// Reads all bytes of a device.
pub(super) fn all_of(device: &dyn BlockDevice) -> Vec<u8> {
    let len = device.info().len as usize;
    device
        .read_vec(0, len)
        .unwrap_or_else(|error| panic!("{len} bytes cannot be read: {error}"))
}

fn read_object(fs: &dyn FileSystem, attributes: &Attributes) -> Object {
    let id = attributes.id;
    let must = |what: &str, error: crate::Error| -> ! { panic!("{what} of {id:?}: {error}") };
    let body = match attributes.kind {
        FileKind::Folder => Body::Folder(BTreeMap::new()),
        FileKind::File => {
            let sizes = [attributes.size, attributes.resource_size];
            let mut sizes = sizes.into_iter();
            Body::File([Fork::Data, Fork::Resource].map(|fork| {
                let device = fs
                    .open(id, fork)
                    .unwrap_or_else(|error| must("a fork", error));
                let bytes = all_of(&*device);
                assert_eq!(
                    Some(bytes.len() as u64),
                    sizes.next(),
                    "length of {fork:?} of {id:?}"
                );
                Arc::new(bytes)
            }))
        }
        FileKind::Symlink => Body::Symlink(
            fs.read_link(id)
                .unwrap_or_else(|error| must("the target", error)),
        ),
        kind => Body::Special(kind, attributes.device),
    };
    let mut xattrs = BTreeMap::new();
    let mut resource = false;
    for name in fs
        .xattrs(id)
        .unwrap_or_else(|error| must("attributes", error))
    {
        if name == RESOURCE_FORK {
            resource = true;
            continue;
        }
        match fs
            .xattr(id, &name)
            .unwrap_or_else(|error| must("an attribute", error))
        {
            Some(value) => xattrs.insert(name, Arc::new(all_of(&*value))),
            None => panic!("attribute {name} of {id:?} is listed and not there"),
        };
    }
    assert_eq!(
        resource,
        attributes.resource_size > 0,
        "the resource fork of {id:?} among its attributes"
    );
    let owner = (
        attributes.mode,
        attributes.uid,
        attributes.gid,
        attributes.flags,
    );
    Object {
        body,
        xattrs,
        owner,
        places: BTreeSet::new(),
    }
}
