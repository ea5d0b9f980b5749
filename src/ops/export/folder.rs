//! A folder of a volume into a folder of the host.
//!
//! One thread walks and makes the folders, all of them make what is in them. Hard links are made when everything they lead
//! to is there; what folders have (owner, permissions, dates) comes last, from the deepest up, because everything before
//! would change it. On hosts other than macOS, extended attributes get the prefix `user.`; BSD flags and creation dates
//! are not kept there.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::host_node::{BUFFER, Maker, Owners, check_name, failed};
use super::{Exported, LAYER, Report, about, is_fatal};
use crate::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use crate::ops::folders::{Family, Folders};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// How a folder of the host is filled.
#[derive(Debug, Clone, Default)]
pub struct FolderOptions {
    /// Files and links that are in the way are replaced. Folders never are: what they hold stays beside what comes.
    pub overwrite: bool,
    /// What is no folder gets this name instead of its own.
    pub name: Option<String>,
}

/// Brings the folder at `path` of a volume out: what is in it comes to be in `target`, which is made if it does not exist.
/// Anything else at `path` comes to be in `target` under its own name.
///
/// Without `overwrite`, nothing that exists is changed. Owners are restored when the process may do that.
pub fn to_folder(
    fs: &dyn FileSystem,
    path: &str,
    target: &Path,
    options: &FolderOptions,
    progress: &dyn Progress,
) -> Result<Exported> {
    let top = fs.resolve(path)?;
    let volume = fs.volume();
    progress.stage("extract", if top.id == fs.root() { volume.total - volume.free } else { top.size });
    let (target, made) = open_target(target).map_err(|error| Error::io(LAYER, "open", error).in_file(target))?;
    let owners = Owners::new(target.as_fd()).map_err(|error| Error::io(LAYER, "look at the target", error))?;
    let maker = Maker { fs, progress, overwrite: options.overwrite, owners };
    let shared = Shared { maker, report: Report::default(), queue: Mutex::default(), changed: Condvar::new() };
    let mut walk = Walk {
        shared: &shared,
        open: Folders::below(target),
        folders: Made(vec![MadeFolder::top(path, top.clone(), made)]),
        first_names: HashMap::new(),
        links: Vec::new(),
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(MOST_THREADS);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| shared.work());
        }
        let walked =
            if top.kind == FileKind::Folder { walk.walk(top.id) } else { walk.single(path, options.name.as_deref(), top) };
        if let Err(error) = walked {
            shared.fail(error);
        }
        shared.close();
        shared.work();
    });
    shared.check()?;
    walk.finish()?;
    drop(walk);
    Ok(shared.report.into_inner())
}

/// Enough to keep a disk busy.
const MOST_THREADS: usize = 4;
/// Entries that a thread takes at a time: all of one folder, so that threads seldom wait for the same one.
const BATCH: usize = 128;
/// Batches that may wait; beyond, the walking thread works too.
const MOST_WAITING: usize = 32;

fn open_target(path: &Path) -> std::io::Result<(OwnedFd, bool)> {
    let made = match std::fs::create_dir(path) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(error),
    };
    let target = std::fs::File::open(path)?;
    match target.metadata()?.is_dir() {
        true => Ok((target.into(), made)),
        false => Err(std::io::ErrorKind::NotADirectory.into()),
    }
}

/// Entries of one folder to be made.
struct Batch {
    folder: Arc<OwnedFd>,
    /// In the volume, for people.
    path: Arc<str>,
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Batch>,
    /// No more will come.
    closed: bool,
    failure: Option<Error>,
}

