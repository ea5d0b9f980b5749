//! The catalog's records as objects, and the mending of what they say of each other (§7).

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use super::steps::Steps;
use crate::fs::hfsplus::layout::{
    BsdInfoRaw, CatalogKey, CatalogRecord, Cnid, DatesRaw, FileRaw, FolderRaw, JOURNAL_TYPE, MAX_NAME_UNITS, Thread, Variant,
    record_flags, record_type,
};
use crate::fs::hfsplus::unicode::{NameOrder, decode_name};

const TYPE_BITS: u16 = 0o170_000;
const FOLDER_TYPE: u16 = 0o040_000;
const FILE_TYPE: u16 = 0o100_000;
const FILE_TYPES: [u16; 6] = [FILE_TYPE, 0o120_000, 0o020_000, 0o060_000, 0o010_000, 0o140_000];
/// Where what has lost its folder is put.
const LOST_AND_FOUND: &str = "lost+found";

/// A folder or file under its name.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) parent: u32,
    pub(super) name: Box<[U16]>,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Folder(FolderRaw),
    File(FileRaw),
}

impl Object {
    pub(super) fn id(&self) -> u32 {
        match &self.body {
            Body::Folder(folder) => folder.folder_id.get(),
            Body::File(file) => file.file_id.get(),
        }
    }

    fn set_id(&mut self, id: u32) {
        match &mut self.body {
            Body::Folder(folder) => folder.folder_id = id.into(),
            Body::File(file) => file.file_id = id.into(),
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        matches!(self.body, Body::Folder(_))
    }

    pub(super) fn file(&self) -> Option<&FileRaw> {
        match &self.body {
            Body::File(file) => Some(file),
            Body::Folder(_) => None,
        }
    }

    pub(super) fn file_mut(&mut self) -> Option<&mut FileRaw> {
        match &mut self.body {
            Body::File(file) => Some(file),
            Body::Folder(_) => None,
        }
    }

    fn bsd(&mut self) -> &mut BsdInfoRaw {
        match &mut self.body {
            Body::Folder(folder) => &mut folder.bsd,
            Body::File(file) => &mut file.bsd,
        }
    }

    /// Sets exactly these of the bits in `mask`; returns whether that changed anything.
    pub(super) fn set_flags(&mut self, mask: u16, bits: u16) -> bool {
        let flags = match &mut self.body {
            Body::Folder(folder) => &mut folder.flags,
            Body::File(file) => &mut file.flags,
        };
        let before = flags.get();
        *flags = (before & !mask | bits).into();
        before != flags.get()
    }

    pub(super) fn shown(&self) -> String {
        format!("{:?} ({})", decode_name(&self.name), self.id())
    }
}

/// Where a thread led.
#[derive(Debug)]
struct Lead {
    parent: u32,
    name: Box<[U16]>,
    folder: bool,
}

/// All objects of the volume.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) all: Vec<Object>,
    threads: HashMap<u32, Lead>,
    names: NameOrder,
    variant: Variant,
    next_id: u32,
    lost_and_found: Option<u32>,
}

pub(super) fn units(name: &str) -> Box<[U16]> {
    name.encode_utf16().map(U16::new).collect()
}

impl Objects {
    /// Takes the records apart.
    pub(super) fn read(records: Vec<Box<[u8]>>, names: NameOrder, variant: Variant, steps: &mut Steps) -> Self {
        let mut objects =
            Self { all: Vec::new(), threads: HashMap::new(), names, variant, next_id: Cnid::FIRST_USER.0, lost_and_found: None };
        for record in records {
            let Some((key, data)) = CatalogKey::split(&record) else { continue };
            let (parent, name) = (key.parent.0, Box::from(key.name));
            match CatalogRecord::parse(data) {
                Some(CatalogRecord::Folder(folder)) => objects.all.push(Object { parent, name, body: Body::Folder(*folder) }),
                Some(CatalogRecord::File(file)) => objects.all.push(Object { parent, name, body: Body::File(*file) }),
                Some(CatalogRecord::Thread(thread)) if name.is_empty() => {
                    let lead = Lead { parent: thread.parent.0, name: thread.name.into(), folder: thread.folder };
                    objects.threads.insert(parent, lead);
                }
                Some(CatalogRecord::Thread(_)) | None => {
                    steps.add("drop catalog records that are none", || format!("{:?} in folder {parent}", decode_name(&name)));
                }
            }
        }
        let highest = objects.all.iter().map(Object::id).chain(objects.threads.keys().copied()).max();
        objects.next_id = objects.next_id.max(highest.map_or(0, |id| id.saturating_add(1)));
        objects
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        id
    }

