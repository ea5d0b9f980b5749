//! Logical volumes of Core Storage: the search for their physical volumes and keys, and their opening.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use uuid::Uuid;

use super::apfs::VolumeQuery;
use super::driver::{Driver, refuse_snapshot, unsupported};
use super::unlock::{Keys, volume_key};
use super::volume::{LAYER, Volume};
use super::volume_format::VolumeFormat;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::fs::core_storage::{Group, KEY_FILES, LogicalDevice, LogicalVolume, group_of};
use crate::fs::hfsplus::{self, HfsPlus};
use crate::fs::{FileSystem, FileSystemExt, FileSystemMut, Fork};
use crate::problem::{Problem, Problems, Severity};
use crate::progress::Progress;
use crate::sync::Mutex;
use crate::{Error, Kind, Result};

/// Maximum length of the file with the keys of a start volume in bytes.
const MAX_KEY_FILE: u64 = 1 << 20;
/// Maximum number of files with keys that are read.
const MAX_KEY_FILES: usize = 16;

/// The devices among which the parts of a group are looked for.
#[derive(Debug, Default)]
pub(super) struct CoreStoragePeers {
    /// Physical volumes, of any group.
    physical: Vec<Arc<dyn BlockDevice>>,
    /// HFS+ volumes, which may hold the keys of a start volume.
    recovery: Vec<Arc<dyn BlockDevice>>,
    /// The groups that were opened, whose metadata is long.
    groups: Mutex<BTreeMap<Uuid, Arc<Group>>>,
}

impl CoreStoragePeers {
    /// Returns the peers on one disk.
    pub(super) fn of(volumes: &[Volume]) -> Self {
        let devices = |fits: fn(VolumeFormat) -> bool| {
            let found = volumes.iter().filter(move |volume| fits(volume.format));
            found.map(|volume| volume.device().clone()).collect()
        };
        Self {
            physical: devices(|format| format == VolumeFormat::CoreStorage),
            recovery: devices(VolumeFormat::is_hfs_plus),
            groups: Mutex::default(),
        }
    }

    /// Adds the devices of another disk.
    pub(super) fn extend(&mut self, other: &Self) {
        self.physical.extend(other.physical.iter().cloned());
        self.recovery.extend(other.recovery.iter().cloned());
    }

    /// Returns true if there is no physical volume.
    pub(super) fn is_empty(&self) -> bool {
        self.physical.is_empty()
    }

