//! Reads folders ahead of the iterator over their entries.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::vec;

use bandsaw::device::Access;
use bandsaw::fs::{Entry, FileKind, FileSystem, NodeId};
use bandsaw::{Error, Kind, Result};

use crate::detached::Detached;

/// Entries that are given on at once. A thread that reads ahead has about five times as many in memory.
const BATCH: usize = 1024;

/// Entries of one folder, with its path.
type Piece = (Arc<str>, Vec<Entry>);

/// The entries of a folder, or of all folders below it. In a volume that does not change, a thread reads ahead unless it is a small
/// folder; in one that may change, a folder is read when the iterator comes to it, as a whole.
#[derive(Debug)]
pub(crate) struct Walk {
    source: Source,
    /// [`Access::ReadWrite`] if the volume may change during the walk.
    access: Access,
    /// Entries that were read, the next ones first.
    pieces: vec::IntoIter<Piece>,
    folder: Arc<str>,
    entries: vec::IntoIter<Entry>,
}

/// The folders of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkScope {
    /// One folder.
    Folder,
    /// A folder and all folders below it.
    Tree,
}

/// Source of the entries that are not read yet.
#[derive(Debug)]
enum Source {
    Folders(Detached<Folders>),
    Thread(Detached<Ahead>),
    Ended,
}

impl Walk {
    /// Returns the entries of the folder `id` at `path`. `access` is that of the volume.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        (id, path): (NodeId, &str),
        scope: WalkScope,
        access: Access,
    ) -> Self {
        let top = PendingFolder {
            id,
            path: path.into(),
            above: None,
        };
        Self {
            source: Source::Folders(Detached::new(Folders {
                fs,
                scope,
                ahead: vec![top],
                skip: 0,
            })),
            access,
            pieces: Vec::new().into_iter(),
            folder: path.into(),
            entries: Vec::new().into_iter(),
        }
    }

    /// Returns the next entry and the path of its folder, if it is in memory.
    pub(crate) fn at_hand(&mut self) -> Option<(Arc<str>, Entry)> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some((self.folder.clone(), entry));
            }
            let (folder, entries) = self.pieces.next()?;
            (self.folder, self.entries) = (folder, entries.into_iter());
        }
    }

    /// Returns the next entry and the path of its folder, and waits for it.
    pub(crate) fn next(&mut self) -> Result<Option<(Arc<str>, Entry)>> {
        loop {
            if let Some(entry) = self.at_hand() {
                return Ok(Some(entry));
            }
            match self.more()? {
                Some(pieces) => self.pieces = pieces.into_iter(),
                None => return Ok(None),
            }
        }
    }

    fn more(&mut self) -> Result<Option<Vec<Piece>>> {
        loop {
            match mem::replace(&mut self.source, Source::Ended) {
                Source::Ended => return Ok(None),
                Source::Thread(mut ahead) => {
                    let Ok(batch) = ahead.batches.recv() else {
                        return ahead.join().map(|()| None);
                    };
                    self.source = Source::Thread(ahead);
                    return batch.map(Some);
                }
                Source::Folders(folders)
                    if folders.scope == WalkScope::Tree && self.access == Access::ReadOnly =>
                {
                    let ahead = Ahead::start(folders.into_part())?;
                    self.source = Source::Thread(Detached::new(ahead));
                }
                Source::Folders(mut folders) => {
                    let most = match self.access {
                        Access::ReadWrite => usize::MAX,
                        Access::ReadOnly => BATCH,
                    };
                    let top = folders.ahead.clone();
                    let mut first = None;
                    folders.read(most, &mut |piece| {
                        first = Some(piece);
                        ControlFlow::Break(())
                    });
                    let is_large =
                        matches!(&first, Some(Ok((_, entries))) if entries.len() == most);
                    if is_large {
                        (folders.ahead, folders.skip) = (top, most);
                        let ahead = Ahead::start(folders.into_part())?;
                        self.source = Source::Thread(Detached::new(ahead));
                    } else {
                        self.source = Source::Folders(folders);
                    }
                    return first
                        .transpose()
                        .map(|first| first.map(|piece| vec![piece]));
                }
            }
        }
    }
}

/// A thread that reads folders until nobody takes what it read. It is waited for when this is dropped.
#[derive(Debug)]
struct Ahead {
    batches: Receiver<Result<Vec<Piece>>>,
    thread: Option<JoinHandle<()>>,
}

