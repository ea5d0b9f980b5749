//! `bandsaw repair`: a partition map made whole again.

use std::ffi::OsString;

use bandsaw::device::Access;
use bandsaw::open::Image;
use bandsaw::partition::{self, gpt};
use bandsaw::{Error, Kind};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::Outcome;
use crate::output::Output;
use crate::source::{self, Opening};

/// Repair a partition map from its backup copy
///
/// A GPT has two copies, at the beginning and at the end of the disk. Where one is damaged, it is written anew from the
/// other; where both are whole, nothing is changed. Nothing else is looked at: not the bands of a bundle, and not the
/// volumes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw repair --dry-run disk.img     what is wrong with the map
  bandsaw repair disk.img               repair it")]
pub(crate) struct Repair {
    /// The image
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Say what is wrong and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    opening: Opening,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Facts {
    schema: u32,
    problems: Vec<String>,
    repaired: Vec<&'static str>,
    remaining: Vec<String>,
}

impl Repair {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let image = self.opening.open(&path, if self.dry_run { Access::ReadOnly } else { Access::ReadWrite })?;
        let mut facts = Facts { schema: 1, problems: problems(&image)?, repaired: Vec::new(), remaining: Vec::new() };
        if !self.dry_run {
            facts.repaired = repair(&image)?;
            facts.remaining = problems(&image)?;
        }
        output.facts(&facts, |out| {
            facts.problems.iter().try_for_each(|problem| writeln!(out, "found: {}", output.name(problem)))?;
            facts.repaired.iter().try_for_each(|part| writeln!(out, "repaired: {part}"))?;
            if facts.problems.is_empty() && facts.repaired.is_empty() {
                writeln!(out, "the partition map is whole")?;
            }
            Ok(())
        })?;
        match facts.remaining.len() {
            0 => Ok(()),
            n => Err(Error::new(Kind::Corrupt, "partition map", format!("{n} of the problems cannot be repaired"))
                .in_file(path)
                .into()),
        }
    }
}

fn problems(image: &Image) -> Outcome<Vec<String>> {
    let map = partition::probe(&**image.disk())?.ok_or_else(|| Error::not_found("disk", "partition map"));
    let map = map.map_err(|error| error.in_file(image.path()))?;
    Ok(map.problems.iter().map(ToString::to_string).collect())
}

/// Repairs the map durably; returns what was written.
fn repair(image: &Image) -> Outcome<Vec<&'static str>> {
    let done = gpt::repair(&**image.disk()).map_err(|error| error.in_file(image.path()))?;
    image.disk().flush()?;
    let parts =
        [(done.protective_mbr, "protective MBR"), (done.primary, "copy at the beginning"), (done.backup, "copy at the end")];
    Ok(parts.into_iter().filter(|(written, _)| *written).map(|(_, part)| part).collect())
}
