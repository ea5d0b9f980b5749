//! The mountable parts of an image: its volumes, open for writing if possible, or its disk.

use std::path::Path;
use std::sync::Arc;

use bandsaw::address::{Address, VolumeSelector};
use bandsaw::device::Access;
use bandsaw::fs::apfs::Summary;
use bandsaw::fs::{FileSystem, VolumeInfo};
use bandsaw::open::{Image, Volume};
use bandsaw::{Error, Kind, Reason};
use bandsaw_backups::{Backups, Merged, volumes_of};
use bandsaw_mount::MountContent;

use crate::commands::timemachine::host_folder;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source::OpenArgs;

/// A volume or disk to mount.
pub(super) struct Mountable {
    /// The suffix after the name of the disk: `s2`. For an APFS volume it is that of its container's
    /// store.
    pub(super) suffix: String,
    /// The summary of an APFS volume.
    pub(super) summary: Option<Summary>,
    /// The properties of the volume; `None` for a disk.
    pub(super) volume: Option<VolumeInfo>,
    pub(super) name: String,
    pub(super) format: String,
    pub(super) shown: MountContent,
}

impl Mountable {
    /// Returns true if nothing can be written to what is shown.
    pub(super) fn read_only(&self) -> bool {
        match &self.shown {
            MountContent::Volume(_) => true,
            MountContent::VolumeMut(_) => false,
            MountContent::Disk(device, _) => device.info().access == Access::ReadOnly,
        }
    }

    /// Releases space held by older checkpoints, so that a trim can free it. Only the open volume
    /// can do that, as nothing else may change its container meanwhile.
    pub(super) fn release_held(&self, output: &Output) {
        if let MountContent::VolumeMut(fs) = &self.shown {
            fs.release_held().unwrap_or_else(|error| {
                output.warn(&format!("cannot release space of {}: {error}", self.name))
            });
        }
    }
}

/// Returns the disk as one file.
pub(super) fn disk(image: &Image) -> Mountable {
    let name = image.path().to_string_lossy();
    // The query of a URL is not part of the name.
    let name = if name.contains("://") {
        name.split('?').next().unwrap_or_default()
    } else {
        &name
    };
    let stem = Path::new(name)
        .file_stem()
        .map_or_else(|| "disk".into(), |stem| stem.to_string_lossy().into_owned());
    let name = format!("{stem}.img");
    Mountable {
        suffix: String::new(),
        summary: None,
        volume: None,
        name: name.clone(),
        format: image.format().code().to_owned(),
        shown: MountContent::Disk(image.disk().clone(), name),
    }
}

/// Returns the volume that an address names, or the first.
pub(super) fn one(
    image: &Image,
    address: &Address,
    opening: &OpenArgs,
    read_only: bool,
    output: &Output,
) -> Outcome<Mountable> {
    let volume = image.volume(address.volume.as_ref())?;
    mountable(image, volume, address, opening, read_only, output)
}

/// Returns the Time Machine backups as one volume, and prints a warning for what cannot be read.
pub(super) fn backups(
    image: &Image,
    address: &Address,
    opening: &OpenArgs,
    machine: Option<&str>,
    output: &Output,
) -> Outcome<Mountable> {
    let volumes = match host_folder(address)? {
        Some(volume) => vec![volume],
        None => volumes_of(image, address.volume.as_ref(), Some(opening.keys()))?,
    };
    let mut backups = Backups::read(volumes);
    backups.check_any()?;
    if let Some(machine) = machine {
        backups.keep_machine(machine)?;
    }
    for problem in backups.problems() {
        output.warn_of_loss(&problem.to_string());
    }
    let merged = Merged::new(backups)?;
    let info = merged.volume();
    Ok(Mountable {
        suffix: String::new(),
        summary: None,
        name: info.name.clone(),
        format: info.format.to_owned(),
        volume: Some(info),
        shown: MountContent::Volume(Arc::new(merged)),
    })
}

