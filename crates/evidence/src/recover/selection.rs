//! The files of a search that are wanted.

use std::fmt;

use bandsaw::fs::{FileKind, RecoveredFile, Timestamp};

/// A test of names.
type NameTest = Box<dyn Fn(&str) -> bool>;

/// The wanted files. The default wants all.
#[derive(Default)]
pub struct Selection {
    /// A test of the file's name.
    pub name: Option<NameTest>,
    /// The earliest modification time.
    pub after: Option<Timestamp>,
    /// The time before which it was modified.
    pub before: Option<Timestamp>,
    /// The least size of the data fork in bytes.
    pub min_size: u64,
    /// The wanted kinds; all if it is empty.
    pub kinds: Vec<FileKind>,
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selection")
            .field("after", &self.after)
            .field("before", &self.before)
            .field("min_size", &self.min_size)
            .field("kinds", &self.kinds)
            .finish_non_exhaustive()
    }
}

impl Selection {
    /// Returns true if a file is wanted. One without a date is not, if a date is asked for.
    pub(super) fn wants(&self, file: &RecoveredFile) -> bool {
        let modified = file.attributes.modified;
        let is_late = self
            .after
            .is_none_or(|after| modified.is_some_and(|time| time >= after));
        let is_early = self
            .before
            .is_none_or(|before| modified.is_some_and(|time| time < before));
        is_late
            && is_early
            && file.attributes.size >= self.min_size
            && (self.kinds.is_empty() || self.kinds.contains(&file.attributes.kind))
            && self.name.as_ref().is_none_or(|test| test(file.name()))
    }
}
