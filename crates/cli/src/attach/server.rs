//! The process that serves an image: opens it, mounts what is wanted of it, waits, and leaves
//! everything clean.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bandsaw::address::Address;
use bandsaw::device::Access;
use bandsaw::open::Image;
use bandsaw::{Error, Kind};
use bandsaw_mount::{MountOptions, Mounted, unmount};
use bandsaw_nbd::kernel::KernelDisk;
use bandsaw_registry::{Entry, Mount, Registration, Registry, Use};

use super::faces::{self, Face};
use super::whereabouts::{self, Place};
use super::{Attached, AttachedVolume, background, kernel};
use crate::commands::trim;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::source::{Opening, whole_name};

/// What is to be served, and how.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// The image, and the volume where one is meant.
    pub(crate) address: Address,
    pub(crate) opening: &'a Opening,
    pub(crate) options: MountOptions,
    pub(crate) places: Places,
    /// Give the disk to the kernel instead, where that takes it.
    pub(crate) for_kernel: bool,
    /// Show the disk where no volume can be mounted.
    pub(crate) or_disk: bool,
    pub(crate) used: Use,
    /// Give back first what no volume uses.
    pub(crate) trim: bool,
    /// In the background, for a launcher that waits; else until Ctrl-C.
    pub(crate) background: bool,
}

/// What is mounted, and where.
#[derive(Debug)]
pub(crate) enum Places {
    /// One volume on a folder.
    Volume(PathBuf),
    /// The disk as a file in a folder.
    Disk(PathBuf),
    /// The disk as a file in a folder that is this user's own.
    DiskAnywhere,
    /// Every volume, each on a new folder in this one, or where volumes are mounted here.
    Volumes(Option<PathBuf>),
}

/// Serves until everything is unmounted or a signal comes. `tell` is called in the foreground once
/// all is mounted.
pub(crate) fn serve(
    job: &Job<'_>,
    output: &Output,
    tell: impl FnOnce(&Attached) -> Outcome,
) -> Outcome {
    // Before anything is made that a signal would leave behind.
    let mut signals = Signals::catch()?;
    let image = open(job, output)?;
    let registry = Registry::of_user()?;
    let mut registration = registry.reserve()?;
    let session = match Session::of_kernel(job, &image, registration.device(), &signals, output)? {
        Some(session) => session,
        None => Session::mount(
            job,
            &image,
            registration.device(),
            &registry,
            &signals,
            output,
        )?,
    };
    let attached = session.told(&image, registration.device());
    let begun =
        publish(&mut registration, job, &image, &attached, &session).and_then(|()| {
            match job.background {
                true => background::let_go(&attached, &log_of(&registry, registration.device())),
                false => tell(&attached),
            }
        });
    job.opening.forget_keys();
    if begun.is_ok() {
        signals.wait();
    }
    let ended = session.end();
    if job.background {
        leave_word(&registry, registration.device(), &ended);
    }
    // Where programs have files open, so have threads here.
    registration.until_exit();
    begun.and(ended)
}

/// What went wrong in a process that nobody listens to, for whoever detaches the image.
pub(super) fn word_of(registry: &Registry, device: &str) -> PathBuf {
    registry.folder().join(format!("{device}.failed"))
}

fn log_of(registry: &Registry, device: &str) -> PathBuf {
    registry.folder().join(format!("{device}.log"))
}

fn leave_word(registry: &Registry, device: &str, ended: &Outcome) {
    let log = log_of(registry, device);
    if fs::metadata(&log).is_ok_and(|meta| meta.len() == 0) {
        let _ = fs::remove_file(&log);
    }
    if let Err(failure) = ended {
        // Best effort: it stands in the log, too.
        let _ = fs::write(word_of(registry, device), failure.message());
    }
}

/// Opens the image, for changes if that is possible.
fn open(job: &Job<'_>, output: &Output) -> Outcome<Image> {
    let path = &job.address.image;
    if job.options.read_only || job.address.snapshot.is_some() {
        return job.opening.read(path, output);
    }
    match job.opening.open(path, Access::ReadWrite) {
        Err(failure) if failure.is_of_changing() => job.opening.read(path, output),
        // Beside others who only read, there is reading.
        Err(failure) if failure.kind() == Kind::Conflict => {
            let Ok(image) = job.opening.read(path, output) else {
                return Err(failure);
            };
            output.warn(&format!("mounted read-only: {}", failure.message()));
            Ok(image)
        }
        opened => {
            let image = opened?;
            image
                .warnings()
                .iter()
                .for_each(|warning| output.warn(warning));
            Ok(image)
        }
    }
}

