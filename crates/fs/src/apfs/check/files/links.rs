//! Names against inodes: every entry refers to an object, every object has its names, and hard
//! links have their records (§8.6).

use super::{Files, LAYER};
use crate::apfs::check::report::{Report, numbered, wrong};
use crate::apfs::layout::{Counts, FileId, mode_type};

/// Type of entries that hide an entry of an underlying volume.
const WHITEOUT: u16 = 0xE;

/// The state gathered for an object from its inode and from the entries that refer to it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ObjectState {
    /// Type bits of its mode; 0 without an inode.
    kind: u16,
    /// Type in entries; 0 without an entry.
    entry_kind: u16,
    /// Number of names according to its inode.
    recorded: u32,
    /// Number of entries that refer to it.
    names: u32,
    /// Number of sibling-link records.
    pub(super) records: u32,
    /// Hashes of the name in its inode, and of the last entry that refers to it.
    primary: u64,
    found: u64,
    /// Parent folder according to its inode.
    parent: u64,
    /// Folder of the last entry that refers to it.
    folder: u64,
    /// True if entries disagree about its type.
    mixed: bool,
    way: PathToRoot,
}

/// The result of following parents up to the root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum PathToRoot {
    #[default]
    Unknown,
    /// On the path that is being followed.
    Passed,
    Rooted,
    Lost,
}

impl ObjectState {
    /// Records the fields of an inode.
    pub(super) fn inode(&mut self, kind: u16, primary: u64, parent: FileId, links: u32) {
        (self.kind, self.primary, self.parent, self.recorded) = (kind, primary, parent.0, links);
    }

    /// Records an entry that refers to it.
    pub(super) fn name(&mut self, kind: u16, hash: u64, folder: FileId) {
        self.mixed |= self.names > 0 && self.entry_kind != kind;
        (self.entry_kind, self.found, self.folder) = (kind, hash, folder.0);
        self.names = self.names.saturating_add(1);
    }

    fn is_orphan(&self) -> bool {
        self.names > 0 && self.folder == FileId::PRIVATE_DIR.0
    }
}

/// The records about one name of a file with several names: object and name hash each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sibling {
    pub(super) entry: Option<(u64, u64)>,
    pub(super) link: Option<(u64, u64)>,
    pub(super) map: Option<u64>,
}

impl Files {
    /// Compares objects and names with each other; counts the objects.
    pub(super) fn check_links(&mut self, report: &mut Report<'_>) -> Counts {
        for needed in [FileId::ROOT, FileId::PRIVATE_DIR] {
            if self
                .objects
                .get(&needed.0)
                .is_none_or(|known| known.kind != mode_type::FOLDER)
            {
                report.damage(wrong(
                    LAYER,
                    format!("the required folder {needed:#x} does not exist"),
                ));
            }
        }
        let mut ids: Vec<u64> = self.objects.keys().copied().collect();
        ids.sort_unstable();
        let mut counts = Counts::default();
        for &id in &ids {
            let Some(known) = self.objects.get(&id).copied() else {
                continue;
            };
            count(&mut counts, id, &known);
            check_object(id, &known, report);
        }
        self.check_roots(&ids, report);
        self.check_siblings(report);
        counts
    }

    /// Checks that every folder is below the root, so that its chain of parents neither ends
    /// elsewhere nor contains a cycle.
    fn check_roots(&mut self, ids: &[u64], report: &mut Report<'_>) {
        for root in [FileId::ROOT.0, FileId::PRIVATE_DIR.0] {
            if let Some(known) = self.objects.get_mut(&root) {
                known.way = PathToRoot::Rooted;
            }
        }
        let (mut lost, mut first) = (0_u64, 0);
        let mut passed = Vec::new();
        for &id in ids {
            let mut at = id;
            let end = loop {
                let Some(known) = self.objects.get_mut(&at) else {
                    break PathToRoot::Lost;
                };
                match known.way {
                    // Only folders have descendants.
                    PathToRoot::Unknown if known.kind == mode_type::FOLDER && known.names > 0 => {
                        known.way = PathToRoot::Passed;
                        passed.push(at);
                        at = known.folder;
                    }
                    PathToRoot::Rooted => break PathToRoot::Rooted,
                    _ => break PathToRoot::Lost,
                }
            };
            for id in passed.drain(..) {
                if end == PathToRoot::Lost {
                    first = if lost == 0 { id } else { first };
                    lost += 1;
                }
                if let Some(known) = self.objects.get_mut(&id) {
                    known.way = end;
                }
            }
        }
        if lost > 0 {
            report.damage(wrong(
                LAYER,
                format!(
                    "{lost} folders cannot be reached from the root folder; the first is {first:#x}"
                ),
            ).about(numbered(first)));
        }
    }

