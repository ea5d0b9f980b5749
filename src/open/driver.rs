//! File systems behind one trait: what operations ask of a volume, whatever its format.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::apfs::{ApfsDriver, VolumeQuery};
use super::core_storage::CoreStorageDriver;
use super::hfsplus::HfsPlusDriver;
use super::quick_check::NodeLimit;
use super::unlock::Keys;
use super::volume::{LAYER, Volume};
use super::volume_format::VolumeFormat;
use crate::device::BlockDevice;
use crate::fs::apple_archive::{self, AppleArchive};
#[cfg(feature = "foreign")]
use crate::fs::exfat::{self, ExFatVolume};
#[cfg(feature = "foreign")]
use crate::fs::fat::{self, FatVolume};
#[cfg(feature = "foreign")]
use crate::fs::foreign::Foreign;
use crate::fs::hfs::{self, HfsVolume};
#[cfg(feature = "foreign")]
use crate::fs::iso9660::{self, IsoVolume};
#[cfg(feature = "foreign")]
use crate::fs::udf::{self, UdfVolume};
use crate::fs::{BlockFreeMap, FileSystem, FileSystemMut, FreeMap, ResizeVolume};
use crate::problem::{Problem, Problems};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// A file system. The bodies here are those of a format that is known by name only.
pub(super) trait Driver: Debug + Sync {
    /// Opens the volume; of a container the volume with this number, from 1, or the first.
    fn open(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        refuse_snapshot(volume, wanted)?;
        Err(unsupported(
            volume,
            format!("unsupported: {}", volume.format),
        ))
    }

    /// Opens the volume for changes, as [`open`](Self::open) does.
    fn open_mut(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        _keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        Err(unsupported(volume, format!("read-only: {}", volume.format)))
    }

    /// Opens the volume for resizing, on `device` if that is longer than its partition.
    fn open_resizable(
        &self,
        volume: &Volume,
        _device: Arc<dyn BlockDevice>,
    ) -> Result<Box<dyn ResizeVolume>> {
        let message = format!("resizing {} is not supported", volume.format);
        Err(unsupported(volume, message))
    }

    /// Adds every problem of the volume; see [`Volume::check`]. `None`: checks are not supported.
    fn check(
        &self,
        _volume: &Volume,
        _keys: Option<&dyn Keys>,
        _problems: &mut Problems,
        _progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        None
    }

    /// Returns the problems that the first part of a check finds, without keys.
    fn quick_check(&self, volume: &Volume, budget: &NodeLimit) -> Result<Vec<Problem>> {
        let mut problems = Problems::default();
        match self.check(volume, None, &mut problems, budget) {
            Some(Err(error)) if error.kind() == Kind::Io => Err(error),
            _ => problems
                .check_readable()
                .map(|()| problems.into_iter().collect()),
        }
    }

    /// Compares the copies of the volume's header.
    fn compare_headers(&self, _volume: &Volume) -> Result<Headers> {
        Ok(Headers::Agree)
    }

    /// Returns the length of the volume in bytes by its header, which is not checked otherwise.
    /// `None`: not compared.
    fn stated_len(&self, _volume: &Volume) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the end of the volume, which must open, in bytes of its device. `None`: not
    /// supported.
    fn recorded_len(&self, _volume: &Volume) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns the map of free bytes. `None`: not supported.
    fn free_map(&self, _volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(None)
    }

    /// Returns the free map of a volume that is clean; see [`Volume::trusted_free_map`].
    fn trusted_free_map(&self, _volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(None)
    }

    /// Returns the ranges of the volume's own structures; see [`Volume::own_ranges`].
    /// Empty if they are unknown, or if there is no free map to compare them with.
    fn own_ranges(&self, volume: &Volume) -> Result<Vec<Range<u64>>>;
}

/// The result of a comparison of the copies of a volume's header.
#[derive(Debug)]
pub(super) enum Headers {
    /// They agree, or there is only one.
    Agree,
    /// They differ, and the volume agrees with the one that readers use: a warning.
    Confirmed(String),
    /// They differ, and only a repair decides.
    Differ(String),
}

