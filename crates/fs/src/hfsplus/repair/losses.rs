//! Comparison of what could be read of a damaged volume with what is left of it.
//!
//! An object is known from its record, or from its thread alone. Of others the number is known:
//! every folder records how many entries it has. The counts in the headers are evidence only where
//! the record of a folder is lost as well.

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::big_endian::U16;

use super::attributes::Values;
use super::forks::{RepairedForks, UsedBlocks, raw};
use super::links::{is_link, is_private};
use super::objects::{AllObjects, RepairedObject, ThreadTarget};
use super::packed::PackedRecord;
use super::salvage::Salvaged;
use super::steps::Subject;
use crate::hfsplus::layout::{
    CatalogKey, CatalogRecord, Cnid, EXTENTS_PER_RECORD, Extent, ExtentsRaw, SECURITY,
    VolumeHeader, extents_of, fork_type, record_flags,
};
use crate::hfsplus::links::{ORPHAN, inode_number};
use crate::hfsplus::unicode::decode_name;
use crate::{Loss, Losses, Lost, UF_COMPRESSED};
use bandsaw_core::Result;

/// Maximum number of folders above an object; threads of lost folders can form a loop.
const MAX_DEPTH: usize = 1000;
/// Names of the files of a journal, which a repair can do without.
const JOURNAL_FILES: [&str; 2] = [".journal", ".journal_info_block"];

/// The damaged trees.
#[derive(Debug)]
pub(super) struct Trees {
    /// True if records of the catalog may be missing.
    pub(super) is_catalog_damaged: bool,
    /// True if records of the attributes tree may be missing.
    pub(super) is_attributes_damaged: bool,
    /// True if a crash cannot have left blocks that the bitmap marks used and nothing states.
    pub(super) is_bitmap_certain: bool,
    /// True if the attributes tree holds more records than its header states.
    pub(super) has_stale_attributes: bool,
    /// Number of records of attributes that the tree's header states and that cannot be found.
    pub(super) missing_attributes: u64,
    /// Records of the catalog that were not used: strays, and those that newer ones contradict.
    pub(super) unused: Vec<PackedRecord>,
    /// The extents of the trees and the bitmap as they were.
    pub(super) own: Vec<Extent>,
}

impl Trees {
    pub(super) fn new(
        catalog: &mut Salvaged,
        attributes: &Salvaged,
        is_bitmap_certain: bool,
    ) -> Self {
        Self {
            is_catalog_damaged: catalog.is_damaged,
            is_attributes_damaged: attributes.is_damaged,
            is_bitmap_certain,
            has_stale_attributes: attributes.has_surplus,
            missing_attributes: attributes.missing,
            unused: std::mem::take(&mut catalog.unused),
            own: Vec::new(),
        }
    }
}