    /// The number after the highest in use.
    pub(super) fn next_id(&self) -> u32 {
        self.next_id
    }

    /// Mends numbers, names, types and the way of every object up to the root. Forks and links are others'.
    pub(super) fn mend(&mut self, steps: &mut Steps) {
        self.mend_root(steps);
        self.restore_ids(steps);
        self.mend_ids(steps);
        self.mend_names(steps);
        self.mend_types(steps);
        self.mend_parents(steps);
        self.mend_loops(steps);
    }

    fn is_root(object: &Object) -> bool {
        object.is_folder() && object.id() == Cnid::ROOT.0 && object.parent == Cnid::ROOT_PARENT.0
    }

    fn mend_root(&mut self, steps: &mut Steps) {
        if self.all.iter().any(Self::is_root) {
            return;
        }
        let misplaced = self.all.iter().position(|object| object.is_folder() && object.id() == Cnid::ROOT.0);
        if let Some(at) = misplaced {
            self.all[at].parent = Cnid::ROOT_PARENT.0;
        } else {
            let name = self.threads.get(&Cnid::ROOT.0).map(|lead| lead.name.clone()).filter(|name| !name.is_empty());
            let root = new_folder(Cnid::ROOT.0, Cnid::ROOT_PARENT.0, name.unwrap_or_else(|| units("Untitled")));
            self.all.push(root);
        }
        steps.add("restore the root folder", String::new);
    }

    /// Whether the thread of an object's number leads to where it lies.
    fn is_threaded(&self, object: &Object) -> bool {
        self.threads.get(&object.id()).is_some_and(|lead| lead.parent == object.parent && lead.name == object.name)
    }

    /// An object that no thread leads to under its number, but one does under another that nobody has, gets that one back:
    /// what lies in it and its attributes go by it.
    fn restore_ids(&mut self, steps: &mut Steps) {
        let owned: HashSet<u32> = self.all.iter().map(Object::id).collect();
        let stray = self.threads.iter().filter(|(id, _)| !owned.contains(id) && **id >= Cnid::FIRST_USER.0);
        let stray: HashMap<(u32, &[U16], bool), u32> =
            stray.map(|(&id, lead)| ((lead.parent, &*lead.name, lead.folder), id)).collect();
        let mut restored = Vec::new();
        for (at, object) in self.all.iter().enumerate().filter(|(_, object)| !self.is_threaded(object)) {
            if let Some(&id) = stray.get(&(object.parent, &*object.name, object.is_folder())) {
                steps.add("restore numbers that threads remember", || object.shown());
                restored.push((at, id));
            }
        }
        for (at, id) in restored {
            self.all[at].set_id(id);
        }
    }

