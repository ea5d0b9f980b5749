//! `bandsaw timemachine keep`: a new state.

use std::path::Path;

use bandsaw::device::Access;
use bandsaw::open;
use bandsaw::{Error, Kind};
use bandsaw_states::{KeepOptions, Soundness, keep, plan_keep};
use clap::Args;
use serde::Serialize;

use super::{StatesArgs, timestamp};
use crate::failure::{Advise, Failure, Outcome};
use crate::info_writer::exact;
use crate::output::Output;
use crate::progress::Bar;
use crate::source::OpenArgs;
use crate::text::rfc3339;

/// Keep the present state of a bundle
///
/// Run it after a backup: the bundle must not be in use, and must not change meanwhile. Storage is
/// shared with the bundle where the file system can (btrfs, XFS, APFS). Elsewhere bands that changed
/// since the last state are copied, and the first state is a copy of the whole bundle, which
/// --whole-copy permits. The new state is checked as `bandsaw check` does. A state of a damaged
/// bundle is kept, and the exit code is 5; roll-back and forget do not count it as sound.
#[derive(Debug, Args)]
pub(super) struct Keep {
    #[command(flatten)]
    at: StatesArgs,
    /// Permit a copy of the whole bundle for its first state
    #[arg(long)]
    whole_copy: bool,
    /// Do not check the state
    ///
    /// It does not count as sound: roll-back must be told its name.
    #[arg(long)]
    no_check: bool,
    /// Show what would be copied, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    opening: OpenArgs,
}

/// The output of `--json`.
#[derive(Serialize)]
struct KeepReport {
    path: String,
    dry_run: bool,
    /// The name of the new state.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'static str>,
    size: u64,
    copied_size: u64,
    shares_storage: bool,
    is_first: bool,
}

impl Keep {
    pub(super) fn run(&self, output: &Output) -> Outcome {
        let (bundle, shelf) = self.at.open()?;
        let plan = plan_keep(&bundle, &shelf)?;
        let mut report = KeepReport {
            path: bundle.path().display().to_string(),
            dry_run: self.dry_run,
            state: None,
            created: None,
            check: None,
            size: plan.size,
            copied_size: plan.copied,
            shares_storage: plan.shares_storage,
            is_first: plan.is_first,
        };
        if self.dry_run {
            return output.done(&report, |out| {
                let name = output.name(&report.path);
                let copies = if plan.shares_storage {
                    "shares the storage of"
                } else {
                    "copies"
                };
                writeln!(out, "{name}: the state {copies} {}", exact(plan.copied))
            });
        }
        let bar = Bar::new(output);
        let check = |path: &Path| {
            Soundness::of(open::examine(
                path,
                &self.opening.options(Access::ReadOnly),
                &bar,
            ))
        };
        let options = KeepOptions {
            whole_copy: self.whole_copy,
            check: if self.no_check { None } else { Some(&check) },
        };
        let kept = keep(&bundle, &shelf, &options, &bar).advise(Kind::Undecided, || {
            "use --whole-copy to permit it, or --states FOLDER for another place".to_owned()
        })?;
        drop(bar);
        let check = kept.manifest.check;
        report.created = Some(rfc3339(timestamp(kept.manifest.listed)));
        report.check = Some(check.name());
        report.copied_size = kept.manifest.copied;
        output.done(
            &KeepReport {
                state: Some(kept.id.clone()),
                ..report
            },
            |out| {
                writeln!(
                    out,
                    "kept {} ({}), {} of {} copied",
                    kept.id,
                    check.name(),
                    exact(kept.manifest.copied),
                    exact(kept.manifest.size())
                )
            },
        )?;
        match check {
            Soundness::Damaged => {
                let message = "the state was kept, but the bundle is damaged";
                let error = Error::new(Kind::Corrupt, "states", message).in_file(bundle.path());
                Err(Failure::from(error).hint(
                    "run `bandsaw check` on the bundle to list the damage, \
                     and `bandsaw tm roll-back` to return to an older state",
                ))
            }
            Soundness::Locked => {
                output.warn("the bundle is encrypted and was not checked: use --passfile or --passphrase-env");
                Ok(())
            }
            Soundness::Unknown => {
                output.warn(
                    "the disk is blank, or its contents are of a kind that cannot be checked: the \
                     state does not count as sound",
                );
                Ok(())
            }
            Soundness::Sound | Soundness::Unchecked => Ok(()),
        }
    }
}
