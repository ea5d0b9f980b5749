//! Check of hard links: names, their targets, and the chains between them (§7.7, §7.8, §17).

use std::collections::HashMap;

use zerocopy::big_endian::U16;

use super::report::{Report, numbered, wrong};
use crate::hfsplus::layout::{
    CatalogKey, Cnid, FILE_LINK_TYPE, FileRaw, FolderRaw, mode_type, record_flags,
};
use crate::hfsplus::links::{
    FILES_FOLDER, FOLDER_INODE, FOLDERS_FOLDER, INODE, ORPHAN, inode_number, number_after,
};
use crate::hfsplus::unicode::decode_name;

const LAYER: &str = "hfs+ hard links";

/// A name of a file or folder with several names.
#[derive(Debug, Clone, Copy)]
struct HardLink {
    id: u32,
    reference: u32,
    previous: u32,
    next: u32,
    created: u32,
    chained: bool,
    /// True if it has contents of its own, which a link never has.
    filled: bool,
}

impl HardLink {
    fn of(file: &FileRaw) -> Self {
        Self {
            id: file.file_id.get(),
            reference: file.bsd.special.get(),
            previous: file.bsd.owner_id.get(),
            next: file.bsd.group_id.get(),
            created: file.dates.create.get(),
            chained: file.flags.get() & record_flags::HAS_LINK_CHAIN != 0,
            filled: file.data_fork.total_blocks.get() != 0
                || file.resource_fork.total_blocks.get() != 0,
        }
    }
}

/// The target of links.
#[derive(Debug, Clone, Copy)]
struct Target {
    id: u32,
    /// For files: the recorded number of names, and the first link of the chain.
    count: u32,
    first: u32,
    chained: bool,
}

/// A private folder.
#[derive(Debug, Clone, Copy)]
struct PrivateFolder {
    id: Cnid,
    created: u32,
}

/// All hard links of a volume.
#[derive(Debug, Default)]
pub(super) struct Links {
    root_created: u32,
    files: Option<PrivateFolder>,
    folders: Option<PrivateFolder>,
    file_links: Vec<HardLink>,
    folder_links: Vec<HardLink>,
    /// Targets by the number in their names.
    inodes: HashMap<u32, Target>,
    folder_inodes: HashMap<u32, Target>,
}

impl Links {
    /// Adds a folder. Records must be added in catalog order, so that the root precedes its
    /// entries.
    pub(super) fn see_folder(
        &mut self,
        key: &CatalogKey<'_>,
        folder: &FolderRaw,
        report: &mut Report,
    ) {
        let id = Cnid(folder.folder_id.get());
        let private = PrivateFolder {
            id,
            created: folder.dates.create.get(),
        };
        if key.parent == Cnid::ROOT_PARENT {
            self.root_created = private.created;
        } else if key.parent == Cnid::ROOT && is(key.name, FILES_FOLDER) {
            self.files = Some(private);
        } else if key.parent == Cnid::ROOT && is(key.name, FOLDERS_FOLDER) {
            self.folders = Some(private);
        } else if self.folders.is_some_and(|folders| folders.id == key.parent)
            && let Some(number) = number_after(FOLDER_INODE, key.name)
        {
            let chained = folder.flags.get() & record_flags::HAS_LINK_CHAIN != 0;
            self.folder_inodes.insert(
                number,
                Target {
                    id: id.0,
                    count: 0,
                    first: 0,
                    chained,
                },
            );
        } else if folder.flags.get() & record_flags::HAS_LINK_CHAIN != 0 {
            report.warning(
                wrong(
                    LAYER,
                    format!(
                        "folder {id} is marked as part of a link chain, but is not the target of \
                         a link"
                    ),
                )
                .about(numbered(id)),
            );
        }
    }

