//! `bandsaw send`: a state, to another folder or through a pipe.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Kind};
use bandsaw_states::{BundleFolder, Have, Shelf, send, send_to_folder};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Failure, Outcome};
use crate::info_text::exact;
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
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw send Mac.sparsebundle /mnt/usb
  bandsaw send Mac.sparsebundle - | ssh backup bandsaw receive /srv/states
  bandsaw send Mac.sparsebundle - --have have > stream")]
pub(crate) struct Send {
    /// The sparse bundle
    #[arg(value_name = "BUNDLE", value_hint = ValueHint::DirPath)]
    bundle: OsString,
    /// A folder of states, or - for standard output
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
        let (sent, target) = if to_stdout {
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
