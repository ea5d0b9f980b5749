//! Check of a partition map.

use super::layout::{DRIVER_DESCRIPTOR_SIGNATURE, MbrRaw};
use super::{Map, Scheme, apm, gpt, mbr, overlaps, read};
use crate::device::BlockDevice;
use crate::problem::{Problems, Severity};
use crate::{Error, Result};

/// Adds every problem of the map of `disk` and returns the map, with its own `problems` empty;
/// `None` if the disk has none. Fails if no partition can be read. Nothing is written.
pub fn check(disk: &dyn BlockDevice, problems: &mut Problems) -> Result<Option<Map>> {
    check_with(disk, gpt::Search::Announced, problems)
}

/// Like [`check`], with this search for a GPT.
pub fn check_with(
    disk: &dyn BlockDevice,
    search: gpt::Search,
    problems: &mut Problems,
) -> Result<Option<Map>> {
    if disk.info().len < size_of::<MbrRaw>() as u64 {
        return Ok(None);
    }
    let block_0 = read::<MbrRaw>(disk, 0)?;
    let map = match gpt::check(disk, &block_0, search, problems)? {
        Some(map) => Some(map),
        None => match apm::probe(disk)? {
            Some(map) => Some(map),
            None => mbr::probe(disk, &block_0)?,
        },
    };
    let Some(mut map) = map else { return Ok(None) };
    if map.scheme == Scheme::Apm && !block_0.boot_code.starts_with(&DRIVER_DESCRIPTOR_SIGNATURE) {
        let missing = "block 0 has no driver descriptor (ER), which older systems require";
        problems.add(
            Severity::Note,
            Error::corrupt("apple partition map", 0, missing),
        );
    }
    map.problems
        .drain(..)
        .for_each(|error| problems.add(Severity::Damage, error));
    overlaps(&map.partitions)
        .into_iter()
        .for_each(|error| problems.add(Severity::Damage, error));
    Ok(Some(map))
}
