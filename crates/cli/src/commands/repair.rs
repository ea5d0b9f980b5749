//! `bandsaw repair`: repairs from redundant information in the image, with undo.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::fs::{Loss, RepairStep};
use bandsaw::open::{Conclusion, Contents};
use bandsaw::ops::repair::{self, Mode, Options, Outcome as Done, Repaired, VolumeLosses, repair};
use bandsaw::problem::Severity;
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Described, Failure, Outcome, code, layer_code};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Repair an image, or undo a repair
///
/// Repairs are made where independent sources in the image agree: a GPT from its other copy, even
/// if the disk has grown or lost its last sectors; the protective MBR; the lists of a sparse
/// bundle; bands and file ends outside the disk; and the B-trees of an HFS+ volume, which are
/// rebuilt from all records that can still be read. An APFS container is not repaired; with
/// --checkpoint XID it is rolled back to the state of an older transaction, if that state is
/// consistent.
///
/// Layers are repaired from the outermost to the innermost. If two sources disagree and the rest of
/// the image does not decide, nothing is changed, the alternatives are listed and the exit code is
/// 9; --assume chooses one of them.
///
/// The readable files of a volume are compared with those that the repair keeps. If files, or parts
/// of them, would be lost, they are listed by path, nothing is changed and the exit code is 9;
/// --accept-loss repairs anyway.
///
/// All bytes that will be overwritten are first saved to IMAGE.undo beside the image, and files are
/// moved there instead of being removed. --undo restores the image bit for bit as long as it has
/// not changed since; --commit removes the undo data. A repair that was interrupted is rolled back
/// before the image is repaired again.
///
/// The exit code is 0 if the image was repaired completely (with --dry-run: could be), 10 if there
/// was nothing to repair and `bandsaw check` ends with 0, and 9 if a decision is needed. Otherwise
/// it is that of `bandsaw check` on what remains: 5 for damage, 7 for a missing passphrase, 6 for
/// unknown contents, 8 for warnings.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw repair --dry-run disk.img            show the planned repairs
  bandsaw repair disk.img
  bandsaw repair --undo disk.img               restore the previous state
  bandsaw repair --commit disk.img             remove the undo data
  bandsaw repair --assume size=40m b.sparsebundle   choose one of the listed alternatives
  bandsaw repair --checkpoint 41 disk.img      roll back an APFS container
  bandsaw check disk.img                       list all problems")]
