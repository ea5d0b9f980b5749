//! `bandsaw enable-journal` and `disable-journal`: the journal of an HFS+ volume.

use std::ffi::OsString;

use bandsaw::address::Address;
use bandsaw::open::{Image, Volume};
use bandsaw::{Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::change::warn_if_durable;
use crate::failure::{Advise, Outcome};
use crate::output::Output;
use crate::source::{self, OpenArgs};

/// Add a journal to an HFS+ volume
///
/// The journal keeps the volume consistent if a Mac loses power while the volume is mounted.
/// Bandsaw changes volumes safely with and without a journal. Linux mounts a volume with a journal
/// read-only.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw enable-journal disk.img              with Apple's default size
  bandsaw enable-journal disk.img:Docs --journal-size 16m")]
pub(crate) struct EnableJournal {
    /// The image or a volume: IMAGE[:NAME] or IMAGE[:#NUMBER]
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    volume: OsString,
    /// Set the size of the journal
    ///
    /// The journal becomes smaller if there is not enough contiguous free space.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    journal_size: Option<u64>,
    #[command(flatten)]
    opening: OpenArgs,
}

/// Remove the journal of an HFS+ volume
///
/// Pending transactions are replayed first. Linux can write only to volumes without a journal.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw disable-journal disk.img
  bandsaw disable-journal disk.img:#2          the volume on the second partition")]
pub(crate) struct DisableJournal {
    /// The image or a volume: IMAGE[:NAME] or IMAGE[:#NUMBER]
    #[arg(value_name = "IMAGE[:VOLUME]", value_hint = ValueHint::AnyPath)]
    volume: OsString,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct JournalReport {
    path: String,
    name: String,
    journaled: bool,
}

impl EnableJournal {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (image, address) = open(&self.volume, &self.opening, output)?;
        let volume = volume(&image, &address)?;
        let enabled = volume
            .enable_journal(self.journal_size)
            .map_err(|error| error.in_file(image.path()));
        enabled.advise(Kind::Limit, || {
            "enlarge the volume, or delete files".to_owned()
        })?;
        print(&address.image.to_string(), volume, output)
    }
}

impl DisableJournal {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let (image, address) = open(&self.volume, &self.opening, output)?;
        let volume = volume(&image, &address)?;
        volume
            .disable_journal()
            .inspect_err(|error| warn_if_durable(error, output))
            .map_err(|error| error.in_file(image.path()))?;
        print(&address.image.to_string(), volume, output)
    }
}

fn open(text: &OsString, opening: &OpenArgs, output: &Output) -> Outcome<(Image, Address)> {
    let address = source::image_or_volume(text)?;
    let image = opening.change(&address.image, output)?;
    Ok((image, address))
}

fn volume<'a>(image: &'a Image, address: &Address) -> Outcome<&'a Volume> {
    let found = image.volume(address.volume.as_ref());
    found.advise(Kind::NotFound, || {
        format!("run `bandsaw info {}` to see its contents", address.image)
    })
}

fn print(path: &str, volume: &Volume, output: &Output) -> Outcome {
    let info = volume.open()?.volume();
    let report = JournalReport {
        path: path.to_owned(),
        name: info.name,
        journaled: info.journaled,
    };
    output.done(&report, |out| {
        writeln!(
            out,
            "{}: {}",
            output.name(&report.name),
            if report.journaled {
                "has a journal"
            } else {
                "has no journal"
            }
        )
    })
}
