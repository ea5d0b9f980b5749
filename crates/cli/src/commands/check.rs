//! `bandsaw check`: the structure of every layer of an image.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::error::Place;
use bandsaw::open::{self, Conclusion, Examination, Verdict};
use bandsaw::problem::{Problem, Problems, Severity};
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome, layer_code};
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
/// unknown kind of layer or a disk with unknown contents, 8 for warnings, and 0 for notes or none.
/// It is 1 if a part of the image cannot be read. File systems of other kinds are named and not
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

/// The output of `--json`.
#[derive(Serialize)]
struct CheckReport {
    path: String,
    /// `damage`, `warning`, `note`; absent if nothing was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst: Option<String>,
    /// `damaged`, `unknown`, `warned`, `unchecked` or `sound`.
    conclusion: &'static str,
    damage_count: u64,
    warning_count: u64,
    note_count: u64,
    layers: Vec<LayerJson>,
    problems: Vec<ProblemJson>,
    /// Problems that are counted but not listed.
    omitted_count: u64,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'static str>,
}

#[derive(Serialize)]
struct LayerJson {
    description: String,
    /// `checked`, `broken`, `unknown` or `skipped`.
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Serialize)]
struct ProblemJson {
    severity: String,
    layer: String,
    #[serde(skip)]
    layer_name: &'static str,
    /// The file or volume of the image that contains the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Path in the volume of the file or folder that the problem concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_path: Option<String>,
    /// The other file that uses the same blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_volume_path: Option<String>,
    message: String,
}

impl ProblemJson {
    fn new(problem: &Problem) -> Self {
        let (offset, name) = match problem.error.place() {
            Place::Offset(at) => (Some(*at), None),
            Place::Name(name) => (None, Some(name.clone())),
            Place::None => (None, None),
        };
        let cause = std::error::Error::source(&problem.error).map(|cause| format!(": {cause}"));
        let mut paths = problem.error.paths().map(str::to_owned);
        Self {
            severity: problem.severity.to_string(),
            layer: layer_code(problem.error.layer()),
            layer_name: problem.error.layer(),
            within: problem.error.file().map(str::to_owned),
            offset,
            name,
            volume_path: paths.next(),
            other_volume_path: paths.next(),
            message: format!("{}{}", problem.error.message(), cause.unwrap_or_default()),
        }
    }

    fn place(&self, output: &Output) -> String {
        let within = self
            .within
            .as_ref()
            .map(|within| format!("{}: ", output.name(within)))
            .unwrap_or_default();
        let paths: Vec<_> = [&self.volume_path, &self.other_volume_path]
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
            + &match (&self.name, self.offset) {
                (Some(name), _) => format!("{}: ", output.name(name)),
                (None, Some(at)) => format!("byte {at}: "),
                (None, None) => String::new(),
            }
    }
}

impl CheckReport {
    fn new(image: &ImagePath, found: &Examination) -> Self {
        let problems = &found.problems;
        let mut sorted: Vec<_> = problems.listed().iter().collect();
        sorted.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        Self {
            path: image.to_string(),
            worst: problems.worst().map(|worst| worst.to_string()),
            conclusion: found.conclusion().name(),
            damage_count: problems.count(Severity::Damage),
            warning_count: problems.count(Severity::Warning),
            note_count: problems.count(Severity::Note),
            layers: found.layers.iter().map(LayerJson::new).collect(),
            problems: sorted.into_iter().map(ProblemJson::new).collect(),
            omitted_count: problems.omitted(),
            contents: found.contents.as_ref().map(open::Contents::name),
        }
    }

    fn write(&self, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        for layer in &self.layers {
            let why = layer
                .message
                .as_deref()
                .map(|why| format!(": {}", output.text(why)))
                .unwrap_or_default();
            writeln!(out, "{:8} {}{why}", layer.verdict, layer.description)?;
        }
        for problem in &self.problems {
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
                problem.place(output),
                output.text(&problem.message)
            )?;
        }
        if self.omitted_count > 0 {
            writeln!(out, "{:8} more problems like these", self.omitted_count)?;
        }
        Ok(())
    }
}

impl LayerJson {
    fn new(judged: &open::CheckedLayer) -> Self {
        let (verdict, why) = match &judged.verdict {
            Verdict::Checked => ("checked", None),
            Verdict::Broken => ("broken", None),
            Verdict::Unknown(error) => ("unknown", Some(error.message().to_owned())),
            Verdict::Skipped => ("skipped", None),
        };
        Self {
            description: judged.layer.clone(),
            verdict,
            message: why,
        }
    }
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
        let report = CheckReport::new(&path, &found);
        output.done(&report, |out| {
            report.write(output, out)?;
            match (
                found.conclusion(),
                report.layers.iter().all(|layer| layer.verdict == "checked"),
            ) {
                (Conclusion::Sound, true) if report.worst.is_none() => {
                    writeln!(out, "no problems found")
                }
                (Conclusion::Sound, false) if report.worst.is_none() => {
                    writeln!(out, "no problems found in the checked parts")
                }
                _ => Ok(()),
            }
        })?;
        conclude(&found, &path)
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
        Conclusion::Damaged => Err(failed("is damaged").hint(remedy(problems, path))),
        Conclusion::Unknown(error) => Err(source::advise(error.in_file(path), path)),
        Conclusion::Warned if found.is_in_doubt => Err(failed("files may have lost data").warned()),
        Conclusion::Warned => Err(failed("has warnings, but no damage").warned()),
        Conclusion::Unchecked | Conclusion::Sound => Ok(()),
    }
}

/// Returns the command that helps with damage.
fn remedy(problems: &Problems, path: &ImagePath) -> String {
    let mut damage = problems
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
    if damage.all(|problem| problem.error.layer().starts_with("apfs")) {
        return format!(
            "run `bandsaw repair --dry-run {path}` to find the newest undamaged checkpoint; APFS \
             cannot be repaired in place"
        );
    }
    format!("run `bandsaw repair --dry-run {path}` to list possible repairs")
}

fn summary(problems: &Problems) -> String {
    let count = |severity, one, many| {
        Some(problems.count(severity))
            .filter(|n| *n > 0)
            .map(|n| counted(n, one, many))
    };
    let counts = [
        count(Severity::Damage, "place is damaged", "places are damaged"),
        count(Severity::Warning, "warning", "warnings"),
        count(Severity::Note, "note", "notes"),
    ];
    counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
