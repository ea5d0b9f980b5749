//! Which band size suits a bundle, and why. `bandsaw advise`.

use std::fmt;
use std::str::FromStr;

use crate::container::sparsebundle::BAND_SIZES;
use crate::{Error, Kind, Result};

/// More files than this in one folder are slow to list and to copy, on any host.
pub const MANY_FILES: u64 = 100_000;
/// A file server lists this many at a pace that people bear.
const SERVER_FILES: u64 = 20_000;
/// Names that an object store tells in one answer.
const NAMES_A_LIST: u64 = 1000;
/// Streams on local disks were fastest where the disk was in about as many bands, and slow below
/// the least.
const BEST_BANDS: u64 = 6000;
const LEAST_BANDS: u64 = 3000;

/// Where a bundle is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// A disk of this machine.
    #[default]
    Local,
    /// A file server: SMB, NFS, AFP.
    Smb,
    /// An object store.
    S3,
}

impl Place {
    /// Every place.
    pub const ALL: [Self; 3] = [Self::Local, Self::Smb, Self::S3];

    /// Its name in the command.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Smb => "smb",
            Self::S3 => "s3",
        }
    }

    /// The smallest band worth having there: what one round trip, or one request, should carry.
    const fn least(self) -> u64 {
        match self {
            Self::Local => 8 << 20,
            Self::Smb => 32 << 20,
            Self::S3 => 16 << 20,
        }
    }

    /// Returns how many bands a full disk should have there at most.
    const fn most_bands(self) -> u64 {
        match self {
            Self::Local => 65_536,
            Self::Smb => SERVER_FILES,
            Self::S3 => MANY_FILES,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL
            .into_iter()
            .find(|place| place.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            Error::new(Kind::Invalid, "place", "is none of local, smb, s3").named(text)
        })
    }
}

/// What a band size comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Bytes of a band.
    pub band_size: u64,
    /// Files when the disk is full.
    pub bands: u64,
    /// Files that what is in use takes, at least. 0 where that is not known.
    pub in_use: u64,
    /// Questions that listing all of them takes: answers of an object store.
    pub lists: u64,
}

/// The band size that suits, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The size.
    pub band_size: u64,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// It and its neighbours, from small to large.
    pub choices: Vec<Choice>,
}

/// Chooses a band size for a disk of `len` bytes, `used` of which are in use as far as is known.
pub fn advise(len: u64, used: Option<u64>, place: Place) -> Advice {
    let (least, most) = BAND_SIZES.into_inner();
    let mut size = place.least();
    while len.div_ceil(size) > place.most_bands() && size < most {
        size *= 2;
    }
    // Larger bands only as long as there stay enough of them to be read and written side by side.
    while place == Place::Local && len.div_ceil(size * 2) >= BEST_BANDS && size * 2 <= 16 << 20 {
        size *= 2;
    }
    let sizes = [size / 4, size / 2, size, size * 2, size * 4];
    let choice = |band_size: u64| {
        let bands = len.div_ceil(band_size);
        let in_use = used.map_or(0, |used| used.div_ceil(band_size));
        Choice {
            band_size,
            bands,
            in_use,
            lists: bands.div_ceil(NAMES_A_LIST),
        }
    };
    let choices = sizes
        .into_iter()
        .filter(|size| (least..=most).contains(size))
        .map(choice)
        .collect();
    Advice {
        band_size: size,
        reasons: reasons(len, size, place),
        choices,
    }
}

fn reasons(len: u64, size: u64, place: Place) -> Vec<String> {
    let bands = len.div_ceil(size);
    let shown = crate::size::display(size);
    let mut reasons = vec![format!("a full disk is {bands} files of {shown}")];
    match place {
        Place::Local => {
            reasons.push(
                "on a local disk bands of 8 to 16 MiB stream fastest; with larger ones fewer are read and written side by side"
                    .to_owned(),
            );
            if bands < LEAST_BANDS {
                reasons.push(format!(
                    "fewer than {LEAST_BANDS} bands are slow on a Mac, but smaller ones than {shown} gain nothing"
                ));
            }
        }
        Place::Smb => {
            reasons.push("opening a file costs a file server round trips; with larger bands a stream opens fewer".to_owned());
            reasons.push(format!("a folder of up to {SERVER_FILES} files is still listed quickly; a changed byte copies {shown} in a backup of the bundle"));
        }
        Place::S3 => {
            reasons
                .push(format!("what changes in a band sends all of it: {shown} for one byte, so that they should not be large"));
            reasons.push(format!(
                "listing takes {} requests of {NAMES_A_LIST} names",
                bands.div_ceil(NAMES_A_LIST)
            ));
        }
    }
    let smaller = size / 2;
    if bands <= MANY_FILES && len.div_ceil(smaller) > MANY_FILES {
        let (shown, bands) = (crate::size::display(smaller), len.div_ceil(smaller));
        reasons.push(format!(
            "bands of {shown} would be {bands} files; more than {MANY_FILES} in a folder are slow to list and to copy"
        ));
    }
    if bands > MANY_FILES {
        reasons.push(format!("that is more than {MANY_FILES} files, which are slow to copy; a bundle has no larger bands"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_follow_the_disk_and_the_place() {
        let size = |len, place| advise(len, None, place).band_size >> 20;
        assert_eq!(
            [10 * GIB, 100 * GIB, 1024 * GIB].map(|len| size(len, Place::Local)),
            [8, 16, 16]
        );
        assert_eq!(
            [10 * GIB, 1024 * GIB, 8192 * GIB].map(|len| size(len, Place::Smb)),
            [32, 64, 512]
        );
        assert_eq!(
            [10 * GIB, 1024 * GIB, 8192 * GIB].map(|len| size(len, Place::S3)),
            [16, 16, 128]
        );
    }

    #[test]
    fn no_advice_is_out_of_bounds() {
        for place in Place::ALL {
            for shift in 9..63 {
                let advice = advise(1 << shift, Some(1 << (shift / 2)), place);
                assert!(BAND_SIZES.contains(&advice.band_size));
                assert!(
                    advice
                        .choices
                        .iter()
                        .any(|choice| choice.band_size == advice.band_size)
                );
                assert!(advice.reasons.len() >= 2);
            }
        }
        assert!(
            advise(1 << 62, None, Place::S3)
                .reasons
                .iter()
                .any(|reason| reason.contains("100000 files"))
        );
    }

    #[test]
    fn smaller_bands_are_warned_of_where_they_would_be_too_many() {
        let warns = |len, place| {
            advise(len, None, place)
                .reasons
                .iter()
                .any(|reason| reason.contains("more than 100000 in a folder"))
        };
        assert!(warns(1024 * GIB, Place::Local) && warns(20 * 1024 * GIB, Place::S3));
        assert!(
            !warns(100 * GIB, Place::Local)
                && !warns(1024 * GIB, Place::Smb)
                && !warns(1 << 62, Place::S3)
        );
    }
}