    /// Returns the files with keys. A recovery partition that is damaged, or has no such file, does
    /// not keep the others from being read; one that cannot be read does.
    fn key_files(&self) -> Result<Vec<Vec<u8>>> {
        let mut files = Vec::new();
        for device in &self.recovery {
            for path in KEY_FILES {
                match read_file(device, path) {
                    Ok(file) if files.len() < MAX_KEY_FILES => files.push(file),
                    Ok(_) => {}
                    Err(error) if error.io_kind().is_some() || error.kind() == Kind::Io => {
                        return Err(error);
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(files)
    }
}

fn read_file(device: &Arc<dyn BlockDevice>, path: &str) -> Result<Vec<u8>> {
    let volume = HfsPlus::open(device.clone())?;
    let file = volume.open(volume.resolve(path)?.id, Fork::Data)?;
    let len = file.info().len;
    match usize::try_from(len) {
        Ok(short) if len <= MAX_KEY_FILE => file.read_vec(0, short),
        _ => Err(Error::limit(LAYER, "the file with the keys is too long")),
    }
}

/// Gives each physical volume the devices among which the others of its group are looked for:
/// those of the same disk.
pub(super) fn set_peers(volumes: &mut [Volume]) {
    if !volumes.iter().any(is_core_storage) {
        return;
    }
    let peers = Arc::new(CoreStoragePeers::of(volumes));
    for volume in volumes.iter_mut().filter(|volume| is_core_storage(volume)) {
        volume.peers = peers.clone();
    }
}

/// Returns true if it is a physical volume.
pub(super) fn is_core_storage(volume: &Volume) -> bool {
    volume.format == VolumeFormat::CoreStorage
}

impl Volume {
    /// Sets the devices among which the other parts of its group are looked for, and describes damage
    /// that is passed over. Other errors are left to the readers.
    pub(super) fn set_peers(&mut self, peers: Arc<CoreStoragePeers>) {
        self.peers = peers;
        self.older_state = self
            .core_storage()
            .ok()
            .and_then(|group| group.damage().map(ToOwned::to_owned));
    }

    /// Opens the Core Storage group of this physical volume. [`Kind::Invalid`] if it is none.
    pub fn core_storage(&self) -> Result<Arc<Group>> {
        let message = "expected a physical volume of Core Storage";
        let own = group_of(&**self.device())?
            .ok_or_else(|| Error::invalid(LAYER, message).named(self.place()))?;
        if let Some(group) = self.peers.groups.lock().get(&own) {
            return Ok(group.clone());
        }
        // The lock is not held while metadata is read. Two threads may read the same group, and either is
        // kept.
        let mut devices = vec![self.device().clone()];
        for device in &self.peers.physical {
            let is_other = !Arc::ptr_eq(device, self.device());
            if is_other && group_of(&**device)? == Some(own) {
                devices.push(device.clone());
            }
        }
        let group = Arc::new(Group::open(&devices)?);
        self.peers.groups.lock().insert(own, group.clone());
        Ok(group)
    }

    /// Opens the contents of a logical volume: that of this number, from 1, or the one that the
    /// options name, or the only one.
    fn logical(&self, number: Option<u32>, keys: Option<&dyn Keys>) -> Result<Arc<LogicalDevice>> {
        let group = self.core_storage()?;
        let volume = match number {
            None => group.select(None)?,
            Some(number) => numbered(&group, number)?,
        };
        self.open_logical(&group, volume, keys)
    }

    /// Opens the contents of a logical volume of its group.
    pub(super) fn open_logical(
        &self,
        group: &Group,
        volume: &LogicalVolume,
        keys: Option<&dyn Keys>,
    ) -> Result<Arc<LogicalDevice>> {
        let files = match volume.has_context() {
            true => Vec::new(),
            false => self.peers.key_files()?,
        };
        let opened = group.open_volume(volume, &files, &|locked| volume_key(locked, keys))?;
        Ok(Arc::new(opened))
    }

    /// Returns the number of the logical volume of this name, from 1.
    pub(super) fn logical_named(&self, name: &str) -> Result<Option<u32>> {
        let group = self.core_storage()?;
        let at = group
            .volumes()
            .iter()
            .position(|volume| *volume.name == *name);
        Ok(at.and_then(|at| u32::try_from(at + 1).ok()))
    }
}

fn numbered(group: &Group, number: u32) -> Result<&LogicalVolume> {
    let at = usize::try_from(number)
        .ok()
        .and_then(|number| number.checked_sub(1));
    at.and_then(|at| group.volumes().get(at)).ok_or_else(|| {
        let message = format!(
            "no logical volume {number}; the group has {}",
            group.volumes().len()
        );
        Error::new(Kind::NotFound, LAYER, message)
    })
}

/// Core Storage with HFS+ inside.
#[derive(Debug)]
pub(super) struct CoreStorageDriver;

impl Driver for CoreStorageDriver {
    fn open(
        &self,
        volume: &Volume,
        number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        refuse_snapshot(volume, wanted)?;
        let device = volume.logical(number, wanted.keys)?;
        check_contents(volume, &*device)?;
        let opened = HfsPlus::open_with(device, volume.cache)?;
        Ok(Arc::new(opened.system_files(volume.system_files)))
    }

    fn open_mut(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        _keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        let message = "Core Storage volumes can only be read; copy the files to another image";
        Err(unsupported(volume, message))
    }

    fn check(
        &self,
        volume: &Volume,
        keys: Option<&dyn Keys>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        Some(check_logical_volumes(volume, keys, problems, progress))
    }

    fn own_ranges(&self, _volume: &Volume) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

/// Checks the HFS+ volume of each logical volume. Returns why some could not be checked.
fn check_logical_volumes(
    volume: &Volume,
    keys: Option<&dyn Keys>,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<Vec<Error>> {
    let group = volume.core_storage()?;
    if let Some(damage) = group.damage() {
        let error = Error::new(Kind::Corrupt, LAYER, damage.to_owned());
        problems.add(Severity::Damage, error.in_file(volume.place()));
    }
    let mut unseen = Vec::new();
    for logical in group.volumes() {
        let device = volume
            .open_logical(&group, logical, keys)
            .and_then(|device| check_contents(volume, &*device).map(|()| device));
        let device = match device {
            Ok(device) => device,
            Err(error) if matches!(error.kind(), Kind::WrongKey | Kind::Unsupported) => {
                unseen.push(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        for Problem { severity, error } in hfsplus::check(device, progress)? {
            problems.add(severity, error.in_file(&*logical.name));
        }
    }
    Ok(unseen)
}

/// Refuses a logical volume without HFS+.
pub(super) fn check_contents(volume: &Volume, device: &dyn BlockDevice) -> Result<()> {
    match hfsplus::probe(device)? {
        Some(_) => Ok(()),
        None => Err(unsupported(
            volume,
            "the logical volume holds no HFS+ volume; if it is the start volume of a Mac, its keys \
             are in the file EncryptedRoot.plist.wipekey of the recovery partition, which is \
             missing here",
        )),
    }
}
