//! A mounted volume. FUSE requests are in `requests.rs`; the operations behind them are here and in
//! the files beside it.

mod change;
mod files;
mod handles;
mod requests;
mod xattrs;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bandsaw::fs::{Attributes, FileKind, FileSystem, NodeId, Timestamp, hfsplus};
use bandsaw::ops::writable_volume::WritableVolume;
use fuser::{
    Errno, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    OpenAccMode, OpenFlags, ReplyEntry, Request,
};

use self::files::{Files, Volume};
use self::handles::{Handle, Handles};
use crate::attributes::{self, View};
use crate::events::Notes;
use crate::seek::Sought;
use crate::shutdown::ShutdownGate;

/// Lifetime of the kernel's cache entries: no other process changes the volume.
pub(crate) const CACHE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Lifetime of the cached attributes of a folder that may change. A reply computed before a change
/// of the folder may reach the kernel after it and be cached as current; its dates would be wrong
/// for the whole lifetime.
const SHORT: Duration = Duration::from_secs(1);
/// Maximum size of a write request, in bytes.
pub(crate) const MAX_WRITE: u32 = 1 << 20;
/// Maximum number of pending background requests of the kernel, such as readahead and writeback.
pub(crate) const MAX_BACKGROUND: u16 = 64;
/// Maximum length of a name, in UTF-16 units on HFS+, in bytes on APFS.
const MAX_NAME: usize = 255;
/// Bits of `mode` of fallocate(2).
pub(crate) const KEEP_SIZE: i32 = 1;
pub(crate) const PUNCH_HOLE: i32 = 2;
pub(crate) const ZERO_RANGE: i32 = 0x10;
/// Flags of open(2), the same on all Linux targets in Rust's tiers 1 and 2 except MIPS.
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;

type Answer<T> = Result<T, Errno>;

/// A mounted volume.
#[derive(Debug)]
pub(crate) struct VolumeFs {
    fs: Arc<dyn FileSystem>,
    /// The same volume if it is writable.
    change: Option<WritableVolume>,
    view: View,
    files: Files,
    handles: Handles,
    gate: Arc<ShutdownGate>,
    events: Arc<Notes>,
    /// True if the kernel's write-back cache is enabled.
    gathers: bool,
    /// True if names are case-insensitive or normalized: the kernel must not cache names with
    /// several spellings.
    folds: bool,
    /// True if timestamps have a resolution of one second.
    coarse: bool,
    /// True if names are stored decomposed and listed composed: a program that creates `é` looks it
    /// up in that form.
    composes: bool,
    /// Latest date that is recorded.
    epoch: Option<Timestamp>,
}

/// Parameters of [`VolumeFs::new`] besides the volume.
pub(crate) struct VolumeFsOptions {
    pub(crate) mounter: (u32, u32),
    pub(crate) owner: (Option<u32>, Option<u32>),
    pub(crate) umask: u16,
    pub(crate) gathers: bool,
    pub(crate) decomposed: bool,
    pub(crate) epoch: Option<Timestamp>,
    pub(crate) gate: Arc<ShutdownGate>,
    pub(crate) events: Arc<Notes>,
}

