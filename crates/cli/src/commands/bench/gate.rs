//! `bandsaw bench gate`: fails if a ratio is too small.

use std::path::PathBuf;

use bandsaw::{Error, Kind};
use bandsaw_bench::compare::{Judgment, gate};
use bandsaw_bench::report::table::Table;
use bandsaw_bench::stats::ratio::Ratio;
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use super::{result_files, table};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Fail if a measured speed ratio is too small
///
/// Each image of the run is compared with the host's folder in the same run, or with --against,
/// each series with the same series of an earlier run. A ratio that is too noisy counts as
/// measured, with a warning.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench gate images.json --min-ratio 0.9
  bandsaw bench gate images.json --min-ratio 0.9 --noisy warn
  bandsaw bench gate after.json --against before.json --min-ratio 0.95")]
pub(crate) struct Gate {
    /// The results, a JSON file of `bandsaw bench`
    #[arg(value_name = "RESULTS", value_hint = ValueHint::FilePath)]
    results: PathBuf,
    /// Set the smallest allowed ratio of speeds
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    min_ratio: f64,
    /// Result of ratios that are too noisy to judge
    #[arg(long, value_enum, value_name = "RESULT", default_value_t)]
    noisy: NoisyPolicy,
    /// Compare with this run in the place of the host's folder
    #[arg(long, value_name = "RESULTS", value_hint = ValueHint::FilePath)]
    against: Option<PathBuf>,
    /// Compare only series whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// `--noisy`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum NoisyPolicy {
    /// Warn, and let the gate pass
    Warn,
    /// Fail the gate
    #[default]
    Fail,
}

/// The output of `--json`.
#[derive(Serialize)]
struct GateReport {
    min_ratio: f64,
    kept: bool,
    ratios: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    series: String,
    direction: String,
    ratio: Ratio,
    kept: bool,
    too_noisy: bool,
}

impl Row {
    fn name(&self) -> String {
        format!("{}, {}", self.series, self.direction)
    }

    fn judgment(&self) -> &'static str {
        match (self.kept, self.too_noisy) {
            (true, _) => "yes",
            (_, true) => "too noisy",
            _ => "no",
        }
    }
}

/// Parses a ratio.
fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text
        .parse::<f64>()
        .ok()
        .filter(|ratio| ratio.is_finite() && *ratio >= 0.0);
    ratio.ok_or_else(|| "expected a number of at least 0".to_owned())
}

impl Gate {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let baseline = self
            .against
            .as_deref()
            .map(result_files::read)
            .transpose()?;
        let judged = gate(
            &result_files::read(&self.results)?,
            baseline.as_ref(),
            self.min_ratio,
        );
        let judged = judged
            .into_iter()
            .filter(|judged| judged.label.contains(&self.only));
        let ratios: Vec<Row> = judged
            .map(|judged| Row {
                series: judged.label,
                direction: judged.direction.to_string(),
                ratio: judged.ratio,
                kept: judged.judgment == Judgment::Kept,
                too_noisy: judged.judgment == Judgment::TooNoisy,
            })
            .collect();
        if ratios.is_empty() {
            let none = Error::new(
                Kind::NotFound,
                "gate",
                "no result of this run can be compared with the reference",
            )
            .in_file(&self.results);
            return Err(Failure::from(none)
                .hint("use `--against` to compare with another run; check --only"));
        }
        let (noisy, missed): (Vec<&Row>, Vec<&Row>) = ratios
            .iter()
            .filter(|row| !row.kept)
            .partition(|row| row.too_noisy);
        let mut failures = Vec::new();
        if !missed.is_empty() {
            let missed = names(&missed);
            failures.push(format!(
                "slower than {} of the reference: {missed}",
                self.min_ratio
            ));
        }
        if !noisy.is_empty() {
            let message = format!("too noisy to judge: {}", names(&noisy));
            match self.noisy {
                NoisyPolicy::Warn => output.warn(&message),
                NoisyPolicy::Fail => failures.push(message),
            }
        }
        let only_noisy = missed.is_empty();
        let facts = GateReport {
            min_ratio: self.min_ratio,
            kept: failures.is_empty(),
            ratios,
        };
        output.result(&facts, |out| table::write(&[facts.table()], output, out))?;
        if failures.is_empty() {
            return Ok(());
        }
        let failure = Failure::from(Error::limit("gate", failures.join("; ")));
        Err(if only_noisy {
            failure.hint("measure again with more `--sets`, or use `--noisy warn`")
        } else {
            failure
        })
    }
}

fn names(rows: &[&Row]) -> String {
    rows.iter()
        .map(|row| row.name())
        .collect::<Vec<_>>()
        .join("; ")
}

impl GateReport {
    fn table(&self) -> Table {
        let mut table = Table::new("Ratios", "|  | ratio | [of | to] | wanted | kept");
        let row = |row: &Row| {
            let Ratio {
                value, low, high, ..
            } = row.ratio;
            let [value, low, high, wanted] =
                [value, low, high, self.min_ratio].map(|ratio| format!("{ratio:.3}"));
            vec![
                row.series.clone(),
                row.direction.clone(),
                value,
                low,
                high,
                wanted,
                row.judgment().to_owned(),
            ]
        };
        table.rows = self.ratios.iter().map(row).collect();
        table
    }
}
