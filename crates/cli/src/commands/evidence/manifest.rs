//! `bandsaw evidence manifest`: every file of every volume and snapshot, with hashes.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use bandsaw::ops::describe::{ErrorInfo, Message};
use bandsaw::store::FileMode;
use bandsaw_evidence::{ManifestFormat, write_manifest};
use clap::{Args, ValueHint};
use serde::Serialize;

use super::super::diff::unread;
use crate::failure::Outcome;
use crate::new_file::NewFile;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::{self, OpenArgs};
use crate::text::counted;

/// Write a manifest of all files of an image, with hashes
///
/// It has a line of JSON for each file and folder of each volume and snapshot: times, sizes, owner,
/// SHA-256 and MD5, the place on the disk, and extended attributes. The last line has a hash of all
/// others. A file that cannot be read has the reason in its line, and the command fails at the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw evidence manifest disk.img -o disk.jsonl
  bandsaw evidence manifest disk.img --bodyfile -o disk.body")]
pub(super) struct Manifest {
    /// The image to list
    #[arg(value_name = "IMAGE", value_hint = ValueHint::AnyPath)]
    image: OsString,
    /// Write the manifest to this file; - for standard output
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Write a bodyfile for sleuthkit instead of JSON
    ///
    /// `bandsaw evidence verify` and `timeline` need the manifest in JSON.
    #[arg(long)]
    bodyfile: bool,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ManifestReport {
    path: String,
    manifest_path: String,
    volumes: u64,
    files: u64,
    unreadable: u64,
    notes: Vec<Message>,
    problems: Vec<ErrorInfo>,
}

impl Manifest {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let path = source::image(&self.image)?;
        let to_stdout = self.output.as_os_str() == "-";
        if to_stdout {
            output.refuse_json("evidence manifest to standard output")?;
        }
        let image = self.opening.read(&path, output)?;
        let format = match self.bodyfile {
            true => ManifestFormat::Bodyfile,
            false => ManifestFormat::JsonLines,
        };
        let keys = Some(self.opening.keys());
        let tool = concat!("bandsaw ", env!("CARGO_PKG_VERSION"));
        let bar = Bar::new(output);
        let write = |out: &mut dyn Write| {
            let done = write_manifest(&image, keys, format, tool, out, &bar);
            done.map_err(|error| source::advise(error.in_file(&path), &path))
        };
        let done = match to_stdout {
            true => {
                let mut out = output.stdout();
                let done = write(&mut out)?;
                out.flush()?;
                done
            }
            false => {
                // It lists names in the image, so it is no more open than the image.
                let mode = FileMode::of(image.path()).unwrap_or(FileMode::PRIVATE);
                let mut file = NewFile::create_as(&self.output, self.overwrite, mode)?;
                let done = write(&mut file)?;
                file.finish()?;
                done
            }
        };
        drop(bar);
        let notes: Vec<_> = done
            .skipped
            .iter()
            .map(|volume| format!("not read, as its format is not supported: {volume}"))
            .collect();
        if !to_stdout {
            let report = ManifestReport {
                path: path.to_string(),
                manifest_path: self.output.to_string_lossy().into_owned(),
                volumes: done.volumes,
                files: done.files,
                unreadable: done.problem_count,
                notes: notes.iter().cloned().map(Message::new).collect(),
                problems: done.problems.iter().map(ErrorInfo::new).collect(),
            };
            output.done(&report, |out| {
                writeln!(
                    out,
                    "{}: {}, {}",
                    output.name(&report.manifest_path),
                    counted(done.volumes, "volume or snapshot", "volumes and snapshots"),
                    counted(done.files, "object", "objects")
                )
            })?;
        }
        if !output.json() {
            notes.iter().for_each(|note| output.warn(note));
        }
        unread(&done.problems, output)
    }
}