/// Gives back what the volumes do not use, before somebody changes them.
fn trim(job: &Job<'_>, image: &Image, read_only: bool, output: &Output) {
    if job.trim && !read_only {
        // What cannot be given back is no reason not to mount.
        trim::before_use(image, output)
            .unwrap_or_else(|error| output.warn(&format!("not trimmed: {error}")));
    }
}

/// Where things are to be shown: where the job says, but for an image without volumes that is to be
/// shown all the same.
fn places<'a>(job: &'a Job<'_>, image: &Image) -> &'a Places {
    let mounts = image
        .volumes()
        .iter()
        .any(|volume| volume.format.is_supported());
    if job.or_disk && !mounts {
        &Places::DiskAnywhere
    } else {
        &job.places
    }
}

fn faces(job: &Job<'_>, image: &Image, output: &Output) -> Outcome<Vec<Face>> {
    let read_only = job.options.read_only;
    match places(job, image) {
        Places::Disk(_) | Places::DiskAnywhere => Ok(vec![faces::disk(image)]),
        Places::Volume(_) => Ok(vec![faces::one(
            image,
            &job.address,
            job.opening,
            read_only,
            output,
        )?]),
        Places::Volumes(_) if job.address.volume.is_some() => Ok(vec![faces::one(
            image,
            &job.address,
            job.opening,
            read_only,
            output,
        )?]),
        Places::Volumes(_) => faces::all(image, job.opening, read_only, output),
    }
}

/// What is mounted.
struct Session {
    mounted: Vec<(Shower, AttachedVolume, bool)>,
}

/// What shows a volume or a disk.
enum Shower {
    Folder(Mounted),
    Kernel(KernelDisk),
}

impl Shower {
    fn end(self) -> bandsaw::Result<()> {
        match self {
            Self::Folder(mounted) => mounted.end(),
            Self::Kernel(disk) => kernel::take_away(disk),
        }
    }
}

impl Session {
    /// Makes the disk one of the kernel's; `None` if that is not asked for, or the kernel takes
    /// none.
    fn of_kernel(
        job: &Job<'_>,
        image: &Image,
        device: &str,
        signals: &Signals,
        output: &Output,
    ) -> Outcome<Option<Self>> {
        if !job.for_kernel || !bandsaw_nbd::kernel::is_available() {
            return Ok(None);
        }
        let face = faces::disk(image);
        let read_only = face.read_only();
        trim(job, image, read_only, output);
        let end = signals.sender()?;
        let Some(disk) = kernel::give(image, output, move || signals::end(&end))? else {
            return Ok(None);
        };
        let mount_point = disk.id().path();
        let volume = AttachedVolume {
            device: device.to_owned(),
            name: face.name,
            format: face.format,
            mount_point,
            read_only,
        };
        Ok(Some(Self {
            mounted: vec![(Shower::Kernel(disk), volume, false)],
        }))
    }

    /// Mounts all that is wanted, or nothing.
    fn mount(
        job: &Job<'_>,
        image: &Image,
        device: &str,
        registry: &Registry,
        signals: &Signals,
        output: &Output,
    ) -> Outcome<Self> {
        let faces = faces(job, image, output)?;
        if job.trim {
            faces.iter().for_each(|face| face.release_held(output));
        }
        trim(job, image, faces.iter().all(Face::read_only), output);
        let left = Arc::new(AtomicUsize::new(faces.len()));
        let mut session = Self {
            mounted: Vec::new(),
        };
        for face in faces {
            let mounted = session.add(
                (job, places(job, image)),
                face,
                device,
                registry,
                (signals.sender()?, left.clone()),
                output,
            );
            if let Err(failure) = mounted {
                // What failed first is what matters.
                let _ = session.end();
                return Err(failure);
            }
        }
        Ok(session)
    }