/// What all threads share.
struct Shared<'a> {
    maker: Maker<'a>,
    report: Report,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared<'_> {
    /// Works until the queue is closed and empty, or somebody failed.
    fn work(&self) {
        let mut buffer = vec![0; BUFFER];
        let mut queue = self.queue();
        loop {
            if queue.failure.is_some() {
                return;
            }
            match queue.waiting.pop_front() {
                Some(batch) => {
                    drop(queue);
                    self.make(batch, &mut buffer);
                    queue = self.queue();
                }
                None if queue.closed => return,
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn make(&self, batch: Batch, buffer: &mut [u8]) {
        let mut report = Exported::default();
        for Entry { name, attributes } in &batch.entries {
            let mut problems = Vec::new();
            let made = self.maker.make(batch.folder.as_fd(), name, attributes, buffer, &mut |error| problems.push(error));
            match (made, attributes.kind) {
                (Ok(_), FileKind::Symlink) => report.symlinks += 1,
                (Ok(bytes), _) => {
                    report.files += 1;
                    report.bytes += bytes;
                }
                (Err(error), _) if is_fatal(&error) => {
                    self.fail(about(error, &batch.path, name));
                    break;
                }
                (Err(error), _) => problems.push(error),
            }
            problems.into_iter().for_each(|error| report.problem(about(error, &batch.path, name)));
        }
        self.report.add(report);
    }

    fn push(&self, batch: Batch, buffer: &mut Vec<u8>) {
        let mut queue = self.queue();
        queue.waiting.push_back(batch);
        let full = queue.waiting.len() > MOST_WAITING;
        let own = if full { queue.waiting.pop_front() } else { None };
        drop(queue);
        self.changed.notify_one();
        if let Some(batch) = own {
            buffer.resize(BUFFER, 0);
            self.make(batch, buffer);
        }
    }

    fn fail(&self, error: Error) {
        self.queue().failure.get_or_insert(error);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.queue().closed = true;
        self.changed.notify_all();
    }

    fn check(&self) -> Result<()> {
        self.queue().failure.take().map_or(Ok(()), Err)
    }

    fn failed(&self) -> bool {
        self.queue().failure.is_some()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A folder of the host that was made, or was there.
#[derive(Debug)]
struct MadeFolder {
    parent: u32,
    name: Box<str>,
    attributes: Attributes,
    /// In the volume.
    path: Arc<str>,
    /// Its attributes are ours to set.
    ours: bool,
}

impl MadeFolder {
    fn top(path: &str, attributes: Attributes, made: bool) -> Self {
        let ours = made && attributes.kind == FileKind::Folder;
        Self { parent: 0, name: Box::default(), attributes, path: path.into(), ours }
    }
}

#[derive(Debug)]
struct Made(Vec<MadeFolder>);

impl Family for Made {
    fn place(&self, number: u32) -> (u32, &str) {
        let folder = &self.0[number as usize];
        (folder.parent, &folder.name)
    }
}

/// The name of a file that may have more names: its folder's number, and the name there.
type Name = (u32, Box<str>);

/// The thread that knows where everything is.
struct Walk<'a, 'b> {
    shared: &'a Shared<'b>,
    open: Folders,
    folders: Made,
    /// The first name of each file with hard links.
    first_names: HashMap<NodeId, Name>,
    /// First name and further name.
    links: Vec<(Name, Name)>,
}

impl Walk<'_, '_> {
    fn single(&mut self, path: &str, name: Option<&str>, attributes: Attributes) -> Result<()> {
        let (folder, own_name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        let name = name.unwrap_or(own_name);
        let batch = Batch {
            folder: self.open.open(0, &self.folders).map_err(|error| Error::io(LAYER, "open folder", error))?,
            path: folder.into(),
            entries: vec![Entry { name: name.to_owned(), attributes }],
        };
        self.shared.push(batch, &mut Vec::new());
        Ok(())
    }

    /// Makes all folders below the one with the number 0, and puts what is in them in line.
    fn walk(&mut self, top: NodeId) -> Result<()> {
        let mut buffer = Vec::new();
        let mut ahead = vec![(0, top)];
        while let Some((number, id)) = ahead.pop() {
            if self.shared.failed() {
                return Ok(());
            }
            self.shared.maker.progress.check()?;
            let inside = self.shared.maker.fs.entries(id);
            match inside.and_then(|entries| self.enter(number, entries, &mut buffer)) {
                Ok(folders) => ahead.extend(folders.into_iter().rev()),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => self.problem(about(error, &self.folders.0[number as usize].path, "")),
            }
        }
        Ok(())
    }

    /// Makes the folders in folder `number`, returns them, and puts the rest of its entries in line.
    fn enter(&mut self, number: u32, entries: Vec<Entry>, buffer: &mut Vec<u8>) -> Result<Vec<(u32, NodeId)>> {
        let here = self.open.open(number, &self.folders).map_err(|error| Error::io(LAYER, "open folder", error))?;
        let path = self.folders.0[number as usize].path.clone();
        let mut folders = Vec::new();
        let mut batch = Vec::new();
        for entry in entries {
            if entry.attributes.kind == FileKind::Folder {
                let (name, id) = (entry.name.clone(), entry.attributes.id);
                match self.make_folder(number, &here, entry) {
                    Ok(made) => folders.push((made, id)),
                    Err(error) if is_fatal(&error) => return Err(error),
                    Err(error) => self.problem(about(error, &path, &name)),
                }
            } else if !self.is_further_name(number, &entry) {
                batch.push(entry);
            }
            if batch.len() == BATCH {
                let entries = std::mem::take(&mut batch);
                self.shared.push(Batch { folder: here.clone(), path: path.clone(), entries }, buffer);
            }
        }
        if !batch.is_empty() {
            self.shared.push(Batch { folder: here, path, entries: batch }, buffer);
        }
        Ok(folders)
    }

    fn make_folder(&mut self, parent: u32, here: &OwnedFd, entry: Entry) -> Result<u32> {
        let Entry { name, attributes } = entry;
        check_name(&name)?;
        self.check_ancestors(parent, attributes.id)?;
        let number = u32::try_from(self.folders.0.len()).map_err(|_| Error::new(Kind::Limit, LAYER, "too many folders"))?;
        let ours = match rustix::fs::mkdirat(here, &*name, Mode::RWXU) {
            Ok(()) => true,
            // What is there must be a folder: opening it tells, and follows no link.
            Err(Errno::EXIST) => self.shared.maker.overwrite,
            Err(errno) => return Err(failed("create folder")(errno)),
        };
        let path = format!("{}/{name}", self.folders.0[parent as usize].path.trim_end_matches('/')).into();
        self.folders.0.push(MadeFolder { parent, name: name.into(), attributes, path, ours });
        Ok(number)
    }

    /// Refuses a folder that contains itself, which hard links to folders could bring about on a damaged volume.
    fn check_ancestors(&self, mut folder: u32, id: NodeId) -> Result<()> {
        loop {
            let above = &self.folders.0[folder as usize];
            if above.attributes.id == id {
                return Err(Error::new(Kind::Corrupt, LAYER, "the folder contains itself"));
            }
            if folder == 0 {
                return Ok(());
            }
            folder = above.parent;
        }
    }

    /// Whether `entry` is one more name of a file that has been met; it becomes a link later.
    fn is_further_name(&mut self, folder: u32, entry: &Entry) -> bool {
        if entry.attributes.links < 2 {
            return false;
        }
        let here = (folder, Box::from(&*entry.name));
        match self.first_names.get(&entry.attributes.id) {
            Some(first) => {
                self.links.push((first.clone(), here));
                true
            }
            None => {
                self.first_names.insert(entry.attributes.id, here);
                false
            }
        }
    }

    /// Hard links, then what folders have.
    fn finish(&mut self) -> Result<()> {
        for (first, further) in std::mem::take(&mut self.links) {
            match self.link(&first, &further) {
                Ok(()) => self.shared.report.add(Exported { files: 1, ..Exported::default() }),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => self.problem(about(error, &self.folders.0[further.0 as usize].path, &further.1)),
            }
        }
        for number in (0..self.folders.0.len() as u32).rev() {
            let folder = &self.folders.0[number as usize];
            let path = folder.path.clone();
            match self.finish_folder(number, folder) {
                Ok(()) => self.shared.report.add(Exported { folders: u64::from(number != 0), ..Exported::default() }),
                Err(error) if is_fatal(&error) => return Err(error),
                Err(error) => self.problem(about(error, &path, "")),
            }
        }
        Ok(())
    }

    fn link(&self, first: &Name, further: &Name) -> Result<()> {
        check_name(&further.1)?;
        let open = |name: &Name| self.open.open(name.0, &self.folders).map_err(|error| Error::io(LAYER, "open folder", error));
        let (from, to) = (open(first)?, open(further)?);
        let link = || rustix::fs::linkat(&from, &*first.1, &to, &*further.1, AtFlags::empty());
        self.shared.maker.create(to.as_fd(), &further.1, link)
    }

    fn finish_folder(&self, number: u32, folder: &MadeFolder) -> Result<()> {
        if !folder.ours {
            return Ok(());
        }
        let open = self.open.open(number, &self.folders).map_err(|error| Error::io(LAYER, "open folder", error))?;
        let problem = &mut |error: Error| self.problem(about(error, &folder.path, ""));
        self.shared.maker.finish(open.as_fd(), &folder.attributes, problem)
    }

    fn problem(&self, error: Error) {
        let mut report = Exported::default();
        report.problem(error);
        self.shared.report.add(report);
    }
}
