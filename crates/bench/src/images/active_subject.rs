//! A subject in use: opened in this process, served, or mounted by FUSE or by the kernel.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bandsaw::device::{Access, BlockDevice, Slice};
use bandsaw::fs::{FileSystemMut, VolumeKey, apfs, hfsplus};
use bandsaw::ops::trim;
use bandsaw::partition;
use bandsaw::progress::{Progress, Silent};
use bandsaw::{Error, Kind as ErrorKind, Result};

use super::kind::{Kind, Via};
use super::nbd::NbdDisk;
use super::process::MeasuredProcess;
use super::subject::{LAYER, Subject, secret};
use crate::clock::{Clock, HostClock};
use crate::machine::FileSystemSpace;
use crate::place::{self, CacheState, Caches, HostFolder, Place, VolumeFolder};
use crate::report::Process;

/// Maximum time for a server to start, and to stop.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// A subject in use.
#[derive(Debug)]
pub(super) struct ActiveSubject {
    /// Folder or volume of its files.
    pub(super) place: Box<dyn Place>,
    end: Teardown,
    pub(super) process: Option<MeasuredProcess>,
}

impl Subject<'_> {
    pub(super) fn attach(&self) -> Result<ActiveSubject> {
        let Some(kind) = self.kind else {
            let place = Box::new(HostFolder::new(&self.folder, self.caches));
            let process = Some(MeasuredProcess::new(std::process::id()));
            return Ok(ActiveSubject {
                place,
                end: Teardown::Nothing,
                process,
            });
        };
        match kind.via {
            Via::Library => {
                let image = self.open(Access::ReadWrite)?;
                trim::before_use(&image, Some(&secret()), &Silent)?;
                let volume = image.file_system_mut_as(None, Some(&secret()))?;
                let process = Some(MeasuredProcess::new(std::process::id()));
                Ok(ActiveSubject {
                    place: Box::new(VolumeFolder::new(volume.clone())),
                    end: Teardown::Volume(volume, None),
                    process,
                })
            }
            Via::Nbd => {
                let (server, disk) = self.serve()?;
                let process = Some(MeasuredProcess::new(server.0.id()));
                let volume = volume_on(Arc::new(disk), kind)?;
                Ok(ActiveSubject {
                    place: Box::new(VolumeFolder::new(volume.clone())),
                    end: Teardown::Volume(volume, Some(server)),
                    process,
                })
            }
            Via::Mount => self.mount(),
            Via::Kernel => self.mount_by_kernel(kind),
        }
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(self.program);
        let option = if self.kind.is_some_and(|kind| kind.volume_key) {
            "--volume-passfile"
        } else {
            "--passfile"
        };
        command
            .args([verb, "--json", option])
            .arg(self.folder.join("passphrase"))
            .arg(self.image());
        command
    }

    fn serve(&self) -> Result<(Server, NbdDisk)> {
        let socket = self.folder.join("socket");
        let _ = std::fs::remove_file(&socket);
        let mut command = self.command("serve");
        command
            .arg("--socket")
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // Ctrl-C is for this process only, which stops the server after it has unmounted the volume
        // cleanly.
        let child = command.process_group(0).spawn();
        let mut server = Server(
            child.map_err(|source| Error::io(LAYER, "start", source).in_file(self.program))?,
        );
        let clock = HostClock::default();
        loop {
            match NbdDisk::connect(&socket) {
                Ok(disk) => return Ok((server, disk)),
                Err(error) if clock.now() > SERVER_TIMEOUT => return Err(error),
                Err(_) => {}
            }
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(Error::new(
                    ErrorKind::Io,
                    LAYER,
                    format!("the server of the image ended: {status}"),
                )
                .in_file(self.image()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn mount(&self) -> Result<ActiveSubject> {
        let folder = self.folder.join("mounted");
        let reply = output_of(self.command("mount").arg(&folder))?;
        let mounted = Mounted {
            folder,
            disk: None,
            program: self.program.to_owned(),
            ended: false,
        };
        let reply: serde_json::Value = serde_json::from_slice(&reply).unwrap_or_default();
        Ok(self.mounted(mounted, &reply))
    }

    /// Attaches the image as a disk of the kernel, which mounts the volume itself.
    fn mount_by_kernel(&self, kind: Kind) -> Result<ActiveSubject> {
        let folder = self.folder.join("mounted");
        // An earlier use leaves the folder.
        if !folder.is_dir() {
            std::fs::create_dir(&folder)
                .map_err(|source| Error::io(LAYER, "create", source).in_file(&folder))?;
        }
        let number = {
            let image = self.open(Access::ReadOnly)?;
            partition_of(&**image.disk(), kind)?.number
        };
        let reply = output_of(self.command("attach").arg("--nomount"))?;
        let reply: serde_json::Value = serde_json::from_slice(&reply).unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let mut mounted = Mounted {
            folder,
            disk: Some(Disk {
                name: text(&reply["device"]),
                is_mounted: false,
            }),
            program: self.program.to_owned(),
            ended: false,
        };
        let disk = text(&reply["volumes"][0]["mount_point"]);
        if !disk.starts_with("/dev/") {
            let message = "the kernel offers no network block device: load its module (`modprobe nbd`), as root";
            return Err(Error::new(ErrorKind::Unsupported, LAYER, message).in_file(self.image()));
        }
        let partition = PathBuf::from(format!("{disk}p{number}"));
        // The kernel reads the partition map after the disk has appeared.
        let clock = HostClock::default();
        while !partition.exists() {
            if clock.now() > SERVER_TIMEOUT {
                return Err(Error::not_found(LAYER, "the partition").in_file(partition));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        output_of(
            Command::new("mount")
                .args(["-t", "hfsplus"])
                .arg(&partition)
                .arg(&mounted.folder),
        )?;
        if let Some(disk) = &mut mounted.disk {
            disk.is_mounted = true;
        }
        Ok(self.mounted(mounted, &reply))
    }

    /// `reply` is the JSON that the command printed.
    fn mounted(&self, mounted: Mounted, reply: &serde_json::Value) -> ActiveSubject {
        let process = reply["process"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .map(MeasuredProcess::new);
        ActiveSubject {
            place: Box::new(HostFolder::new(&mounted.folder, self.caches)),
            end: Teardown::Folder(mounted),
            process,
        }
    }

    /// Drops the files `names` in `attached` and the image itself from the cache.
    pub(super) fn cool(
        &self,
        attached: &ActiveSubject,
        names: &[String],
        progress: &dyn Progress,
    ) -> Result<CacheState> {
        let cooled = attached.place.cool(names)?;
        if self.kind.is_none() || self.caches == Caches::Keep {
            return Ok(cooled);
        }
        // A volume in this process has nothing to drop but the image's files.
        let mounted = match cooled {
            CacheState::Kept => CacheState::Dropped,
            mounted => mounted,
        };
        let mut files = Vec::new();
        let mut folders = vec![self.image()];
        while let Some(path) = folders.pop() {
            progress.check()?;
            if path.is_dir() {
                let failed = |source| Error::io(LAYER, "list", source).in_file(&path);
                for entry in std::fs::read_dir(&path).map_err(failed)? {
                    folders.push(entry.map_err(failed)?.path());
                }
                continue;
            }
            files.push(path);
        }
        Ok(mounted.worse(place::drop_from_cache(&files)?))
    }
}

impl ActiveSubject {
    /// Returns the bytes that are free in the volume in use; `None` for the host.
    pub(super) fn free(&self) -> Result<Option<u64>> {
        Ok(match &self.end {
            Teardown::Nothing => None,
            Teardown::Volume(volume, _) => Some(volume.volume().free),
            Teardown::Folder(mounted) => Some(FileSystemSpace::of(&mounted.folder)?.free),
        })
    }

    /// Unmounts the volume cleanly and makes it durable; returns the resource usage of the process
    /// that served it.
    pub(super) fn detach(self) -> Result<Option<Process>> {
        let process = self.process.as_ref().and_then(MeasuredProcess::so_far);
        let Self { place, end, .. } = self;
        drop(place);
        match end {
            Teardown::Nothing => {}
            Teardown::Volume(volume, server) => {
                volume.unmount()?;
                drop(volume);
                drop(server);
            }
            Teardown::Folder(mut mounted) => mounted.end()?,
        }
        Ok(process)
    }
}

/// Cleanup at the end of the use.
#[derive(Debug)]
enum Teardown {
    Nothing,
    /// Unmounts the volume cleanly, then stops the server if there is one.
    Volume(Arc<dyn FileSystemMut>, Option<Server>),
    Folder(Mounted),
}

/// A server process, terminated on drop.
#[derive(Debug)]
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // The server handles SIGTERM and leaves the image clean; `Child::kill` sends SIGKILL.
        let id = i32::try_from(self.0.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// A mount, detached on drop.
#[derive(Debug)]
struct Mounted {
    folder: PathBuf,
    /// The device name of the disk, of a volume that the kernel mounts.
    disk: Option<Disk>,
    program: PathBuf,
    ended: bool,
}

/// A disk of the kernel.
#[derive(Debug)]
struct Disk {
    /// Name for `detach`: `disk1`.
    name: String,
    is_mounted: bool,
}

impl Mounted {
    fn end(&mut self) -> Result<()> {
        self.ended = true;
        let mut detach = Command::new(&self.program);
        detach.arg("detach");
        let Some(disk) = &self.disk else {
            return output_of(detach.arg(&self.folder)).map(drop);
        };
        let unmounted = if disk.is_mounted {
            output_of(Command::new("umount").arg(&self.folder)).map(drop)
        } else {
            Ok(())
        };
        unmounted.and(output_of(detach.arg(&disk.name)).map(drop))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

/// Returns the partition of the volume on a disk.
fn partition_of(disk: &dyn BlockDevice, kind: Kind) -> Result<partition::Partition> {
    let map = partition::probe(disk)?
        .ok_or_else(|| Error::corrupt(LAYER, 0, "the disk has no partitions"))?;
    let is_one = |partition: &&partition::Partition| {
        partition.kind
            == if kind.file_system.has_holes() {
                "Apple_APFS"
            } else {
                "Apple_HFS"
            }
    };
    let found = map.partitions.iter().find(is_one).cloned();
    found.ok_or_else(|| Error::not_found(LAYER, kind.file_system.to_string()))
}

/// Opens the first volume of a disk for writing.
fn volume_on(disk: Arc<dyn BlockDevice>, kind: Kind) -> Result<Arc<dyn FileSystemMut>> {
    let range = partition_of(&*disk, kind)?.range;
    let slice: Arc<dyn BlockDevice> = Arc::new(Slice::new(disk, range)?);
    if kind.file_system.has_holes() {
        let container = Arc::new(apfs::Container::open(slice, None)?);
        Ok(Arc::new(apfs::ApfsMut::open(
            &container,
            1,
            apfs::WriteOptions::default(),
            &|_| Ok(VolumeKey::Passphrase(secret())),
        )?))
    } else {
        Ok(Arc::new(hfsplus::HfsPlusMut::open(
            slice,
            hfsplus::WriteOptions::default(),
        )?))
    }
}

/// Runs a command and returns its output; fails unless it succeeds.
fn output_of(command: &mut Command) -> Result<Vec<u8>> {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::io(LAYER, "run", source).in_file(&program))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::new(ErrorKind::Io, LAYER, format!("{}: {said}", output.status)).in_file(&program))
}
