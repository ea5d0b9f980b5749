//! Check of the records of the catalog and of their references to each other (§7, §17).
//!
//! One pass over the records, whose rules share what was seen of each object.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use zerocopy::big_endian::U16;

use super::attributes;
use super::forks::Forks;
use super::links::Links;
use super::report::{Report, entry_in, numbered, wrong};
use crate::UF_COMPRESSED;
use crate::block_users::BlockUse;
use crate::hfsplus::layout::{
    CatalogKey, CatalogRecord, Cnid, FILE_LINK_TYPE, FileRaw, FolderRaw, JOURNAL_TYPE,
    MAX_NAME_UNITS, SYMLINK_TYPE, Thread, ThreadHeadRaw, Variant, VolumeHeader, encoding_bit,
    finder_flags, mode_type, record_flags, volume_attributes,
};
use crate::hfsplus::unicode::{decode_name, redecomposed};

const LAYER: &str = "hfs+ catalog";
/// Bytes of a thread with the longest name; shorter ones may be padded to that.
const MAX_THREAD: usize = size_of::<ThreadHeadRaw>() + 2 * MAX_NAME_UNITS;
/// Flags that are valid for files only.
const FILE_FLAGS: u16 = 0x0001 | record_flags::THREAD_EXISTS;
/// A colon separates path components on old systems and is stored as a slash.
const COLON: u16 = 0x3A;

/// The fields of a folder or file record that other records refer to.
#[derive(Debug, Clone, Copy)]
struct CheckedObject {
    id: Cnid,
    parent: Cnid,
    /// Hash of the name.
    name: u64,
    flags: u16,
    folder: bool,
    /// True for an empty data fork with the flag of compressed contents.
    compressed: bool,
    /// True for an empty data fork without that flag, except in a hard link.
    empty: bool,
    /// True if the resource fork is not empty.
    resource: bool,
    /// For folders: recorded numbers of entries and of subfolders.
    valence: u32,
    folders: u32,
}

/// The records of the catalog under one number: a thread, and the children of a folder.
#[derive(Debug, Clone, Copy, Default)]
struct CnidRecords {
    id: u32,
    thread: Option<ThreadTarget>,
    children: u32,
    folders: u32,
}

/// The target of a thread.
#[derive(Debug, Clone, Copy)]
struct ThreadTarget {
    parent: Cnid,
    name: u64,
    folder: bool,
}

/// Checks the records in order, then against each other.
#[derive(Debug)]
pub(super) struct Catalog<'h> {
    header: &'h VolumeHeader,
    objects: Vec<CheckedObject>,
    groups: Vec<CnidRecords>,
    pub(super) links: Links,
    /// Number of file and of folder records, without the root.
    pub(super) files: u64,
    pub(super) folders: u64,
    pub(super) highest: Cnid,
    /// A bit for each text encoding used by a record, as in the volume header.
    pub(super) encodings: u64,
    /// Number of files in the root folder that have the type of the journal's.
    pub(super) journal_files: u64,
}

fn hash(name: &[U16]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.iter().for_each(|unit| unit.get().hash(&mut hasher));
    hasher.finish()
}

impl<'h> Catalog<'h> {
    pub(super) fn new(header: &'h VolumeHeader) -> Self {
        Self {
            header,
            objects: Vec::new(),
            groups: Vec::new(),
            links: Links::default(),
            files: 0,
            folders: 0,
            highest: Cnid(0),
            encodings: 0,
            journal_files: 0,
        }
    }

    /// Returns the files without contents, a resource fork and the flag of compression.
    pub(super) fn empty_files(&self) -> impl Iterator<Item = Cnid> {
        let is_empty = |object: &&CheckedObject| object.empty && !object.resource;
        self.objects.iter().filter(is_empty).map(|object| object.id)
    }

