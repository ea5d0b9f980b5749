//! Words in messages, names of types and tests, and subjects of commits.

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

/// Parts that the name of a test must not have, each with the words to write instead.
const BANNED_TEST_NAMES: [(&str, &str); 7] = [
    ("_told", "say reported or distinguished"),
    ("_tells_", "say reports or shows"),
    ("makes_no_sense", "say malformed or invalid"),
    ("cut_short", "say truncated"),
    ("left_alone", "say unchanged or skipped"),
    ("gone_on", "say resumed"),
    ("nobody", "name the subject"),
];

/// Starts of names of tests that have no subject.
const EMPTY_TEST_STARTS: [&str; 4] = ["what_", "who_", "where_", "how_"];

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

/// Names of parameters and variables that hold a message.
const MESSAGE_NAMES: [&str; 4] = ["message", "what", "why", "expected"];

/// Names that a message may begin with.
const PROPER_NAMES: [&str; 6] = [
    "Core Storage ",
    "EncryptedRoot.plist",
    "Finder ",
    "Info.plist ",
    "Python ",
    "Windows ",
];

/// The message of a program that is emulated.
const EMULATED: &str = "No such xattr: ";

/// Words that the text of [`Error::io`] must not begin with: `cannot` precedes it.
const NO_VERBS: [&str; 9] = [
    "a", "cannot", "could", "failed", "no", "not", "the", "to", "unable",
];

/// Words that the name in [`Error::not_found`] must not have: `does not exist` follows it.
const NO_NAMES: [&str; 4] = ["exist", "missing", "cannot", "without"];

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
    let production = file.production();
    let mut faults = Vec::new();
    for (line, literal) in literals(&production) {
        for (phrase, instead) in BANNED {
            if literal.contains(phrase) {
                faults.push(file.fault(line, format!("`{}`: {instead}", phrase.trim())));
            }
        }
        if BANNED_STARTS.iter().any(|start| literal.starts_with(start)) {
            faults.push(file.fault(line, format!("name what is wrong: `{literal}`")));
        }
    }
    for (line, message) in messages(&production) {
        if !is_message(&message) {
            let what =
                "an error is lower case, without a full stop, as it follows a name and a colon";
            faults.push(file.fault(line, format!("{what}: `{message}`")));
        }
    }
    for (line, doing) in actions(&production) {
        if !is_action(&doing) {
            let what = "a failed call is a verb and its object, as it follows `cannot`";
            faults.push(file.fault(line, format!("{what}: `{doing}`")));
        }
    }
    for (line, name) in called(&production, &["Error::not_found("], |name| {
        any_literals(name).pop()
    }) {
        if name.split([' ', ':']).any(|word| NO_NAMES.contains(&word)) {
            let what = "what is not found is a name, as `does not exist` follows it";
            faults.push(file.fault(line, format!("{what}: `{name}`")));
        }
    }
    faults
}

/// Returns the faults of the names of tests in one file.
pub(super) fn check_tests(file: &Text) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (line, name) in test_names(&file.text) {
        for (part, instead) in BANNED_TEST_NAMES {
            if name.contains(part) {
                faults.push(file.fault(line, format!("the test {name}: {instead}")));
            }
        }
        if EMPTY_TEST_STARTS
            .iter()
            .any(|start| name.starts_with(start))
        {
            faults.push(file.fault(line, format!("the test {name}: name what is tested")));
        }
    }
    faults
}

/// Returns the names of the functions after `#[test]`, with their lines.
fn test_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let code = line.trim_start();
        is_test |= code.starts_with("#[test]");
        let (_, name) = code.split_once("fn ").filter(|_| is_test)?;
        is_test = false;
        Some((number, name.split(['(', '<']).next()?))
    })
}

