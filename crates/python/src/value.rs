//! Values of reports, made while the interpreter is detached: what JSON can hold.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A value of a report.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Left out of maps.
    Absent,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(&'static str, Value)>),
}

/// Makes a map of names and values.
macro_rules! map {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::value::Value::Map(vec![$(($name, $crate::value::Value::from($value))),*])
    };
}
pub(crate) use map;

impl Value {
    /// Adds the members of another map.
    pub(crate) fn with(mut self, other: Self) -> Self {
        if let (Self::Map(members), Self::Map(more)) = (&mut self, other) {
            members.extend(more);
        }
        self
    }

    /// Returns the message in an object of its own, as in the JSON output.
    pub(crate) fn message(text: impl Into<String>) -> Self {
        map! { "message": text.into() }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Number(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Number(value.into())
    }
}

impl From<u8> for Value {
    fn from(value: u8) -> Self {
        Self::Number(value.into())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Number(value as u64)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

impl<'py> IntoPyObject<'py> for Value {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(match self {
            Self::Absent => py.None().into_bound(py),
            Self::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Self::Number(value) => value.into_pyobject(py)?.into_any(),
            Self::Text(value) => value.into_pyobject(py)?.into_any(),
            Self::List(values) => PyList::new(py, values)?.into_any(),
            Self::Map(members) => {
                let dict = PyDict::new(py);
                for (name, value) in members {
                    if !matches!(value, Self::Absent) {
                        dict.set_item(name, value)?;
                    }
                }
                dict.into_any()
            }
        })
    }
}
