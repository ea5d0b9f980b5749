//! The process that serves an image: opens it, mounts it, waits, and unmounts it cleanly.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bandsaw::address::Address;
use bandsaw::device::{Access, Memory};
use bandsaw::fs::VolumeInfo;
use bandsaw::fs::apfs::Locking;
use bandsaw::open::{Image, OpenOptions, open_device};
use bandsaw::partition::TypeId;
use bandsaw::{Error, Kind};
use bandsaw_mount::{MountOptions, Mounted, unmount};
use bandsaw_nbd::kernel::KernelDisk;
use bandsaw_registry::{Entry, Mount, Part, Registration, Registry, Use};

use super::default_mount_point::{self, ChosenMountPoint};
use super::mountables::{self, Mountable};
use super::{Attached, AttachedVolume, background, kernel};
use crate::checksum_args::VerifyArgs;
use crate::commands::timemachine::host_folder;
use crate::commands::trim;
use crate::failure::{Failure, Outcome};
use crate::in_use::{self, whole_name};
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::source::OpenArgs;

/// Length of the blank disk that stands for a folder of this host, in bytes: a sector.
const NO_DISK: usize = 512;
/// Age at which the error of a server that has ended is removed: whoever detached its image has read
/// it long ago.
const FAILURE_AGE: Duration = Duration::from_secs(600);

/// The task of a server.
#[derive(Debug)]
pub(crate) struct ServerTask<'a> {
    /// The image, and a volume if one is named.
    pub(crate) address: Address,
    pub(crate) opening: &'a OpenArgs,
    pub(crate) verifying: &'a VerifyArgs,
    pub(crate) options: MountOptions,
    pub(crate) places: MountPlan,
    /// Provide the disk to the kernel, if it has network block devices.
    pub(crate) for_kernel: bool,
    /// Provide the disk if no volume can be mounted.
    pub(crate) or_disk: bool,
    pub(crate) used: Use,
    /// Free unused space first.
    pub(crate) trim: bool,
    /// Run in the background for a waiting launcher; otherwise until Ctrl-C.
    pub(crate) background: bool,
}

/// The objects to mount, and their mount points.
#[derive(Debug)]
pub(crate) enum MountPlan {
    /// One volume on a folder.
    Volume(PathBuf),
    /// The Time Machine backups on a folder, of one machine if one is named.
    Backups(PathBuf, Option<String>),
    /// The disk as a file in a folder.
    Disk(PathBuf),
    /// The disk as a file in a private folder of the user.
    DiskAnywhere,
    /// Every volume, each on a new folder in this one, or in the default folder.
    Volumes(Option<PathBuf>),
}

/// Serves until everything is unmounted or a signal arrives. In the foreground `tell` is called
/// once everything is mounted.
pub(crate) fn serve(
    job: &ServerTask<'_>,
    output: &Output,
    print: impl FnOnce(&Attached) -> Outcome,
) -> Outcome {
    if job.background {
        background::end_with_launcher()?;
    }
    let image = open(job, output)?;
    job.verifying.before_use(&image, output)?;
    let registry = Registry::of_user()?;
    let mut registration = registry.reserve()?;
    let device = registration.device();
    remove_old_failures(&registry, device);
    let (session, mut signals) = match MountSession::of_kernel(job, &image, device, output)? {
        Some(begun) => begun,
        None => MountSession::mount(job, &image, device, &registry, output)?,
    };
    let attached = session.describe(&image, device);
    let begun = signals
        .check()
        .and_then(|()| publish(&mut registration, job, &image, &attached, &session))
        .and_then(|()| match job.background {
            true => background::report_ready(&attached, &log_of(&registry, registration.device())),
            false => print(&attached),
        });
    job.opening.forget_keys();
    if begun.is_ok() {
        signals.wait();
    }
    let ended = session.end();
    if job.background {
        write_failure(&registry, registration.device(), &ended);
    }
    // Threads must not block others while a program has files open.
    registration.until_exit();
    begun.and(ended)
}

/// Returns the file with the error of a background process, for the process that detaches the image.
/// It names the process: another image may have the device name before anybody reads it.
pub(super) fn failure_file(registry: &Registry, device: &str, process: u32) -> PathBuf {
    registry.folder().join(format!("{device}-{process}.failed"))
}

