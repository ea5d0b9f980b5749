//! The one place where an error becomes text, a hint and an exit code.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::{fmt, io};

use bandsaw::error::Place;
use bandsaw::{Error, Kind, Reason};
use serde::Serialize;

use crate::output::Output;
use crate::passphrase;
use crate::progress;
use crate::text::printable;

/// What a verb returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// An error on its way to the user, with what to do next where the verb knows better than [`hint`].
pub(crate) struct Failure {
    error: Error,
    /// The exit code where the kind of error does not say it.
    exit: Option<Exit>,
    hint: Option<Cow<'static, str>>,
}

impl Failure {
    /// The arguments make no sense together; `option` is the one to change.
    pub(crate) fn usage(option: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Error::new(Kind::Invalid, option, message).into()
    }

    /// A failure that another process has told the user of; only the exit code is left.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn told(code: u8) -> Self {
        let exits = [
            Exit::Usage,
            Exit::NotFound,
            Exit::Conflict,
            Exit::Corrupt,
            Exit::Unsupported,
            Exit::WrongKey,
        ];
        let kinds = [
            Kind::Invalid,
            Kind::NotFound,
            Kind::Conflict,
            Kind::Corrupt,
            Kind::Unsupported,
            Kind::WrongKey,
        ];
        let kind = exits
            .into_iter()
            .zip(kinds)
            .find(|(exit, _)| exit.code() == code)
            .map_or(Kind::Io, |(_, kind)| kind);
        Self {
            exit: Some(Exit::Told(code)),
            ..Self::from(Error::new(kind, "server", "failed"))
        }
    }

    /// Returns whether what could not be changed may still be read: by its nature, or because of
    /// who asks, or where it is.
    pub(crate) fn is_of_changing(&self) -> bool {
        let refusals = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::ReadOnlyFilesystem,
        ];
        self.error.kind() == Kind::ReadOnly
            || self
                .error
                .io_kind()
                .is_some_and(|kind| refusals.contains(&kind))
    }

    /// Returns whether the user was told of it already.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.exit, Some(Exit::Told(_)))
    }

    /// No failure, but nothing done either: an exit code of its own tells it from success.
    pub(crate) fn nothing_to_do() -> Self {
        Self {
            exit: Some(Exit::NothingToDo),
            ..Self::from(Error::new(
                Kind::Invalid,
                "repair",
                "there is nothing to do",
            ))
        }
    }

    /// The same failure with this hint.
    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same as no more than a warning: an exit code of its own tells it from damage.
    pub(crate) fn warned(mut self) -> Self {
        self.exit = Some(Exit::Warned);
        self
    }

    /// The same failure in this file, unless it names one already.
    pub(crate) fn in_file(mut self, file: impl AsRef<std::path::Path>) -> Self {
        self.error = self.error.in_file(file);
        self
    }

    /// What kind of error it is.
    pub(crate) fn kind(&self) -> Kind {
        self.error.kind()
    }

    /// The cause, where a caller can act on it.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.error.reason()
    }

    /// The error in words.
    pub(crate) fn message(&self) -> String {
        self.error.to_string()
    }

    /// Tells the user on standard error, and chooses the exit code.
    pub(crate) fn report(&self, output: &Output) -> ExitCode {
        let exit = self.exit.unwrap_or_else(|| Exit::of(&self.error));
        let hint = self.hint.as_deref().or_else(|| hint(&self.error));
        if matches!(exit, Exit::Told(_) | Exit::NothingToDo) {
            // Nothing is left to be said.
        } else if exit == Exit::BrokenPipe {
            // The reader has seen enough (`bandsaw ls image | head`): nothing to tell, and nobody
            // to tell it to.
        } else if output.json() {
            output.json_line(&Report {
                schema: 1,
                error: Described::new(&self.error, hint, exit),
            });
        } else if matches!(exit, Exit::Signal(_)) {
            output.error("stopped as asked; nothing is damaged", self.hint.as_deref());
        } else {
            output.error(
                &printable(&self.error.to_string()),
                hint.map(printable).as_deref(),
            );
        }
        ExitCode::from(exit.code())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            exit: None,
            hint: None,
        }
    }
}

/// Only writing to standard output gives a bare `io::Error` in this crate.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Error::io("standard output", "cannot be written", error).into()
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// Adds what to do next to a result that fails with one kind of error.
pub(crate) trait Advise<T> {
    /// Errors of `kind` get `hint`.
    fn advise(self, kind: Kind, hint: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<Failure>> Advise<T> for Result<T, E> {
    fn advise(self, kind: Kind, hint: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| {
            let failure = error.into();
            if failure.kind() == kind {
                failure.hint(hint())
            } else {
                failure
            }
        })
    }
}

/// Why the command ended. The numbers are a promise to scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
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
    BrokenPipe,
    Signal(u8),
    Told(u8),
}

