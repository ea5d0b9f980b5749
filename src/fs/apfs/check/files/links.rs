//! Names against inodes: every entry leads to an object, every object has its names, and hard links
//! their records (§8.6).

use super::{Files, LAYER};
use crate::fs::apfs::check::report::{Report, wrong};
use crate::fs::apfs::layout::{Counts, FileId, mode_type};

/// The type of entries that hide one of a volume below.
const WHITEOUT: u16 = 0xE;

/// What is known of an object from its inode and from the entries that lead to it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// The type bits of its mode; 0 without an inode.
    kind: u16,
    /// The type in entries; 0 without one.
    entry_kind: u16,
    /// Names that its inode counts.
    told: u32,
    /// Entries that lead to it.
    names: u32,
    /// Records of its names.
    pub(super) records: u32,
    /// The name that its inode tells, and the last that leads to it.
    primary: u64,
    found: u64,
    /// The folder that its inode tells.
    parent: u64,
    /// The folder where it was found.
    folder: u64,
    /// Entries disagree about what it is.
    mixed: bool,
    way: Way,
}

/// Whether a folder is below the root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Unknown,
    /// On the way up that is being followed.
    Passed,
    Rooted,
    Lost,
}

impl Known {
    /// Takes note of an inode.
    pub(super) fn inode(&mut self, kind: u16, primary: u64, parent: FileId, links: u32) {
        (self.kind, self.primary, self.parent, self.told) = (kind, primary, parent.0, links);
    }

    /// Takes note of an entry that leads to it.
    pub(super) fn name(&mut self, kind: u16, hash: u64, folder: FileId) {
        self.mixed |= self.names > 0 && self.entry_kind != kind;
        (self.entry_kind, self.found, self.folder) = (kind, hash, folder.0);
        self.names = self.names.saturating_add(1);
    }

    fn is_orphan(&self) -> bool {
        self.names > 0 && self.folder == FileId::PRIVATE_DIR.0
    }
}

/// What is said of one name of a file with several: object and name each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sibling {
    pub(super) entry: Option<(u64, u64)>,
    pub(super) link: Option<(u64, u64)>,
    pub(super) map: Option<u64>,
}

impl Files {
    /// Everything that objects and names say of each other; counts the objects.
    pub(super) fn check_links(&mut self, report: &mut Report<'_>) -> Counts {
        for needed in [FileId::ROOT, FileId::PRIVATE_DIR] {
            if self
                .objects
                .get(&needed.0)
                .is_none_or(|known| known.kind != mode_type::FOLDER)
            {
                report.damage(wrong(
                    LAYER,
                    format!("folder {needed:#x}, which every volume has, does not exist"),
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
            check(id, &known, report);
        }
        self.check_roots(&ids, report);
        self.check_siblings(report);
        counts
    }

    /// Every folder is below the root: the way up from it does not end elsewhere, nor go round in
    /// circles.
    fn check_roots(&mut self, ids: &[u64], report: &mut Report<'_>) {
        for root in [FileId::ROOT.0, FileId::PRIVATE_DIR.0] {
            if let Some(known) = self.objects.get_mut(&root) {
                known.way = Way::Rooted;
            }
        }
        let (mut lost, mut first) = (0_u64, 0);
        let mut passed = Vec::new();
        for &id in ids {
            let mut at = id;
            let end = loop {
                let Some(known) = self.objects.get_mut(&at) else {
                    break Way::Lost;
                };
                match known.way {
                    // Only folders lead up.
                    Way::Unknown if known.kind == mode_type::FOLDER && known.names > 0 => {
                        known.way = Way::Passed;
                        passed.push(at);
                        at = known.folder;
                    }
                    Way::Rooted => break Way::Rooted,
                    _ => break Way::Lost,
                }
            };
            for id in passed.drain(..) {
                if end == Way::Lost {
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
                format!("{lost} folders are not below the root, the first is {first:#x}"),
            ));
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
                        "entry of object {:#x} and record of object {:#x} tell different names or objects",
                        entry.0, link.0
                    )
                }
                (Some((object, _)), None, _) => {
                    format!("the entry of object {object:#x} has it, no record tells the name")
                }
                (None, Some((object, _)), _) => {
                    format!("object {object:#x} has it for a name, no entry has it")
                }
                (_, Some((object, _)), Some(map)) => {
                    format!("is said to be of object {map:#x}, and of {object:#x}")
                }
                (Some(_), Some(_), None) if self.rules.early => continue,
                (_, Some((object, _)), None) => {
                    format!("object {object:#x} has it, no record leads from it there")
                }
                (_, None, Some(map)) => {
                    format!("leads to object {map:#x}, and is the number of no name")
                }
                (None, None, None) => continue,
            };
            report.warning(wrong(LAYER, format!("link {id:#x}: {message}")));
        }
    }
}

fn count(counts: &mut Counts, id: u64, known: &Known) {
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

/// One object against the entries that lead to it.
fn check(id: u64, known: &Known, report: &mut Report<'_>) {
    if known.entry_kind == WHITEOUT {
        return;
    }
    if known.kind == 0 {
        let message = format!(
            "an entry in folder {:#x} leads to object {id:#x}, which does not exist",
            known.folder
        );
        return report.damage(wrong(LAYER, message));
    }
    if known.names == 0 {
        return report.damage(wrong(
            LAYER,
            format!(
                "object {id:#x} is in no folder, its inode says {:#x}",
                known.parent
            ),
        ));
    }
    if known.mixed || known.entry_kind != known.kind >> 12 {
        let message = format!(
            "object {id:#x} has mode {:#o}, an entry in folder {:#x} says type {:#x}",
            known.kind, known.folder, known.entry_kind
        );
        report.damage(wrong(LAYER, message));
    }
    let is_folder = known.kind == mode_type::FOLDER;
    if is_folder && known.names > 1 {
        report.damage(wrong(
            LAYER,
            format!("folder {id:#x} has {} names", known.names),
        ));
    }
    // Deleted while it is open: it has kept its name and folder, and counts none of them.
    if known.is_orphan() {
        if !is_folder && known.told != 0 {
            report.warning(wrong(
                LAYER,
                format!("object {id:#x} is deleted, and counts {} names", known.told),
            ));
        }
        return;
    }
    if !is_folder && known.told != known.names {
        report.warning(wrong(
            LAYER,
            format!(
                "object {id:#x} counts {} names, {} exist",
                known.told, known.names
            ),
        ));
    }
    if known.records != known.names && (known.names > 1 || known.records > 1) {
        let message = format!(
            "object {id:#x} has {} names, and records of {}",
            known.names, known.records
        );
        report.warning(wrong(LAYER, message));
    }
    if known.records == 0 && known.names == 1 && known.primary != 0 && known.primary != known.found
    {
        let message = format!(
            "object {id:#x} is found in folder {:#x} under another name or folder than it says, {:#x}",
            known.folder, known.parent
        );
        report.warning(wrong(LAYER, message));
    }
}
