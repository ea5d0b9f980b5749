//! Rules that the compiler does not check: see [`check`].

mod circles;
mod covered;
mod imports;
mod layers;
mod links;
mod machine;
mod owners;
mod packages;
mod points;
mod renames;
mod source;
mod suites;
mod tiers;
mod words;

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Folders outside of the project: output of cargo, git and fuzzing.
const FOREIGN: [&str; 8] = [
    "target",
    ".git",
    "crates/python/target",
    "fuzz/target",
    "fuzz/corpus",
    "fuzz/artifacts",
    "fuzz/coverage",
    "node_modules",
];

/// Maximum size in bytes of a text file; longer ones are data.
const MAX_TEXT: u64 = 4 << 20;

/// A broken rule at a line of a file.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A file of the tree: its path relative to the root, with `/`, and its text.
struct Text {
    path: String,
    text: String,
}

/// Checks the tree and prints the faults.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = read_tree(root)?;
    let mut faults = check(&files, &machine::names(root));
    faults.extend(packages::check(root)?);
    faults.extend(words::check_commits(root)?);
    for fault in &faults {
        println!("{fault}");
    }
    match faults.len() {
        0 => {
            println!("{} files are tidy", files.len());
            Ok(())
        }
        n => bail!("{n} faults"),
    }
}

/// Checks all rules:
///
/// * imports within the library run one way, and formats do not import each other;
/// * no more than five files use each other in a circle;
/// * every Rust file begins with a module comment, a module with a folder is `mod.rs` in it, and a type prints
///   itself by its name;
/// * unsafe code is allowed in the named places only, the library does not print, layouts do no
///   I/O;
/// * a type with a lock or an atomic has no fields that other modules of the crate see;
/// * every on-disk structure names its source;
/// * the layers of a format belong to its part of an image, by which errors are judged;
/// * every dependency comes from crates.io;
/// * messages and names of tests have none of the banned phrases, and no more than three types of a
///   crate have one name;
/// * tests that `cargo test` leaves out, and the steps of `scripts/test`, have a tier and a reason;
/// * the conformance suites cover every device and every store, or a reason says why not;
/// * a crash test covers every rename, or a reason says why not;
/// * links between documents lead to a file and a heading that exist, and the numbers of open points
///   are right;
/// * nothing names the machine it was written on.
fn check(files: &[Text], machine: &[String]) -> Vec<Fault> {
    let mut faults = links::check(files);
    faults.extend(points::check(files));
    faults.extend(words::check_types(files));
    faults.extend(circles::check(files));
    faults.extend(suites::check(files));
    faults.extend(source::check_places(files));
    faults.extend(renames::check(files));
    for file in files {
        if file.path.ends_with(".rs") {
            faults.extend(imports::check(file));
            faults.extend(layers::check(file));
            faults.extend(owners::check(file));
            faults.extend(source::check(file));
            faults.extend(words::check(file));
            faults.extend(words::check_tests(file));
        }
        faults.extend(tiers::check(file));
        faults.extend(machine::check(file, machine));
    }
    faults
}

fn read_tree(root: &Path) -> Result<Vec<Text>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let entry = entry?;
            let path = entry.path();
            let relative = path
                .strip_prefix(root)?
                .iter()
                .map(OsStr::to_string_lossy)
                .collect::<Vec<_>>()
                .join("/");
            let kind = entry.file_type()?;
            if FOREIGN.contains(&relative.as_str()) {
                continue;
            } else if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && entry.metadata()?.len() <= MAX_TEXT {
                // Files that are not UTF-8, such as pictures, have no text, but links lead to them.
                files.push(Text {
                    path: relative,
                    text: fs::read_to_string(&path).unwrap_or_default(),
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

impl Text {
    fn fault(&self, line: usize, what: impl Into<String>) -> Fault {
        Fault {
            file: self.path.clone(),
            line,
            what: what.into(),
        }
    }

    /// Returns the lines of code, numbered from 1: without comments, string contents and tests.
    fn code(&self) -> impl Iterator<Item = (usize, String)> {
        let lines = (1..).zip(production_lines(&self.text));
        lines.map(|(number, line)| (number, code(line)))
    }

    /// Returns the code without tests as one text, without comments and string contents. Its lines
    /// have the numbers that they have in the file.
    fn code_text(&self) -> String {
        self.code().map(|(_, line)| line + "\n").collect()
    }

    /// Returns the text without tests. Its lines have the numbers that they have in the file.
    fn production(&self) -> String {
        let lines = production_lines(&self.text);
        lines.flat_map(|line| [line, "\n"]).collect()
    }
}

/// Returns the lines of a formatted source file; those of an item under `#[cfg(test)]` are empty.
fn production_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut test: Option<&str> = None;
    text.lines().map(move |line| {
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        match test {
            None if trimmed.starts_with("#[cfg(test)]") => test = Some(indent),
            None => return line,
            // A deeper line, an attribute and the beginning of a block do not end the item.
            Some(of) if indent.len() > of.len() || trimmed.starts_with('#') => {}
            Some(_) if trimmed.ends_with([';', ',', '}']) => test = None,
            Some(_) => {}
        }
        ""
    })
}

/// Returns a line without string contents and without its comment.
fn code(line: &str) -> String {
    let mut code = String::with_capacity(line.len());
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        if !quoted && line[at..].starts_with("//") {
            break;
        }
        let quote = c == '"' && !escaped && !line[..at].ends_with('\'');
        if quote || !quoted {
            code.push(c);
        }
        quoted ^= quote;
        escaped = c == '\\' && !escaped;
    }
    code
}

#[cfg(test)]
fn text(path: &str, text: &str) -> Text {
    Text {
        path: path.into(),
        text: text.into(),
    }
}

#[cfg(test)]
fn shown(faults: Vec<Fault>) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = crate::root();
        let faults = check(&read_tree(root).unwrap(), &machine::names(root));
        assert!(
            faults.is_empty(),
            "{}",
            faults
                .iter()
                .map(|fault| format!("\n{fault}"))
                .collect::<String>()
        );
    }

    #[test]
    fn comments_and_quotes_are_no_code() {
        for (line, expected) in [
            ("a(); // b", "a(); "),
            ("/// b", ""),
            (r#"a("b // \" c", 'd')"#, r#"a("", 'd')"#),
            (r"a('\'', '\\')", r"a('\'', '\\')"),
            (r#"a('"')"#, r#"a('"')"#),
        ] {
            assert_eq!(code(line), expected);
        }
    }

    #[test]
    fn items_of_tests_are_no_production_code() {
        let source = "use a;\n#[cfg(test)]\nuse b::{\n    c,\n};\nfn d() {\n    #[cfg(test)]\n    e();\n    f();\n}\n\
                      #[cfg(test)]\n#[must_use]\nfn g() {\n    h();\n}\n#[cfg(test)]\nmod i;\nmod j;\n";
        let file = text("src/a.rs", source);
        let production = file.production();
        assert_eq!(production.lines().count(), source.lines().count());
        let left: Vec<_> = production.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(left, ["use a;", "fn d() {", "    f();", "}", "mod j;"]);
    }

    #[test]
    fn the_tree_is_read() {
        let files = read_tree(crate::root()).unwrap();
        for path in ["Cargo.toml", "src/lib.rs", "xtask/src/tidy/mod.rs"] {
            assert!(files.iter().any(|file| file.path == path), "{path}");
        }
        assert!(
            !files
                .iter()
                .any(|file| file.path.starts_with("target/") || file.path.starts_with(".git/"))
        );
    }
}
