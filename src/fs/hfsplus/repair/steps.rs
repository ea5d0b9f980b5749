//! The steps of a repair as text, each kind with its count.

use std::collections::BTreeMap;

/// The steps so far.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Step text to count and an example.
    done: BTreeMap<&'static str, (u64, String)>,
}

impl Steps {
    /// Counts the step `what`; `example` is kept for the first one.
    pub(super) fn add(&mut self, what: &'static str, example: impl FnOnce() -> String) {
        self.done.entry(what).or_insert_with(|| (0, example())).0 += 1;
    }

    /// Returns a line for each kind of step.
    pub(super) fn lines(&self) -> Vec<String> {
        let line =
            |(what, (count, example)): (&&str, &(u64, String))| match (count, example.as_str()) {
                (1, "") => (*what).to_owned(),
                (1, example) => format!("{what}: {example}"),
                (count, "") => format!("{what} ({count} times)"),
                (count, example) => format!("{what}: {example} and {} more", count - 1),
            };
        self.done.iter().map(line).collect()
    }
}
