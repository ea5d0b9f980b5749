//! The mounts of a server: all are made, or none, and all are ended with it.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bandsaw::fs::VolumeInfo;
use bandsaw::fs::apfs::Locking;
use bandsaw::open::Image;
use bandsaw::{Error, Kind};
use bandsaw_mount::{MountOptions, Mounted};
use bandsaw_nbd::kernel::KernelDisk;
use bandsaw_registry::{Mount, Registration, Registry};

use super::default_mount_point::{self, ChosenMountPoint};
use super::mountables::{self, Mountable};
use super::server_task::{MountPlan, ServerTask};
use super::{Attached, AttachedVolume, kernel};
use crate::commands::trim;
use crate::failure::{Failure, Outcome};
use crate::in_use::whole_name;
use crate::output::Output;
use crate::signals::{self, Signals};

/// The mounted objects.
pub(super) struct MountSession {
    pub(super) mounted: Vec<(ActiveMount, AttachedVolume, Mount)>,
    /// The device names of APFS containers, by the devices that hold them.
    containers: Vec<(String, Registration)>,
}

impl MountSession {
    /// Creates a kernel device, and catches signals from then on; returns `None` if that was not
    /// requested, or the kernel has no such devices.
    pub(super) fn of_kernel(
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
    pub(super) fn mount(
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
            let mounted = signals.check().map_err(Failure::from).and_then(|()| {
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

    pub(super) fn describe(&self, image: &Image, device: &str) -> Attached {
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
    pub(super) fn end(self) -> Outcome {
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

/// A mounted volume or disk.
pub(super) enum ActiveMount {
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

fn advise(error: Error) -> Failure {
    match error.kind() {
        Kind::Unsupported => Failure::from(error).hint(
            "use `bandsaw serve` or `bandsaw extract`, which work \
                                       without FUSE",
        ),
        _ => error.into(),
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

/// Frees unused space of the volumes before they are mounted.
fn trim(job: &ServerTask<'_>, image: &Image, read_only: bool, output: &Output) {
    if job.trim && !read_only {
        // A failed trim does not prevent mounting.
        trim::before_use(image, Some(job.opening.keys()), output)
            .unwrap_or_else(|error| output.warn(&format!("not trimmed: {error}")));
    }
}
