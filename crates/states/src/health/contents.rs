//! The contents of a bundle: damage, backups and space.

use std::path::Path;

use bandsaw::open::{self, Examination, Image};
use bandsaw::ops::usage::ImageUsage;
use bandsaw::problem::Severity;
use bandsaw::progress::Progress;
use bandsaw::size::counted;
use bandsaw::{Kind, Result};
use bandsaw_backups::{BackupState, Backups, volumes_of};
use serde::{Deserialize, Serialize};

use super::{BundleVerdict, Depth, Health, HealthOptions};
use crate::Soundness;

/// The results of reading the bands of a bundle. Fields are empty if unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Number of complete backups. `None`: it is not of backups.
    pub backups: Option<u64>,
    /// Time at which the last of them was finished, in seconds since 1970.
    pub last_backup: Option<i64>,
    /// Bytes of storage of the bundle.
    pub allocated: Option<u64>,
    /// Bytes that compaction would return.
    pub reclaimable: Option<u64>,
    /// Size of the disk in the bundle.
    pub size: Option<u64>,
    /// Free bytes of the volumes in it.
    pub free: Option<u64>,
}

impl Health {
    /// Reads the bands.
    pub(super) fn read(
        &mut self,
        path: &Path,
        options: &HealthOptions<'_>,
        has_history: bool,
        progress: &dyn Progress,
    ) -> Result<Contents> {
        let mut contents = Contents::default();
        let opening = &options.opening;
        let checked = match options.depth {
            Depth::Full => self.add_examination(open::examine(path, opening, progress))?,
            Depth::Quick => self.check_quickly(path, options)?,
        };
        if checked == BundleVerdict::Locked {
            return Ok(contents);
        }
        // A restore is possible if files of a damaged bundle can be read.
        let image = match open::open(path, opening) {
            Err(_) if checked >= BundleVerdict::DamagedRestorable => return Ok(contents),
            image => image?,
        };
        match self.count_backups(&image, options, has_history) {
            Err(_) if checked >= BundleVerdict::DamagedRestorable => return Ok(contents),
            found => (contents.backups, contents.last_backup) = found?,
        }
        if let Ok(usage) = ImageUsage::of(&image, options.opening.keys, progress) {
            contents.allocated = Some(usage.host.allocated);
            contents.size = Some(usage.disk);
            contents.reclaimable = Some(usage.returns());
            let free = usage.volumes.iter().filter_map(|one| Some(one.space?.free));
            contents.free = free.reduce(u64::saturating_add);
        }
        Ok(contents)
    }

    /// Adds the result of a full check.
    fn add_examination(&mut self, examined: Result<Examination>) -> Result<BundleVerdict> {
        let reason = match &examined {
            Err(error) => error.to_string(),
            Ok(found) => {
                let mut damage = found.problems.listed().iter();
                let first = damage.find(|problem| problem.severity == Severity::Damage);
                first.map_or_else(String::new, |problem| problem.error.to_string())
            }
        };
        let verdict = BundleVerdict::of(Soundness::of(examined)?);
        if verdict != BundleVerdict::Sound {
            let reason = match (reason.is_empty(), verdict) {
                (true, BundleVerdict::Locked) => "encrypted: no passphrase was given".to_owned(),
                (true, BundleVerdict::Unknown) => "a part of it cannot be checked".to_owned(),
                _ => reason,
            };
            self.found(verdict, reason);
        }
        Ok(verdict)
    }

    /// Opens the bundle, and checks the first part of each volume.
    fn check_quickly(&mut self, path: &Path, options: &HealthOptions<'_>) -> Result<BundleVerdict> {
        let image = match open::open(path, &options.opening) {
            Err(error) if matches!(error.kind(), Kind::Corrupt | Kind::WrongKey) => {
                let verdict = BundleVerdict::of_error(&error);
                self.found(verdict, error.to_string());
                return Ok(verdict);
            }
            image => image?,
        };
        let mut verdict = BundleVerdict::Unknown;
        let volumes = image.volumes().iter();
        for volume in volumes.filter(|volume| volume.format.is_checked()) {
            let found = match volume.find_damage() {
                Ok(None) => {
                    if verdict == BundleVerdict::Unknown {
                        verdict = BundleVerdict::Sound;
                    }
                    continue;
                }
                Ok(Some(error)) => error,
                Err(error) if error.kind() == Kind::Corrupt => error,
                Err(error) => return Err(error),
            };
            self.found(BundleVerdict::Damaged, found.to_string());
            verdict = BundleVerdict::Damaged;
        }
        if verdict == BundleVerdict::Unknown {
            self.found(verdict, "no volume that can be checked");
        }
        Ok(verdict)
    }

    /// Returns the number of complete backups, and the time of the last one; no number if the bundle
    /// is not of backups.
    fn count_backups(
        &mut self,
        image: &Image,
        options: &HealthOptions<'_>,
        has_history: bool,
    ) -> Result<(Option<u64>, Option<i64>)> {
        let volumes = match volumes_of(image, None, options.opening.keys) {
            Err(error) if error.kind() == Kind::WrongKey => {
                self.found(BundleVerdict::Locked, error.to_string());
                return Ok((None, None));
            }
            volumes => volumes?,
        };
        let backups = Backups::read(volumes);
        let complete = backups.all().iter();
        let complete = complete.filter(|one| one.state == BackupState::Complete);
        let is_of_backups = has_history || !backups.all().is_empty();
        if !is_of_backups && backups.problems().is_empty() {
            return Ok((None, None));
        }
        if let Some(problem) = backups.problems().first() {
            let parts = counted(backups.problems().len() as u64, "part", "parts");
            let reason = format!("cannot read {parts} of the backups: {problem}");
            self.found(BundleVerdict::NeedsAttention, reason);
        }
        let newest = complete.clone().filter_map(|one| one.completed).max();
        Ok((
            Some(complete.count() as u64),
            newest.map(|newest| newest.seconds),
        ))
    }
}
