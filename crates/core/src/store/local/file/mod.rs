//! A file of the host as a device.

mod holes;

use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::FileMode;
use super::host_path::HostPath;
use super::pinned::PinnedRanges;
use crate::device::{Access, AfterDiscard, BlockDevice, Extent, FileRange, Info};
use crate::platform;
use crate::rate;
use crate::store::{Lock, Meta, Open};
use crate::sync::{Mutex, RwLock, RwLockReadGuard};
use crate::{Error, Kind, Reason, Result};

const LAYER: &str = "file";

/// Maximum number of times that a file may be replaced between opening and locking.
const MAX_REPLACED: usize = 10;

/// A regular file (or a disk) of the host.
///
/// Its length is read on opening and again on locking: the lock keeps others from changing it.
#[derive(Debug)]
pub struct LocalFile {
    file: Arc<File>,
    path: HostPath,
    access: Access,
    /// The host's block size: a punched range must cover whole blocks to free storage.
    grain: u64,
    fixed_len: bool,
    len: AtomicU64,
    /// Held shared by every request, exclusively while the file is truncated.
    in_flight: RwLock<()>,
    /// One change of the length at a time.
    resizing: Mutex<()>,
    /// One flush at a time: the second must not return before the first has made its writes
    /// durable.
    flushing: Mutex<()>,
    /// The file was changed since the last flush began.
    dirty: AtomicBool,
    /// The file had a name when it was opened or locked: if the name is removed, later writes are
    /// lost.
    named: AtomicBool,
    /// A flush failed; the contents on disk are unknown.
    lost: AtomicBool,
    /// Set once punching a hole has failed as unsupported.
    cannot_punch: AtomicBool,
    pinned: Arc<PinnedRanges>,
}

impl LocalFile {
    /// Opens the file at `path`, following symbolic links. `None` as for
    /// [`Store::open`](crate::store::Store::open).
    pub fn open(path: impl AsRef<Path>, mode: Open) -> Result<Option<Self>> {
        let path = &*platform::disk_path(path.as_ref());
        Self::open_at(
            CWD,
            path,
            (mode, FileMode::ANY),
            OFlags::empty(),
            HostPath::new(path.to_owned()),
        )
    }

    /// Creates the file at `path`. `None`: it exists.
    pub fn create_new(path: impl AsRef<Path>, permissions: FileMode) -> Result<Option<Self>> {
        let path = path.as_ref();
        Self::open_at(
            CWD,
            path,
            (Open::CreateNew, permissions),
            OFlags::empty(),
            HostPath::new(path.to_owned()),
        )
    }

    /// Opens the file at `path` and [locks](Self::lock) it, before anything of it is read. If
    /// another file replaced it while waiting for the lock, the new one is opened instead.
    pub fn open_locked(path: impl AsRef<Path>, mode: Open, lock: Lock) -> Result<Option<Self>> {
        let path = path.as_ref();
        for _ in 0..MAX_REPLACED {
            let Some(file) = Self::open(path, mode)? else {
                return Ok(None);
            };
            file.lock(lock)?;
            if file.is_at(file.path()) {
                return Ok(Some(file));
            }
        }
        Err(Error::conflict(
            LAYER,
            "other programs replaced the file each time it was opened: try again when they have \
             ended",
        )
        .in_file(path))
    }

    /// Returns true if `path` names this very file. True if the host cannot tell.
    fn is_at(&self, path: &Path) -> bool {
        let same = |here: Metadata, there: Metadata| {
            (here.dev(), here.ino()) == (there.dev(), there.ino())
        };
        match (self.file.metadata(), fs::metadata(path)) {
            (Ok(here), Ok(there)) => same(here, there),
            (_, Err(source)) => source.kind() != io::ErrorKind::NotFound,
            _ => true,
        }
    }

