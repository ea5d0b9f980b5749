//! Statistics of samples: speed, confidence, dispersion.
//!
//! * [`order`]: medians, quantiles, trimmed means.
//! * [`line`]: rates and latencies, by least squares and Theil-Sen.
//! * [`ratio`]: ratio of two series, with bounds.
//! * [`Summary`]: all statistics of one series in one direction.

pub mod line;
pub mod order;
pub mod ratio;

use serde::{Deserialize, Serialize};

use crate::sample::{Direction, Sample};
use line::{Line, least_squares, theil_sen};
use order::{mean, median, sorted, trimmed};
use ratio::{Speed, TRIMMED, too_wide, trimmed_bounds};

/// A value with a lower and an upper bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Interval {
    /// Returns the median of `values`, from the smallest to the largest; `None` if there are none.
    pub fn median(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        Some(Self {
            value: order::quantile(&sorted, 0.5)?,
            low: *sorted.first()?,
            high: *sorted.last()?,
        })
    }
}

/// Rate and latency of a line through seconds against bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// Rate in bytes per second; negative if larger files took less time.
    pub rate: f64,
    /// Seconds that an empty file would take.
    pub latency: f64,
    /// True if the latency is negative: the line does not fit these samples.
    pub negative_latency: bool,
}

/// Speed of the first set of files and of all later ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstAndLater {
    /// Speed of the first set, in bytes per second.
    pub first: f64,
    /// Speed of the later sets, in bytes per second.
    pub later: f64,
}

/// Statistics of the samples of one direction. Speeds are in bytes per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub count: usize,
    /// Total bytes.
    pub bytes: u64,
    /// Total seconds.
    pub seconds: f64,
    /// Mean of the files' speeds.
    pub mean: f64,
    /// Mean without the slowest and fastest fifth; its bounds are the slowest and fastest of the
    /// rest.
    pub trimmed_mean: Interval,
    /// 95 % confidence interval of the trimmed mean.
    pub interval: (f64, f64),
    /// Median speed.
    pub median: f64,
    /// Slowest speed.
    pub min: f64,
    /// Fastest speed.
    pub max: f64,
    /// Theil-Sen rate, with the bounds of its slope; `None` if all files have one size, or the rate
    /// is not positive.
    pub theil_sen: Option<Interval>,
    /// Least squares fit.
    pub linear: Option<Linear>,
    /// Median distance of a file's time from the Theil-Sen line, as a share of the line's value.
    pub dispersion: Option<f64>,
    /// Change of speed during the run.
    pub first_and_later: Option<FirstAndLater>,
    /// True if the bounds are too far apart for a conclusion.
    pub too_noisy: bool,
    /// Number of files under 1 MB: their speed is that of memory.
    pub cache_speed: usize,
}

/// Size in bytes below which every system reads files from memory.
pub const CACHE_SPEED: u64 = 1_000_000;

impl Summary {
    /// Returns the statistics of `samples` in one direction; `None` if there are none. With
    /// `flushed`, the time of a sample includes its flush.
    pub fn of(samples: &[Sample], direction: Direction, flushed: bool) -> Option<Self> {
        let samples: Vec<&Sample> = samples
            .iter()
            .filter(|sample| sample.direction == direction)
            .collect();
        let time = |sample: &Sample| {
            if flushed {
                sample.flushed_seconds.unwrap_or(sample.seconds)
            } else {
                sample.seconds
            }
        };
        let points: Vec<(f64, f64)> = samples
            .iter()
            .map(|sample| (sample.size_bytes as f64, time(sample)))
            .collect();
        let speeds: Vec<Speed> = samples
            .iter()
            .map(|sample| (sample.size_bytes, sample.size_bytes as f64 / time(sample)))
            .collect();
        let values: Vec<f64> = speeds.iter().map(|(_, speed)| *speed).collect();
        let ordered = sorted(&values);
        let middle = trimmed(&values, TRIMMED);
        let interval = trimmed_bounds(&speeds)?;
        let robust = theil_sen(&points);
        let (min, max) = (*ordered.first()?, *ordered.last()?);
        Some(Self {
            count: samples.len(),
            bytes: samples.iter().map(|sample| sample.size_bytes).sum(),
            seconds: points.iter().map(|(_, seconds)| seconds).sum(),
            mean: mean(&values)?,
            trimmed_mean: Interval {
                value: mean(&middle)?,
                low: *middle.first()?,
                high: *middle.last()?,
            },
            interval,
            median: median(&values)?,
            min,
            max,
            theil_sen: robust
                .filter(|robust| robust.line.slope > 0.0)
                .map(|robust| Interval {
                    value: 1.0 / robust.line.slope,
                    low: 1.0 / robust.slopes.1,
                    // If the lower bound of the slope is not positive, the fastest file bounds the
                    // rate.
                    high: if robust.slopes.0 > 0.0 {
                        1.0 / robust.slopes.0
                    } else {
                        max.max(1.0 / robust.line.slope)
                    },
                }),
            linear: least_squares(&points).map(|line| Linear {
                rate: 1.0 / line.slope,
                latency: line.at_zero,
                negative_latency: line.at_zero < 0.0,
            }),
            dispersion: robust.and_then(|robust| dispersion(&points, &robust.line)),
            first_and_later: first_and_later(&samples, time),
            too_noisy: too_wide(interval.0, interval.1),
            cache_speed: samples
                .iter()
                .filter(|sample| sample.size_bytes < CACHE_SPEED)
                .count(),
        })
    }
}

