//! `bandsaw report`: one page about an image.

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

/// Write a page of HTML about an image: layers, volumes, and a map of its bands
///
/// The page is one file that fetches nothing: layers, partitions and volumes, the bands of the disk
/// as a picture to zoom into, what compaction would return, and what another band size would
/// change. It follows the browser's light or dark mode.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw report Docs.sparsebundle -o report.html          look at it in any browser
  bandsaw report Docs.sparsebundle -o - > report.html      to standard output")]
pub(crate) struct Report {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Where to write the page; - for standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Replace a file that exists
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
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
                    "exists already, and overwriting it was not asked for",
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
