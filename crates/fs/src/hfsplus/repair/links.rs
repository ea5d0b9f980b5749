//! Repair of hard links to files: links without targets, targets without links, counts and chains
//! (§7.7).
//!
//! Links to folders are not changed: the first link of a chain is stored in an attribute, and no
//! damaged volume with such links was available.

use std::collections::{BTreeMap, HashMap, HashSet};

use zerocopy::big_endian::{U16, U32};

use super::objects::{AllObjects, RepairedObject};
use super::steps::Steps;
use crate::hfsplus::layout::{Cnid, FILE_LINK_TYPE, FileRaw, ForkRaw, mode_type, record_flags};
use crate::hfsplus::links::{FILES_FOLDER, FOLDERS_FOLDER, ORPHAN, inode_number};
use crate::hfsplus::unicode::{decode_name, units};

/// Bytes of the smallest block that a volume can have.
const SMALLEST_BLOCK: u64 = 512;

/// Returns the numbers of the files that are links to folders.
pub(super) fn folder_links(objects: &AllObjects) -> HashSet<u32> {
    let is_link =
        |object: &&RepairedObject| object.file().is_some_and(|file| file.is_folder_link());
    objects
        .all
        .iter()
        .filter(is_link)
        .map(RepairedObject::id)
        .collect()
}

/// Repairs links to files.
pub(super) fn repair(objects: &mut AllObjects, steps: &mut Steps) {
    clear_forks(objects, steps);
    restore_types(objects, steps);
    correct_counts_elsewhere(objects, steps);
    restore_private_folder(objects, steps);
    let Some(at) = objects.all.iter().position(is_private) else {
        objects.remove(|object| {
            let dangling = object.file().is_some_and(|file| is_link(&file));
            if dangling {
                steps.on("delete links without a target", object.serial);
            }
            dangling
        });
        return;
    };
    let private = objects.all[at].id();
    let created = date_of_links(objects, at, private);
    restore_names(objects, private, steps);
    // Files that were deleted while open are removed, which frees their blocks.
    objects.delete(|object| {
        let left = object.parent == private
            && !object.is_folder()
            && decode_name(&object.name).starts_with(ORPHAN);
        if left {
            steps.on("delete files that were deleted while open", object.serial);
        }
        left
    });
    let targets: BTreeMap<u32, usize> = objects
        .all
        .iter()
        .enumerate()
        .filter(|(_, object)| object.parent == private && !object.is_folder())
        .filter_map(|(at, object)| Some((inode_number(&object.name)?, at)))
        .collect();
    let mut links: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut dangling = HashSet::new();
    for (at, object) in objects
        .all
        .iter()
        .enumerate()
        .filter(|(_, object)| object.parent != private)
    {
        let Some(file) = object.file().filter(is_link) else {
            continue;
        };
        let reference = file.bsd.special.get();
        if targets.contains_key(&reference) {
            links.entry(reference).or_default().push(at);
        } else {
            steps.on("delete links without a target", object.serial);
            dangling.insert(at);
        }
    }
    let mut orphans = Vec::new();
    for (&reference, &target) in &targets {
        match links.get(&reference) {
            Some(group) => chain(objects, target, group, created, steps),
            None => orphans.push(target),
        }
    }
    orphans.sort_unstable();
    for at in orphans {
        let home = objects.lost_and_found(steps);
        let object = &mut objects.all[at];
        steps.on("move files without a name to lost+found", object.serial);
        object.parent = home;
        object.set_flags(record_flags::HAS_LINK_CHAIN, 0);
        object.edit_file(|file| {
            file.first_link = 0.into();
            file.bsd.special = 1.into();
        });
    }
    let mut at = 0;
    objects.remove(|_| {
        at += 1;
        dangling.contains(&(at - 1))
    });
}

/// Renames files in the private folder whose names are not those of targets to the name in their
/// threads, or moves them to lost+found.
fn restore_names(objects: &mut AllObjects, private: u32, steps: &mut Steps) {
    let is_right =
        |name: &[U16]| inode_number(name).is_some() || decode_name(name).starts_with(ORPHAN);
    let stray = |object: &RepairedObject| {
        object.parent == private && !object.is_folder() && !is_right(&object.name)
    };
    let found: Vec<usize> = (0..objects.all.len())
        .filter(|&at| stray(&objects.all[at]))
        .collect();
    for at in found {
        let name = objects
            .name_in_thread(&objects.all[at])
            .filter(|name| inode_number(name).is_some())
            .map(Box::<[U16]>::from);
        let is_taken = |name: &[U16]| {
            objects
                .all
                .iter()
                .any(|other| other.parent == private && *other.name == *name)
        };
        match name.filter(|name| !is_taken(name)) {
            Some(name) => {
                steps.on("restore names from threads", objects.all[at].serial);
                objects.all[at].name = name;
            }
            None => {
                let home = objects.lost_and_found(steps);
                steps.on(
                    "move objects that are not hard-linked files to lost+found",
                    objects.all[at].serial,
                );
                objects.all[at].parent = home;
            }
        }
    }
}