pub(crate) struct Repair {
    /// The image to repair
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Show the steps of the repair, and change nothing
    #[arg(long, short = 'n')]
    dry_run: bool,
    /// Repair even if files or parts of them are lost
    ///
    /// Without this option the losses are listed and nothing is changed. --dry-run and --json list
    /// all of them, and the repair writes the list to losses.txt in the undo data.
    #[arg(long)]
    accept_loss: bool,
    /// Grow the disk to SIZE if the repair needs room
    ///
    /// The last partition and its volume grow too. Without need, nothing grows.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    grow: Option<u64>,
    /// Keep the undo data in this folder, as DIR/IMAGE.undo
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    undo_dir: Option<PathBuf>,
    /// Restore the image to its state before the repairs
    ///
    /// This is refused if the image has changed since. Copies, renaming and `touch` are no changes.
    #[arg(long, conflicts_with_all = ["dry_run", "assume", "accept_loss", "grow", "commit"])]
    undo: bool,
    /// Remove the undo data and quarantined files
    #[arg(long, conflicts_with_all = ["dry_run", "assume", "accept_loss", "grow"])]
    commit: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct RepairReport {
    path: String,
    dry_run: bool,
    /// `repaired`, `nothing_to_do`, `undecided`, `loss_refused`.
    outcome: String,
    /// Number of files restored by rolling back an interrupted repair first.
    #[serde(skip_serializing_if = "Option::is_none")]
    rolled_back_files: Option<usize>,
    /// Damage and warnings found before the repair.
    problems: Vec<Described>,
    /// Repairs that were made, or would be.
    steps: Vec<StepReport>,
    /// Problems that cannot be repaired for lack of information.
    refused: Vec<Described>,
    /// The disagreement that stopped the repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<Described>,
    /// The alternatives for that disagreement.
    alternatives: Vec<AlternativeReport>,
    /// Files, or parts of files, that were readable and are not kept.
    losses: Vec<LossReport>,
    /// Possible remains of an older state that are not kept.
    possible_losses: Vec<LossReport>,
    /// The folder with the undo data.
    #[serde(skip_serializing_if = "Option::is_none")]
    undo_path: Option<PathBuf>,
    /// The text file with all losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    losses_path: Option<PathBuf>,
    /// Damage and warnings found after the repair.
    remaining: Vec<Described>,
    /// The verdict on the image afterwards, as `check` gives it; absent after a stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<&'static str>,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk could not be read, and after a
    /// stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'static str>,
}

#[derive(Serialize)]
struct AlternativeReport {
    assume: String,
    message: String,
}

#[derive(Serialize)]
struct StepReport {
    layer: String,
    message: String,
    /// The paths, in the image or volume, of the files that it concerns.
    affected: Vec<String>,
    /// The text for people, with the first of these files.
    #[serde(skip)]
    text: String,
}

#[derive(Serialize)]
struct LossReport {
    volume: String,
    volume_path: String,
    /// `file`, `folder`, `entries`, `contents`, `end`, `shared`, `resource_fork`, `unowned`,
    /// `attributes`.
    loss: String,
    message: String,
}

/// The output of `--json` with `--undo` and `--commit`.
#[derive(Serialize)]
struct UndoReport {
    path: String,
    repairs: usize,
    files: usize,
    size: u64,
}

impl Repair {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let assume = self.opening.assumptions()?;
        let confirm = |losses: &[VolumeLosses]| Ok(ask(losses));
        let is_asked = !self.dry_run
            && !output.json()
            && io::stdin().is_terminal()
            && io::stderr().is_terminal();
        let chosen = Options {
            mode: if self.dry_run {
                Mode::DryRun
            } else {
                Mode::Apply
            },
            assume,
            accept_loss: self.accept_loss,
            confirm: if is_asked { Some(&confirm) } else { None },
            grow: self.grow,
            undo_dir: self.undo_dir.as_deref(),
            temporary: std::env::temp_dir(),
        };
        if self.undo || self.commit {
            return self.finish(&path, &chosen, output);
        }
        let bar = Bar::new(output);
        let options = self.opening.options(Access::ReadOnly);
        let done = repair(Path::new(&path), &options, &chosen, &bar)
            .map_err(|error| source::advise(error, &path))?;
        drop(bar);
        let report = RepairReport::new(&path, &done, self.dry_run);
        output.done(&report, |out| report.write(&path, output, out))?;
        report.conclude(&path, done)
    }

    /// Undoes or commits repairs.
    fn finish(&self, path: &ImagePath, chosen: &Options<'_>, output: &Output) -> Outcome {
        let options = self.opening.options(Access::ReadWrite);
        let done = match self.undo {
            true => repair::undo(Path::new(path), &options, chosen),
            false => repair::commit(Path::new(path), &options, chosen),
        };
        let done = done.map_err(|error| source::advise(error, path))?;
        let report = UndoReport {
            path: path.to_string(),
            repairs: done.repairs,
            files: done.files,
            size: done.bytes,
        };
        output.result(&report, |out| {
            let repairs = counted(done.repairs as u64, "repair", "repairs");
            match self.undo {
                true => writeln!(
                    out,
                    "undid {repairs}: {} restored",
                    counted(done.files as u64, "file", "files")
                ),
                false => writeln!(
                    out,
                    "removed the undo data of {repairs}: {}",
                    size::display(done.bytes)
                ),
            }
        })
    }
}

