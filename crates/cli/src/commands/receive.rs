//! `bandsaw receive`: a state from a pipe.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::Kind;
use bandsaw::address::shown;
use bandsaw_states::{Received, have, receive, receive_from_bucket};
use clap::{Args, ValueHint};
use serde::Serialize;

use crate::failure::{Advise, Failure, Outcome};
use crate::info_writer::exact;
use crate::network_args::NetworkArgs;
use crate::output::Output;
use crate::progress::Bar;
use crate::text::counted;

/// Receive a state that `bandsaw send` wrote
///
/// Reads a stream from standard input and stores the state in a folder named after its bundle. It
/// gets its name once every file of it was read again and has its hash. After an interruption, what
/// arrived is kept: pass a new list of --have to `bandsaw send` to resume.
///
/// With --from a state is fetched from a bucket, without contents that FOLDER has. Run the command
/// again to resume.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw receive /srv/states < stream
  bandsaw receive /srv/states --have Mac.sparsebundle > have   for bandsaw send --have
  bandsaw receive /srv/states --from s3://backups/nas/Mac.sparsebundle")]
pub(crate) struct Receive {
    /// The folder of states
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Print the list of contents that FOLDER has of this bundle
    ///
    /// The list is for `bandsaw send --have`, which leaves these contents out. NAME is the name of
    /// the bundle, as Mac.sparsebundle.
    #[arg(long, value_name = "NAME")]
    have: Option<OsString>,
    /// Fetch a state that `bandsaw send` has put into a bucket
    ///
    /// BUNDLE is its address, as s3://backups/nas/Mac.sparsebundle. The default is the state that was sent last.
    #[arg(long, value_name = "BUNDLE", conflicts_with = "have")]
    from: Option<PathBuf>,
    /// Fetch this state
    #[arg(long, value_name = "STATE", requires = "from")]
    state: Option<String>,
    #[command(flatten)]
    network_args: NetworkArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ReceiveReport {
    path: String,
    bundle: String,
    state: String,
    received_size: u64,
    shared_files: u64,
}

impl Receive {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        let bar = Bar::new(output);
        if let Some(name) = &self.have {
            let name = name.to_str();
            let name = name.ok_or_else(|| Failure::usage("--have", "the name is not UTF-8"))?;
            let have = have(&self.folder, name, &bar)?;
            drop(bar);
            let text = serde_json::to_string(&have).map_err(io::Error::from)?;
            return output.result(&have, |out| writeln!(out, "{text}"));
        }
        let done = match &self.from {
            Some(from) => self.fetch(from, &bar)?,
            None => receive(&self.folder, &mut io::stdin().lock(), &bar)
                .map_err(|error| error.in_file(&self.folder))
                .advise(Kind::Corrupt, || {
                    "send it again; --have leaves out what arrived".to_owned()
                })
                .advise(Kind::Cancelled, || {
                    "send it again; --have leaves out what arrived".to_owned()
                })?,
        };
        drop(bar);
        let report = ReceiveReport {
            path: done.path.display().to_string(),
            bundle: done.bundle,
            state: done.id,
            received_size: done.size,
            shared_files: done.shared_files,
        };
        output.done(&report, |out| {
            writeln!(
                out,
                "received {}: {}, {} shared with earlier states",
                output.name(&report.path),
                exact(report.received_size),
                counted(report.shared_files, "file", "files")
            )
        })
    }

    /// Fetches a state from a bucket.
    fn fetch(&self, from: &Path, bar: &Bar) -> Outcome<Received> {
        let open =
            |access, snapshot: Option<&str>| self.network_args.bucket(from, access, snapshot);
        let state = self.state.as_deref();
        let fetched = receive_from_bucket(&open, state, &self.folder, bar)
            .map_err(|error| error.in_file(from))
            .advise(Kind::NotFound, || {
                format!(
                    "run `bandsaw snapshot list {}` to list the states",
                    shown(from)
                )
            })
            .advise(Kind::Cancelled, || {
                "run the command again to resume".to_owned()
            })?;
        Ok(fetched.1)
    }
}
