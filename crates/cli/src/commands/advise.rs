//! `bandsaw advise`: which band size suits, and why.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::device::Access;
use bandsaw::ops::advise::{Advice, MANY_FILES, Place, advise};
use bandsaw::size;
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::{Output, Style};
use crate::sheet::exact;
use crate::source::{self, Opening};
use crate::text::{Table, counted, grouped};

/// Recommend a band size for a sparse bundle, with reasons
///
/// The size follows from the disk, from what is in use on it, and from where the bundle is to be:
/// on a disk of this machine, on a file server or in an object store. What its neighbours would
/// come to is shown beside it. `reband` gives a bundle that is there other bands.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw advise Docs.sparsebundle                  for a bundle that is there
  bandsaw advise --size 2t --on smb                 for one that is to be made, on a file server
  bandsaw advise --size 500g --on s3 --json         for programs, sizes in bytes")]
pub(crate) struct Advise {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath, required_unless_present = "size")]
    image: Option<OsString>,
    /// Bytes of the disk, instead of an image
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "image")]
    size: Option<u64>,
    /// Where the bundle is to be: local, smb (any file server) or s3 (any object store)
    #[arg(long, value_name = "PLACE", default_value_t)]
    on: Place,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    size: u64,
    on: &'static str,
    /// Bytes of a band now, of an image that is a bundle.
    present: Option<u64>,
    band_size: u64,
    reasons: Vec<String>,
    choices: Vec<ChoiceFacts>,
}

#[derive(Serialize)]
struct ChoiceFacts {
    band_size: u64,
    /// Files when the disk is full.
    bands: u64,
    /// Files that what is in use takes, at least; 0 where that is not known.
    in_use: u64,
    /// Requests that listing them takes in an object store.
    lists: u64,
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
        let choices = choices.into_iter().map(|choice| ChoiceFacts {
            band_size: choice.band_size,
            bands: choice.bands,
            in_use: choice.in_use,
            lists: choice.lists,
        });
        let facts = Facts {
            schema: 1,
            size,
            on: self.on.name(),
            present,
            band_size,
            reasons,
            choices: choices.collect(),
        };
        output.facts(&facts, |out| facts.write(output, out))
    }
}

impl Facts {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", output.paint(Style::Bold, &exact(self.band_size)))?;
        self.reasons
            .iter()
            .try_for_each(|reason| writeln!(out, "  {reason}"))?;
        if let Some(present) = self.present {
            let same = if present == self.band_size {
                "which is what it has"
            } else {
                "now it has bands of another size"
            };
            let bands = self.size.div_ceil(present.max(1));
            let many = if bands > MANY_FILES {
                ", too many to be listed and copied quickly"
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
            let in_use = if choice.in_use > 0 {
                grouped(choice.in_use)
            } else {
                "-".to_owned()
            };
            let size = size::display(choice.band_size).to_string();
            table.row([
                size,
                grouped(choice.bands),
                in_use,
                grouped(choice.lists),
                mark.to_owned(),
            ]);
        }
        write!(out, "{}", table.lines("  "))
    }
}
