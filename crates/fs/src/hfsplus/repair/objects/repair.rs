//! Repair of the references between objects: numbers, names, types, and the path to the root.

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::big_endian::U16;

use super::{AllObjects, Body, RepairedObject, ThreadTarget};
use crate::hfsplus::layout::{
    BsdInfoRaw, Cnid, DatesRaw, FolderRaw, MAX_NAME_UNITS, finder_flags, mode_type, record_type,
};
use crate::hfsplus::repair::steps::Steps;
use crate::hfsplus::unicode::units;

/// Folder for objects that have lost their folder.
const LOST_AND_FOUND: &str = "lost+found";

impl AllObjects {
    /// Repairs numbers, names, types and the path of every object to the root. Forks and links are
    /// repaired elsewhere. `is_referenced` returns true for numbers that other trees refer to.
    pub(in crate::hfsplus::repair) fn repair(
        &mut self,
        is_referenced: &dyn Fn(u32) -> bool,
        steps: &mut Steps,
    ) {
        self.repair_root(steps);
        self.restore_ids(is_referenced, steps);
        self.repair_ids(steps);
        self.repair_names(steps);
        self.repair_types(steps);
        self.follow_threads(steps);
        self.repair_parents(steps);
        self.repair_loops(steps);
    }

    fn is_root(object: &RepairedObject) -> bool {
        object.is_folder() && object.id() == Cnid::ROOT.0 && object.parent == Cnid::ROOT_PARENT.0
    }

    fn repair_root(&mut self, steps: &mut Steps) {
        if let Some(root) = self.all.iter_mut().find(|object| Self::is_root(object)) {
            let was_locked = root.edit_folder(|folder| {
                let flags = folder.user_info.finder_flags.get();
                folder.user_info.finder_flags = (flags & !finder_flags::NAME_LOCKED).into();
                flags & finder_flags::NAME_LOCKED != 0
            });
            if was_locked == Some(true) {
                steps.add("unlock the name of the root folder");
            }
            return;
        }
        let misplaced = self
            .all
            .iter()
            .position(|object| object.is_folder() && object.id() == Cnid::ROOT.0);
        if let Some(at) = misplaced {
            self.all[at].parent = Cnid::ROOT_PARENT.0;
        } else {
            let name = self
                .threads
                .get(&Cnid::ROOT.0)
                .map(|lead| lead.name.clone())
                .filter(|name| !name.is_empty());
            self.add_folder(
                Cnid::ROOT.0,
                Cnid::ROOT_PARENT.0,
                name.unwrap_or_else(|| boxed("Untitled")),
            );
        }
        steps.add("restore the root folder");
    }

    /// Returns true if the thread of an object refers to the object's folder and name.
    pub(super) fn is_threaded(&self, object: &RepairedObject) -> bool {
        self.threads
            .get(&object.id())
            .is_some_and(|lead| lead.parent == object.parent && lead.name == object.name)
    }

    /// Restores the number of an object without a matching thread, if a thread with an unused
    /// number refers to it: its attributes and, for a folder, its entries refer to that number.
    fn restore_ids(&mut self, is_referenced: &dyn Fn(u32) -> bool, steps: &mut Steps) {
        let owned: HashSet<u32> = self.all.iter().map(RepairedObject::id).collect();
        let stray = self
            .threads
            .iter()
            .filter(|(id, _)| !owned.contains(id) && **id >= Cnid::FIRST_USER.0);
        let stray: HashMap<(u32, &[U16], bool), u32> = stray
            .map(|(&id, lead)| ((lead.parent, &*lead.name, lead.folder), id))
            .collect();
        let parents: HashSet<u32> = self.all.iter().map(|object| object.parent).collect();
        let mut restored = Vec::new();
        for (at, object) in self
            .all
            .iter()
            .enumerate()
            .filter(|(_, object)| !Self::is_root(object) && !self.is_threaded(object))
        {
            if let Some(&id) = stray.get(&(object.parent, &*object.name, object.is_folder())) {
                // The number in the thread may be the damaged one: the entries of a folder refer to
                // its number.
                let is_entered =
                    object.is_folder() && parents.contains(&object.id()) && !parents.contains(&id);
                // Attributes and extents refer to the number as well.
                if is_entered || (is_referenced(object.id()) && !is_referenced(id)) {
                    continue;
                }
                steps.on("restore object numbers from threads", object.serial);
                restored.push((at, id));
            }
        }
        for (at, id) in restored {
            self.all[at].set_id(id);
        }
    }

