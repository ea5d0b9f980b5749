//! Check of the records of the catalog and of their references to each other (§5, §8).

use std::collections::{BTreeMap, HashMap};

use super::forks::{ForkRecord, Forks};
use super::{CATALOG_LAYER as LAYER, HEADER};
use crate::block_users::BlockUse;
use crate::check_report::{Report, wrong};
use crate::hfs::layout::{
    CatalogKey, CatalogRecord, FILE_HAS_THREAD, FileRaw, FolderRaw, MAX_NAME, MDB_OFFSET,
    MasterDirectoryBlock, Object, ThreadHeadRaw, cnid, thread_name,
};
use crate::hfs::names;
use bandsaw_core::Error;
use bandsaw_core::error::Subject;

/// Number of bytes of a thread with the longest name; shorter ones may be padded to that.
const MAX_THREAD: usize = size_of::<ThreadHeadRaw>() + 1 + MAX_NAME;
/// Maximum number of folders above an object whose path is reported.
const MAX_PARTS: usize = 256;
/// Separates the parts of a path on Mac OS, and is stored as a slash.
const COLON: u8 = b':';

/// The fields of a folder or file that other records refer to.
#[derive(Debug)]
struct FoundObject {
    id: u32,
    parent: u32,
    name: Box<[u8]>,
    is_folder: bool,
    /// True for a folder, and for a file with the flag that its thread exists.
    needs_thread: bool,
    /// For folders: recorded number of entries.
    valence: u16,
}

/// The target of a thread.
#[derive(Debug)]
struct FoundThread {
    parent: u32,
    /// `None` if it is longer than its record.
    name: Option<Box<[u8]>>,
    is_folder: bool,
}

/// The records with one number in their key: a thread, and the entries of a folder.
#[derive(Debug, Default)]
struct KeyGroup {
    thread: Option<FoundThread>,
    files: u32,
    folders: u32,
}

impl KeyGroup {
    fn entries(&self) -> u32 {
        self.files + self.folders
    }
}

/// Checks the records in order, then against each other.
#[derive(Debug, Default)]
pub(super) struct CatalogCheck {
    objects: Vec<FoundObject>,
    groups: BTreeMap<u32, KeyGroup>,
}

fn numbered(id: u32) -> Subject {
    Subject::Number(id.into())
}

impl CatalogCheck {
    /// Checks the record `record` of leaf `node`.
    pub(super) fn add(&mut self, record: &[u8], node: u32, forks: &mut Forks, report: &mut Report) {
        let damage = |message: &str| wrong(LAYER, format!("node {node}: {message}"));
        let Some((key, data)) = CatalogKey::split(record) else {
            return report.damage(damage("malformed key of a record"));
        };
        let (parent, name) = (key.parent, names::decode(key.name));
        let entry = || match key.name {
            [] => numbered(parent),
            _ => Subject::Entry(parent.into(), name.clone()),
        };
        let Some(parsed) = CatalogRecord::parse(data) else {
            let message = format!(
                "the record of {name:?} in folder {parent} is of unknown type or truncated"
            );
            return report.damage(damage(&message).about(entry()));
        };
        let expected = match parsed {
            CatalogRecord::Object(Object::Folder(_)) => size_of::<FolderRaw>(),
            CatalogRecord::Object(Object::File(_)) => size_of::<FileRaw>(),
            CatalogRecord::Thread { .. } => data.len().min(MAX_THREAD),
        };
        if data.len() != expected {
            let message = format!(
                "the record of {name:?} in folder {parent} has {} bytes, expected {expected}",
                data.len()
            );
            report.damage(damage(&message).about(entry()));
        }
        match parsed {
            CatalogRecord::Thread {
                parent: target,
                is_folder,
            } => {
                if !key.name.is_empty() {
                    let message = format!("a thread record has the name {name:?}, expected none");
                    return report.damage(wrong(LAYER, message).about(numbered(parent)));
                }
                let name = thread_name(data).map(Box::from);
                self.groups.entry(parent).or_default().thread = Some(FoundThread {
                    parent: target,
                    name,
                    is_folder,
                });
            }
            CatalogRecord::Object(object) => {
                if let Object::File(file) = &object {
                    check_forks(file, forks, report);
                }
                self.add_object(&key, &object, report);
            }
        }
    }

