//! Kept states of a sparse bundle, to which it can return after damage, and the [`health`] of bundles.
//!
//! ```text
//! .bandsaw/states/ID/      keep.rs, shelf.rs      a bundle of its own, with state.json, its list of files
//! .bandsaw/roll-back/      roll_back.rs           files that a roll-back replaced, until it is committed
//! .bandsaw/verification/   verification.rs        property lists that a reset replaced
//! (a stream)               transfer/              a state on its way to another folder
//! .bandsaw/hashes.json     scrub/                  a hash of each band
//! ```
//!
//! States share unchanged files among themselves as hard links, never with the bundle: macOS writes
//! to bands in place. Every change of a bundle goes through [`swap`], which can be resumed and undone.
#![forbid(unsafe_code)]

mod bundle;
mod forget;
mod hash;
pub mod health;
mod keep;
mod manifest;
mod private_cache;
mod roll_back;
mod scrub;
pub mod sealed;
mod shelf;
mod status;
mod swap;
mod transfer;
mod verification;
mod watch;

pub use bundle::{BundleFolder, Identity, Listing, Summary};
pub use forget::{Forgotten, Policy, forget};
pub use keep::{Check, KeepOptions, KeepPlan, KeepReport, SETTLED, keep, plan_keep};
pub use manifest::{Manifest, Soundness, StateFile};
pub use private_cache::PrivateCache;
pub use roll_back::{RollBackPlan, RolledBack, roll_back, roll_back_plan};
pub use scrub::{Finding, ScrubOptions, Scrubbed, nanos_now, scrub};
pub use shelf::{Condition, Shelf, State};
pub use status::{Status, status};
pub use swap::{Phase, commit, undo};
pub use transfer::{
    Have, OpenBucket, Received, Sent, have, have_in, receive, receive_from_bucket, receive_in,
    send, send_to_bucket, send_to_folder,
};
pub use verification::{REFUSED, Reset, reset_verification, verification_state};
pub use watch::{ClientUse, KeepPolicy, OnSound, WatchOptions, WatchedBundle, watch_bundle};

const LAYER: &str = "states";

/// The folder of a change of a bundle, within the bundle: which verb made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// [`roll_back`].
    RollBack,
    /// [`reset_verification`].
    Verification,
}

impl Change {
    /// Returns the folder of the change's files, with a `/` at its end.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::RollBack => ".bandsaw/roll-back/",
            Self::Verification => ".bandsaw/verification/",
        }
    }

    /// Returns the verb of the command that makes, resumes and undoes the change.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::RollBack => "timemachine roll-back",
            Self::Verification => "timemachine reset-verification",
        }
    }
}
