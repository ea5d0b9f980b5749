//! `bandsaw report`: an HTML page about an image.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use bandsaw::ops::report;
use bandsaw::store::FileMode;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

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
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct PageReport {
    /// The page.
    path: String,
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
        // It lists names in the image, so it is no more open than the image.
        let mode = FileMode::of(image.path()).unwrap_or(FileMode::PRIVATE);
        let mut file = NewFile::create_as(&self.output, self.overwrite, mode)?;
        file.write_all(page.as_bytes())?;
        file.finish()?;
        let facts = PageReport {
            path: self.output.to_string_lossy().into_owned(),
            size: page.len() as u64,
        };
        output.done(&facts, |out| writeln!(out, "{}", output.name(&facts.path)))
    }
}