    /// Checks the record `record` of leaf `node`.
    pub(super) fn add(&mut self, record: &[u8], node: u32, forks: &mut Forks, report: &mut Report) {
        let damage = |message: &str| wrong(LAYER, format!("node {node}: {message}"));
        let Some((key, data)) = CatalogKey::split(record) else {
            return report.damage(damage("malformed key of a record"));
        };
        let Some(parsed) = CatalogRecord::parse(data) else {
            let name = decode_name(key.name);
            let message = format!(
                "the record of {name:?} in folder {} is of unknown type",
                key.parent
            );
            return report.damage(damage(&message).about(entry_in(key.parent, key.name)));
        };
        let expected = match parsed {
            CatalogRecord::Folder(_) => size_of::<FolderRaw>(),
            CatalogRecord::File(_) => size_of::<FileRaw>(),
            CatalogRecord::Thread(_) => data.len().min(MAX_THREAD),
        };
        if data.len() != expected {
            let name = decode_name(key.name);
            let message = format!(
                "the record of {name:?} has {} bytes, expected {expected}",
                data.len()
            );
            let subject = match parsed {
                CatalogRecord::Thread(_) => numbered(key.parent),
                _ => entry_in(key.parent, key.name),
            };
            report.damage(damage(&message).about(subject));
        }
        match parsed {
            CatalogRecord::Thread(thread) => self.add_thread(&key, &thread, report),
            CatalogRecord::Folder(folder) => self.add_folder(&key, folder, report),
            CatalogRecord::File(file) => self.add_file(&key, file, forks, report),
        }
    }