pub(super) fn is_private(object: &RepairedObject) -> bool {
    object.is_folder() && object.parent == Cnid::ROOT.0 && *object.name == *units(FILES_FOLDER)
}

/// Returns true for a link. Any file can be given this type, so a file with contents is not treated
/// as a link, and never deleted as one.
pub(super) fn is_link(file: &FileRaw) -> bool {
    file.kind() == FILE_LINK_TYPE
        && file.data_fork.total_blocks.get() == 0
        && file.resource_fork.total_blocks.get() == 0
}

/// Returns the numbers of the folders that hold the targets of links.
fn private_folders(objects: &AllObjects) -> HashSet<u32> {
    let private = objects.all.iter().filter(|object| is_private(object));
    private.map(RepairedObject::id).collect()
}

/// Clears the forks of links whose numbers are those of no fork: a link has no contents, and its
/// chain and its target tell that it is one.
fn clear_forks(objects: &mut AllObjects, steps: &mut Steps) {
    let private = private_folders(objects);
    let targets: HashSet<u32> = objects
        .all
        .iter()
        .filter(|object| private.contains(&object.parent))
        .filter_map(|object| inode_number(&object.name))
        .collect();
    let volume_len = objects.volume_len;
    let is_impossible = |fork: &ForkRaw| {
        fork.logical_size.get() > volume_len
            && u64::from(fork.total_blocks.get()) > volume_len / SMALLEST_BLOCK
    };
    for object in &mut objects.all {
        let is_elsewhere = !private.contains(&object.parent);
        let Some(file) = object.file().filter(|_| is_elsewhere) else {
            continue;
        };
        let forks = [&file.data_fork, &file.resource_fork];
        let is_damaged = file.kind() == FILE_LINK_TYPE
            && file.flags.get() & record_flags::HAS_LINK_CHAIN != 0
            && targets.contains(&file.bsd.special.get())
            && forks.iter().any(|fork| is_impossible(fork))
            && forks
                .iter()
                .all(|fork| fork.total_blocks.get() == 0 || is_impossible(fork));
        if is_damaged {
            object.edit_file(|file| (file.data_fork, file.resource_fork) = Default::default());
            if let Some(before) = &mut object.before {
                (before.data, before.resource) = (0, 0);
            }
            steps.on("clear the forks of hard links", object.serial);
        }
    }
}

/// Restores the type of links that lost it: files without contents that are in a chain, and refer
/// to a target.
fn restore_types(objects: &mut AllObjects, steps: &mut Steps) {
    let Some(private) = objects.all.iter().find(|object| is_private(object)) else {
        return;
    };
    let private = private.id();
    let targets: HashSet<u32> = objects
        .all
        .iter()
        .filter(|object| object.parent == private)
        .filter_map(|object| inode_number(&object.name))
        .collect();
    for object in objects
        .all
        .iter_mut()
        .filter(|object| object.parent != private)
    {
        let is_lost = object.file().is_some_and(|file| {
            file.flags.get() & record_flags::HAS_LINK_CHAIN != 0
                && !file.is_folder_link()
                && file.kind() != FILE_LINK_TYPE
                && file.data_fork.total_blocks.get() == 0
                && file.resource_fork.total_blocks.get() == 0
                && targets.contains(&file.bsd.special.get())
        });
        if is_lost {
            object.edit_file(|file| {
                (file.user_info.file_type, file.user_info.creator) = FILE_LINK_TYPE;
            });
            steps.on("restore the type of hard links", object.serial);
        }
    }
}

/// Corrects objects that are neither a link nor the target of links: they have one name, are in no
/// chain, and do not have the type of a link.
fn correct_counts_elsewhere(objects: &mut AllObjects, steps: &mut Steps) {
    let private = private_folders(objects);
    for object in objects
        .all
        .iter_mut()
        .filter(|object| !object.is_folder() && !private.contains(&object.parent))
    {
        let is_target = inode_number(&object.name).is_some();
        let was_wrong = object.edit_file(|file| {
            let mut wrong = false;
            if is_link(file) {
                return false;
            }
            if !is_target && file.bsd.mode_type() == mode_type::FILE && file.bsd.special.get() > 1 {
                file.bsd.special = 1.into();
                wrong = true;
            }
            let is_chained = file.flags.get() & record_flags::HAS_LINK_CHAIN != 0;
            if !is_target && is_chained && !file.is_folder_link() {
                file.flags = (file.flags.get() & !record_flags::HAS_LINK_CHAIN).into();
                file.first_link = 0.into();
                wrong = true;
            }
            if file.kind() == FILE_LINK_TYPE {
                (file.user_info.file_type, file.user_info.creator) = Default::default();
                wrong = true;
            }
            wrong
        });
        if was_wrong == Some(true) {
            steps.on("correct counts and chains of hard links", object.serial);
        }
    }
    let is_of_links = |object: &RepairedObject| *object.name == *units(FOLDERS_FOLDER);
    let targets: HashSet<u32> = objects
        .all
        .iter()
        .filter(|object| object.parent == Cnid::ROOT.0 && is_of_links(object))
        .map(RepairedObject::id)
        .collect();
    for object in objects
        .all
        .iter_mut()
        .filter(|object| object.is_folder() && !targets.contains(&object.parent))
    {
        if object.set_flags(record_flags::HAS_LINK_CHAIN, 0) {
            steps.on("correct counts and chains of hard links", object.serial);
        }
    }
}

