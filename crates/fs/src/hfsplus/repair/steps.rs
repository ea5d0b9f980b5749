//! The steps of a repair while it is planned.

use std::collections::BTreeMap;

use zerocopy::big_endian::U16;

use crate::RepairStep;

/// The object of a step.
#[derive(Debug)]
pub(super) enum Subject {
    /// An object of the catalog, by its serial number.
    Object(u32),
    /// An attribute of the object with this number.
    Value(u32, String),
    /// An entry of the folder with this number.
    Entry(u32, Box<[U16]>),
    /// A name.
    Name(String),
}

/// The steps so far, by text.
#[derive(Debug, Default)]
pub(super) struct Steps {
    done: BTreeMap<&'static str, Vec<Subject>>,
}

impl Steps {
    /// Adds the step `what`, which concerns the whole volume.
    pub(super) fn add(&mut self, what: &'static str) {
        self.done.entry(what).or_default();
    }

    /// Adds the step `what` on an object of the catalog.
    pub(super) fn on(&mut self, what: &'static str, serial: u32) {
        self.on_subject(what, Subject::Object(serial));
    }

    /// Adds the step `what` on another thing.
    pub(super) fn on_subject(&mut self, what: &'static str, subject: Subject) {
        self.done.entry(what).or_default().push(subject);
    }

    /// Returns the steps, with each subject as `name_of` shows it.
    pub(super) fn finish(self, name_of: impl Fn(&Subject) -> String) -> Vec<RepairStep> {
        let step = |(what, subjects): (&'static str, Vec<Subject>)| {
            let mut files: Vec<_> = subjects.iter().map(&name_of).collect();
            files.sort_unstable();
            files.dedup();
            RepairStep {
                text: what.to_owned(),
                files,
            }
        };
        self.done.into_iter().map(step).collect()
    }
}
