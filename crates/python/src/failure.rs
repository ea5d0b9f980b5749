//! Errors of the library as exceptions of `bandsaw.errors`, which decides on the class.

use std::error::Error as StdError;
use std::io;

use bandsaw::Error;
use bandsaw::decision::Undecided;
use bandsaw::ops::describe::ErrorInfo;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::volume::PathProblem;

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
    let Causes {
        exception: cause,
        errno,
        problem,
    } = causes(py, error);
    let facts = PyDict::new(py);
    let info = ErrorInfo::new(error);
    facts.set_item("kind", info.kind)?;
    facts.set_item("reason", info.reason)?;
    facts.set_item("problem", problem.map(PathProblem::name))?;
    facts.set_item("layer", info.layer)?;
    facts.set_item("offset", info.offset)?;
    facts.set_item("name", info.name)?;
    facts.set_item("path", info.path)?;
    facts.set_item("message", error.message())?;
    facts.set_item("text", info.message)?;
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

/// The facts in the causes of an error.
#[derive(Default)]
struct Causes {
    /// The exception that a file object raised.
    exception: Option<PyErr>,
    /// The number of the system's error.
    errno: Option<i32>,
    problem: Option<PathProblem>,
}

fn causes(py: Python<'_>, error: &Error) -> Causes {
    let mut found = Causes::default();
    let mut at: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = at {
        if let Some(raised) = error.downcast_ref::<PyErr>() {
            let exception = found.exception.take();
            found.exception = exception.or_else(|| Some(raised.clone_ref(py)));
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            found.errno = found.errno.or_else(|| error.raw_os_error());
        }
        found.problem = found.problem.or(error.downcast_ref().copied());
        at = error.source();
    }
    found
}