    /// Opens `name` in `folder`; errors name `path`.
    pub(super) fn open_at(
        folder: impl rustix::fd::AsFd,
        name: impl rustix::path::Arg,
        (mode, permissions): (Open, FileMode),
        more: OFlags,
        path: HostPath,
    ) -> Result<Option<Self>> {
        let (flags, access) = match mode {
            Open::Read => (OFlags::RDONLY, Access::ReadOnly),
            Open::Write => (OFlags::RDWR, Access::ReadWrite),
            Open::Create => (OFlags::RDWR | OFlags::CREATE, Access::ReadWrite),
            Open::CreateNew => (
                OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
                Access::ReadWrite,
            ),
        };
        // NONBLOCK: opening a pipe would wait for its other end. Ignored by files and disks.
        let flags = flags | more | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        match rustix::fs::openat(folder, name, flags, permissions.file()) {
            Ok(file) => Self::new(File::from(file), access, path).map(Some),
            Err(Errno::NOENT) if matches!(mode, Open::Read | Open::Write) => Ok(None),
            Err(Errno::EXIST) if mode == Open::CreateNew => Ok(None),
            Err(Errno::LOOP) => {
                let what = "is a symbolic link, which is not followed: name its target";
                Err(path.named(Error::unsupported(LAYER, what)))
            }
            Err(errno) => Err(path.named(Error::io(LAYER, "open", errno))),
        }
    }

    fn new(file: File, access: Access, path: HostPath) -> Result<Self> {
        let failed = |source: io::Error| path.named(Error::io(LAYER, "read the length", source));
        let meta = file.metadata().map_err(failed)?;
        let kind = meta.file_type();
        let Some(len) = length(&file, &meta).map_err(failed)? else {
            let what = if kind.is_dir() {
                "a folder"
            } else {
                "a special file"
            };
            let what = format!("is {what}, expected a regular file or a disk");
            return Err(path.named(Error::unsupported(LAYER, what)));
        };
        Ok(Self {
            file: Arc::new(file),
            path,
            access,
            grain: grain(meta.blksize()),
            fixed_len: !kind.is_file(),
            len: AtomicU64::new(len),
            in_flight: RwLock::default(),
            resizing: Mutex::default(),
            flushing: Mutex::default(),
            dirty: AtomicBool::new(false),
            named: AtomicBool::new(meta.nlink() > 0),
            lost: AtomicBool::new(false),
            cannot_punch: AtomicBool::new(false),
            pinned: Arc::default(),
        })
    }

    /// Returns the metadata of the open file. The version of a disk, whose changes the host does
    /// not record, is 0.
    pub fn meta(&self) -> Result<Meta> {
        if self.fixed_len {
            return Ok(Meta {
                len: self.info().len,
                allocated: self.info().len,
                version: 0,
                changed: None,
            });
        }
        rustix::fs::fstat(&self.file)
            .map(|stat| super::meta(&stat))
            .map_err(|errno| self.path.named(Error::io(LAYER, "read metadata", errno)))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.path.get()
    }

    /// Records that the file was renamed to `path`. Only the first call has an effect.
    pub fn set_renamed(&self, path: &Path) {
        self.path.rename(path.to_owned());
    }

    /// Returns the host's metadata of the open file.
    pub fn metadata(&self) -> Result<Metadata> {
        self.file
            .metadata()
            .map_err(|source| self.path.named(Error::io(LAYER, "read metadata", source)))
    }

    /// Locks the file, after a short wait if necessary, for as long as it is open. Does nothing on
    /// hosts without locks. [`Kind::Conflict`], naming the holder if known, if another process has
    /// the lock.
    pub fn lock(&self, mode: Lock) -> Result<()> {
        match platform::lock_soon(&self.file, mode == Lock::Exclusive) {
            Ok(true) => {
                // The previous holder of the lock may have changed the length.
                let known = self
                    .file
                    .metadata()
                    .and_then(|meta| length(&self.file, &meta));
                let known = known.map_err(|source| {
                    self.path.named(Error::io(LAYER, "read the length", source))
                })?;
                self.len.store(
                    known.unwrap_or_else(|| self.len.load(Ordering::SeqCst)),
                    Ordering::SeqCst,
                );
                self.named.store(has_name(&self.file), Ordering::Relaxed);
                Ok(())
            }
            Ok(false) => Err(self.path.named(in_use(LAYER, &self.file))),
            Err(source) if source.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(source) => Err(self.path.named(Error::io(LAYER, "lock", source))),
        }
    }

