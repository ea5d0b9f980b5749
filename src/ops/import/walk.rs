//! Walk through a folder of the host. Several threads list folders.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;

use super::FOLDER_LAYER;
use super::FolderOptions;
use super::host_metadata::{EntryType, ListedEntry, OpenFolder, failed, read_metadata, xattrs_of};
use crate::fs::source::Stream;
use crate::parallel::{self, Queue};
use crate::platform::nodes::{self, HostNode};
use crate::progress::Progress;
use crate::sync::Mutex;
use crate::{Error, Result};

/// Largest number of threads; the kernel's folder locks limit any gain from more.
const MAX_THREADS: usize = 4;

/// All entries below a folder.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) root: Arc<OpenFolder>,
    pub(super) root_node: HostNode,
    pub(super) root_xattrs: Vec<(Box<str>, Stream)>,
    /// Entries of the folders, sorted by name, by the number in [`EntryType::Folder`]. 0 is the root.
    pub(super) folders: Vec<Vec<ListedEntry>>,
}

/// Lists all entries below `path`.
pub(super) fn walk(
    path: &Path,
    options: &FolderOptions,
    progress: &dyn Progress,
) -> Result<Listing> {
    let walk = Walk::begin(path, options, progress)?;
    let first = || {
        let found = walk.list(&walk.root)?;
        walk.file(0, &walk.root, found);
        Ok(())
    };
    let threads = parallel::cores(MAX_THREADS);
    walk.queue
        .run(threads, first, || (), |(), job| walk.enter(job))?;
    Ok(Listing {
        root: walk.root,
        root_node: walk.root_node,
        root_xattrs: walk.root_xattrs,
        folders: walk.listed.into_inner(),
    })
}

/// A folder to be listed.
#[derive(Debug)]
struct FolderJob {
    number: usize,
    parent: Arc<OpenFolder>,
    name: Box<str>,
}

struct Walk<'a> {
    root: Arc<OpenFolder>,
    root_node: HostNode,
    root_xattrs: Vec<(Box<str>, Stream)>,
    /// Folder (device and inode) and name of entries to leave out.
    leave_out: Vec<((u64, u64), CString)>,
    progress: &'a dyn Progress,
    queue: Queue<FolderJob>,
    /// Entries by folder number; empty until listed.
    listed: Mutex<Vec<Vec<ListedEntry>>>,
}

impl<'a> Walk<'a> {
    fn begin(path: &Path, options: &FolderOptions, progress: &'a dyn Progress) -> Result<Self> {
        let fail = |error: std::io::Error| Error::io(FOLDER_LAYER, "open", error).in_file(path);
        let fd = OwnedFd::from(std::fs::File::open(path).map_err(fail)?);
        let root_node = nodes::node_of(&fd).map_err(fail)?;
        if root_node.kind != FileType::Directory {
            return Err(Error::invalid(FOLDER_LAYER, "not a folder").in_file(path));
        }
        let root_xattrs = xattrs_of(&fd).map_err(|error| error.in_file(path))?;
        let root = Arc::new(OpenFolder {
            parent: None,
            name: path.to_string_lossy().into(),
            fd,
        });
        let leave_out = options
            .leave_out
            .iter()
            .filter_map(|path| place_of(path))
            .collect();
        Ok(Self {
            root,
            root_node,
            root_xattrs,
            leave_out,
            progress,
            queue: Queue::new(),
            listed: Mutex::new(vec![Vec::new()]),
        })
    }

    fn enter(&self, job: FolderJob) -> Result<()> {
        self.progress.check()?;
        let fd = nodes::open_folder(&job.parent.fd, &job.name)
            .map_err(|error| failed("open folder", error, &job.parent, &job.name))?;
        let place = Arc::new(OpenFolder {
            parent: Some(job.parent),
            name: job.name,
            fd,
        });
        let found = self.list(&place)?;
        self.file(job.number, &place, found);
        Ok(())
    }

    /// Stores the entries of folder `number`, and queues its subfolders.
    fn file(&self, number: usize, place: &Arc<OpenFolder>, mut found: Vec<ListedEntry>) {
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.progress.advance(found.len() as u64);
        let mut listed = self.listed.lock();
        for entry in &mut found {
            if let EntryType::Folder { number } = &mut entry.what {
                *number = listed.len();
                listed.push(Vec::new());
                self.queue.push_first(FolderJob {
                    number: *number,
                    parent: place.clone(),
                    name: entry.name.clone(),
                });
            }
        }
        listed[number] = found;
    }

    fn list(&self, place: &OpenFolder) -> Result<Vec<ListedEntry>> {
        let fail = |error: rustix::io::Errno| {
            Error::io(FOLDER_LAYER, "list folder", error).in_file(place.path())
        };
        let here = nodes::node_of(&place.fd).map_err(|error| {
            Error::io(FOLDER_LAYER, "read metadata", error).in_file(place.path())
        })?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&place.fd).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            let left_out = || {
                self.leave_out
                    .iter()
                    .any(|(folder, left_out)| *folder == here.identity && **left_out == *name)
            };
            if !nodes::is_dots(name) && !left_out() {
                found.push(read_metadata(place, name, entry.file_type())?);
            }
        }
        Ok(found)
    }
}

/// Returns the folder (device and inode) and name of an entry that may not exist.
fn place_of(path: &Path) -> Option<((u64, u64), CString)> {
    let name = nodes::c_name(path.file_name()?.as_encoded_bytes()).ok()?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = std::fs::File::open(parent).ok()?;
    Some((nodes::node_of(folder).ok()?.identity, name))
}
