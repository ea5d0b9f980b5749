//! Names of the development machine that must not be in the tree: paths, private registries.

use std::path::Path;

use super::{Fault, Text};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns the paths of this machine that no file may contain: the tree, the home folder, cargo's
/// own folders.
pub(super) fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<_> = ["HOME", "CARGO_HOME", "RUSTUP_HOME"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .collect();
    names.push(root.display().to_string());
    // A clone may be in a folder that everybody has.
    let parent = root
        .parent()
        .filter(|parent| *parent != std::env::temp_dir());
    names.extend(parent.map(|parent| parent.display().to_string()));
    names.retain(|name| name.len() > 1);
    names
}

/// Returns the faults of one file.
pub(super) fn check(file: &Text, names: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(file.text.lines()) {
        faults.extend(
            names
                .iter()
                .find(|name| has_path(line, name))
                .map(|name| file.fault(number, format!("names {name}"))),
        );
        let source = line
            .strip_prefix("source = \"")
            .filter(|_| file.path.ends_with("Cargo.lock"));
        faults.extend(
            source
                .filter(|source| !source.starts_with(CRATES_IO))
                .map(|_| file.fault(number, "not from crates.io")),
        );
    }
    faults
}

/// Returns true if a line contains this path, or one below it, but not as the end of a longer one.
fn has_path(line: &str, path: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | '/');
    let mut places = line.match_indices(path);
    places.any(|(at, _)| !line[..at].ends_with(goes_on) && line[at + path.len()..].starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn paths_of_this_machine() {
        let names = ["/home/me".to_owned()];
        let faults = |line: &str| check(&text("README.md", line), &names).len();
        for line in ["see /home/me/src", "`/home/me/`", "a\n\"/home/me/x\""] {
            assert_eq!(faults(line), 1, "{line}");
        }
        for line in [
            "/home/merlin/x",
            "$new/home/me/x",
            "/x/home/me/y",
            "the home/me",
            "/home/me",
        ] {
            assert_eq!(faults(line), 0, "{line}");
        }
    }

    #[test]
    fn sources_of_dependencies() {
        let lock = |source: &str| {
            check(
                &text(
                    "Cargo.lock",
                    &format!("[[package]]\nsource = \"{source}\"\n"),
                ),
                &[],
            )
            .len()
        };
        assert_eq!(lock(CRATES_IO), 0);
        assert_eq!(lock("registry+https://registry.example/index"), 1);
        assert_eq!(lock("git+https://example.org/x#1234"), 1);
    }
}