    /// Begins a request: while the guard lives, the range stays within the file.
    fn enter(&self, offset: u64, length: u64) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.in_flight.read();
        self.info()
            .check(LAYER, offset, length)
            .map_err(|error| self.path.named(error))?;
        Ok(guard)
    }

    fn check_range(&self, range: &Range<u64>) -> Result<()> {
        self.info()
            .check_range(LAYER, range)
            .map_err(|error| self.path.named(error))
    }

    fn check_changeable(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Err(self.path.named(Error::read_only(LAYER)));
        }
        if self.lost.load(Ordering::Acquire) {
            let refused = "an earlier flush failed and may have lost changes; open the image again to \
                 change it";
            return Err(self.path.named(Error::new(Kind::Io, LAYER, refused)));
        }
        Ok(())
    }

    /// Marks the file dirty after a change, including a failed one.
    fn changed(&self) {
        self.dirty.store(true, Ordering::Release);
    }

    fn failed(&self, doing: &'static str, offset: u64, source: io::Error) -> Error {
        let error = match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::conflict(LAYER, "truncated while it was open"),
            _ => Error::io(LAYER, doing, source),
        };
        self.path.named(error.at(offset))
    }

    fn cut(&self, len: u64) -> Result<()> {
        // The new length is set first: it refuses new requests and file ranges, so that the old
        // ones come to an end.
        let old = self.len.swap(len, Ordering::SeqCst);
        self.pinned.wait_until_none_beyond(len);
        let _alone = self.in_flight.write();
        let done = self.file.set_len(len);
        self.changed();
        done.map_err(|source| {
            self.len.store(old, Ordering::SeqCst);
            self.failed("truncate", len, source)
        })
    }

    fn grow(&self, len: u64) -> Result<()> {
        let done = self.file.set_len(len);
        self.changed();
        done.map_err(|source| self.failed("grow", len, source))?;
        self.len.store(len, Ordering::SeqCst);
        Ok(())
    }
}

impl BlockDevice for LocalFile {
    fn info(&self) -> Info {
        let len = self.len.load(Ordering::SeqCst);
        Info {
            len,
            block: 512,
            write: 1,
            discard: self.grain,
            access: self.access,
        }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let in_flight = self.enter(offset, buf.len() as u64)?;
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| self.failed("read", offset, source))?;
        drop(in_flight);
        rate::after_read(buf.len());
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.check_changeable()?;
        let _in_flight = self.enter(offset, buf.len() as u64)?;
        let written = self.file.write_all_at(buf, offset);
        self.changed();
        written.map_err(|source| self.failed("write", offset, source))
    }

    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        self.check_range(&range)?;
        let _in_flight = self.enter(range.start, range.end - range.start)?;
        let range = match leave {
            AfterDiscard::Zeros => range, // the host writes zeros where a hole begins or ends within a block
            AfterDiscard::Any => self.whole_blocks(range),
        };
        if range.is_empty() || self.punch(&range)? || leave == AfterDiscard::Any {
            return Ok(());
        }
        self.write_zeros(range)
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.check_range(&range)?;
        let _in_flight = self.enter(range.start, range.end - range.start)?;
        self.extent_in(range)
    }

    fn flush(&self) -> Result<()> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let _one_at_a_time = self.flushing.lock();
        self.check_changeable()?;
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let flushed = match platform::make_durable(&self.file) {
            Ok(()) if self.named.load(Ordering::Relaxed) && !has_name(&self.file) => {
                Err(removed(LAYER))
            }
            flushed => flushed.map_err(|source| Error::io(LAYER, "flush", source)),
        };
        flushed.map_err(|error| {
            self.lost.store(true, Ordering::Release);
            self.path.named(error)
        })
    }

    fn set_len(&self, len: u64, _leave: AfterDiscard) -> Result<()> {
        self.check_changeable()?;
        if self.fixed_len {
            return Err(Error::new(
                Kind::Unsupported,
                LAYER,
                "cannot change the length of a disk device",
            )
            .in_file(self.path()));
        }
        let _one_at_a_time = self.resizing.lock();
        match self.len.load(Ordering::SeqCst) {
            now if len < now => self.cut(len),
            now if len > now => self.grow(len),
            _ => Ok(()),
        }
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        let Some(pin) = self.pinned.pin(&range, || self.check_range(&range))? else {
            return Ok(None);
        };
        Ok(Some(
            FileRange::new(self.file.clone(), range.start, range.end - range.start).holding(pin),
        ))
    }
}