impl VolumeFs {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        change: Option<WritableVolume>,
        setting: VolumeFsOptions,
    ) -> Self {
        let info = fs.volume();
        let VolumeFsOptions {
            mounter,
            owner,
            umask,
            gathers,
            decomposed,
            epoch,
            gate,
            events,
        } = setting;
        let is_hfs = info.format.starts_with("HFS");
        let view = View {
            root: fs.root(),
            mounter,
            owner,
            umask,
            block_size: info.block_size,
        };
        Self {
            view,
            gathers: gathers && change.is_some(),
            folds: !info.case_sensitive,
            coarse: is_hfs,
            composes: is_hfs && !decomposed,
            epoch,
            fs,
            change,
            files: Files::default(),
            handles: Handles::default(),
            gate,
            events,
        }
    }

    fn volume(&self) -> Volume<'_> {
        Volume {
            fs: &*self.fs,
            change: self.change.as_ref(),
        }
    }

    /// Returns the cache lifetime of a name: zero if it has other spellings, since the kernel could
    /// keep one that was removed.
    fn keeps(&self, name: &str) -> Duration {
        let one_spelling =
            name.is_ascii() && !(self.folds && name.bytes().any(|byte| byte.is_ascii_alphabetic()));
        if one_spelling || self.change.is_none() {
            CACHE_LIFETIME
        } else {
            Duration::ZERO
        }
    }

    /// Returns the cache lifetime of an object's attributes.
    fn stays(&self, found: &Attributes) -> Duration {
        if found.kind == FileKind::Folder && self.change.is_some() {
            SHORT
        } else {
            CACHE_LIFETIME
        }
    }

    fn found(&self, parent: INodeNo, name: &OsStr) -> Answer<(Attributes, Duration)> {
        let name = utf8(name)?;
        if name.encode_utf16().count() > MAX_NAME {
            return Err(Errno::ENAMETOOLONG);
        }
        let found = self.done(self.fs.lookup(self.view.node(parent), name))?;
        found
            .map(|found| (found, self.keeps(name)))
            .ok_or(Errno::ENOENT)
    }

    fn entry(&self, answer: Answer<(Attributes, Duration)>, reply: ReplyEntry) {
        match answer {
            Ok((found, keep)) => reply.entry_with_ttls(
                &self.stays(&found),
                &keep,
                &self.view.attr(&found),
                Generation(0),
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn made(&self, answer: Answer<Attributes>, name: &OsStr, reply: ReplyEntry) {
        self.entry(
            answer.map(|made| {
                (
                    made,
                    name.to_str()
                        .map_or(Duration::ZERO, |name| self.keeps(name)),
                )
            }),
            reply,
        );
    }

    /// Opens a file, and truncates it if requested.
    fn open_file(
        &self,
        req: &Request,
        node: NodeId,
        flags: OpenFlags,
    ) -> Answer<(FileHandle, FopenFlags)> {
        let write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if write {
            // The kernel itself refuses to open files of a read-only mount for writing.
            self.check_writable(node, flags.0 & O_APPEND != 0)?;
        }
        let file = self.files.get(node);
        let opened = if write {
            file.count_writer(true); // from here on it is not compressed
            self.done(file.for_writing(&self.volume()))
        } else {
            self.done(file.for_reading(&self.volume()))
        };
        let truncated = opened.and_then(|()| match write && flags.0 & O_TRUNC != 0 {
            true => self.resize(req, node, 0),
            false => Ok(()),
        });
        if let Err(errno) = truncated {
            if write {
                file.count_writer(false);
            }
            self.files.close(file);
            return Err(errno);
        }
        let handle = self.handles.add(Handle::File(file, write));
        // Closing a file that was only read needs no FLUSH request.
        let quiet = if write {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_NOFLUSH
        };
        Ok((handle, FopenFlags::FOPEN_KEEP_CACHE | quiet))
    }

    /// Returns the offset of the next data or hole at or after `offset`.
    fn seek(&self, node: NodeId, offset: u64, sought: Sought) -> Answer<u64> {
        let file = self.files.find(node).ok_or(Errno::EBADF)?;
        // Data in the kernel's write-back cache is unknown here, and would be reported as a hole.
        if self.gathers && file.has_writers() {
            return Err(Errno::EOPNOTSUPP);
        }
        let device = self.done(file.device(&self.volume()))?;
        self.done(sought.find(&*device, offset))?
    }

    fn allocate(&self, handle: FileHandle, range: (u64, u64), mode: i32) -> Answer<()> {
        let file = self.handles.file(handle)?;
        let (_, _inside) = self.changing()?;
        let (start, length) = range;
        let end = start.checked_add(length).ok_or(Errno::EFBIG)?;
        let volume = self.volume();
        let done = match mode {
            0 => file.extend_to(&volume, end),
            // Blocks after the end of a file are not preallocated.
            KEEP_SIZE if end <= self.done(file.device(&volume))?.info().len => Ok(()),
            _ if mode == PUNCH_HOLE | KEEP_SIZE || mode == ZERO_RANGE | KEEP_SIZE => {
                file.punch(&volume, start, end)
            }
            ZERO_RANGE => file
                .punch(&volume, start, end)
                .and_then(|()| file.extend_to(&volume, end)),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.done(done)
    }

    /// Passes the entries from index `offset` on to `add` until that returns that the buffer is
    /// full: offset of the next entry, inode, kind, name.
    fn list(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        add: &mut dyn FnMut(u64, INodeNo, FileType, &str) -> Answer<bool>,
    ) -> Answer<()> {
        let folder = self.handles.folder(handle, offset == 0)?;
        let entries = self.done(folder.entries(&*self.fs))?;
        // The kernel ignores the inode number of `..`.
        for (at, name) in [".", ".."]
            .into_iter()
            .enumerate()
            .skip(usize::try_from(offset).unwrap_or(usize::MAX))
        {
            if add(at as u64 + 1, ino, FileType::Directory, name)? {
                return Ok(());
            }
        }
        let first = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
        for (at, entry) in entries.iter().enumerate().skip(first) {
            let name = if self.composes {
                hfsplus::composed(&entry.name)
            } else {
                Cow::Borrowed(&*entry.name)
            };
            if add(
                at as u64 + 3,
                self.view.ino(entry.node),
                attributes::file_type(entry.kind),
                &name,
            )? {
                break;
            }
        }
        Ok(())
    }
}

/// Returns a name as UTF-8, the encoding of these volumes; fails with EILSEQ.
fn utf8(name: &OsStr) -> Answer<&str> {
    name.to_str().ok_or(Errno::EILSEQ)
}

/// Negotiates the capabilities that all mounts use.
pub(crate) fn configure(config: &mut KernelConfig, wanted: &[InitFlags]) -> io::Result<()> {
    for flag in wanted {
        // Older kernels lack some capabilities; all are optional.
        let _ = config.add_capabilities(*flag);
    }
    // Both values are within the protocol's limits.
    let _ = config.set_max_write(MAX_WRITE);
    let _ = config.set_max_background(MAX_BACKGROUND);
    Ok(())
}
