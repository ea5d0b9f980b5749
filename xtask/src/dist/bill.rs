//! The list of the crates in a command.

use std::collections::{HashMap, HashSet};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{cargo_metadata, said};
use crate::root;

/// Returns the crates in the command as a CycloneDX document. `features` are options of cargo.
pub(super) fn make(target: &str, features: &[&str], version: &str) -> Result<String> {
    let metadata = cargo_metadata(target)?;
    let packages: HashMap<&str, &Value> = metadata["packages"]
        .as_array()
        .context("cargo metadata lists packages")?
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let nodes: HashMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .context("cargo metadata lists dependencies")?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let linked = linked(target, features)?;
    let is_linked = |id: &&str| {
        let text = |key: &str| packages[*id][key].as_str().unwrap_or_default().to_owned();
        linked.contains(&(text("name"), text("version")))
    };
    let below = |id: &str| -> Vec<&str> {
        let deps = nodes[id]["deps"].as_array().into_iter().flatten();
        deps.filter(|dep| {
            let mut kinds = dep["dep_kinds"].as_array().into_iter().flatten();
            kinds.any(|kind| kind["kind"].is_null())
        })
        .filter_map(|dep| dep["pkg"].as_str())
        .filter(is_linked)
        .collect()
    };
    let command = packages
        .iter()
        .find(|(_, package)| package["name"] == "bandsaw-cli")
        .map(|(id, _)| *id)
        .context("no package bandsaw-cli")?;
    let url = |id: &str| {
        let text = |key: &str| packages[id][key].as_str().unwrap_or_default();
        format!("pkg:cargo/{}@{}", text("name"), text("version"))
    };
    let mut components: Vec<Value> = Vec::new();
    let mut dependencies: Vec<Value> = Vec::new();
    let mut found: Vec<&str> = packages.keys().copied().filter(is_linked).collect();
    found.sort_by_key(|id| url(id));
    for id in found {
        let package = packages[id];
        let mut below: Vec<String> = below(id).into_iter().map(url).collect();
        below.sort();
        below.dedup();
        dependencies.push(json!({ "ref": url(id), "dependsOn": below }));
        if id != command {
            let license = package["license"]
                .as_str()
                .unwrap_or_default()
                .replace('/', " OR ");
            components.push(json!({
                "type": "library",
                "bom-ref": url(id),
                "name": package["name"],
                "version": package["version"],
                "licenses": [{ "expression": license }],
                "purl": url(id),
            }));
        }
    }
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": url(command),
            "name": "bandsaw",
            "version": version,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "purl": url(command),
        } },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Returns names and versions of the crates that are linked into the command: no tools of the build, no
/// tests, no features that it is built without.
fn linked(target: &str, features: &[&str]) -> Result<HashSet<(String, String)>> {
    let words = ["tree", "--locked", "--package", "bandsaw-cli"];
    let tree = said(
        Command::new("cargo")
            .args(words)
            .args(["--edges", "normal,no-proc-macro", "--target", target])
            .args(["--prefix", "none", "--format", "{p}"])
            .args(features)
            .current_dir(root()),
    )?;
    Ok(crates(&tree))
}

fn crates(tree: &str) -> HashSet<(String, String)> {
    let crates = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
        Some((name.to_owned(), version.to_owned()))
    });
    crates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_a_tree() {
        let found = crates("bandsaw v0.1.0 (/a b)\nmemchr v2.8.3\n\nmemchr v2.8.3 (*)\n");
        let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let expected = [pair("bandsaw", "0.1.0"), pair("memchr", "2.8.3")];
        assert_eq!(found, expected.into());
    }

    #[test]
    fn features_that_are_left_out_are_not_listed() {
        let target = "x86_64-unknown-linux-musl";
        let has = |features: &[&str], name: &str| {
            let bill: Value = serde_json::from_str(&make(target, features, "1").unwrap()).unwrap();
            let mut components = bill["components"].as_array().unwrap().iter();
            components.any(|component| component["name"] == name)
        };
        assert!(has(&[], "reqwest") && has(&[], "clap"));
        // A feature that only tests have; a tool of the build.
        assert!(!has(&[], "rsa") && !has(&[], "cc"));
        assert!(!has(&["--no-default-features"], "reqwest"));
    }
}
