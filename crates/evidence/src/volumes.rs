//! The volumes of an image and their snapshots, one after the other.

use std::sync::Arc;

use bandsaw::fs::apfs::{Container, Summary};
use bandsaw::fs::hfs::HfsVolume;
use bandsaw::fs::hfsplus::HfsPlus;
use bandsaw::fs::{FileSystem, LockedVolume};
use bandsaw::open::{Image, Keys, Volume, VolumeFormat, volume_key};
use bandsaw::{Error, Kind, Result};

use crate::locator::Locator;
use crate::record::VolumeRecord;

/// Receives a volume and its files. `None`: they cannot be read, for the reason given, or the format is
/// not supported.
pub(crate) type EachState<'a> =
    dyn FnMut(VolumeRecord, Option<&dyn FileSystem>, Option<Error>) -> Result<()> + 'a;

/// Calls `each` for all volumes in the order of the disk, each followed by its snapshots from the
/// oldest. `keys` is called for encrypted ones. [`Kind::WrongKey`] if such a key is missing or wrong.
pub(crate) fn each_volume(
    image: &Image,
    keys: Option<&dyn Keys>,
    each: &mut EachState<'_>,
) -> Result<()> {
    let mut walk = VolumeWalk {
        keys,
        count: 0,
        each,
    };
    for volume in image.volumes() {
        let record = VolumeRecord {
            volume: 0,
            partition: volume.partition,
            number: None,
            file_system: volume.format.name().to_owned(),
            name: None,
            uuid: None,
            role: None,
            snapshot: None,
            transaction: None,
            created: None,
            disk_offset: volume.range.start,
            size: volume.range.end - volume.range.start,
            supported: volume.format.is_supported(),
            error: None,
        };
        if !volume.format.is_supported() {
            walk.found(record, None)?;
        } else if volume.format.is_container() {
            walk.container(volume, &record)?;
        } else {
            walk.found(record, Some(walk.single(image, volume)))?;
        }
    }
    Ok(())
}

struct VolumeWalk<'a, 'b> {
    keys: Option<&'a dyn Keys>,
    count: u32,
    each: &'a mut EachState<'b>,
}

type Opened = Result<Arc<dyn FileSystem>>;

impl VolumeWalk<'_, '_> {
    fn found(&mut self, mut record: VolumeRecord, opened: Option<Opened>) -> Result<()> {
        self.count += 1;
        record.volume = self.count;
        match opened {
            None => (self.each)(record, None, None),
            Some(Ok(fs)) => {
                let info = fs.volume();
                record.file_system = info.format.to_owned();
                record.name = Some(info.name);
                record.uuid = info.uuid.map(|uuid| uuid.to_string());
                if record.snapshot.is_none() {
                    record.created = info.created.map(|time| time.to_string());
                }
                (self.each)(record, Some(&*fs), None)
            }
            Some(Err(error)) if matches!(error.kind(), Kind::WrongKey | Kind::Cancelled) => {
                Err(error)
            }
            Some(Err(error)) => {
                record.error = Some(error.to_string());
                (self.each)(record, None, Some(error))
            }
        }
    }

    /// Opens a volume that is no container of others.
    fn single(&self, image: &Image, volume: &Volume) -> Opened {
        let locator = || Ok::<_, Error>(Arc::new(Locator::new(volume.device().clone())?));
        if volume.format.is_hfs_plus() {
            return Ok(Arc::new(HfsPlus::open(locator()?)?.system_files(true)));
        }
        if volume.format == VolumeFormat::Hfs {
            return Ok(Arc::new(HfsVolume::open(locator()?)?));
        }
        let selector = bandsaw::address::VolumeSelector::Number {
            partition: volume.partition.unwrap_or(1),
            volume: None,
        };
        let query = bandsaw::open::VolumeQuery {
            snapshot: None,
            keys: self.keys,
        };
        image.file_system_as(Some(&selector), query)
    }

    fn container(&mut self, volume: &Volume, record: &VolumeRecord) -> Result<()> {
        let opened = volume.container().and_then(|found| {
            let device = Arc::new(Locator::new(volume.device().clone())?);
            Ok(Arc::new(Container::open(device, Some(found.checkpoint()))?))
        });
        let container = match opened {
            Ok(container) => container,
            Err(error) => return self.found(record.clone(), Some(Err(error))),
        };
        for (number, summary) in (1..).zip(container.volumes()) {
            let record = VolumeRecord {
                number: Some(number),
                ..record.clone()
            };
            match summary {
                Ok(summary) => self.within(&container, summary, record)?,
                Err(error) => self.found(record, Some(Err(error)))?,
            }
        }
        Ok(())
    }

    fn within(
        &mut self,
        container: &Arc<Container>,
        summary: Summary,
        record: VolumeRecord,
    ) -> Result<()> {
        let number = summary.label.number;
        let record = VolumeRecord {
            number: Some(number),
            name: Some(summary.label.name),
            uuid: Some(summary.uuid.to_string()),
            role: summary.label.role.map(str::to_owned),
            ..record
        };
        let keys = self.keys;
        let key = |locked: &LockedVolume| volume_key(locked, keys);
        let opened = container.open_volume(number, None, &key).map(Arc::new);
        let current = match &opened {
            Ok(volume) => Ok(volume.clone() as Arc<dyn FileSystem>),
            Err(error) => Err(error.duplicate()),
        };
        self.found(record.clone(), Some(current))?;
        for snapshot in summary.snapshots {
            let state: Opened = match &opened {
                // The key is known from the current state.
                Ok(volume) => volume
                    .open_snapshot(&snapshot.name)
                    .map(|fs| Arc::new(fs) as Arc<dyn FileSystem>),
                Err(_) => container
                    .open_volume(number, Some(&snapshot.name), &key)
                    .map(|fs| Arc::new(fs) as Arc<dyn FileSystem>),
            };
            let record = VolumeRecord {
                snapshot: Some(snapshot.name),
                transaction: Some(snapshot.xid),
                created: snapshot.created.map(|time| time.to_string()),
                ..record.clone()
            };
            self.found(record, Some(state))?;
        }
        Ok(())
    }
}
