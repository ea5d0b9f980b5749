//! Repairs of images, their dry runs, and the questions that they ask.

use bandsaw::decision::Assumptions;
use bandsaw::fs::{Loss, RepairStep};
use bandsaw::open::Conclusion;
use bandsaw::ops::repair::{self, Mode, Outcome, Repaired, VolumeLosses};
use bandsaw::problem::Severity;
use bandsaw::progress::Progress;
use bandsaw::{Result, size};

use super::{Change, ChangeWork};
use crate::job::JobResult;
use crate::names::visible;
use crate::open_images::options;
use crate::text;

/// Losses that can be accepted on a page; the list is compared.
const MAX_LOSSES: usize = 100_000;

impl ChangeWork {
    pub(super) fn chosen(&self, mode: Mode) -> repair::Options<'static> {
        repair::Options {
            mode,
            temporary: self.app.permissions.temporary.clone(),
            ..repair::Options::default()
        }
    }

    pub(super) fn repaired(
        &self,
        mode: Mode,
        assume: &[String],
        accepted: Option<&[String]>,
        progress: &dyn Progress,
    ) -> Result<Repaired> {
        let mut assumptions = Assumptions::default();
        assume.iter().try_for_each(|text| assumptions.add(text))?;
        // Other losses than those on the page were not accepted.
        let confirm = |losses: &[VolumeLosses]| {
            Ok(accepted.is_some_and(|accepted| accepted == certain(losses)))
        };
        let chosen = repair::Options {
            assume: assumptions,
            confirm: Some(&confirm),
            ..self.chosen(mode)
        };
        let options = options(self.keys.as_ref());
        repair::repair(&self.place.path(), &options, &chosen, progress)
    }

    /// Returns the result of a dry run, with the questions that it asks.
    pub(super) fn repair_plan(&self, done: Repaired, assume: &[String]) -> JobResult {
        let choices = done.alternatives().iter().map(|choice| {
            let words = choice.assume.split(' ').map(str::to_owned);
            let all: Vec<_> = assume.iter().cloned().chain(words).collect();
            (all, visible(&self.place.readable(&choice.evidence)))
        });
        let alternatives: Vec<_> = choices.collect();
        let (outcome, has_rollback) = (done.outcome, done.rolled_back.is_some());
        let losses = certain(&done.losses);
        let mut result = self.repair_result(done);
        result.conclusion = match outcome {
            Outcome::NothingToDo if has_rollback => text::WOULD_ROLL_BACK.to_owned(),
            Outcome::NothingToDo => text::NOTHING_TO_REPAIR.to_owned(),
            Outcome::Repaired => format!("Repairs that would be made: {}.", result.steps.len()),
            Outcome::Undecided => text::DECIDE.to_owned(),
            Outcome::LossRefused => format!(
                "Files or parts of files that would be lost: {}.",
                losses.len()
            ),
        };
        result.is_failure = false;
        result.alternatives = alternatives;
        result.next = match outcome {
            Outcome::NothingToDo if !has_rollback => None,
            Outcome::Undecided => None,
            Outcome::LossRefused if losses.len() > MAX_LOSSES => {
                result.advice.push(text::MANY_LOSSES.to_owned());
                None
            }
            Outcome::LossRefused => Some(Change::Repair {
                assume: assume.to_vec(),
                accepted: Some(losses),
            }),
            Outcome::NothingToDo | Outcome::Repaired => Some(Change::Repair {
                assume: assume.to_vec(),
                accepted: None,
            }),
        };
        result
    }

    pub(super) fn repair_result(&self, done: Repaired) -> JobResult {
        let readable = |text: &str| visible(&self.place.readable(text));
        let mut result = JobResult {
            conclusion: match done.outcome {
                Outcome::NothingToDo => text::NOTHING_TO_REPAIR.to_owned(),
                Outcome::Repaired => format!("Repairs made: {}.", done.steps.len()),
                Outcome::Undecided => text::UNDECIDED.to_owned(),
                Outcome::LossRefused => text::OTHER_LOSSES.to_owned(),
            },
            is_sound: matches!(
                done.conclusion,
                Some(Conclusion::Sound | Conclusion::Unchecked)
            ),
            is_failure: matches!(done.outcome, Outcome::Undecided | Outcome::LossRefused),
            ..JobResult::default()
        };
        if let Some(undone) = &done.rolled_back {
            let files = size::counted(undone.files as u64, "file", "files");
            result.add_fact("An interrupted repair", format!("rolled back, {files}"));
        }
        let step =
            |(layer, step): &(&'static str, RepairStep)| readable(&format!("{layer}: {step}"));
        result.steps = done.steps.iter().map(step).collect();
        result.losses = certain(&done.losses);
        result.possible_losses = listed(&done.losses, |volume| &volume.losses.possible);
        for error in &done.refused {
            let text = readable(&error.to_string());
            result
                .findings
                .push((Severity::Damage, format!("left: {text}")));
        }
        if let Some(error) = &done.undecided {
            let text = readable(&format!("{}: {}", error.layer(), error.message()));
            result.findings.push((Severity::Damage, text));
        }
        for problem in &done.remaining {
            if problem.severity > Severity::Note {
                let text = readable(&problem.error.to_string());
                result.findings.push((problem.severity, text));
            }
        }
        if let Some(undo) = &done.undo {
            let undo = readable(&undo.display().to_string());
            result.undo = format!("“Undo repairs” on the page of changes; data: {undo}");
            result.add_fact("Undo data", undo);
        }
        if let Some(file) = &done.losses_file {
            result.add_fact("List of losses", readable(&file.display().to_string()));
        }
        result
    }
}

/// Returns the certain losses of all volumes.
fn certain(all: &[VolumeLosses]) -> Vec<String> {
    listed(all, |volume| &volume.losses.certain)
}

fn listed(all: &[VolumeLosses], list: fn(&VolumeLosses) -> &[Loss]) -> Vec<String> {
    let of_volume = |volume: &VolumeLosses| {
        let text = |loss: &Loss| visible(&format!("{}: {loss}", volume.volume));
        list(volume).iter().map(text).collect::<Vec<_>>()
    };
    all.iter().flat_map(of_volume).collect()
}