/// The paths of objects, by number.
pub(super) struct Paths<'a> {
    objects: &'a AllObjects,
    /// The objects, by number.
    by_id: HashMap<u32, &'a RepairedObject>,
    /// The removed objects, by serial number.
    removed: HashMap<u32, &'a RepairedObject>,
    /// Number of the folder with the targets of hard links.
    private: Option<u32>,
    /// The links to each target, by its reference.
    links: HashMap<u32, Vec<&'a RepairedObject>>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(objects: &'a AllObjects) -> Self {
        let all = || objects.removed.iter().chain(&objects.all);
        let private = objects.all.iter().find(|object| is_private(object));
        let mut links: HashMap<u32, Vec<_>> = HashMap::new();
        for object in all() {
            if let Some(file) = object.file().filter(is_link) {
                let reference = file.bsd.special.get();
                links.entry(reference).or_default().push(object);
            }
        }
        Self {
            objects,
            by_id: all().map(|object| (object.id(), object)).collect(),
            removed: (objects.removed.iter())
                .map(|object| (object.serial, object))
                .collect(),
            private: private.map(RepairedObject::id),
            links,
        }
    }

    /// Returns the object with this serial number.
    fn serial(&self, serial: u32) -> Option<&'a RepairedObject> {
        // Objects are added in this order, and stay in it.
        let all = &self.objects.all;
        let found = all.binary_search_by_key(&serial, |object| object.serial);
        let found = found.ok().map(|at| &all[at]);
        found.or_else(|| self.removed.get(&serial).copied())
    }

    /// Returns the path of the entry `name` of a folder.
    fn entry(&self, parent: u32, name: &[U16]) -> String {
        let mut names = vec![decode_name(name)];
        let mut at = parent;
        while at != Cnid::ROOT.0 && names.len() < MAX_DEPTH {
            let above = match (self.by_id.get(&at), self.objects.threads.get(&at)) {
                (Some(folder), _) => Some((folder.parent, &folder.name)),
                (None, Some(lead)) => Some((lead.parent, &lead.name)),
                (None, None) => None,
            };
            let Some((parent, name)) = above else {
                names.push(format!("folder {at}"));
                break;
            };
            names.push(decode_name(name));
            at = parent;
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }

    /// Returns the path of an object; that of a link for the target of links.
    fn object(&self, object: &RepairedObject) -> String {
        let shown = self.links_to(object).first().copied().unwrap_or(object);
        match shown.id() == Cnid::ROOT.0 {
            true => "/".to_owned(),
            false => self.entry(shown.parent, &shown.name),
        }
    }

    /// Returns all links to an object.
    fn links_to(&self, object: &RepairedObject) -> &[&'a RepairedObject] {
        inode_number(&object.name)
            .filter(|_| Some(object.parent) == self.private)
            .and_then(|number| self.links.get(&number))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns true if there is a record or a thread of the object with this number.
    fn is_known(&self, id: u32) -> bool {
        self.by_id.contains_key(&id) || self.objects.threads.contains_key(&id)
    }

    /// Returns the path of the object with this number, as far as it is known.
    fn number(&self, id: u32) -> String {
        match (self.by_id.get(&id), self.objects.threads.get(&id)) {
            (Some(object), _) => self.object(object),
            (None, Some(lead)) => self.entry(lead.parent, &lead.name),
            (None, None) => format!("object {id}"),
        }
    }

    /// Returns the text for the subject of a step.
    pub(super) fn subject(&self, subject: &Subject) -> String {
        match subject {
            Subject::Object(serial) => match self.serial(*serial) {
                Some(object) => self.object(object),
                None => format!("object {serial}"),
            },
            Subject::Value(id, name) => format!("{name} of {}", self.number(*id)),
            // The key of a thread is the number of its object.
            Subject::Entry(id, name) if name.is_empty() => self.number(*id),
            Subject::Entry(parent, name) => self.entry(*parent, name),
            Subject::Name(name) => name.clone(),
        }
    }
}

/// Compares the volume as it was read with the repaired one. `ownerless` counts the blocks that are
/// marked used and that nothing states; `None` if that cannot be told.
pub(super) fn find(
    paths: &Paths<'_>,
    trees: &Trees,
    values: &Values,
    forks: &RepairedForks,
    overflow_files: impl Iterator<Item = u32>,
    header: &VolumeHeader,
    ownerless: &dyn Fn() -> Result<Option<u64>>,
) -> Result<Losses> {
    let mut search = LossSearch {
        paths,
        objects: paths.objects,
        losses: Losses::default(),
    };
    let entries = search.entries();
    search.removed();
    search.unreadable(&entries);
    let threads = search.threads(&entries);
    search.unused(trees, &entries);
    drop(entries);
    search.unnamed(trees, header, &threads);
    search.forks(forks, &trees.own);
    search.longer(&forks.longer, header);
    search.attributes(trees, values);
    if trees.is_catalog_damaged {
        for file in overflow_files {
            if !search.paths.is_known(file) && file >= Cnid::FIRST_USER.0 {
                search.add(format!("object {file}"), Lost::File, true);
            }
        }
    }
    search.ownerless(trees, header, ownerless)?;
    search.losses.sort();
    Ok(search.losses)
}

struct LossSearch<'a> {
    paths: &'a Paths<'a>,
    objects: &'a AllObjects,
    losses: Losses,
}

/// The entries that still exist or are listed as lost: folder and name.
type KnownEntries<'a> = HashSet<(u32, &'a [U16])>;

impl<'a> LossSearch<'a> {
    fn add(&mut self, path: String, what: Lost, is_certain: bool) {
        let list = if is_certain {
            &mut self.losses.certain
        } else {
            &mut self.losses.possible
        };
        list.push(Loss { path, what });
    }

    /// Adds a loss of an object, under all of its names.
    fn add_certain(&mut self, object: &RepairedObject, what: &Lost) {
        self.add_object(object, what, true);
    }

    fn add_object(&mut self, object: &RepairedObject, what: &Lost, is_certain: bool) {
        let links = self.paths.links_to(object);
        if links.is_empty() {
            self.add(self.paths.object(object), what.clone(), is_certain);
        }
        for link in links {
            let path = self.paths.entry(link.parent, &link.name);
            self.add(path, what.clone(), is_certain);
        }
    }

