//! A disk as one file in a folder, for programs that only access files.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use bandsaw::device::{Access, AfterDiscard, BlockDevice, FileRange};
use bandsaw::sync::Mutex;
use fuser::{
    BackingId, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::events::Notes;
use crate::seek::{self, Sought};
use crate::shutdown::ShutdownGate;
use crate::volume::{CACHE_LIFETIME, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, configure};

/// Inode of the file; the folder is inode 1.
const DISK: INodeNo = INodeNo(2);
const BLOCK: u32 = 4096;
thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The host's file behind the disk, for FUSE passthrough: the kernel reads it directly.
#[derive(Debug)]
struct PassthroughFile {
    /// Prevents the file range from being moved.
    _file_range: FileRange,
    id: BackingId,
}

/// A folder with one file.
#[derive(Debug)]
pub(crate) struct DiskFs {
    device: Arc<dyn BlockDevice>,
    name: String,
    owner: (u32, u32),
    since: SystemTime,
    gate: Arc<ShutdownGate>,
    events: Arc<Notes>,
    /// True as long as passthrough is possible and the kernel accepts it.
    passes: AtomicBool,
    passed: Mutex<Option<PassthroughFile>>,
}

impl DiskFs {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        name: String,
        owner: (u32, u32),
        gate: Arc<ShutdownGate>,
        events: Arc<Notes>,
    ) -> Self {
        let passes = AtomicBool::new(false);
        Self {
            device,
            name,
            owner,
            since: SystemTime::now(),
            gate,
            events,
            passes,
            passed: Mutex::default(),
        }
    }

    /// Returns the host's file if it is identical to the disk. Writable disks are excluded: their
    /// file could grow.
    fn whole_file(&self) -> Option<FileRange> {
        let len = self.device.info().len;
        let file_range = self
            .device
            .file_range(0..len)
            .ok()
            .flatten()
            .filter(|_| !self.writable())?;
        let all = (file_range.offset, file_range.len) == (0, len)
            && file_range
                .file
                .metadata()
                .is_ok_and(|meta| meta.len() == len);
        all.then_some(file_range)
    }

    /// Opens the disk, with passthrough if the kernel supports it, which requires root.
    fn open_disk(&self, reply: ReplyOpen) {
        let mut passed = self.passed.lock();
        if passed.is_none() && self.passes.load(Ordering::Relaxed) {
            let id = |file_range: &FileRange| reply.open_backing(&*file_range.file).ok();
            *passed = self.whole_file().and_then(|file_range| {
                Some(PassthroughFile {
                    id: id(&file_range)?,
                    _file_range: file_range,
                })
            });
            // All opens of the file use passthrough, or none.
            self.passes.store(passed.is_some(), Ordering::Relaxed);
        }
        match &*passed {
            Some(passed) => {
                reply.opened_passthrough(FileHandle(0), FopenFlags::FOPEN_NOFLUSH, &passed.id)
            }
            None => reply.opened(
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
            ),
        }
    }

    fn writable(&self) -> bool {
        self.device.info().access == Access::ReadWrite
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let size = self.device.info().len;
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o500, 0),
            DISK if self.writable() => (FileType::RegularFile, 0o600, size),
            DISK => (FileType::RegularFile, 0o400, size),
            _ => return Err(Errno::ENOENT),
        };
        Ok(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        })
    }

    fn done<T>(&self, result: bandsaw::Result<T>) -> Result<T, Errno> {
        result.map_err(|error| self.events.errno(&error))
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&dyn BlockDevice) -> bandsaw::Result<T>,
    ) -> Result<T, Errno> {
        let _inside = self.gate.enter()?;
        self.done(change(&*self.device))
    }

    fn seek(&self, offset: u64, sought: Sought) -> Result<u64, Errno> {
        self.done(sought.find(&*self.device, offset))?
    }
}

impl Filesystem for DiskFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = self.whole_file().is_some()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        self.passes.store(offered, Ordering::Relaxed);
        // Without write-back caching, so that SEEK_HOLE and SEEK_DATA see current data.
        configure(
            config,
            &[
                InitFlags::FUSE_ASYNC_DIO,
                InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            ],
        )
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = if parent == INodeNo::ROOT && name == self.name.as_str() {
            self.attr(DISK)
        } else {
            Err(Errno::ENOENT)
        };
        match found {
            Ok(attr) => reply.entry(&CACHE_LIFETIME, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Ok(attr) => reply.attr(&CACHE_LIFETIME, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    /// The length is fixed, and dates are not stored.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let resized = size.is_some_and(|size| size != self.device.info().len);
        match self.attr(ino) {
            Ok(_) if resized || mode.is_some() || uid.is_some() || gid.is_some() => {
                reply.error(Errno::EPERM)
            }
            Ok(attr) => reply.attr(&CACHE_LIFETIME, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match ino {
            DISK if flags.acc_mode() != OpenAccMode::O_RDONLY && !self.writable() => {
                reply.error(Errno::EROFS)
            }
            DISK => self.open_disk(reply),
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left =
            usize::try_from(self.device.info().len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let now = left.min(size as usize);
        if now == 0 {
            return reply.data(&[]);
        }
        BUFFER.with_borrow_mut(|buf| {
            if buf.len() < now {
                buf.resize(now, 0);
            }
            match self.done(self.device.read_at(offset, &mut buf[..now])) {
                Ok(()) => reply.data(&buf[..now]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if offset.saturating_add(data.len() as u64) > self.device.info().len {
            return reply.error(Errno::ENOSPC);
        }
        match self.change(|device| device.write_at(offset, data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match if self.writable() {
            self.done(self.device.flush())
        } else {
            Ok(())
        } {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let len = self.device.info().len;
        let end = offset.saturating_add(length);
        let done = match mode & !KEEP_SIZE {
            0 if end <= len => Ok(()),
            PUNCH_HOLE | ZERO_RANGE if offset < end.min(len) => {
                self.change(|device| device.discard(offset..end.min(len), AfterDiscard::Zeros))
            }
            PUNCH_HOLE | ZERO_RANGE => Ok(()),
            0 => Err(Errno::ENOSPC),
            _ => Err(Errno::EOPNOTSUPP),
        };
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        seek::answer(offset, whence, reply, |offset, sought| {
            self.seek(offset, sought)
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let folder = FileType::Directory;
        let entries = [
            (INodeNo::ROOT, folder, "."),
            (INodeNo::ROOT, folder, ".."),
            (DISK, FileType::RegularFile, &self.name),
        ];
        for (at, (ino, kind, name)) in entries
            .into_iter()
            .enumerate()
            .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if reply.add(ino, at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let blocks = self.device.info().len / u64::from(BLOCK);
        reply.statfs(blocks, 0, 0, 1, 0, BLOCK, 255, BLOCK);
    }
}