    fn check_siblings(&self, report: &mut Report<'_>) {
        let mut ids: Vec<u64> = self.siblings.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(Sibling { entry, link, map }) = self.siblings.get(&id).copied() else {
                continue;
            };
            let message = match (entry, link, map) {
                (Some(entry), Some(link), Some(map)) if entry == link && map == link.0 => continue,
                (Some(entry), Some(link), _) if entry != link => {
                    format!(
                        "the folder entry (object {:#x}) and the name record (object {:#x}) of \
                         this link differ in name or object",
                        entry.0, link.0
                    )
                }
                (Some((object, _)), None, _) => {
                    format!(
                        "a folder entry of object {object:#x} has this link number, but no name \
                         record has it"
                    )
                }
                (None, Some((object, _)), _) => {
                    format!(
                        "a name record of object {object:#x} has this link number, but no folder \
                         entry has it"
                    )
                }
                (_, Some((object, _)), Some(map)) => {
                    format!(
                        "the link map records object {map:#x}, but the folder entry has object \
                         {object:#x}"
                    )
                }
                (Some(_), Some(_), None) if self.rules.early => continue,
                (_, Some((object, _)), None) => {
                    format!(
                        "object {object:#x} has this link number, but the link map does not record \
                         it"
                    )
                }
                (_, None, Some(map)) => {
                    format!(
                        "the link map records object {map:#x}, but no name has this link number"
                    )
                }
                (None, None, None) => continue,
            };
            let named = entry.or(link).map(|(object, _)| object).or(map);
            let error = wrong(LAYER, format!("link {id:#x}: {message}"));
            report.warning(match named {
                Some(id) => error.about(numbered(id)),
                None => error,
            });
        }
    }
}

fn count(counts: &mut Counts, id: u64, known: &ObjectState) {
    if known.is_orphan() || known.kind == 0 {
        return;
    }
    *match known.kind {
        mode_type::FOLDER if id < FileId::FIRST_USER.0 => return,
        mode_type::FOLDER => &mut counts.folders,
        mode_type::FILE => &mut counts.files,
        mode_type::SYMLINK => &mut counts.symlinks,
        _ => &mut counts.others,
    } += 1;
}

/// Checks one object against the entries that refer to it.
fn check_object(id: u64, known: &ObjectState, report: &mut Report<'_>) {
    if known.entry_kind == WHITEOUT {
        return;
    }
    if known.kind == 0 {
        let message = format!(
            "an entry in folder {:#x} points to object {id:#x}, which does not exist",
            known.folder
        );
        return report.damage(wrong(LAYER, message).about(numbered(known.folder)));
    }
    if known.names == 0 {
        return report.damage(
            wrong(
                LAYER,
                format!(
                    "object {id:#x} is not in any folder, but its inode records folder {:#x}",
                    known.parent
                ),
            )
            .about(numbered(id)),
        );
    }
    if known.mixed || known.entry_kind != known.kind >> 12 {
        let message = format!(
            "object {id:#x} has mode {:#o}, but its entry in folder {:#x} has type {:#x}",
            known.kind, known.folder, known.entry_kind
        );
        report.damage(wrong(LAYER, message).about(numbered(id)));
    }
    let is_folder = known.kind == mode_type::FOLDER;
    if is_folder && known.names > 1 {
        report.damage(
            wrong(LAYER, format!("folder {id:#x} has {} names", known.names)).about(numbered(id)),
        );
    }
    // Deleted while it was open: it keeps its name and folder, and has a link count of 0.
    if known.is_orphan() {
        if !is_folder && known.recorded != 0 {
            report.warning(
                wrong(
                    LAYER,
                    format!(
                        "object {id:#x} is deleted, but its inode records {} names",
                        known.recorded
                    ),
                )
                .about(numbered(id)),
            );
        }
        return;
    }
    if !is_folder && known.recorded != known.names {
        report.warning(
            wrong(
                LAYER,
                format!(
                    "the inode of object {id:#x} records {} names, but {} exist",
                    known.recorded, known.names
                ),
            )
            .about(numbered(id)),
        );
    }
    if known.records != known.names && (known.names > 1 || known.records > 1) {
        let message = format!(
            "object {id:#x} has {} names in folders, but records for {} of them",
            known.names, known.records
        );
        report.warning(wrong(LAYER, message).about(numbered(id)));
    }
    if known.records == 0 && known.names == 1 && known.primary != 0 && known.primary != known.found
    {
        let message = format!(
            "object {id:#x} is in folder {:#x}, but its inode records another name or folder, \
             {:#x}",
            known.folder, known.parent
        );
        report.warning(wrong(LAYER, message).about(numbered(id)));
    }
}
