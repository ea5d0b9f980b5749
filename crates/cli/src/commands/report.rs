//! `bandsaw report`: an HTML page about an image.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use bandsaw::ops::report;
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, Opening};

/// Write an HTML report about an image
///
/// The report is a single file without external resources. It shows layers, partitions and volumes,
/// a zoomable map of the bands, the space that compaction would free, and the effects of other band
/// sizes. It follows the light or dark mode of the browser.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw report Docs.sparsebundle -o report.html
  bandsaw report Docs.sparsebundle -o - > report.html      to standard output")]
pub(crate) struct Report {
    /// The image to report on
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Write the page to this file; - for standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    opening: Opening,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    report: String,
    size: u64,
}

impl Report {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        if self.output.as_os_str() == "-" {
            output.refuse_json("report to standard output")?;
        }
        let image = self.opening.read(&path, output)?;
        let bar = Bar::new(output);
        let page = report::html(&image, &bar).map_err(|error| error.in_file(&path))?;
        drop(bar);
        if self.output.as_os_str() == "-" {
            let mut out = output.stdout();
            out.write_all(page.as_bytes())?;
            return Ok(out.flush()?);
        }
        self.write(&page)?;
        let facts = Facts {
            schema: 1,
            report: self.output.to_string_lossy().into_owned(),
            size: page.len() as u64,
        };
        output.done(&facts, |out| {
            writeln!(out, "{}", output.name(&facts.report))
        })
    }

    fn write(&self, page: &str) -> Outcome {
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::AlreadyExists => Failure::from(
                Error::new(
                    Kind::Conflict,
                    "report",
                    "already exists (use --overwrite to replace it)",
                )
                .in_file(&self.output),
            )
            .hint("`--overwrite` replaces it"),
            _ => Error::io("report", "write", source)
                .in_file(&self.output)
                .into(),
        };
        let mut file = match self.overwrite {
            true => File::create(&self.output),
            false => File::create_new(&self.output),
        }
        .map_err(failed)?;
        file.write_all(page.as_bytes()).map_err(failed)
    }
}
