//! The file systems on a disk: their location and opening.

use std::ops::Range;
use std::sync::Arc;

use super::apfs::{self, SurveyedContainer, VolumeQuery};
use super::core_storage::{self, CoreStoragePeers};
use super::detect::detect_file_system;
use super::driver::Driver;
use super::quick_check::NodeLimit;
use super::unlock::Keys;
use super::volume_format::VolumeFormat;
use crate::address::VolumeSelector;
use crate::device::{Access, BlockDevice, Slice};
use crate::fs::apfs::{Label, Summary, VolumeWriter};
use crate::fs::hfsplus::DEFAULT_CACHE;
use crate::fs::{FileSystem, FileSystemMut, ResizeVolume, Timestamp};
use crate::fs::{iso9660, udf};
use crate::partition::Map;
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::{Error, Kind, Reason, Result};

pub(super) const LAYER: &str = "volume";

/// A file system found on a disk; for APFS, a container of volumes.
#[derive(Debug, Clone)]
pub struct Volume {
    /// The number of its partition; `None` on a disk without a map.
    pub partition: Option<u32>,
    /// Its bytes on the disk.
    pub range: Range<u64>,
    /// The format of its file system.
    pub format: VolumeFormat,
    /// True if its partition merely serves to start a computer: an EFI system partition. Other volumes are
    /// chosen before it.
    pub starts_computer: bool,
    /// The transaction number of an older checkpoint of an APFS container to open. `None`: the
    /// newest valid one.
    pub(super) checkpoint: Option<u64>,
    /// Bytes of memory for cached nodes of an HFS+ volume.
    pub(super) cache: usize,
    /// True if the volume is opened for changes even if a quick check finds damage.
    pub(super) change_damaged: bool,
    /// True if the journal files of an HFS+ volume are listed.
    pub(super) system_files: bool,
    /// The date recorded for changes. `None`: that of the clock.
    pub(super) now: Option<Timestamp>,
    /// The warning that an older state of an APFS container is read, because the newest is damaged.
    pub(super) older_state: Option<String>,
    /// The container that was opened for this warning, for the first reader of a read-only image.
    pub(super) surveyed: SurveyedContainer,
    /// The devices among which the other parts of a Core Storage group are looked for.
    pub(super) peers: Arc<CoreStoragePeers>,
    /// The writer of an APFS container, which is reopened for each operation.
    pub(super) writer: VolumeWriter,
    device: Arc<dyn BlockDevice>,
}

impl Volume {
    /// Returns the device that holds the volume.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Returns the warning that an older state is read because the newest is damaged.
    pub fn older_state(&self) -> Option<&str> {
        self.older_state.as_deref()
    }

    /// Returns the same warning with the place of the volume.
    pub(super) fn warning_of_older_state(&self) -> Option<String> {
        let what = self.older_state()?;
        Some(format!("{}: {what}", self.place()))
    }

    /// Opens the volume; of an APFS container the first volume that does not merely serve to start
    /// a Mac. [`Kind::Unsupported`] if its format is recognized but not supported,
    /// [`Kind::WrongKey`] if it is encrypted.
    pub fn open(&self) -> Result<Arc<dyn FileSystem>> {
        self.open_within(None, VolumeQuery::default())
    }

    /// Checks that the volume can be opened; for an APFS container, that its volumes can be read.
    /// No key is requested, so encrypted volumes are not opened.
    pub fn check_openable(&self) -> Result<()> {
        if !self.format.is_container() {
            return self.open().map(drop);
        }
        let volumes = self.container()?.volumes();
        volumes.into_iter().try_for_each(|volume| volume.map(drop))
    }

    /// Returns the labels of the volumes of an APFS container, from their superblocks alone. Unreadable
    /// ones are left out; a volume of another format, or a container that cannot be opened, has none.
    pub fn members(&self) -> Vec<Label> {
        let labels = self.container().map(|container| container.labels());
        labels.into_iter().flatten().flatten().collect()
    }

    /// Returns the summaries of the [members](Self::members), with their snapshots. Those whose snapshots
    /// cannot be read are left out, too.
    pub fn member_summaries(&self) -> Vec<Summary> {
        let summaries = self.container().map(|container| container.volumes());
        summaries.into_iter().flatten().flatten().collect()
    }

