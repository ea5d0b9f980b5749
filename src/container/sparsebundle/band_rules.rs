//! The rules for the files of a bundle: names of bands, and their lengths.

use super::bands::truncated;
use super::{BANDS, BandIndex, plist};
use crate::problem::Severity;
use crate::size::counted;

/// Constraints on band files that follow from the property list.
#[derive(Debug, Clone, Copy)]
pub(super) struct BandRules {
    pub(super) info: plist::Info,
    /// Unit of the length of a band file, in bytes: the cipher block size, or 1 if the bundle is
    /// not encrypted.
    pub(super) grain: u64,
}

impl BandRules {
    /// Returns the number of bands of the disk.
    pub(super) fn count(&self) -> u64 {
        self.info.size.div_ceil(self.info.band_size)
    }

    /// Returns the maximum length of a band's file: the last cipher block may extend past the end
    /// of the disk.
    pub(super) fn most(&self, index: BandIndex) -> u64 {
        let band_size = self.info.band_size;
        self.info
            .size
            .saturating_sub(index.0.saturating_mul(band_size))
            .min(band_size)
            .next_multiple_of(self.grain)
    }

    /// Returns the problem with a band file of `len` bytes, if any.
    pub(super) fn check_len(&self, index: BandIndex, len: u64) -> Option<(Severity, String)> {
        let (band_size, most) = (self.info.band_size, self.most(index));
        if index.0 >= self.count() {
            let past = format!("band past the end of the disk, which has {}", self.count());
            Some((Severity::Warning, past))
        } else if len > band_size {
            let rest = len - band_size;
            Some((
                Severity::Warning,
                format!(
                    "expected at most {band_size} bytes, the band size, found {len}; the last {} ignored",
                    counted(rest, "byte is", "bytes are")
                ),
            ))
        } else if len > most {
            Some((
                Severity::Warning,
                format!("expected at most {most} bytes up to the end of the disk, found {len}"),
            ))
        } else if !len.is_multiple_of(self.grain) {
            let rest = len % self.grain;
            Some((Severity::Damage, truncated(len - rest, rest, self.grain)))
        } else {
            None
        }
    }
}

/// Returns the problem with a name in `bands/` that is not a valid band name. `None` if the Finder
/// creates such files.
pub(super) fn check_name(name: &str) -> Option<(Severity, String)> {
    let last = name.rsplit('/').next().unwrap_or(name);
    if let Some(absent) = last
        .strip_prefix('.')
        .and_then(|name| name.strip_suffix(".icloud"))
    {
        return Some((
            Severity::Damage,
            format!("band {absent} is in iCloud and not on this disk; download it first"),
        ));
    }
    if last == ".DS_Store" || last.starts_with("._") {
        return None;
    }
    Some(match spelled_otherwise(name) {
        Some(BandIndex(index)) => (
            Severity::Damage,
            format!(
                "the file is ignored: as a band its name must be {index:x}, in lower case without \
                 leading zeros"
            ),
        ),
        None => (
            Severity::Warning,
            "expected the number of a band in lower-case hexadecimal".to_owned(),
        ),
    })
}

/// Parses a name that is a band number but not spelled as macOS spells it.
pub(super) fn spelled_otherwise(name: &str) -> Option<BandIndex> {
    let digits = name
        .strip_prefix(BANDS)
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok().map(BandIndex)
}
