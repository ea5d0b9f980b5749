//! How things are measured: candidate and reference in turn, in one run, and the ratio of
//! neighbours.
//!
//! Absolute figures drift with the machine's neighbours; the ratio of two measurements made one
//! after the other drifts far less. So a result is the median of the ratios of pairs, with the
//! smallest and the largest beside it, and all samples are kept.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// One compared case: pairs of measured times and what is expected of their ratio.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    /// The numbered goal it belongs to.
    pub(crate) goal: u32,
    /// What is measured.
    pub(crate) name: String,
    /// What it is compared with.
    pub(crate) reference: String,
    /// The least speed ratio (candidate to reference) that meets the goal; 0 where none is wanted:
    /// it says what is possible.
    pub(crate) at_least: f64,
    /// What candidate and reference cost (seconds, or megabytes), one pair for each round.
    pub(crate) pairs: Vec<(f64, f64)>,
    /// Bytes (or files) that each of them moved, for absolute figures.
    pub(crate) work: Work,
}

/// What one run did, to turn its cost into a figure for people.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Moved so many bytes in the seconds it cost.
    Bytes(u64),
    /// Handled so many files in the seconds it cost.
    Files(u64),
    /// Answered so many requests in the seconds it cost.
    Requests(u64),
    /// Ran once in the seconds it cost.
    Run,
    /// Took the megabytes it cost.
    Memory,
    /// Saved one part in what it cost.
    Saved,
}

impl Work {
    /// The figure for people.
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

/// The ratios of a case: speed of the candidate over speed of the reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Case {
    /// Measures `rounds` pairs, the order changing from round to round.
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

    /// The same for costs other than time.
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

    /// One pair; the order depends on the round.
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

    /// Says how it went, while the rest is measured.
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

    /// Returns whether it has a goal.
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

/// The middle of some samples.
pub(crate) fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Returns how long something takes.
pub(crate) fn time<T>(run: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed())
}

/// Returns how much faster two threads are than one at work that shares nothing. Under 1.7 the
/// machine has a busy neighbour, and nothing measured meanwhile says much.
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
            work: Work::Run,
        };
        let Ratio { median, min, max } = case.ratio();
        assert_eq!((median, min, max), (1.0, 0.5, 2.0));
        assert!(case.met());
    }
}