    /// Gives a new number to objects with a duplicate or reserved one. Of two objects with the same
    /// number, the one that matches the thread keeps it.
    fn repair_ids(&mut self, steps: &mut Steps) {
        let mut owners: HashMap<u32, usize> = HashMap::new();
        let mut homeless = Vec::new();
        for (at, object) in self.all.iter().enumerate() {
            let id = object.id();
            if id < Cnid::FIRST_USER.0 && !Self::is_root(object) {
                homeless.push(at);
                continue;
            }
            match owners.get(&id) {
                Some(&first) if self.is_threaded(&self.all[first]) || !self.is_threaded(object) => {
                    homeless.push(at)
                }
                Some(&first) => {
                    homeless.push(first);
                    owners.insert(id, at);
                }
                None => {
                    owners.insert(id, at);
                }
            }
        }
        for at in homeless {
            let id = self.new_id();
            steps.on(
                "assign object numbers to objects without one",
                self.all[at].serial,
            );
            self.all[at].set_id(id);
        }
    }

    fn repair_names(&mut self, steps: &mut Steps) {
        const COLON: u16 = 0x3A;
        for object in &mut self.all {
            let bad = object.name.is_empty()
                || object.name.len() > MAX_NAME_UNITS
                || object.name.iter().any(|unit| unit.get() == COLON);
            if bad {
                steps.on("rename objects with invalid names", object.serial);
                object.name = boxed(&format!("object {}", object.id()));
            }
        }
    }

    fn repair_types(&mut self, steps: &mut Steps) {
        for object in &mut self.all {
            let folder = object.is_folder();
            let is_wrong = object.edit_bsd(|bsd| {
                let (mode, kind) = (bsd.file_mode.get(), bsd.mode_type());
                let right = mode == 0
                    || if folder {
                        kind == mode_type::FOLDER
                    } else {
                        mode_type::OF_FILES.contains(&kind)
                    };
                if !right {
                    bsd.file_mode = (mode & !mode_type::MASK
                        | if folder {
                            mode_type::FOLDER
                        } else {
                            mode_type::FILE
                        })
                    .into();
                }
                !right
            });
            if is_wrong {
                steps.on("correct the type in modes", object.serial);
            }
        }
    }

    /// Returns the folder for lost objects, which is created on first use.
    pub(in crate::hfsplus::repair) fn lost_and_found(&mut self, steps: &mut Steps) -> u32 {
        if let Some(id) = self.lost_and_found {
            return id;
        }
        let name = boxed(LOST_AND_FOUND);
        let there = self.all.iter().find(|object| {
            object.parent == Cnid::ROOT.0
                && object.is_folder()
                && self.names.compare(&object.name, &name).is_eq()
        });
        let id = match there.map(RepairedObject::id) {
            Some(id) => id,
            None => {
                let id = self.new_id();
                let taken = self.all.iter().any(|object| {
                    object.parent == Cnid::ROOT.0 && self.names.compare(&object.name, &name).is_eq()
                });
                let name = if taken {
                    boxed(&format!("{LOST_AND_FOUND} {id}"))
                } else {
                    name
                };
                let serial = self.add_folder(id, Cnid::ROOT.0, name);
                steps.on("create a folder for lost objects", serial);
                id
            }
        };
        self.lost_and_found = Some(id);
        id
    }

    /// Moves an object whose folder does not exist to the folder and name in its thread, if that
    /// folder exists and the name is free.
    fn follow_threads(&mut self, steps: &mut Steps) {
        let folders: HashSet<u32> = self
            .all
            .iter()
            .filter(|object| object.is_folder())
            .map(RepairedObject::id)
            .collect();
        let lost =
            |object: &RepairedObject| !folders.contains(&object.parent) && !Self::is_root(object);
        let mut siblings: HashMap<u32, usize> = HashMap::new();
        for object in &self.all {
            *siblings.entry(object.parent).or_default() += 1;
        }
        let mut found = Vec::new();
        for (at, object) in self
            .all
            .iter()
            .enumerate()
            .filter(|(_, object)| lost(object))
        {
            // If others have the same parent, that folder was lost; otherwise the parent number is
            // damaged.
            let alone = siblings.get(&object.parent) == Some(&1);
            let lead = self.threads.get(&object.id()).filter(|lead| {
                alone
                    && lead.folder == object.is_folder()
                    && folders.contains(&lead.parent)
                    && !lead.name.is_empty()
            });
            if let Some(lead) = lead {
                found.push((at, lead.parent, lead.name.clone()));
            }
        }
        for (at, parent, name) in found {
            let is_taken = |other: &RepairedObject| {
                other.parent == parent && self.names.compare(&other.name, &name).is_eq()
            };
            if !self.all.iter().any(is_taken) {
                steps.on(
                    "move objects to the folders in their threads",
                    self.all[at].serial,
                );
                self.all[at].parent = parent;
                self.all[at].name = name;
            }
        }
    }

