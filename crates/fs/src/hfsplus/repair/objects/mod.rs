//! Conversion of the catalog's records to objects and back (§7).

mod repair;

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::attributes::Owner;
use super::packed::PackedRecord;
use super::salvage::SalvagedRecord;
use super::steps::{Steps, Subject};
use crate::UF_COMPRESSED;
use crate::hfsplus::build::RecordSink;
use crate::hfsplus::layout::{
    BsdInfoRaw, CatalogKey, CatalogRecord, Cnid, Extent, ExtentsRaw, FileRaw, FolderRaw, ForkRaw,
    JOURNAL_TYPE, Thread, Variant, VolumeHeader, encoding_bit, extents_of, mode_type, record_flags,
    record_type,
};
use crate::hfsplus::unicode::{NameOrder, decode_name, redecomposed};
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

/// A folder or file with its name.
#[derive(Debug)]
pub(super) struct RepairedObject {
    /// Number by which steps refer to the object.
    pub(super) serial: u32,
    pub(super) parent: u32,
    pub(super) name: Box<[U16]>,
    id: u32,
    is_folder: bool,
    /// The record without its key.
    body: PackedRecord,
    /// The values of its record when it was read. `None` for an object that the repair has made.
    pub(super) before: Option<RecordedFacts>,
}

/// The facts in an object's record that a repair could change.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedFacts {
    pub(super) id: u32,
    pub(super) parent: u32,
    pub(super) flags: u16,
    pub(super) is_compressed: bool,
    /// Sizes of the forks in bytes.
    pub(super) data: u64,
    pub(super) resource: u64,
    /// Number of entries of a folder.
    pub(super) valence: u32,
    /// True if what follows in its leaf cannot be read.
    pub(super) is_before_gap: bool,
}

/// The record of an object without its key.
#[derive(Debug)]
enum Body {
    Folder(FolderRaw),
    File(FileRaw),
}

impl Body {
    fn id(&self) -> u32 {
        match self {
            Self::Folder(folder) => folder.folder_id.get(),
            Self::File(file) => file.file_id.get(),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Folder(folder) => folder.as_bytes(),
            Self::File(file) => file.as_bytes(),
        }
    }

    /// Parses a record under a name whose type is wrong, judging by the record's length and the
    /// object's mode.
    fn mistyped(data: &[u8]) -> Option<Self> {
        let (kind, _) = U16::ref_from_prefix(data).ok()?;
        if let Ok(file) = FileRaw::read_from_bytes(data) {
            let is_file = kind.get() != record_type::FILE
                && mode_type::OF_FILES.contains(&file.bsd.mode_type());
            return is_file.then_some(Self::File(FileRaw {
                record_type: record_type::FILE.into(),
                ..file
            }));
        }
        let folder = FolderRaw::read_from_bytes(data).ok()?;
        let is_folder =
            kind.get() != record_type::FOLDER && folder.bsd.mode_type() == mode_type::FOLDER;
        is_folder.then_some(Self::Folder(FolderRaw {
            record_type: record_type::FOLDER.into(),
            ..folder
        }))
    }
}

impl RepairedObject {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    fn set_id(&mut self, id: u32) {
        self.edit(|body| match body {
            Body::Folder(folder) => folder.folder_id = id.into(),
            Body::File(file) => file.file_id = id.into(),
        });
    }

    pub(super) fn is_folder(&self) -> bool {
        self.is_folder
    }

    fn body(&self) -> Body {
        match self.is_folder {
            true => Body::Folder(self.body.unpack()),
            false => Body::File(self.body.unpack()),
        }
    }

    pub(super) fn file(&self) -> Option<FileRaw> {
        (!self.is_folder).then(|| self.body.unpack())
    }

    fn edit<R>(&mut self, change: impl FnOnce(&mut Body) -> R) -> R {
        let mut body = self.body();
        let result = change(&mut body);
        self.id = body.id();
        let packed = PackedRecord::new(body.as_bytes());
        if packed != self.body {
            self.body = packed;
        }
        result
    }

    /// Changes the record of a file; `None` for a folder.
    pub(super) fn edit_file<R>(&mut self, change: impl FnOnce(&mut FileRaw) -> R) -> Option<R> {
        self.edit(|body| match body {
            Body::File(file) => Some(change(file)),
            Body::Folder(_) => None,
        })
    }

    /// Changes the record of a folder; `None` for a file.
    pub(super) fn edit_folder<R>(&mut self, change: impl FnOnce(&mut FolderRaw) -> R) -> Option<R> {
        self.edit(|body| match body {
            Body::Folder(folder) => Some(change(folder)),
            Body::File(_) => None,
        })
    }

