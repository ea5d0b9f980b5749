//! Hard links: names that stand for an object kept in one of two private folders of the root (§7.7,
//! §7.8).

use zerocopy::big_endian::U16;

use super::catalog::{Catalog, Object};
use super::layout::{Cnid, FILE_LINK_TYPE, FileRaw, JOURNAL_TYPE};
use super::unicode::{decode_name, units};
use crate::Result;

/// The folder of files with several names; four U+0000 in front, which sort last.
pub(super) const FILES_FOLDER: &str = "\0\0\0\0HFS+ Private Data";
/// What begins the names of the files in it.
pub(super) const INODE: &str = "iNode";
/// What begins the name of a file in it that was deleted while it was open.
pub(super) const ORPHAN: &str = "temp";
/// The folder of folders with several names.
pub(super) const FOLDERS_FOLDER: &str = ".HFS+ Private Directory Data\r";

/// The name of file `id` in the private folder, once it has several names.
pub(super) fn inode_name(id: Cnid) -> Vec<U16> {
    units(&format!("{INODE}{id}"))
}

/// The number in the name of a file in the private folder: mostly, not always, its own. Links refer
/// to it.
pub(super) fn inode_number(name: &[U16]) -> Option<u32> {
    number_after(INODE, name)
}

/// The number in `name` behind `prefix`.
pub(super) fn number_after(prefix: &str, name: &[U16]) -> Option<u32> {
    decode_name(name).strip_prefix(prefix)?.parse().ok()
}

/// What begins the names of the folders in it.
pub(super) const FOLDER_INODE: &str = "dir_";

/// The files that a journal lies in, and its info block: entries of the root.
pub(super) const JOURNAL_NAMES: [&str; 2] = [".journal", ".journal_info_block"];

/// A private folder of this volume.
#[derive(Debug, Clone, Copy)]
struct Private {
    id: Cnid,
    created: u32,
}

/// How this volume's hard links are told and followed.
#[derive(Debug, Clone)]
pub(super) struct Links {
    files: Option<Private>,
    folders: Option<Private>,
    root_created: u32,
    /// The files of a journal that is there for one mount only.
    journal: Vec<Cnid>,
    /// The files of a journal that stays.
    kept: Vec<Cnid>,
    /// True if the files of a journal that stays are listed and found by name.
    system_files: bool,
}

/// What a record is with regard to hard links.
#[derive(Debug)]
pub(super) enum Link {
    /// No link.
    No,
    /// A link to this object.
    To(Box<Object>),
    /// A link to an object that does not exist; its name in the private folder.
    Broken(String),
}

impl Links {
    /// Finds the private folders of a volume whose root was created at `root_created`.
    pub(super) fn find(catalog: &Catalog, root_created: u32) -> Result<Self> {
        let private = |name: &str| {
            let found = catalog.get(Cnid::ROOT, &units(name))?;
            Ok::<_, crate::Error>(match found {
                Some(Object::Folder(folder)) => Some(Private {
                    id: Cnid(folder.folder_id.get()),
                    created: folder.dates.create.get(),
                }),
                _ => None,
            })
        };
        Ok(Self {
            files: private(FILES_FOLDER)?,
            folders: private(FOLDERS_FOLDER)?,
            root_created,
            journal: Vec::new(),
            kept: Vec::new(),
            system_files: false,
        })
    }

    /// Returns whether `id` is one of the private folders, or a file that is there for one mount
    /// only.
    pub(super) fn is_private(&self, id: Cnid) -> bool {
        self.private_folders().any(|private| private.id == id) || self.is_journal_file(id)
    }

    /// Returns whether `id` is neither listed nor found by name. As on macOS these are the private
    /// folders and the files of the journal (`cat_lookup` and `cat_packdirentry` of Apple's
    /// driver).
    pub(super) fn is_hidden(&self, id: Cnid) -> bool {
        self.is_private(id) || (!self.system_files && self.is_kept(id))
    }

    /// Returns how many entries of the root are hidden.
    pub(super) fn hidden_count(&self) -> u32 {
        u32::from(self.files.is_some()) + u32::from(self.folders.is_some()) + self.hidden_files()
    }

    /// Returns how many files are hidden.
    pub(super) fn hidden_files(&self) -> u32 {
        self.journal_count()
            + if self.system_files {
                0
            } else {
                self.kept.len() as u32
            } // at most two
    }

