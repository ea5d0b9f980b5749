//! `bandsaw compact`: the least storage an image can do with.

use std::ffi::OsString;
use std::io::{self, Write};

use bandsaw::device::Access;
use bandsaw::ops::compact::{self, Cause, Compacted, Options, Plan};
use bandsaw::progress::Limited;
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::du::BandsFacts;
use super::trim;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::sheet::{Sheet, exact};
use crate::source::{self, Opening};

/// Let an image take no more space than what is in it
///
/// Free space of the volumes is given back as `trim` does it, files in bands and chunks are packed,
/// and with --zeros what is in use and nothing but zeros is given back too. It reads the maps of
/// volumes, not files. Every step leaves a whole image: an interrupted compaction loses nothing and
/// is gone on with by running it again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw compact --dry-run Docs.sparsebundle       what it would return, and why
  bandsaw compact Docs.sparsebundle                 do it
  bandsaw compact --zeros Disk.img                  read all that is in use and give zeros back, too
  bandsaw compact --limit-rate 500m Backup.sparsebundle   leave the disk to others")]
pub(crate) struct Compact {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Say what would be given back, by cause, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// With --dry-run: tell of each band, or chunk, that has storage
    #[arg(long, requires = "dry_run")]
    bands: bool,
    /// Read all that is in use, and give zeros back too; on by default where no volume has a map
    /// that is known
    #[arg(long, overrides_with = "no_zeros")]
    zeros: bool,
    /// Do not read what is in use
    #[arg(long, overrides_with = "zeros")]
    no_zeros: bool,
    /// Go on although the machine runs on its battery
    #[arg(long, alias = "batteryallowed")]
    battery_allowed: bool,
    /// Let the machine go to sleep meanwhile; nothing here keeps it from that, and nothing is lost
    /// by it
    #[arg(long, alias = "sleepallowed")]
    sleep_allowed: bool,
    /// Bytes of the disk to get through in a second, at most
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    limit_rate: Option<u64>,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints of what was done.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    image: String,
    size_on_disk_before: u64,
    size_on_disk: u64,
    returned: u64,
    /// Bytes of the disk that were in use and zeros.
    zeros: u64,
    /// True if the host frees parts of files.
    holes: bool,
    refused: Vec<Refused>,
}

/// What `--json` prints of what would be done.
#[derive(Serialize)]
struct PlanFacts {
    schema: u32,
    image: String,
    dry_run: bool,
    size_on_disk: u64,
    returns: u64,
    causes: Vec<CauseFacts>,
    /// Bytes of volumes that older checkpoints hold back now, and that are made free first.
    pending: u64,
    bands: BandsFacts,
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct CauseFacts {
    cause: &'static str,
    bytes: u64,
}

#[derive(Serialize)]
struct Refused {
    place: String,
    why: String,
}

impl Refused {
    fn all(refused: &[(String, Error)]) -> Vec<Self> {
        refused
            .iter()
            .map(|(place, error)| Self {
                place: place.clone(),
                why: error.message().to_owned(),
            })
            .collect()
    }

    fn write(all: &[Self], output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut each = all.iter();
        each.try_for_each(|refused| {
            writeln!(
                out,
                "{}: left alone, {}",
                refused.place,
                output.text(&refused.why)
            )
        })
    }
}

impl Compact {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let zeros = (self.zeros || self.no_zeros).then_some(self.zeros);
        let options = Options {
            zeros,
            battery_allowed: self.battery_allowed,
        };
        let bar = Bar::new(output);
        let progress = Limited::new(&bar, self.limit_rate);
        if self.dry_run {
            let image = self.opening.read(&path, output)?;
            let plan =
                compact::plan(&image, &options, &progress).map_err(|error| error.in_file(&path))?;
            drop(bar);
            let facts = PlanFacts::new(&path, &plan, self.bands);
            return output.facts(&facts, |out| facts.write(output, out));
        }
        let image = self.opening.open(&path, Access::ReadWrite)?;
        let done = compact::compact(&image, &options, &progress)
            .map_err(|error| advise(error.in_file(&path), &path))?;
        drop(bar);
        let facts = Facts::new(&path, &done);
        output.done(&facts, |out| facts.write(output, out))?;
        trim::refusal(&path, done.refused.into_iter().map(|(_, error)| error)).map_or(Ok(()), Err)
    }
}

fn advise(error: Error, path: &str) -> Failure {
    match (error.kind(), error.layer()) {
        (Kind::Conflict, "compact") => {
            Failure::from(error).hint("`--battery-allowed` does it all the same")
        }
        _ => source::advise(error, path),
    }
}

impl Facts {
    fn new(path: &str, done: &Compacted) -> Self {
        Self {
            schema: 1,
            image: path.to_owned(),
            size_on_disk_before: done.before,
            size_on_disk: done.after,
            returned: done.before.saturating_sub(done.after),
            zeros: done.zeros,
            holes: done.parts,
            refused: Refused::all(&done.refused),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        Refused::write(&self.refused, output, out)?;
        if self.zeros > 0 {
            writeln!(
                out,
                "{} were in use and nothing but zeros",
                exact(self.zeros)
            )?;
        }
        if !self.holes {
            writeln!(
                out,
                "this host frees whole files only, so parts of bands were left; `bandsaw du` shows how much that is"
            )?;
        }
        let (before, after) = (exact(self.size_on_disk_before), exact(self.size_on_disk));
        writeln!(
            out,
            "{}: {before} before, {} returned, {after} now",
            output.name(&self.image),
            exact(self.returned)
        )
    }
}

impl PlanFacts {
    fn new(path: &str, plan: &Plan, each: bool) -> Self {
        let causes = plan.causes.iter().map(|(cause, bytes)| CauseFacts {
            cause: name(*cause),
            bytes: *bytes,
        });
        Self {
            schema: 1,
            image: path.to_owned(),
            dry_run: true,
            size_on_disk: plan.allocated,
            returns: plan.returns(),
            causes: causes.collect(),
            pending: plan.pending,
            bands: BandsFacts::new(&plan.map, each),
            refused: Refused::all(&plan.refused),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut sheet = Sheet::new(output, out);
        sheet.heading(&output.name(&self.image))?;
        sheet.fact("on disk", &exact(self.size_on_disk))?;
        self.bands.write(&mut sheet)?;
        if self.pending > 0 {
            sheet.fact(
                "pending",
                &format!("{} given up, still held for older checkpoints; 1 MiB and more is released first", exact(self.pending)),
            )?;
        }
        for cause in &self.causes {
            let what = match cause.cause {
                "free_units" => format!("with {}s that are wholly free", self.bands.kind()),
                "free_parts" => "with free parts of others".to_owned(),
                _ => "that is in use and nothing but zeros".to_owned(),
            };
            sheet.fact("returns", &format!("{} {what}", exact(cause.bytes)))?;
        }
        sheet.fact("in all", &exact(self.returns))?;
        self.bands.write_kept(&mut sheet)?;
        self.bands.write_each(&mut sheet)?;
        Refused::write(&self.refused, output, out)
    }
}

/// Stable names for programs.
fn name(cause: Cause) -> &'static str {
    match cause {
        Cause::FreeUnits => "free_units",
        Cause::FreeParts => "free_parts",
        Cause::Zeros => "zeros",
    }
}
