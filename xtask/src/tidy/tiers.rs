//! Tiers of tests: `cargo test` runs every test without a mark, and `scripts/test --full` those with
//! the mark `full`. The steps of `scripts/test` name their tiers.

use super::{Fault, Text};

/// The tiers of `scripts/test`.
const TIERS: [&str; 4] = ["quick", "test", "full", "release"];

/// Returns the faults of one file.
pub(super) fn check(file: &Text) -> Vec<Fault> {
    let lines = (1..).zip(file.text.lines().map(str::trim));
    if file.path == "scripts/test" {
        let steps = lines.filter(|(_, line)| line.starts_with("step "));
        return steps
            .filter(|(_, line)| !is_step(line))
            .map(|(number, _)| {
                file.fault(
                    number,
                    "a step has known tiers, a name and a reason in quotes",
                )
            })
            .collect();
    }
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in lines {
        if line.starts_with("#[ignore") && !is_marked(line) {
            faults.push(file.fault(
                number,
                "a test that is left out has a tier and a reason: #[ignore = \"full: ...\"]",
            ));
        }
        let comment = ["///", "//!"]
            .iter()
            .find_map(|slashes| line.strip_prefix(slashes));
        if comment.is_some_and(|text| text.trim().starts_with("```ignore")) {
            faults.push(file.fault(number, "an example that no tier compiles"));
        }
    }
    faults
}

fn is_marked(line: &str) -> bool {
    let reason = line
        .strip_prefix("#[ignore = \"full: ")
        .and_then(|rest| rest.strip_suffix("\"]"));
    reason.is_some_and(|reason| reason.contains(' '))
}

fn is_step(line: &str) -> bool {
    let Some((words, reason)) = line.split_once('\'') else {
        return false;
    };
    let words: Vec<_> = words.split_whitespace().collect();
    let [_, tiers, _] = words[..] else {
        return false;
    };
    tiers.split(',').all(|tier| TIERS.contains(&tier)) && reason.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn tiers_have_reasons() {
        for (path, line, faults) in [
            ("tests/a.rs", "#[ignore]", 1),
            ("tests/a.rs", "#[ignore = \"slow\"]", 1),
            ("tests/a.rs", "#[ignore = \"full: \"]", 1),
            ("tests/a.rs", "#[ignore = \"full: starts a cluster\"]", 0),
            ("src/a.rs", "//! ```ignore", 1),
            ("src/a.rs", "/// ```no_run", 0),
            (
                "scripts/test",
                "step test,full lint 'reads all crates again'",
                0,
            ),
            (
                "scripts/test",
                "step test,often lint 'reads all crates again'",
                1,
            ),
            ("scripts/test", "step test lint", 1),
            ("scripts/test", "step test lint ''", 1),
        ] {
            assert_eq!(check(&text(path, line)).len(), faults, "{line}");
        }
    }
}
