//! Errors and findings in reports, in the words of the JSON vocabulary (`docs/json.md`).

use bandsaw::Error;
use bandsaw::error::Place;
use bandsaw::open::{CheckedLayer, Contents, Examination, Verdict};
use bandsaw::problem::{Problem, Severity};

use crate::failure::{code, kind_name, layer_code};
use crate::value::{Value, map};

/// Returns the error with its whole text.
pub(crate) fn described(error: &Error) -> Value {
    error_of(error, error.to_string(), error.file())
}

/// Returns the error with its message alone, where its place is shown beside it.
pub(crate) fn brief(error: &Error) -> Value {
    error_of(error, error.message().to_owned(), None)
}

fn error_of(error: &Error, message: String, path: Option<&str>) -> Value {
    let (offset, name) = place(error);
    map! {
        "kind": kind_name(error.kind()),
        "reason": error.reason().map(|reason| code(reason.name())),
        "message": message,
        "layer": layer_code(error.layer()),
        "path": path,
        "offset": offset,
        "name": name,
    }
}

fn place(error: &Error) -> (Option<u64>, Option<String>) {
    match error.place() {
        Place::None => (None, None),
        Place::Offset(offset) => (Some(*offset), None),
        Place::Name(name) => (None, Some(name.clone())),
    }
}

/// Returns the result of a check.
pub(crate) fn examination(path: &str, found: &Examination) -> Value {
    let problems = &found.problems;
    let mut sorted: Vec<_> = problems.listed().iter().collect();
    sorted.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    map! {
        "path": path,
        "worst": problems.worst().map(|worst| worst.to_string()),
        "conclusion": found.conclusion().name(),
        "damage_count": problems.count(Severity::Damage),
        "warning_count": problems.count(Severity::Warning),
        "note_count": problems.count(Severity::Note),
        "layers": found.layers.iter().map(layer).collect::<Vec<_>>(),
        "problems": sorted.into_iter().map(problem).collect::<Vec<_>>(),
        "omitted_count": problems.omitted(),
        "contents": found.contents.as_ref().map(Contents::name),
    }
}

fn layer(of: &CheckedLayer) -> Value {
    let (verdict, message) = match &of.verdict {
        Verdict::Checked => ("checked", None),
        Verdict::Broken => ("broken", None),
        Verdict::Unknown(error) => ("unknown", Some(error.message())),
        Verdict::Skipped => ("skipped", None),
    };
    map! {
        "description": of.layer.clone(),
        "verdict": verdict,
        "message": message,
    }
}

fn problem(of: &Problem) -> Value {
    let (offset, name) = place(&of.error);
    let cause = std::error::Error::source(&of.error).map(|cause| format!(": {cause}"));
    let mut paths = of.error.paths().map(str::to_owned);
    map! {
        "severity": of.severity.to_string(),
        "layer": layer_code(of.error.layer()),
        "within": of.error.file(),
        "offset": offset,
        "name": name,
        "volume_path": paths.next(),
        "other_volume_path": paths.next(),
        "message": format!("{}{}", of.error.message(), cause.unwrap_or_default()),
    }
}
