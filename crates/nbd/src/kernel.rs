//! The kernel of Linux as client: a disk of ours becomes one of its own, `/dev/nbd0`, with its
//! partitions.
//!
//! The kernel is told over generic netlink, and given sockets on which it asks at once: what a
//! handshake agrees on is in the message (`include/uapi/linux/nbd-netlink.h`,
//! `drivers/block/nbd.c`). It keeps a disk until it is told to let go, even one whose server is
//! gone and whose every request therefore fails.
#![allow(
    clippy::host_endian_bytes,
    reason = "the kernel talks in its own order"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bandsaw::{Error, Kind, Result};
use rustix::fs::{Mode, OFlags};

use crate::LAYER;
use crate::netlink::{Attributes, Family};
use crate::server::Server;

const FAMILY: &str = "nbd";
/// Connections at most: the kernel has a queue for each.
const MOST_CONNECTIONS: usize = 4;

mod command {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const DISCONNECT: u8 = 2;
}

mod attribute {
    pub(super) const INDEX: u16 = 1; // u32
    pub(super) const SIZE: u16 = 2; // u64, in bytes
    pub(super) const BLOCK_SIZE: u16 = 3; // u64
    pub(super) const SERVER_FLAGS: u16 = 5; // u64, those of the transmission phase
    pub(super) const SOCKETS: u16 = 7; // of SOCKET_ITEMs
    pub(super) const SOCKET_ITEM: u16 = 1; // of one SOCKET_FD
    pub(super) const SOCKET_FD: u16 = 1; // u32
}

/// Which of the kernel's disks one is, for as long as it is that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskId {
    /// Its number: 0 for `/dev/nbd0`.
    pub index: u32,
    /// Who made it, as the kernel tells: it gives the number away again when the disk has gone.
    pub maker: u32,
}

/// A disk of the kernel's that is served by this process.
#[derive(Debug)]
pub struct KernelDisk {
    id: DiskId,
    server: Server,
    /// Connections that have not ended.
    open: Arc<AtomicUsize>,
    connections: Vec<JoinHandle<()>>,
}

impl KernelDisk {
    /// Makes the first export of `server` a disk of the kernel's. `on_end` is called when the
    /// kernel has let go of it, whoever made it do so.
    ///
    /// [`Kind::Unsupported`] for a kernel that has no such disks (the module `nbd` is not loaded),
    /// or gives this process none; nothing has happened then.
    pub fn new(server: Server, on_end: impl FnOnce() + Send + 'static) -> Result<Self> {
        let family = Family::of(FAMILY).map_err(unavailable)?;
        let count =
            thread::available_parallelism().map_or(1, |count| count.get().min(MOST_CONNECTIONS));
        let pairs: io::Result<Vec<_>> = (0..count).map(|_| UnixStream::pair()).collect();
        let pairs = pairs.map_err(|source| Error::io(LAYER, "make a pair of sockets", source))?;
        let (theirs, ours): (Vec<_>, Vec<_>) = pairs
            .into_iter()
            .map(|(theirs, ours)| (OwnedFd::from(theirs), ours))
            .unzip();
        let index = connect(&family, &server, &theirs).map_err(unavailable)?;
        drop(theirs);
        let Some(id) = DiskId::of(index).filter(|_| is_block_device(&path_of(index))) else {
            // In a container, say, which has a /dev of its own.
            let _ = disconnect(index);
            return Err(
                Error::unsupported(LAYER, "the kernel's new disk is not to be seen here")
                    .in_file(path_of(index)),
            );
        };
        let mut disk = Self {
            id,
            server,
            open: Arc::new(AtomicUsize::new(count)),
            connections: Vec::new(),
        };
        if let Err(source) = disk.serve(ours, on_end) {
            let _ = disconnect(index);
            return Err(Error::io(LAYER, "begin a thread", source));
        }
        // Whoever opens it first has the kernel look for partitions. A disk that cannot be read has
        // none.
        let _ = File::open(path_of(index));
        Ok(disk)
    }

    fn serve(
        &mut self,
        sockets: Vec<UnixStream>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let on_end = Arc::new(Mutex::new(Some(on_end)));
        for socket in sockets {
            let (server, open, on_end) = (
                self.server.clone(),
                Arc::clone(&self.open),
                Arc::clone(&on_end),
            );
            let serve = move || {
                // What the kernel waits for must not wait for the kernel to write something back,
                // perhaps to this very disk.
                let _ = rustix::process::configure_io_flusher_behavior(true);
                server.serve_kernel(socket);
                if open.fetch_sub(1, Ordering::AcqRel) == 1
                    && let Some(on_end) =
                        on_end.lock().unwrap_or_else(PoisonError::into_inner).take()
                {
                    on_end();
                }
            };
            self.connections
                .push(thread::Builder::new().name("nbd".into()).spawn(serve)?);
        }
        Ok(())
    }

    /// Which one it is.
    pub fn id(&self) -> DiskId {
        self.id
    }

    /// Takes it from the kernel, whoever uses it, and makes everything durable. What is mounted of
    /// it is the caller's to sync.
    pub fn end(self) -> Result<()> {
        let path = path_of(self.id.index);
        // Others may have taken it away, and the kernel have given the number to others since.
        let is_there =
            self.open.load(Ordering::Acquire) > 0 || DiskId::of(self.id.index) == Some(self.id);
        let taken = if is_there {
            // A program that uses it gets errors from now on, for what it has not synced, too; what
            // the kernel holds does not.
            let synced = File::open(&path).and_then(|disk| disk.sync_all());
            let synced = synced.map_err(|source| Error::io(LAYER, "sync", source).in_file(&path));
            disconnect(self.id.index).and(synced)
        } else {
            Ok(())
        };
        if taken.is_ok() {
            self.connections
                .into_iter()
                .for_each(|connection| drop(connection.join()));
        }
        let stopped = self.server.stop();
        taken.and(stopped)
    }
}

