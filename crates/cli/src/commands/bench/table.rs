//! Tables of a benchmark for the terminal.

use std::io::{self, Write};

use bandsaw_bench::report::table::Table;

use crate::output::{Output, Style};

/// Prints tables, with the first column aligned to the left and the others to the right.
pub(super) fn write(tables: &[Table], output: &Output, out: &mut dyn Write) -> io::Result<()> {
    for table in tables {
        writeln!(out)?;
        writeln!(out, "{}", output.paint(Style::Bold, &table.title))?;
        let lines = || std::iter::once(&table.heading).chain(&table.rows);
        let width = |column: usize| {
            lines()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..table.heading.len()).map(width).collect();
        for (number, line) in lines().enumerate() {
            let cells = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, &width))| match column {
                    0 => format!("  {:width$}", output.name(cell)),
                    _ => format!("{cell:>width$}"),
                });
            let line = cells.collect::<Vec<_>>().join("  ");
            let line = line.trim_end();
            writeln!(
                out,
                "{}",
                if number == 0 {
                    output.paint(Style::Dim, line)
                } else {
                    line.to_owned()
                }
            )?;
        }
    }
    Ok(())
}
