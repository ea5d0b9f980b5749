//! `bandsaw diagnose`: the reason why an image does not open, and remedies.

use std::ffi::OsString;
use std::path::Path;

use bandsaw::address::ImagePath;
use bandsaw::device::Access;
use bandsaw::open::Contents;
use bandsaw::ops::describe::{ErrorInfo, code, layer_code, messages};
use bandsaw::ops::diagnose::{Cause, diagnose};
use bandsaw::{Error, Kind, Reason};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::in_use;
use crate::output::{Output, Style};
use crate::progress::Bar;
use crate::source::{self, OpenArgs};

/// Explain why an image does not open
///
/// Opens the image layer by layer, checks its structure as `bandsaw check` does, and reports the
/// first problem with its layer, its cause and a remedy. It recognizes files that are not disk
/// images, truncated downloads, encrypted images, disks of other systems, damaged maps and
/// unreadable volumes. Nothing is changed. The exit code is that of opening the image or, if it
/// opens, that of `bandsaw check`, except that it is 0 for warnings and if one of the two lists of
/// a sparse bundle is damaged.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw diagnose App.dmg                     macOS says \"no mountable file systems\"
  bandsaw diagnose --json App.dmg              for programs; `code` names the cause
  bandsaw diagnose --passfile key Secret.dmg")]
pub(crate) struct Diagnose {
    /// The image to examine
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Diagnosis {
    path: String,
    layers: Vec<LayerJson>,
    /// Absent if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<CauseJson>,
    /// The verdict on the image, as `check` gives it; absent if it cannot be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    conclusion: Option<&'static str>,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    contents: Option<&'static str>,
}

#[derive(Serialize)]
struct LayerJson {
    layer: String,
    description: String,
    #[serde(skip)]
    name: String,
}

#[derive(Serialize)]
struct CauseJson {
    code: String,
    layer: String,
    message: String,
    #[serde(serialize_with = "messages")]
    advice: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
    #[serde(skip)]
    name: &'static str,
}

impl Diagnose {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let bar = Bar::new(output);
        let found = diagnose(
            Path::new(&path),
            &self.opening.options(Access::ReadOnly),
            &bar,
        )?;
        drop(bar);
        let check = found.check.as_ref();
        let report = Diagnosis {
            path: path.to_string(),
            layers: found
                .layers
                .into_iter()
                .map(|(name, description)| LayerJson {
                    layer: layer_code(&name),
                    description,
                    name,
                })
                .collect(),
            cause: found
                .cause
                .as_ref()
                .map(|cause| CauseJson::new(cause, &path)),
            conclusion: check.map(|check| check.conclusion().name()),
            contents: check
                .and_then(|check| check.contents.as_ref())
                .map(Contents::name),
        };
        output.result(&report, |out| {
            writeln!(
                out,
                "{}",
                output.paint(Style::Bold, &output.name(&path.to_string()))
            )?;
            for LayerJson {
                name, description, ..
            } in &report.layers
            {
                writeln!(
                    out,
                    "  {}{}",
                    output.paint(Style::Dim, &format!("{name:15}")),
                    output.text(description)
                )?;
            }
            let Some(cause) = &report.cause else {
                writeln!(out, "the image opens, and no problem was found")?;
                return writeln!(out, "  * run `bandsaw verify` to verify its checksums");
            };
            writeln!(
                out,
                "{}: it {}",
                output.paint(Style::Problem, cause.name),
                output.text(&cause.message)
            )?;
            cause
                .advice
                .iter()
                .try_for_each(|advice| writeln!(out, "  * {}", output.text(advice)))
        })?;
        match found.cause {
            Some(cause) if !cause.opens => {
                let failure = failure(cause, &path);
                Err(match failure.reason() {
                    // Their hint is this command.
                    Some(Reason::UnknownFormat | Reason::UnknownContents | Reason::Truncated) => {
                        failure.without_hint()
                    }
                    _ => failure,
                })
            }
            _ => Ok(()),
        }
    }
}

impl CauseJson {
    fn new(cause: &Cause, path: &ImagePath) -> Self {
        let own = match cause.code {
            "in-use" => in_use::entry_of(path.as_path()),
            _ => None,
        };
        Self {
            code: code(cause.code),
            layer: layer_code(cause.layer),
            name: cause.layer,
            message: own.as_ref().map_or_else(
                || cause.what.clone(),
                |entry| format!("is in use by {}", in_use::user(entry)),
            ),
            advice: own.as_ref().map_or_else(
                || cause.advice.clone(),
                |entry| vec![in_use::way_out(entry)],
            ),
            error: cause.error.as_ref().map(ErrorInfo::new),
        }
    }
}

/// Returns the failure to open the image, or one for a path that is no image.
fn failure(cause: Cause, path: &ImagePath) -> Failure {
    let kind = match cause.code {
        "missing" => Kind::NotFound,
        "empty" | "unfinished-download" => Kind::Corrupt,
        _ => Kind::Unsupported,
    };
    let said = || Error::new(kind, "diagnose", cause.what.clone()).in_file(path);
    Failure::from(cause.error.unwrap_or_else(said))
}
