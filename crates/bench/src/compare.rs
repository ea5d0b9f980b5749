//! Comparison of two runs, and of a run with a limit.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::report::Report;
use crate::sample::Direction;
use crate::stats::ratio::{Ratio, Speed, too_wide, trimmed_mean};
use crate::stats::{Summary, speeds};

/// A series that both runs have.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the series, with its step.
    #[serde(rename = "series")]
    pub label: String,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Trimmed mean of the earlier run, in bytes per second.
    pub before: f64,
    /// Trimmed mean of the later run, in bytes per second.
    pub after: f64,
    /// `after` divided by `before`.
    pub ratio: Ratio,
}

/// Comparison of two runs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Comparison {
    /// Series that both runs have.
    #[serde(rename = "compared")]
    pub rows: Vec<Row>,
    /// Series that only one run has.
    pub unmatched: Vec<Unmatched>,
    /// Reasons why the runs may not be comparable.
    pub doubts: Vec<Doubt>,
}

/// A series that only one run has.
#[derive(Debug, Clone, Serialize)]
pub struct Unmatched {
    /// Name of the series, with its step.
    pub series: String,
    /// Direction of the transfer.
    pub direction: Direction,
}

/// A reason why two runs may not be comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// Different benchmarks.
    Benchmark,
    /// Different machines or file systems.
    Machine,
    /// Different scales of the sizes of files.
    Scale,
    /// Different treatment of caches.
    Caches,
    /// Different sizes of requests.
    Requests,
    /// Different contents of files.
    Contents,
    /// The first run is too noisy for a result.
    NoisyBefore,
    /// The second run is too noisy for a result.
    NoisyAfter,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Benchmark => "the runs differ in the benchmark",
            Self::Machine => "the runs differ in the machine or the file system",
            Self::Scale => "the runs differ in the scale of sizes",
            Self::Caches => "the runs differ in the treatment of caches",
            Self::Requests => "the runs differ in the size of requests",
            Self::Contents => "the runs differ in the contents of files",
            Self::NoisyBefore => "the first run was too noisy for a result",
            Self::NoisyAfter => "the second run was too noisy for a result",
        })
    }
}

/// Returns how much faster `after` is than `before`, series by series. Speeds of a series are those
/// of all its files.
pub fn compare(before: &Report, after: &Report) -> Comparison {
    let (old, new) = (by_name(before), by_name(after));
    let mut comparison = Comparison {
        doubts: doubts(before, after),
        ..Comparison::default()
    };
    for ((label, direction), theirs) in &old {
        let Some(ours) = new.get(&(label.clone(), *direction)) else {
            continue;
        };
        if let Some(ratio) = Ratio::of(ours, theirs) {
            comparison.rows.push(Row {
                label: label.clone(),
                direction: *direction,
                before: trimmed_mean(theirs).unwrap_or_default(),
                after: trimmed_mean(ours).unwrap_or_default(),
                ratio,
            });
        }
    }
    let only = |of: &Speeds, other: &Speeds| -> Vec<Unmatched> {
        of.keys()
            .filter(|key| !other.contains_key(*key))
            .map(|(label, direction)| Unmatched {
                series: label.clone(),
                direction: *direction,
            })
            .collect()
    };
    comparison.unmatched = [only(&old, &new), only(&new, &old)].concat();
    comparison
}

type Speeds = BTreeMap<(String, Direction), Vec<Speed>>;

fn by_name(report: &Report) -> Speeds {
    let mut all = Speeds::new();
    for series in &report.series {
        for direction in Direction::ALL {
            let speeds = speeds(&series.samples, direction);
            if !speeds.is_empty() {
                all.entry((series.name(), direction))
                    .or_default()
                    .extend(speeds);
            }
        }
    }
    all
}

fn doubts(before: &Report, after: &Report) -> Vec<Doubt> {
    let (old, new) = (&before.settings, &after.settings);
    let is_noisy = |report: &Report| {
        let summaries = report
            .series
            .iter()
            .flat_map(|series| [&series.write, &series.read, &series.stream]);
        summaries
            .flatten()
            .any(|summary: &Summary| summary.too_noisy)
    };
    let found = [
        (before.benchmark != after.benchmark, Doubt::Benchmark),
        (before.machine != after.machine, Doubt::Machine),
        (old.plan.scale != new.plan.scale, Doubt::Scale),
        (old.caches != new.caches, Doubt::Caches),
        (old.request != new.request, Doubt::Requests),
        (old.compressible != new.compressible, Doubt::Contents),
        (is_noisy(before), Doubt::NoisyBefore),
        (is_noisy(after), Doubt::NoisyAfter),
    ];
    let found = found.into_iter().filter(|(is_found, _)| *is_found);
    found.map(|(_, doubt)| doubt).collect()
}

/// Result of checking a ratio against a limit.
#[derive(Debug, Clone)]
pub struct GateResult {
    /// Name of the series, with its step.
    pub label: String,
    /// Direction of the transfer.
    pub direction: Direction,
    /// Measured ratio.
    pub ratio: Ratio,
    /// The judgment.
    pub judgment: Judgment,
}

/// The result of a ratio at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgment {
    /// It is at least the limit.
    Kept,
    /// Its bounds are too far apart to say.
    TooNoisy,
    /// It is below the limit, or all of its bounds are.
    Missed,
}

impl Judgment {
    fn of(ratio: &Ratio, least: f64) -> Self {
        match () {
            () if ratio.high < least => Self::Missed,
            () if too_wide(ratio.low, ratio.high) => Self::TooNoisy,
            () if ratio.value < least => Self::Missed,
            () => Self::Kept,
        }
    }
}

/// Compares each ratio of a run, to the host of the same run or to `baseline`, with the limit
/// `least`.
pub fn gate(report: &Report, baseline: Option<&Report>, least: f64) -> Vec<GateResult> {
    let ratios: Vec<(String, Direction, Ratio)> = match baseline {
        Some(baseline) => compare(baseline, report)
            .rows
            .into_iter()
            .map(|row| (row.label, row.direction, row.ratio))
            .collect(),
        None => report
            .ratios
            .iter()
            .map(|against| (against.label.clone(), against.direction, against.ratio))
            .collect(),
    };
    ratios
        .into_iter()
        .map(|(label, direction, ratio)| GateResult {
            label,
            direction,
            judgment: Judgment::of(&ratio, least),
            ratio,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::ratio::RatioVerdict;

    #[test]
    fn a_ratio_is_judged_by_its_bounds_first() {
        let judged = |value, low, high, least| {
            let verdict = RatioVerdict::Same;
            let ratio = Ratio {
                value,
                low,
                high,
                verdict,
            };
            Judgment::of(&ratio, least)
        };
        assert_eq!(judged(27.0, 12.7, 59.1, 0.9), Judgment::TooNoisy);
        assert_eq!(judged(0.5, 0.2, 1.1, 0.9), Judgment::TooNoisy);
        assert_eq!(judged(0.5, 0.2, 0.8, 0.9), Judgment::Missed);
        assert_eq!(judged(0.89, 0.85, 0.95, 0.9), Judgment::Missed);
        assert_eq!(judged(0.91, 0.85, 0.95, 0.9), Judgment::Kept);
        assert_eq!(judged(0.0, 0.0, 0.0, 0.0), Judgment::Kept);
    }
}