    /// Adds contents whose record is lost in a leaf that is readable otherwise: their blocks are
    /// marked used, and nothing states them any more.
    fn ownerless(
        &mut self,
        trees: &Trees,
        header: &VolumeHeader,
        blocks: &dyn Fn() -> Result<Option<u64>>,
    ) -> Result<()> {
        let objects = self.objects;
        // The end of such a record, with its mode and forks, may have been overwritten with zeros.
        let is_cut = |object: &&RepairedObject| {
            let (Some(file), Some(before)) = (object.file(), object.before) else {
                return false;
            };
            // The repair restores the flag where the contents are left.
            let is_compressed = u32::from(file.bsd.owner_flags) & UF_COMPRESSED != 0;
            let is_empty =
                (before.data, before.resource) == (0, 0) && !before.is_compressed && !is_compressed;
            is_empty && !is_link(&file) && (before.is_before_gap || file.bsd.file_mode.get() == 0)
        };
        let cut: Vec<&RepairedObject> = objects.all.iter().filter(is_cut).collect();
        let is_unthreaded = |object: &RepairedObject| {
            object.before.is_some_and(|before| {
                let has_thread =
                    object.is_folder() || before.flags & record_flags::THREAD_EXISTS != 0;
                has_thread && !objects.threads.contains_key(&before.id)
            })
        };
        // An older state of a leaf has objects that were deleted since, with their threads.
        let is_stale = || objects.all.iter().any(is_unthreaded);
        let is_reason = trees.is_catalog_damaged || trees.is_bitmap_certain;
        if cut.is_empty() && !is_reason && !is_stale() {
            return Ok(());
        }
        let Some(blocks) = blocks()?.filter(|&blocks| blocks > 0) else {
            return Ok(());
        };
        for object in &cut {
            self.add_certain(object, &Lost::Contents(None));
        }
        if self.losses.certain.is_empty() {
            let bytes = blocks * u64::from(header.block_size);
            self.add("/".to_owned(), Lost::Unowned(bytes), true);
        }
        Ok(())
    }

