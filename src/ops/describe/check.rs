//! The result of a check.

use serde::Serialize;

use super::error::{layer_code, place};
use crate::open::{CheckedLayer, Contents, Examination, LayerVerdict};
use crate::problem::{Problem, Severity};

/// The result of a check of an image.
#[derive(Debug, Serialize)]
pub struct CheckInfo {
    pub path: String,
    /// `damage`, `warning`, `note`; absent if nothing was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<String>,
    /// `damaged`, `unknown`, `warned`, `unchecked` or `sound`.
    pub conclusion: &'static str,
    pub damage_count: u64,
    pub warning_count: u64,
    pub note_count: u64,
    /// The layers, from the bottom.
    pub layers: Vec<CheckedLayerInfo>,
    /// The problems, the most severe first.
    pub problems: Vec<ProblemInfo>,
    /// Problems that are counted but not listed.
    pub omitted_count: u64,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<&'static str>,
}

/// A layer that was checked, as far as it could be.
#[derive(Debug, Serialize)]
pub struct CheckedLayerInfo {
    /// The layer, for people.
    pub description: String,
    /// `checked`, `broken`, `unknown` or `skipped`.
    pub verdict: &'static str,
    /// The reason why the verdict is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A problem that a check found.
#[derive(Debug, Serialize)]
pub struct ProblemInfo {
    /// `damage`, `warning` or `note`.
    pub severity: String,
    pub layer: String,
    /// The name of the layer for people.
    #[serde(skip)]
    pub layer_name: &'static str,
    /// The file or volume of the image that contains the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// The position in the layer, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The name of the item in the layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path in the volume of the file or folder that the problem concerns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_path: Option<String>,
    /// The other file that uses the same blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_volume_path: Option<String>,
    /// The text for people.
    pub message: String,
}

impl CheckInfo {
    /// Returns what was found in the image of this name.
    pub fn new(image: String, found: &Examination) -> Self {
        let problems = &found.problems;
        let mut sorted: Vec<_> = problems.listed().iter().collect();
        sorted.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        Self {
            path: image,
            worst: problems.worst().map(|worst| worst.to_string()),
            conclusion: found.conclusion().name(),
            damage_count: problems.count(Severity::Damage),
            warning_count: problems.count(Severity::Warning),
            note_count: problems.count(Severity::Note),
            layers: found.layers.iter().map(CheckedLayerInfo::new).collect(),
            problems: sorted.into_iter().map(ProblemInfo::new).collect(),
            omitted_count: problems.omitted(),
            contents: found.contents.as_ref().map(Contents::name),
        }
    }
}

impl CheckedLayerInfo {
    pub(super) fn new(of: &CheckedLayer) -> Self {
        let (verdict, message) = match &of.verdict {
            LayerVerdict::Checked => ("checked", None),
            LayerVerdict::Broken => ("broken", None),
            LayerVerdict::Unknown(error) => ("unknown", Some(error.message().to_owned())),
            LayerVerdict::Skipped => ("skipped", None),
        };
        Self {
            description: of.layer.clone(),
            verdict,
            message,
        }
    }
}

impl ProblemInfo {
    pub(super) fn new(problem: &Problem) -> Self {
        let error = &problem.error;
        let (offset, name) = place(error);
        let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
        let mut paths = error.paths().map(str::to_owned);
        Self {
            severity: problem.severity.to_string(),
            layer: layer_code(error.layer()),
            layer_name: error.layer(),
            within: error.part().or(error.file()).map(str::to_owned),
            offset,
            name,
            volume_path: paths.next(),
            other_volume_path: paths.next(),
            message: format!("{}{}", error.message(), cause.unwrap_or_default()),
        }
    }
}
