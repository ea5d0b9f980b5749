//! The hashes of bands, `.bandsaw/hashes.json`.

use std::collections::BTreeMap;

use bandsaw::Result;
use serde::{Deserialize, Serialize};

use super::Finding;
use crate::bundle::{BundleFolder, Identity};
use crate::sealed::{self, Found};
use crate::swap::HASHES;

const FORMAT: u64 = 1;

/// The hash of a band.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hashed {
    /// BLAKE3 of the contents, in hexadecimal; empty if they were never read.
    pub(super) hash: String,
    /// The file that had these contents.
    pub(super) file: Identity,
    /// True if the file was old enough when it was read: any later write gives it another time.
    pub(super) settled: bool,
    /// Number of the last run that read it.
    pub(super) run: u64,
    /// The result of that run.
    pub(super) finding: Option<Finding>,
}

impl Hashed {
    /// Judges a file with other contents. `None`: it was written since.
    pub(super) fn judge(&self, now: &Identity) -> Option<Finding> {
        let old = &self.file;
        if self.hash.is_empty() {
            return None;
        }
        if now == old {
            return Some(match self.settled {
                true => Finding::Faulty,
                false => Finding::Unknown,
            });
        }
        let is_newer = now.modified > old.modified && now.changed > old.changed;
        // Once rotten, only a writer of the whole band makes it sound again.
        let was_faulty = self.finding == Some(Finding::Faulty);
        match is_newer && !was_faulty {
            true => None,
            false => Some(Finding::Unknown),
        }
    }

    /// Returns the same hash with this result of a run.
    pub(super) fn found(self, finding: Finding, run: u64) -> Self {
        Self {
            run,
            finding: Some(finding),
            ..self
        }
    }
}

/// The hashes of all bands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Number of the last run.
    pub(super) run: u64,
    /// False while that run is not complete.
    pub(super) complete: bool,
    /// The last transactions of all volumes at the end of the last complete run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) transactions: Option<String>,
    pub(super) bands: BTreeMap<String, Hashed>,
}

impl Record {
    /// Reads the record for a new run, or for one that is resumed. A damaged record is an error,
    /// unless it is to be replaced.
    pub(super) fn begin(bundle: &BundleFolder, accept: bool) -> Result<(Self, bool)> {
        let found = sealed::get::<Self>(bundle.store(), HASHES, FORMAT)?;
        let path = || bundle.path().join(HASHES);
        let mut record = match found {
            Found::Whole(record) => record,
            Found::Absent => Self::default(),
            Found::Damaged if accept => Self::default(),
            Found::Damaged => return Err(sealed::damaged(&path())),
            Found::OtherFormat(version) => return Err(sealed::other_format(version, &path())),
        };
        let resumed = record.run > 0 && !record.complete;
        if !resumed {
            record.run = record.run.saturating_add(1);
            record.complete = false;
        }
        Ok((record, resumed))
    }

    /// Stores the record, durably.
    pub(super) fn put(&self, bundle: &BundleFolder) -> Result<()> {
        sealed::put(bundle.store(), HASHES, FORMAT, self)?;
        bundle.store().sync()
    }
}
