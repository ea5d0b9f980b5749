//! Measurement: candidate and reference alternate in one run, and the ratios of adjacent samples
//! are compared.
//!
//! Absolute figures drift with the load of other virtual machines on the host; the ratio of two
//! consecutive measurements drifts far less. So a result is the median of the ratios of pairs, with
//! the minimum and the maximum, and all samples are kept.

use anyhow::Result;
use bandsaw_bench::clock::{Clock, HostClock};
use bandsaw_bench::stats::Interval;
use bandsaw_bench::units;
use serde::{Deserialize, Serialize};

/// One comparison: pairs of measured costs and the expected ratio.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Number of its goal.
    pub(crate) goal: u32,
    /// Name of the candidate.
    pub(crate) name: String,
    /// Name of the reference.
    pub(crate) reference: String,
    /// Minimum speed ratio (candidate to reference) that meets the goal; 0 for none: the case is an
    /// upper bound.
    pub(crate) at_least: f64,
    /// Costs of candidate and reference (seconds, or megabytes), one pair per round.
    pub(crate) pairs: Vec<(f64, f64)>,
    /// Work that each of them did, for absolute figures.
    pub(crate) work: Workload,
}

/// Work of one run, to convert its cost into a readable figure.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// Number of bytes moved; the cost is in seconds.
    Bytes(u64),
    /// Number of files processed; the cost is in seconds.
    Files(u64),
    /// Number of requests served; the cost is in seconds.
    Requests(u64),
    /// A single run; the cost is in seconds.
    Run,
    /// Memory; the cost is in megabytes.
    Memory,
    /// Savings; the cost is the factor.
    Saved,
}

impl Workload {
    /// Formats the cost as a readable figure.
    fn figure(self, cost: f64) -> String {
        match self {
            Self::Bytes(n) => units::rate(n as f64 / cost),
            Self::Files(n) => format!("{:.0} files/s", n as f64 / cost),
            Self::Requests(n) => format!("{:.0} kIOPS", n as f64 / cost / 1e3),
            Self::Run => units::seconds(cost),
            Self::Memory => units::decimal(cost * 1e6),
            Self::Saved => format!("{:.1} % saved", 100.0 / cost),
        }
    }
}

impl Case {
    /// Creates a case without measurements.
    pub(crate) fn new(
        goal: u32,
        name: impl Into<String>,
        reference: impl Into<String>,
        at_least: f64,
        work: Workload,
    ) -> Self {
        Self {
            goal,
            name: name.into(),
            reference: reference.into(),
            at_least,
            pairs: Vec::new(),
            work,
        }
    }

    /// Measures `rounds` pairs of costs, alternating the order.
    pub(crate) fn measure(
        mut self,
        rounds: usize,
        mut candidate: impl FnMut() -> Result<f64>,
        mut reference: impl FnMut() -> Result<f64>,
    ) -> Result<Self> {
        for round in 0..rounds {
            self.pair(round, &mut candidate, &mut reference)?;
        }
        Ok(self.told())
    }

    /// Measures one pair; the order depends on the round.
    pub(crate) fn pair(
        &mut self,
        round: usize,
        candidate: impl FnOnce() -> Result<f64>,
        reference: impl FnOnce() -> Result<f64>,
    ) -> Result<()> {
        let pair = if round.is_multiple_of(2) {
            let reference = reference()?;
            (candidate()?, reference)
        } else {
            (candidate()?, reference()?)
        };
        self.pairs.push(pair);
        Ok(())
    }

    /// Prints the result as progress.
    pub(crate) fn told(self) -> Self {
        eprintln!("  {}", self.cells().join(" | "));
        self
    }

    /// Speed ratio, candidate to reference.
    pub(crate) fn ratio(&self) -> Interval {
        let ratios = self.pairs.iter().map(|(ours, theirs)| theirs / ours);
        Interval::median(&ratios.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Returns true if it has a goal.
    pub(crate) fn is_wanted(&self) -> bool {
        self.at_least > 0.0
    }

    pub(crate) fn met(&self) -> bool {
        self.ratio().value >= self.at_least
    }

    /// Returns the measured ratio as a share of the wanted one: below 1, the goal is missed.
    pub(crate) fn margin(&self) -> f64 {
        self.ratio().value / self.at_least
    }

    /// Returns goal, name, reference, ratio, wanted ratio, result, and the figures of candidate and
    /// reference.
    pub(crate) fn cells(&self) -> Vec<String> {
        let Interval { value, low, high } = self.ratio();
        let figure = |side: fn(&(f64, f64)) -> f64| {
            let costs: Vec<f64> = self.pairs.iter().map(side).collect();
            self.work
                .figure(Interval::median(&costs).unwrap_or_default().value)
        };
        let (wanted, met) = match self.is_wanted() {
            true => (format!("{:.2}", self.at_least), yes_or_no(self.met())),
            false => ("-".to_owned(), "-"),
        };
        vec![
            self.goal.to_string(),
            self.name.clone(),
            self.reference.clone(),
            format!("**{value:.2}** [{low:.2}..{high:.2}]"),
            wanted,
            met.to_owned(),
            figure(|pair| pair.0),
            figure(|pair| pair.1),
        ]
    }
}

pub(crate) fn yes_or_no(met: bool) -> &'static str {
    if met { "yes" } else { "**no**" }
}

/// Returns the seconds of an operation.
pub(crate) fn time<T>(run: impl FnOnce() -> Result<T>) -> Result<f64> {
    let clock = HostClock::default();
    run()?;
    Ok(clock.now().as_secs_f64())
}

/// Returns the speedup of two threads over one for independent work. Below 1.7 the host is busy,
/// and measurements are unreliable.
pub(crate) fn two_thread_scaling() -> Result<f64> {
    fn spin() -> Result<u64> {
        Ok((0..400_000_000u64).fold(1, |state, n| {
            std::hint::black_box(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(n),
            )
        }))
    }
    let one = time(spin)?;
    let both = time(|| {
        std::thread::scope(|scope| {
            scope.spawn(spin);
            spin()
        })
    })?;
    Ok(2.0 * one / both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_pairs() {
        let case = Case {
            pairs: vec![(1.0, 2.0), (1.0, 1.0), (2.0, 1.0)],
            ..Case::new(1, "", "", 0.9, Workload::Run)
        };
        let Interval { value, low, high } = case.ratio();
        assert_eq!((value, low, high), (1.0, 0.5, 2.0));
        assert!(case.met());
    }
}