    /// Restores folders that do not exist but have entries, under the name in their thread or in
    /// lost+found.
    fn repair_parents(&mut self, steps: &mut Steps) {
        let mut folders: HashSet<u32> = self
            .all
            .iter()
            .filter(|object| object.is_folder())
            .map(RepairedObject::id)
            .collect();
        let files: HashSet<u32> = self
            .all
            .iter()
            .filter(|object| !object.is_folder())
            .map(RepairedObject::id)
            .collect();
        let mut missing: Vec<u32> = self
            .all
            .iter()
            .filter(|object| !Self::is_root(object))
            .map(|object| object.parent)
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|id| !folders.contains(id));
        // Folders usually have higher numbers than their parents, so parents are restored first.
        for id in missing {
            if id < Cnid::FIRST_USER.0 || files.contains(&id) {
                let home = self.lost_and_found(steps);
                for object in self
                    .all
                    .iter_mut()
                    .filter(|object| object.parent == id && !Self::is_root(object))
                {
                    steps.on("move objects without a folder to lost+found", object.serial);
                    object.parent = home;
                    object.name = boxed(&format!("object {}", object.id()));
                }
                continue;
            }
            let lead = self.threads.get(&id).filter(|lead| {
                lead.folder && folders.contains(&lead.parent) && !lead.name.is_empty()
            });
            let free = |lead: &&ThreadTarget| {
                !self.all.iter().any(|object| {
                    object.parent == lead.parent
                        && self.names.compare(&object.name, &lead.name).is_eq()
                })
            };
            let place = lead
                .filter(free)
                .map(|lead| (lead.parent, lead.name.clone()));
            let (parent, name) = match place {
                Some(place) => place,
                None => (self.lost_and_found(steps), boxed(&format!("folder {id}"))),
            };
            let serial = self.add_folder(id, parent, name);
            steps.on("restore folders", serial);
            folders.insert(id);
        }
    }

    /// Moves folders that are their own descendants to lost+found.
    fn repair_loops(&mut self, steps: &mut Steps) {
        let above: BTreeMap<u32, u32> = self
            .all
            .iter()
            .filter(|object| object.is_folder())
            .map(|object| (object.id(), object.parent))
            .collect();
        let mut met: HashMap<u32, u32> =
            HashMap::from([(Cnid::ROOT.0, 0), (Cnid::ROOT_PARENT.0, 0)]);
        let mut turned = Vec::new();
        for &folder in above.keys() {
            let mut at = folder;
            while !met.contains_key(&at) {
                met.insert(at, folder);
                let Some(&parent) = above.get(&at) else { break };
                if met.get(&parent) == Some(&folder) {
                    turned.push(at);
                }
                at = parent;
            }
        }
        turned.sort_unstable();
        for id in turned {
            let home = self.lost_and_found(steps);
            for object in self
                .all
                .iter_mut()
                .filter(|object| object.is_folder() && object.id() == id)
            {
                steps.on(
                    "move folders that contain themselves to lost+found",
                    object.serial,
                );
                object.parent = home;
                object.name = boxed(&format!("folder {id}"));
            }
        }
    }

    /// Adds a folder that was lost, and returns its serial number. Its creation date is not known.
    fn add_folder(&mut self, id: u32, parent: u32, name: Box<[U16]>) -> u32 {
        let bsd = BsdInfoRaw {
            file_mode: (mode_type::FOLDER | 0o755).into(),
            ..Default::default()
        };
        let dates = DatesRaw {
            content_mod: self.modified,
            attribute_mod: self.modified,
            ..Default::default()
        };
        let record_type = record_type::FOLDER.into();
        let folder = FolderRaw {
            record_type,
            folder_id: id.into(),
            dates,
            bsd,
            ..Default::default()
        };
        self.add(parent, name, Body::Folder(folder), None)
    }

    /// Renames objects so that no two in a folder have the same name; the first keeps it.
    pub(in crate::hfsplus::repair) fn part_names(&mut self, steps: &mut Steps) {
        let names = self.names;
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.all[a], &self.all[b]);
            a.parent
                .cmp(&b.parent)
                .then_with(|| names.compare(&a.name, &b.name))
        });
        let twice: Vec<usize> = order
            .windows(2)
            .filter(|pair| {
                let (a, b) = (&self.all[pair[0]], &self.all[pair[1]]);
                a.parent == b.parent && names.compare(&a.name, &b.name).is_eq()
            })
            .map(|pair| pair[1])
            .collect();
        for at in twice {
            let object = &mut self.all[at];
            steps.on(
                "rename the second of two objects with one name",
                object.serial,
            );
            object.name = boxed(&format!("object {}", object.id()));
        }
    }
}

fn boxed(name: &str) -> Box<[U16]> {
    units(name).into()
}
