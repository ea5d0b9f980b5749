//! ISO 9660 volumes, which are only read.

use std::ops::Range;
use std::sync::Arc;

use super::apfs::VolumeQuery;
use super::driver::{Driver, refuse_snapshot};
use super::unlock::Keys;
use super::volume::Volume;
use super::volume_format::VolumeFormat;
use crate::device::BlockDevice;
use crate::fs::FileSystem;
use crate::fs::iso9660::{self, IsoVolume};
use crate::problem::{Problem, Problems};
use crate::progress::Progress;
use crate::{Error, Result};

/// ISO 9660.
#[derive(Debug)]
pub(super) struct IsoDriver;

impl Driver for IsoDriver {
    fn open(
        &self,
        volume: &Volume,
        _number: Option<u32>,
        wanted: VolumeQuery<'_>,
    ) -> Result<Arc<dyn FileSystem>> {
        refuse_snapshot(volume, wanted)?;
        Ok(Arc::new(IsoVolume::open(volume.device().clone())?))
    }

    fn check(
        &self,
        volume: &Volume,
        _keys: Option<&dyn Keys>,
        problems: &mut Problems,
        progress: &dyn Progress,
    ) -> Option<Result<Vec<Error>>> {
        let checked = iso9660::check(volume.device().clone(), progress);
        Some(checked.map(|found| {
            for Problem { severity, error } in found {
                problems.add(severity, error.in_file(volume.place()));
            }
            Vec::new()
        }))
    }

    fn stated_len(&self, volume: &Volume) -> Result<Option<u64>> {
        iso9660::stated_len(&**volume.device())
    }

    fn own_ranges(&self, _volume: &Volume) -> Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
}

/// Returns true if the disk is a volume that contains all of `within`, which are partitions with the
/// files that start a computer. A volume that only remains of a former use of the disk does not: it
/// ends within a partition.
pub(super) fn surrounds(disk: &dyn BlockDevice, whole: &Volume, within: &[Volume]) -> Result<bool> {
    if whole.format != VolumeFormat::Iso9660 {
        return Ok(false);
    }
    let len = iso9660::stated_len(disk)?;
    Ok(len.is_some_and(|len| within.iter().all(|volume| volume.range.end <= len)))
}
