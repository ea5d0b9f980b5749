//! Measurement: candidate and reference alternate in one run, and the ratios of adjacent samples
//! are compared.
//!
//! Absolute figures drift with the load of other virtual machines on the host; the ratio of two
//! consecutive measurements drifts far less. So a result is the median of the ratios of pairs, with
//! the minimum and the maximum, and all samples are kept.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// One comparison: pairs of measured costs and the expected ratio.
#[derive(Debug, Serialize, Deserialize)]
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
    /// Workload that each of them did, for absolute figures.
    pub(crate) work: Workload,
}

/// Workload of one run, to convert its cost into a readable figure.
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
    pub(crate) fn figure(self, cost: f64) -> String {
        match self {
            Self::Bytes(n) => format!("{:.2} GB/s", n as f64 / cost / 1e9),
            Self::Files(n) => format!("{:.0} files/s", n as f64 / cost),
            Self::Requests(n) => format!("{:.0} kIOPS", n as f64 / cost / 1e3),
            Self::Run => format!("{:.2} ms", cost * 1e3),
            Self::Memory => format!("{cost:.1} MB"),
            Self::Saved => format!("{:.1} % saved", 100.0 / cost),
        }
    }
}

/// Speed ratio of a case, candidate to reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Case {
    /// Measures `rounds` pairs of times, alternating the order.
    pub(crate) fn measure(
        self,
        rounds: usize,
        mut candidate: impl FnMut() -> Result<Duration>,
        mut reference: impl FnMut() -> Result<Duration>,
    ) -> Result<Self> {
        self.measure_costs(
            rounds,
            || Ok(candidate()?.as_secs_f64()),
            || Ok(reference()?.as_secs_f64()),
        )
    }

    /// Measures `rounds` pairs of other costs, alternating the order.
    pub(crate) fn measure_costs(
        mut self,
        rounds: usize,
        mut candidate: impl FnMut() -> Result<f64>,
        mut reference: impl FnMut() -> Result<f64>,
    ) -> Result<Self> {
        for round in 0..rounds {
            self.pair(round, &mut candidate, &mut reference)?;
        }
        self.tell();
        Ok(self)
    }

    /// Measures one pair; the order depends on the round.
    pub(crate) fn pair(
        &mut self,
        round: usize,
        mut candidate: impl FnMut() -> Result<f64>,
        mut reference: impl FnMut() -> Result<f64>,
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
    pub(crate) fn tell(&self) {
        eprintln!("  {}", self.line());
    }

    pub(crate) fn ratio(&self) -> Ratio {
        let mut ratios: Vec<f64> = self
            .pairs
            .iter()
            .map(|(candidate, reference)| reference / candidate)
            .collect();
        ratios.sort_by(f64::total_cmp);
        Ratio {
            median: ratios[ratios.len() / 2],
            min: ratios[0],
            max: ratios[ratios.len() - 1],
        }
    }

    /// Returns true if it has a goal.
    pub(crate) fn is_wanted(&self) -> bool {
        self.at_least > 0.0
    }

    pub(crate) fn met(&self) -> bool {
        self.ratio().median >= self.at_least
    }

    /// Returns the measured ratio as a share of the wanted one: below 1, the goal is missed.
    pub(crate) fn margin(&self) -> f64 {
        self.ratio().median / self.at_least
    }

    /// The candidate's and the reference's median figures.
    pub(crate) fn figures(&self) -> (String, String) {
        let side = |pick: fn(&(f64, f64)) -> f64| {
            self.work
                .figure(median(self.pairs.iter().map(pick).collect()))
        };
        (side(|pair| pair.0), side(|pair| pair.1))
    }

    fn line(&self) -> String {
        let Ratio { median, min, max } = self.ratio();
        let verdict = match self.is_wanted() {
            true => format!(
                "goal {:.2}, {}",
                self.at_least,
                if self.met() { "met" } else { "MISSED" }
            ),
            false => "what is possible".to_owned(),
        };
        let (candidate, reference) = self.figures();
        format!(
            "goal {:>2} {}: {median:.2} [{min:.2}..{max:.2}] of {} ({verdict}); {candidate} against {reference}",
            self.goal, self.name, self.reference
        )
    }
}

/// Returns the median of the samples.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Returns the duration of an operation.
pub(crate) fn time<T>(run: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}

/// Returns the speedup of two threads over one for independent work. Below 1.7 the host is busy,
/// and measurements are unreliable.
pub(crate) fn two_thread_scaling() -> f64 {
    fn spin() -> u64 {
        (0..400_000_000u64).fold(1, |state, n| {
            std::hint::black_box(
                state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(n),
            )
        })
    }
    let start = Instant::now();
    std::hint::black_box(spin());
    let one = start.elapsed().as_secs_f64();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(spin);
        std::hint::black_box(spin());
    });
    2.0 * one / start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_pairs() {
        let case = Case {
            goal: 1,
            name: String::new(),
            reference: String::new(),
            at_least: 0.9,
            pairs: vec![(1.0, 2.0), (1.0, 1.0), (2.0, 1.0)],
            work: Workload::Run,
        };
        let Ratio { median, min, max } = case.ratio();
        assert_eq!((median, min, max), (1.0, 0.5, 2.0));
        assert!(case.met());
    }
}