/// Returns every readable volume and prints a warning for the others. Fails with [`Kind::NotFound`]
/// if there is none.
pub(super) fn all(
    image: &Image,
    opening: &OpenArgs,
    read_only: bool,
    output: &Output,
) -> Outcome<Vec<Mountable>> {
    let mut mountables = Vec::new();
    let mut failed = None;
    let supported = || {
        let volumes = image.volumes().iter();
        volumes.filter(|volume| volume.format.is_supported())
    };
    // As on macOS, EFI system partitions are not mounted beside others.
    let has_others = supported().any(|volume| !volume.starts_computer);
    for volume in supported().filter(|volume| !has_others || !volume.starts_computer) {
        let selectors = selectors(volume);
        // The volumes of one container share its free space, so only one may be open for writing.
        let together = selectors.len() > 1;
        if together && !read_only && image.disk().info().access == Access::ReadWrite {
            output.warn(
                "several volumes of one container are mounted read-only; run `bandsaw \
                         mount IMAGE:VOLUME` to mount one for writing",
            );
        }
        for selector in selectors {
            let address = Address {
                volume: Some(selector),
                ..Address::image(image.path())
            };
            match mountable(
                image,
                volume,
                &address,
                opening,
                read_only || together,
                output,
            ) {
                Ok(mountable) => mountables.push(mountable),
                Err(failure) => {
                    output.warn(&format!("{address} is not mounted: {}", failure.message()));
                    failed = failed.or(Some(failure));
                }
            }
        }
    }
    match mountables.is_empty() {
        false => Ok(mountables),
        true => Err(failed.unwrap_or_else(|| {
            let error = Error::new(
                Kind::NotFound,
                "attach",
                "contains no volume that can be mounted",
            )
            .because(Reason::NoVolumes)
            .in_file(image.path());
            Failure::from(error).hint(
                "use --nomount to attach the disk as one file; run `bandsaw info` to see \
                       its contents",
            )
        })),
    }
}

/// Returns selectors for the volumes of a file system: one, or those of an APFS container except
/// the ones for booting a Mac.
fn selectors(volume: &Volume) -> Vec<VolumeSelector> {
    let partition = volume.partition.unwrap_or(1);
    let number = |volume| VolumeSelector::Number { partition, volume };
    let members = volume.members().into_iter();
    let ordinary = members.filter(|member| !member.is_auxiliary());
    let numbers: Vec<_> = ordinary.map(|member| number(Some(member.number))).collect();
    if numbers.is_empty() {
        vec![number(None)]
    } else {
        numbers
    }
}

fn mountable(
    image: &Image,
    volume: &Volume,
    address: &Address,
    opening: &OpenArgs,
    read_only: bool,
    output: &Output,
) -> Outcome<Mountable> {
    let writable =
        !read_only && address.snapshot.is_none() && image.disk().info().access == Access::ReadWrite;
    // Read before the volume is open for writing.
    let summaries = volume.member_summaries();
    let changed = if writable {
        to_change(image, address, opening, output)?
    } else {
        None
    };
    let shown = match changed {
        Some(shown) => shown,
        None => MountContent::Volume(opening.volume(image, address)?),
    };
    let fs: &dyn FileSystem = match &shown {
        MountContent::VolumeMut(fs) => &**fs,
        MountContent::Volume(fs) => &**fs,
        MountContent::Disk(..) => {
            return Err(
                Error::invalid("attach", "expected a volume, found a disk without one").into(),
            );
        }
    };
    let info = fs.volume();
    let summary = summaries
        .into_iter()
        .find(|summary| Some(summary.uuid) == info.uuid);
    let suffix = volume
        .partition
        .map_or_else(String::new, |number| format!("s{number}"));
    Ok(Mountable {
        suffix,
        summary,
        name: info.name.clone(),
        volume: Some(info),
        format: volume.format.name().to_owned(),
        shown,
    })
}

/// Opens the volume for writing; returns `None`, with a warning, if it can only be read.
fn to_change(
    image: &Image,
    address: &Address,
    opening: &OpenArgs,
    output: &Output,
) -> Outcome<Option<MountContent>> {
    let error = match opening.volume_to_mount(image, address, output) {
        Ok(fs) => return Ok(Some(MountContent::VolumeMut(fs))),
        Err(error) => error,
    };
    let why = match error.kind() {
        Kind::Unsupported | Kind::ReadOnly => "",
        Kind::Corrupt => "; run `bandsaw repair`",
        _ => return Err(error.into()),
    };
    output.warn(&format!("mounted read-only: {error}{why}"));
    Ok(None)
}
