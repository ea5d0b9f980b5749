//! Files with results: their formats, writing and reading them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bandsaw::{Error, Kind};
use bandsaw_bench::report::{Report, csv, html, plot, table};
use clap::{Args, ValueHint};

use super::table as terminal;
use crate::failure::{Failure, Outcome};
use crate::new_file::{NewFile, exists};
use crate::output::Output;

const LAYER: &str = "benchmark";

/// The files that results are written to.
#[derive(Debug, Args)]
pub(super) struct ResultFiles {
    /// Also write the results to FILE: .json, .csv, .html or .md
    ///
    /// The extension sets the format. The option may be given several times.
    #[arg(long = "output", short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    outputs: Vec<PathBuf>,
    /// Write each plot into this folder as SVG
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,
    /// Write each plot as PNG, too
    ///
    /// This requires the program rsvg-convert.
    #[arg(long, requires = "plots")]
    plots_png: bool,
    /// Replace existing files
    #[arg(long)]
    overwrite: bool,
}

/// The format of a file with results.
#[derive(Debug, Clone, Copy)]
enum Form {
    Json,
    Csv,
    Html,
    Markdown,
}

impl Form {
    fn of(path: &Path) -> Outcome<Self> {
        let extension = path
            .extension()
            .map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            Some("html" | "htm") => Ok(Self::Html),
            Some("md") => Ok(Self::Markdown),
            _ => Err(Failure::usage(
                "--output",
                format!("{} has an unknown extension", path.display()),
            )
            .hint("use a name that ends in .json, .csv, .html or .md")),
        }
    }

    fn text(self, report: &Report) -> bandsaw::Result<String> {
        match self {
            Self::Json => report.to_json(),
            Self::Csv => Ok(csv::csv(report)),
            Self::Html => html::html(report),
            Self::Markdown => Ok(markdown(report)),
        }
    }
}

impl ResultFiles {
    /// Refuses results that could not be saved, before anything is measured.
    pub(super) fn check(&self) -> Outcome {
        for path in &self.outputs {
            Form::of(path)?;
            if !self.overwrite && path.exists() {
                return Err(exists(path));
            }
            if path.is_dir() {
                return Err(Error::conflict(LAYER, "is a folder").in_file(path).into());
            }
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty())
                .unwrap_or(Path::new("."));
            if !folder.is_dir() {
                return Err(Error::not_found(LAYER, folder.display().to_string()).into());
            }
        }
        if self.plots_png {
            // The smallest SVG shows that the program is there.
            png("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1\" height=\"1\"/>")?;
        }
        Ok(())
    }

    /// Writes all requested files, and prints the results even if a file could not be written:
    /// measuring again would be expensive.
    pub(super) fn write_and_print(&self, report: &Report, output: &Output) -> Outcome {
        let kept = self.files(report);
        output.result(report, |out| {
            for (name, value) in table::facts(report) {
                writeln!(out, "{name:10} {}", output.name(&value))?;
            }
            terminal::write(&table::tables(report), output, out)
        })?;
        kept
    }

    fn files(&self, report: &Report) -> Outcome {
        for path in &self.outputs {
            write(
                path,
                Form::of(path)?.text(report)?.as_bytes(),
                self.overwrite,
            )?;
        }
        let Some(folder) = &self.plots else {
            return Ok(());
        };
        let plots = plot::plots(report);
        write_plots(folder, &plots, self.overwrite)?;
        if self.plots_png {
            for plot in plots {
                let path = folder.join(format!("{}.png", plot.name));
                write(&path, &png(&plot.light())?, self.overwrite)?;
            }
        }
        Ok(())
    }
}

/// Writes plots into a folder, which is created, as SVG.
pub(super) fn write_plots(folder: &Path, plots: &[plot::Plot], replace: bool) -> Outcome {
    fs::create_dir_all(folder)
        .map_err(|source| Error::io(LAYER, "create", source).in_file(folder))?;
    plots.iter().try_for_each(|plot| {
        let path = folder.join(format!("{}.svg", plot.name));
        write(&path, plot.svg_file().as_bytes(), replace)
    })
}

fn write(path: &Path, bytes: &[u8], replace: bool) -> Outcome {
    let mut file = NewFile::create(path, replace)?;
    file.write_all(bytes)
        .map_err(|source| Error::io(LAYER, "write", source).in_file(path))?;
    Ok(file.finish()?)
}

/// Renders an SVG with twice its size in pixels.
fn png(svg: &str) -> Outcome<Vec<u8>> {
    let failed = |source| Error::io(LAYER, "run rsvg-convert", source);
    let child = Command::new("rsvg-convert")
        .args(["--format", "png", "--zoom", "2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Failure::from(Error::new(
            Kind::Unsupported,
            LAYER,
            "cannot write PNG files: rsvg-convert is not installed",
        ))
        .hint("install librsvg, or omit `--plots-png` and open the SVG files in a browser"),
        _ => failed(source).into(),
    })?;
    // It reads everything before it writes.
    let sent = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(svg.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Error::new(
            Kind::Io,
            LAYER,
            format!("rsvg-convert failed: {}", why.trim()),
        )
        .into());
    }
    sent.map_err(failed)?;
    Ok(output.stdout)
}

/// Returns the facts and tables of a report as Markdown.
fn markdown(report: &Report) -> String {
    let mut page = format!("## bandsaw bench {}\n\n", report.benchmark);
    for (name, value) in table::facts(report) {
        page.push_str(&format!("* {name}: {value}\n"));
    }
    for table in table::tables(report) {
        page.push_str(&format!("\n### {}\n\n{}", table.title, table.markdown()));
    }
    page
}

/// Reads results from a JSON file.
pub(super) fn read(path: &Path) -> Outcome<Report> {
    let json = fs::read_to_string(path)
        .map_err(|source| Error::io(LAYER, "read", source).in_file(path))?;
    let report = Report::from_json(&json).map_err(|error| error.in_file(path));
    report.map_err(|error| {
        Failure::from(error).hint("use a file written by `bandsaw bench files -o NAME.json`")
    })
}