impl Ahead {
    fn start(mut folders: Folders) -> Result<Self> {
        let (sender, batches) = sync_channel(2);
        let started = thread::Builder::new()
            .name("bandsaw entries".to_owned())
            .spawn(move || send(&mut folders, &sender));
        let thread = started.map_err(|error| Error::io("folder", "start a thread", error))?;
        Ok(Self {
            batches,
            thread: Some(thread),
        })
    }

    /// Waits for the end of the thread. Entries are missing if it did not end in order.
    fn join(&mut self) -> Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => {
                let message = "internal: the thread that lists folders has ended early";
                Err(Error::new(Kind::Io, "folder", message))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // The sender fails from now on.
        self.batches = sync_channel(0).1;
        let _ = self.join();
    }
}

/// Sends the entries of all folders, those of small folders together.
fn send(folders: &mut Folders, sender: &SyncSender<Result<Vec<Piece>>>) {
    let (mut batch, mut count) = (Vec::new(), 0);
    let sent = |result| match sender.send(result) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    folders.read(BATCH, &mut |piece| match piece {
        Ok(piece) => {
            count += piece.1.len();
            batch.push(piece);
            if count < BATCH {
                return ControlFlow::Continue(());
            }
            count = 0;
            sent(Ok(mem::take(&mut batch)))
        }
        Err(error) => {
            count = 0;
            sent(Ok(mem::take(&mut batch)))?;
            sent(Err(error))
        }
    });
    // Without a receiver nobody wants the rest.
    let _ = sender.send(Ok(batch));
}

/// A folder to list.
#[derive(Debug, Clone)]
struct PendingFolder {
    id: NodeId,
    path: Arc<str>,
    above: Option<Arc<PendingFolder>>,
}

/// Folders to list.
#[derive(Debug)]
struct Folders {
    fs: Arc<dyn FileSystem>,
    scope: WalkScope,
    /// The next one last.
    ahead: Vec<PendingFolder>,
    /// Entries of the next one that are known.
    skip: usize,
}

impl Folders {
    /// Lists folders, and gives their entries to `take`, at most `most` of a folder at a time, until that breaks or no folder is left.
    /// After an error, the next folder is listed.
    fn read(&mut self, most: usize, take: &mut dyn FnMut(Result<Piece>) -> ControlFlow<()>) {
        while let Some(folder) = self.ahead.pop() {
            let flow = match self.list(&Arc::new(folder), most, take) {
                Ok(flow) => flow,
                Err(error) => take(Err(error)),
            };
            if flow.is_break() {
                return;
            }
        }
    }

    fn list(
        &mut self,
        folder: &Arc<PendingFolder>,
        most: usize,
        take: &mut dyn FnMut(Result<Piece>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut above = folder.above.as_deref();
        while let Some(outer) = above {
            if outer.id == folder.id {
                let error = Error::new(Kind::Corrupt, "folder", "the folder contains itself");
                return Err(error.named(&*folder.path));
            }
            above = outer.above.as_deref();
        }
        let mut skip = mem::take(&mut self.skip);
        let (mut entries, mut below) = (Vec::new(), Vec::new());
        let mut flow = ControlFlow::Continue(());
        let listed = self.fs.list(folder.id, &mut |entry| {
            if skip > 0 {
                skip -= 1;
                return Ok(flow);
            }
            if self.scope == WalkScope::Tree && entry.attributes.kind == FileKind::Folder {
                below.push(PendingFolder {
                    id: entry.attributes.id,
                    path: joined(&folder.path, &entry.name).into(),
                    above: Some(folder.clone()),
                });
            }
            entries.push(entry);
            if entries.len() == most {
                flow = take(Ok((folder.path.clone(), mem::take(&mut entries))));
            }
            Ok(flow)
        });
        self.ahead.extend(below.into_iter().rev());
        if !entries.is_empty() && flow.is_continue() {
            flow = take(Ok((folder.path.clone(), entries)));
        }
        listed.map(|()| flow)
    }
}

/// Returns the path of an entry of a folder, whose path ends with a slash only if it is the root.
pub(crate) fn joined(folder: &str, name: &str) -> String {
    let folder = folder.strip_suffix('/').unwrap_or(folder);
    let mut path = String::with_capacity(folder.len() + 1 + name.len());
    path.push_str(folder);
    path.push('/');
    path.push_str(name);
    path
}
