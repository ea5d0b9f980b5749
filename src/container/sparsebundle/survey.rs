//! A look at every file of a bundle: how much is stored, and what should not be there. Source:
//! docs/formats/sparsebundle.md §9, sanity check list.

use super::check::{Rules, check_name};
use super::plist::{self, BACKUP, INFO};
use super::{BANDS, BandIndex, Bundle, LAYER, NEW_BANDS, read_plist};
use crate::error::Place;
use crate::progress::Progress;
use crate::store::Entry;
use crate::{Error, Kind, Result};

/// Problems told one by one; more are counted.
const MOST_PROBLEMS: usize = 100;

/// What [`Bundle::survey`] found.
#[derive(Debug, Default)]
pub struct Survey {
    /// Bands of the disk that have a file; files of either size [in between](Bundle::is_between).
    pub bands: u64,
    /// Bytes of these files.
    pub len: u64,
    /// Bytes of storage behind them.
    pub allocated: u64,
    /// What is wrong, each with the file it is about; at most 100.
    pub problems: Vec<Error>,
    /// Files of bands that are longer than a band, whose rest is ignored; at most 100.
    pub too_long: Vec<Error>,
    /// Further problems, which are not told.
    pub further_problems: u64,
}

impl Survey {
    fn problem(&mut self, error: Error) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(error);
        } else {
            self.further_problems += 1;
        }
    }

    fn longer(&mut self, name: &str, message: String) {
        if self.too_long.len() < MOST_PROBLEMS {
            self.too_long
                .push(Error::new(Kind::Corrupt, LAYER, message).named(name));
        }
    }

    fn found(&mut self, name: &str, message: String) {
        self.problem(Error::new(Kind::Corrupt, LAYER, message).named(name));
    }
}

impl Bundle {
    /// Lists and measures all bands and checks the rules that opening does not: it takes time with
    /// their number.
    pub fn survey(&self, progress: &dyn Progress) -> Result<Survey> {
        let mut survey = Survey::default();
        if !self.is_between() {
            self.check_plists(&mut survey);
        }
        progress.stage("survey", 0);
        self.bands.store.list(BANDS, &mut |entry| {
            progress.check()?;
            progress.advance(1);
            self.check_band(&entry, &mut survey)
        })?;
        Ok(survey)
    }

    fn check_plists(&self, survey: &mut Survey) {
        let store = &*self.bands.store;
        match (read_plist(store, INFO), read_plist(store, BACKUP)) {
            (Ok(info), Ok(backup)) if info != backup => {
                let facts = |info: plist::Info| {
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
                        "expected {} as in {INFO}, found {}",
                        facts(info),
                        facts(backup)
                    ),
                );
            }
            (info, backup) => {
                let errors = [info.err(), backup.err()]
                    .into_iter()
                    .flatten()
                    .map(Error::from);
                // Bundles of other makers come without the copy; they read no worse.
                let worse = |error: &Error| {
                    error.kind() != Kind::NotFound
                        || *error.place() != Place::Name(BACKUP.to_owned())
                };
                errors.filter(worse).for_each(|error| survey.problem(error));
            }
        }
    }

    fn check_band(&self, entry: &Entry<'_>, survey: &mut Survey) -> Result<()> {
        // What is a band of the old size, and what of the new, `check` tells apart.
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
            band_size: self.bands.band_size,
            version: self.bands.version,
        };
        let rules = Rules {
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
