//! Words in messages, names of types, and subjects of commits.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Fault, Text};

/// Phrases that a message must not have, each with the words to write instead.
const BANNED: [(&str, &str); 14] = [
    ("makes no sense", "say malformed or invalid"),
    ("make no sense", "say malformed or invalid"),
    (
        "was not asked for",
        "say what exists, and hint at the option",
    ),
    ("cut short", "say truncated"),
    ("gone through", "say too many, and the limit"),
    ("left alone", "say skipped"),
    ("go on with", "say resume or continue"),
    ("goes on with", "say resume or continue"),
    (" mend", "say repair"),
    ("`mends", "say repair"),
    ("not read yet", "say unsupported"),
    ("somebody", "say another program"),
    (" tells ", "say records or shows"),
    ("exists already", "say already exists"),
];

/// Predicates that a message must not begin with: they lack the subject or the finding.
const BANNED_STARTS: [&str; 3] = ["is no ", "is none", "are no "];

/// Constructors of errors; the last text in a call is the message.
const CONSTRUCTORS: [&str; 7] = [
    "Error::new(",
    "Error::conflict(",
    "Error::corrupt(",
    "Error::invalid(",
    "Error::limit(",
    "Error::unsupported(",
    "Failure::usage(",
];

/// Maximum number of types of one name in a crate.
const MAX_TYPES: usize = 3;

/// Maximum number of characters in the subject of a commit.
const MAX_SUBJECT: usize = 72;

/// Returns the faults of the messages in one file: string literals with several words, outside of
/// tests.
pub(super) fn check(file: &Text) -> Vec<Fault> {
    if !has_messages(&file.path) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (line, literal) in literals(production(&file.text)) {
        for (phrase, instead) in BANNED {
            if literal.contains(phrase) {
                faults.push(file.fault(line, format!("`{}`: {instead}", phrase.trim())));
            }
        }
        if BANNED_STARTS.iter().any(|start| literal.starts_with(start)) {
            faults.push(file.fault(line, format!("name what is wrong: `{literal}`")));
        }
    }
    for (line, message) in messages(production(&file.text)) {
        if !is_message(&message) {
            let what =
                "an error is lower case, without a full stop, as it follows a name and a colon";
            faults.push(file.fault(line, format!("{what}: `{message}`")));
        }
    }
    faults
}

/// Returns the messages of all calls of constructors of errors, with their lines.
fn messages(text: &str) -> Vec<(usize, String)> {
    let calls = CONSTRUCTORS
        .iter()
        .flat_map(|name| text.match_indices(name).map(|(at, _)| at + name.len()));
    calls
        .filter_map(|at| {
            let arguments = &text[at..at + arguments_len(&text[at..])];
            let (line, message) = literals(arguments).pop()?;
            Some((text[..at].matches('\n').count() + line, message))
        })
        .collect()
}

