//! The result of a repair.

use std::path::PathBuf;

use serde::Serialize;

use super::error::{ErrorInfo, code, layer_code};
use crate::address::shown;
use crate::decision::Alternative;
use crate::fs::{Loss, RepairStep};
use crate::open::{Conclusion, Contents};
use crate::ops::repair::{Outcome, Repaired, VolumeLosses};
use crate::problem::{Problem, Severity};

/// The result of a repair.
#[derive(Debug, Serialize)]
pub struct RepairInfo {
    pub path: String,
    /// True if nothing was written.
    pub dry_run: bool,
    /// `repaired`, `nothing_to_do`, `undecided`, `loss_refused`.
    pub outcome: String,
    /// True if it stopped for a decision: nothing was written.
    #[serde(skip)]
    pub is_stopped: bool,
    /// Number of files restored by rolling back an interrupted repair first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolled_back_files: Option<usize>,
    /// Damage and warnings found before the repair.
    pub problems: Vec<ErrorInfo>,
    /// Repairs that were made, or would be.
    pub steps: Vec<RepairStepInfo>,
    /// Problems that cannot be repaired for lack of information.
    pub refused: Vec<ErrorInfo>,
    /// The disagreement that stopped the repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecided: Option<ErrorInfo>,
    /// The alternatives for that disagreement.
    pub alternatives: Vec<AlternativeInfo>,
    /// Files, or parts of files, that were readable and are not kept.
    pub losses: Vec<LossInfo>,
    /// Possible remains of an older state that are not kept.
    pub possible_losses: Vec<LossInfo>,
    /// The folder with the undo data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_path: Option<String>,
    /// The text file with all losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub losses_path: Option<String>,
    /// Damage and warnings found after the repair.
    pub remaining: Vec<ErrorInfo>,
    /// The verdict on the image afterwards, as `check` gives it; absent after a stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conclusion: Option<&'static str>,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk could not be read, and after a
    /// stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<&'static str>,
}

/// A choice that ends a disagreement.
#[derive(Debug, Serialize)]
pub struct AlternativeInfo {
    /// The assumption that chooses it.
    pub assume: String,
    /// The evidence for it.
    pub message: String,
}

/// A step of a repair.
#[derive(Debug, Serialize)]
pub struct RepairStepInfo {
    pub layer: String,
    /// The text for people.
    pub message: String,
    /// The paths, in the image or volume, of the files that it concerns.
    pub affected: Vec<String>,
    /// The text for people, with the layer and the first of these files.
    #[serde(skip)]
    pub text: String,
}

/// A file, or a part of one, that is not kept.
#[derive(Debug, Serialize)]
pub struct LossInfo {
    pub volume: String,
    pub volume_path: String,
    /// `file`, `folder`, `entries`, `contents`, `end`, `shared`, `resource_fork`, `unowned`,
    /// `attributes`.
    pub loss: String,
    /// The text for people.
    pub message: String,
}

impl RepairInfo {
    /// Returns what was done with the image of this name.
    pub fn new(image: String, done: &Repaired, dry_run: bool) -> Self {
        fn serious<'a>(problems: impl IntoIterator<Item = &'a Problem>) -> Vec<ErrorInfo> {
            let problems = problems.into_iter();
            let serious = problems.filter(|problem| problem.severity > Severity::Note);
            serious
                .map(|problem| ErrorInfo::new(&problem.error))
                .collect()
        }
        let choice = |one: &Alternative| AlternativeInfo {
            assume: one.assume.clone(),
            message: one.evidence.clone(),
        };
        let step = |(layer, step): &(&'static str, RepairStep)| RepairStepInfo {
            layer: layer_code(layer),
            message: step.text.clone(),
            affected: step.files.clone(),
            text: format!("{layer}: {step}"),
        };
        let path = |path: &PathBuf| shown(path);
        Self {
            path: image,
            dry_run,
            outcome: code(done.outcome.name()),
            is_stopped: matches!(done.outcome, Outcome::Undecided | Outcome::LossRefused),
            rolled_back_files: done.rolled_back.as_ref().map(|done| done.files),
            problems: serious(done.found.listed()),
            refused: done.refused.iter().map(ErrorInfo::new).collect(),
            undecided: done.undecided.as_ref().map(|error| ErrorInfo {
                message: format!("{}: {}", error.layer(), error.message()),
                ..ErrorInfo::new(error)
            }),
            alternatives: done.alternatives().iter().map(choice).collect(),
            steps: done.steps.iter().map(step).collect(),
            losses: LossInfo::certain(&done.losses),
            possible_losses: LossInfo::all(&done.losses, |volume| &volume.losses.possible),
            undo_path: done.undo.as_ref().map(path),
            losses_path: done.losses_file.as_ref().map(path),
            remaining: serious(&done.remaining),
            conclusion: done.conclusion.as_ref().map(Conclusion::name),
            contents: done.contents.as_ref().map(Contents::name),
        }
    }
}

impl LossInfo {
    /// Returns what was readable, and is not kept.
    pub fn certain(all: &[VolumeLosses]) -> Vec<Self> {
        Self::all(all, |volume| &volume.losses.certain)
    }

    fn all(all: &[VolumeLosses], list: fn(&VolumeLosses) -> &[Loss]) -> Vec<Self> {
        let of_volume = |volume: &VolumeLosses| {
            let lost = |loss: &Loss| Self {
                volume: volume.volume.clone(),
                volume_path: loss.path.clone(),
                loss: code(loss.what.name()),
                message: format!("{}: {loss}", volume.volume),
            };
            list(volume).iter().map(lost).collect::<Vec<_>>()
        };
        all.iter().flat_map(of_volume).collect()
    }
}
