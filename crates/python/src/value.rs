//! Values of reports, made while the interpreter is detached: what JSON can hold.

use pyo3::prelude::*;
use pythonize::pythonize;
use serde::Serialize;

/// A value of a report: of Python's dictionaries, lists and numbers.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Value(serde_json::Value);

/// Makes a map of names and values. Those that are `None` are left out.
macro_rules! map {
    ($($name:literal: $value:expr),* $(,)?) => {
        $crate::value::Value::map([$(($name, $crate::value::Value::of(&$value))),*])
    };
}
pub(crate) use map;

impl Value {
    /// Returns a report of the library, or a part of one.
    pub(crate) fn of(report: &impl Serialize) -> Self {
        // Only maps whose keys are no text fail, and reports have none.
        Self(serde_json::to_value(report).unwrap_or_default())
    }

    pub(crate) fn map<const N: usize>(members: [(&str, Self); N]) -> Self {
        let members = members.into_iter().filter(|(_, value)| !value.0.is_null());
        let members = members.map(|(name, value)| (name.to_owned(), value.0));
        Self(serde_json::Value::Object(members.collect()))
    }

    /// Adds the members of another map.
    pub(crate) fn with(mut self, other: Self) -> Self {
        if let (Some(members), serde_json::Value::Object(more)) = (self.0.as_object_mut(), other.0)
        {
            members.extend(more);
        }
        self
    }
}

impl<'py> IntoPyObject<'py> for Value {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        Ok(pythonize(py, &self.0)?)
    }
}