/// Returns the length of the arguments of a call up to its closing parenthesis.
fn arguments_len(source: &str) -> usize {
    let (mut at, mut depth) = (0, 1);
    while let Some(c) = source[at..].chars().next() {
        match c {
            '"' => {
                at += literal(&source[at..]).0;
                continue;
            }
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        at += c.len_utf8();
    }
    at
}

/// Returns true unless a message is a sentence of its own. Names in capitals may begin one.
fn is_message(message: &str) -> bool {
    let mut chars = message.chars();
    let is_sentence = chars.next().is_some_and(char::is_uppercase)
        && chars.next().is_some_and(char::is_lowercase);
    let has_stop = message.ends_with(['.', '!']) && !message.ends_with("..");
    !is_sentence && !has_stop
}

/// Returns a fault for each name that too many types of a crate have.
pub(super) fn check_types(files: &[Text]) -> Vec<Fault> {
    let mut types: BTreeMap<(&str, String), Vec<Fault>> = BTreeMap::new();
    for file in files.iter().filter(|file| has_messages(&file.path)) {
        let crate_name = match file.path.strip_prefix("crates/") {
            Some(rest) => rest.split('/').next().unwrap_or_default(),
            None => file.path.split('/').next().unwrap_or_default(),
        };
        for (line, code) in file.code() {
            if let Some(name) = type_name(&code) {
                let fault = file.fault(line, format!("the crate has other types called {name}"));
                let key = (crate_name, name.to_owned());
                types.entry(key).or_default().push(fault);
            }
        }
    }
    let too_many = types
        .into_iter()
        .filter(|(_, found)| found.len() > MAX_TYPES);
    too_many.flat_map(|(_, faults)| faults).collect()
}

/// Returns a fault for each of the last 50 commits whose subject is not `area: imperative subject`
/// of at most 72 characters. A copy of the sources without git has none.
pub(super) fn check_commits(root: &Path) -> Result<Vec<Fault>> {
    if !root.join(".git").exists() {
        return Ok(Vec::new());
    }
    let log = Command::new("git")
        .args(["log", "--no-merges", "--max-count=50", "--format=%h %s"])
        .current_dir(root)
        .output()
        .context("running git log")?;
    ensure!(
        log.status.success(),
        "git log failed: {}",
        String::from_utf8_lossy(&log.stderr)
    );
    let log = String::from_utf8(log.stdout)?;
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    Ok(commits
        .filter(|(_, subject)| !is_subject(subject))
        .map(|(id, _)| Fault {
            file: format!("commit {id}"),
            line: 1,
            what: format!(
                "a subject is `area: imperative subject`, at most {MAX_SUBJECT} characters"
            ),
        })
        .collect())
}

fn is_subject(subject: &str) -> bool {
    let parts = subject.split_once(": ");
    let well_formed = parts
        .is_some_and(|(area, what)| !area.is_empty() && !what.is_empty() && !what.ends_with('.'));
    well_formed && subject.chars().count() <= MAX_SUBJECT
}

/// Returns true for the sources of the library and the crates, without test kits.
fn has_messages(path: &str) -> bool {
    let source =
        path.starts_with("src/") || (path.starts_with("crates/") && path.contains("/src/"));
    let test = ["testing", "tests", "corruptions", "fixture", "sample"];
    source && path.ends_with(".rs") && !test.iter().any(|word| path.contains(word))
}

/// Returns the text before the tests at its end.
pub(super) fn production(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod ")
        .map_or(text, |at| &text[..at])
}

/// Returns the name of the type that a line of code declares.
fn type_name(code: &str) -> Option<&str> {
    let mut words = code
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    if !["struct", "enum", "trait", "union"].contains(&keyword) {
        return None;
    }
    words
        .next()?
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}

/// Returns the string literals of several words with their lines; continued lines are joined.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let (mut line, mut rest) = (1, text);
    while let Some(c) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' {
            let (len, literal) = literal(rest);
            if literal.trim().contains(' ') {
                found.push((line, literal));
            }
            len
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            3
        } else {
            c.len_utf8()
        };
        let len = len.min(rest.len());
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    found
}

/// Returns the length in the source and the text of the literal at the beginning.
fn literal(source: &str) -> (usize, String) {
    let mut text = String::new();
    let mut chars = source.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (at + 1, text),
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, escaped)) => text.extend(['\\', escaped]),
                None => {}
            },
            c => text.push(c),
        }
    }
    (source.len(), text)
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    fn faults(path: &str, code: &str) -> Vec<String> {
        check(&text(path, code))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn riddles_in_messages_are_found() {
        let code =
            "fn a() {\n    \"the entry \\\n     makes no sense\";\n    \"is no folder\";\n}\n";
        assert_eq!(
            faults("src/a.rs", code),
            [
                "src/a.rs:2: `makes no sense`: say malformed or invalid",
                "src/a.rs:4: name what is wrong: `is no folder`"
            ]
        );
        assert!(faults("tests/a.rs", code).is_empty());
        let test = format!("fn b() {{}}\n\n#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(faults("src/a.rs", &test).is_empty());
    }

    #[test]
    fn messages_of_errors_are_no_sentences() {
        let code = "fn a() {\n    Error::new(Kind::Io, \"a b\", f(x), \"{}\").named(\"b C\");\n    \
            Error::corrupt(\"map\", 0,\n        format!(\"The map is (too) long.\"));\n}\n";
        assert_eq!(messages(code).len(), 2);
        let found = faults("src/a.rs", code);
        assert!(
            found.len() == 1 && found[0].starts_with("src/a.rs:4: "),
            "{found:?}"
        );
        assert!(is_message("APFS is (unsupported)") && is_message("it has .."));
        assert!(!is_message("no map!"));
    }

    #[test]
    fn comments_and_single_words_are_no_messages() {
        let code = "// it makes no sense\nlet a = ['\"', '\\''];\nlet b = \"mend\";\n";
        assert!(faults("src/a.rs", code).is_empty());
    }

    #[test]
    fn the_fourth_type_of_a_name_is_a_fault() {
        let file = |path: &str| text(path, "//! A.\npub(crate) struct Row<'a> {}\n");
        let mut files = vec![file("src/a.rs"), file("src/b.rs"), file("src/c.rs")];
        files.push(file("crates/cli/src/a.rs"));
        assert!(check_types(&files).is_empty());
        files.push(file("src/d.rs"));
        assert_eq!(check_types(&files).len(), 4);
    }

    #[test]
    fn subjects_have_an_area_and_an_end() {
        assert!(is_subject(
            "asif: refuse chunk numbers past the end of the file"
        ));
        for wrong in [
            "Fix it",
            "asif: refuse.",
            ": a",
            &format!("a: {}", "b".repeat(72)),
        ] {
            assert!(!is_subject(wrong), "{wrong}");
        }
    }
}
