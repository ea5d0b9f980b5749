//! The failure of a verb: an error, a hint and an exit status.

mod exit;
mod hints;

use std::borrow::Cow;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::{fmt, io};

use bandsaw::ops::describe::ErrorInfo;
use bandsaw::{Error, Kind, Reason};
use serde::Serialize;

use self::exit::Exit;
pub(crate) use self::exit::{EXIT_STATUS, exit_status_help};
use self::hints::hint;
use crate::in_use;
use crate::output::Output;
use crate::text::printable;

/// The result of a verb.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// An error for the user, with a hint if the verb knows a better one than [`hint`].
pub(crate) struct Failure {
    error: Error,
    /// The exit code if the kind of error does not determine it.
    exit: Option<Exit>,
    hint: Option<Cow<'static, str>>,
    /// True if the default hint does not help.
    is_unhinted: bool,
}

impl Failure {
    /// Returns an error about arguments; `option` is the one to change.
    pub(crate) fn usage(option: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Error::invalid(option, message).into()
    }

    /// Returns a failure that another process has reported; only the exit code is left.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn reported(code: u8) -> Self {
        let kinds = [
            (Exit::Usage, Kind::Invalid),
            (Exit::NotFound, Kind::NotFound),
            (Exit::Conflict, Kind::Conflict),
            (Exit::Corrupt, Kind::Corrupt),
            (Exit::Unsupported, Kind::Unsupported),
            (Exit::WrongKey, Kind::WrongKey),
            (Exit::Undecided, Kind::Undecided),
        ];
        let kind = kinds
            .into_iter()
            .find(|(exit, _)| exit.code() == code)
            .map_or(Kind::Io, |(_, kind)| kind);
        Self {
            exit: Some(Exit::Reported(code)),
            ..Self::from(Error::new(kind, "server", "failed"))
        }
    }

    /// Returns the same failure, which the caller of this process reports.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn silent(mut self) -> Self {
        let exit = self.exit.unwrap_or_else(|| Exit::of(&self.error));
        self.exit = Some(Exit::Reported(exit.code()));
        self
    }

    /// Returns true if the failure concerns only writing: the image, the user or the file system
    /// does not permit it.
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

    /// Returns true if the image is read-only, or on a disk that is mounted read-only.
    pub(crate) fn is_of_read_only(&self) -> bool {
        self.error.kind() == Kind::ReadOnly
            || self.error.io_kind() == Some(io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Returns true if the failure has already been reported.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self.exit, Some(Exit::Reported(_)))
    }

    /// Returns the outcome of a verb that had nothing to do, which has its own exit code.
    pub(crate) fn nothing_to_do() -> Self {
        Self {
            exit: Some(Exit::NothingToDo),
            ..Self::from(Error::invalid("repair", "nothing to do"))
        }
    }

    /// Returns the outcome of a comparison that found differences, which has its own exit code.
    pub(crate) fn differs() -> Self {
        Self {
            exit: Some(Exit::Differs),
            ..Self::from(Error::invalid("comparison", "there are differences"))
        }
    }

    /// Returns the same failure with this hint.
    pub(crate) fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the same failure without the default hint: the verb has given its advice.
    pub(crate) fn without_hint(mut self) -> Self {
        self.is_unhinted = true;
        self
    }

    /// Returns the same failure with this hint if it has none, and a path in a volume does not
    /// exist.
    pub(crate) fn hint_if_missing(self, hint: impl FnOnce() -> String) -> Self {
        let is_missing = self.error.reason() == Some(Reason::NoSuchPath);
        match self.hint {
            None if is_missing => self.hint(hint()),
            _ => self,
        }
    }

    /// Returns the same failure with the hint at `--overwrite` if its target exists, for verbs with
    /// that option. There is no hint if the option was given: what it replaces is something else.
    pub(crate) fn hint_if_exists(self, overwrite: bool) -> Self {
        match self.error.reason() {
            Some(Reason::Exists) if !overwrite => self.hint("use --overwrite to replace it"),
            _ => self,
        }
    }

    /// Returns the same failure as a warning, which has its own exit code.
    pub(crate) fn warned(mut self) -> Self {
        self.exit = Some(Exit::Warned);
        self
    }

    /// Returns the same failure in this file, unless it already names one.
    pub(crate) fn in_file(mut self, file: impl AsRef<std::path::Path>) -> Self {
        self.error = self.error.in_file(file);
        self
    }

    /// Returns the kind of the error.
    pub(crate) fn kind(&self) -> Kind {
        self.error.kind()
    }

    /// Returns the cause, if a caller can act on it.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.error.reason()
    }

    /// Returns the error for a document.
    pub(crate) fn described(&self) -> ErrorInfo {
        ErrorInfo {
            hint: self
                .hint
                .clone()
                .or_else(|| hint(&self.error))
                .map(Cow::into_owned),
            ..ErrorInfo::new(&self.error)
        }
    }

    /// Returns the command that ends the use of an image by this program, if that is the failure.
    pub(crate) fn way_out(&self) -> Option<String> {
        in_use::hint(&self.error)
    }

    /// Returns the error as text.
    pub(crate) fn message(&self) -> String {
        self.error.to_string()
    }

    /// Prints the failure on standard error and returns the exit code.
    pub(crate) fn report(&self, output: &Output) -> ExitCode {
        let exit = self.exit.unwrap_or_else(|| Exit::of(&self.error));
        let in_use = match self.hint {
            None => in_use::hint(&self.error),
            Some(_) => None,
        };
        let own = self.hint.clone().or(in_use.map(Cow::Owned));
        let hint = own
            .or_else(|| hint(&self.error))
            .filter(|_| !self.is_unhinted);
        if matches!(exit, Exit::Reported(_) | Exit::NothingToDo | Exit::Differs) {
            // There is nothing more to report.
        } else if exit == Exit::BrokenPipe {
            // The reader has exited (`bandsaw ls image | head`), so there is nothing to report.
        } else if output.json() {
            output.json_line(&Report {
                error: ErrorInfo {
                    exit: Some(exit.code()),
                    hint: hint.map(Cow::into_owned),
                    ..ErrorInfo::new(&self.error)
                },
            });
        } else if matches!(exit, Exit::Signal(_)) {
            output.error("interrupted; nothing is damaged", self.hint.as_deref());
        } else {
            output.error(
                &printable(&self.error.to_string()),
                hint.as_deref().map(printable).as_deref(),
            );
        }
        ExitCode::from(exit.code())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error: of_verb(error),
            exit: None,
            hint: None,
            is_unhinted: false,
        }
    }
}