    fn add(
        &mut self,
        (job, places): (&Job<'_>, &Places),
        face: Face,
        device: &str,
        registry: &Registry,
        (end, left): (std::os::unix::net::UnixStream, Arc<AtomicUsize>),
        output: &Output,
    ) -> Outcome {
        let Place { folder, made } = match places {
            Places::Volume(folder) | Places::Disk(folder) => whereabouts::named(folder)?,
            Places::DiskAnywhere => {
                whereabouts::for_volume(registry.folder(), &format!("{device}.disk"))?
            }
            Places::Volumes(root) => whereabouts::for_volume(
                &root.clone().unwrap_or_else(whereabouts::root),
                &face.name,
            )?,
        };
        let read_only = face.read_only();
        let source = whole_name(Path::new(&job.address.image));
        let options = MountOptions {
            source: source.display().to_string(),
            read_only,
            ..job.options.clone()
        };
        let output = output.clone();
        let note = Box::new(move |line: &str| output.error(line, None));
        // The last one that ends, whoever unmounted it, ends the process.
        let on_end = move || {
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                signals::end(&end);
            }
        };
        let mounted = Mounted::new(face.shown, &folder, &options, note, on_end);
        if mounted.is_err() && made {
            let _ = fs::remove_dir(&folder);
        }
        let mounted = mounted.map_err(advise)?;
        let volume = AttachedVolume {
            device: format!("{device}{}", face.suffix),
            name: face.name,
            format: face.format,
            mount_point: mounted.folder().to_owned(),
            read_only,
        };
        self.mounted.push((Shower::Folder(mounted), volume, made));
        Ok(())
    }

    fn told(&self, image: &Image, device: &str) -> Attached {
        Attached {
            schema: 1,
            device: device.to_owned(),
            image: whole_name(image.path()),
            scheme: image.partitions().map(|map| map.scheme.to_string()),
            process: std::process::id(),
            read_only: self.mounted.iter().all(|(_, volume, _)| volume.read_only),
            volumes: self
                .mounted
                .iter()
                .map(|(_, volume, _)| volume.clone())
                .collect(),
        }
    }

    /// Ends every mount, and tells the first failure.
    fn end(self) -> Outcome {
        let mut failed = None;
        for (mounted, volume, made) in self.mounted {
            let ended = mounted.end();
            if made {
                let _ = fs::remove_dir(&volume.mount_point);
            }
            failed = failed.or(ended.err());
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn advise(error: Error) -> Failure {
    match error.kind() {
        Kind::Unsupported => {
            Failure::from(error).hint("`bandsaw serve` and `bandsaw extract` need no FUSE")
        }
        _ => error.into(),
    }
}

fn publish(
    registration: &mut Registration,
    job: &Job<'_>,
    image: &Image,
    attached: &Attached,
    session: &Session,
) -> Outcome {
    let mounts: Vec<_> = session
        .mounted
        .iter()
        .filter(|(shower, ..)| matches!(shower, Shower::Folder(_)))
        .map(|(_, volume, made)| Mount {
            folder: volume.mount_point.clone(),
            device: volume.device.clone(),
            name: volume.name.clone(),
            format: volume.format.clone(),
            made: *made,
        })
        .collect();
    registration.publish(Entry {
        image: attached.image.clone(),
        format: image.format().code().to_owned(),
        layers: image
            .overlays()
            .map(|layer| absolute(&layer.path))
            .collect(),
        scheme: attached.scheme.clone(),
        size: image.disk().info().len,
        read_only: attached.read_only,
        encrypted: image.encryption().is_some(),
        places: attached
            .volumes
            .iter()
            .map(|volume| volume.mount_point.display().to_string())
            .collect(),
        kernel_disk: session
            .mounted
            .iter()
            .find_map(|(shower, ..)| match shower {
                Shower::Kernel(disk) => Some(disk.id().into()),
                Shower::Folder(_) => None,
            }),
        mounts,
        ..Entry::new(job.used)
    })?;
    Ok(())
}

/// Prints what was mounted where.
pub(crate) fn tell(attached: &Attached, output: &Output) -> Outcome {
    output.done(attached, |out: &mut dyn Write| {
        for volume in &attached.volumes {
            let access = if volume.read_only { "  read-only" } else { "" };
            let name = output.name(&volume.name);
            writeln!(
                out,
                "{}  {}  {name}  {}{access}",
                volume.device,
                volume.format,
                volume.mount_point.display()
            )?;
        }
        Ok(())
    })
}

/// Unmounts a folder of a server, which then sees that it has gone.
pub(super) fn let_go_of(folder: &Path) -> bandsaw::Result<()> {
    unmount(folder, false)
}
