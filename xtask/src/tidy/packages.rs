//! The number of packages that the command is built of, with a ceiling for each of its builds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Fault;

/// The features of a build as options of cargo, and its maximum number of packages, with those of
/// this workspace.
const CEILINGS: [(&str, usize); 2] = [("--all-features", 258), ("--no-default-features", 160)];

/// Returns a fault for each build with too many packages.
pub(super) fn check(root: &Path) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for (features, most) in CEILINGS {
        let count = count(root, features)?;
        if count > most {
            faults.push(Fault {
                file: "crates/cli/Cargo.toml".to_owned(),
                line: 1,
                what: format!("{count} packages with {features}, at most {most} are allowed"),
            });
        }
    }
    Ok(faults)
}

fn count(root: &Path, features: &str) -> Result<usize> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--package", "bandsaw-cli", features])
        .args(["--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p}"])
        .current_dir(root)
        .output()
        .context("running cargo tree")?;
    ensure!(
        tree.status.success(),
        "cargo tree failed: {}",
        String::from_utf8_lossy(&tree.stderr)
    );
    Ok(distinct(&String::from_utf8(tree.stdout)?))
}

/// Returns the number of distinct packages: each line begins with a name and a version.
fn distinct(tree: &str) -> usize {
    let packages: BTreeSet<Vec<&str>> = tree
        .lines()
        .map(|line| line.split_whitespace().take(2).collect())
        .filter(|words: &Vec<_>| !words.is_empty())
        .collect();
    packages.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_counted_once() {
        let tree = "a v1.0.0 (/a)\nb v1.0.0\nb v2.0.0\n\nc v1.0.0 (proc-macro)\nc v1.0.0 (proc-macro) (*)\n";
        assert_eq!(distinct(tree), 4);
    }

    #[test]
    fn the_command_has_few_packages() {
        let faults = check(crate::root()).unwrap();
        assert!(faults.is_empty(), "{}", faults[0]);
    }
}