    fn edit_bsd<R>(&mut self, change: impl FnOnce(&mut BsdInfoRaw) -> R) -> R {
        self.edit(|body| match body {
            Body::Folder(folder) => change(&mut folder.bsd),
            Body::File(file) => change(&mut file.bsd),
        })
    }

    /// Sets the flags in `mask` to `bits`; returns true if that changed anything.
    pub(super) fn set_flags(&mut self, mask: u16, bits: u16) -> bool {
        self.edit(|body| {
            let flags = match body {
                Body::Folder(folder) => &mut folder.flags,
                Body::File(file) => &mut file.flags,
            };
            let before = flags.get();
            *flags = (before & !mask | bits).into();
            before != flags.get()
        })
    }

    /// Returns true if a compressed file lost the attribute that describes its contents.
    fn is_empty_though_compressed(&self, owners: &HashMap<u32, Owner>) -> bool {
        self.file().is_some_and(|file| {
            u32::from(file.bsd.owner_flags) & UF_COMPRESSED != 0
                && file.data_fork.logical_size.get() == 0
                && !owners
                    .get(&self.id())
                    .is_some_and(|owner| owner.is_compressed)
        })
    }

    /// Returns true if an empty file lost the flag of compressed contents, and both the attribute that
    /// describes them and the contents are left. No system clears the flag alone.
    fn lost_compression_flag(&self, owners: &HashMap<u32, Owner>) -> bool {
        let Some(file) = self.file() else {
            return false;
        };
        let owner = owners.get(&self.id()).copied().unwrap_or_default();
        let has_contents =
            owner.has_contents || owner.is_compressed && file.resource_fork.logical_size.get() > 0;
        let is_flagged = u32::from(file.bsd.owner_flags) & UF_COMPRESSED != 0;
        !is_flagged && file.data_fork.logical_size.get() == 0 && has_contents
    }
}

impl RecordedFacts {
    /// Returns the facts of a record on a volume of `volume_len` bytes.
    fn of(parent: u32, body: &Body, volume_len: u64) -> Self {
        // A fork without blocks is empty; a size that no fork can have is damaged.
        let size_of_fork = |fork: &ForkRaw| {
            let size = fork.logical_size.get();
            let is_empty = fork.total_blocks.get() == 0 && fork.extents == ExtentsRaw::default();
            if is_empty && size > volume_len {
                0
            } else {
                size
            }
        };
        match body {
            Body::Folder(folder) => Self {
                id: folder.folder_id.get(),
                parent,
                flags: folder.flags.get(),
                is_compressed: false,
                data: 0,
                resource: 0,
                valence: folder.valence.get(),
                is_before_gap: false,
            },
            Body::File(file) => Self {
                id: file.file_id.get(),
                parent,
                flags: file.flags.get(),
                is_compressed: u32::from(file.bsd.owner_flags) & UF_COMPRESSED != 0,
                data: size_of_fork(&file.data_fork),
                resource: size_of_fork(&file.resource_fork),
                valence: 0,
                is_before_gap: false,
            },
        }
    }
}

/// The target of a thread.
#[derive(Debug)]
pub(super) struct ThreadTarget {
    pub(super) parent: u32,
    pub(super) name: Box<[U16]>,
    pub(super) folder: bool,
    pub(super) is_live: bool,
}

/// A record under a name that is of no known type.
#[derive(Debug)]
pub(super) struct UnreadableRecord {
    pub(super) parent: u32,
    pub(super) name: Box<[U16]>,
    pub(super) is_live: bool,
}

/// Returns a name as it is to be stored, with current decompositions.
fn name_of(name: &[U16], steps: &mut Steps) -> Box<[U16]> {
    match redecomposed(name) {
        Some(name) => {
            steps.on_subject("decompose names", Subject::Name(decode_name(&name)));
            name.into()
        }
        None => name.into(),
    }
}

/// All objects of the volume.
#[derive(Debug)]
pub(super) struct AllObjects {
    pub(super) all: Vec<RepairedObject>,
    /// Objects that were read and cannot be kept.
    pub(super) removed: Vec<RepairedObject>,
    pub(super) unreadable: Vec<UnreadableRecord>,
    /// Folders of the files that were deleted because nothing needs them any more.
    pub(super) deleted_from: Vec<u32>,
    /// The blocks that those files state.
    pub(super) deleted_blocks: Vec<Extent>,
    pub(super) threads: BTreeMap<u32, ThreadTarget>,
    next_serial: u32,
    names: NameOrder,
    variant: Variant,
    next_id: u32,
    lost_and_found: Option<u32>,
    /// Date of the last modification of the volume.
    modified: U32,
    /// Length of the volume in bytes.
    pub(super) volume_len: u64,
}