/// Returns the messages of all calls of constructors of errors, and of variables for them, with their
/// lines.
fn messages(text: &str) -> Vec<(usize, String)> {
    let own = helpers(text, &MESSAGE_NAMES);
    let names: Vec<_> = CONSTRUCTORS
        .into_iter()
        .chain(own.iter().map(String::as_str))
        .collect();
    let mut found = called(text, &names, |arguments| literals(arguments).pop());
    for name in MESSAGE_NAMES {
        let bound = format!("let {name} =");
        for (at, _) in text.match_indices(&bound) {
            let value = text[at + bound.len()..].trim_start();
            let value = value.strip_prefix("format!(").unwrap_or(value).trim_start();
            if value.starts_with('"') {
                let line = text[..text.len() - value.len()].matches('\n').count() + 1;
                found.push((line, literal(value).1));
            }
        }
    }
    found
}

/// Returns what could not be done in all errors of failed system calls, with the lines.
fn actions(text: &str) -> Vec<(usize, String)> {
    // The first argument is the layer, which may be a text, too.
    let second = |arguments: &str| {
        let layer = argument_len(arguments);
        let doing = arguments.get(layer + 1..)?;
        let doing = &doing[..argument_len(doing)];
        let line = arguments[..=layer].matches('\n').count();
        let found = any_literals(doing)
            .into_iter()
            .next()
            .or_else(|| constant(text, doing));
        found.map(|(at, doing)| (line + at, doing))
    };
    let own = helpers(text, &["doing"]);
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let mut found = called(text, &["Error::io("], second);
    found.extend(called(text, &own, |arguments| {
        any_literals(arguments).into_iter().next()
    }));
    found
}

/// Returns the beginnings of calls of functions and closures of a file that take a text of one of these
/// names and make an error of it.
fn helpers(text: &str, names: &[&str]) -> Vec<String> {
    let takes = |parameters: &str| {
        parameters.split(',').any(|one| {
            one.split_once(':').is_some_and(|(name, kind)| {
                names.contains(&name.trim()) && !kind.contains("fmt::Arguments")
            })
        })
    };
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ") {
        let Some((name, rest)) = text[at + 3..].split_once('(') else {
            continue;
        };
        let parameters = &rest[..arguments_len(rest)];
        let returns = rest[parameters.len()..].split(['{', ';']).next();
        let is_error = returns.is_some_and(|returns| {
            returns.contains("-> Error")
                || returns.contains("-> Failure")
                || returns.contains("Error + ")
        });
        if is_error && takes(parameters) {
            found.push(name.split('<').next().unwrap_or(name).to_owned());
        }
    }
    for (at, _) in text.match_indices("let ") {
        let Some((name, rest)) = text[at + 4..].split_once(" = |") else {
            continue;
        };
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        if let Some((parameters, body)) = rest.split_once('|').filter(|_| is_name)
            && takes(parameters)
            && body
                .split(';')
                .next()
                .is_some_and(|body| body.contains("Error::"))
        {
            found.push(name.to_owned());
        }
    }
    found.iter_mut().for_each(|name| name.push('('));
    found
}

