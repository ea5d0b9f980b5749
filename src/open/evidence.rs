//! Evidence about the length of a disk: its partition map, the backup map, volumes and their
//! alternate headers.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::Result;
use crate::device::BlockDevice;
use crate::partition::{self, gpt};
use crate::problem::{Problems, Severity};
use crate::progress::Progress;
use crate::{Error, Kind};

use super::{OpenOptions, Volume, VolumeFormat, find_volumes, volume_key};

/// Evidence for and against one interpretation of the stored bytes, one clause each.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) support: Vec<String>,
    pub(crate) against: Vec<String>,
}

impl Evidence {
    /// Returns true if independent sources support the interpretation and none contradicts it.
    pub(crate) fn is_consistent(&self) -> bool {
        !self.support.is_empty() && self.against.is_empty()
    }

    pub(crate) fn add(
        &mut self,
        holds: bool,
        support: impl Into<String>,
        against: impl Into<String>,
    ) {
        if holds {
            self.support.push(support.into())
        } else {
            self.against.push(against.into())
        }
    }

    /// Returns all evidence as one clause.
    pub(crate) fn description(&self) -> String {
        let mut text = match self.support.as_slice() {
            [] => "nothing speaks for it".to_owned(),
            support => support.join(", "),
        };
        if !self.against.is_empty() {
            let _ = write!(text, "; against it: {}", self.against.join(", "));
        }
        text
    }
}

/// Returns true if a quick check of the partition map does not contradict the length of the disk.
pub(crate) fn is_plausible(disk: &dyn BlockDevice) -> Result<bool> {
    if gpt::told_len(disk)?.is_some_and(|told| told > disk.info().len) {
        return Ok(false);
    }
    match partition::probe(disk) {
        Ok(Some(map)) => Ok(map
            .problems
            .iter()
            .all(|problem| problem.kind() != Kind::OutOfRange)),
        Ok(None) => Ok(true),
        Err(error) if error.kind() == Kind::Io => Err(error),
        Err(_) => Ok(true),
    }
}

/// Collects all evidence on a disk about its length and contents. All volumes are checked.
pub(crate) fn of_disk(
    disk: &Arc<dyn BlockDevice>,
    options: &OpenOptions<'_>,
    progress: &dyn Progress,
) -> Result<Evidence> {
    let mut found = Evidence::default();
    let len = disk.info().len;
    if let Some(told) = gpt::told_len(&**disk)? {
        found.add(
            told == len,
            "the map tells this length",
            format!("the map tells {told} bytes"),
        );
        if told <= len {
            let whole = gpt::are_copies_whole(&**disk)? == Some(true);
            found.add(
                whole,
                "its backup is where the map says",
                "its backup is not where the map says",
            );
        }
    }
    let map = match partition::probe(&**disk) {
        Ok(map) => map,
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(error) => {
            found
                .against
                .push(format!("the map cannot be used ({})", error.message()));
            return Ok(found);
        }
    };
    if let Some(cut) = map
        .iter()
        .flat_map(|map| &map.problems)
        .find(|problem| problem.kind() == Kind::OutOfRange)
    {
        found.against.push(cut.message().to_owned());
    }
    let volumes = match find_volumes(disk, map.as_ref()) {
        Ok(volumes) => volumes,
        Err(error) if error.kind() == Kind::Io => return Err(error),
        Err(error) => {
            found.against.push(error.message().to_owned());
            return Ok(found);
        }
    };
    for volume in &volumes {
        of_volume(volume, options, &mut found, progress)?;
    }
    Ok(found)
}

/// Returns true for errors caused by the volume, not by this run.
fn is_evidence(error: &Error) -> bool {
    match error.kind() {
        Kind::Cancelled | Kind::WrongKey => false,
        Kind::Io => error.io_kind().is_none(),
        _ => true,
    }
}

fn of_volume(
    volume: &Volume,
    options: &OpenOptions<'_>,
    found: &mut Evidence,
    progress: &dyn Progress,
) -> Result<()> {
    let (name, room) = (
        format!("{} on {}", volume.format, volume.place()),
        volume.range.end - volume.range.start,
    );
    let told = match volume.told_len() {
        Ok(told) => told,
        Err(error) if is_evidence(&error) => {
            found
                .against
                .push(format!("{name} cannot be read ({})", error.message()));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let Some(told) = told else { return Ok(()) };
    // Without a partition map, the volume is as long as the disk, except for a partial last block.
    let most_left = if volume.partition.is_none() {
        64 << 10
    } else {
        u64::MAX
    };
    let fits = told <= room && room - told < most_left;
    found.add(
        fits,
        format!("{name} fits in it"),
        format!("{name} tells {told} bytes and has room for {room}"),
    );
    if !fits
        || !matches!(
            volume.format,
            VolumeFormat::HfsPlus | VolumeFormat::Hfsx | VolumeFormat::Apfs
        )
    {
        return Ok(());
    }
    let mut problems = Problems::default();
    let key = |locked: &_| volume_key(locked, options.keys);
    let checked = match volume.format {
        VolumeFormat::Apfs => volume
            .container()
            .and_then(|found| found.check(&volume.place(), &key, &mut problems, progress))
            .map(drop),
        _ => crate::fs::hfsplus::check(volume.device().clone(), progress).map(|found| {
            found
                .into_iter()
                .for_each(|problem| problems.add(problem.severity, problem.error))
        }),
    };
    match checked {
        Ok(()) => {}
        Err(error) if is_evidence(&error) => {
            found
                .against
                .push(format!("{name} cannot be checked ({})", error.message()));
            return Ok(());
        }
        Err(error) => return Err(error),
    }
    // A missing alternate header is only a warning, but the best sign that the size or the band
    // size is wrong.
    let wrong = problems.count(Severity::Damage) + problems.count(Severity::Warning);
    found.add(
        wrong == 0,
        format!("{name} is in order"),
        format!("{name} has {wrong} problems"),
    );
    Ok(())
}
