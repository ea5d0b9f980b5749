//! `bandsaw advise`: a recommended band size, with reasons.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::device::Access;
use bandsaw::ops::advise::{Advice, AdviceReason, MANY_FILES, Place, advise};
use bandsaw::size;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::info_writer::exact;
use crate::output::{Output, Style};
use crate::source::{self, OpenArgs};
use crate::text::{Table, counted, grouped};

/// Recommend a band size for a sparse bundle
///
/// The recommendation depends on the size of the disk, on the space in use, and on the location of
/// the bundle: a local disk, a file server or an object store. Half and twice the size are shown
/// for comparison. `bandsaw reband` changes the band size of an existing bundle.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw advise Docs.sparsebundle                  for an existing bundle
  bandsaw advise --size 2t --on smb                 for a new bundle on a file server
  bandsaw advise --size 500g --on s3 --json         for programs")]
pub(crate) struct Advise {
    /// The image to examine
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required_unless_present = "size")]
    image: Option<OsString>,
    /// Assume a disk of this size, instead of an image
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "image")]
    size: Option<u64>,
    /// Set the location of the bundle: local, smb or s3
    ///
    /// smb stands for any file server (nas, afp and nfs mean the same), s3 for any object store.
    #[arg(long, value_name = "PLACE", default_value_t)]
    on: Place,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct AdviceReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    size: u64,
    location: &'static str,
    /// The current band size in bytes, of a sparse bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    current_band_size: Option<u64>,
    band_size: u64,
    reasons: Vec<ReasonJson>,
    choices: Vec<ChoiceJson>,
}

#[derive(Serialize)]
struct ReasonJson {
    code: &'static str,
    message: String,
}

#[derive(Serialize)]
struct ChoiceJson {
    band_size: u64,
    /// The number of files when the disk is full.
    bands: u64,
    /// The smallest number of files for the space in use, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bands: Option<u64>,
    /// The requests that listing them takes in an object store.
    list_requests: u64,
}

impl Advise {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (size, used, present) = match &self.image {
            None => (self.size.unwrap_or_default(), None, None),
            Some(image) => {
                let image = self
                    .opening
                    .open(&source::image(image)?, Access::ReadOnly)?;
                let used = image
                    .volumes()
                    .iter()
                    .filter_map(|volume| volume.open().ok())
                    .map(|volume| volume.volume());
                let used: u64 = used
                    .map(|volume| {
                        volume
                            .total
                            .saturating_sub(volume.free)
                            .saturating_sub(volume.pending)
                    })
                    .sum();
                (
                    image.disk().info().len,
                    Some(used).filter(|used| *used > 0),
                    image.bundle().map(|bundle| bundle.band_size()),
                )
            }
        };
        let Advice {
            band_size,
            reasons,
            choices,
        } = advise(size, used, self.on);
        let choices = choices.into_iter().map(|choice| ChoiceJson {
            band_size: choice.band_size,
            bands: choice.bands,
            used_bands: Some(choice.in_use).filter(|bands| *bands > 0),
            list_requests: choice.lists,
        });
        let reasons = reasons
            .into_iter()
            .map(|AdviceReason { code, message }| ReasonJson { code, message });
        let path = self.image.as_deref().map(source::image).transpose()?;
        let report = AdviceReport {
            path: path.map(|path| path.to_string()),
            size,
            location: self.on.name(),
            current_band_size: present,
            band_size,
            reasons: reasons.collect(),
            choices: choices.collect(),
        };
        output.result(&report, |out| report.write(output, out))
    }
}

impl AdviceReport {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", output.paint(Style::Bold, &exact(self.band_size)))?;
        self.reasons
            .iter()
            .try_for_each(|reason| writeln!(out, "  {}", reason.message))?;
        if let Some(present) = self.current_band_size {
            let same = if present == self.band_size {
                "the current size"
            } else {
                "its current size"
            };
            let bands = self.size.div_ceil(present.max(1));
            let many = if bands > MANY_FILES {
                ", too many to list and copy quickly"
            } else {
                ""
            };
            writeln!(
                out,
                "  {same}: {}, {} when full{many}",
                exact(present),
                counted(bands, "file", "files")
            )?;
        }
        let mut table = Table::new([true, true, true, true, false]);
        table.row(["bands of", "when full", "in use", "lists", ""].map(str::to_owned));
        for choice in &self.choices {
            let mark = if choice.band_size == self.band_size {
                "advised"
            } else {
                ""
            };
            let in_use = choice.used_bands.map_or_else(|| "-".to_owned(), grouped);
            let size = size::display(choice.band_size).to_string();
            table.row([
                size,
                grouped(choice.bands),
                in_use,
                grouped(choice.list_requests),
                mark.to_owned(),
            ]);
        }
        write!(out, "{}", table.lines("  "))
    }
}