    /// No number twice, none that is reserved. Of two objects the one keeps its number that its thread leads to.
    fn mend_ids(&mut self, steps: &mut Steps) {
        let mut owners: HashMap<u32, usize> = HashMap::new();
        let mut homeless = Vec::new();
        for (at, object) in self.all.iter().enumerate() {
            let id = object.id();
            if id < Cnid::FIRST_USER.0 && !Self::is_root(object) {
                homeless.push(at);
                continue;
            }
            match owners.get(&id) {
                Some(&first) if self.is_threaded(&self.all[first]) || !self.is_threaded(object) => homeless.push(at),
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
            steps.add("give a number of their own to objects that have none", || self.all[at].shown());
            self.all[at].set_id(id);
        }
    }

    fn mend_names(&mut self, steps: &mut Steps) {
        const COLON: u16 = 0x3A;
        for object in &mut self.all {
            let bad = object.name.is_empty()
                || object.name.len() > MAX_NAME_UNITS
                || object.name.iter().any(|unit| unit.get() == COLON);
            if bad {
                steps.add("rename what has no possible name", || object.shown());
                object.name = units(&format!("object {}", object.id()));
            }
        }
    }

    fn mend_types(&mut self, steps: &mut Steps) {
        for object in &mut self.all {
            let folder = object.is_folder();
            let bsd = object.bsd();
            let mode = bsd.file_mode.get();
            let kind = mode & TYPE_BITS;
            let right = mode == 0 || if folder { kind == FOLDER_TYPE } else { FILE_TYPES.contains(&kind) };
            if !right {
                bsd.file_mode = (mode & !TYPE_BITS | if folder { FOLDER_TYPE } else { FILE_TYPE }).into();
                steps.add("correct the type in modes", || object.shown());
            }
        }
    }

    /// The folder for what is lost; made when first asked for.
    pub(super) fn lost_and_found(&mut self, steps: &mut Steps) -> u32 {
        if let Some(id) = self.lost_and_found {
            return id;
        }
        let name = units(LOST_AND_FOUND);
        let there = self.all.iter().find(|object| {
            object.parent == Cnid::ROOT.0 && object.is_folder() && self.names.compare(&object.name, &name).is_eq()
        });
        let id = match there.map(Object::id) {
            Some(id) => id,
            None => {
                let id = self.new_id();
                let taken = self
                    .all
                    .iter()
                    .any(|object| object.parent == Cnid::ROOT.0 && self.names.compare(&object.name, &name).is_eq());
                let name = if taken { units(&format!("{LOST_AND_FOUND} {id}")) } else { name };
                self.all.push(new_folder(id, Cnid::ROOT.0, name));
                steps.add("make a folder for what is lost", || LOST_AND_FOUND.to_owned());
                id
            }
        };
        self.lost_and_found = Some(id);
        id
    }

    /// What lies in a folder that does not exist gets it back, where its thread says or among what is lost.
    fn mend_parents(&mut self, steps: &mut Steps) {
        let mut folders: HashSet<u32> = self.all.iter().filter(|object| object.is_folder()).map(Object::id).collect();
        let files: HashSet<u32> = self.all.iter().filter(|object| !object.is_folder()).map(Object::id).collect();
        let mut missing: Vec<u32> = self.all.iter().filter(|object| !Self::is_root(object)).map(|object| object.parent).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|id| !folders.contains(id));
        // Folders above come before those in them where that can be told by their numbers, as it mostly can.
        for id in missing {
            if id < Cnid::FIRST_USER.0 || files.contains(&id) {
                let home = self.lost_and_found(steps);
                for object in self.all.iter_mut().filter(|object| object.parent == id && !Self::is_root(object)) {
                    steps.add("move to lost+found what lies in no folder", || object.shown());
                    object.parent = home;
                    object.name = units(&format!("object {}", object.id()));
                }
                continue;
            }
            let lead =
                self.threads.get(&id).filter(|lead| lead.folder && folders.contains(&lead.parent) && !lead.name.is_empty());
            let free = |lead: &&Lead| {
                !self
                    .all
                    .iter()
                    .any(|object| object.parent == lead.parent && self.names.compare(&object.name, &lead.name).is_eq())
            };
            let place = lead.filter(free).map(|lead| (lead.parent, lead.name.clone()));
            let (parent, name) = match place {
                Some(place) => place,
                None => (self.lost_and_found(steps), units(&format!("folder {id}"))),
            };
            let folder = new_folder(id, parent, name);
            steps.add("restore folders", || folder.shown());
            self.all.push(folder);
            folders.insert(id);
        }
    }

