//! Corruptions of sample volumes, for tests of checks and repairs.

use bandsaw_core::problem::Severity;

/// A corruption: the change to the sample, its severity, and a part of the expected message.
pub(crate) type Corruption<S> = (fn(&mut S), Severity, &'static str);

pub(crate) const fn damage<S>(words: &'static str, change: fn(&mut S)) -> Corruption<S> {
    (change, Severity::Damage, words)
}

pub(crate) const fn warning<S>(words: &'static str, change: fn(&mut S)) -> Corruption<S> {
    (change, Severity::Warning, words)
}

pub(crate) const fn note<S>(words: &'static str, change: fn(&mut S)) -> Corruption<S> {
    (change, Severity::Note, words)
}
