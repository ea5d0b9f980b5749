//! `bandsaw bench compare`: two runs side by side.

use std::path::PathBuf;

use bandsaw_bench::compare::{Comparison, compare};
use bandsaw_bench::report::plot;
use bandsaw_bench::report::table::Table;
use bandsaw_bench::stats::ratio::Ratio;
use bandsaw_bench::units::rate;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::{kept, table};
use crate::failure::Outcome;
use crate::output::Output;

/// Compare the results of two runs
///
/// A ratio is that of the trimmed means, the second run over the first, with its 95 % confidence
/// interval. If the interval contains 1, the difference is not significant.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw bench compare before.json after.json
  bandsaw bench compare before.json after.json --plots plots
  bandsaw bench compare before.json after.json --json")]
pub(crate) struct Compare {
    /// The first results, a JSON file of `bandsaw bench`
    #[arg(value_name = "BEFORE", value_hint = ValueHint::FilePath)]
    before: PathBuf,
    /// The second results
    #[arg(value_name = "AFTER", value_hint = ValueHint::FilePath)]
    after: PathBuf,
    /// Write a plot of each direction into this folder, as SVG
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, requires = "plots")]
    overwrite: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct CompareReport {
    compared: Vec<Row>,
    unmatched: Vec<String>,
    doubts: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    series: String,
    direction: String,
    before: f64,
    after: f64,
    ratio: Ratio,
}

impl Compare {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let Comparison {
            rows,
            unmatched,
            doubts,
        } = compare(&kept::read(&self.before)?, &kept::read(&self.after)?);
        if let Some(folder) = &self.plots {
            kept::write_plots(folder, &plot::comparison(&rows), self.overwrite)?;
        }
        let compared = rows.into_iter().map(|row| Row {
            series: row.label,
            direction: row.direction.to_string(),
            before: row.before,
            after: row.after,
            ratio: row.ratio,
        });
        let facts = CompareReport {
            compared: compared.collect(),
            unmatched,
            doubts,
        };
        facts.doubts.iter().for_each(|doubt| output.warn(doubt));
        output.facts(&facts, |out| {
            table::write(&[facts.table()], output, out)?;
            facts
                .unmatched
                .iter()
                .try_for_each(|series| writeln!(out, "  only in one run: {}", output.name(series)))
        })
    }
}

impl CompareReport {
    fn table(&self) -> Table {
        let heading = ["", "", "before", "after", "ratio", "[of", "to]", "verdict"]
            .map(str::to_owned)
            .to_vec();
        let row = |row: &Row| {
            let Ratio {
                value,
                low,
                high,
                verdict,
            } = row.ratio;
            let [value, low, high] = [value, low, high].map(|ratio| format!("{ratio:.3}"));
            let (before, after) = (rate(row.before), rate(row.after));
            vec![
                row.series.clone(),
                row.direction.clone(),
                before,
                after,
                value,
                low,
                high,
                verdict.words().to_owned(),
            ]
        };
        Table {
            title: "The second run over the first".to_owned(),
            heading,
            rows: self.compared.iter().map(row).collect(),
        }
    }
}