/// Restores the private folder if links exist and it has lost its name.
fn restore_private_folder(objects: &mut AllObjects, steps: &mut Steps) {
    let wanted = objects
        .all
        .iter()
        .any(|object| object.file().is_some_and(|file| is_link(&file)));
    if !wanted || objects.all.iter().any(is_private) {
        return;
    }
    let parent = objects
        .all
        .iter()
        .find(|object| inode_number(&object.name).is_some() && !object.is_folder())
        .map(|object| object.parent);
    let Some(parent) = parent.filter(|&parent| parent != Cnid::ROOT.0) else {
        return;
    };
    if let Some(folder) = objects
        .all
        .iter_mut()
        .find(|object| object.is_folder() && object.id() == parent)
    {
        folder.parent = Cnid::ROOT.0;
        folder.name = units(FILES_FOLDER).into();
        steps.add("restore the folder of hard-linked files");
    }
}

/// Returns the creation date of links, which is that of the private folder. If that folder had to
/// be restored, it takes the date from a link.
fn date_of_links(objects: &mut AllObjects, folder: usize, private: u32) -> U32 {
    let in_use = objects
        .all
        .iter()
        .filter(|object| object.parent != private)
        .filter_map(RepairedObject::file)
        .find(is_link)
        .map(|file| file.dates.create);
    let created = objects.all[folder].edit_folder(|raw| {
        if raw.dates.create.get() == 0 {
            raw.dates.create = in_use.unwrap_or(raw.dates.create);
        }
        raw.dates.create
    });
    created.unwrap_or_default()
}

/// Makes a target and its links consistent: the count, the dates by which links are recognized, and
/// the chain, if there is one.
fn chain(
    objects: &mut AllObjects,
    target: usize,
    group: &[usize],
    created: U32,
    steps: &mut Steps,
) {
    let ids: Vec<u32> = group.iter().map(|&at| objects.all[at].id()).collect();
    let chained = |object: &RepairedObject| {
        object
            .file()
            .is_some_and(|file| file.flags.get() & record_flags::HAS_LINK_CHAIN != 0)
    };
    let in_chain = |object: &RepairedObject| {
        let named = |file: &FileRaw| file.bsd.owner_id.get() != 0 || file.bsd.group_id.get() != 0;
        chained(object) || object.file().is_some_and(|file| named(&file))
    };
    // Links created by systems before 10.5 have no chain; a chain with missing links is completed.
    let with_chain =
        chained(&objects.all[target]) || group.iter().any(|&at| in_chain(&objects.all[at]));
    let marked = chained(&objects.all[target]) && group.iter().all(|&at| chained(&objects.all[at]));
    let sound = marked && is_sound(objects, target, group);
    if with_chain && !marked {
        for &at in group.iter().chain([&target]) {
            objects.all[at].set_flags(record_flags::HAS_LINK_CHAIN, record_flags::HAS_LINK_CHAIN);
        }
    }
    let count = u32::try_from(group.len()).unwrap_or(u32::MAX);
    let restores_chain = with_chain && !sound;
    let was_wrong = objects.all[target].edit_file(|file| {
        let is_wrong = file.bsd.special.get() != count;
        file.bsd.special = count.into();
        if restores_chain {
            file.first_link = ids.first().copied().unwrap_or(0).into();
        }
        is_wrong || restores_chain
    });
    for (place, &at) in group.iter().enumerate() {
        objects.all[at].edit_file(|link| {
            if restores_chain {
                link.bsd.owner_id = place
                    .checked_sub(1)
                    .and_then(|before| ids.get(before))
                    .copied()
                    .unwrap_or(0)
                    .into();
                link.bsd.group_id = ids.get(place + 1).copied().unwrap_or(0).into();
            }
            // The date of the root folder is valid too but not known here; that of the private
            // folder is always valid.
            link.dates.create = created;
        });
    }
    if was_wrong == Some(true) {
        steps.on(
            "correct counts and chains of hard links",
            objects.all[target].serial,
        );
    }
}

/// Returns true if the chain of a target contains all of its links, with correct references in both
/// directions.
fn is_sound(objects: &AllObjects, target: usize, group: &[usize]) -> bool {
    let links: HashMap<u32, FileRaw> = group
        .iter()
        .filter_map(|&at| Some((objects.all[at].id(), objects.all[at].file()?)))
        .collect();
    let Some(file) = objects.all[target].file() else {
        return false;
    };
    let (mut previous, mut at, mut met) = (0, file.first_link.get(), 0);
    while at != 0 && met < links.len() {
        let Some(link) = links
            .get(&at)
            .filter(|link| link.bsd.owner_id.get() == previous)
        else {
            return false;
        };
        (previous, at) = (at, link.bsd.group_id.get());
        met += 1;
    }
    at == 0 && met == links.len()
}
