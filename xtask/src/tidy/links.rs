//! Links between the project's documents: the file exists, and so does the heading.

use std::collections::HashSet;

use super::{Fault, Text};

/// Checks every relative link of every Markdown file.
pub(super) fn check(files: &[Text]) -> Vec<Fault> {
    let paths: HashSet<&str> = files
        .iter()
        .flat_map(|file| ancestors(&file.path))
        .collect();
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (line, target) in links(&file.text) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = resolve(&file.path, path);
            let leads = match files.iter().find(|other| other.path == path) {
                Some(other) if !heading.is_empty() => headings(&other.text).any(|h| h == heading),
                Some(_) => true,
                None => heading.is_empty() && paths.contains(path.as_str()),
            };
            if !leads {
                faults.push(file.fault(line, format!("link to {target}, which does not exist")));
            }
        }
    }
    faults
}

/// The path itself and the folders it is in.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0))
}

/// The targets of links within the project, each with its line; not those in fenced code.
pub(super) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let prose = (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    prose.flat_map(|(number, line)| {
        let targets = line
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0));
        targets
            .filter(|target| !target.contains(':'))
            .map(move |target| (number, target))
    })
}

/// The path from the root of what a file at `from` calls `path`; empty for the file itself.
pub(super) fn resolve(from: &str, path: &str) -> String {
    if path.is_empty() {
        return from.to_owned();
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors that GitHub gives to headings: lower case, without punctuation, `-` for spaces.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor)
}

/// Returns the anchor of a heading.
pub(super) fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn links_lead_somewhere() {
        let files = |link: &str| {
            [
                text("docs/a.md", &format!("# A\n\n[x]({link})\n")),
                text("docs/b/c.md", "## 1. One, `two`\n"),
                text("README.md", "```\n[x](none)\n```\n"),
            ]
        };
        for link in [
            "b/c.md",
            "b/c.md#1-one-two",
            "b",
            "#a",
            "../README.md",
            "https://example.org/none",
        ] {
            assert_eq!(check(&files(link)), [], "{link}");
        }
        for link in ["c.md", "b/c.md#two", "#b", "../docs/d"] {
            let faults: Vec<String> = check(&files(link)).iter().map(Fault::to_string).collect();
            assert_eq!(
                faults,
                [format!("docs/a.md:3: link to {link}, which does not exist")]
            );
        }
    }
}