    /// Opens a volume of the container by number, from 1.
    pub(crate) fn open_numbered(
        &self,
        number: u32,
        keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystem>> {
        self.open_within(
            Some(number),
            VolumeQuery {
                snapshot: None,
                keys,
            },
        )
    }

    /// Opens a volume of the container by number, from 1, or the first.
    pub(super) fn open_within(
        &self,
        number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        self.driver().open(self, number, wanted)
    }

    /// Opens the volume for changes; of an APFS container the volume that [`open`](Self::open)
    /// opens. [`Kind::Unsupported`] if changes of its format, or a feature of the volume, are not
    /// supported; [`Kind::Corrupt`] if a [quick check](super::OpenOptions::change_damaged) finds
    /// damage.
    pub fn open_mut(&self) -> Result<Arc<dyn FileSystemMut>> {
        self.open_mut_within(None, None)
    }

    /// Returns the damage that a [quick check](super::OpenOptions::change_damaged) of the volume
    /// finds, if its format is checked.
    pub fn find_damage(&self) -> Result<Option<Error>> {
        if self.format.is_supported() {
            self.quick_damage()
        } else {
            Ok(None)
        }
    }

    /// Refuses to change a volume that a [quick check](super::OpenOptions::change_damaged) finds
    /// damaged. No key is requested, so the files of an encrypted volume are not checked. Other errors
    /// are ignored: opening the volume reports them.
    ///
    /// [`Kind::Corrupt`] with the first finding.
    pub(crate) fn check_before_change(&self) -> Result<()> {
        let is_read_only = self.device().info().access == Access::ReadOnly;
        if self.change_damaged || is_read_only || self.checkpoint.is_some() {
            return Ok(());
        }
        self.quick_damage()?.map_or(Ok(()), Err)
    }

    /// Returns the damage that the first part of the volume's check finds.
    fn quick_damage(&self) -> Result<Option<Error>> {
        let problems = self.driver().quick_check(self, &NodeLimit::new())?;
        let mut damage = problems
            .into_iter()
            .filter(|problem| problem.severity == Severity::Damage);
        let Some(first) = damage.next() else {
            return Ok(None);
        };
        let message = match damage.count() {
            0 => "is damaged".to_owned(),
            more => format!("is damaged in {} places or more; the first", more + 1),
        };
        Ok(Some(
            Error::new(Kind::Corrupt, "quick check", message)
                .because(Reason::DamagedVolume)
                .named(self.place())
                .caused_by(first.error),
        ))
    }

    /// Opens a volume of the container by number, from 1, or the first, for changes.
    fn open_mut_within(
        &self,
        number: Option<u32>,
        keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        self.check_before_change()?;
        self.driver().open_mut(self, number, keys)
    }

    /// Adds every problem of the volume. `None`: checks of this format are not supported. An error
    /// is damage that prevents any check, or the reason why the volume cannot be checked; returned
    /// errors are the reasons why a part of it was not checked.
    pub(super) fn check(
        &self,
        keys: Option<&dyn Keys>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        self.driver().check(self, keys, problems, progress)
    }

    /// Opens the volume for resizing, on `device` if that is longer than its partition.
    /// [`Kind::Unsupported`] if its format cannot be resized.
    pub(crate) fn open_resizable(
        &self,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Box<dyn ResizeVolume>> {
        self.driver().open_resizable(self, device)
    }

    /// Returns its file system.
    pub(super) fn driver(&self) -> &'static dyn Driver {
        self.format.driver()
    }

    /// Describes its place on the disk, for messages.
    pub fn place(&self) -> String {
        match self.partition {
            Some(number) => format!("partition {number}"),
            None => "the whole disk".to_owned(),
        }
    }

    /// Returns the volume at the same place of another state of the disk. `None`: there is none.
    pub(crate) fn on(&self, disk: &Arc<dyn BlockDevice>) -> Result<Option<Self>> {
        let device = Arc::new(Slice::new(disk.clone(), self.range.clone())?);
        Self::detect(device, self.partition, self.range.clone())
    }

    /// Returns the volume in `device`, which is `range` of the disk. `None`: there is no known file system.
    fn detect(
        device: Arc<dyn BlockDevice>,
        partition: Option<u32>,
        range: Range<u64>,
    ) -> Result<Option<Self>> {
        let format = detect_file_system(&*device)?;
        Ok(format.map(|format| Self {
            partition,
            range,
            format,
            starts_computer: false,
            checkpoint: None,
            cache: DEFAULT_CACHE,
            change_damaged: false,
            system_files: false,
            now: None,
            older_state: None,
            surveyed: SurveyedContainer::default(),
            peers: Arc::default(),
            writer: VolumeWriter::default(),
            device,
        }))
    }
}

/// Finds the file systems in the partitions of a disk, or on the disk itself.
pub(crate) fn find(disk: &Arc<dyn BlockDevice>, map: Option<&Map>) -> Result<Vec<Volume>> {
    let mut volumes = Vec::new();
    let partitions = map.map(|map| map.partitions.as_slice()).unwrap_or_default();
    for partition in partitions
        .iter()
        .filter(|partition| partition.type_id.may_hold_volume())
    {
        let device: Arc<dyn BlockDevice> =
            Arc::new(Slice::new(disk.clone(), partition.range.clone())?);
        let number = Some(partition.number);
        let found = Volume::detect(device, number, partition.range.clone())?;
        volumes.extend(found.map(|volume| Volume {
            starts_computer: partition.type_id.starts_computer(),
            ..volume
        }));
    }
    // Discs for several systems may have a map without a usable partition and a file system at the
    // front, or one whose partitions are within that file system.
    if !volumes
        .iter()
        .any(|volume| volume.format.is_supported() && !volume.starts_computer)
        && let Some(whole) = Volume::detect(disk.clone(), None, 0..disk.info().len)?
        && (volumes.is_empty() || surrounds(disk, &whole, &volumes)?)
    {
        volumes.push(whole);
    }
    core_storage::set_peers(&mut volumes);
    Ok(volumes)
}

/// Returns true if the disk is a volume that contains all of `within`, which are partitions with the
/// files that start a computer. A volume that only remains of a former use of the disk does not: it
/// ends within a partition.
fn surrounds(disk: &Arc<dyn BlockDevice>, whole: &Volume, within: &[Volume]) -> Result<bool> {
    let len = match whole.format {
        VolumeFormat::Iso9660 => iso9660::stated_len(&**disk)?,
        VolumeFormat::Udf => udf::stated_len(disk)?,
        _ => None,
    };
    Ok(len.is_some_and(|len| within.iter().all(|volume| volume.range.end <= len)))
}

/// Returns the volumes of supported formats, those that merely serve to start a computer last.
fn by_choice(volumes: &[Volume]) -> impl Iterator<Item = &Volume> {
    let those = move |starts_computer| {
        volumes.iter().filter(move |volume| {
            volume.format.is_supported() && volume.starts_computer == starts_computer
        })
    };
    those(false).chain(those(true))
}

/// Returns the first volume of a supported format.
pub(super) fn first_known(volumes: &[Volume]) -> Result<&Volume> {
    let first = by_choice(volumes).next();
    first.ok_or_else(|| none_of(unseen(volumes), volumes, "no readable volume"))
}

/// Opens the first readable volume.
pub(super) fn first_readable(
    volumes: &[Volume],
    wanted: VolumeQuery<'_>,
) -> Result<Arc<dyn FileSystem>> {
    first(volumes, |volume| volume.open_within(None, wanted))?
        .ok_or_else(|| none_of(unseen(volumes), volumes, "no readable volume"))
}

/// Opens the first writable volume.
pub(super) fn first_writable(
    volumes: &[Volume],
    keys: Option<&dyn Keys>,
) -> Result<Arc<dyn FileSystemMut>> {
    // If the first volume is damaged, the next one must not be changed instead.
    if let Some(first) = by_choice(volumes).next() {
        first.check_before_change()?;
        // Nor if the first, which readers use, cannot be changed.
        if matches!(
            first.format,
            VolumeFormat::Hfs | VolumeFormat::Fat | VolumeFormat::ExFat
        ) {
            return first.open_mut_within(None, keys);
        }
    }
    first(volumes, |volume| volume.open_mut_within(None, keys))?
        .ok_or_else(|| none_of(unseen(volumes), volumes, "no writable volume"))
}

fn first<T>(volumes: &[Volume], open: impl Fn(&Volume) -> Result<T>) -> Result<Option<T>> {
    let mut failed = None;
    for volume in by_choice(volumes) {
        match open(volume) {
            Ok(opened) => return Ok(Some(opened)),
            // The volumes beside it merely serve to start a Mac.
            Err(error) if volume.format == VolumeFormat::CoreStorage => return Err(error),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Opens the volume that `selector` names.
pub(super) fn select(
    volumes: &[Volume],
    selector: &VolumeSelector,
    wanted: VolumeQuery<'_>,
) -> Result<Arc<dyn FileSystem>> {
    let (volume, number) = selected(volumes, selector)?;
    volume.open_within(number, wanted)
}

/// Opens the volume that `selector` names for changes.
pub(super) fn select_mut(
    volumes: &[Volume],
    selector: &VolumeSelector,
    keys: Option<&dyn Keys>,
) -> Result<Arc<dyn FileSystemMut>> {
    let (volume, number) = selected(volumes, selector)?;
    volume.open_mut_within(number, keys)
}

/// Returns the volume that a selector names, and its number if it is one of several in a container.
pub(super) fn selected<'a>(
    volumes: &'a [Volume],
    selector: &VolumeSelector,
) -> Result<(&'a Volume, Option<u32>)> {
    match selector {
        VolumeSelector::Number { partition, volume } => {
            let fits = |found: &&Volume| {
                let several = holds_several(found.format);
                found.partition.unwrap_or(1) == *partition
                    && (several || volume.is_none_or(|number| number == 1))
            };
            let found = volumes
                .iter()
                .find(fits)
                .ok_or_else(|| missing(Kind::NotFound, volumes, selector))?;
            Ok((found, volume.filter(|_| holds_several(found.format))))
        }
        VolumeSelector::Name(name) => {
            let mut failed = None;
            for volume in volumes.iter().filter(|volume| volume.format.is_supported()) {
                let number = if volume.format.is_container() {
                    volume
                        .container()
                        .and_then(|container| apfs::named(&container, name))
                } else if volume.format == VolumeFormat::CoreStorage {
                    volume.logical_named(name)
                } else {
                    volume
                        .open()
                        .map(|opened| (opened.volume().name == *name).then_some(1))
                };
                match number {
                    Ok(Some(number)) => return Ok((volume, Some(number))),
                    Ok(None) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            Err(failed.unwrap_or_else(|| missing(unseen(volumes), volumes, selector)))
        }
    }
}

/// Returns true if a volume of this format holds volumes with numbers.
fn holds_several(format: VolumeFormat) -> bool {
    format.is_container() || format == VolumeFormat::CoreStorage
}

/// Returns the kind of an error about a volume that was not found: if some volumes were unreadable,
/// it may exist.
fn unseen(volumes: &[Volume]) -> Kind {
    let none_is_supported =
        !volumes.is_empty() && !volumes.iter().any(|volume| volume.format.is_supported());
    if none_is_supported {
        Kind::Unsupported
    } else {
        Kind::NotFound
    }
}

fn missing(kind: Kind, volumes: &[Volume], selector: &VolumeSelector) -> Error {
    let missing = none_of(kind, volumes, "no such volume").named(selector.to_string());
    match kind {
        Kind::NotFound => missing.because(Reason::NoSuchVolume),
        _ => missing,
    }
}

/// Returns the error that no volume matches, with a list of the volumes.
fn none_of(kind: Kind, volumes: &[Volume], why: &str) -> Error {
    let one = |volume: &Volume| {
        let names: Vec<_> = volume
            .members()
            .into_iter()
            .map(|label| format!("{:?}", label.name))
            .collect();
        let names = if names.is_empty() {
            String::new()
        } else {
            format!(" with {}", names.join(", "))
        };
        format!("{} on {}{names}", volume.format, volume.place())
    };
    let there: Vec<_> = volumes.iter().map(one).collect();
    let there = if there.is_empty() {
        "no known file system".to_owned()
    } else {
        there.join(", ")
    };
    Error::new(kind, LAYER, format!("{why}; found {there}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;

    const LEN: usize = 1 << 20;

    fn disk(change: impl FnOnce(&mut [u8])) -> Arc<dyn BlockDevice> {
        let mut bytes = vec![0; LEN];
        change(&mut bytes);
        Arc::new(Memory::from(bytes))
    }

    fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
        bytes[at..at + what.len()].copy_from_slice(what);
    }

    #[test]
    fn a_volume_that_is_known_by_name_only_is_refused_by_name() {
        let disk = disk(|bytes| put(bytes, 3, b"NTFS    "));
        let volumes = find(&disk, None).unwrap();
        assert_eq!(
            (volumes[0].format, volumes[0].range.clone()),
            (VolumeFormat::Ntfs, 0..LEN as u64)
        );
        assert!(volumes[0].open().unwrap_err().message().contains("NTFS"));
        let wanted = VolumeQuery::default();
        let error = first_readable(&volumes, wanted).unwrap_err();
        assert!(
            error.kind() == Kind::Unsupported && error.message().contains("NTFS on the whole disk"),
            "{error}"
        );
        let number = |partition, volume| VolumeSelector::Number { partition, volume };
        assert_eq!(
            select(&volumes, &number(1, None), wanted)
                .unwrap_err()
                .kind(),
            Kind::Unsupported
        );
        assert_eq!(
            select(&volumes, &number(2, None), wanted)
                .unwrap_err()
                .kind(),
            Kind::NotFound
        );
        assert_eq!(
            select(&volumes, &number(1, Some(2)), wanted)
                .unwrap_err()
                .kind(),
            Kind::NotFound
        );
        let error = select(&volumes, &VolumeSelector::Name("Docs".into()), wanted).unwrap_err();
        assert!(
            error.kind() == Kind::Unsupported && error.to_string().contains("Docs"),
            "{error}"
        );
        assert_eq!(
            first_readable(&[], wanted).unwrap_err().kind(),
            Kind::NotFound
        );
    }
}
