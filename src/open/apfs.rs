//! Volumes within an APFS container: selection and unlocking.

use std::ops::Range;
use std::sync::Arc;

use super::driver::{Driver, Headers};
use super::unlock::{Keys, volume_key};
use super::volume::Volume;
use crate::device::{Access, BlockDevice};
use crate::fs::apfs::{self, ApfsMut, Container, ContainerMut, Label, WriteOptions};
use crate::fs::{FileSystem, FileSystemMut, FreeMap, LockedVolume, ResizeVolume};
use crate::problem::Problems;
use crate::progress::Progress;
use crate::sync::Mutex;
use crate::{Error, Kind, Result};

/// A state of a volume, and the source of its key.
#[derive(Debug, Clone, Copy, Default)]
pub struct VolumeQuery<'a> {
    /// A snapshot to open instead of the current state.
    pub snapshot: Option<&'a str>,
    /// The source of the key of an encrypted volume. `None`: it stays locked.
    pub keys: Option<&'a dyn Keys>,
}

/// A container that was opened for a warning, kept for its first reader.
#[derive(Debug, Clone, Default)]
pub(super) struct SurveyedContainer(Arc<Mutex<Option<Arc<Container>>>>);

impl Volume {
    /// Returns the APFS container. [`Kind::Invalid`] if the volume is not one.
    pub fn container(&self) -> Result<Arc<Container>> {
        if !self.format.is_container() {
            return Err(Error::invalid(
                "volume",
                "expected an APFS container, found a volume of another format",
            )
            .named(self.place()));
        }
        if let Some(container) = self.surveyed.0.lock().take() {
            return Ok(container);
        }
        let container = Container::open(self.device().clone(), self.checkpoint)?;
        Ok(Arc::new(container.with_writer(&self.writer)))
    }

    /// Returns the reason why a volume of the APFS container stays locked with `keys`. `None`: all
    /// are unlocked or not encrypted, or the volume is of another format.
    pub(crate) fn find_locked(&self, keys: Option<&dyn Keys>) -> Option<Error> {
        if !self.format.is_container() {
            return None;
        }
        // A container that cannot be opened has no free map either.
        let container = self.container().ok()?;
        container.find_locked(&|locked| volume_key(locked, keys))
    }

    /// Opens an APFS container, to tell whether it opens in its newest state. A container of a
    /// read-only image, which cannot change, is kept for the first reader. Errors are left to the
    /// readers.
    pub(super) fn survey(&mut self) {
        let Ok(container) = self.container() else {
            return;
        };
        self.older_state = container.older_state();
        if self.device().info().access == Access::ReadOnly {
            *self.surveyed.0.lock() = Some(container);
        }
    }
}

/// APFS containers.
#[derive(Debug)]
pub(super) struct ApfsDriver;

impl Driver for ApfsDriver {
    fn open(
        &self,
        volume: &Volume,
        number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        open(&volume.container()?, number, wanted)
    }

    fn open_mut(
        &self,
        volume: &Volume,
        number: Option<u32>,
        keys: Option<&dyn Keys>,
    ) -> Result<Arc<dyn FileSystemMut>> {
        let options = WriteOptions { now: volume.now };
        open_mut(&volume.container()?, number, keys, options)
    }

    fn open_resizable(
        &self,
        volume: &Volume,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Box<dyn ResizeVolume>> {
        let container = Container::open(device, volume.checkpoint)?.with_writer(&volume.writer);
        Ok(Box::new(ContainerMut::open(&Arc::new(container))?))
    }

    fn check(
        &self,
        volume: &Volume,
        keys: Option<&dyn Keys>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        let key = |locked: &LockedVolume| volume_key(locked, keys);
        let container = volume.container();
        Some(container.and_then(|found| found.check(&volume.place(), &key, problems, progress)))
    }

    fn compare_headers(&self, volume: &Volume) -> Result<Headers> {
        let found = apfs::geometry(volume.device().clone())?;
        let Some(other) = found.differing else {
            return Ok(Headers::Agree);
        };
        Ok(Headers::Differ(format!(
            "the superblocks of the APFS container on {} differ: {other} bytes by block 0, {} by the checkpoint of the same transaction",
            volume.place(),
            found.len
        )))
    }

    fn stated_len(&self, volume: &Volume) -> Result<Option<u64>> {
        apfs::geometry(volume.device().clone()).map(|found| Some(found.len))
    }

    fn recorded_len(&self, volume: &Volume) -> Result<Option<u64>> {
        let container = volume.container()?;
        let block = container.block_size().into();
        Ok(Some(container.block_count().saturating_mul(block)))
    }

    fn free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(Some(Arc::new(volume.container()?.free_map()?)))
    }

    fn trusted_free_map(&self, volume: &Volume) -> Result<Option<Arc<dyn FreeMap>>> {
        Ok(Some(Arc::new(volume.container()?.trusted_free_map()?)))
    }

    fn own_ranges(&self, volume: &Volume) -> Result<Vec<Range<u64>>> {
        volume.container()?.own_ranges()
    }
}

/// Opens a volume of a container by number, from 1; without a number, the first volume that does
/// not merely serve to start a Mac.
fn open(
    container: &Arc<Container>,
    number: Option<u32>,
    wanted: VolumeQuery<'_>,
) -> Result<Arc<dyn FileSystem>> {
    let number = match number {
        Some(number) => number,
        None => first(container)?,
    };
    let opened = container.open_volume(number, wanted.snapshot, &|locked| {
        volume_key(locked, wanted.keys)
    })?;
    Ok(Arc::new(opened))
}

/// Opens a volume of a container for changes; the number is as in [`open`].
fn open_mut(
    container: &Arc<Container>,
    number: Option<u32>,
    keys: Option<&dyn Keys>,
    options: WriteOptions,
) -> Result<Arc<dyn FileSystemMut>> {
    let number = match number {
        Some(number) => number,
        None => first(container)?,
    };
    let key = |locked: &_| volume_key(locked, keys);
    Ok(Arc::new(ApfsMut::open(container, number, options, &key)?))
}

/// Frees the blocks queued for older checkpoints, unless the container is read-only. Needs no key.
pub(super) fn release_queued(container: &Arc<Container>) -> Result<()> {
    match ContainerMut::open(container) {
        Ok(container) => container.release_queued(),
        Err(error)
            if matches!(
                error.kind(),
                Kind::Unsupported | Kind::ReadOnly | Kind::Conflict
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn first(container: &Container) -> Result<u32> {
    let mut failed = None;
    let mut auxiliary = None;
    for volume in container.labels() {
        match volume {
            Ok(volume) if volume.is_auxiliary() => auxiliary = auxiliary.or(Some(volume.number)),
            Ok(volume) => return Ok(volume.number),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    let none = || {
        Error::new(
            Kind::NotFound,
            "apfs container",
            "the container has no volume",
        )
    };
    auxiliary.ok_or_else(|| failed.unwrap_or_else(none))
}

/// Returns the number of the volume of this name.
pub(super) fn named(container: &Container, name: &str) -> Result<Option<u32>> {
    let mut failed = None;
    for volume in container.labels() {
        match volume {
            Ok(Label {
                number,
                name: found,
                ..
            }) if found == name => return Ok(Some(number)),
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(None), Err)
}