/// Returns the size and speed of each file.
pub fn speeds(samples: &[Sample], direction: Direction) -> Vec<Speed> {
    let of = samples
        .iter()
        .filter(|sample| sample.direction == direction);
    of.map(|sample| (sample.size_bytes, sample.size_bytes as f64 / sample.seconds))
        .collect()
}

fn dispersion(points: &[(f64, f64)], line: &Line) -> Option<f64> {
    let off: Vec<f64> = points
        .iter()
        .map(|(x, y)| ((y - line.at(*x)) / line.at(*x)).abs())
        .filter(|off| off.is_finite())
        .collect();
    median(&off)
}

fn first_and_later(samples: &[&Sample], time: impl Fn(&Sample) -> f64) -> Option<FirstAndLater> {
    let first = samples.iter().map(|sample| sample.set).min()?;
    let rate = |is_first: bool| {
        let of = samples
            .iter()
            .filter(|sample| (sample.set == first) == is_first);
        let (bytes, seconds) = of.fold((0.0, 0.0), |(bytes, seconds), sample| {
            (bytes + sample.size_bytes as f64, seconds + time(sample))
        });
        (seconds > 0.0).then_some(bytes / seconds)
    };
    Some(FirstAndLater {
        first: rate(true)?,
        later: rate(false)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(set: u32, size_bytes: u64, seconds: f64) -> Sample {
        Sample {
            direction: Direction::Write,
            set,
            number: 0,
            size_bytes,
            seconds,
            flushed_seconds: Some(seconds * 2.0),
        }
    }

    #[test]
    fn a_summary_finds_rate_latency_and_change() {
        let sizes = [2, 4, 6, 8, 10, 20, 40, 60].map(|mb| mb * 1_000_000);
        let seconds = |size: u64| 0.01 + size as f64 / 100e6;
        let samples: Vec<_> = (1..=4)
            .flat_map(|set| {
                sizes
                    .map(|size| sample(set, size, seconds(size) * if set == 1 { 2.0 } else { 1.0 }))
            })
            .collect();
        let summary = Summary::of(&samples, Direction::Write, false).unwrap();
        let robust = summary.theil_sen.unwrap();
        assert!(
            (robust.value / 100e6 - 1.0).abs() < 0.02
                && robust.low <= robust.value
                && robust.value <= robust.high,
            "{robust:?}"
        );
        let change = summary.first_and_later.unwrap();
        assert!((change.later / change.first - 2.0).abs() < 1e-9);
        assert!(summary.min <= summary.median && summary.median <= summary.max);
        let flushed = Summary::of(&samples, Direction::Write, true).unwrap();
        assert!((flushed.seconds / summary.seconds - 2.0).abs() < 1e-9);
        assert!(Summary::of(&samples, Direction::Read, false).is_none());
    }

    #[test]
    fn a_latency_that_cannot_be_is_flagged_and_small_files_are() {
        let samples = [
            sample(1, 500_000, 0.001),
            sample(1, 2_000_000, 0.02),
            sample(1, 4_000_000, 0.05),
        ];
        let summary = Summary::of(&samples, Direction::Write, false).unwrap();
        let linear = summary.linear.unwrap();
        assert!(linear.negative_latency && linear.latency < 0.0);
        assert_eq!(summary.cache_speed, 1);
        assert!(summary.too_noisy);
    }
}
