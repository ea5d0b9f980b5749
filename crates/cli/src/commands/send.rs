//! `bandsaw send`: a state, to another folder or through a pipe.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bandsaw::address::shown;
use bandsaw::{Error, Kind};
use bandsaw_states::{BundleFolder, Have, Shelf, send, send_to_bucket, send_to_folder};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Failure, Outcome};
use crate::info_writer::exact;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::progress::Bar;
use crate::source;
use crate::text::counted;

/// Send a state of a bundle to another folder or machine
///
/// Sends the newest sound state of `bandsaw timemachine keep`, without contents that the target
/// has. To a folder, only changed bands are copied; run the command again to resume. To standard
/// output (-), --have names the list that `bandsaw receive --have` printed for the target: pass a new
/// one to resume.
///
/// In a bucket (s3://BUCKET/FOLDER) the states are snapshots of a bundle: every command that reads
/// accepts s3://BUCKET/FOLDER/NAME.sparsebundle@STATE. Run the command again to resume.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw send Mac.sparsebundle /mnt/usb
  bandsaw send Mac.sparsebundle - | ssh backup bandsaw receive /srv/states
  bandsaw send Mac.sparsebundle - --have have > stream
  bandsaw send Mac.sparsebundle s3://backups/nas")]
pub(crate) struct Send {
    /// The sparse bundle
    #[arg(value_name = "BUNDLE", value_hint = ValueHint::DirPath)]
    bundle: OsString,
    /// A folder of states, s3://BUCKET/FOLDER, or - for a pipe
    #[arg(value_name = "TARGET", value_hint = ValueHint::DirPath)]
    target: PathBuf,
    /// Send this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Use states in a folder outside of the bundle
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    states: Option<PathBuf>,
    /// Leave out contents of the list in this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    have: Option<PathBuf>,
    #[command(flatten)]
    network_args: NetworkArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct SendReport {
    path: String,
    state: String,
    /// The folder of the state that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    sent_files: u64,
    sent_size: u64,
}

impl Send {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let image = source::image(&self.bundle)?;
        let bundle = BundleFolder::open(Path::new(&image))?;
        let shelf = Shelf::of(&bundle, self.states.as_deref())?;
        let state = self.state.as_deref();
        let to_stdout = self.target.as_os_str() == "-";
        let output = &if to_stdout {
            output.aside()
        } else {
            output.clone()
        };
        let bar = Bar::new(output);
        let is_empty = shelf.list()?.is_empty();
        let no_state = || match is_empty {
            true => format!("run `bandsaw timemachine keep {image}` to keep one"),
            false => format!("run `bandsaw tm states {image}` to list the states"),
        };
        let (sent, target) = if let Some(place) = bucket(&self.target, bundle.name()?) {
            if self.have.is_some() {
                let message = "only for standard output; a bucket is looked through";
                return Err(Failure::usage("--have", message));
            }
            let open =
                |access, snapshot: Option<&str>| self.network_args.bucket(&place, access, snapshot);
            let sent = send_to_bucket(&shelf, state, &open, &bar)
                .map_err(|error| error.in_file(&place))
                .advise(Kind::NotFound, no_state)
                .advise(Kind::Cancelled, || {
                    "run the command again to resume".to_owned()
                })?;
            let target = format!("{}@{}", shown(&place), sent.id);
            (sent, Some(target))
        } else if to_stdout {
            if io::stdout().is_terminal() {
                let failure = Failure::usage("target", "the stream is not for a terminal");
                return Err(failure.hint("use a pipe, or name a folder"));
            }
            let have = self.have()?;
            let mut out = io::stdout().lock();
            let sent = send(&shelf, state, &have, &mut out, &bar)
                .map_err(|error| error.in_file(&image))
                .advise(Kind::NotFound, no_state)?;
            out.flush()?;
            (sent, None)
        } else {
            if self.have.is_some() {
                let message = "only for standard output; a folder is looked through";
                return Err(Failure::usage("--have", message));
            }
            let (sent, received) =
                send_to_folder(&shelf, state, bundle.name()?, &self.target, &bar)
                    .map_err(|error| error.in_file(&image))
                    .advise(Kind::NotFound, no_state)
                    .advise(Kind::Corrupt, || {
                        format!(
                            "run `bandsaw tm states {image} --verify`; if these states are whole, \
                             `bandsaw send {image} - | bandsaw receive {}` sends everything",
                            self.target.display()
                        )
                    })?;
            (sent, Some(received.path.display().to_string()))
        };
        drop(bar);
        let report = SendReport {
            path: image.to_string(),
            state: sent.id,
            target,
            sent_files: sent.files,
            sent_size: sent.size,
        };
        output.done(&report, |out| {
            writeln!(
                out,
                "sent {}: {}, {}",
                output.name(&report.state),
                counted(report.sent_files, "file", "files"),
                exact(report.sent_size)
            )
        })
    }

    fn have(&self) -> Outcome<Have> {
        let Some(path) = &self.have else {
            return Ok(Have::default());
        };
        let bytes =
            fs::read(path).map_err(|source| Error::io("--have", "read", source).in_file(path))?;
        let have = serde_json::from_slice(&bytes).map_err(|error| {
            let message = format!("not a list of `bandsaw receive --have`: {error}");
            Error::invalid("--have", message).in_file(path)
        });
        Ok(have?)
    }
}

/// Returns the address of the bundle in a bucket to which `target` leads. `None`: it leads elsewhere.
fn bucket(target: &Path, name: &str) -> Option<PathBuf> {
    let text = target.to_str().filter(|text| text.starts_with("s3://"))?;
    let extension = target.extension().and_then(|extension| extension.to_str());
    Some(match extension {
        Some("sparsebundle" | "backupbundle") => target.to_owned(),
        _ => {
            let name = name
                .replace('%', "%25")
                .replace(':', "%3A")
                .replace('@', "%40");
            PathBuf::from(format!("{}/{name}", text.trim_end_matches('/')))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_folder_or_a_bundle() {
        let place = |target: &str| bucket(Path::new(target), "Anna's Mac@1.sparsebundle");
        let found = |target: &str| place(target).unwrap().to_str().unwrap().to_owned();
        assert_eq!(
            found("s3://b/nas"),
            "s3://b/nas/Anna's Mac%401.sparsebundle"
        );
        assert_eq!(found("s3://b/"), "s3://b/Anna's Mac%401.sparsebundle");
        assert_eq!(found("s3://b/Mac.sparsebundle"), "s3://b/Mac.sparsebundle");
        for other in ["/mnt/usb", "-", "s3:/b", "https://b/a"] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