impl Exit {
    fn of(error: &Error) -> Self {
        match error.kind() {
            Kind::Invalid => Self::Usage,
            Kind::NotFound => Self::NotFound,
            Kind::Conflict => Self::Conflict,
            Kind::Corrupt => Self::Corrupt,
            Kind::Unsupported => Self::Unsupported,
            Kind::WrongKey => Self::WrongKey,
            Kind::Undecided => Self::Undecided,
            Kind::Cancelled => Self::Signal(progress::signal_seen().unwrap_or(INTERRUPT)),
            Kind::Io => match error.io_kind() {
                Some(io::ErrorKind::NotFound) => Self::NotFound,
                Some(io::ErrorKind::AlreadyExists) => Self::Conflict,
                Some(io::ErrorKind::BrokenPipe) => Self::BrokenPipe,
                _ => Self::Failed,
            },
            _ => Self::Failed,
        }
    }

    fn code(self) -> u8 {
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
            Self::BrokenPipe => 128 + 13,
            Self::Signal(signal) => 128 + signal,
            Self::Told(code) => code,
        }
    }
}

/// The number of SIGINT everywhere.
const INTERRUPT: u8 = 2;

/// Exit codes and their meaning, for `--help` and the manual.
pub(crate) const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "done"),
    (
        "1",
        "failed in a way the codes below do not name (a read error, a full disk, a change of what can only be read)",
    ),
    ("2", "the arguments make no sense"),
    ("3", "an image, volume or path does not exist"),
    ("4", "the target exists already, or the image is in use"),
    ("5", "the image is damaged"),
    (
        "6",
        "not an image known here, or a feature of it that is not supported",
    ),
    ("7", "a passphrase is missing or wrong"),
    (
        "8",
        "check, repair: something is wrong, but nothing is lost by it",
    ),
    (
        "9",
        "repair: stopped for a decision of the user (`--assume`, `--accept-loss`); nothing is changed",
    ),
    ("10", "repair: there was nothing to repair"),
    (
        "130",
        "stopped by Ctrl-C at a safe point; 143 when by SIGTERM, 129 by SIGHUP, 141 when the reader of the output left",
    ),
];

/// [`EXIT_STATUS`] as a section of `--help`.
pub(crate) fn exit_status_help() -> String {
    let mut text = String::from("Exit status:\n");
    for (code, meaning) in EXIT_STATUS {
        let _ = writeln!(text, "  {code:<4} {meaning}");
    }
    text
}

/// What to do next, by kind, where the verb has not said it.
fn hint(error: &Error) -> Option<&'static str> {
    match error.kind() {
        Kind::Io => match error.io_kind()? {
            io::ErrorKind::PermissionDenied => Some("check who owns the file and its permissions"),
            io::ErrorKind::StorageFull => Some("the disk that holds the target is full"),
            io::ErrorKind::FileTooLarge => Some(
                "raise the limit on the size of files (`ulimit -f`), or use a file system without one",
            ),
            _ => None,
        },
        Kind::WrongKey if error.reason() == Some(Reason::VolumeLocked) => {
            Some(passphrase::VOLUME_HINT)
        }
        Kind::WrongKey => Some(passphrase::HINT),
        _ => None,
    }
}

/// An error under `--json`.
#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    error: Described<'a>,
}

#[derive(Serialize)]
struct Described<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    exit: u8,
    message: String,
    layer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

impl<'a> Described<'a> {
    fn new(error: &'a Error, hint: Option<&'a str>, exit: Exit) -> Self {
        let (offset, name) = match error.place() {
            Place::None => (None, None),
            Place::Offset(offset) => (Some(*offset), None),
            Place::Name(name) => (None, Some(name.as_str())),
        };
        Self {
            kind: kind_name(error.kind()),
            reason: error.reason().map(Reason::name),
            exit: exit.code(),
            message: error.to_string(),
            layer: error.layer(),
            file: error.file(),
            offset,
            name,
            hint,
        }
    }
}

/// Stable names of the kinds, for programs.
fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Io => "io",
        Kind::Corrupt => "corrupt",
        Kind::Unsupported => "unsupported",
        Kind::WrongKey => "wrong-key",
        Kind::OutOfRange => "out-of-range",
        Kind::ReadOnly => "read-only",
        Kind::NotFound => "not-found",
        Kind::Conflict => "conflict",
        Kind::Limit => "limit",
        Kind::Invalid => "invalid",
        Kind::Undecided => "undecided",
        Kind::Cancelled => "cancelled",
        _ => "other",
    }
}
