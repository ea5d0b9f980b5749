//! Conversion of the catalog's records to objects and back (§7).

mod mend;

use std::collections::{HashMap, HashSet};

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::steps::Steps;
use crate::fs::hfsplus::layout::{
    BsdInfoRaw, CatalogKey, CatalogRecord, Cnid, FileRaw, FolderRaw, JOURNAL_TYPE, Thread, Variant,
    VolumeHeader, encoding_bit, mode_type, record_flags, record_type,
};
use crate::fs::hfsplus::unicode::{NameOrder, decode_name, redecomposed};

/// A folder or file with its name.
#[derive(Debug)]
pub(super) struct RepairedObject {
    pub(super) parent: u32,
    pub(super) name: Box<[U16]>,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Folder(FolderRaw),
    File(FileRaw),
}

impl Body {
    /// Parses a record whose type is that of the other kind, judging by the record's length and the
    /// object's mode.
    fn mistyped(data: &[u8]) -> Option<Self> {
        let (kind, _) = U16::ref_from_prefix(data).ok()?;
        if let Ok(file) = FileRaw::read_from_bytes(data) {
            let is_file = kind.get() == record_type::FOLDER
                && mode_type::OF_FILES.contains(&file.bsd.mode_type());
            return is_file.then_some(Self::File(FileRaw {
                record_type: record_type::FILE.into(),
                ..file
            }));
        }
        let folder = FolderRaw::read_from_bytes(data).ok()?;
        let is_folder =
            kind.get() == record_type::FILE && folder.bsd.mode_type() == mode_type::FOLDER;
        is_folder.then_some(Self::Folder(FolderRaw {
            record_type: record_type::FOLDER.into(),
            ..folder
        }))
    }
}

impl RepairedObject {
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

    /// Sets the flags in `mask` to `bits`; returns true if that changed anything.
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

/// The target of a thread.
#[derive(Debug)]
struct Lead {
    parent: u32,
    name: Box<[U16]>,
    folder: bool,
}

/// Returns a name as it is to be stored, with current decompositions.
fn name_of(name: &[U16], steps: &mut Steps) -> Box<[U16]> {
    match redecomposed(name) {
        Some(name) => {
            steps.add("decompose names", || format!("{:?}", decode_name(&name)));
            name.into()
        }
        None => name.into(),
    }
}

/// All objects of the volume.
#[derive(Debug)]
pub(super) struct AllObjects {
    pub(super) all: Vec<RepairedObject>,
    threads: HashMap<u32, Lead>,
    names: NameOrder,
    variant: Variant,
    next_id: u32,
    lost_and_found: Option<u32>,
    /// Date of the last modification of the volume.
    modified: U32,
}

impl AllObjects {
    /// Parses the records of the volume with this header.
    pub(super) fn read(
        records: Vec<Box<[u8]>>,
        names: NameOrder,
        header: &VolumeHeader,
        steps: &mut Steps,
    ) -> Self {
        let mut objects = Self {
            all: Vec::new(),
            threads: HashMap::new(),
            names,
            variant: header.variant,
            next_id: Cnid::FIRST_USER.0,
            lost_and_found: None,
            modified: header.raw.modify_date,
        };
        for record in records {
            let Some((key, data)) = CatalogKey::split(&record) else {
                continue;
            };
            let (parent, name) = (key.parent.0, name_of(key.name, steps));
            if let Some(body) = Body::mistyped(data) {
                let object = RepairedObject { parent, name, body };
                steps.add("correct the types of records", || object.shown());
                objects.all.push(object);
                continue;
            }
            match CatalogRecord::parse(data) {
                Some(CatalogRecord::Folder(folder)) => objects.all.push(RepairedObject {
                    parent,
                    name,
                    body: Body::Folder(*folder),
                }),
                Some(CatalogRecord::File(file)) => objects.all.push(RepairedObject {
                    parent,
                    name,
                    body: Body::File(*file),
                }),
                Some(CatalogRecord::Thread(thread)) if name.is_empty() => {
                    let lead = Lead {
                        parent: thread.parent.0,
                        name: name_of(thread.name, steps),
                        folder: thread.folder,
                    };
                    objects.threads.insert(parent, lead);
                }
                Some(CatalogRecord::Thread(_)) | None => {
                    steps.add("drop catalog records that are none", || {
                        format!("{:?} in folder {parent}", decode_name(&name))
                    });
                }
            }
        }
        let highest = objects
            .all
            .iter()
            .flat_map(|object| [object.id(), object.parent]);
        let highest = highest.chain(objects.threads.keys().copied()).max();
        objects.next_id = objects
            .next_id
            .max(highest.map_or(0, |id| id.saturating_add(1)));
        objects
    }

    fn new_id(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.saturating_add(1);
        id
    }

