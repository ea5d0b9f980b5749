//! An overlay of a store that keeps all changes to itself, so that they can be tried out before
//! anything is written.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Entry, Guard, Lock, Meta, Open, Put, Store, check_folder, check_name};
use crate::device::{
    Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info, regions,
};
use crate::{Error, Kind, Result};

const LAYER: &str = "staged store";
/// Bytes of a chunk, the unit of changes.
const CHUNK: u64 = 4096;
const CHUNK_LEN: usize = CHUNK as usize;
/// Maximum number of bytes of changes kept in memory; more go to an unnamed file.
const IN_MEMORY: u64 = 64 << 20;
/// Maximum number of bytes of changes.
const MOST: u64 = 1 << 42;

/// A store that reads through to another and keeps writes, lengths, and created, renamed and
/// removed names to itself. Clones share them. Its locks hold nothing: the caller holds those of
/// the store below.
#[derive(Debug, Clone)]
pub struct Staged(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    below: Arc<dyn Store>,
    spill: Arc<Spill>,
    /// Names that have been opened for changes, created, renamed or removed (`None`).
    files: Mutex<BTreeMap<String, Option<Arc<Content>>>>,
}

/// The contents of a staged name.
#[derive(Debug)]
pub(crate) struct Content {
    /// The name of the visible file below. `None`: a new file.
    pub(crate) origin: Option<String>,
    /// True if it was stored as a whole by [`Store::put`].
    pub(crate) is_put: bool,
    state: RwLock<State>,
    spill: Arc<Spill>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Bytes from the start of the file below that are still visible, except for changed chunks.
    through: u64,
    chunks: BTreeMap<u64, Chunk>,
    /// Number of changes, which is the version.
    changes: u64,
}

#[derive(Debug)]
enum Chunk {
    Zero,
    Memory(Box<[u8; CHUNK_LEN]>),
    /// At this offset of the spill file.
    Spilled(u64),
}

/// The file for changes that exceed the memory.
#[derive(Debug)]
struct Spill {
    folder: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    used: AtomicU64,
}

impl Spill {
    fn file(&self) -> Result<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let name = self
            .folder
            .join(format!(".bandsaw-staged-{}-{:p}", std::process::id(), self));
        let made = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&name);
        let made = made.and_then(|made| std::fs::remove_file(&name).map(|()| Arc::new(made)));
        let made = made.map_err(|error| {
            Error::io(LAYER, "cannot make a file for changes", error).in_file(&self.folder)
        })?;
        *file = Some(made.clone());
        Ok(made)
    }

    fn keep(&self, bytes: Box<[u8; CHUNK_LEN]>) -> Result<Chunk> {
        let at = self.used.fetch_add(CHUNK, Ordering::Relaxed);
        if at < IN_MEMORY {
            return Ok(Chunk::Memory(bytes));
        }
        if at >= MOST {
            return Err(Error::new(
                Kind::Limit,
                LAYER,
                "the changes take more room than is set aside for them",
            ));
        }
        let written = self.file()?.write_all_at(&bytes[..], at - IN_MEMORY);
        written.map_err(|error| {
            Error::io(LAYER, "cannot keep changes", error).in_file(&self.folder)
        })?;
        Ok(Chunk::Spilled(at - IN_MEMORY))
    }

    fn read(&self, chunk: &Chunk) -> Result<Box<[u8; CHUNK_LEN]>> {
        let mut bytes = Box::new([0; CHUNK_LEN]);
        match chunk {
            Chunk::Zero => {}
            Chunk::Memory(kept) => bytes.copy_from_slice(&kept[..]),
            Chunk::Spilled(at) => {
                let read = self.file()?.read_exact_at(&mut bytes[..], *at);
                read.map_err(|error| {
                    Error::io(LAYER, "cannot read kept changes", error).in_file(&self.folder)
                })?;
            }
        }
        Ok(bytes)
    }
}

impl Staged {
    /// Creates an overlay without changes. Those that exceed the memory go to an unnamed file in
    /// the folder `spill`.
    pub fn new(below: Arc<dyn Store>, spill: PathBuf) -> Self {
        let spill = Arc::new(Spill {
            folder: spill,
            file: Mutex::default(),
            used: AtomicU64::new(0),
        });
        Self(Arc::new(Inner {
            below,
            spill,
            files: Mutex::default(),
        }))
    }

    /// Returns the store below.
    pub fn below(&self) -> &Arc<dyn Store> {
        &self.0.below
    }