/// Returns the length of a regular file or a disk. `None`: it is neither.
fn length(file: &File, meta: &Metadata) -> io::Result<Option<u64>> {
    if meta.is_file() {
        return Ok(Some(meta.len()));
    }
    platform::disk_len(file)
}

/// Returns the error about a lock of `file` that another process holds.
pub(super) fn in_use(layer: &'static str, file: &File) -> Error {
    let holder =
        platform::lock_holder(file).unwrap_or_else(|| "another process or machine".to_owned());
    Error::conflict(layer, format!("in use by {holder}")).because(Reason::InUse)
}

/// Returns true if an open file has a name on the host. True if the host cannot tell.
pub(super) fn has_name(file: &File) -> bool {
    file.metadata().map_or(true, |meta| meta.nlink() > 0)
}

/// Returns the error about a file that was removed, and its writes with it.
pub(super) fn removed(layer: &'static str) -> Error {
    Error::new(
        Kind::Io,
        layer,
        "removed or replaced while it was open; changes are lost",
    )
}

/// Returns the host's block size, limited to a valid range.
fn grain(blksize: u64) -> u64 {
    if blksize.is_power_of_two() {
        blksize.clamp(512, 1 << 20)
    } else {
        4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BlockDeviceExt;

    fn scratch(len: u64) -> (tempfile::TempDir, LocalFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = LocalFile::open(folder.path().join("disk.img"), Open::CreateNew)
            .unwrap()
            .unwrap();
        file.set_len(len, AfterDiscard::Zeros).unwrap();
        (folder, file)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn holes_of_the_host_are_zeros() {
        use crate::device::ExtentKind;

        let (_folder, file) = scratch(1 << 20);
        file.write_at(512 << 10, &[1; 4096]).unwrap();
        let kinds: Vec<_> = file
            .extents(0..1 << 20)
            .map(|extent| extent.unwrap().1)
            .collect();
        assert_eq!(
            kinds,
            [ExtentKind::Zero, ExtentKind::Data, ExtentKind::Zero]
        );
        file.discard(0..1 << 20, AfterDiscard::Any).unwrap();
        assert_eq!(
            file.extent_at(0..1 << 20).unwrap(),
            Extent {
                kind: ExtentKind::Zero,
                len: 1 << 20
            }
        );
    }

    /// A locked file is an image; an unlocked one may be a scratch file, which has no name on
    /// purpose.
    #[test]
    fn removed_files_are_not_called_durable() {
        for locked in [true, false] {
            let (_folder, file) = scratch(4096);
            if locked {
                file.lock(Lock::Exclusive).unwrap();
            }
            file.write_at(0, &[1; 512]).unwrap();
            file.flush().unwrap();
            std::fs::remove_file(file.path()).unwrap();
            file.write_at(0, &[2; 512]).unwrap();
            let error = file.flush().unwrap_err();
            assert!(error.message().contains("removed"), "{error}");
            assert!(
                file.write_at(0, &[3; 512]).is_err(),
                "an error is not forgotten"
            );
        }
    }

    #[test]
    fn the_length_is_that_under_the_lock() {
        let (_folder, file) = scratch(4096);
        let other = LocalFile::open(file.path(), Open::Write).unwrap().unwrap();
        file.set_len(8192, AfterDiscard::Zeros).unwrap();
        other.lock(Lock::Exclusive).unwrap();
        assert_eq!(other.info().len, 8192);
    }

    /// A writer that holds the lock replaces the file for which the second waits.
    #[test]
    fn a_file_that_was_replaced_is_opened_again() {
        let (folder, file) = scratch(4096);
        file.lock(Lock::Exclusive).unwrap();
        let path = file.path().to_owned();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                loop {
                    match LocalFile::open_locked(&path, Open::Write, Lock::Exclusive) {
                        Err(error) if error.kind() == Kind::Conflict => {}
                        opened => return opened.unwrap().unwrap(),
                    }
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            let new = folder.path().join("new");
            std::fs::write(&new, [7; 512]).unwrap();
            std::fs::rename(&new, &path).unwrap();
            drop(file);
            let found = waiting.join().unwrap();
            assert_eq!(found.read_vec(0, 512).unwrap(), [7; 512]);
        });
    }

    #[cfg(target_os = "linux")] // APFS makes holes only in files of more than 16 MiB
    #[test]
    fn zeros_are_not_written_over_zeros() {
        let (_folder, file) = scratch(1 << 20);
        file.cannot_punch.store(true, Ordering::Relaxed);
        // As where holes are not reported: all is data.
        file.zero_data(0..1 << 20).unwrap();
        assert_eq!(file.meta().unwrap().allocated, 0);
    }

    #[test]
    fn a_host_that_cannot_punch_writes_zeros() {
        let (_folder, file) = scratch(300 << 10);
        file.write_at(0, &vec![1; 300 << 10]).unwrap();
        file.cannot_punch.store(true, Ordering::Relaxed);
        file.discard(1..299 << 10, AfterDiscard::Zeros).unwrap();
        let bytes = file.read_vec(0, 300 << 10).unwrap();
        assert!(bytes[0] == 1 && bytes[1..299 << 10].iter().all(|byte| *byte == 0));
        assert!(bytes[299 << 10..].iter().all(|byte| *byte == 1));
    }

    #[test]
    fn after_a_lost_flush_only_reads_go_on() {
        let (_folder, file) = scratch(4096);
        file.lost.store(true, Ordering::Relaxed);
        assert!(file.read_vec(0, 4096).is_ok());
        let refused = [
            file.write_at(0, b"x"),
            file.discard(0..4096, AfterDiscard::Zeros),
            file.set_len(8192, AfterDiscard::Zeros),
            file.flush(),
        ];
        assert!(
            refused
                .iter()
                .all(|result| result.as_ref().unwrap_err().kind() == Kind::Io)
        );
    }

    #[test]
    fn a_cut_waits_for_loans_beyond_it() {
        let (_folder, file) = scratch(8192);
        let (near, far) = (
            file.file_range(0..4096).unwrap().unwrap(),
            file.file_range(0..8192).unwrap().unwrap(),
        );
        std::thread::scope(|scope| {
            let cut = scope.spawn(|| file.set_len(4096, AfterDiscard::Zeros));
            while file.info().len != 4096 {
                std::thread::yield_now();
            }
            assert_eq!(
                far.file.metadata().unwrap().len(),
                8192,
                "cut under a file range"
            );
            assert_eq!(
                file.file_range(0..8192).unwrap_err().kind(),
                Kind::OutOfRange
            );
            drop(far);
            cut.join().unwrap().unwrap();
        });
        assert_eq!(near.file.metadata().unwrap().len(), 4096);
    }

    #[test]
    fn folders_and_pipes_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = LocalFile::open(folder.path(), Open::Read).unwrap_err();
        assert!(error.to_string().contains("is a folder"), "{error}");
        assert!(
            LocalFile::open(folder.path().join("none"), Open::Read)
                .unwrap()
                .is_none()
        );
        assert_eq!(
            LocalFile::open("/dev/null", Open::Read).unwrap_err().kind(),
            Kind::Unsupported
        );
    }

    #[test]
    fn a_file_cut_by_another_is_a_conflict() {
        let (folder, file) = scratch(8192);
        File::options()
            .write(true)
            .open(folder.path().join("disk.img"))
            .unwrap()
            .set_len(100)
            .unwrap();
        let error = file.read_vec(0, 8192).unwrap_err();
        assert_eq!(error.kind(), Kind::Conflict);
        assert!(error.file().unwrap().ends_with("disk.img"));
    }
}