/// A format that is known by name only.
#[derive(Debug)]
struct Unread;

impl Driver for Unread {
    fn own_ranges(&self, _volume: &Volume) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

/// A format that this build leaves out.
#[cfg(not(feature = "foreign"))]
#[derive(Debug)]
struct LeftOut;

#[cfg(not(feature = "foreign"))]
impl Driver for LeftOut {
    fn open(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        _wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        Err(left_out(volume))
    }

    fn open_mut(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        _keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        Err(left_out(volume))
    }

    fn own_ranges(&self, _volume: &Volume) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

#[cfg(not(feature = "foreign"))]
fn left_out(volume: &Volume) -> Error {
    let format = volume.format;
    let message = format!("this build does not read {format} (feature `foreign`)");
    unsupported(volume, message)
}

type OpenVolume = fn(Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>>;
type OpenVolumeMut = fn(Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystemMut>>;
type CheckVolume = fn(Arc<dyn BlockDevice>, &dyn Progress) -> Result<Vec<Problem>>;
type ReadFreeMap = fn(Arc<dyn BlockDevice>) -> Result<BlockFreeMap>;

/// A format without keys, snapshots and resizing: its functions on a device.
#[derive(Debug)]
struct DeviceDriver {
    open: OpenVolume,
    /// Opens a volume for changes, or the reason why that is not supported.
    open_mut: std::result::Result<OpenVolumeMut, &'static str>,
    check: Option<CheckVolume>,
    stated_len: fn(&Arc<dyn BlockDevice>) -> Result<Option<u64>>,
    free_map: Option<ReadFreeMap>,
}

const HFS: DeviceDriver = DeviceDriver {
    open: |device| Ok(Arc::new(HfsVolume::open(device)?)),
    open_mut: Err("HFS volumes can only be read; copy the files to another image"),
    check: Some(hfs::check),
    stated_len: |device| hfs::stated_len(&**device),
    free_map: None,
};

#[cfg(feature = "foreign")]
const ISO: DeviceDriver = DeviceDriver {
    open: |device| Ok(Arc::new(IsoVolume::open(device)?)),
    open_mut: Err("read-only: ISO 9660"),
    check: Some(iso9660::check),
    stated_len: |device| iso9660::stated_len(&**device),
    free_map: None,
};

#[cfg(feature = "foreign")]
const UDF: DeviceDriver = DeviceDriver {
    open: |device| Ok(Arc::new(UdfVolume::open(device)?)),
    open_mut: Err("read-only: UDF"),
    check: Some(udf::check),
    stated_len: udf::stated_len,
    free_map: None,
};

const APPLE_ARCHIVE: DeviceDriver = DeviceDriver {
    open: |device| Ok(Arc::new(AppleArchive::open(device)?)),
    open_mut: Err("archives can only be read; copy the files to an image"),
    check: Some(apple_archive::check),
    stated_len: |_| Ok(None),
    free_map: None,
};

#[cfg(feature = "foreign")]
const FAT: DeviceDriver = DeviceDriver {
    open: |device| Ok(Arc::new(FatVolume::open(device)?)),
    open_mut: Ok(fat::open_mut),
    check: Some(fat::check),
    stated_len: |device| fat::stated_len(&**device),
    free_map: Some(fat::free_map),
};

#[cfg(feature = "foreign")]
const EX_FAT: DeviceDriver = DeviceDriver {
    open: |device| Ok(Arc::new(ExFatVolume::open(device)?)),
    open_mut: Ok(exfat::open_mut),
    check: Some(exfat::check),
    stated_len: |device| exfat::stated_len(&**device),
    free_map: Some(exfat::free_map),
};

impl DeviceDriver {
    fn open_map(&self, volume: &Volume) -> Result<Option<BlockFreeMap>> {
        let open = |free_map: fn(_) -> _| free_map(volume.device().clone());
        self.free_map.map(open).transpose()
    }
}

impl Driver for DeviceDriver {
    fn open(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        refuse_snapshot(volume, wanted)?;
        (self.open)(volume.device().clone())
    }

    fn open_mut(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        _keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        match self.open_mut {
            Ok(open_mut) => open_mut(volume.device().clone()),
            Err(why) => Err(unsupported(volume, why)),
        }
    }

    fn check(
        &self,
        volume: &Volume,
        _keys: Option<&dyn Keys>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        let checked = self.check?(volume.device().clone(), progress);
        Some(checked.map(|found| add_all(problems, volume, found)))
    }

    fn stated_len(&self, volume: &Volume) -> Result<Option<u64>> {
        (self.stated_len)(volume.device())
    }

    fn recorded_len(&self, volume: &Volume) -> Result<Option<u64>> {
        Ok(self.open_map(volume)?.map(|map| map.end()))
    }

    fn free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(self.open_map(volume)?.map(|map| Arc::new(map) as _))
    }

    fn trusted_free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        let map = self.open_map(volume)?.map(BlockFreeMap::trusted);
        Ok(map.transpose()?.map(|map| Arc::new(map) as _))
    }

    // FAT's table has no bits for these structures, and exFAT's check compares its bitmap with them.
    fn own_ranges(&self, _volume: &Volume) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

/// Adds the problems of a volume, and returns the parts that were not checked: none.
fn add_all(problems: &mut Problems, volume: &Volume, found: Vec<Problem>) -> Vec<Error> {
    for Problem { severity, error } in found {
        problems.add(severity, error.in_file(volume.place()));
    }
    Vec::new()
}

/// ext2/3/4 and NTFS, whose free space is read so that a trim can discard it.
#[cfg(feature = "foreign")]
#[derive(Debug)]
struct ForeignDriver(Foreign);

#[cfg(feature = "foreign")]
impl ForeignDriver {
    fn open_map(&self, volume: &Volume) -> Result<BlockFreeMap> {
        self.0.free_map(volume.device().clone())
    }
}

#[cfg(feature = "foreign")]
impl Driver for ForeignDriver {
    fn recorded_len(&self, volume: &Volume) -> Result<Option<u64>> {
        Ok(Some(self.open_map(volume)?.end()))
    }

    fn free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(Some(Arc::new(self.open_map(volume)?)))
    }

    fn trusted_free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(Some(Arc::new(self.open_map(volume)?.trusted()?)))
    }

