//! `bandsaw timemachine`: Time Machine backups, and states of their bundle to which it can return.

mod backups;
mod cat;
mod convert;
mod create;
mod diff;
mod find;
mod forget;
mod keep;
mod list;
mod ls;
#[cfg(target_os = "linux")]
mod mount;
mod reset_verification;
mod restore;
mod roll_back;
mod states;
mod status;
mod versions;

#[cfg(target_os = "linux")]
pub(crate) use backups::host_folder;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bandsaw::Kind;
use bandsaw::fs::Timestamp;
use bandsaw_states::{BundleFolder, Shelf};
use clap::{Args, Subcommand, ValueHint};

use super::run_verb;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::source;

/// Read Time Machine backups, and keep states of a bundle
///
/// Backups are read on HFS+ and APFS, in any image or disk. DATE is for example 2026-11-01,
/// "2026-11-01 14:30", latest, yesterday or "3 days ago".
///
/// A state is a bundle of its own, made while nobody uses the bundle: after a backup. It lies in
/// .bandsaw/states/DATE inside the bundle, or in a folder of --states. Bands that have not changed
/// since the last state are shared with it, never with the bundle itself. If macOS says that it must
/// create a new backup, roll-back returns the bundle to its newest sound state.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw timemachine list Mac.sparsebundle
  bandsaw tm list Mac.sparsebundle                           tm is short for it
  bandsaw tm restore Mac.sparsebundle latest:/Users/anna out
  bandsaw tm keep Mac.sparsebundle                           after each backup
  bandsaw tm forget Mac.sparsebundle --keep-daily 7 --keep-weekly 8
  bandsaw tm roll-back Mac.sparsebundle --dry-run            what would be lost
  bandsaw tm roll-back Mac.sparsebundle --undo")]
pub(crate) struct TimeMachine {
    #[command(subcommand)]
    verb: TimeMachineVerb,
}

#[derive(Debug, Subcommand)]
enum TimeMachineVerb {
    /// List the backups by date, the oldest first
    List(Box<list::ListBackups>),
    /// List a folder of a backup
    Ls(Box<ls::Ls>),
    /// Print files of a backup
    Cat(Box<cat::Cat>),
    /// Find files and folders by name over all dates
    Find(Box<find::Find>),
    /// List the versions of a file over all dates
    Versions(Box<versions::Versions>),
    /// Show the differences between two dates
    Diff(Box<diff::Diff>),
    /// Restore files and folders of a backup
    Restore(Box<restore::Restore>),
    /// Mount all backups on a folder, read-only
    #[cfg(target_os = "linux")]
    Mount(Box<mount::Mount>),
    /// Convert backups on HFS+ to APFS, as an experiment
    Convert(Box<convert::Convert>),
    /// Create a bundle as a destination of backups
    Create(create::CreateDestination),
    /// Keep the present state of a bundle
    Keep(Box<keep::Keep>),
    /// List the states of a bundle, the oldest first
    States(states::States),
    /// Say in one line what to do next for a bundle
    Status(status::Status),
    /// Remove old states by a policy
    Forget(forget::Forget),
    /// Return a bundle to one of its states
    RollBack(roll_back::RollBack),
    /// Make macOS forget that it refused a bundle
    ResetVerification(reset_verification::ResetVerification),
}

impl TimeMachine {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        run_verb!(&self.verb, output, TimeMachineVerb:
            List Ls Cat Find Versions Diff Restore Convert Create Keep States Status Forget RollBack
            ResetVerification
            #[cfg(target_os = "linux")] Mount
            ;
        )
    }
}

/// A bundle and the place of its states.
#[derive(Debug, Args)]
struct StatesArgs {
    /// The sparse bundle
    #[arg(value_name = "BUNDLE", value_hint = ValueHint::DirPath)]
    bundle: OsString,
    /// Use states in a folder outside of the bundle
    ///
    /// They are in a folder there with the name of the bundle.
    #[arg(long, alias = "to", value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    states: Option<PathBuf>,
}

impl StatesArgs {
    fn open(&self) -> Outcome<(BundleFolder, Shelf)> {
        let bundle = open(&self.bundle)?;
        let shelf = Shelf::of(&bundle, self.states.as_deref())?;
        Ok((bundle, shelf))
    }
}

/// Opens a bundle of this host.
fn open(bundle: &OsString) -> Outcome<BundleFolder> {
    let image = source::image(bundle)?;
    BundleFolder::open(Path::new(&image)).map_err(|error| match error.kind() {
        Kind::Unsupported => Failure::from(error).hint("name the folder of a sparse bundle"),
        _ => error.into(),
    })
}

/// Returns a time in nanoseconds since 1970 in whole seconds.
fn timestamp(nanos: i64) -> Timestamp {
    Timestamp::from_seconds(nanos.div_euclid(1_000_000_000))
}
