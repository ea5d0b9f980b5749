//! `bandsaw check`: the structure of every layer of an image.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::error::ImagePart;
use bandsaw::open::{self, Conclusion, Contents, Examination};
use bandsaw::ops::describe::{CheckInfo, ProblemInfo};
use bandsaw::problem::{Problems, Severity};
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};

use crate::failure::{Failure, Outcome};
use crate::output::{Output, Style};
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Check the structure of an image, layer by layer
///
/// Checks the container (bands, tables, chunks), the encryption header, the partition map and the
/// volumes. Every problem is reported with its place and severity: damage (data is lost or
/// doubtful), a warning (an error that every reader tolerates) or a note (something unusual).
/// Nothing is changed. Layers above a damaged one are checked as far as possible. The contents of
/// files are not read; --contents decodes compressed files, and `bandsaw verify` compares the image
/// with its stored checksums.
///
/// The exit code is that of the worst problem: 5 for damage, 7 for a missing passphrase, 6 for an
/// unknown kind of layer or a disk with unknown contents, 8 for warnings, and 0 for notes or none,
/// also for a blank disk. It is 1 if a part of the image cannot be read. File systems of other kinds are named and not
/// checked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw check Docs.sparsebundle
  bandsaw check --json App.dmg           for programs
  bandsaw check --contents disk.img      decode compressed files
  bandsaw check -q disk.img              only errors
  bandsaw check --passfile key Secret.dmg")]
pub(crate) struct Check {
    /// The image to check
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Decode every compressed file and report failures
    #[arg(long)]
    contents: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

impl Check {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let bar = Bar::new(output);
        let examine = if self.contents {
            open::examine_contents
        } else {
            open::examine
        };
        let found = examine(
            Path::new(&path),
            &self.opening.options(Access::ReadOnly),
            &bar,
        )
        .map_err(|error| source::advise(error, &path))?;
        drop(bar);
        let report = CheckInfo::new(path.to_string(), &found);
        let is_blank = found.contents == Some(Contents::Blank);
        output.done(&report, |out| {
            write(&report, output, out)?;
            match (
                found.conclusion(),
                report.layers.iter().all(|layer| layer.verdict == "checked"),
            ) {
                (Conclusion::Sound, _) if is_blank => {
                    writeln!(out, "the disk is blank: no volume was found")
                }
                (Conclusion::Sound, true) if report.worst.is_none() => {
                    writeln!(out, "no problems found")
                }
                (Conclusion::Sound, false) if report.worst.is_none() => {
                    writeln!(out, "no problems found in the checked parts")
                }
                _ => Ok(()),
            }
        })?;
        if self.contents && found.contents == Some(Contents::Volumes) {
            let scrub = match path.as_path().is_dir() {
                true => format!("; `bandsaw scrub {path}` finds changed bands"),
                false => String::new(),
            };
            output.note(&format!(
                "file data that is not compressed has no checksums in APFS and HFS+ and is not \
                 covered{scrub}"
            ));
        }
        conclude(&found, &path)
    }
}

/// The hint about a damaged image whose format cannot be changed in place.
pub(super) const COPY_AGAIN: &str =
    "an image of this format cannot be repaired: copy it again from its source";

/// Writes the result of a check for people.
fn write(report: &CheckInfo, output: &Output, out: &mut dyn Write) -> io::Result<()> {
    for layer in &report.layers {
        let why = layer
            .message
            .as_deref()
            .map(|why| format!(": {}", output.text(why)))
            .unwrap_or_default();
        writeln!(out, "{:8} {}{why}", layer.verdict, layer.description)?;
    }
    for problem in &report.problems {
        let severity = format!("{:8}", problem.severity);
        let severity = if problem.severity == "damage" {
            output.paint(Style::Problem, &severity)
        } else {
            severity
        };
        writeln!(
            out,
            "{severity} {}: {}{}",
            problem.layer_name,
            place(problem, output),
            output.text(&problem.message)
        )?;
    }
    if report.omitted_count > 0 {
        writeln!(out, "{:8} more problems like these", report.omitted_count)?;
    }
    Ok(())
}

/// Describes the place of a problem in the image.
fn place(problem: &ProblemInfo, output: &Output) -> String {
    let within = problem
        .within
        .as_ref()
        .map(|within| format!("{}: ", output.name(within)))
        .unwrap_or_default();
    let paths: Vec<_> = [&problem.volume_path, &problem.other_volume_path]
        .into_iter()
        .flatten()
        .map(|path| output.name(path))
        .collect();
    let about = match paths.is_empty() {
        true => String::new(),
        false => format!("{}: ", paths.join(", ")),
    };
    within
        + &about
        + &match (&problem.name, problem.offset) {
            (Some(name), _) => format!("{}: ", output.name(name)),
            (None, Some(at)) => format!("byte {at}: "),
            (None, None) => String::new(),
        }
}

/// Returns the failure for the worst problem.
fn conclude(found: &Examination, path: &ImagePath) -> Outcome {
    let problems = &found.problems;
    let failed = |what: &str| {
        let message = format!("{what}: {}", summary(problems));
        Failure::from(Error::new(Kind::Corrupt, "check", message).in_file(path))
    };
    match found.conclusion() {
        Conclusion::Damaged => {
            let places = problems.count(Severity::Damage);
            let mut message = format!("is damaged in {}", counted(places, "place", "places"));
            let others = summary(problems);
            if !others.is_empty() {
                message += &format!("; {others}");
            }
            let error = Error::new(Kind::Corrupt, "check", message).in_file(path);
            Err(Failure::from(error).hint(remedy(found, path)))
        }
        Conclusion::Unknown(error) => Err(source::advise(error.in_file(path), path)),
        Conclusion::Warned if found.is_in_doubt => Err(failed("files may have lost data").warned()),
        Conclusion::Warned => Err(failed("has warnings, but no damage").warned()),
        Conclusion::Unchecked | Conclusion::Sound => Ok(()),
    }
}

/// Returns the command that helps with damage.
fn remedy(found: &Examination, path: &ImagePath) -> String {
    if found.is_write_once {
        return COPY_AGAIN.to_owned();
    }
    let mut damage = found
        .problems
        .listed()
        .iter()
        .filter(|problem| problem.severity == Severity::Damage)
        .peekable();
    if damage
        .clone()
        .any(|problem| problem.error.reason() == Some(Reason::RepairInterrupted))
    {
        return format!("run `bandsaw repair --undo {path}` first");
    }
    if found.is_truncated() {
        return "copy the image again from its source: no repair brings back its missing end"
            .to_owned();
    }
    if damage.all(|problem| problem.error.image_part() == ImagePart::Apfs) {
        return format!(
            "run `bandsaw repair --dry-run {path}` to find the newest undamaged checkpoint; APFS \
             cannot be repaired in place"
        );
    }
    format!("run `bandsaw repair --dry-run {path}` to list possible repairs")
}

/// Counts the warnings and notes.
fn summary(problems: &Problems) -> String {
    let count = |severity, one, many| {
        Some(problems.count(severity))
            .filter(|n| *n > 0)
            .map(|n| counted(n, one, many))
    };
    let counts = [
        count(Severity::Warning, "warning", "warnings"),
        count(Severity::Note, "note", "notes"),
    ];
    counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
