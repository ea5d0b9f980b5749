//! FUSE requests for a volume.
//!
//! One file, as the requests are the methods of one trait; their work is in the other files of the
//! folder.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bandsaw::Kind;
use bandsaw::fs::NewKind;
use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::change::AttributeChanges;
use super::handles::{Handle, OpenFolder};
use super::xattrs::COMPRESS;
use super::{Answer, MAX_NAME, O_TRUNC, VolumeFs, configure, utf8};
use crate::seek;

thread_local! {
    /// Read buffer of a thread; it grows to the largest request and is kept.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for VolumeFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ];
        if self.gathers {
            wanted.push(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        if self.coarse {
            let _ = config.set_time_granularity(Duration::from_secs(1));
        }
        configure(config, &wanted)
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.entry(self.found(parent, name), reply);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.done(self.fs.attributes(self.view.node(ino))) {
            Ok(found) => reply.attr(&self.stays(&found), &self.view.attr(&found)),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = self.view.node(ino);
        let resized = size.map_or(Ok(()), |len| self.resize(req, node, len));
        let wanted = AttributeChanges {
            mode,
            uid,
            gid,
            atime,
            mtime,
            ctime,
        };
        match resized.and_then(|()| self.describe(node, &wanted)) {
            Ok(found) => reply.attr(&self.stays(&found), &self.view.attr(&found)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.done(self.fs.read_link(self.view.node(ino))) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = Self::special(mode, rdev)
            .and_then(|kind| self.make(req, self.view.node(parent), name, kind, mode));
        self.made(made, name, reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.made(
            self.make(req, self.view.node(parent), name, NewKind::Folder, mode),
            name,
            reply,
        );
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let kind = utf8(target.as_os_str()).map(|target| NewKind::Symlink(target.to_owned()));
        self.made(
            kind.and_then(|kind| self.make(req, self.view.node(parent), link_name, kind, 0o777)),
            link_name,
            reply,
        );
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.remove(self.view.node(parent), name), reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.remove(self.view.node(parent), name), reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(
            VolumeFs::rename(
                self,
                (self.view.node(parent), name),
                (self.view.node(newparent), newname),
                flags,
            ),
            reply,
        );
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = VolumeFs::link(
            self,
            self.view.node(ino),
            self.view.node(newparent),
            newname,
        );
        self.made(linked, newname, reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(req, self.view.node(ino), flags) {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.make(req, self.view.node(parent), name, NewKind::File, mode);
        let opened = made.and_then(|made| {
            let flags = OpenFlags(flags & !O_TRUNC);
            Ok((self.open_file(req, made.id, flags)?, made))
        });
        match opened {
            // The CREATE reply cannot give names and attributes different lifetimes.
            Ok(((handle, flags), made)) => {
                let keep = name
                    .to_str()
                    .map_or(Duration::ZERO, |name| self.keeps(name));
                reply.created(&keep, &self.view.attr(&made), Generation(0), handle, flags);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.handles.file(fh) {
            Ok(file) => file,
            Err(errno) => return reply.error(errno),
        };
        BUFFER.with_borrow_mut(|buf| {
            match self.done(file.read(&self.volume(), offset, size as usize, buf)) {
                Ok(read) => reply.data(&buf[..read]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.handles.file(fh).and_then(|file| {
            let (_, _inside) = self.changing()?;
            self.done(file.write(&self.volume(), offset, data))
        });
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match written.and_then(|()| {
            if kills {
                self.drop_privileges(self.view.node(ino))
            } else {
                Ok(())
            }
        }) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    /// Refuses FLUSH, after which the kernel does not ask again: it has written back its cache before. With
    /// an epoch, contents get their place now, since the order in which the kernel releases files is not
    /// always that in which programs close them.
    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if self.epoch.is_none() {
            return reply.error(Errno::ENOSYS);
        }
        match self.handles.file(fh) {
            Ok(file) => {
                file.close_contents();
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(Handle::File(file, write)) = self.handles.remove(fh) {
            if write {
                file.count_writer(false);
            }
            self.files.close(file);
        }
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // A commit covers all files; fsync is allowed on files opened read-only, too.
        empty(
            self.change
                .as_deref()
                .map_or(Ok(()), |change| self.done(change.sync())),
            reply,
        );
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = self.handles.add(Handle::Folder(Arc::new(OpenFolder::new(
            self.view.node(ino),
        ))));
        reply.opened(
            handle,
            FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
        );
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.list(ino, fh, offset, &mut |next, ino, kind, name| {
            Ok(reply.add(ino, next, kind, name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.list(ino, fh, offset, &mut |next, ino, _, name| {
            match self.fs.attributes(self.view.node(ino)) {
                Ok(found) => {
                    // READDIRPLUS gives names and attributes the same lifetime.
                    let keep = self.keeps(name).min(self.stays(&found));
                    Ok(reply.add(
                        ino,
                        next,
                        name,
                        &keep,
                        &self.view.attr(&found),
                        Generation(0),
                    ))
                }
                // Removed since the folder was listed.
                Err(error) if error.kind() == Kind::NotFound => Ok(false),
                Err(error) => Err(self.events.errno(&error)),
            }
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        drop(self.handles.remove(fh));
        reply.ok();
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let info = self.fs.volume();
        let (block, files) = (u64::from(info.block_size.max(1)), info.files + info.folders);
        let (total, free) = (info.total / block, info.free / block);
        // Inode numbers have 32 bits.
        let ffree = u64::from(u32::MAX).saturating_sub(files);
        reply.statfs(
            total,
            free,
            free,
            files + ffree,
            ffree,
            info.block_size,
            MAX_NAME as u32,
            info.block_size,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        position: u32,
        reply: ReplyEmpty,
    ) {
        let set = utf8(name).and_then(|name| match position {
            0 if name == COMPRESS => self.compress(req, self.view.node(ino), value),
            0 => self.set_xattr(self.view.node(ino), name, value, flags),
            _ => Err(Errno::EOPNOTSUPP),
        });
        empty(set, reply);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        sized(
            utf8(name).and_then(|name| self.xattr_value(self.view.node(ino), name)),
            size,
            reply,
        );
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        sized(self.xattr_names(self.view.node(ino)), size, reply);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(
            utf8(name).and_then(|name| self.remove_xattr(self.view.node(ino), name)),
            reply,
        );
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(self.allocate(fh, (offset, length), mode), reply);
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        seek::answer(offset, whence, reply, |offset, sought| {
            self.seek(self.view.node(ino), offset, sought)
        });
    }
}

fn empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// Replies to a request for an attribute or a list of names; a `size` of 0 asks for the length
/// only.
fn sized(answer: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match answer {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(errno) => reply.error(errno),
    }
}