    /// Adds a file; returns true if it is a link to a folder.
    pub(super) fn see_file(
        &mut self,
        key: &CatalogKey<'_>,
        file: &FileRaw,
        report: &mut Report,
    ) -> bool {
        let id = file.file_id.get();
        if self.files.is_some_and(|files| files.id == key.parent) {
            self.see_inode(key, file, report);
        } else if file.kind() == FILE_LINK_TYPE {
            self.file_links.push(HardLink::of(file));
        } else if file.is_folder_link() {
            self.folder_links.push(HardLink::of(file));
            return true;
        } else {
            if file.bsd.mode_type() == mode_type::FILE && file.bsd.special.get() > 1 {
                report.warning(
                    wrong(
                        LAYER,
                        format!(
                            "file {id} records {} names, but is not a hard link: expected one",
                            file.bsd.special
                        ),
                    )
                    .about(numbered(Cnid(id))),
                );
            }
            if file.flags.get() & record_flags::HAS_LINK_CHAIN != 0 {
                report.warning(
                    wrong(
                        LAYER,
                        format!("file {id} is marked as part of a link chain, but is not a link"),
                    )
                    .about(numbered(Cnid(id))),
                );
            }
        }
        false
    }

    fn see_inode(&mut self, key: &CatalogKey<'_>, file: &FileRaw, report: &mut Report) {
        let id = file.file_id.get();
        if let Some(number) = inode_number(key.name) {
            let chained = file.flags.get() & record_flags::HAS_LINK_CHAIN != 0;
            let target = Target {
                id,
                count: file.bsd.special.get(),
                first: file.first_link.get(),
                chained,
            };
            self.inodes.insert(number, target);
        } else if number_after(ORPHAN, key.name).is_some() {
            report.warning(
                wrong(
                    LAYER,
                    format!("file {id} was deleted while it was open, and still takes space"),
                )
                .about(numbered(Cnid(id))),
            );
        } else {
            report.warning(wrong(
                LAYER,
                format!(
                    "unexpected entry {:?} in the private folder of hard links",
                    decode_name(key.name)
                ),
            ));
        }
    }

    /// Adds a link to each target among `wanted`: the number of the target with that of the link.
    /// Needs the order that [`finish`](Self::finish) makes.
    pub(super) fn add_names(&self, wanted: &mut HashMap<Cnid, Cnid>) {
        for (links, targets) in [
            (&self.file_links, &self.inodes),
            (&self.folder_links, &self.folder_inodes),
        ] {
            for (reference, target) in targets {
                let Some(name) = wanted.get_mut(&Cnid(target.id)) else {
                    continue;
                };
                let at = links.partition_point(|link| link.reference < *reference);
                if let Some(link) = links.get(at).filter(|link| link.reference == *reference) {
                    *name = Cnid(link.id);
                }
            }
        }
    }

    /// Checks links and targets against each other.
    pub(super) fn finish(&mut self, report: &mut Report) {
        let dates = [
            Some(self.root_created),
            self.files.map(|files| files.created),
        ];
        // A file that has contents and only the type of a link is a regular file; Apple's checker
        // stops there.
        self.file_links.retain(|link| {
            let is_link = !link.filled || dates.contains(&Some(link.created));
            if !is_link {
                report.warning(
                    wrong(
                        LAYER,
                        format!(
                            "file {} has the type of a hard link, but contents of its own",
                            link.id
                        ),
                    )
                    .about(numbered(Cnid(link.id))),
                );
            }
            is_link
        });
        for link in &self.file_links {
            if link.filled {
                report.warning(
                    wrong(
                        LAYER,
                        format!(
                            "hard link {} has contents of its own, expected none",
                            link.id
                        ),
                    )
                    .about(numbered(Cnid(link.id))),
                );
            }
            if !dates.contains(&Some(link.created)) {
                let message = format!(
                    "link {} does not have the creation date of links on this volume, and is \
                     treated as a file",
                    link.id
                );
                report.damage(wrong(LAYER, message).about(numbered(Cnid(link.id))));
            }
        }
        check_chains(&mut self.file_links, &self.inodes, INODE, true, report);
        check_chains(
            &mut self.folder_links,
            &self.folder_inodes,
            FOLDER_INODE,
            false,
            report,
        );
    }
}

