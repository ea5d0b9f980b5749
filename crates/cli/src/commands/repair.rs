//! `bandsaw repair`: repairs from redundant information in the image, with undo.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::open::Conclusion;
use bandsaw::ops::describe::{AlternativeInfo, ErrorInfo, LossInfo, RepairInfo, code};
use bandsaw::ops::repair::{self, Mode, Options, Outcome as Done, Repaired, VolumeLosses, repair};
use bandsaw::{Error, Kind, size};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::check::COPY_AGAIN;
use crate::failure::{Failure, Outcome};
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
    /// If it changed between two repairs, only the later ones are undone, and the exit code is 8.
    #[arg(long, conflicts_with_all = ["dry_run", "assume", "accept_loss", "grow", "commit"])]
    undo: bool,
    /// Remove the undo data and quarantined files
    ///
    /// This is refused while the image has a part of the changes of an interrupted repair.
    #[arg(long, conflicts_with_all = ["dry_run", "assume", "accept_loss", "grow"])]
    commit: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json` with `--undo` and `--commit`.
#[derive(Serialize)]
struct UndoReport {
    path: String,
    repairs: usize,
    files: usize,
    size: u64,
    /// Number of earlier repairs that were not undone, because the image changed after them.
    kept: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_because: Option<String>,
}

impl Repair {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let assume = self.opening.assumptions()?;
        let confirm = |losses: &[VolumeLosses]| Ok(confirm_losses(losses));
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
        let report = RepairInfo::new(path.to_string(), &done, self.dry_run);
        output.done(&report, |out| write(&report, &path, output, out))?;
        conclude(&report, &path, done)
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
            kept: done.kept,
            kept_because: done.kept_because,
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
        })?;
        let Some(why) = report.kept_because else {
            return Ok(());
        };
        let earlier = counted(report.kept as u64, "earlier repair", "earlier repairs");
        let error = Error::conflict("repair", format!("{earlier} not undone: {why}"));
        Err(Failure::from(error.in_file(path))
            .warned()
            .hint("run `bandsaw repair --commit` to remove the remaining undo data"))
    }
}

fn texts(all: &[ErrorInfo]) -> Vec<String> {
    all.iter().map(|one| one.message.clone()).collect()
}

/// Number of losses that the text lists if a file has all of them.
const SHOWN: usize = 10;

/// Asks for permission to lose files.
fn confirm_losses(losses: &[VolumeLosses]) -> bool {
    for LossInfo { message, .. } in LossInfo::certain(losses) {
        eprintln!("loss: {}", crate::text::printable(&message));
    }
    eprint!("Make this repair nevertheless? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Writes the result for people.
fn write(
    report: &RepairInfo,
    path: &ImagePath,
    output: &Output,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(files) = report.rolled_back_files {
        let verb = if report.dry_run {
            "would roll back"
        } else {
            "rolled back"
        };
        let files = counted(files as u64, "file", "files");
        writeln!(out, "{verb}: an interrupted repair ({files} restored)")?;
    }
    let mut print = |what: &str, lines: &[String]| {
        lines
            .iter()
            .try_for_each(|line| writeln!(out, "{what}: {}", output.text(line)))
    };
    print("found", &texts(&report.problems))?;
    print(
        match (report.dry_run, report.is_stopped) {
            (true, _) => "would repair",
            (false, true) => "not repaired",
            (false, false) => "repaired",
        },
        &report
            .steps
            .iter()
            .map(|step| step.text.clone())
            .collect::<Vec<_>>(),
    )?;
    print("left", &texts(&report.refused))?;
    let shown = if report.losses_path.is_some() {
        SHOWN
    } else {
        usize::MAX
    };
    for (what, list) in [
        ("loss", &report.losses),
        ("possible loss", &report.possible_losses),
    ] {
        let messages = list.iter().take(shown).map(|lost| lost.message.clone());
        print(what, &messages.collect::<Vec<_>>())?;
        if let Some(more) = list.len().checked_sub(shown).filter(|more| *more > 0) {
            print(what, &[format!("{more} more")])?;
        }
    }
    print("undecided", &texts(report.undecided.as_slice()))?;
    let describe = |choice: &AlternativeInfo| {
        let options: Vec<_> = choice
            .assume
            .split(' ')
            .map(|text| format!("--assume {text}"))
            .collect();
        format!("{}  ({})", options.join(" "), choice.message)
    };
    let choices: Vec<_> = report.alternatives.iter().map(describe).collect();
    print("alternative", &choices)?;
    // Without a change, what remains is what was found.
    if report.outcome == code(Done::Repaired.name()) {
        let what = if report.dry_run {
            "would remain"
        } else {
            "remains"
        };
        print(what, &texts(&report.remaining))?;
    }
    if let Some(undo) = &report.undo_path {
        let undo = output.name(undo);
        writeln!(
            out,
            "undo data: {undo} (`bandsaw repair --undo` restores the image, `--commit` removes it)"
        )?;
    }
    if let Some(file) = &report.losses_path {
        let file = output.name(file);
        writeln!(out, "all losses: {file}")?;
    }
    if report.problems.is_empty()
        && report.steps.is_empty()
        && report.refused.is_empty()
        && report.rolled_back_files.is_none()
        && matches!(report.conclusion, Some("sound" | "unchecked"))
    {
        writeln!(out, "there is nothing to repair")?;
    }
    if report.is_stopped {
        writeln!(
            out,
            "{}: nothing was changed",
            output.name(&path.to_string())
        )?;
    }
    Ok(())
}

/// Fails if a decision is needed or problems remain.
fn conclude(report: &RepairInfo, path: &ImagePath, done: Repaired) -> Outcome {
    match done.outcome {
        Done::Undecided => {
            let error = Error::new(
                Kind::Undecided,
                "repair",
                "a decision is required; nothing was changed",
            );
            let hint = match report.alternatives.is_empty() {
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
                        report.losses.len() as u64,
                        "file or part of one",
                        "files or parts of files"
                    )
                ),
            );
            return Err(Failure::from(error.in_file(path))
                .hint("copy the image first, then use --accept-loss to repair it nevertheless"));
        }
        Done::Repaired | Done::NothingToDo => {}
    }
    let left = |what| {
        let left = counted(
            report.remaining.len() as u64,
            "problem remains",
            "problems remain",
        );
        Failure::from(Error::new(Kind::Corrupt, "repair", format!("{left} {what}")).in_file(path))
    };
    match done.conclusion {
        Some(Conclusion::Damaged) => Err(left("that cannot be repaired from the image").hint(
            match done.is_write_once {
                true => COPY_AGAIN,
                false => "copy the image before you try other programs on it",
            },
        )),
        Some(Conclusion::Unknown(error)) => Err(source::advise(error.in_file(path), path)),
        Some(Conclusion::Warned) => Err(left("that cannot be repaired from the image").warned()),
        Some(Conclusion::Unchecked | Conclusion::Sound) | None => match done.outcome {
            Done::NothingToDo => Err(Failure::nothing_to_do()),
            _ => Ok(()),
        },
    }
}
