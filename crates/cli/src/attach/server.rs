//! The process that serves an image: opens it, mounts it, waits, and unmounts it cleanly.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::device::{Access, Memory};
use bandsaw::open::{Image, OpenOptions, open_device};
use bandsaw::partition::TypeId;
use bandsaw_mount::unmount;
use bandsaw_registry::{Entry, Part, Registration, Registry};

use super::failure_file::{log_of, remove_old_failures, write_failure};
use super::mount_session::{ActiveMount, MountSession};
use super::server_task::{MountPlan, ServerTask};
use super::{Attached, background};
use crate::commands::timemachine::host_folder;
use crate::failure::{Failure, Outcome};
use crate::in_use;
use crate::output::Output;

/// Length of the blank disk that stands for a folder of this host, in bytes: a sector.
const NO_DISK: usize = 512;

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
        .map_err(Failure::from)
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