    /// A folder that lies in itself, by however many others, is moved out.
    fn mend_loops(&mut self, steps: &mut Steps) {
        let above: BTreeMap<u32, u32> =
            self.all.iter().filter(|object| object.is_folder()).map(|object| (object.id(), object.parent)).collect();
        let mut met: HashMap<u32, u32> = HashMap::from([(Cnid::ROOT.0, 0), (Cnid::ROOT_PARENT.0, 0)]);
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
            for object in self.all.iter_mut().filter(|object| object.is_folder() && object.id() == id) {
                steps.add("move to lost+found folders that lie in themselves", || object.shown());
                object.parent = home;
                object.name = units(&format!("folder {id}"));
            }
        }
    }

    /// Counts and flags that follow from the rest. `owners` tells of attributes and, `true`, of access rights among them;
    /// `folder_links` are the names of folders that are links.
    pub(super) fn count(&mut self, owners: &HashMap<u32, bool>, folder_links: &HashSet<u32>, steps: &mut Steps) {
        let (mut children, mut folders): (HashMap<u32, u32>, HashMap<u32, u32>) = Default::default();
        for object in &self.all {
            *children.entry(object.parent).or_default() += 1;
            if object.is_folder() || folder_links.contains(&object.id()) {
                *folders.entry(object.parent).or_default() += 1;
            }
        }
        let hfsx = self.variant == Variant::Hfsx;
        for object in &mut self.all {
            let id = object.id();
            let mut mask = record_flags::HAS_ATTRIBUTES | record_flags::HAS_SECURITY | record_flags::THREAD_EXISTS;
            let mut bits = match owners.get(&id) {
                None => 0,
                Some(false) => record_flags::HAS_ATTRIBUTES,
                Some(true) => record_flags::HAS_ATTRIBUTES | record_flags::HAS_SECURITY,
            };
            let mut wrong = false;
            if let Body::Folder(folder) = &mut object.body {
                mask |= 0x0001;
                let count = children.get(&id).copied().unwrap_or(0);
                wrong |= folder.valence.get() != count;
                folder.valence = count.into();
                if hfsx {
                    (mask, bits) = (mask | record_flags::HAS_FOLDER_COUNT, bits | record_flags::HAS_FOLDER_COUNT);
                    let count = folders.get(&id).copied().unwrap_or(0);
                    wrong |= folder.folder_count.get() != count;
                    folder.folder_count = count.into();
                }
            } else {
                bits |= record_flags::THREAD_EXISTS;
            }
            wrong |= object.set_flags(mask, bits);
            if wrong {
                steps.add("correct counts and flags", || object.shown());
            }
        }
    }

    /// The records of the catalog, in order: each object and its thread.
    pub(super) fn records(&self, order: crate::fs::hfsplus::btree::KeyOrder) -> Vec<Box<[u8]>> {
        let mut records: Vec<Box<[u8]>> = Vec::with_capacity(2 * self.all.len());
        for object in &self.all {
            let mut record = Vec::new();
            CatalogKey { parent: Cnid(object.parent), name: &object.name }.put(&mut record);
            match &object.body {
                Body::Folder(folder) => record.extend_from_slice(folder.as_bytes()),
                Body::File(file) => record.extend_from_slice(file.as_bytes()),
            }
            records.push(record.into());
            let mut thread = Vec::new();
            CatalogKey { parent: Cnid(object.id()), name: &[] }.put(&mut thread);
            Thread { parent: Cnid(object.parent), name: &object.name, folder: object.is_folder() }.put(&mut thread);
            records.push(thread.into());
        }
        records.sort_by(|a, b| order.compare(a, b).unwrap_or(std::cmp::Ordering::Equal));
        records
    }

    /// No two objects of a folder have one name; the later ones get another.
    pub(super) fn part_names(&mut self, steps: &mut Steps) {
        let names = self.names;
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.all[a], &self.all[b]);
            a.parent.cmp(&b.parent).then_with(|| names.compare(&a.name, &b.name))
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
            steps.add("rename the second of two objects with one name", || object.shown());
            object.name = units(&format!("object {}", object.id()));
        }
    }

    /// Whether both files of the journal are there.
    pub(super) fn has_journal(&self) -> bool {
        self.all.iter().filter(|object| is_journal(object)).count() >= 2
    }

    /// Deletes the journal's files.
    pub(super) fn drop_journal(&mut self, steps: &mut Steps) {
        self.all.retain(|object| !is_journal(object));
        steps.add("do without the journal, which cannot be read or has lost its files", String::new);
    }

    /// How many threads differ from those that will be written.
    pub(super) fn tell_threads(&self, steps: &mut Steps) {
        for object in &self.all {
            let needed =
                object.is_folder() || object.file().is_some_and(|file| file.flags.get() & record_flags::THREAD_EXISTS != 0);
            let right = self.threads.get(&object.id()).is_some_and(|lead| lead.folder == object.is_folder());
            if needed && !(right && self.is_threaded(object)) {
                steps.add("write threads anew", || object.shown());
            }
        }
        let ids: HashSet<u32> = self.all.iter().map(Object::id).collect();
        for id in self.threads.keys().filter(|id| !ids.contains(id)) {
            steps.add("drop threads of what does not exist", || id.to_string());
        }
    }
}

fn is_journal(object: &Object) -> bool {
    let kind = object.file().map(|file| (file.user_info.file_type, file.user_info.creator));
    object.parent == Cnid::ROOT.0 && kind == Some(JOURNAL_TYPE)
}

fn new_folder(id: u32, parent: u32, name: Box<[U16]>) -> Object {
    let bsd = BsdInfoRaw { file_mode: (FOLDER_TYPE | 0o755).into(), ..Default::default() };
    let folder = FolderRaw {
        record_type: record_type::FOLDER.into(),
        folder_id: id.into(),
        dates: DatesRaw::default(),
        bsd,
        ..Default::default()
    };
    Object { parent, name, body: Body::Folder(folder) }
}