impl AllObjects {
    /// Parses the records of the volume with this header.
    pub(super) fn read(
        records: Vec<SalvagedRecord>,
        names: NameOrder,
        header: &VolumeHeader,
        steps: &mut Steps,
    ) -> Self {
        let mut objects = Self {
            all: Vec::new(),
            removed: Vec::new(),
            unreadable: Vec::new(),
            deleted_from: Vec::new(),
            deleted_blocks: Vec::new(),
            threads: BTreeMap::new(),
            next_serial: 0,
            names,
            variant: header.variant,
            next_id: Cnid::FIRST_USER.0,
            lost_and_found: None,
            modified: header.raw.modify_date,
            volume_len: u64::from(header.total_blocks) * u64::from(header.block_size),
        };
        objects.all.reserve_exact(records.len() / 2);
        for record in records {
            let bytes = record.bytes();
            let Some((key, data)) = CatalogKey::split(&bytes) else {
                continue;
            };
            let (parent, name) = (key.parent.0, name_of(key.name, steps));
            let is_thread = name.is_empty();
            if let Some(body) = Body::mistyped(data).filter(|_| !is_thread) {
                let serial = objects.add_read(parent, name, body, record.is_before_gap);
                steps.on("correct the types of records", serial);
                continue;
            }
            // A thread whose type is wrong is not an object, whose record has a length of its own.
            let is_object = |len: usize| !is_thread || data.len() == len;
            match CatalogRecord::parse(data) {
                Some(CatalogRecord::Folder(folder)) if is_object(size_of::<FolderRaw>()) => {
                    let body = Body::Folder(*folder);
                    objects.add_read(parent, name, body, record.is_before_gap);
                }
                Some(CatalogRecord::File(file)) if is_object(size_of::<FileRaw>()) => {
                    let body = Body::File(*file);
                    objects.add_read(parent, name, body, record.is_before_gap);
                }
                Some(CatalogRecord::Thread(thread)) if is_thread => {
                    let lead = ThreadTarget {
                        parent: thread.parent.0,
                        name: name_of(thread.name, steps),
                        folder: thread.folder,
                        is_live: record.is_live(),
                    };
                    objects.threads.insert(parent, lead);
                }
                _ => {
                    steps.on_subject(
                        "remove invalid catalog records",
                        Subject::Entry(parent, name.clone()),
                    );
                    if !is_thread {
                        objects.unreadable.push(UnreadableRecord {
                            parent,
                            name,
                            is_live: record.is_live(),
                        });
                    }
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

    /// Adds an object that was read from the catalog, and returns its serial number.
    fn add_read(&mut self, parent: u32, name: Box<[U16]>, body: Body, is_before_gap: bool) -> u32 {
        let before = RecordedFacts {
            is_before_gap,
            ..RecordedFacts::of(parent, &body, self.volume_len)
        };
        self.add(parent, name, body, Some(before))
    }

    fn add(
        &mut self,
        parent: u32,
        name: Box<[U16]>,
        body: Body,
        before: Option<RecordedFacts>,
    ) -> u32 {
        let serial = self.next_serial;
        self.next_serial += 1; // no volume has more than 2^32 objects
        self.all.push(RepairedObject {
            serial,
            parent,
            name,
            id: body.id(),
            is_folder: matches!(body, Body::Folder(_)),
            body: PackedRecord::new(body.as_bytes()),
            before,
        });
        serial
    }

    /// Removes the objects of which `is_gone` is true, as losses.
    pub(super) fn remove(&mut self, mut is_gone: impl FnMut(&RepairedObject) -> bool) {
        self.removed
            .extend(self.all.extract_if(.., |object| is_gone(object)));
    }

    /// Removes objects, with their threads, that are of no use any more.
    pub(super) fn delete(&mut self, mut is_useless: impl FnMut(&RepairedObject) -> bool) {
        for object in self.all.extract_if(.., |object| is_useless(object)) {
            self.threads.remove(&object.id());
            self.deleted_from.push(object.parent);
            if let Some(file) = object.file() {
                let forks = [&file.data_fork, &file.resource_fork];
                let blocks = forks.into_iter().flat_map(|fork| extents_of(&fork.extents));
                self.deleted_blocks.extend(blocks);
            }
        }
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
    /// with attributes; `folder_links` are the links to folders.
    pub(super) fn count(
        &mut self,
        owners: &HashMap<u32, Owner>,
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
                Some(Owner { has_security, .. }) if !has_security => record_flags::HAS_ATTRIBUTES,
                Some(_) => record_flags::HAS_ATTRIBUTES | record_flags::HAS_SECURITY,
            };
            if object.is_empty_though_compressed(owners) {
                object.edit_bsd(|bsd| bsd.owner_flags &= !narrow::<u8>(UF_COMPRESSED));
                steps.on(
                    "clear the compression flag of files that lost their contents",
                    object.serial,
                );
            }
            if object.lost_compression_flag(owners) {
                object.edit_bsd(|bsd| bsd.owner_flags |= narrow::<u8>(UF_COMPRESSED));
                steps.on("restore the flag of compressed contents", object.serial);
            }
            let mut wrong = false;
            let is_folder = object.edit_folder(|folder| {
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
            });
            if is_folder.is_none() {
                bits |= record_flags::THREAD_EXISTS;
            }
            wrong |= object.set_flags(mask, bits);
            if wrong {
                steps.on("correct counts and flags", object.serial);
            }
        }
    }

    /// Returns the numbers of the empty files with the flag of compressed contents.
    pub(super) fn compressed(&self) -> HashSet<u32> {
        let none = HashMap::new();
        self.all
            .iter()
            .filter(|object| object.is_empty_though_compressed(&none))
            .map(RepairedObject::id)
            .collect()
    }

    /// Returns a bit for each text encoding in use, as in the volume header.
    pub(super) fn encodings(&self) -> u64 {
        let encoding = |object: &RepairedObject| match object.body() {
            Body::Folder(folder) => folder.text_encoding.get(),
            Body::File(file) => file.text_encoding.get(),
        };
        self.all
            .iter()
            .fold(0, |bits, object| bits | encoding_bit(encoding(object)))
    }

    /// Returns the records of the catalog: of each object, and of its thread.
    pub(super) fn into_records(self) -> CatalogRecords {
        let (objects, names) = (self.all, self.names);
        let mut order: Vec<CatalogPlace> = (0..objects.len())
            .flat_map(|object| {
                [false, true].map(|is_thread| CatalogPlace {
                    object: narrow(object), // no volume has more than 2^32 objects
                    is_thread,
                })
            })
            .collect();
        order.sort_by(|a, b| {
            let (a, b) = (a.key(&objects), b.key(&objects));
            (a.parent.cmp(&b.parent)).then_with(|| names.compare(a.name, b.name))
        });
        CatalogRecords { objects, order }
    }

    /// Returns true if both files of the journal exist.
    pub(super) fn has_journal(&self) -> bool {
        self.all.iter().filter(|object| is_journal(object)).count() >= 2
    }

    /// Deletes the journal's files.
    pub(super) fn drop_journal(&mut self, steps: &mut Steps) {
        self.delete(is_journal);
        steps.add("remove the journal: it cannot be read or its files are missing");
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
    pub(super) fn add_thread_steps(&self, steps: &mut Steps) {
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
                steps.on("rewrite threads", object.serial);
            }
        }
        let ids: HashSet<u32> = self.all.iter().map(RepairedObject::id).collect();
        for (_, lead) in self.threads.iter().filter(|(id, _)| !ids.contains(id)) {
            steps.on_subject(
                "remove threads of objects that do not exist",
                Subject::Entry(lead.parent, lead.name.clone()),
            );
        }
    }
}

/// The records of a catalog, in order. They are made when they are read.
#[derive(Debug)]
pub(super) struct CatalogRecords {
    objects: Vec<RepairedObject>,
    order: Vec<CatalogPlace>,
}

/// A record of a catalog.
#[derive(Debug, Clone, Copy)]
struct CatalogPlace {
    /// Index of the object.
    object: u32,
    /// True for the thread of the object.
    is_thread: bool,
}

impl CatalogPlace {
    fn key<'a>(&self, objects: &'a [RepairedObject]) -> CatalogKey<'a> {
        let object = &objects[self.object as usize];
        match self.is_thread {
            true => CatalogKey {
                parent: Cnid(object.id()),
                name: &[],
            },
            false => CatalogKey {
                parent: Cnid(object.parent),
                name: &object.name,
            },
        }
    }
}

impl CatalogRecords {
    /// Calls `each` with key and data of every record.
    pub(super) fn try_each(&self, each: RecordSink<'_>) -> Result<()> {
        let (mut key, mut data) = (Vec::new(), Vec::new());
        for place in &self.order {
            let object = &self.objects[place.object as usize];
            key.clear();
            data.clear();
            place.key(&self.objects).put(&mut key);
            match place.is_thread {
                true => Thread {
                    parent: Cnid(object.parent),
                    name: &object.name,
                    folder: object.is_folder(),
                }
                .put(&mut data),
                false => data.extend_from_slice(object.body().as_bytes()),
            }
            each(&key, &data)?;
        }
        Ok(())
    }
}

fn is_journal(object: &RepairedObject) -> bool {
    object.parent == Cnid::ROOT.0
        && object
            .file()
            .is_some_and(|file| file.kind() == JOURNAL_TYPE)
}
