//! Errors of the library as exceptions of `bandsaw.errors`, which decides on the class.

use std::error::Error as StdError;
use std::io;

use bandsaw::decision::Undecided;
use bandsaw::error::Place;
use bandsaw::{Error, Kind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// The result of a function that Python calls.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// An error of the library or of the interpreter.
#[derive(Debug)]
pub(crate) enum Failure {
    Library(Error),
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Library(error) => {
                Python::attach(|py| exception(py, &error).unwrap_or_else(|failed| failed))
            }
            Failure::Python(error) => error,
        }
    }
}

/// Returns the exception for an error. An exception that a file object raised is its cause.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let (cause, errno) = causes(py, error);
    let facts = PyDict::new(py);
    let (offset, name) = match error.place() {
        Place::None => (None, None),
        Place::Offset(offset) => (Some(*offset), None),
        Place::Name(name) => (None, Some(name.as_str())),
    };
    facts.set_item("kind", kind_name(error.kind()))?;
    facts.set_item("reason", error.reason().map(|reason| code(reason.name())))?;
    facts.set_item("layer", layer_code(error.layer()))?;
    facts.set_item("offset", offset)?;
    facts.set_item("name", name)?;
    facts.set_item("path", error.file())?;
    facts.set_item("message", error.message())?;
    facts.set_item("text", error.to_string())?;
    facts.set_item("errno", errno)?;
    let alternatives = Undecided::of(error).iter();
    let alternatives: Vec<_> = alternatives
        .map(|one| (one.assume.as_str(), one.evidence.as_str()))
        .collect();
    facts.set_item("alternatives", alternatives)?;
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let build = BUILD.get_or_try_init(py, || {
        py.import("bandsaw.errors")?
            .getattr("_build")
            .map(Bound::unbind)
    })?;
    let raised = PyErr::from_value(build.bind(py).call((), Some(&facts))?);
    raised.set_cause(py, cause);
    Ok(raised)
}

/// Returns the exception and the number of the system's error among the causes.
fn causes(py: Python<'_>, error: &Error) -> (Option<PyErr>, Option<i32>) {
    let (mut exception, mut errno) = (None, None);
    let mut at: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = at {
        if let Some(raised) = error.downcast_ref::<PyErr>() {
            exception = exception.or_else(|| Some(raised.clone_ref(py)));
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            errno = errno.or_else(|| error.raw_os_error());
        }
        at = error.source();
    }
    (exception, errno)
}

/// Returns the stable name of a kind, for programs.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Io => "io",
        Kind::Corrupt => "corrupt",
        Kind::Unsupported => "unsupported",
        Kind::WrongKey => "wrong_key",
        Kind::OutOfRange => "out_of_range",
        Kind::ReadOnly => "read_only",
        Kind::NotFound => "not_found",
        Kind::Conflict => "conflict",
        Kind::Limit => "limit",
        Kind::Invalid => "invalid",
        Kind::Undecided => "undecided",
        Kind::Cancelled => "cancelled",
        _ => "other",
    }
}

/// Returns a code of the library in the form of the JSON vocabulary: `in_use` for `in-use`.
pub(crate) fn code(name: &str) -> String {
    name.replace('-', "_")
}

/// Returns the code of a layer: `gpt_header` for `gpt header`.
pub(crate) fn layer_code(layer: &str) -> String {
    let layer = layer.to_lowercase().replace('+', "_plus");
    let words = layer.split(|character: char| !character.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("_")
}