    fn group(&mut self, id: Cnid) -> &mut CnidRecords {
        if self.groups.last().is_none_or(|group| group.id != id.0) {
            self.groups.push(CnidRecords {
                id: id.0,
                ..CnidRecords::default()
            });
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn add_thread(&mut self, key: &CatalogKey<'_>, thread: &Thread<'_>, report: &mut Report) {
        if !key.name.is_empty() {
            return report.damage(
                wrong(
                    LAYER,
                    format!(
                        "a thread record has the name {:?}, expected none",
                        decode_name(key.name)
                    ),
                )
                .about(numbered(key.parent)),
            );
        }
        let lead = ThreadTarget {
            parent: thread.parent,
            name: hash(thread.name),
            folder: thread.folder,
        };
        self.group(key.parent).thread = Some(lead);
    }

    fn add_folder(&mut self, key: &CatalogKey<'_>, folder: &FolderRaw, report: &mut Report) {
        let id = Cnid(folder.folder_id.get());
        let object = CheckedObject {
            id,
            parent: key.parent,
            name: hash(key.name),
            flags: folder.flags.get(),
            compressed: false,
            empty: false,
            resource: false,
            folder: true,
            valence: folder.valence.get(),
            folders: folder.folder_count.get(),
        };
        if object.flags & FILE_FLAGS != 0 {
            report.warning(wrong(
                LAYER,
                format!(
                    "the flags {:#06x} of folder {id} include bits 0 or 1, which only files can \
                     have",
                    object.flags
                ),
            ).about(numbered(id)));
        }
        let mode = folder.bsd.file_mode.get();
        if mode != 0 && folder.bsd.mode_type() != mode_type::FOLDER {
            report.damage(
                wrong(
                    LAYER,
                    format!("folder {id} has mode {mode:#o}, which is not that of a folder"),
                )
                .about(numbered(id)),
            );
        }
        if id == Cnid::ROOT && folder.user_info.finder_flags.get() & finder_flags::NAME_LOCKED != 0
        {
            report.warning(
                wrong(LAYER, "the root folder has the flag that locks its name")
                    .about(numbered(id)),
            );
        }
        self.folders += u64::from(id != Cnid::ROOT);
        self.encodings |= encoding_bit(folder.text_encoding.get());
        self.links.see_folder(key, folder, report);
        self.group(key.parent).folders += 1;
        self.add_object(key, object, report);
    }

    fn add_file(
        &mut self,
        key: &CatalogKey<'_>,
        file: &FileRaw,
        forks: &mut Forks,
        report: &mut Report,
    ) {
        let id = Cnid(file.file_id.get());
        let is_empty =
            file.data_fork.logical_size.get() == 0 && file.bsd.mode_type() == mode_type::FILE;
        let is_flagged = u32::from(file.bsd.owner_flags) & UF_COMPRESSED != 0;
        let object = CheckedObject {
            id,
            parent: key.parent,
            name: hash(key.name),
            flags: file.flags.get(),
            folder: false,
            compressed: is_empty && is_flagged,
            empty: is_empty && !is_flagged && file.kind() != FILE_LINK_TYPE,
            resource: file.resource_fork.logical_size.get() > 0,
            valence: 0,
            folders: 0,
        };
        let mode = file.bsd.file_mode.get();
        if mode != 0 && !mode_type::OF_FILES.contains(&file.bsd.mode_type()) {
            report.damage(
                wrong(
                    LAYER,
                    format!("file {id} has mode {mode:#o}, which is not that of a file"),
                )
                .about(numbered(id)),
            );
        }
        if file.bsd.mode_type() == mode_type::SYMLINK && file.kind() != SYMLINK_TYPE {
            report.note(
                wrong(
                    LAYER,
                    format!("symbolic link {id} does not have the type and creator of one"),
                )
                .about(numbered(id)),
            );
        }
        forks.check(&file.data_fork, id, BlockUse::Data, report);
        forks.check(&file.resource_fork, id, BlockUse::Resource, report);
        self.files += 1;
        self.encodings |= encoding_bit(file.text_encoding.get());
        self.journal_files += u64::from(key.parent == Cnid::ROOT && file.kind() == JOURNAL_TYPE);
        let link_to_folder = self.links.see_file(key, file, report);
        self.group(key.parent).folders += u32::from(link_to_folder);
        self.add_object(key, object, report);
    }

    fn add_object(&mut self, key: &CatalogKey<'_>, object: CheckedObject, report: &mut Report) {
        let CheckedObject { id, parent, .. } = object;
        if key.name.is_empty() || key.name.iter().any(|unit| unit.get() == COLON) {
            report.damage(
                wrong(
                    LAYER,
                    format!(
                        "object {id} has the invalid name {:?} on disk: it is empty or has a colon",
                        decode_name(key.name)
                    ),
                )
                .about(numbered(id)),
            );
        }
        if redecomposed(key.name).is_some() {
            let name = decode_name(key.name);
            report.warning(
                wrong(
                    LAYER,
                    format!(
                        "the name {name:?} of object {id} is decomposed by the rules before Mac \
                         OS X 10.2"
                    ),
                )
                .about(numbered(id)),
            );
        }
        if id < Cnid::FIRST_USER && id != Cnid::ROOT {
            report.damage(
                wrong(
                    LAYER,
                    format!(
                        "object {:?} in folder {parent} has the reserved number {id}",
                        decode_name(key.name)
                    ),
                )
                .about(entry_in(parent, key.name)),
            );
        }
        self.highest = self.highest.max(id);
        self.group(parent).children += 1;
        self.objects.push(object);
    }

    /// Checks all records against each other, against the attributes' owners and against the
    /// header.
    pub(super) fn finish(&mut self, owners: &[attributes::Owner], report: &mut Report) {
        self.links.finish(report);
        self.objects.sort_unstable_by_key(|object| object.id);
        self.groups.sort_unstable_by_key(|group| group.id);
        for pair in self
            .objects
            .windows(2)
            .filter(|pair| pair[0].id == pair[1].id)
        {
            let message = format!(
                "object {} is in folder {} and also in folder {}",
                pair[0].id, pair[0].parent, pair[1].parent
            );
            report.damage(wrong(LAYER, message).about(numbered(pair[0].id)));
        }
        self.check_objects(report);
        self.check_groups(report);
        self.check_loops(report);
        self.check_owners(owners, report);
        self.check_counts(report);
    }

    /// Returns the folder of the object with this number. Needs the order that
    /// [`finish`](Self::finish) makes.
    pub(super) fn folder_of(&self, id: Cnid) -> Option<Cnid> {
        self.find(id).map(|object| object.parent)
    }

    fn find(&self, id: Cnid) -> Option<&CheckedObject> {
        let at = self
            .objects
            .binary_search_by_key(&id, |object| object.id)
            .ok()?;
        self.objects.get(at)
    }

    fn group_of(&self, id: Cnid) -> CnidRecords {
        let at = self.groups.binary_search_by_key(&id.0, |group| group.id);
        at.ok()
            .and_then(|at| self.groups.get(at))
            .copied()
            .unwrap_or_default()
    }

    /// Checks threads, and the numbers of children that folders record.
    fn check_objects(&self, report: &mut Report) {
        let hfsx = self.header.variant == Variant::Hfsx;
        for object in &self.objects {
            let CheckedObject {
                id,
                parent,
                name,
                flags,
                folder,
                ..
            } = *object;
            let group = self.group_of(id);
            let needs_thread = folder || flags & record_flags::THREAD_EXISTS != 0;
            match group.thread {
                None if needs_thread => report.damage(wrong(
                    LAYER,
                    format!("object {id} in folder {parent} has no thread record"),
                ).about(numbered(id))),
                Some(lead) if lead.parent != parent => {
                    let message = format!(
                        "the thread record of object {id} refers to folder {}, but the object is \
                         in folder {parent}",
                        lead.parent
                    );
                    report.damage(wrong(LAYER, message).about(numbered(id)));
                }
                Some(lead) if lead.name != name => {
                    let message = format!(
                        "the thread record of object {id} has another name than the object in \
                         folder {parent}"
                    );
                    report.damage(wrong(LAYER, message).about(numbered(id)));
                }
                Some(lead) if lead.folder != folder => report.damage(wrong(
                    LAYER,
                    format!(
                        "the thread record of object {id} has the wrong type: file for a folder, \
                         or the reverse"
                    ),
                ).about(numbered(id))),
                Some(_) if !needs_thread => {
                    report.warning(wrong(
                        LAYER,
                        format!(
                            "file {id} has a thread record, but not the flag for it (flags \
                             {flags:#06x})"
                        ),
                    ).about(numbered(id)));
                }
                _ => {}
            }
            if folder && object.valence != group.children {
                let message = format!(
                    "folder {id} records {} entries, but has {}",
                    object.valence, group.children
                );
                report.warning(wrong(LAYER, message).about(numbered(id)));
            }
            if folder && hfsx && flags & record_flags::HAS_FOLDER_COUNT == 0 {
                report.warning(
                    wrong(
                        LAYER,
                        format!("folder {id} does not record the number of folders in it"),
                    )
                    .about(numbered(id)),
                );
            }
            if folder
                && hfsx
                && flags & record_flags::HAS_FOLDER_COUNT != 0
                && object.folders != group.folders
            {
                let message = format!(
                    "folder {id} records {} folders in it, but has {}",
                    object.folders, group.folders
                );
                report.warning(wrong(LAYER, message).about(numbered(id)));
            }
        }
    }

    /// Checks that every thread belongs to an object, and all children to a folder.
    fn check_groups(&self, report: &mut Report) {
        if self.find(Cnid::ROOT).is_none() {
            report.damage(wrong(LAYER, "the root folder is missing"));
        }
        for group in &self.groups {
            let id = Cnid(group.id);
            if id == Cnid::ROOT_PARENT {
                if group.children != 1
                    || self
                        .find(Cnid::ROOT)
                        .is_none_or(|root| !root.folder || root.parent != id)
                {
                    report.damage(wrong(
                        LAYER,
                        "expected exactly one root folder, number 2 in folder 1",
                    ));
                }
                continue;
            }
            match self.find(id) {
                None if group.children > 0 => {
                    report.damage(wrong(
                        LAYER,
                        format!(
                            "{} objects are in folder {id}, which does not exist",
                            group.children
                        ),
                    ));
                }
                None => report.damage(wrong(
                    LAYER,
                    format!(
                        "the thread record of object {id} refers to an object that does not exist"
                    ),
                )),
                Some(object) if !object.folder && group.children > 0 => {
                    report.damage(
                        wrong(
                            LAYER,
                            format!(
                                "{} objects have {id} as their folder, which is a file",
                                group.children
                            ),
                        )
                        .about(numbered(id)),
                    );
                }
                Some(_) => {}
            }
        }
    }

    /// Checks that every folder is a descendant of the root.
    fn check_loops(&self, report: &mut Report) {
        // Walk up from each folder only as far as one that was visited before.
        let mut met: HashMap<Cnid, Cnid> =
            HashMap::from([(Cnid::ROOT, Cnid::ROOT), (Cnid::ROOT_PARENT, Cnid::ROOT)]);
        for folder in self.objects.iter().filter(|object| object.folder) {
            let mut at = folder.id;
            while !met.contains_key(&at) {
                met.insert(at, folder.id);
                let Some(above) = self.find(at) else { break };
                at = above.parent;
                if met.get(&at) == Some(&folder.id) {
                    report.damage(
                        wrong(LAYER, format!("folder {at} contains itself")).about(numbered(at)),
                    );
                }
            }
        }
    }

    /// Checks that the flags of objects agree with their attributes, and that every owner exists.
    fn check_owners(&self, owners: &[attributes::Owner], report: &mut Report) {
        let layer = "hfs+ attributes tree";
        let mut rest = owners
            .iter()
            .filter(|owner| owner.id != Cnid::ROOT_PARENT)
            .peekable();
        for object in &self.objects {
            while let Some(stray) = rest.next_if(|owner| owner.id < object.id) {
                report.damage(wrong(
                    layer,
                    format!("attributes of object {}, which does not exist", stray.id),
                ));
            }
            let owner = rest.peek().filter(|owner| owner.id == object.id);
            let wanted = (owner.is_some(), owner.is_some_and(|owner| owner.security));
            let flagged = (
                object.flags & record_flags::HAS_ATTRIBUTES != 0,
                object.flags & record_flags::HAS_SECURITY != 0,
            );
            if wanted.0 != flagged.0 {
                let message = format!(
                    "object {}: attributes: {}, but its flags say {}",
                    object.id,
                    presence(wanted.0),
                    presence(flagged.0)
                );
                report.warning(wrong(layer, message).about(numbered(object.id)));
            }
            if wanted.1 != flagged.1 {
                let message = format!(
                    "object {}: access rights: {}, but its flags say {}",
                    object.id,
                    presence(wanted.1),
                    presence(flagged.1)
                );
                report.warning(wrong(layer, message).about(numbered(object.id)));
            }
            if object.compressed && !owner.is_some_and(|owner| owner.compression) {
                let message = format!(
                    "file {} is empty and flagged as compressed, and its compressed contents are missing",
                    object.id
                );
                report.damage(wrong(layer, message).about(numbered(object.id)));
            }
            if object.empty
                && owner.is_some_and(|owner| owner.contents || owner.compression && object.resource)
            {
                let message = format!(
                    "file {} has compressed contents, but not the flag, and reads as empty",
                    object.id
                );
                report.warning(wrong(layer, message).about(numbered(object.id)));
            }
            while rest.next_if(|owner| owner.id == object.id).is_some() {}
        }
        for stray in rest {
            report.damage(wrong(
                layer,
                format!("attributes of object {}, which does not exist", stray.id),
            ));
        }
    }

    fn check_counts(&self, report: &mut Report) {
        let layer = "hfs+ volume header";
        let raw = &self.header.raw;
        for (what, claimed, found) in [
            ("files", raw.file_count, self.files),
            ("folders", raw.folder_count, self.folders),
        ] {
            if u64::from(claimed.get()) != found {
                report.warning(wrong(
                    layer,
                    format!("the header records {claimed} {what}, but the catalog has {found}"),
                ));
            }
        }
        let missing = self.encodings & !raw.encodings_bitmap.get();
        if missing != 0 {
            let message = format!(
                "the header lacks the bits {missing:#x} of text encodings that are used in the \
                 catalog"
            );
            report.warning(wrong(layer, message));
        }
        let next = raw.next_catalog_id.get();
        if next <= self.highest.0 && !self.header.has(volume_attributes::CNIDS_REUSED) {
            report.damage(wrong(
                layer,
                format!(
                    "the next object number is recorded as {next}, but {} is in use",
                    self.highest
                ),
            ));
        }
    }
}

fn presence(fact: bool) -> &'static str {
    if fact { "present" } else { "absent" }
}
