//! Recommendation of a band size for a bundle, with reasons. `bandsaw advise`.

use std::fmt;
use std::str::FromStr;

use crate::container::sparsebundle::BAND_SIZES;
use crate::{Error, Result};

/// Number of files in one folder above which listing and copying are slow on any host.
pub const MANY_FILES: u64 = 100_000;
/// Number of files that a file server lists in acceptable time.
const SERVER_FILES: u64 = 20_000;
/// Names per response to a list request of an object store.
const NAMES_A_LIST: u64 = 1000;
/// Preferred and smallest number of bands of a local disk. Streams on local disks were fastest with
/// about `BEST_BANDS` bands, and slow with fewer than `MIN_BANDS`.
const BEST_BANDS: u64 = 6000;
const MIN_BANDS: u64 = 3000;

/// The storage on which a bundle is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// Local disk of this machine.
    #[default]
    Local,
    /// A file server: SMB, NFS, AFP.
    Smb,
    /// An object store.
    S3,
}

impl Place {
    /// All places.
    pub const ALL: [Self; 3] = [Self::Local, Self::Smb, Self::S3];

    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Smb => "smb",
            Self::S3 => "s3",
        }
    }

    /// Returns the smallest useful band size in bytes: the amount that one round trip, or one
    /// request, should carry.
    const fn least(self) -> u64 {
        match self {
            Self::Local => 8 << 20,
            Self::Smb => 32 << 20,
            Self::S3 => 16 << 20,
        }
    }

    /// Returns the largest recommended number of bands of a full disk.
    const fn max_bands(self) -> u64 {
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
        // Other names of file servers.
        let is_server = ["nas", "afp", "nfs"]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(text));
        let found = match is_server {
            true => Some(Self::Smb),
            false => Self::ALL
                .into_iter()
                .find(|place| place.name().eq_ignore_ascii_case(text)),
        };
        found.ok_or_else(|| {
            Error::invalid("place", "unknown storage: expected local, smb or s3").named(text)
        })
    }
}

/// Consequences of a band size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Size of a band, in bytes.
    pub band_size: u64,
    /// Number of band files when the disk is full.
    pub bands: u64,
    /// Minimum number of band files for the bytes in use. 0 if that is not known.
    pub in_use: u64,
    /// Number of requests that list all bands of a full disk in an object store.
    pub lists: u64,
}

/// A recommended band size, with reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The recommended band size, in bytes.
    pub band_size: u64,
    /// Reasons, the most important first.
    pub reasons: Vec<AdviceReason>,
    /// The recommended size and the sizes next to it, in ascending order.
    pub choices: Vec<Choice>,
}

/// A reason for a recommendation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdviceReason {
    /// Name for programs, in snake case; it does not change.
    pub code: &'static str,
    /// The reason for people.
    pub message: String,
}

/// Recommends a band size for a disk of `len` bytes, of which `used` bytes are in use, if known.
pub fn advise(len: u64, used: Option<u64>, place: Place) -> Advice {
    let (least, most) = BAND_SIZES.into_inner();
    let mut size = place.least();
    while len.div_ceil(size) > place.max_bands() && size < most {
        size *= 2;
    }
    // Larger bands only while enough of them remain to be read and written in parallel.
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

fn reasons(len: u64, size: u64, place: Place) -> Vec<AdviceReason> {
    let bands = len.div_ceil(size);
    let shown = crate::size::display(size);
    let mut reasons = Vec::new();
    let mut add = |code, message: String| reasons.push(AdviceReason { code, message });
    let files = if bands == 1 { "file" } else { "files" };
    add("files", format!("{bands} {files} of {shown} when full"));
    match place {
        Place::Local => {
            add(
                "local_speed",
                "bands of 8 to 16 MiB stream fastest on a local disk; larger ones reduce parallel \
                 access"
                    .to_owned(),
            );
            if bands < MIN_BANDS {
                add(
                    "few_bands",
                    format!(
                        "fewer than {MIN_BANDS} bands are slow on a Mac, but bands below {shown} \
                         bring no gain"
                    ),
                );
            }
        }
        Place::Smb => {
            add(
                "server_round_trips",
                "opening a file costs round trips to the server; larger bands reduce them"
                    .to_owned(),
            );
            add(
                "server_listing",
                format!(
                    "a folder of up to {SERVER_FILES} files lists quickly; each changed byte adds \
                     {shown} to a backup of the bundle"
                ),
            );
        }
        Place::S3 => {
            add(
                "upload_size",
                format!("a change uploads the whole band: {shown} for one byte"),
            );
            add(
                "list_requests",
                format!(
                    "listing takes {} requests of {NAMES_A_LIST} names",
                    bands.div_ceil(NAMES_A_LIST)
                ),
            );
        }
    }
    let smaller = size / 2;
    if bands <= MANY_FILES && len.div_ceil(smaller) > MANY_FILES {
        let (shown, bands) = (crate::size::display(smaller), len.div_ceil(smaller));
        add(
            "smaller_bands",
            format!(
                "bands of {shown} make {bands} files; more than {MANY_FILES} in a folder are slow \
                 to list and copy"
            ),
        );
    }
    if bands > MANY_FILES {
        add(
            "many_files",
            format!(
                "more than {MANY_FILES} files are slow to copy, but this is the largest band size"
            ),
        );
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
                .any(|reason| reason.message.contains("100000 files"))
        );
    }

    #[test]
    fn smaller_bands_are_warned_of_where_they_would_be_too_many() {
        let warns = |len, place| {
            advise(len, None, place)
                .reasons
                .iter()
                .any(|reason| reason.message.contains("more than 100000 in a folder"))
        };
        assert!(warns(1024 * GIB, Place::Local) && warns(20 * 1024 * GIB, Place::S3));
        assert!(
            !warns(100 * GIB, Place::Local)
                && !warns(1024 * GIB, Place::Smb)
                && !warns(1 << 62, Place::S3)
        );
    }
}