    fn add_object(&mut self, key: &CatalogKey<'_>, object: &Object, report: &mut Report) {
        let (id, parent) = (object.id(), key.parent);
        if key.name.is_empty() || key.name.contains(&COLON) {
            let message = format!(
                "object {id} has the invalid name {:?} on disk: it is empty or has a colon",
                names::decode(key.name)
            );
            report.damage(wrong(LAYER, message).about(numbered(id)));
        }
        if id < cnid::FIRST_USER && id != cnid::ROOT {
            let name = names::decode(key.name);
            let message =
                format!("object {name:?} in folder {parent} has the reserved number {id}");
            let subject = Subject::Entry(parent.into(), name);
            report.damage(wrong(LAYER, message).about(subject));
        }
        let group = self.groups.entry(parent).or_default();
        let (is_folder, needs_thread, valence) = match object {
            Object::Folder(folder) => {
                group.folders += 1;
                (true, true, folder.valence.get())
            }
            Object::File(file) => {
                group.files += 1;
                (false, file.flags & FILE_HAS_THREAD != 0, 0)
            }
        };
        self.objects.push(FoundObject {
            id,
            parent,
            name: key.name.into(),
            is_folder,
            needs_thread,
            valence,
        });
    }

    /// Checks all records against each other and against the header.
    pub(super) fn finish(&mut self, header: &MasterDirectoryBlock, report: &mut Report) {
        self.objects.sort_by_key(|object| object.id);
        for pair in self.objects.windows(2) {
            if pair[0].id == pair[1].id {
                let message = format!(
                    "object {} is in folder {} and also in folder {}",
                    pair[0].id, pair[0].parent, pair[1].parent
                );
                report.damage(wrong(LAYER, message).about(numbered(pair[0].id)));
            }
        }
        self.check_objects(report);
        self.check_groups(report);
        self.check_loops(report);
        self.check_header(header, report);
    }

    /// Returns the object with a number. Needs the order that [`finish`](Self::finish) makes.
    fn find(&self, id: u32) -> Option<&FoundObject> {
        let at = self.objects.binary_search_by_key(&id, |object| object.id);
        self.objects.get(at.ok()?)
    }

    /// Checks threads, and the numbers of entries that folders record.
    fn check_objects(&self, report: &mut Report) {
        let none = KeyGroup::default();
        for object in &self.objects {
            let FoundObject { id, parent, .. } = *object;
            let group = self.groups.get(&id).unwrap_or(&none);
            let damage = match &group.thread {
                None if object.needs_thread => Some(format!(
                    "object {id} in folder {parent} has no thread record"
                )),
                Some(thread) if thread.parent != parent => Some(format!(
                    "the thread record of object {id} refers to folder {}, but the object is in folder \
                     {parent}",
                    thread.parent
                )),
                Some(thread) if thread.name.as_ref() != Some(&object.name) => Some(format!(
                    "the thread record of object {id} has another name than the object in folder {parent}"
                )),
                Some(thread) if thread.is_folder != object.is_folder => Some(format!(
                    "the thread record of object {id} has the wrong type: file for a folder, or the \
                     reverse"
                )),
                _ => None,
            };
            let is_unflagged = group.thread.is_some() && !object.needs_thread;
            match damage {
                Some(message) => report.damage(wrong(LAYER, message).about(numbered(id))),
                None if is_unflagged => {
                    let message = format!("file {id} has a thread record, but not the flag for it");
                    report.warning(wrong(LAYER, message).about(numbered(id)));
                }
                None => {}
            }
            let entries = group.entries();
            if object.is_folder && u32::from(object.valence) != entries {
                let message = format!(
                    "folder {id} records {} entries, but has {entries}",
                    object.valence
                );
                report.warning(wrong(LAYER, message).about(numbered(id)));
            }
        }
    }

    /// Checks that every thread belongs to an object, and all entries to a folder.
    fn check_groups(&self, report: &mut Report) {
        let root = self.find(cnid::ROOT);
        if root.is_none() {
            report.damage(wrong(LAYER, "the root folder is missing"));
        }
        for (&id, group) in &self.groups {
            let entries = group.entries();
            if id == cnid::ROOT_PARENT {
                if entries != 1 || root.is_none_or(|root| !root.is_folder || root.parent != id) {
                    let message = "expected exactly one root folder, number 2 in folder 1";
                    report.damage(wrong(LAYER, message));
                }
                continue;
            }
            match self.find(id) {
                None if entries > 0 => report.damage(wrong(
                    LAYER,
                    format!("{entries} objects are in folder {id}, which does not exist"),
                )),
                None => report.damage(wrong(
                    LAYER,
                    format!(
                        "the thread record of object {id} refers to an object that does not exist"
                    ),
                )),
                Some(object) if !object.is_folder && entries > 0 => {
                    let message =
                        format!("{entries} objects have {id} as their folder, which is a file");
                    report.damage(wrong(LAYER, message).about(numbered(id)));
                }
                Some(_) => {}
            }
        }
    }