    /// Returns the removed names (`None`) and the names whose files are new, renamed or changed.
    pub(crate) fn changes(&self) -> Vec<(String, Option<Arc<Content>>)> {
        let is_changed = |name: &String, content: &Option<Arc<Content>>| {
            content.as_ref().is_none_or(|content| {
                content.origin.as_ref() != Some(name) || content.state().changes > 0
            })
        };
        let files = self.files();
        files
            .iter()
            .filter(|(name, content)| is_changed(name, content))
            .map(|(n, c)| (n.clone(), c.clone()))
            .collect()
    }

    /// Returns true if anything differs from the store below; bytes are not compared.
    pub fn is_changed(&self) -> bool {
        !self.changes().is_empty()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<Content>>>> {
        self.0.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_content(&self, origin: Option<String>, len: u64) -> Arc<Content> {
        let state = State {
            len,
            through: len,
            chunks: BTreeMap::new(),
            changes: 0,
        };
        let spill = self.0.spill.clone();
        Arc::new(Content {
            origin,
            is_put: false,
            state: RwLock::new(state),
            spill,
        })
    }

    /// Opens the contents of a name as a device.
    pub(crate) fn device(
        &self,
        content: Arc<Content>,
        access: Access,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let below = match &content.origin {
            Some(origin) => match self.0.below.open(origin, Open::Read)? {
                Some(below) => Some(below),
                None => return Ok(None),
            },
            None => None,
        };
        Ok(Some(Arc::new(StagedFile {
            content,
            below,
            access,
        })))
    }

    fn content(&self, name: &str) -> Result<Option<Arc<Content>>> {
        if let Some(known) = self.files().get(name) {
            return Ok(known.clone());
        }
        let Some(below) = self.0.below.open(name, Open::Read)? else {
            return Ok(None);
        };
        let content = self.new_content(Some(name.to_owned()), below.info().len);
        Ok(self
            .files()
            .entry(name.to_owned())
            .or_insert(Some(content))
            .clone())
    }

    fn put_content(&self, bytes: &[u8]) -> Result<Arc<Content>> {
        let content = self.new_content(None, 0);
        let device = StagedFile {
            content: content.clone(),
            below: None,
            access: Access::ReadWrite,
        };
        device.set_len(bytes.len() as u64, AfterDiscard::Zeros)?;
        device.write_at(0, bytes)?;
        drop(device);
        Ok(match Arc::try_unwrap(content) {
            Ok(content) => Arc::new(Content {
                is_put: true,
                ..content
            }),
            Err(content) => content,
        })
    }
}

impl Store for Staged {
    fn open(&self, name: &str, how: Open) -> Result<Option<Arc<dyn BlockDevice>>> {
        check_name(name)?;
        let content = self.content(name)?;
        let access = if how == Open::Read {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let content = match (how, content) {
            (Open::Read | Open::Write, None) | (Open::CreateNew, Some(_)) => return Ok(None),
            (_, Some(content)) => content,
            (Open::Create | Open::CreateNew, None) => {
                let content = self.new_content(None, 0);
                self.files().insert(name.to_owned(), Some(content.clone()));
                content
            }
        };
        self.device(content, access)
    }

    fn put(&self, name: &str, bytes: &[u8], cond: Put) -> Result<bool> {
        check_name(name)?;
        if cond == Put::IfAbsent && self.stat(name)?.is_some() {
            return Ok(false);
        }
        let content = self.put_content(bytes)?;
        self.files().insert(name.to_owned(), Some(content));
        Ok(true)
    }

    fn stat(&self, name: &str) -> Result<Option<Meta>> {
        check_name(name)?;
        match self.files().get(name) {
            Some(Some(content)) => {
                let State { len, changes, .. } = *content.state();
                Ok(Some(Meta {
                    len,
                    allocated: len,
                    version: changes,
                }))
            }
            Some(None) => Ok(None),
            None => self.0.below.stat(name),
        }
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let source = self
            .open(from, Open::Read)?
            .ok_or_else(|| Error::not_found(LAYER, from))?;
        self.files()
            .insert(to.to_owned(), Some(self.new_content(None, 0)));
        let target = self
            .open(to, Open::Write)?
            .ok_or_else(|| Error::not_found(LAYER, to))?;
        regions::copy_all(&*source, &*target)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(to)?;
        let content = self
            .content(from)?
            .ok_or_else(|| Error::not_found(LAYER, from))?;
        let mut files = self.files();
        files.insert(from.to_owned(), None);
        files.insert(to.to_owned(), Some(content));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<bool> {
        let there = self.stat(name)?.is_some();
        if there {
            self.files().insert(name.to_owned(), None);
        }
        Ok(there)
    }

    fn remove_folder(&self, name: &str) -> Result<()> {
        check_folder(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry<'_>) -> Result<()>) -> Result<()> {
        let known: BTreeMap<String, bool> = self
            .files()
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .map(|(n, c)| (n.clone(), c.is_some()))
            .collect();
        self.0.below.list(prefix, &mut |entry| {
            if known.contains_key(entry.name) {
                Ok(())
            } else {
                each(entry)
            }
        })?;
        known
            .iter()
            .filter(|(_, there)| **there)
            .try_for_each(|(name, _)| each(Entry::new(name, &|| self.stat(name))))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _name: &str, _mode: Lock) -> Result<Guard> {
        Ok(Guard::nothing())
    }
}

impl Content {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.state().len
    }

    /// Returns the number of bytes from the start of the file below that were never truncated.
    pub(crate) fn through(&self) -> u64 {
        self.state().through
    }

    /// Returns the runs of changed bytes within the file.
    pub(crate) fn runs(&self) -> Vec<Range<u64>> {
        let state = self.state();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &number in state.chunks.keys() {
            let range = number * CHUNK..((number + 1) * CHUNK).min(state.len);
            match runs.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => runs.push(range),
            }
        }
        runs
    }

    /// Sets `range`, which is within the file, to `bytes` (`None`: zeros).
    fn change(
        &self,
        below: Option<&dyn BlockDevice>,
        range: Range<u64>,
        bytes: Option<&[u8]>,
    ) -> Result<()> {
        let mut state = self.state_mut();
        state.changes += 1;
        let mut at = range.start;
        while at < range.end {
            let (number, within) = (at / CHUNK, (at % CHUNK) as usize);
            let end = range.end.min((number + 1) * CHUNK);
            let length = (end - at) as usize;
            let new = bytes
                .map(|bytes| &bytes[(at - range.start) as usize..(end - range.start) as usize]);
            at = end;
            if length == CHUNK_LEN && new.is_none() {
                state.chunks.insert(number, Chunk::Zero);
                continue;
            }
            let old = state.chunks.remove(&number);
            let place = match &old {
                Some(Chunk::Memory(_)) => Some(None),
                Some(Chunk::Spilled(place)) => Some(Some(*place)),
                _ => None,
            };
            let mut whole = match old {
                Some(Chunk::Memory(bytes)) => bytes,
                Some(chunk) => self.spill.read(&chunk)?,
                None => {
                    let mut whole = Box::new([0; CHUNK_LEN]);
                    let start = number * CHUNK;
                    let shown = (start + CHUNK).min(state.through).saturating_sub(start) as usize;
                    if let Some(below) = below.filter(|_| length < CHUNK_LEN && shown > 0) {
                        below.read_at(start, &mut whole[..shown])?;
                    }
                    whole
                }
            };
            match new {
                Some(new) => whole[within..within + length].copy_from_slice(new),
                None => whole[within..within + length].fill(0),
            }
            let chunk = match place {
                // Its place in the spill file is reused.
                Some(None) => Chunk::Memory(whole),
                Some(Some(place)) => {
                    let written = self.spill.file()?.write_all_at(&whole[..], place);
                    written.map_err(|error| Error::io(LAYER, "cannot keep changes", error))?;
                    Chunk::Spilled(place)
                }
                None => self.spill.keep(whole)?,
            };
            state.chunks.insert(number, chunk);
        }
        Ok(())
    }
}

/// An open staged file.
#[derive(Debug)]
struct StagedFile {
    content: Arc<Content>,
    below: Option<Arc<dyn BlockDevice>>,
    access: Access,
}

impl BlockDevice for StagedFile {
    fn info(&self) -> Info {
        let len = self.content.len();
        match &self.below {
            Some(below) => Info {
                len,
                access: self.access,
                ..below.info()
            },
            None => Info {
                len,
                block: 512,
                write: 1,
                discard: CHUNK,
                access: self.access,
            },
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        let state = self.content.state();
        let shown = end.min(state.through).saturating_sub(offset) as usize;
        buf[shown..].fill(0);
        if let Some(below) = self.below.as_ref().filter(|_| shown > 0) {
            below.read_at(offset, &mut buf[..shown])?;
        }
        for (&number, chunk) in state.chunks.range(offset / CHUNK..end.div_ceil(CHUNK)) {
            let start = number * CHUNK;
            let (from, to) = (start.max(offset), (start + CHUNK).min(end));
            let bytes = self.content.spill.read(chunk)?;
            let place = &mut buf[(from - offset) as usize..(to - offset) as usize];
            place.copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.info().check_writable(LAYER)?;
        let end = self.info().check(LAYER, offset, buf.len() as u64)?;
        self.content
            .change(self.below.as_deref(), offset..end, Some(buf))
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        self.info().check_range(LAYER, &range)?;
        match leave {
            AfterDiscard::Zeros => self.content.change(self.below.as_deref(), range, None),
            AfterDiscard::Any => Ok(()),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().check_range(LAYER, &range)?;
        let state = self.content.state();
        let next = state
            .chunks
            .range(range.start / CHUNK..range.end.div_ceil(CHUNK))
            .next();
        let until = match next {
            Some((&number, chunk)) if number * CHUNK <= range.start => {
                let kind = if matches!(chunk, Chunk::Zero) {
                    ExtentKind::Zero
                } else {
                    ExtentKind::Data
                };
                return Ok(Extent {
                    kind,
                    len: ((number + 1) * CHUNK).min(range.end) - range.start,
                });
            }
            Some((&number, _)) => (number * CHUNK).min(range.end),
            None => range.end,
        };
        match &self.below {
            Some(below) if range.start < state.through => {
                below.extent_at(range.start..until.min(state.through))
            }
            _ => Ok(Extent {
                kind: ExtentKind::Hole,
                len: until - range.start,
            }),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.info().check_writable(LAYER)?;
        let now = self.content.len();
        if len == now {
            return Ok(());
        }
        if len < now && !len.is_multiple_of(CHUNK) {
            // Truncated bytes read as zeros if the file grows again.
            let end = now.min(len.next_multiple_of(CHUNK));
            let is_chunk = self.content.state().chunks.contains_key(&(len / CHUNK));
            if is_chunk {
                self.content.change(self.below.as_deref(), len..end, None)?;
            }
        }
        let mut state = self.content.state_mut();
        state.through = state.through.min(len);
        state.chunks.retain(|number, _| number * CHUNK < len);
        state.len = len;
        state.changes += 1;
        Ok(())
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;
    use crate::store::MemoryStore;

    fn names(store: &dyn Store) -> Vec<String> {
        let mut names = Vec::new();
        let listed = store.list("", &mut |entry| {
            names.push(entry.name.to_owned());
            Ok(())
        });
        listed.unwrap();
        names.sort();
        names
    }

    #[test]
    fn changes_show_and_the_store_below_stays() {
        let below = MemoryStore::default();
        for name in ["a", "b", "c"] {
            below
                .put(name, &[name.as_bytes()[0]; 10_000], Put::Replace)
                .unwrap();
        }
        let staged = Staged::new(Arc::new(below.clone()), std::env::temp_dir());
        let a = staged.open("a", Open::Write).unwrap().unwrap();
        assert!(!staged.is_changed(), "an open file is no change");
        a.write_at(4090, &[1; 20]).unwrap();
        a.set_len(5000, AfterDiscard::Zeros).unwrap();
        a.set_len(9000, AfterDiscard::Zeros).unwrap();
        let mut expected = vec![b'a'; 5000];
        expected[4090..4110].fill(1);
        expected.resize(9000, 0);
        assert!(a.read_vec(0, 9000).unwrap() == expected);
        staged.rename("b", "d").unwrap();
        staged.remove("c").unwrap();
        staged.put("e", b"new", Put::Replace).unwrap();
        assert_eq!(names(&staged), ["a", "d", "e"]);
        assert_eq!(
            staged
                .open("d", Open::Read)
                .unwrap()
                .unwrap()
                .read_vec(0, 2)
                .unwrap(),
            b"bb"
        );
        assert!(
            staged
                .open("a", Open::Read)
                .unwrap()
                .unwrap()
                .read_vec(0, 9000)
                .unwrap()
                == expected
        );
        assert_eq!(staged.changes().len(), 5);
        assert_eq!(names(&below), ["a", "b", "c"]);
        assert!(
            below
                .open("a", Open::Read)
                .unwrap()
                .unwrap()
                .read_vec(0, 10_000)
                .unwrap()
                == [b'a'; 10_000]
        );
    }

    #[test]
    fn more_than_fits_in_memory_goes_to_a_file_without_a_name() {
        let below = MemoryStore::default();
        below.put("a", b"", Put::Replace).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let staged = Staged::new(Arc::new(below), folder.path().to_owned());
        let file = staged.open("a", Open::Write).unwrap().unwrap();
        let len = IN_MEMORY + (1 << 20);
        file.set_len(len, AfterDiscard::Zeros).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at / CHUNK) as u8).collect();
        file.write_at(0, &bytes).unwrap();
        file.write_at(len - 10, &[9; 5]).unwrap();
        assert!(file.read_vec(0, len as usize - 10).unwrap() == bytes[..len as usize - 10]);
        assert_eq!(file.read_vec(len - 10, 5).unwrap(), [9; 5]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
