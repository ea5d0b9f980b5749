//! The Linux kernel as client: a disk is attached as `/dev/nbd0`, with its partitions.
//!
//! The disk is configured over generic netlink; the message has the socket descriptors and the
//! parameters that a handshake would negotiate, so that transmission starts immediately
//! (`include/uapi/linux/nbd-netlink.h`, `drivers/block/nbd.c`). The kernel keeps a disk until it is
//! disconnected, even if its server has ended and every request fails.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};
use rustix::fs::{Mode, OFlags};

use crate::LAYER;
use crate::netlink::{Attributes, Family};
use crate::server::Server;

const FAMILY: &str = "nbd";
/// Maximum number of connections; the kernel has a queue for each.
const MAX_CONNECTIONS: usize = 4;

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

/// Identity of a kernel disk: device numbers are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskId {
    /// Device number: 0 for `/dev/nbd0`.
    pub index: u32,
    /// Process that attached it, as listed by the kernel; it distinguishes successive disks of one
    /// number.
    pub maker: u32,
}

/// A kernel disk that is served by this process.
#[derive(Debug)]
pub struct KernelDisk {
    id: DiskId,
    server: Server,
    /// Number of open connections.
    open: Arc<AtomicUsize>,
    connections: Vec<JoinHandle<()>>,
}

impl KernelDisk {
    /// Attaches the first export of `server` as a kernel disk. `on_end` is called when the kernel
    /// has disconnected it, for any reason.
    ///
    /// Fails with [`Kind::Unsupported`] if the kernel has no NBD support (the module `nbd` is not
    /// loaded), or denies it to this process; nothing has changed then.
    pub fn new(server: Server, on_end: impl FnOnce() + Send + 'static) -> Result<Self> {
        let family = Family::of(FAMILY).map_err(unavailable)?;
        let count =
            thread::available_parallelism().map_or(1, |count| count.get().min(MAX_CONNECTIONS));
        let pairs: io::Result<Vec<_>> = (0..count).map(|_| UnixStream::pair()).collect();
        let pairs = pairs.map_err(|source| Error::io(LAYER, "create a socket pair", source))?;
        let (theirs, ours): (Vec<_>, Vec<_>) = pairs
            .into_iter()
            .map(|(theirs, ours)| (OwnedFd::from(theirs), ours))
            .unzip();
        let index = connect(&family, &server, &theirs).map_err(unavailable)?;
        drop(theirs);
        let Some(id) = DiskId::of(index).filter(|_| is_block_device(&path_of(index))) else {
            // For example in a container with a /dev of its own.
            let _ = disconnect(index);
            return Err(Error::unsupported(
                LAYER,
                "the new disk of the kernel is not visible here",
            )
            .in_file(path_of(index)));
        };
        let mut disk = Self {
            id,
            server,
            open: Arc::new(AtomicUsize::new(count)),
            connections: Vec::new(),
        };
        if let Err(source) = disk.serve(ours, on_end) {
            let _ = disconnect(index);
            return Err(Error::io(LAYER, "start a thread", source));
        }
        // The first open makes the kernel scan for partitions. An unreadable disk has none.
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
                // A deadlock would result if serving the kernel waited for writeback, perhaps to
                // this same disk.
                let _ = rustix::process::configure_io_flusher_behavior(true);
                server.serve_kernel(socket);
                if open.fetch_sub(1, Ordering::AcqRel) == 1
                    && let Some(on_end) = on_end.lock().take()
                {
                    on_end();
                }
            };
            self.connections
                .push(thread::Builder::new().name("nbd".into()).spawn(serve)?);
        }
        Ok(())
    }

    /// Returns the identity of the disk.
    pub fn id(&self) -> DiskId {
        self.id
    }

    /// Detaches the disk, even if it is in use, and makes everything durable. Mounted file systems
    /// must be synced by the caller.
    pub fn end(self) -> Result<()> {
        let path = path_of(self.id.index);
        // Another process may have detached it, and the kernel may have reused the number since.
        let is_there =
            self.open.load(Ordering::Acquire) > 0 || DiskId::of(self.id.index) == Some(self.id);
        let taken = if is_there {
            // From now on programs get errors, also for data that they have not synced; the
            // kernel's dirty pages are written first.
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
    /// Returns the disk with this number, if the kernel has one.
    fn of(index: u32) -> Option<Self> {
        let maker = fs::read_to_string(format!("/sys/block/nbd{index}/pid")).ok()?;
        maker.trim().parse().ok().map(|maker| Self { index, maker })
    }

    /// Returns the path of the device node, `/dev/nbd0`.
    pub fn path(self) -> PathBuf {
        path_of(self.index)
    }

    /// Returns the existing device nodes of the disk and its partitions.
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

    /// Returns true if `path` names the disk or one of its partitions, existing or not.
    pub fn has(self, path: &Path) -> bool {
        let disk = self.path();
        path == disk
            || path
                .to_str()
                .zip(disk.to_str())
                .is_some_and(|(path, disk)| is_partition(path, disk))
    }

    /// Opens the disk exclusively, so that nothing can mount or claim it meanwhile. Fails with
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if it is in use.
    pub fn claim(self) -> io::Result<File> {
        Ok(rustix::fs::open(
            self.path(),
            OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::empty(),
        )?
        .into())
    }

    /// Detaches the disk of a server that has ended; does nothing if the number is another disk's.
    pub fn detach_unserved(self) {
        if Self::of(self.index) == Some(self) {
            // Without permission it stays attached.
            let _ = disconnect(self.index);
        }
    }
}

/// Returns true if this process may attach kernel disks on this host.
pub fn is_available() -> bool {
    rustix::process::geteuid().is_root() && Family::of(FAMILY).is_ok()
}

fn path_of(index: u32) -> PathBuf {
    format!("/dev/nbd{index}").into()
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Returns true for a partition such as `nbd0p1` of `nbd0`.
fn is_partition(name: &str, disk: &str) -> bool {
    let number = name
        .strip_prefix(disk)
        .and_then(|rest| rest.strip_prefix('p'));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Attaches a disk with these sockets; returns its number.
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
    // The kernel counts sectors; if the length is not a multiple of 4096-byte sectors, use 512
    // bytes.
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
    let reply = family.execute(command::CONNECT, &attributes)?;
    let index = reply
        .get(attribute::INDEX)
        .and_then(|value| Some(u32::from_ne_bytes(*value.first_chunk()?)));
    index.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the kernel did not report its disk",
        )
    })
}

fn disconnect(index: u32) -> Result<()> {
    let mut attributes = Attributes::default();
    attributes.put(attribute::INDEX, &index.to_ne_bytes());
    let ended =
        Family::of(FAMILY).and_then(|family| family.execute(command::DISCONNECT, &attributes));
    match ended {
        Ok(_) => Ok(()),
        // Already disconnected.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(())
        }
        Err(source) => Err(
            Error::io(LAYER, "disconnect the disk from the kernel", source).in_file(path_of(index)),
        ),
    }
}

fn unavailable(error: io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::NotFound => {
            "the kernel has no network block devices; run `modprobe nbd`".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "connecting a disk to the kernel requires root".to_owned()
        }
        _ => format!("the kernel refused the disk: {error}"),
    };
    Error::new(Kind::Unsupported, LAYER, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_of_a_disk_are_recognized() {
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