    /// Checks that every folder is a descendant of the root.
    fn check_loops(&self, report: &mut Report) {
        // Walk up from each folder only as far as one that was visited before.
        let mut met: HashMap<u32, u32> =
            HashMap::from([(cnid::ROOT, cnid::ROOT), (cnid::ROOT_PARENT, cnid::ROOT)]);
        for folder in self.objects.iter().filter(|object| object.is_folder) {
            let mut at = folder.id;
            while !met.contains_key(&at) {
                met.insert(at, folder.id);
                let Some(above) = self.find(at) else { break };
                at = above.parent;
                if met.get(&at) == Some(&folder.id) {
                    let message = format!("folder {at} contains itself");
                    report.damage(wrong(LAYER, message).about(numbered(at)));
                }
            }
        }
    }

    /// Compares counts, numbers and the name of the volume with the header.
    fn check_header(&self, header: &MasterDirectoryBlock, report: &mut Report) {
        let raw = &header.raw;
        let at = |message: String| Error::corrupt(HEADER, MDB_OFFSET, message);
        let count = |is_folder: bool| {
            let of_kind =
                |object: &&FoundObject| object.is_folder == is_folder && object.id != cnid::ROOT;
            self.objects.iter().filter(of_kind).count() as u64
        };
        for (what, claimed, found) in [
            ("files", raw.file_count, count(false)),
            ("folders", raw.folder_count, count(true)),
        ] {
            if u64::from(claimed.get()) != found {
                report.warning(at(format!(
                    "the header records {claimed} {what}, but the catalog has {found}"
                )));
            }
        }
        let none = KeyGroup::default();
        let root = self.groups.get(&cnid::ROOT).unwrap_or(&none);
        for (what, claimed, found) in [
            ("files", raw.root_files, root.files),
            ("folders", raw.root_folders, root.folders),
        ] {
            if u32::from(claimed.get()) != found {
                // machfs counts no files here.
                report.note(at(format!(
                    "the header records {claimed} {what} in the root folder, which has {found}"
                )));
            }
        }
        let highest = self.objects.last().map_or(0, |object| object.id);
        let next = raw.next_catalog_id.get();
        if next <= highest {
            report.damage(at(format!(
                "the next object number is recorded as {next}, but {highest} is in use"
            )));
        }
        if let Some(root) = self
            .find(cnid::ROOT)
            .filter(|root| *root.name != *header.name())
        {
            report.warning(at(format!(
                "the volume has the name {:?}, but its root folder {:?}",
                names::decode(header.name()),
                names::decode(&root.name)
            )));
        }
    }

    /// Gives the objects that the findings are about the paths that they have. An object that the tree
    /// does not lead to keeps its number.
    pub(super) fn resolve_paths(&self, report: &mut Report) {
        report.resolve_subjects(|subject| {
            let (id, last) = match subject {
                Subject::Number(id) => (*id, None),
                Subject::Entry(id, name) => (*id, Some(name)),
                Subject::Path(_) => return None,
            };
            let folder = self.path_of(u32::try_from(id).ok()?)?;
            Some(match last {
                Some(name) if folder == "/" => format!("/{name}"),
                Some(name) => format!("{folder}/{name}"),
                None => folder,
            })
        });
    }

    fn path_of(&self, id: u32) -> Option<String> {
        let (mut parts, mut at) = (Vec::new(), id);
        while at != cnid::ROOT {
            let object = self.find(at)?;
            if parts.len() == MAX_PARTS {
                return None;
            }
            parts.push(names::decode(&object.name));
            at = object.parent;
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }
}

/// Checks both forks of a file.
fn check_forks(file: &FileRaw, forks: &mut Forks, report: &mut Report) {
    for (purpose, fork, extents) in [
        (BlockUse::Data, &file.data, &file.data_extents),
        (BlockUse::Resource, &file.resource, &file.resource_extents),
    ] {
        let fork = ForkRecord {
            id: file.file_id.get(),
            purpose,
            logical_size: fork.logical_size.get(),
            physical_size: fork.physical_size.get(),
            extents,
        };
        forks.check(&fork, report);
    }
}