    // The free maps of these formats are read, and never compared with the other structures.
    fn own_ranges(&self, _volume: &Volume) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

impl VolumeFormat {
    /// Returns the file system.
    pub(super) const fn driver(self) -> &'static dyn Driver {
        match self {
            Self::HfsPlus | Self::Hfsx => &HfsPlusDriver,
            Self::Hfs => &HFS,
            Self::Apfs => &ApfsDriver,
            Self::CoreStorage => &CoreStorageDriver,
            #[cfg(feature = "foreign")]
            Self::Iso9660 => &ISO,
            #[cfg(feature = "foreign")]
            Self::Udf => &UDF,
            Self::AppleArchive => &APPLE_ARCHIVE,
            #[cfg(feature = "foreign")]
            Self::Ext => &ForeignDriver(Foreign::Ext),
            #[cfg(feature = "foreign")]
            Self::Fat => &FAT,
            #[cfg(feature = "foreign")]
            Self::ExFat => &EX_FAT,
            #[cfg(feature = "foreign")]
            Self::Ntfs => &ForeignDriver(Foreign::Ntfs),
            #[cfg(not(feature = "foreign"))]
            Self::Iso9660 | Self::Udf | Self::Fat | Self::ExFat => &LeftOut,
            _ => &Unread,
        }
    }
}

/// Refuses to open a snapshot of a file system without snapshots.
pub(super) fn refuse_snapshot(volume: &Volume, wanted: VolumeQuery<'_>) -> Result<()> {
    if wanted.snapshot.is_none() {
        return Ok(());
    }
    let message = format!("{} has no snapshots", volume.format);
    Err(Error::invalid(LAYER, message).named(volume.place()))
}

/// Returns the error about an operation that the format of a volume does not have.
pub(super) fn unsupported(volume: &Volume, message: impl Into<Cow<'static, str>>) -> Error {
    Error::unsupported(LAYER, message).named(volume.place())
}
