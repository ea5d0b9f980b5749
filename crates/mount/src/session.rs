//! The lifetime of a mount.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bandsaw::device::{BlockDevice, reserve};
use bandsaw::fs::FileSystem;
use bandsaw::ops::writable_volume::WritableVolume;
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Result};
use fuser::{Config, Filesystem, MountOption, Session, SessionACL};
use rustix::process::{Resource, getrlimit};

use crate::disk::DiskFs;
use crate::events::{Note, Notes};
use crate::host;
use crate::options::MountOptions;
use crate::shutdown::ShutdownGate;
use crate::volume::{VolumeFs, VolumeFsOptions};
use crate::{LAYER, SUBTYPE};

/// Interval of syncs, even if no program asks for one; it limits the loss in a crash.
const BETWEEN_SYNCS: Duration = Duration::from_secs(3);
/// Maximum wait at the end of a mount for programs that still use it.
const UNMOUNT_TIMEOUT: Duration = Duration::from_millis(500);
/// Size of the kernel's readahead, in KiB.
const READ_AHEAD: u32 = 1024;
/// Memory in bytes of a thread that serves the kernel: its buffer of 16 MiB, its stack, and what a
/// request takes.
const THREAD_MEMORY: usize = 24 << 20;
/// Address space in bytes that the C library reserves for the allocations of a thread.
const ARENA: usize = 64 << 20;
/// Memory in bytes of the rest of the process while it serves.
const REST_MEMORY: usize = 64 << 20;

/// Content of a mount.
#[derive(Debug, Clone)]
pub enum MountContent {
    /// A read-only volume.
    Volume(Arc<dyn FileSystem>),
    /// A writable volume.
    VolumeMut(WritableVolume),
    /// A disk as a file of this name.
    Disk(Arc<dyn BlockDevice>, String),
}

