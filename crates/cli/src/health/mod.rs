//! The ends of `bandsaw health` and `bandsaw watch`: exit codes, and commands that are run.

mod notify;
pub(crate) mod on_sound;

use bandsaw::{Error, Kind};
use bandsaw_states::health::BundleVerdict;

pub(crate) use self::notify::{run_key, run_on_change};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Returns the failure for the worst verdict of a round over bundles.
pub(crate) fn conclude(layer: &'static str, worst: Option<BundleVerdict>) -> Outcome {
    let failed = |kind, message| Err(Failure::from(Error::new(kind, layer, message)));
    match worst {
        Some(BundleVerdict::Sound | BundleVerdict::InUse) => Ok(()),
        None => failed(Kind::NotFound, "no sparse bundle was found"),
        Some(BundleVerdict::Damaged | BundleVerdict::DamagedRestorable) => {
            failed(Kind::Corrupt, "a bundle is damaged")
        }
        Some(BundleVerdict::Unreadable) => failed(Kind::Io, "a bundle or folder cannot be read"),
        Some(BundleVerdict::Locked | BundleVerdict::Unknown | BundleVerdict::NeedsAttention) => {
            failed(Kind::Corrupt, "a bundle needs attention").map_err(Failure::warned)
        }
    }
}

/// Returns the conclusion of a round, also if the command that tells of changes failed.
pub(crate) fn conclude_with_command(
    concluded: Outcome,
    notified: Outcome,
    output: &Output,
) -> Outcome {
    match (concluded, notified) {
        (Ok(()), notified) => notified,
        (concluded, Ok(())) => concluded,
        (concluded, Err(failure)) => {
            let _ = failure.report(output);
            concluded
        }
    }
}
