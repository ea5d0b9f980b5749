//! What a repair does, in words, each kind once with how often.

use std::collections::BTreeMap;

/// The steps so far.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// What is done to how many, and an example.
    done: BTreeMap<&'static str, (u64, String)>,
}

impl Steps {
    /// `what` is done once more, to `example` this time.
    pub(super) fn add(&mut self, what: &'static str, example: impl FnOnce() -> String) {
        self.done.entry(what).or_insert_with(|| (0, example())).0 += 1;
    }

    /// A line for each kind.
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
