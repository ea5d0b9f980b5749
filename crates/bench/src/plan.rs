//! Plan of the files that are written, and their order.

use bandsaw::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::noise::SplitMix64;

/// The sixteen sizes of the gold standard, in bytes.
pub const SIZES: [u64; 16] = {
    let mb = [
        2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 800, 1000, 2000,
    ];
    let mut sizes = [0; 16];
    let mut n = 0;
    while n < 16 {
        sizes[n] = mb[n] * 1_000_000;
        n += 1;
    }
    sizes
};
/// Number of sets of the gold standard: 160 files, 53.3 GB.
pub const SETS: u32 = 10;
/// Minimum and maximum size of random files, in bytes.
pub const RANDOM: (u64, u64) = (2_000_000, 2_000_000_000);
/// Maximum number of files; more are a mistake.
const MAX_FILES: usize = 100_000;
/// Maximum total bytes, so that sums do not overflow.
const MAX_BYTES: u64 = 1 << 58;
const MAX_SCALE: f64 = 1e9;

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Number of its set, from 1.
    pub set: u32,
    /// Its position in the order, from 1.
    pub number: u32,
    /// Size in bytes.
    pub size: u64,
}

impl PlannedFile {
    /// Returns the name of the file.
    pub fn name(&self) -> String {
        format!("{:03}-{:03}-{}", self.set, self.number, self.size)
    }
}

/// Parameters that determine which files are written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Sizes of a set in bytes, before scaling; unused with [`random`](Self::random).
    pub sizes: Vec<u64>,
    /// Number of sets.
    pub sets: u32,
    /// Factor of every size. It does not change the number of files.
    pub scale: f64,
    /// Seed for the order, random sizes and contents.
    pub seed: u64,
    /// Number of files per set with random sizes, instead of `sizes`: from 2 MB to 2 GB,
    /// log-uniformly distributed.
    pub random: Option<u32>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            sizes: SIZES.to_vec(),
            sets: SETS,
            scale: 1.0,
            seed: 1,
            random: None,
        }
    }
}

impl Plan {
    /// Returns the files in the order in which they are written, random within each set. Fails with
    /// [`Kind::Invalid`](bandsaw::Kind) if there are none, or a size is 0 after scaling.
    pub fn files(&self) -> Result<Vec<PlannedFile>> {
        let invalid = |why: &'static str| Error::invalid("benchmark", why);
        let per_set = self.random.map_or(self.sizes.len(), |count| count as usize);
        if per_set.saturating_mul(self.sets as usize) > MAX_FILES {
            return Err(invalid("too many files (limit 100,000)"));
        }
        self.check_scale()?;
        let mut noise = SplitMix64::new(self.seed);
        let mut files = Vec::new();
        for set in 1..=self.sets {
            let mut sizes = match self.random {
                Some(count) => (0..count)
                    .map(|_| noise.between(RANDOM.0, RANDOM.1))
                    .collect(),
                None => self.sizes.clone(),
            };
            noise.shuffle(&mut sizes);
            for size in sizes {
                let size = (size as f64 * self.scale).round() as u64;
                if size == 0 {
                    return Err(invalid("the scale is too small: a file would be empty"));
                }
                files.push(PlannedFile {
                    set,
                    number: files.len() as u32 + 1,
                    size,
                });
            }
        }
        if bytes_of(&files) > MAX_BYTES {
            return Err(Error::limit(
                "benchmark",
                "the files together exceed the limit of 2^63 bytes: use a smaller scale or fewer \
                 files",
            ));
        }
        if files.is_empty() {
            Err(invalid("there are no files to write"))
        } else {
            Ok(files)
        }
    }

    /// Checks that the scale is in range.
    pub(crate) fn check_scale(&self) -> Result<()> {
        if self.scale > 0.0 && self.scale <= MAX_SCALE {
            return Ok(());
        }
        Err(Error::invalid(
            "benchmark",
            "invalid scale: expected a positive number up to 10^9",
        ))
    }
}

/// Returns the total size of all files.
pub fn bytes_of(files: &[PlannedFile]) -> u64 {
    files
        .iter()
        .fold(0, |sum, file| sum.saturating_add(file.size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw::Kind;

    #[test]
    fn the_gold_standard_is_what_was_published() {
        let files = Plan::default().files().unwrap();
        assert_eq!((files.len(), bytes_of(&files)), (160, 53_300_000_000));
        let first: Vec<u64> = files[..16].iter().map(|file| file.size).collect();
        let mut ordered = first.clone();
        ordered.sort_unstable();
        assert_eq!(ordered, SIZES);
        assert_ne!(first, ordered, "a set is in random order");
        assert_ne!(
            first,
            files[16..32]
                .iter()
                .map(|file| file.size)
                .collect::<Vec<_>>(),
            "each in its own"
        );
        assert_eq!(files, Plan::default().files().unwrap());
    }

    #[test]
    fn sizes_are_scaled_and_counts_are_not() {
        let plan = Plan {
            scale: 0.001,
            ..Plan::default()
        };
        assert_eq!(bytes_of(&plan.files().unwrap()), 53_300_000);
        assert_eq!(plan.files().unwrap().len(), 160);
        let random = Plan {
            random: Some(5),
            sets: 3,
            ..Plan::default()
        }
        .files()
        .unwrap();
        assert!(
            random.len() == 15
                && random
                    .iter()
                    .all(|file| (RANDOM.0..=RANDOM.1).contains(&file.size))
        );
    }

    #[test]
    fn plans_of_nothing_are_refused() {
        for plan in [
            Plan {
                sizes: Vec::new(),
                ..Plan::default()
            },
            Plan {
                sets: 0,
                ..Plan::default()
            },
            Plan {
                scale: 1e-12,
                ..Plan::default()
            },
            Plan {
                scale: f64::NAN,
                ..Plan::default()
            },
            Plan {
                sets: u32::MAX,
                ..Plan::default()
            },
        ] {
            assert_eq!(plan.files().unwrap_err().kind(), Kind::Invalid, "{plan:?}");
        }
    }
}
