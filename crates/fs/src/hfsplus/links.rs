//! Hard links: names of an object that is stored in one of two private folders of the root (§7.7,
//! §7.8).

use zerocopy::big_endian::U16;

use super::catalog::{Catalog, Object};
use super::layout::{Cnid, FILE_LINK_TYPE, FileRaw, JOURNAL_TYPE};
use super::unicode::{decode_name, units};
use bandsaw_core::Result;
use bandsaw_core::size::narrow;

/// The folder of files with several names; begins with four U+0000, which sort last.
pub(super) const FILES_FOLDER: &str = "\0\0\0\0HFS+ Private Data";
/// Prefix of the names of the files in it.
pub(super) const INODE: &str = "iNode";
/// Prefix of the name of a file in it that was deleted while it was open.
pub(super) const ORPHAN: &str = "temp";
/// The folder of folders with several names.
pub(super) const FOLDERS_FOLDER: &str = ".HFS+ Private Directory Data\r";

/// Returns the name of file `id` in the private folder, once it has several names.
pub(super) fn inode_name(id: Cnid) -> Vec<U16> {
    units(&format!("{INODE}{id}"))
}

/// Returns the number in the name of a file in the private folder, to which links refer. It is
/// usually, but not always, the file's own number.
pub(super) fn inode_number(name: &[U16]) -> Option<u32> {
    number_after(INODE, name)
}

/// Returns the number in `name` after `prefix`.
pub(super) fn number_after(prefix: &str, name: &[U16]) -> Option<u32> {
    decode_name(name).strip_prefix(prefix)?.parse().ok()
}

/// Prefix of the names of the folders in it.
pub(super) const FOLDER_INODE: &str = "dir_";

/// Names of the journal and its info block in the root folder.
pub(super) const JOURNAL_NAMES: [&str; 2] = [".journal", ".journal_info_block"];

/// A private folder of this volume.
#[derive(Debug, Clone, Copy)]
struct PrivateFolder {
    id: Cnid,
    created: u32,
}

/// Recognizes and resolves the hard links of a volume.
#[derive(Debug, Clone)]
pub(super) struct Links {
    files: Option<PrivateFolder>,
    folders: Option<PrivateFolder>,
    root_created: u32,
    /// The files of a journal that exists for one mount only.
    journal: Vec<Cnid>,
    /// The files of a permanent journal.
    kept: Vec<Cnid>,
    /// True if the files of a permanent journal are listed and found by name.
    system_files: bool,
}

/// The result of resolving a record.
#[derive(Debug)]
pub(super) enum Link {
    /// Not a link.
    No,
    /// A link to this object.
    To(Box<Object>),
    /// A link to an object that does not exist, with its name in the private folder.
    Broken(String),
}

impl Links {
    /// Finds the private folders of a volume whose root was created at `root_created`.
    pub(super) fn find(catalog: &Catalog, root_created: u32) -> Result<Self> {
        let private = |name: &str| {
            let found = catalog.get(Cnid::ROOT, &units(name))?;
            Ok::<_, bandsaw_core::Error>(match found {
                Some(Object::Folder(folder)) => Some(PrivateFolder {
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

    /// Returns true if `id` is one of the private folders, or a file that exists for one mount
    /// only.
    pub(super) fn is_private(&self, id: Cnid) -> bool {
        self.private_folders().any(|private| private.id == id) || self.is_journal_file(id)
    }

    /// Returns true if `id` is neither listed nor found by name. As on macOS, these are the private
    /// folders and the files of the journal (`cat_lookup` and `cat_packdirentry` of Apple's
    /// driver).
    pub(super) fn is_hidden(&self, id: Cnid) -> bool {
        self.is_private(id) || (!self.system_files && self.is_kept(id))
    }

    /// Returns the number of hidden entries of the root.
    pub(super) fn hidden_count(&self) -> u32 {
        u32::from(self.files.is_some()) + u32::from(self.folders.is_some()) + self.hidden_files()
    }

    /// Returns the number of hidden files.
    pub(super) fn hidden_files(&self) -> u32 {
        self.journal_count()
            + if self.system_files {
                0
            } else {
                narrow::<u32>(self.kept.len())
            } // at most two
    }

    /// Lists the files of a permanent journal, or hides them.
    pub(super) fn set_system_files(&mut self, shown: bool) {
        self.system_files = shown;
    }

    /// Returns the number of files that exist for one mount only.
    pub(super) fn journal_count(&self) -> u32 {
        narrow::<u32>(self.journal.len()) // at most two
    }

    /// Returns true if `id` is a file that exists for one mount only.
    pub(super) fn is_journal_file(&self, id: Cnid) -> bool {
        self.journal.contains(&id)
    }

    /// Adds `id` to the files that exist for one mount only.
    pub(super) fn hide_journal_file(&mut self, id: Cnid) {
        self.journal.push(id);
    }

    /// Clears the list of files that exist for one mount only.
    pub(super) fn show_journal_files(&mut self) {
        self.journal.clear();
    }

    /// Hides the files of a journal that a mount has left behind.
    pub(super) fn hide_journal_files(&mut self, catalog: &Catalog) -> Result<()> {
        self.kept.clear();
        self.journal.extend(journal_files(catalog)?);
        Ok(())
    }

    /// Records the files of a permanent journal.
    pub(super) fn keep_journal_files(&mut self, catalog: &Catalog) -> Result<()> {
        self.kept = journal_files(catalog)?;
        Ok(())
    }

    /// Returns true if `id` is a file of a permanent journal, which no operation may change.
    pub(super) fn is_kept(&self, id: Cnid) -> bool {
        self.kept.contains(&id)
    }

    /// Returns the folder of files with several names, and the creation date by which their links
    /// are recognized.
    pub(super) fn files_folder(&self) -> Option<(Cnid, u32)> {
        self.files.map(|private| (private.id, private.created))
    }

    /// Returns the creation date by which links in a new private folder will be recognized.
    pub(super) fn root_created(&self) -> u32 {
        self.root_created
    }

    /// Records the new private folder `id`, created at `created`.
    pub(super) fn set_files_folder(&mut self, id: Cnid, created: u32) {
        self.files = Some(PrivateFolder { id, created });
    }

    /// Returns two flags: true if `file` is a link to a file, and true if it is a link to a folder.
    pub(super) fn is_link(&self, file: &FileRaw) -> (bool, bool) {
        (
            self.file_link(file).is_some(),
            self.folder_link(file).is_some(),
        )
    }

    /// Returns true if objects in folder `parent` are files with several names.
    pub(super) fn holds_files(&self, parent: Cnid) -> bool {
        self.files.is_some_and(|private| private.id == parent)
    }

    fn private_folders(&self) -> impl Iterator<Item = PrivateFolder> {
        self.files.into_iter().chain(self.folders)
    }

    /// Resolves `file` if it is a hard link.
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

    /// Returns the private folder if `file` is a link to a file. Type and creator can be set by
    /// anyone, so macOS also compares the creation date.
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

/// Returns the files of the volume's journal.
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