/// The running verb, such as `timemachine restore`.
static VERB: OnceLock<String> = OnceLock::new();

/// Operations of the library under names of verbs, which other verbs use too.
const OPERATIONS: [&str; 8] = [
    "compress", "create", "extract", "format", "mount", "put", "resize", "trim",
];

/// Sets the name of the verb, for errors of operations that it shares with others.
pub(crate) fn set_verb(verb: String) {
    let _ = VERB.set(verb);
}

/// Returns the error of an operation under the name of the running verb.
fn of_verb(error: Error) -> Error {
    match VERB.get() {
        Some(verb) if OPERATIONS.contains(&error.layer()) => error.of_layer(verb),
        _ => error,
    }
}

/// Returns an error for a list in a document.
pub(crate) fn described(error: &Error) -> ErrorInfo {
    ErrorInfo::new(&of_verb(error.duplicate()))
}

/// In this crate a bare `io::Error` always comes from standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Error::io("standard output", "write", error).into()
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// The failures of a verb that goes on with its other arguments.
#[derive(Default)]
pub(crate) struct Failures(Vec<Failure>);

impl Failures {
    /// Keeps a failure, and returns its description for the document. Interruptions, and a closed
    /// pipe, are returned at once.
    pub(crate) fn split<T>(&mut self, done: Outcome<T>) -> Outcome<(Option<T>, Option<ErrorInfo>)> {
        match done {
            Ok(done) => Ok((Some(done), None)),
            Err(failure) if failure.kind() == Kind::Cancelled => Err(failure),
            Err(failure) => {
                let described = failure.described();
                self.0.push(failure);
                Ok((None, Some(described)))
            }
        }
    }

    /// Reports all failures but the first, which is returned.
    pub(crate) fn end(self, output: &Output) -> Outcome {
        let mut failures = self.0.into_iter();
        let first = failures.next();
        for failure in failures.by_ref() {
            let _ = failure.report(output);
        }
        first.map_or(Ok(()), Err)
    }
}

/// Adds a hint to a result that fails with one kind of error.
pub(crate) trait Advise<T> {
    /// Adds `hint` to errors of `kind`.
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

/// An error under `--json`.
#[derive(Serialize)]
struct Report {
    error: ErrorInfo,
}

/// Prints a usage error that the parser of the command line found.
pub(crate) fn report_usage(reason: &str, message: &str, hint: Option<&str>, output: &Output) {
    let error = Error::invalid("command line", message.to_owned());
    output.json_line(&Report {
        error: ErrorInfo {
            reason: Some(reason.to_owned()),
            exit: Some(Exit::Usage.code()),
            hint: hint.map(str::to_owned),
            ..ErrorInfo::brief(&error)
        },
    });
}