/// A folder on which a volume or a disk is mounted. Programs see errors of the image as errors of
/// their system calls; the owner is notified through a [`Note`].
pub struct Mounted {
    folder: PathBuf,
    shown: MountContent,
    gate: Arc<ShutdownGate>,
    ended: Arc<Mutex<Receiver<()>>>,
    session: JoinHandle<io::Result<()>>,
    clock: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Mounted {
    /// Mounts on `folder`, which must exist. Fails with [`Kind::Unsupported`] if the host has no
    /// FUSE. `on_end` is called when the mount has ended, also if another program unmounted it.
    pub fn new(
        shown: MountContent,
        folder: &Path,
        options: &MountOptions,
        note: Note,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let folder = folder
            .canonicalize()
            .map_err(|source| Error::io(LAYER, "find", source).in_file(folder))?;
        let (gate, events) = (Arc::<ShutdownGate>::default(), Arc::new(Notes::new(note)));
        let mounter = (
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        );
        let config = config(options, matches!(shown, MountContent::Volume(_)))?;
        // Before the mount, so that a thread that cannot be started leaves nothing behind.
        let clock = (shown.changes() && options.epoch.is_none())
            .then(|| sync_by_clock(shown.clone(), events.clone()))
            .transpose()?;
        let (end, ended) = mpsc::channel();
        let session = match &shown {
            MountContent::Disk(device, name) => {
                let owner = (
                    options.uid.unwrap_or(mounter.0),
                    options.gid.unwrap_or(mounter.1),
                );
                let disk = DiskFs::new(
                    device.clone(),
                    name.clone(),
                    owner,
                    gate.clone(),
                    events.clone(),
                );
                start(disk, &folder, &config, on_end, end)
            }
            MountContent::Volume(_) | MountContent::VolumeMut(_) => {
                let setting = VolumeFsOptions {
                    mounter,
                    owner: owner(options, mounter),
                    umask: options.umask,
                    gathers: options.gather,
                    decomposed: options.decomposed,
                    epoch: options.epoch,
                    gate: gate.clone(),
                    events: events.clone(),
                };
                let volume = match &shown {
                    MountContent::VolumeMut(fs) => {
                        VolumeFs::new(fs.shared(), Some(fs.clone()), setting)
                    }
                    MountContent::Volume(fs) => VolumeFs::new(fs.clone(), None, setting),
                    MountContent::Disk(..) => {
                        return Err(Error::new(
                            Kind::Invalid,
                            LAYER,
                            "cannot mount a disk as a folder of files: expected a volume",
                        ));
                    }
                };
                start(volume, &folder, &config, on_end, end)
            }
        }?;
        host::read_ahead(&folder, READ_AHEAD);
        Ok(Self {
            folder,
            shown,
            gate,
            ended: Arc::new(Mutex::new(ended)),
            session,
            clock,
        })
    }

    /// Returns the mount point.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Unmounts, unless that has already happened, and leaves the volume clean and durable.
    /// Programs that still use it get errors from then on.
    pub fn end(self) -> Result<()> {
        let waits = || self.ended.lock();
        let mut gone = self.session.is_finished() || waits().try_recv().is_ok();
        let mut handed = Ok(());
        if !gone {
            handed = if self.shown.changes() {
                host::hand_over(&self.folder)
            } else {
                Ok(())
            };
            host::unmount(&self.folder, true)?;
            gone = waits().recv_timeout(UNMOUNT_TIMEOUT).is_ok();
        }
        if let Some((stop, clock)) = self.clock {
            drop(stop);
            let _ = clock.join();
        }
        self.gate.close();
        let left = match &self.shown {
            MountContent::Volume(_) => Ok(()),
            MountContent::VolumeMut(fs) => fs.unmount(),
            MountContent::Disk(device, _) if self.shown.changes() => device.flush(),
            MountContent::Disk(..) => Ok(()),
        };
        // If files are still open, the threads end with the process.
        if gone && self.session.join().is_err() {
            return Err(Error::new(
                Kind::Io,
                LAYER,
                "a thread of the mount panicked",
            ));
        }
        left.and(handed)
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted")
            .field("folder", &self.folder)
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

impl MountContent {
    fn changes(&self) -> bool {
        match self {
            Self::Volume(_) => false,
            Self::VolumeMut(_) => true,
            Self::Disk(device, _) => device.info().access == bandsaw::device::Access::ReadWrite,
        }
    }

    fn sync(&self) -> Result<()> {
        match self {
            Self::Volume(_) => Ok(()),
            Self::VolumeMut(fs) => fs.sync(),
            Self::Disk(device, _) => device.flush(),
        }
    }
}

/// Returns the owner and group of everything, if they override the recorded ones.
fn owner(options: &MountOptions, mounter: (u32, u32)) -> (Option<u32>, Option<u32>) {
    match options.owners.unwrap_or(mounter.0 == 0) {
        true => (options.uid, options.gid),
        false => (
            options.uid.or(Some(mounter.0)),
            options.gid.or(Some(mounter.1)),
        ),
    }
}

fn config(options: &MountOptions, read_only: bool) -> Result<Config> {
    let flag = |yes: bool, on: MountOption, off: MountOption| if yes { on } else { off };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.replace(',', "\\,")),
        MountOption::CUSTOM(format!("subtype={SUBTYPE}")),
        MountOption::DefaultPermissions,
        flag(
            options.read_only || read_only,
            MountOption::RO,
            MountOption::RW,
        ),
        flag(options.exec, MountOption::Exec, MountOption::NoExec),
        flag(options.suid, MountOption::Suid, MountOption::NoSuid),
        flag(options.dev, MountOption::Dev, MountOption::NoDev),
    ];
    config.acl = if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let usual = match options.epoch {
        Some(_) => 1, // requests take effect in their order
        None => (2 * cores).clamp(4, 16),
    };
    let threads = options.threads.unwrap_or(usual);
    config.n_threads = Some(threads_with_memory(threads)?);
    config.clone_fd = true;
    Ok(config)
}

/// Returns up to `wanted` threads, as many as there is memory for: one that gets none would end the
/// process, and leave a mount point that cannot be used.
fn threads_with_memory(wanted: usize) -> Result<usize> {
    let is_limited = getrlimit(Resource::As).current.is_some();
    let thread = THREAD_MEMORY + if is_limited { ARENA } else { 0 };
    let is_free = |count: usize| {
        let mut room = Vec::new();
        let reserved = reserve(&mut room, count * thread + REST_MEMORY);
        drop(std::hint::black_box(room)); // the compiler would leave an unused allocation out
        reserved.is_ok()
    };
    let mut count = wanted.max(1);
    while !is_free(count) {
        if count == 1 {
            let needed = (REST_MEMORY + thread) >> 20;
            let message = format!("too little memory to serve a mount: expected {needed} MiB");
            return Err(Error::limit(LAYER, message));
        }
        count /= 2;
    }
    Ok(count)
}

/// Mounts, and serves the kernel from separate threads.
fn start<F: Filesystem>(
    fs: F,
    folder: &Path,
    config: &Config,
    on_end: impl FnOnce() + Send + 'static,
    end: Sender<()>,
) -> Result<JoinHandle<io::Result<()>>> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => {
            let message = "FUSE is not available: /dev/fuse or fusermount3 (package fuse3) is \
                           missing";
            Error::new(Kind::Unsupported, LAYER, message)
                .in_file(folder)
                .caused_by(source)
        }
        io::ErrorKind::PermissionDenied if host::refuses_fuse() => {
            Error::io(LAYER, "use FUSE as this user", source).in_file(host::FUSE)
        }
        // Messages of fusermount3 end with a newline.
        kind => Error::io(
            LAYER,
            "mount",
            io::Error::new(kind, source.to_string().trim_end().to_owned()),
        )
        .in_file(folder),
    };
    let session = Session::new(fs, folder, config).map_err(failed)?;
    let run = move || {
        let ended = session.run();
        // The receiver may be gone.
        let _ = end.send(());
        on_end();
        ended
    };
    thread::Builder::new()
        .name("mount".to_owned())
        .spawn(run)
        .map_err(failed)
}

/// Syncs every few seconds until the sender is dropped.
fn sync_by_clock(shown: MountContent, events: Arc<Notes>) -> Result<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel();
    let clock = move || {
        while stopped.recv_timeout(BETWEEN_SYNCS) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = shown.sync() {
                events.report(&error.to_string());
            }
        }
    };
    match thread::Builder::new().spawn(clock) {
        Ok(clock) => Ok((stop, clock)),
        Err(source) => Err(Error::io(LAYER, "start a thread", source)),
    }
}
