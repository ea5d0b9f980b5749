//! The search of all volumes of an image.

use std::sync::Arc;

use bandsaw::address::VolumeSelector;
use bandsaw::device::BlockDevice;
use bandsaw::fs::apfs::{ApfsRecovery, Container};
use bandsaw::fs::hfsplus::HfsPlusRecovery;
use bandsaw::fs::{FileSystem, LockedVolume, RecoveredFile, RecoverySummary};
use bandsaw::open::{Image, Keys, volume_key};
use bandsaw::ops::describe::ErrorInfo;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};

use super::lost_volumes::{LostFormat, LostVolume, LostVolumes, find_volumes};
use super::record::{FileEntry, VolumeEntry};
use super::selection::Selection;
use crate::LAYER;

/// Receives the files that a search finds.
pub trait RecoverySink {
    /// Takes a selected file and its description.
    fn file(&mut self, volume: &VolumeEntry, file: RecoveredFile, entry: FileEntry) -> Result<()>;

    /// Takes a volume after all of its files.
    fn volume(&mut self, volume: VolumeEntry) -> Result<()>;
}

/// Searches the selected volume of an image, or all of them, for files that were deleted; all files of a
/// volume that is damaged. A disk on which no volume is known is searched for volumes. `keys` is called
/// for encrypted volumes.
///
/// # Errors
///
/// [`Kind::WrongKey`] if the key of the selected volume is missing or wrong, [`Kind::NotFound`] if nothing
/// can be searched. Damage is in the entries of volumes.
pub fn recover(
    image: &Image,
    which: Option<&VolumeSelector>,
    keys: Option<&dyn Keys>,
    selection: &Selection,
    sink: &mut dyn RecoverySink,
    progress: &dyn Progress,
) -> Result<()> {
    let mut search = Search {
        keys,
        selection,
        sink,
        progress,
        count: 0,
        is_selected: which.is_some(),
        unread: None,
    };
    if which.is_some() {
        let (volume, number) = image.volume_and_number(which)?;
        let place = VolumePlace {
            partition: volume.partition,
            start: volume.range.start,
            size: volume.range.end - volume.range.start,
            lost: false,
        };
        return match (volume.format.is_container(), volume.format.is_hfs_plus()) {
            (true, _) => search.container(&volume.container()?, &place, number),
            (_, true) => search.hfs_plus(volume.device().clone(), &place),
            _ => Err(unsupported(volume.format.name())),
        };
    }
    for volume in image.volumes() {
        let place = VolumePlace {
            partition: volume.partition,
            start: volume.range.start,
            size: volume.range.end - volume.range.start,
            lost: false,
        };
        let done = match (volume.format.is_container(), volume.format.is_hfs_plus()) {
            (true, _) => volume
                .container()
                .and_then(|container| search.container(&container, &place, None)),
            (_, true) => search.hfs_plus(volume.device().clone(), &place),
            _ => continue,
        };
        match done {
            Ok(()) => {}
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => search.failed(&place, volume.format.name(), &error)?,
        }
    }
    if search.count == 0 {
        let LostVolumes { found, unread } = find_volumes(image.disk(), progress)?;
        search.unread = unread;
        for lost in found {
            search.lost(&lost)?;
        }
    }
    match search.count {
        0 => Err(search.unread.unwrap_or_else(|| {
            Error::new(Kind::NotFound, LAYER, "no HFS+ or APFS volume was found")
        })),
        _ => Ok(()),
    }
}

/// Returns true for an error that is not about the volume.
fn is_final(error: &Error) -> bool {
    error.kind() == Kind::Cancelled || error.io_kind().is_some()
}

fn unsupported(format: &str) -> Error {
    let message = format!("files of {format} cannot be recovered; HFS+ and APFS are supported");
    Error::unsupported(LAYER, message)
}

/// The place of a volume on the disk.
struct VolumePlace {
    partition: Option<u32>,
    start: u64,
    size: u64,
    lost: bool,
}

struct Search<'a> {
    keys: Option<&'a dyn Keys>,
    selection: &'a Selection,
    sink: &'a mut dyn RecoverySink,
    progress: &'a dyn Progress,
    count: u32,
    is_selected: bool,
    /// The sectors that a search for volumes could not read.
    unread: Option<Error>,
}

