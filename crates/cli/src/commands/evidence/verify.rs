//! `bandsaw evidence verify`: an image compared with a manifest.

use std::ffi::OsString;
use std::path::PathBuf;

use bandsaw_evidence::{Mismatch, verify};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Compare an image with a manifest of its files
///
/// Each difference is a line: the file, and the members of its record that differ. The exit code is 11 if
/// there are any. A manifest that is cut or damaged is an error, and nothing is compared with it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw evidence verify disk.jsonl disk.img")]
pub(super) struct Verify {
    /// The manifest that `bandsaw evidence manifest` wrote
    #[arg(value_name = "MANIFEST", value_hint = ValueHint::FilePath)]
    manifest: PathBuf,
    /// The image to compare
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct VerifyReport {
    path: String,
    manifest_path: String,
    volumes: u64,
    files: u64,
    differences: Vec<MismatchJson>,
}

#[derive(Serialize)]
struct MismatchJson {
    /// `added`, `removed` or `changed`.
    kind: &'static str,
    /// Name of the volume, with its snapshot; empty for the disk.
    volume: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_path: Option<String>,
    fields: Vec<String>,
}

impl Verify {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let mut manifest = super::open(&self.manifest)?;
        let image = self.opening.read(&path, output)?;
        let keys = Some(self.opening.keys());
        let mut differences = Vec::new();
        let bar = Bar::new(output);
        let done = verify(
            &mut manifest,
            &self.manifest,
            &image,
            keys,
            &mut |found| {
                differences.push(found);
                Ok(())
            },
            &bar,
        );
        drop(bar);
        let done = done.map_err(|error| source::advise(error.in_file(&path), &path))?;
        let report = VerifyReport {
            path: path.to_string(),
            manifest_path: self.manifest.to_string_lossy().into_owned(),
            volumes: done.volumes,
            files: done.files,
            differences: differences.iter().map(MismatchJson::new).collect(),
        };
        output.result(&report, |out| {
            for one in &differences {
                let place = match (&one.path, one.volume.is_empty()) {
                    (Some(path), _) => format!("{}:{path}", one.volume),
                    (None, true) => "the disk".to_owned(),
                    (None, false) => one.volume.clone(),
                };
                let fields = match one.fields.is_empty() {
                    true => String::new(),
                    false => format!("  ({})", one.fields.join(", ")),
                };
                let kind = one.kind.name();
                writeln!(out, "{kind:<8} {}{fields}", output.name(&place))?;
            }
            if differences.is_empty() {
                let files = counted(done.files, "object is", "objects are");
                writeln!(out, "{files} as in the manifest")?;
            }
            Ok(())
        })?;
        match differences.is_empty() {
            true => Ok(()),
            false => Err(Failure::differs()),
        }
    }
}

impl MismatchJson {
    fn new(of: &Mismatch) -> Self {
        Self {
            kind: of.kind.name(),
            volume: of.volume.clone(),
            volume_path: of.path.clone(),
            fields: of.fields.clone(),
        }
    }
}
