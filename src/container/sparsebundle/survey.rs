//! Survey of all files of a bundle: stored bytes, and unexpected files. Source:
//! docs/formats/sparsebundle.md §9, sanity check list.

use super::band_rules::{BandRules, check_name};
use super::plist::{self, BACKUP, INFO};
use super::{BANDS, BandIndex, Bundle, LAYER, NEW_BANDS, read_plist};
use crate::error::Place;
use crate::progress::Progress;
use crate::store::Entry;
use crate::{Error, Kind, Result};

/// Maximum number of problems listed; further ones are only counted.
const MAX_PROBLEMS: usize = 100;

/// Result of [`Bundle::survey`].
#[derive(Debug, Default)]
pub struct Survey {
    /// Number of bands of the disk that have a file; bands of either size [in
    /// between](Bundle::is_between).
    pub bands: u64,
    /// Length of these files in bytes.
    pub len: u64,
    /// Allocated bytes of these files.
    pub allocated: u64,
    /// Problems found, each with the name of the file; at most 100.
    pub problems: Vec<Error>,
    /// Band files that are longer than a band, whose excess is ignored; at most 100.
    pub too_long: Vec<Error>,
    /// Number of further problems that are not listed.
    pub further_problems: u64,
}

impl Survey {
    fn problem(&mut self, error: Error) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(error);
        } else {
            self.further_problems += 1;
        }
    }

    fn longer(&mut self, name: &str, message: String) {
        if self.too_long.len() < MAX_PROBLEMS {
            self.too_long
                .push(Error::new(Kind::Corrupt, LAYER, message).named(name));
        }
    }

    fn found(&mut self, name: &str, message: String) {
        self.problem(Error::new(Kind::Corrupt, LAYER, message).named(name));
    }
}

impl Bundle {
    /// Lists all bands with their sizes and checks the rules that opening does not check. The time
    /// is proportional to their number.
    pub fn survey(&self, progress: &dyn Progress) -> Result<Survey> {
        let mut survey = Survey::default();
        if !self.is_between() {
            self.check_plists(&mut survey);
        }
        progress.stage("survey", 0);
        self.bands.store().list(BANDS, &mut |entry| {
            progress.check()?;
            progress.advance(1);
            self.check_band(&entry, &mut survey)
        })?;
        Ok(survey)
    }

    fn check_plists(&self, survey: &mut Survey) {
        let store = self.bands.store();
        match (read_plist(store, INFO), read_plist(store, BACKUP)) {
            (Ok(info), Ok(backup)) if info != backup => {
                let geometry = |info: plist::Info| {
                    format!(
                        "size {}, band-size {}, version {}",
                        info.size,
                        info.band_size,
                        info.version.number()
                    )
                };
                survey.found(
                    BACKUP,
                    format!(
                        "{INFO} records {}, but this list {}",
                        geometry(info),
                        geometry(backup)
                    ),
                );
            }
            (info, backup) => {
                let errors = [info.err(), backup.err()]
                    .into_iter()
                    .flatten()
                    .map(Error::from);
                // Bundles of other makers have no copy; they read the same.
                let worse = |error: &Error| {
                    error.kind() != Kind::NotFound
                        || *error.place() != Place::Name(BACKUP.to_owned())
                };
                errors.filter(worse).for_each(|error| survey.problem(error));
            }
        }
    }

    fn check_band(&self, entry: &Entry<'_>, survey: &mut Survey) -> Result<()> {
        // Bands of both sizes are counted; `check` distinguishes them.
        let fresh = BandIndex::from_name(NEW_BANDS, entry.name).filter(|_| self.is_between());
        let Some(index) = fresh.or_else(|| BandIndex::from_name(BANDS, entry.name)) else {
            check_name(entry.name)
                .into_iter()
                .for_each(|(_, what)| survey.found(entry.name, what));
            return Ok(());
        };
        let Some(meta) = entry.meta()? else {
            return Ok(());
        };
        survey.bands += u64::from(self.is_between() || index.0 < self.band_count());
        survey.len = survey.len.saturating_add(meta.len);
        survey.allocated = survey.allocated.saturating_add(meta.allocated);
        if self.is_between() {
            return Ok(());
        }
        let info = plist::Info {
            size: self.bands.len(),
            band_size: self.bands.band_size(),
            version: self.bands.version(),
        };
        let rules = BandRules {
            info,
            grain: self.bands.grain(),
        };
        if let Some((_, what)) = rules.check_len(index, meta.len) {
            if index.0 < rules.count() && meta.len > info.band_size {
                survey.longer(entry.name, what);
            } else {
                survey.found(entry.name, what);
            }
        }
        Ok(())
    }
}