    /// Returns the entries in folders that something unread may refer to.
    fn entries(&self) -> KnownEntries<'a> {
        let objects = self.objects.all.iter().chain(&self.objects.removed);
        objects
            .map(|object| (object.parent, &*object.name))
            .collect()
    }

    fn removed(&mut self) {
        for object in &self.objects.removed {
            self.add(self.paths.object(object), Lost::File, true);
        }
    }

    fn unreadable(&mut self, entries: &KnownEntries<'_>) {
        for record in &self.objects.unreadable {
            if !entries.contains(&(record.parent, &*record.name)) {
                let path = self.paths.entry(record.parent, &record.name);
                self.add(path, Lost::File, record.is_live);
            }
        }
    }

    /// Adds objects of which only threads are left, and returns these threads.
    fn threads(&mut self, entries: &KnownEntries<'_>) -> Vec<&'a ThreadTarget> {
        let lost = |(id, lead): (&u32, &'a ThreadTarget)| {
            let is_lost = *id >= Cnid::FIRST_USER.0
                && !self.paths.by_id.contains_key(id)
                && !entries.contains(&(lead.parent, &*lead.name));
            is_lost.then_some(lead)
        };
        let lost: Vec<&ThreadTarget> = self.objects.threads.iter().filter_map(lost).collect();
        for lead in &lost {
            let name = decode_name(&lead.name);
            let is_journal = lead.parent == Cnid::ROOT.0 && JOURNAL_FILES.contains(&&*name);
            let is_private = Some(lead.parent) == self.paths.private;
            let target = inode_number(&lead.name).filter(|_| is_private);
            // The links to a lost target are listed instead.
            let has_links = target.is_some_and(|number| self.paths.links.contains_key(&number));
            if is_journal || has_links || (is_private && name.starts_with(ORPHAN)) {
                continue;
            }
            let what = if lead.folder {
                Lost::Folder
            } else {
                Lost::File
            };
            let path = self.paths.entry(lead.parent, &lead.name);
            self.add(path, what, lead.is_live);
        }
        lost
    }

    /// Adds objects of which only unused records are left.
    fn unused(&mut self, trees: &Trees, entries: &KnownEntries<'_>) {
        for record in &trees.unused {
            let record = record.bytes();
            let Some((key, data)) = CatalogKey::split(&record) else {
                continue;
            };
            let (what, id) = match CatalogRecord::parse(data) {
                Some(CatalogRecord::File(file)) => (Lost::File, file.file_id.get()),
                Some(CatalogRecord::Folder(folder)) => (Lost::Folder, folder.folder_id.get()),
                _ => continue,
            };
            let is_kept =
                entries.contains(&(key.parent.0, key.name)) && self.paths.by_id.contains_key(&id);
            if !is_kept && id >= Cnid::FIRST_USER.0 {
                let path = self.paths.entry(key.parent.0, key.name);
                self.add(path, what, false);
            }
        }
    }

    /// Adds the entries without record and thread.
    fn unnamed(&mut self, trees: &Trees, header: &VolumeHeader, threads: &[&ThreadTarget]) {
        let objects = self.objects;
        let all = || objects.all.iter().chain(&objects.removed);
        let read = || all().filter_map(|object| Some((object, object.before?)));
        let mut found: BTreeMap<u32, u64> = BTreeMap::new();
        let mut count = |parent: u32| *found.entry(parent).or_default() += 1;
        for (object, before) in read() {
            count(before.parent);
            let lead = objects.threads.get(&object.id());
            // The folder's number in one of the two is damaged.
            if let Some(lead) = lead.filter(|lead| lead.parent != before.parent) {
                count(lead.parent);
            }
        }
        objects.deleted_from.iter().copied().for_each(&mut count);
        objects
            .unreadable
            .iter()
            .for_each(|record| count(record.parent));
        threads.iter().for_each(|lead| count(lead.parent));
        let missing: Vec<(&RepairedObject, u64)> = read()
            .filter(|(object, _)| object.is_folder())
            .filter_map(|(object, before)| {
                // The entries refer to the right number, which the repair may have restored.
                let found = [before.id, object.id()].map(|id| found.get(&id).copied());
                let found = found.into_iter().flatten().max().unwrap_or(0);
                let missing = u64::from(before.valence).saturating_sub(found);
                (missing > 0).then_some((object, missing))
            })
            .collect();
        let raw = &header.raw;
        let known = read().count() + threads.len() + objects.unreadable.len();
        let known = known + objects.deleted_from.len();
        let total: u64 = missing.iter().map(|(_, missing)| missing).sum();
        // A number that is too high in one folder of a whole tree is that number's fault, unless
        // the volume header tells of as many objects. It does not count the root folder.
        let stated = u64::from(raw.file_count.get()) + u64::from(raw.folder_count.get()) + 1;
        if trees.is_catalog_damaged || stated == known as u64 + total {
            for (folder, missing) in &missing {
                let path = self.paths.object(folder);
                self.add(path, Lost::Entries(Some(*missing)), true);
            }
        }
        let restored = objects.all.iter().filter(|object| {
            object.before.is_none() && object.is_folder() && found.contains_key(&object.id())
        });
        let restored: Vec<_> = restored.collect();
        if trees.is_catalog_damaged && !restored.is_empty() {
            let is_file = |object: &&RepairedObject| !object.is_folder();
            let files = read().filter(|(object, _)| is_file(object)).count()
                + threads.iter().filter(|lead| !lead.folder).count()
                + objects.unreadable.len()
                + objects.deleted_from.len();
            // Only a count of exactly what is known rules out that more is missing.
            let is_all_known = match total {
                0 => u64::from(raw.file_count.get()) == files as u64,
                _ => stated == known as u64 + restored.len() as u64 + total,
            };
            if !is_all_known {
                for folder in restored {
                    let path = self.paths.object(folder);
                    self.add(path, Lost::Entries(None), true);
                }
            }
        }
    }

    /// Adds files that became shorter, and those that state the same blocks.
    fn forks(&mut self, forks: &RepairedForks, own: &[Extent]) {
        for object in &self.objects.all {
            let (Some(file), Some(before)) = (object.file(), object.before) else {
                continue;
            };
            let (data, resource) = (
                file.data_fork.logical_size.get(),
                file.resource_fork.logical_size.get(),
            );
            let (from, to) = (before.data, data);
            if data < before.data {
                let what = match data {
                    0 => Lost::Contents(Some(from)),
                    _ => Lost::End { from, to },
                };
                self.add_certain(object, &what);
            }
            if resource < before.resource {
                let (from, to) = (before.resource, resource);
                self.add_certain(object, &Lost::Resource { from, to });
            }
        }
        let mut places = UsedBlocks::default();
        own.iter().for_each(|&extent| places.insert(extent));
        for (serial, extents) in &forks.moved {
            let object = self.paths.serial(*serial);
            if let Some(object) = object.filter(|object| !self.is_twin(object, extents)) {
                self.add_certain(object, &Lost::Shared);
                extents.iter().for_each(|&extent| places.insert(extent));
            }
        }
        let overlaps =
            |extents: &ExtentsRaw| extents_of(extents).any(|extent| places.overlaps(extent));
        let further = forks
            .overflow
            .iter()
            .filter(|(_, extents)| overlaps(extents));
        let further: HashSet<u32> = further.map(|((file, ..), _)| *file).collect();
        for object in &self.objects.all {
            let Some(file) = object.file() else { continue };
            if overlaps(&file.data_fork.extents)
                || overlaps(&file.resource_fork.extents)
                || further.contains(&object.id())
            {
                self.add_certain(object, &Lost::Shared);
            }
        }
    }

    /// Adds files whose record is of an earlier, shorter state.
    fn longer(&mut self, longer: &[(u32, u8, u64)], header: &VolumeHeader) {
        for &(serial, kind, blocks) in longer {
            let found = self.paths.serial(serial);
            let Some((object, file)) = found.and_then(|object| Some((object, object.file()?)))
            else {
                continue;
            };
            let from = blocks * u64::from(header.block_size);
            let what = match (kind, file.data_fork.logical_size.get()) {
                (fork_type::DATA, 0) => Lost::Contents(Some(from)),
                (fork_type::DATA, to) => Lost::End { from, to },
                _ => Lost::Resource {
                    from,
                    to: file.resource_fork.logical_size.get(),
                },
            };
            self.add_certain(object, &what);
        }
    }

    /// Returns true if the blocks of a file are stated by another record of the same file alone.
    fn is_twin(&self, object: &RepairedObject, extents: &[Extent]) -> bool {
        let first = raw(extents.get(..EXTENTS_PER_RECORD).unwrap_or(extents));
        self.objects.all.iter().any(|other| {
            let is_same = other.serial != object.serial
                && other.before.map(|before| before.id) == object.before.map(|before| before.id);
            is_same
                && other.file().is_some_and(|file| {
                    file.data_fork.extents == first || file.resource_fork.extents == first
                })
        })
    }

    /// Adds lost attributes, and the contents of compressed files, which an attribute describes.
    fn attributes(&mut self, trees: &Trees, values: &Values) {
        let mut named = HashSet::new();
        for lost in &values.lost {
            named.insert(lost.file);
            // A deleted file's attribute in an older state of a leaf, which has one record more.
            let is_stale = trees.has_stale_attributes
                && !trees.is_catalog_damaged
                && !self.paths.is_known(lost.file);
            let is_certain = lost.is_live && !is_stale;
            let what = Lost::Attribute(lost.name.clone());
            match self.paths.by_id.get(&lost.file) {
                Some(object) => self.add_object(object, &what, is_certain),
                None => self.add(self.paths.number(lost.file), what, is_certain),
            }
        }
        let mut missing = trees.missing_attributes;
        let mut without = Vec::new();
        for object in &self.objects.all {
            let Some(before) = object.before else {
                continue;
            };
            let owner = values.owners.get(&object.id()).copied().unwrap_or_default();
            let has_any = values.owners.contains_key(&object.id());
            if before.is_compressed && !owner.is_compressed && before.data == 0 {
                self.add_certain(object, &Lost::Contents(None));
                missing = missing.saturating_sub(1);
            } else if before.flags & record_flags::HAS_ATTRIBUTES != 0 && !has_any {
                if !named.contains(&object.id()) {
                    without.push(object);
                }
            } else if before.flags & record_flags::HAS_SECURITY != 0
                && !owner.has_security
                && trees.is_attributes_damaged
                && !named.contains(&object.id())
            {
                self.add_certain(object, &Lost::Attribute(SECURITY.to_owned()));
                missing = missing.saturating_sub(1);
            }
        }
        // A single flag in a record against a whole tree is wrong; two confirm each other.
        if trees.is_attributes_damaged || without.len() > 1 {
            for object in without {
                self.add_certain(object, &Lost::Attributes);
                missing = missing.saturating_sub(1);
            }
        }
        if missing > 0 {
            self.add("/".to_owned(), Lost::AnyAttributes(missing), true);
        }
    }
}
