//! Ratio of the speeds of two series, with a confidence interval.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::order::{mean, quantile, sorted, trimmed};
use crate::noise::SplitMix64;

/// Number of bootstrap resamples.
const DRAWS: usize = 2000;
/// Ratio of upper to lower bound above which an interval is inconclusive.
const TOO_WIDE: f64 = 1.25;
/// Largest ratio, either way, at which two series count as equally fast.
const SAME: f64 = 1.05;
/// Number of samples of a series below which its noise is unknown, so that nothing is concluded.
const FEWEST: usize = 3;
/// Share removed at each end for the trimmed mean.
pub const TRIMMED: f64 = 0.2;

/// Size in bytes and speed in bytes per second of a file.
pub type Speed = (u64, f64);

/// Conclusion from an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioVerdict {
    /// The whole interval is above 1.
    Faster,
    /// The whole interval is below 1.
    Slower,
    /// The interval contains 1 and is within 5 % of it.
    Same,
    /// The interval is too wide for a conclusion, or the samples are too few.
    #[serde(alias = "too-noisy")]
    TooNoisy,
}

impl RatioVerdict {
    /// Returns a description.
    pub fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "the same",
            Self::TooNoisy => "too noisy to say",
        }
    }
}

/// A ratio of speeds with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Ratio of the trimmed means.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Conclusion from the interval.
    pub verdict: RatioVerdict,
}

impl Ratio {
    /// Returns the speed of `ours` divided by that of `theirs`; `None` if either is empty. Samples
    /// are drawn within strata of equal size, so that the mixture of sizes is preserved. The same
    /// samples always give the same bounds.
    pub fn of(ours: &[Speed], theirs: &[Speed]) -> Option<Self> {
        let value = trimmed_mean(ours)? / trimmed_mean(theirs)?;
        let is_known = ours.len().min(theirs.len()) >= FEWEST;
        let (ours, theirs) = (Strata::of(ours), Strata::of(theirs));
        let mut noise = SplitMix64::new(0xB007);
        let draws: Vec<f64> = (0..DRAWS)
            .filter_map(|_| Some(ours.draw(&mut noise)? / theirs.draw(&mut noise)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        let (low, high) = bounds(&draws)?;
        Some(Self {
            value,
            low,
            high,
            verdict: if is_known {
                verdict(low, high)
            } else {
                RatioVerdict::TooNoisy
            },
        })
    }
}

fn verdict(low: f64, high: f64) -> RatioVerdict {
    match () {
        () if low > 1.0 => RatioVerdict::Faster,
        () if high < 1.0 => RatioVerdict::Slower,
        () if low >= 1.0 / SAME && high <= SAME => RatioVerdict::Same,
        () => RatioVerdict::TooNoisy,
    }
}

/// Returns the bounds of the trimmed mean of speeds.
pub fn trimmed_bounds(speeds: &[Speed]) -> Option<(f64, f64)> {
    let (strata, mut noise) = (Strata::of(speeds), SplitMix64::new(0xB007));
    bounds(
        &(0..DRAWS)
            .filter_map(|_| strata.draw(&mut noise))
            .collect::<Vec<_>>(),
    )
}

/// Returns true if bounds are too far apart for a conclusion.
pub fn too_wide(low: f64, high: f64) -> bool {
    high > low * TOO_WIDE
}

fn bounds(draws: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(draws);
    Some((quantile(&sorted, 0.025)?, quantile(&sorted, 0.975)?))
}

/// Returns the mean of speeds without the slowest and fastest fifth.
pub fn trimmed_mean(speeds: &[Speed]) -> Option<f64> {
    mean(&trimmed(
        &speeds.iter().map(|(_, speed)| *speed).collect::<Vec<_>>(),
        TRIMMED,
    ))
}

/// Speeds by size; sizes with too few samples form one common stratum.
struct Strata(Vec<Vec<f64>>);

/// Minimum samples of a stratum; fewer vary too little when resampled.
const ENOUGH: usize = 3;

impl Strata {
    fn of(speeds: &[Speed]) -> Self {
        let mut by_size: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (size, speed) in speeds {
            by_size.entry(*size).or_default().push(*speed);
        }
        let (mut strata, rare): (Vec<_>, Vec<_>) = by_size
            .into_values()
            .partition(|speeds| speeds.len() >= ENOUGH);
        strata.push(rare.into_iter().flatten().collect());
        strata.retain(|stratum| !stratum.is_empty());
        Self(strata)
    }

    /// Returns the trimmed mean of an equally large random sample with replacement.
    fn draw(&self, noise: &mut SplitMix64) -> Option<f64> {
        let drawn: Vec<f64> = self
            .0
            .iter()
            .flat_map(|stratum| {
                stratum
                    .iter()
                    .map(|_| stratum[noise.below(stratum.len())])
                    .collect::<Vec<_>>()
            })
            .collect();
        mean(&trimmed(&drawn, TRIMMED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generates four sizes, ten times each, with this speed and jitter.
    fn series(speed: f64, share: f64, seed: u64) -> Vec<Speed> {
        let mut noise = SplitMix64::new(seed);
        (0..40)
            .map(|n| (n % 4, speed * (1.0 + share * (2.0 * noise.share() - 1.0))))
            .collect()
    }

    #[test]
    fn differences_and_their_absence_are_recognized() {
        let verdict = |ours: f64, theirs: f64, share: f64| {
            Ratio::of(&series(ours, share, 1), &series(theirs, share, 2))
                .unwrap()
                .verdict
        };
        assert_eq!(verdict(120.0, 100.0, 0.1), RatioVerdict::Faster);
        assert_eq!(verdict(80.0, 100.0, 0.1), RatioVerdict::Slower);
        assert_eq!(verdict(100.0, 100.0, 0.02), RatioVerdict::Same);
        assert_eq!(verdict(100.0, 100.0, 0.99), RatioVerdict::TooNoisy);
        assert!(Ratio::of(&[], &series(1.0, 0.1, 1)).is_none());
    }

    #[test]
    fn bounds_hold_the_truth_as_often_as_they_say() {
        let held = (0..100).filter(|seed| {
            let ratio = Ratio::of(
                &series(100.0, 0.3, 2 * seed),
                &series(100.0, 0.3, 2 * seed + 1),
            )
            .unwrap();
            ratio.low <= 1.0 && 1.0 <= ratio.high
        });
        let held = held.count();
        assert!((86..=100).contains(&held), "{held} of 100 intervals hold 1");
    }
}
