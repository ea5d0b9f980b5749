//! A folder of the host.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Result};

use super::{CacheState, Caches, Place, Sink, Source};
use crate::contents::ALIGNMENT;

const LAYER: &str = "benchmark";
/// Number of offsets of a file that are probed for being cached.
const PROBES: u64 = 8;

/// A folder of the host, accessed as ordinary programs do.
#[derive(Debug)]
pub struct HostFolder {
    folder: PathBuf,
    caches: Caches,
}

impl HostFolder {
    /// Creates a place in `folder`, which must exist.
    pub fn new(folder: &Path, caches: Caches) -> Self {
        Self {
            folder: folder.to_owned(),
            caches,
        }
    }

    /// Returns a closure that adds the file to an error. It costs nothing on success: every request
    /// calls it.
    fn failed(&self, name: &str, what: &'static str) -> impl Fn(io::Error) -> Error {
        move |source| Error::io(LAYER, what, source).in_file(self.folder.join(name))
    }

    fn is_direct(&self) -> bool {
        self.caches == Caches::Direct
    }
}

impl Place for HostFolder {
    fn create(&self, name: &str, _len: u64) -> Result<Box<dyn Sink + '_>> {
        let file = direct(
            File::options().write(true).create_new(true),
            self.is_direct(),
        )
        .open(self.folder.join(name))
        .map_err(self.failed(name, "create"))?;
        Ok(Box::new(HostFile {
            file,
            folder: self,
            name: name.to_owned(),
            direct: self.is_direct(),
        }))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Source + '_>> {
        let file = direct(File::options().read(true), self.is_direct())
            .open(self.folder.join(name))
            .map_err(self.failed(name, "open"))?;
        Ok(Box::new(HostFile {
            file,
            folder: self,
            name: name.to_owned(),
            direct: self.is_direct(),
        }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        std::fs::remove_file(self.folder.join(name)).map_err(self.failed(name, "remove"))
    }

    fn flush(&self) -> Result<()> {
        let flushed = File::open(&self.folder).and_then(|folder| folder.sync_all());
        flushed.map_err(|source| Error::io(LAYER, "flush", source).in_file(&self.folder))
    }

    fn cool(&self, names: &[String]) -> Result<CacheState> {
        match self.caches {
            Caches::Direct => return Ok(CacheState::Direct),
            Caches::Keep => return Ok(CacheState::Kept),
            Caches::Drop => {}
        }
        let paths: Vec<PathBuf> = names.iter().map(|name| self.folder.join(name)).collect();
        drop_from_cache(&paths)
    }
}

/// Drops durable files from the page cache, and probes whether they are gone. If some are left, a
/// privileged process drops the whole cache.
pub(crate) fn drop_from_cache(paths: &[PathBuf]) -> Result<CacheState> {
    let drop_each = || {
        let mut worst = CacheState::Dropped;
        for path in paths {
            let failed = |source| Error::io(LAYER, "drop the page cache", source).in_file(path);
            worst = worst.worse(drop_file(path).map_err(failed)?);
        }
        Ok(worst)
    };
    match drop_each()? {
        CacheState::StillInMemory | CacheState::Asked if drop_all_cached_pages() => drop_each(),
        cooled => Ok(cooled),
    }
}

fn drop_file(path: &Path) -> io::Result<CacheState> {
    let file = File::open(path)?;
    drop_cached_pages(&file)?;
    let len = file.metadata()?.len();
    let mut answer = CacheState::Dropped;
    for probe in 0..PROBES.min(len) {
        // From behind: a probe that finds nothing may have the system read ahead.
        let offset = len - 1 - (len - 1) / PROBES * probe;
        // A hole is read without waiting for a disk, too.
        if is_hole(&file, offset) {
            continue;
        }
        match is_in_memory(&file, offset) {
            Some(false) => {}
            Some(true) => return Ok(CacheState::StillInMemory),
            None => answer = CacheState::Asked,
        }
    }
    Ok(answer)
}

#[cfg(target_os = "linux")]
fn drop_cached_pages(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(
        file,
        0,
        None,
        rustix::fs::Advice::DontNeed,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn drop_cached_pages(_file: &File) -> io::Result<()> {
    Ok(())
}

/// Has the system drop all clean pages of its cache; returns false if this process may not.
#[cfg(target_os = "linux")]
fn drop_all_cached_pages() -> bool {
    std::fs::write("/proc/sys/vm/drop_caches", "1").is_ok()
}

#[cfg(not(target_os = "linux"))]
fn drop_all_cached_pages() -> bool {
    false
}

/// Returns whether a byte of a file has no storage, as far as its file system tells.
#[cfg(target_os = "linux")]
fn is_hole(file: &File, offset: u64) -> bool {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => data > offset,
        // No data up to the end of the file.
        Err(error) => error == Errno::NXIO,
    }
}

#[cfg(not(target_os = "linux"))]
fn is_hole(_file: &File, _offset: u64) -> bool {
    false
}

/// Returns whether a byte of a file can be read without waiting for a disk; `None` where that
/// cannot be asked.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &File, offset: u64) -> Option<bool> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut byte = [0];
    match preadv2(
        file,
        &mut [io::IoSliceMut::new(&mut byte)],
        offset,
        ReadWriteFlags::NOWAIT,
    ) {
        Ok(_) => Some(true),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_file: &File, _offset: u64) -> Option<bool> {
    None
}

#[cfg(target_os = "linux")]
fn direct(options: &mut std::fs::OpenOptions, direct: bool) -> &mut std::fs::OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    if direct {
        options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
    } else {
        options
    }
}

#[cfg(not(target_os = "linux"))]
fn direct(options: &mut std::fs::OpenOptions, _direct: bool) -> &mut std::fs::OpenOptions {
    options
}

/// Disables direct I/O: the rest is not a whole block.
#[cfg(target_os = "linux")]
fn leave_direct(file: &File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(
        file,
        flags - rustix::fs::OFlags::DIRECT,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn leave_direct(_file: &File) -> io::Result<()> {
    Ok(())
}

/// An open file.
#[derive(Debug)]
struct HostFile<'a> {
    file: File,
    folder: &'a HostFolder,
    name: String,
    direct: bool,
}

impl HostFile<'_> {
    /// Prepares a request of `len` bytes. Direct I/O requires whole blocks: the rest of a file is
    /// read and written through the cache.
    fn prepare(&mut self, len: usize) -> io::Result<()> {
        if self.direct && !len.is_multiple_of(ALIGNMENT) {
            self.direct = false;
            leave_direct(&self.file)?;
        }
        Ok(())
    }
}

impl Sink for HostFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self
            .prepare(bytes.len())
            .and_then(|()| self.file.write_all(bytes));
        written.map_err(self.folder.failed(&self.name, "write"))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.file
            .sync_all()
            .map_err(self.folder.failed(&self.name, "flush"))
    }
}

impl Source for HostFile<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<()> {
        let read = self
            .prepare(buf.len())
            .and_then(|()| self.file.read_exact(buf));
        read.map_err(self.folder.failed(&self.name, "read"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_file_is_dropped_from_the_cache_or_reported_as_cached() {
        let scratch = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = scratch.path().join("file");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        let cooled = drop_from_cache(std::slice::from_ref(&path)).unwrap();
        assert!(matches!(
            cooled,
            CacheState::Dropped | CacheState::StillInMemory | CacheState::Asked
        ));
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
        assert_ne!(
            is_in_memory(&file, 0),
            Some(false),
            "what was just read is in memory"
        );
    }

    #[test]
    fn a_hole_is_not_in_memory() {
        let scratch = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = scratch.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        file.sync_all().unwrap();
        assert_eq!(drop_from_cache(&[path]).unwrap(), CacheState::Dropped);
    }
}