    /// Lists the files of a journal that stays, or hides them.
    pub(super) fn set_system_files(&mut self, shown: bool) {
        self.system_files = shown;
    }

    /// Returns how many files are there for one mount only.
    pub(super) fn journal_count(&self) -> u32 {
        self.journal.len() as u32 // at most two
    }

    /// Returns whether `id` is a file that is there for one mount only.
    pub(super) fn is_journal_file(&self, id: Cnid) -> bool {
        self.journal.contains(&id)
    }

    /// `id` is there for one mount only.
    pub(super) fn hide_journal_file(&mut self, id: Cnid) {
        self.journal.push(id);
    }

    /// No file is there for one mount only.
    pub(super) fn show_journal_files(&mut self) {
        self.journal.clear();
    }

    /// Hides the files of a journal that a mount has left.
    pub(super) fn hide_journal_files(&mut self, catalog: &Catalog) -> Result<()> {
        self.kept.clear();
        self.journal.extend(journal_files(catalog)?);
        Ok(())
    }

    /// Takes note of the files of a journal that stays.
    pub(super) fn keep_journal_files(&mut self, catalog: &Catalog) -> Result<()> {
        self.kept = journal_files(catalog)?;
        Ok(())
    }

    /// Returns whether `id` is a file of a journal that stays, which no operation changes.
    pub(super) fn is_kept(&self, id: Cnid) -> bool {
        self.kept.contains(&id)
    }

    /// The folder of files with several names, and the date by which their links are known.
    pub(super) fn files_folder(&self) -> Option<(Cnid, u32)> {
        self.files.map(|private| (private.id, private.created))
    }

    /// The date by which links in a new private folder are to be known.
    pub(super) fn root_created(&self) -> u32 {
        self.root_created
    }

    /// The private folder `id`, created at `created`, has been made.
    pub(super) fn set_files_folder(&mut self, id: Cnid, created: u32) {
        self.files = Some(Private { id, created });
    }

    /// Returns whether `file` is a name of a file with several, or of a folder with several.
    pub(super) fn is_link(&self, file: &FileRaw) -> (bool, bool) {
        (
            self.file_link(file).is_some(),
            self.folder_link(file).is_some(),
        )
    }

    /// Returns whether what lies in folder `parent` is a file that links lead to.
    pub(super) fn holds_files(&self, parent: Cnid) -> bool {
        self.files.is_some_and(|private| private.id == parent)
    }

    fn private_folders(&self) -> impl Iterator<Item = Private> {
        self.files.into_iter().chain(self.folders)
    }

    /// Follows `file` if it is a hard link.
    pub(super) fn follow(&self, catalog: &Catalog, file: &FileRaw) -> Result<Link> {
        let reference = file.bsd.special.get();
        let (folder, name) = if let Some(private) = self.file_link(file) {
            (private, format!("{INODE}{reference}"))
        } else if let Some(private) = self.folder_link(file) {
            (private, format!("{FOLDER_INODE}{reference}"))
        } else {
            return Ok(Link::No);
        };
        match catalog.get(folder, &units(&name))? {
            Some(object) => Ok(Link::To(Box::new(object))),
            None => Ok(Link::Broken(name)),
        }
    }

    /// Type and creator alone prove nothing: anybody may set them. macOS looks at the date of
    /// creation too.
    fn file_link(&self, file: &FileRaw) -> Option<Cnid> {
        let private = self.files?;
        let created = file.dates.create.get();
        let is_link = file.kind() == FILE_LINK_TYPE
            && (created == private.created || created == self.root_created);
        is_link.then_some(private.id)
    }

    fn folder_link(&self, file: &FileRaw) -> Option<Cnid> {
        let private = self.folders?;
        file.is_folder_link().then_some(private.id)
    }
}

/// The files of the volume's journal.
fn journal_files(catalog: &Catalog) -> Result<Vec<Cnid>> {
    let mut found = Vec::new();
    for name in JOURNAL_NAMES {
        match catalog.get(Cnid::ROOT, &units(name))? {
            Some(Object::File(file)) if file.kind() == JOURNAL_TYPE => {
                found.push(Cnid(file.file_id.get()))
            }
            _ => {}
        }
    }
    Ok(found)
}