/// Checks that each link has a target, and that each target has the number of links that it records
/// and a complete chain.
fn check_chains(
    links: &mut [HardLink],
    targets: &HashMap<u32, Target>,
    prefix: &str,
    counted: bool,
    report: &mut Report,
) {
    links.sort_unstable_by_key(|link| (link.reference, link.id));
    for group in links.chunk_by(|a, b| a.reference == b.reference) {
        let Some(reference) = group.first().map(|link| link.reference) else {
            continue;
        };
        let Some(target) = targets.get(&reference) else {
            for link in group {
                report.damage(
                    wrong(
                        LAYER,
                        format!(
                            "link {} points to {prefix}{reference}, which does not exist",
                            link.id
                        ),
                    )
                    .about(numbered(Cnid(link.id))),
                );
            }
            continue;
        };
        if counted && target.count as usize != group.len() {
            let message = format!(
                "{prefix}{reference} records {} links, but {} exist",
                target.count,
                group.len()
            );
            report.warning(wrong(LAYER, message).about(numbered(Cnid(target.id))));
        }
        let in_chain = |link: &HardLink| link.chained || link.previous != 0 || link.next != 0;
        if counted
            && (target.chained || group.iter().any(in_chain))
            && !(target.chained && group.iter().all(|link| link.chained))
        {
            let message =
                format!("only some of {prefix}{reference} and its links are marked as a chain");
            report.warning(wrong(LAYER, message).about(numbered(Cnid(target.id))));
        }
        if target.chained && group.iter().all(|link| link.chained) {
            let first = if counted {
                target.first
            } else {
                group
                    .iter()
                    .find(|link| link.previous == 0)
                    .map_or(0, |link| link.id)
            };
            check_chain(group, first, &format!("{prefix}{reference}"), report);
        }
    }
    let mut orphans: Vec<_> = targets
        .iter()
        .filter(|(reference, _)| {
            links
                .binary_search_by_key(reference, |link| &link.reference)
                .is_err()
        })
        .collect();
    orphans.sort_unstable_by_key(|(reference, _)| **reference);
    for (reference, target) in orphans {
        report.warning(
            wrong(
                LAYER,
                format!(
                    "no link points to {prefix}{reference} (object {})",
                    target.id
                ),
            )
            .about(numbered(Cnid(target.id))),
        );
    }
}

/// Checks that each link of the chain refers to the previous and the next one, and that the chain
/// contains all links.
fn check_chain(group: &[HardLink], first: u32, target: &str, report: &mut Report) {
    let (mut previous, mut at, mut met) = (0, first, 0);
    while at != 0 && met <= group.len() {
        // Sorted by id within one reference.
        let Ok(place) = group.binary_search_by_key(&at, |link| link.id) else {
            report.warning(
                wrong(
                    LAYER,
                    format!("the chain of {target} points to {at}, which is not a link to it"),
                )
                .about(numbered(Cnid(first))),
            );
            return;
        };
        let link = group[place];
        if link.previous != previous {
            let message = format!(
                "link {at} records {} as its predecessor in the chain of {target}, expected \
                 {previous}",
                link.previous
            );
            report.warning(wrong(LAYER, message).about(numbered(Cnid(at))));
        }
        (previous, at) = (at, link.next);
        met += 1;
    }
    if met != group.len() {
        report.warning(
            wrong(
                LAYER,
                format!(
                    "the chain of {target} does not contain each of its {} links once",
                    group.len()
                ),
            )
            .about(numbered(Cnid(first))),
        );
    }
}

fn is(name: &[U16], expected: &str) -> bool {
    name.iter()
        .map(|unit| unit.get())
        .eq(expected.encode_utf16())
}
