//! `bandsaw bench compare`: two runs side by side.

use std::path::PathBuf;

use bandsaw_bench::compare::{Comparison, Row, compare};
use bandsaw_bench::report::plot;
use bandsaw_bench::report::table::Table;
use bandsaw_bench::stats::ratio::Ratio;
use bandsaw_bench::units::rate;
use clap::{Args, ValueHint};

use super::{result_files, table};
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

impl Compare {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let comparison = compare(
            &result_files::read(&self.before)?,
            &result_files::read(&self.after)?,
        );
        if let Some(folder) = &self.plots {
            let plots = plot::comparison(&comparison.rows);
            result_files::write_plots(folder, &plots, self.overwrite)?;
        }
        for doubt in &comparison.doubts {
            output.warn(&doubt.to_string());
        }
        output.result(&comparison, |out| {
            table::write(&[ratios(&comparison)], output, out)?;
            comparison.unmatched.iter().try_for_each(|only| {
                let (series, direction) = (output.name(&only.series), only.direction);
                writeln!(out, "  only in one run: {series}, {direction}")
            })
        })
    }
}

fn ratios(comparison: &Comparison) -> Table {
    let heading = "|  | before | after | ratio | [of | to] | verdict";
    let mut table = Table::new("The second run over the first", heading);
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
            row.label.clone(),
            row.direction.to_string(),
            before,
            after,
            value,
            low,
            high,
            verdict.words().to_owned(),
        ]
    };
    table.rows = comparison.rows.iter().map(row).collect();
    table
}
