//! The verdict on a bundle.

use bandsaw::{Error, Kind, Reason};
use serde::{Deserialize, Serialize};

use crate::Soundness;

/// The verdict on a bundle, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BundleVerdict {
    /// Every part was checked and is sound.
    #[default]
    Sound,
    /// Another program uses it, or it changed during the check.
    InUse,
    /// It is encrypted, and no passphrase was given.
    Locked,
    /// A part of it cannot be checked.
    Unknown,
    /// It is not damaged, but backups are too old, impossible or soon will be.
    NeedsAttention,
    /// It cannot be read.
    Unreadable,
    /// It is damaged, and has backups or a sound state.
    DamagedRestorable,
    /// It is damaged.
    Damaged,
}

impl BundleVerdict {
    /// All verdicts, the worst last.
    pub const ALL: [Self; 8] = [
        Self::Sound,
        Self::InUse,
        Self::Locked,
        Self::Unknown,
        Self::NeedsAttention,
        Self::Unreadable,
        Self::DamagedRestorable,
        Self::Damaged,
    ];

    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::InUse => "in use",
            Self::Locked => "locked",
            Self::Unknown => "unknown",
            Self::NeedsAttention => "needs attention",
            Self::Unreadable => "unreadable",
            Self::DamagedRestorable => "damaged, restore possible",
            Self::Damaged => "damaged",
        }
    }

    /// Returns the verdict of a check.
    pub fn of(soundness: Soundness) -> Self {
        match soundness {
            Soundness::Sound => Self::Sound,
            Soundness::Damaged => Self::Damaged,
            Soundness::Locked => Self::Locked,
            Soundness::Unknown | Soundness::Unchecked => Self::Unknown,
        }
    }

    /// Returns the verdict of an error. What cannot be read is never absent, and what is in use is
    /// never damaged.
    pub fn of_error(error: &Error) -> Self {
        match error.kind() {
            Kind::Conflict if error.reason() == Some(Reason::InUse) => Self::InUse,
            Kind::Corrupt => Self::Damaged,
            Kind::WrongKey => Self::Locked,
            Kind::Conflict | Kind::Undecided => Self::NeedsAttention,
            _ => Self::Unreadable,
        }
    }
}