    /// Returns the number after the highest in use.
    pub(super) fn next_id(&self) -> u32 {
        let highest = self.all.iter().map(RepairedObject::id).max().unwrap_or(0);
        self.next_id.max(highest.saturating_add(1))
    }

    /// Corrects counts and flags that can be derived from other records. `owners` are the objects
    /// with attributes, with true if an access control list is among them; `folder_links` are the
    /// links to folders.
    pub(super) fn count(
        &mut self,
        owners: &HashMap<u32, bool>,
        folder_links: &HashSet<u32>,
        steps: &mut Steps,
    ) {
        let (mut children, mut folders): (HashMap<u32, u32>, HashMap<u32, u32>) =
            Default::default();
        for object in &self.all {
            *children.entry(object.parent).or_default() += 1;
            if object.is_folder() || folder_links.contains(&object.id()) {
                *folders.entry(object.parent).or_default() += 1;
            }
        }
        let hfsx = self.variant == Variant::Hfsx;
        for object in &mut self.all {
            let id = object.id();
            let mut mask = record_flags::HAS_ATTRIBUTES
                | record_flags::HAS_SECURITY
                | record_flags::THREAD_EXISTS;
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
                    (mask, bits) = (
                        mask | record_flags::HAS_FOLDER_COUNT,
                        bits | record_flags::HAS_FOLDER_COUNT,
                    );
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

    /// Returns a bit for each text encoding in use, as in the volume header.
    pub(super) fn encodings(&self) -> u64 {
        let encoding = |object: &RepairedObject| match &object.body {
            Body::Folder(folder) => folder.text_encoding.get(),
            Body::File(file) => file.text_encoding.get(),
        };
        self.all
            .iter()
            .fold(0, |bits, object| bits | encoding_bit(encoding(object)))
    }

    /// Returns the records of the catalog in order: each object and its thread.
    pub(super) fn records(&self, order: crate::fs::hfsplus::btree::KeyOrder) -> Vec<Box<[u8]>> {
        let mut records: Vec<Box<[u8]>> = Vec::with_capacity(2 * self.all.len());
        for object in &self.all {
            let mut record = Vec::new();
            CatalogKey {
                parent: Cnid(object.parent),
                name: &object.name,
            }
            .put(&mut record);
            match &object.body {
                Body::Folder(folder) => record.extend_from_slice(folder.as_bytes()),
                Body::File(file) => record.extend_from_slice(file.as_bytes()),
            }
            records.push(record.into());
            let mut thread = Vec::new();
            CatalogKey {
                parent: Cnid(object.id()),
                name: &[],
            }
            .put(&mut thread);
            Thread {
                parent: Cnid(object.parent),
                name: &object.name,
                folder: object.is_folder(),
            }
            .put(&mut thread);
            records.push(thread.into());
        }
        records.sort_by(|a, b| order.compare(a, b).unwrap_or(std::cmp::Ordering::Equal));
        records
    }

    /// Returns true if both files of the journal exist.
    pub(super) fn has_journal(&self) -> bool {
        self.all.iter().filter(|object| is_journal(object)).count() >= 2
    }

    /// Deletes the journal's files.
    pub(super) fn drop_journal(&mut self, steps: &mut Steps) {
        self.all.retain(|object| !is_journal(object));
        steps.add(
            "do without the journal, which cannot be read or has lost its files",
            String::new,
        );
    }

    /// Returns the name of an object in its thread, if the thread refers to the object's folder.
    pub(super) fn name_in_thread(&self, object: &RepairedObject) -> Option<&[U16]> {
        let lead = self
            .threads
            .get(&object.id())
            .filter(|lead| lead.parent == object.parent)?;
        Some(&lead.name)
    }

    /// Adds a step for each thread that has to be written again, and for each one without an
    /// object.
    pub(super) fn tell_threads(&self, steps: &mut Steps) {
        for object in &self.all {
            let needed = object.is_folder()
                || object
                    .file()
                    .is_some_and(|file| file.flags.get() & record_flags::THREAD_EXISTS != 0);
            let right = self
                .threads
                .get(&object.id())
                .is_some_and(|lead| lead.folder == object.is_folder());
            if needed && !(right && self.is_threaded(object)) {
                steps.add("write threads anew", || object.shown());
            }
        }
        let ids: HashSet<u32> = self.all.iter().map(RepairedObject::id).collect();
        for id in self.threads.keys().filter(|id| !ids.contains(id)) {
            steps.add("drop threads of what does not exist", || id.to_string());
        }
    }
}

fn is_journal(object: &RepairedObject) -> bool {
    object.parent == Cnid::ROOT.0
        && object
            .file()
            .is_some_and(|file| file.kind() == JOURNAL_TYPE)
}