impl Search<'_> {
    fn entry(&mut self, place: &VolumePlace, file_system: &str) -> VolumeEntry {
        self.count += 1;
        VolumeEntry {
            volume: self.count,
            partition: place.partition,
            number: None,
            file_system: file_system.to_owned(),
            name: None,
            disk_offset: place.start,
            size: place.size,
            lost: place.lost,
            damaged: false,
            files: 0,
            searched: 0,
            unassigned_nodes: 0,
            problems: self.unread.iter().map(ErrorInfo::new).collect(),
        }
    }

    /// Reports a volume that cannot be searched.
    fn failed(&mut self, place: &VolumePlace, file_system: &str, error: &Error) -> Result<()> {
        let mut entry = self.entry(place, file_system);
        entry.damaged = true;
        entry.problems.push(ErrorInfo::new(error));
        self.sink.volume(entry)
    }

    fn lost(&mut self, lost: &LostVolume) -> Result<()> {
        let place = VolumePlace {
            partition: None,
            start: lost.range.start,
            size: lost.range.end - lost.range.start,
            lost: true,
        };
        let done = match lost.format {
            LostFormat::HfsPlus => self.hfs_plus(lost.device.clone(), &place),
            LostFormat::Apfs => Container::open(lost.device.clone(), None)
                .and_then(|container| self.container(&Arc::new(container), &place, None)),
        };
        match done {
            Err(error) if is_final(&error) => Err(error),
            Err(error) => self.failed(&place, lost.format.name(), &error),
            Ok(()) => Ok(()),
        }
    }

    fn hfs_plus(&mut self, device: Arc<dyn BlockDevice>, place: &VolumePlace) -> Result<()> {
        let recovery = HfsPlusRecovery::open(device)?;
        let mut entry = self.entry(place, "HFS+");
        if let Some(info) = recovery.volume() {
            let info = info.volume();
            entry.file_system = info.format.to_owned();
            entry.name = Some(info.name);
        }
        let (selection, sink) = (self.selection, &mut *self.sink);
        let mut files = 0;
        let summary = recovery.scan(self.progress, &mut |file| {
            if !selection.wants(&file) {
                return Ok(());
            }
            files += 1;
            let described = FileEntry::new(&file, entry.volume, entry.disk_offset);
            sink.file(&entry, file, described)
        })?;
        entry.files = files;
        finish(&mut entry, &summary);
        self.sink.volume(entry)
    }

    fn container(
        &mut self,
        container: &Arc<Container>,
        place: &VolumePlace,
        number: Option<u32>,
    ) -> Result<()> {
        let keys = self.keys;
        let key = |locked: &LockedVolume| volume_key(locked, keys);
        let mut recovery = ApfsRecovery::new(container);
        let mut entries = Vec::new();
        for (found, label) in (1..).zip(container.labels()) {
            let is_wanted = number.is_none_or(|number| number == found);
            if !is_wanted {
                continue;
            }
            let mut entry = self.entry(place, "APFS");
            entry.number = Some(found);
            entry.name = label.ok().map(|label| label.name);
            match recovery.add(found, &key) {
                Ok(()) => entries.push(entry),
                Err(error) if self.is_selected || error.kind() == Kind::Cancelled => {
                    return Err(error);
                }
                Err(error) => {
                    entry.problems.push(ErrorInfo::new(&error));
                    self.sink.volume(entry)?;
                }
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        let (selection, sink) = (self.selection, &mut *self.sink);
        let summaries = recovery.scan(self.progress, &mut |number, file| {
            let entry = entries
                .iter_mut()
                .find(|entry| entry.number == Some(number));
            let Some(entry) = entry.filter(|_| selection.wants(&file)) else {
                return Ok(());
            };
            entry.files += 1;
            let described = FileEntry::new(&file, entry.volume, entry.disk_offset);
            sink.file(entry, file, described)
        })?;
        for (mut entry, (_, summary)) in entries.into_iter().zip(summaries) {
            finish(&mut entry, &summary);
            self.sink.volume(entry)?;
        }
        Ok(())
    }
}

fn finish(entry: &mut VolumeEntry, summary: &RecoverySummary) {
    entry.damaged = summary.is_damaged;
    entry.searched = summary.searched;
    entry.unassigned_nodes = summary.unassigned_nodes;
    let problems = summary.problems.iter().map(ErrorInfo::new);
    entry.problems.extend(problems);
}
