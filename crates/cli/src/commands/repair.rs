//! `bandsaw repair`: what is certain, mended.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bandsaw::device::Access;
use bandsaw::open::{self, Examination, OpenOptions};
use bandsaw::ops::repair::{How, repair};
use bandsaw::problem::Severity;
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, Opening};
use crate::text::counted;

/// Repair what is certain: lists of a bundle, leftovers, partition map, volumes
///
/// What the image itself still tells is put right: a GPT from its other copy, also on a disk that has grown or has lost its
/// last sectors; the protective MBR; Info.plist of a sparse bundle from Info.bckup, and back; bands, and ends of files, that
/// are no part of the disk. An HFS+ volume that is not in order gets new trees, made of all records that the old ones still
/// hold; what has lost its folder is put into lost+found, and nothing is written unless the result is in order. What nothing
/// tells for certain is left and said. In an APFS container nothing is mended; with --checkpoint XID it falls back to the state
/// of an older transaction, if that is in order: what changed since is lost. Each step is durable before the next, so that an interrupted repair can be run again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw repair --dry-run disk.img            what would be done, and what not
  bandsaw repair disk.img                      do it
  bandsaw repair --checkpoint 41 disk.img      fall back to an older state of an APFS container (info lists them)
  bandsaw check disk.img                       what is wrong, all of it")]
pub(crate) struct Repair {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Say what would be done and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    dry_run: bool,
    /// Damage and warnings found before.
    problems: Vec<String>,
    /// What was done, or would be.
    repaired: Vec<String>,
    /// What is left because it is not certain what is right.
    refused: Vec<String>,
    /// Damage and warnings found afterwards.
    remaining: Vec<String>,
}

impl Repair {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let bar = Bar::new(output);
        let options = self.opening.options(Access::ReadOnly);
        // Whatever is fallen back to, the newest state is what is wrong before and right afterwards.
        let newest = OpenOptions { checkpoint: None, ..options };
        let examine = || open::examine(Path::new(&path), &newest, &bar);
        if !self.dry_run {
            open::stack::make_missing(Path::new(&path), &options).map_err(|error| source::advise(error, &path))?;
        }
        let before = problems(&examine()?);
        let how = if self.dry_run { How::DryRun } else { How::Apply };
        let done = repair(Path::new(&path), &options, how, &bar).map_err(|error| source::advise(error, &path))?;
        let after = if self.dry_run { None } else { Some(examine()?) };
        drop(bar);
        let is_damaged = after.as_ref().is_some_and(|after| after.problems.count(Severity::Damage) > 0);
        let facts = Facts {
            schema: 1,
            dry_run: self.dry_run,
            problems: before,
            repaired: done.steps.iter().map(|(layer, step)| format!("{layer}: {step}")).collect(),
            refused: done.refused.iter().map(ToString::to_string).collect(),
            remaining: after.as_ref().map(problems).unwrap_or_default(),
        };
        output.facts(&facts, |out| facts.write(output, out))?;
        facts.conclude(&path, is_damaged)
    }
}

/// Damage and warnings, told.
fn problems(found: &Examination) -> Vec<String> {
    let wrong = found.problems.told().iter().filter(|problem| problem.severity > Severity::Note);
    wrong.map(|problem| problem.error.to_string()).collect()
}

impl Facts {
    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let mut tell =
            |what: &str, lines: &[String]| lines.iter().try_for_each(|line| writeln!(out, "{what}: {}", output.text(line)));
        tell("found", &self.problems)?;
        tell(if self.dry_run { "would repair" } else { "repaired" }, &self.repaired)?;
        tell("left", &self.refused)?;
        tell("remains", &self.remaining)?;
        if self.problems.is_empty() && self.repaired.is_empty() && self.refused.is_empty() {
            writeln!(out, "there is nothing to repair")?;
        }
        Ok(())
    }

    /// Fails if something is wrong in the end.
    fn conclude(&self, path: &str, is_damaged: bool) -> Outcome {
        if self.remaining.is_empty() {
            return Ok(());
        }
        let left = counted(self.remaining.len() as u64, "problem remains", "problems remain");
        let error = Error::new(Kind::Corrupt, "repair", format!("{left} that nothing in the image tells how to mend"));
        let failure = Failure::from(error.in_file(path));
        Err(if is_damaged { failure.hint("make a copy before you try other programs on it") } else { failure.warned() })
    }
}
