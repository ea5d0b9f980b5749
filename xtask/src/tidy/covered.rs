//! Tables of files that need a test of some kind: each names the test, or the reason why there is none.

use super::{Fault, Text};

/// Folders whose code no user runs.
const NOT_SHIPPED: [&str; 5] = ["tests", "testing", "examples", "fuzz", "xtask"];

/// A rule: each file with something has an entry in a table.
pub(super) struct Covered {
    /// Entries: the path of a file, a colon, and the path of its test or a reason.
    pub(super) table: &'static [&'static str],
    /// The file of the table.
    pub(super) place: &'static str,
    /// Description of a file without an entry, for the fault.
    pub(super) what: &'static str,
    /// Returns the line of a file that needs an entry.
    pub(super) is_wanted: fn(&Text) -> Option<usize>,
    /// Words of which a test has one.
    pub(super) words: &'static [&'static str],
}

impl Covered {
    /// Returns the files without an entry, the entries of files that need none, and those whose test
    /// does not exist or has none of the words.
    pub(super) fn check(&self, files: &[Text]) -> Vec<Fault> {
        let faults = files.iter().filter_map(|file| {
            let mut entries = self.table.iter().filter_map(|entry| entry.split_once(": "));
            let entry = entries.find(|(path, _)| *path == file.path);
            let line = (self.is_wanted)(file);
            let what = match (line, entry) {
                (None, None) => return None,
                (Some(_), None) => self.what,
                (None, Some(_)) => "nothing that needs an entry",
                (Some(_), Some((_, covered))) if self.is_test(covered, files) => return None,
                (Some(_), Some(_)) => "its test does not exist, or tests something else",
            };
            Some(file.fault(line.unwrap_or(1), format!("{what}: see {}", self.place)))
        });
        faults.collect()
    }

    /// Returns true for a reason, and for a test with one of the words.
    fn is_test(&self, covered: &str, files: &[Text]) -> bool {
        let test = covered.split([' ', ':']).next().unwrap_or_default();
        let has_word = |file: &Text| self.words.iter().any(|word| file.text.contains(word));
        let mut tests = files.iter().filter(|file| file.path == test);
        !test.ends_with(".rs") || tests.any(has_word)
    }
}

/// Returns true for a file of the code that ships.
pub(super) fn is_shipped(path: &str) -> bool {
    let mut parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
    path.ends_with(".rs")
        && parts.all(|part| !NOT_SHIPPED.contains(&part) && !part.ends_with("_tests"))
}