impl DiskId {
    /// The disk of this number, if the kernel has one there.
    fn of(index: u32) -> Option<Self> {
        let maker = fs::read_to_string(format!("/sys/block/nbd{index}/pid")).ok()?;
        maker.trim().parse().ok().map(|maker| Self { index, maker })
    }

    /// `/dev/nbd0`.
    pub fn path(self) -> PathBuf {
        path_of(self.index)
    }

    /// The disk and its partitions, as far as they are there.
    pub fn nodes(self) -> Vec<PathBuf> {
        let name = format!("nbd{}", self.index);
        let partitions = fs::read_dir(Path::new("/sys/block").join(&name))
            .into_iter()
            .flatten()
            .flatten();
        let mut partitions: Vec<_> = partitions
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        partitions.retain(|found| is_partition(found, &name));
        partitions.sort_by_key(|partition| (partition.len(), partition.clone()));
        std::iter::once(self.path())
            .chain(
                partitions
                    .into_iter()
                    .map(|name| Path::new("/dev").join(name)),
            )
            .collect()
    }

    /// Returns whether `path` names the disk or one of its partitions, there or not.
    pub fn has(self, path: &Path) -> bool {
        let disk = self.path();
        path == disk
            || path
                .to_str()
                .zip(disk.to_str())
                .is_some_and(|(path, disk)| is_partition(path, disk))
    }

    /// Opens the disk so that nobody mounts or claims anything of it meanwhile. Fails with
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if somebody has.
    pub fn claim(self) -> io::Result<File> {
        Ok(rustix::fs::open(
            self.path(),
            OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::empty(),
        )?
        .into())
    }

    /// Takes the disk from the kernel, of a server that is gone; nothing if it is another's by now.
    pub fn forget(self) {
        if Self::of(self.index) == Some(self) {
            // Where that is not allowed it stays, as dead as it is.
            let _ = disconnect(self.index);
        }
    }
}

/// Returns whether the kernel of this host may make disks of what this process serves.
pub fn is_available() -> bool {
    rustix::process::geteuid().is_root() && Family::of(FAMILY).is_ok()
}

fn path_of(index: u32) -> PathBuf {
    format!("/dev/nbd{index}").into()
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// `nbd0p1` of `nbd0`.
fn is_partition(name: &str, disk: &str) -> bool {
    let number = name
        .strip_prefix(disk)
        .and_then(|rest| rest.strip_prefix('p'));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Tells the kernel of a disk behind these sockets; returns its number.
fn connect(family: &Family, server: &Server, sockets: &[OwnedFd]) -> io::Result<u32> {
    let mut items = Attributes::default();
    for socket in sockets {
        let mut item = Attributes::default();
        item.put(
            attribute::SOCKET_FD,
            &socket.as_raw_fd().cast_unsigned().to_ne_bytes(),
        );
        items.nest(attribute::SOCKET_ITEM, &item);
    }
    let (info, flags) = server.for_kernel();
    // The kernel counts in sectors; a disk that ends within one of 4096 bytes still has whole ones
    // of 512.
    let sector = if info.len.is_multiple_of(u64::from(info.block)) {
        info.block
    } else {
        512
    };
    let mut attributes = Attributes::default();
    attributes.put(attribute::SIZE, &info.len.to_ne_bytes());
    attributes.put(attribute::BLOCK_SIZE, &u64::from(sector).to_ne_bytes());
    attributes.put(attribute::SERVER_FLAGS, &u64::from(flags).to_ne_bytes());
    attributes.nest(attribute::SOCKETS, &items);
    let told = family.ask(command::CONNECT, &attributes)?;
    let index = told
        .get(attribute::INDEX)
        .and_then(|value| Some(u32::from_ne_bytes(*value.first_chunk()?)));
    index.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel does not tell which disk it is",
        )
    })
}

fn disconnect(index: u32) -> Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(attribute::INDEX, &index.to_ne_bytes());
    let ended = Family::of(FAMILY).and_then(|family| family.ask(command::DISCONNECT, &attributes));
    match ended {
        Ok(_) => Ok(()),
        // Gone already.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        Err(source) => {
            Err(Error::io(LAYER, "take the disk from the kernel", source).in_file(path_of(index)))
        }
    }
}

fn unavailable(error: io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "the kernel has no network block devices; `modprobe nbd` gives it some".to_owned()
        }
        io::ErrorKind::PermissionDenied => "only root may give the kernel a disk".to_owned(),
        _ => format!("the kernel takes no disk: {error}"),
    };
    Error::new(Kind::Unsupported, LAYER, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_from_other_disks() {
        let disk = DiskId { index: 1, maker: 1 };
        for ours in ["/dev/nbd1", "/dev/nbd1p1", "/dev/nbd1p12"] {
            assert!(disk.has(Path::new(ours)), "{ours}");
        }
        for other in [
            "/dev/nbd",
            "/dev/nbd12",
            "/dev/nbd1p",
            "/dev/nbd1p1x",
            "/dev/nbd0p1",
            "nbd1",
            "",
        ] {
            assert!(!disk.has(Path::new(other)), "{other}");
        }
    }
}
