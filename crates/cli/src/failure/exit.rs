//! The exit statuses of the command.

use std::fmt::Write as _;
use std::io;

use bandsaw::{Error, Kind};

use crate::signals::signal_seen;

/// The reason for the end of the command. The numbers are stable for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Failed,
    Usage,
    NotFound,
    Conflict,
    Corrupt,
    Unsupported,
    WrongKey,
    Warned,
    Undecided,
    NothingToDo,
    Differs,
    BrokenPipe,
    Signal(u8),
    Reported(u8),
}

impl Exit {
    pub(super) fn of(error: &Error) -> Self {
        match error.kind() {
            Kind::Invalid => Self::Usage,
            Kind::NotFound => Self::NotFound,
            Kind::Conflict => Self::Conflict,
            Kind::Corrupt => Self::Corrupt,
            Kind::Unsupported => Self::Unsupported,
            Kind::WrongKey => Self::WrongKey,
            Kind::Undecided => Self::Undecided,
            Kind::Cancelled => Self::Signal(signal_seen().unwrap_or(INTERRUPT)),
            Kind::Io => match error.io_kind() {
                Some(io::ErrorKind::NotFound) => Self::NotFound,
                Some(io::ErrorKind::AlreadyExists) => Self::Conflict,
                Some(io::ErrorKind::BrokenPipe) => Self::BrokenPipe,
                _ => Self::Failed,
            },
            _ => Self::Failed,
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Corrupt => 5,
            Self::Unsupported => 6,
            Self::WrongKey => 7,
            Self::Warned => 8,
            Self::Undecided => 9,
            Self::NothingToDo => 10,
            Self::Differs => 11,
            Self::BrokenPipe => 128 + 13,
            Self::Signal(signal) => 128 + signal,
            Self::Reported(code) => code,
        }
    }
}

/// The number of SIGINT on all systems.
const INTERRUPT: u8 = 2;

/// Exit codes and their meaning, for `--help` and the manual.
pub(crate) const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "done"),
    (
        "1",
        "failed for another reason (such as a read error, a full disk, or a change to read-only data)",
    ),
    ("2", "invalid arguments"),
    ("3", "an image, volume or path does not exist"),
    ("4", "the target already exists, or the image is in use"),
    ("5", "the image is damaged"),
    (
        "6",
        "not a recognized disk image, unknown contents, or an unsupported feature",
    ),
    ("7", "a passphrase is missing or wrong"),
    (
        "8",
        "check, repair, scrub, watch, timemachine status: warnings, and no damage was found; extract: an older state was read",
    ),
    (
        "9",
        "repair: a decision is required (`--assume`, `--accept-loss`); timemachine keep: a whole copy has to be permitted; erase-keys: not confirmed; nothing was changed",
    ),
    ("10", "repair: nothing to repair, and nothing is wrong"),
    ("11", "diff, evidence verify: there are differences"),
    (
        "130",
        "interrupted by Ctrl-C; 143 by SIGTERM, 129 by SIGHUP, 141 if the reader of the output has exited",
    ),
];

/// Formats [`EXIT_STATUS`] as a section of `--help`.
pub(crate) fn exit_status_help() -> String {
    let mut text = String::from("Exit status:\n");
    for (code, meaning) in EXIT_STATUS {
        let _ = writeln!(text, "  {code:<4} {meaning}");
    }
    text
}