/// Returns a text of the arguments of each call of these functions, with its line.
fn called(
    text: &str,
    names: &[&str],
    wanted: impl Fn(&str) -> Option<(usize, String)>,
) -> Vec<(usize, String)> {
    let calls = names.iter().flat_map(|name| {
        let calls = text.match_indices(name).map(|(at, _)| at);
        let is_whole = |at: &usize| {
            let before = text[..*at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        };
        calls.filter(is_whole).map(|at| at + name.len())
    });
    calls
        .filter_map(|at| {
            let (line, found) = wanted(&text[at..at + arguments_len(&text[at..])])?;
            Some((text[..at].matches('\n').count() + line, found))
        })
        .collect()
}

/// Returns the length of the first of some arguments.
fn argument_len(arguments: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while let Some(c) = arguments[at..].chars().next() {
        match c {
            '"' => {
                at += literal(&arguments[at..]).0;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => break,
            _ => {}
        }
        at += c.len_utf8();
    }
    at
}

/// Returns the literals of some arguments, also those of a single word, with their lines.
fn any_literals(arguments: &str) -> Vec<(usize, String)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(c) = arguments[at..].chars().next() {
        at += match c {
            '"' => {
                let (len, text) = literal(&arguments[at..]);
                found.push((arguments[..at].matches('\n').count() + 1, text));
                len
            }
            c => c.len_utf8(),
        };
    }
    found
}

/// Returns the text of the constant of the same file that an argument names.
fn constant(text: &str, argument: &str) -> Option<(usize, String)> {
    let declared = format!("const {}: &str = ", argument.trim());
    let value = &text[text.find(&declared)? + declared.len()..];
    value.starts_with('"').then(|| (1, literal(value).1))
}

/// Returns true for a verb and its object.
fn is_action(doing: &str) -> bool {
    let first = doing.split(' ').next().unwrap_or_default();
    let is_verb = first.starts_with(|c: char| c.is_ascii_lowercase() || c == '{')
        && !NO_VERBS.contains(&first)
        && !first.ends_with("ing");
    is_verb && is_message(doing)
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
    let has_name = PROPER_NAMES.iter().any(|name| message.starts_with(name));
    let is_sentence = !has_name
        && !message.starts_with(EMULATED)
        && chars.next().is_some_and(char::is_uppercase)
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

/// Returns the name of the type that a line of code declares.
fn type_name(code: &str) -> Option<&str> {
    let mut words = code
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub") || word.ends_with(')')); // `pub(in path)`
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
    use super::super::{shown, text};
    use super::*;

    fn faults(path: &str, code: &str) -> Vec<String> {
        shown(check(&text(path, code)))
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
    fn names_of_tests_say_what_is_tested() {
        let code = "#[test]\nfn holes_are_told() {}\n\n#[test]\n#[cfg(unix)]\nfn what_cannot_be() {}\n\n\
            fn nobody() {}\n\n#[test]\nfn holes_are_reported() {}\n";
        assert_eq!(
            shown(check_tests(&text("tests/a.rs", code))),
            [
                "tests/a.rs:2: the test holes_are_told: say reported or distinguished",
                "tests/a.rs:6: the test what_cannot_be: name what is tested"
            ]
        );
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
    fn helpers_and_variables_hold_messages_too() {
        let code = "fn odd(at: usize, message: &'static str) -> Error {\n    todo()\n}\n\
            fn a() {\n    odd(1, \"The map is long\");\n    let why = format!(\"It is {}.\", 1);\n\
            let bad = |what: String| Err(Error::invalid(LAYER, what));\n    bad(\"no map.\".into());\n}\n";
        let found = faults("src/a.rs", code);
        let lines: Vec<_> = found
            .iter()
            .map(|fault| fault.split(':').nth(1).unwrap())
            .collect();
        assert_eq!(lines, ["5", "8", "6"], "{found:?}");
    }

    #[test]
    fn a_failed_call_is_a_verb_and_a_missing_thing_a_name() {
        let code = |call: &str| faults("src/a.rs", &format!("fn a() {{\n    {call};\n}}\n"));
        for right in [
            "Error::io(LAYER, \"read the header\", error)",
            "Error::io(\"the file\", \"read\", error)",
            "Error::io(LAYER, format!(\"{call} it\"), error)",
            "Error::not_found(LAYER, format!(\"partition {n}\"))",
        ] {
            assert_eq!(code(right), [""; 0], "{right}");
        }
        for wrong in [
            "Error::io(LAYER, \"cannot read\", error)",
            "Error::io(LAYER, \"reading\", error)",
            "Error::io(LAYER, \"no header\", error)",
            "Error::io(LAYER, \"Read the header.\", error)",
            "Error::not_found(LAYER, format!(\"partition {n} does not exist\"))",
        ] {
            assert_eq!(code(wrong).len(), 1, "{wrong}");
        }
        let named = "const NO: &str = \"no map\";\nfn a() { Error::io(LAYER, NO, error) }\n";
        assert_eq!(faults("src/a.rs", named).len(), 1);
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
        files.push(text("src/d.rs", "//! A.\npub(in crate::a) struct Row {}\n"));
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