fn texts(all: &[Described]) -> Vec<String> {
    all.iter().map(|one| one.message.clone()).collect()
}

/// Number of losses that the text lists if a file has all of them.
const SHOWN: usize = 10;

/// Asks for permission to lose files.
fn ask(losses: &[VolumeLosses]) -> bool {
    for LossReport { message, .. } in lost(losses, |volume| &volume.losses.certain) {
        eprintln!("loss: {}", crate::text::printable(&message));
    }
    eprint!("Make this repair nevertheless? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Returns one of the lists of all volumes.
fn lost(all: &[VolumeLosses], list: fn(&VolumeLosses) -> &[Loss]) -> Vec<LossReport> {
    let of_volume = |volume: &VolumeLosses| {
        let lost = |loss: &Loss| LossReport {
            volume: volume.volume.clone(),
            volume_path: loss.path.clone(),
            loss: code(loss.what.name()),
            message: format!("{}: {loss}", volume.volume),
        };
        list(volume).iter().map(lost).collect::<Vec<_>>()
    };
    all.iter().flat_map(of_volume).collect()
}

impl RepairReport {
    fn new(path: &ImagePath, done: &Repaired, dry_run: bool) -> Self {
        let found = done
            .found
            .listed()
            .iter()
            .filter(|problem| problem.severity > Severity::Note);
        let remaining = done
            .remaining
            .iter()
            .filter(|problem| problem.severity > Severity::Note);
        let choice = |one: &bandsaw::decision::Alternative| AlternativeReport {
            assume: one.assume.clone(),
            message: one.evidence.clone(),
        };
        let step = |(layer, step): &(&'static str, RepairStep)| StepReport {
            layer: layer_code(layer),
            message: step.text.clone(),
            affected: step.files.clone(),
            text: format!("{layer}: {step}"),
        };
        Self {
            path: path.to_string(),
            dry_run,
            outcome: code(done.outcome.name()),
            rolled_back_files: done.rolled_back.as_ref().map(|done| done.files),
            problems: found
                .map(|problem| Described::new(&problem.error))
                .collect(),
            refused: done.refused.iter().map(Described::new).collect(),
            undecided: done.undecided.as_ref().map(|error| Described {
                message: format!("{}: {}", error.layer(), error.message()),
                ..Described::new(error)
            }),
            alternatives: done.alternatives().iter().map(choice).collect(),
            steps: done.steps.iter().map(step).collect(),
            losses: lost(&done.losses, |volume| &volume.losses.certain),
            possible_losses: lost(&done.losses, |volume| &volume.losses.possible),
            undo_path: done.undo.clone(),
            losses_path: done.losses_file.clone(),
            remaining: remaining
                .map(|problem| Described::new(&problem.error))
                .collect(),
            conclusion: done.conclusion.as_ref().map(Conclusion::name),
            contents: done.contents.as_ref().map(Contents::name),
        }
    }

    fn write(&self, path: &ImagePath, output: &Output, out: &mut dyn Write) -> io::Result<()> {
        let is_stopped = matches!(&*self.outcome, "undecided" | "loss_refused");
        if let Some(files) = self.rolled_back_files {
            let verb = if self.dry_run {
                "would roll back"
            } else {
                "rolled back"
            };
            let files = counted(files as u64, "file", "files");
            writeln!(out, "{verb}: an interrupted repair ({files} restored)")?;
        }
        let mut tell = |what: &str, lines: &[String]| {
            lines
                .iter()
                .try_for_each(|line| writeln!(out, "{what}: {}", output.text(line)))
        };
        tell("found", &texts(&self.problems))?;
        tell(
            match (self.dry_run, is_stopped) {
                (true, _) => "would repair",
                (false, true) => "not repaired",
                (false, false) => "repaired",
            },
            &self
                .steps
                .iter()
                .map(|step| step.text.clone())
                .collect::<Vec<_>>(),
        )?;
        tell("left", &texts(&self.refused))?;
        let shown = if self.losses_path.is_some() {
            SHOWN
        } else {
            usize::MAX
        };
        for (what, list) in [
            ("loss", &self.losses),
            ("possible loss", &self.possible_losses),
        ] {
            let messages = list.iter().take(shown).map(|lost| lost.message.clone());
            tell(what, &messages.collect::<Vec<_>>())?;
            if let Some(more) = list.len().checked_sub(shown).filter(|more| *more > 0) {
                tell(what, &[format!("{more} more")])?;
            }
        }
        tell("undecided", &texts(self.undecided.as_slice()))?;
        let describe = |choice: &AlternativeReport| {
            let options: Vec<_> = choice
                .assume
                .split(' ')
                .map(|text| format!("--assume {text}"))
                .collect();
            format!("{}  ({})", options.join(" "), choice.message)
        };
        let choices: Vec<_> = self.alternatives.iter().map(describe).collect();
        tell("alternative", &choices)?;
        // Without a change, what remains is what was found.
        if self.outcome == code(Done::Repaired.name()) {
            let what = if self.dry_run {
                "would remain"
            } else {
                "remains"
            };
            tell(what, &texts(&self.remaining))?;
        }
        if let Some(undo) = &self.undo_path {
            let undo = output.name(&undo.display().to_string());
            writeln!(
                out,
                "undo data: {undo} (`bandsaw repair --undo` restores the image, `--commit` removes it)"
            )?;
        }
        if let Some(file) = &self.losses_path {
            let file = output.name(&file.display().to_string());
            writeln!(out, "all losses: {file}")?;
        }
        if self.problems.is_empty()
            && self.steps.is_empty()
            && self.refused.is_empty()
            && self.rolled_back_files.is_none()
            && matches!(self.conclusion, Some("sound" | "unchecked"))
        {
            writeln!(out, "there is nothing to repair")?;
        }
        if is_stopped {
            writeln!(
                out,
                "{}: nothing was changed",
                output.name(&path.to_string())
            )?;
        }
        Ok(())
    }

    /// Fails if a decision is needed or problems remain.
    fn conclude(&self, path: &ImagePath, done: Repaired) -> Outcome {
        match done.outcome {
            Done::Undecided => {
                let error = Error::new(
                    Kind::Undecided,
                    "repair",
                    "a decision is required; nothing was changed",
                );
                let hint = match self.alternatives.is_empty() {
                    true => "copy the image before you try other programs on it",
                    false => "choose one of the alternatives with --assume KEY=VALUE",
                };
                return Err(Failure::from(error.in_file(path)).hint(hint));
            }
            Done::LossRefused => {
                let error = Error::new(
                    Kind::Undecided,
                    "repair",
                    format!(
                        "{} would be lost; nothing was changed",
                        counted(
                            self.losses.len() as u64,
                            "file or part of one",
                            "files or parts of files"
                        )
                    ),
                );
                return Err(Failure::from(error.in_file(path)).hint(
                    "copy the image first, then use --accept-loss to repair it nevertheless",
                ));
            }
            Done::Repaired | Done::NothingToDo => {}
        }
        let left = |what| {
            let left = counted(
                self.remaining.len() as u64,
                "problem remains",
                "problems remain",
            );
            Failure::from(
                Error::new(Kind::Corrupt, "repair", format!("{left} {what}")).in_file(path),
            )
        };
        match done.conclusion {
            Some(Conclusion::Damaged) => Err(left("that cannot be repaired from the image")
                .hint("copy the image before you try other programs on it")),
            Some(Conclusion::Unknown(error)) => Err(source::advise(error.in_file(path), path)),
            Some(Conclusion::Warned) => {
                Err(left("that cannot be repaired from the image").warned())
            }
            Some(Conclusion::Unchecked | Conclusion::Sound) | None => match done.outcome {
                Done::NothingToDo => Err(Failure::nothing_to_do()),
                _ => Ok(()),
            },
        }
    }
}