/// Removes errors of earlier processes with this device name that nobody waits for any more.
fn remove_old_failures(registry: &Registry, device: &str) {
    let prefix = format!("{device}-");
    for entry in fs::read_dir(registry.folder())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let is_failure = name
            .to_str()
            .and_then(|name| name.strip_prefix(&*prefix))
            .is_some_and(|rest| rest.ends_with(".failed"));
        let age = entry.metadata().and_then(|meta| meta.modified());
        let age = age.ok().and_then(|modified| modified.elapsed().ok());
        if is_failure && age.is_some_and(|age| age > FAILURE_AGE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn log_of(registry: &Registry, device: &str) -> PathBuf {
    registry.folder().join(format!("{device}.log"))
}

fn write_failure(registry: &Registry, device: &str, ended: &Outcome) {
    let log = log_of(registry, device);
    if fs::metadata(&log).is_ok_and(|meta| meta.len() == 0) {
        let _ = fs::remove_file(&log);
    }
    if let Err(failure) = ended {
        // Best effort, as the log has it too.
        let file = failure_file(registry, device, std::process::id());
        let _ = fs::write(file, failure.message());
    }
}

/// Opens the image, for writing if possible.
fn open(job: &ServerTask<'_>, output: &Output) -> Outcome<Image> {
    let path = &job.address.image;
    if matches!(job.places, MountPlan::Backups(..)) && host_folder(&job.address)?.is_some() {
        // A folder has no disk, and everything else about it is that of an image.
        let nothing = Arc::new(Memory::zeros(NO_DISK));
        let options = OpenOptions::default();
        return Ok(open_device(nothing, Path::new(path), &options)?);
    }
    if job.options.read_only || job.address.snapshot.is_some() {
        return job.opening.read(path, output);
    }
    match job.opening.open(path, Access::ReadWrite) {
        Err(failure) if failure.is_of_changing() => job.opening.read(path, output),
        // An image that others are reading can still be read.
        Err(failure) if failure.kind() == Kind::Conflict => {
            let Ok(image) = job.opening.read(path, output) else {
                return Err(failure);
            };
            output.warn(&format!("mounted read-only: {}", failure.message()));
            Ok(image)
        }
        opened => {
            let image = opened?;
            output.warn_of(&image);
            Ok(image)
        }
    }
}

/// Frees unused space of the volumes before they are mounted.
fn trim(job: &ServerTask<'_>, image: &Image, read_only: bool, output: &Output) {
    if job.trim && !read_only {
        // A failed trim does not prevent mounting.
        trim::before_use(image, Some(job.opening.keys()), output)
            .unwrap_or_else(|error| output.warn(&format!("not trimmed: {error}")));
    }
}

/// Returns the mount points of the job, or those for the disk if the image has no volumes and that
/// is acceptable.
fn places<'a>(job: &'a ServerTask<'_>, image: &Image) -> &'a MountPlan {
    let mounts = image
        .volumes()
        .iter()
        .any(|volume| volume.format.is_supported());
    if job.or_disk && !mounts {
        &MountPlan::DiskAnywhere
    } else {
        &job.places
    }
}

fn mountables(job: &ServerTask<'_>, image: &Image, output: &Output) -> Outcome<Vec<Mountable>> {
    let read_only = job.options.read_only;
    match places(job, image) {
        MountPlan::Disk(_) | MountPlan::DiskAnywhere => Ok(vec![mountables::disk(image)]),
        MountPlan::Backups(_, machine) => Ok(vec![
            mountables::backups(image, &job.address, job.opening, machine.as_deref(), output)
                .map_err(|failure| failure.in_file(image.path()))?,
        ]),
        MountPlan::Volume(_) => Ok(vec![mountables::one(
            image,
            &job.address,
            job.opening,
            read_only,
            output,
        )?]),
        MountPlan::Volumes(_) if job.address.volume.is_some() => Ok(vec![mountables::one(
            image,
            &job.address,
            job.opening,
            read_only,
            output,
        )?]),
        MountPlan::Volumes(_) => mountables::all(image, job.opening, read_only, output),
    }
}

/// The mounted objects.
struct MountSession {
    mounted: Vec<(ActiveMount, AttachedVolume, Mount)>,
    /// The device names of APFS containers, by the devices that hold them.
    containers: Vec<(String, Registration)>,
}

/// A mounted volume or disk.
enum ActiveMount {
    Folder(Mounted),
    Kernel(KernelDisk),
}

impl ActiveMount {
    fn end(self) -> bandsaw::Result<()> {
        match self {
            Self::Folder(mounted) => mounted.end(),
            Self::Kernel(disk) => kernel::remove_device(disk),
        }
    }
}

impl MountSession {
    /// Creates a kernel device, and catches signals from then on; returns `None` if that was not
    /// requested, or the kernel has no such devices.
    fn of_kernel(
        job: &ServerTask<'_>,
        image: &Image,
        device: &str,
        output: &Output,
    ) -> Outcome<Option<(Self, Signals)>> {
        if !job.for_kernel || !bandsaw_nbd::kernel::is_available() {
            return Ok(None);
        }
        let mountable = mountables::disk(image);
        let read_only = mountable.read_only();
        let mut signals = Signals::catch()?;
        trim(job, image, read_only, output);
        signals.check()?;
        let end = signals.sender()?;
        let Some(disk) = kernel::create_device(image, output, move || signals::end(&end))? else {
            return Ok(None);
        };
        let mount_point = disk.id().path();
        let volume = AttachedVolume {
            device: device.to_owned(),
            name: mountable.name,
            file_system: None,
            format: Some(mountable.format),
            mount_point,
            read_only,
        };
        let mount = entry_of(&volume, None, false);
        let session = Self {
            mounted: vec![(ActiveMount::Kernel(disk), volume, mount)],
            containers: Vec::new(),
        };
        Ok(Some((session, signals)))
    }

    /// Mounts everything or nothing.
    fn mount(
        job: &ServerTask<'_>,
        image: &Image,
        device: &str,
        registry: &Registry,
        output: &Output,
    ) -> Outcome<(Self, Signals)> {
        let mountables = mountables(job, image, output)?;
        // Passphrases were asked for, with the usual effect of Ctrl-C. From here on a signal must
        // not leave anything behind.
        let mut signals = Signals::catch()?;
        if job.trim {
            mountables
                .iter()
                .for_each(|mountable| mountable.release_held(output));
        }
        trim(
            job,
            image,
            mountables.iter().all(Mountable::read_only),
            output,
        );
        let left = Arc::new(AtomicUsize::new(mountables.len()));
        let mut session = Self {
            mounted: Vec::new(),
            containers: Vec::new(),
        };
        for mountable in mountables {
            let mounted = signals.check().and_then(|()| {
                session.add(
                    (job, places(job, image)),
                    mountable,
                    device,
                    registry,
                    (signals.sender()?, left.clone()),
                    output,
                )
            });
            if let Err(failure) = mounted {
                // The first failure is the relevant one.
                let _ = session.end();
                return Err(failure);
            }
        }
        Ok((session, signals))
    }

    fn add(
        &mut self,
        (job, places): (&ServerTask<'_>, &MountPlan),
        mountable: Mountable,
        device: &str,
        registry: &Registry,
        (end, left): (std::os::unix::net::UnixStream, Arc<AtomicUsize>),
        output: &Output,
    ) -> Outcome {
        let ChosenMountPoint { folder, made } = match places {
            MountPlan::Volume(folder) | MountPlan::Disk(folder) | MountPlan::Backups(folder, _) => {
                default_mount_point::named(folder)?
            }
            MountPlan::DiskAnywhere => {
                default_mount_point::for_volume(registry.folder(), &format!("{device}.disk"))?
            }
            MountPlan::Volumes(root) => default_mount_point::for_volume(
                &root.clone().unwrap_or_else(default_mount_point::root),
                &mountable.name,
            )?,
        };
        let read_only = mountable.read_only();
        let store = format!("{device}{}", mountable.suffix);
        let container = mountable
            .summary
            .as_ref()
            .map(|_| self.container(&store, registry))
            .transpose()?;
        let source = whole_name(Path::new(&job.address.image));
        let options = MountOptions {
            source: source.display().to_string(),
            read_only,
            ..job.options.clone()
        };
        let output = output.clone();
        let note = Box::new(move |line: &str| output.error(line, None));
        // The end of the last mount, for any reason, ends the process.
        let on_end = move || {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                signals::end(&end);
            }
        };
        let is_disk = matches!(mountable.shown, bandsaw_mount::MountContent::Disk(..));
        let mounted = Mounted::new(mountable.shown, &folder, &options, note, on_end);
        if mounted.is_err() && made {
            let _ = fs::remove_dir(&folder);
        }
        let mounted = mounted.map_err(advise)?;
        let mut volume = AttachedVolume {
            device: store.clone(),
            name: mountable.name,
            file_system: Some(mountable.format.clone()).filter(|_| !is_disk),
            format: Some(mountable.format).filter(|_| is_disk),
            mount_point: mounted.folder().to_owned(),
            read_only,
        };
        let mut mount = entry_of(&volume, mountable.volume.as_ref(), made);
        if let (Some(container), Some(summary)) = (container, mountable.summary) {
            volume.device = format!("{container}s{}", summary.label.number);
            mount.device.clone_from(&volume.device);
            mount.container = Some(container);
            mount.encrypted = summary.locking != Locking::Plain;
            mount.sealed = summary.sealed;
        }
        mount.store = Some(store);
        self.mounted
            .push((ActiveMount::Folder(mounted), volume, mount));
        Ok(())
    }

    /// Returns the device name of the APFS container in `store`: a disk number of its own, as on a
    /// Mac.
    fn container(&mut self, store: &str, registry: &Registry) -> bandsaw::Result<String> {
        if let Some((_, container)) = self.containers.iter().find(|(held, _)| held == store) {
            return Ok(container.device().to_owned());
        }
        let container = registry.reserve()?;
        let name = container.device().to_owned();
        self.containers.push((store.to_owned(), container));
        Ok(name)
    }

    fn describe(&self, image: &Image, device: &str) -> Attached {
        Attached {
            device: device.to_owned(),
            path: whole_name(image.path()),
            scheme: image
                .partitions()
                .map(|map| map.scheme.to_string().to_lowercase()),
            process: std::process::id(),
            read_only: self.mounted.iter().all(|(_, volume, _)| volume.read_only),
            volumes: self
                .mounted
                .iter()
                .map(|(_, volume, _)| volume.clone())
                .collect(),
        }
    }

    /// Ends every mount and returns the first failure.
    fn end(self) -> Outcome {
        let mut failed = None;
        for (mounted, volume, mount) in self.mounted {
            let ended = mounted.end();
            if mount.made {
                let _ = fs::remove_dir(&volume.mount_point);
            }
            failed = failed.or(ended.err());
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Returns the entry of a mounted volume or disk.
fn entry_of(volume: &AttachedVolume, info: Option<&VolumeInfo>, made: bool) -> Mount {
    Mount {
        folder: volume.mount_point.clone(),
        device: volume.device.clone(),
        name: volume.name.clone(),
        format: volume.contents().to_owned(),
        made,
        read_only: volume.read_only,
        store: None,
        container: None,
        uuid: info
            .and_then(|info| info.uuid)
            .map(|uuid| uuid.hyphenated().to_string().to_uppercase()),
        created: info
            .and_then(|info| info.created)
            .map(|created| created.seconds),
        size: info.map_or(0, |info| info.total),
        block_size: info.map_or(0, |info| info.block_size),
        journaled: info.is_some_and(|info| info.journaled),
        case_sensitive: info.is_some_and(|info| info.case_sensitive),
        encrypted: false,
        sealed: false,
    }
}

fn partitions(image: &Image, device: &str) -> Vec<Part> {
    let map = image.partitions().map_or(&[][..], |map| &map.partitions);
    let part = |part: &bandsaw::partition::Partition| Part {
        device: format!("{device}s{}", part.number),
        kind: part.kind.clone(),
        type_id: match &part.type_id {
            TypeId::Guid(guid) => guid.hyphenated().to_string().to_uppercase(),
            other => other.to_string(),
        },
        name: part.name.clone(),
        start: part.range.start,
        size: part.range.end.saturating_sub(part.range.start),
        guid: part
            .guid
            .map(|guid| guid.hyphenated().to_string().to_uppercase()),
    };
    map.iter().map(part).collect()
}

fn advise(error: Error) -> Failure {
    match error.kind() {
        Kind::Unsupported => Failure::from(error).hint(
            "use `bandsaw serve` or `bandsaw extract`, which work \
                                       without FUSE",
        ),
        _ => error.into(),
    }
}

fn publish(
    registration: &mut Registration,
    job: &ServerTask<'_>,
    image: &Image,
    attached: &Attached,
    session: &MountSession,
) -> Outcome {
    let mounts: Vec<_> = session
        .mounted
        .iter()
        .filter(|(active, ..)| matches!(active, ActiveMount::Folder(_)))
        .map(|(.., mount)| mount.clone())
        .collect();
    registration.publish(Entry {
        image: attached.path.clone(),
        partitions: partitions(image, &attached.device),
        partial: job.opening.is_partial(),
        read_only: attached.read_only,
        places: attached
            .volumes
            .iter()
            .map(|volume| volume.mount_point.display().to_string())
            .collect(),
        kernel_disk: session
            .mounted
            .iter()
            .find_map(|(active, ..)| match active {
                ActiveMount::Kernel(disk) => Some(disk.id().into()),
                ActiveMount::Folder(_) => None,
            }),
        mounts,
        ..in_use::entry(image, job.used)
    })?;
    Ok(())
}

/// Prints the mount points.
pub(crate) fn print(attached: &Attached, output: &Output) -> Outcome {
    output.done(attached, |out: &mut dyn Write| {
        for volume in &attached.volumes {
            let access = if volume.read_only { "  read-only" } else { "" };
            let name = output.name(&volume.name);
            writeln!(
                out,
                "{}  {}  {name}  {}{access}",
                volume.device,
                volume.contents(),
                volume.mount_point.display()
            )?;
        }
        Ok(())
    })
}

/// Unmounts a folder of a server, which then notices its end.
pub(super) fn unmount_folder(folder: &Path) -> bandsaw::Result<()> {
    unmount(folder, false)
}
