//! Completion of verbs, options and values by the tables.

use std::path::Path;

use super::table::{Effect, Opt, OptionValue, Verb};
use super::{AppleCli, VERBS, call, disks, diskutil};
use crate::commands::{Candidates, ShellCompletion};
use crate::mount_helper::MOUNT_OPTIONS;

/// Returns the candidates for the last of the words after the program, if that is called as one of Apple's
/// or the words name one.
pub(crate) fn candidates(words: &[String]) -> Option<Candidates> {
    let program = std::env::args_os().next()?;
    let called_as = Path::new(&program).file_name()?.to_str()?;
    let is_option = |word: &&String| word.starts_with('-');
    let options = words.iter().take_while(is_option).count();
    let (tool, words) = match AppleCli::named(called_as) {
        Some(tool) => (tool, words),
        None => (AppleCli::named(words.get(options)?)?, &words[options + 1..]),
    };
    let (current, before) = words.split_last()?;
    let before: Vec<_> = before.iter().map(String::as_str).collect();
    let (also, found) = complete(tool, &before, current);
    let mut candidates = Candidates::new(also);
    for (candidate, description) in found {
        candidates.add(current, candidate, description);
    }
    Some(candidates)
}

/// A candidate and its description.
type Candidate = (String, &'static str);

/// Returns the candidates for the word after `before`, and what the shell completes besides.
fn complete(tool: AppleCli, before: &[&str], current: &str) -> (ShellCompletion, Vec<Candidate>) {
    let (verbs, words): (&[&'static Verb], _) = match (tool, before) {
        (AppleCli::Hdiutil, words) => (VERBS, words),
        (AppleCli::Diskutil, ["image", words @ ..]) => (diskutil::VERBS, words),
        (AppleCli::Diskutil, words) => (disks::VERBS, words),
    };
    let Some((name, words)) = words.split_first() else {
        let mut found: Vec<_> = verbs.iter().copied().flat_map(names).collect();
        if before.is_empty() && tool == AppleCli::Diskutil {
            found.push(("image".to_owned(), "Creates, describes and attaches images"));
        }
        return (ShellCompletion::None, found);
    };
    let Ok(verb) = super::verb(tool, verbs, name.trim_start_matches('-')) else {
        return (ShellCompletion::Files, Vec::new());
    };
    let option = |word: &str| {
        let name = word.strip_prefix('-')?;
        call::find(verb, name.strip_prefix('-').unwrap_or(name)).ok()
    };
    let last = words.last().and_then(|word| option(word));
    let (mut host, mut found) = last.as_ref().map_or((None, Vec::new()), |option| {
        let (host, words) = values(&option.takes);
        let found = words.into_iter().map(|word| (word.to_owned(), ""));
        (host, found.collect())
    });
    let is_value = last.is_some_and(|option| {
        matches!(
            option.takes,
            OptionValue::Value(_) | OptionValue::Choice(..)
        )
    });
    if let Some((name, value)) = current.split_once('=')
        && let Some(option) = option(name).filter(|_| !is_value)
    {
        let (host, words) = values(&option.takes);
        let joined = words
            .into_iter()
            .map(|word| (format!("{name}={}", in_case(word, value)), ""));
        return (host.unwrap_or_default(), joined.collect());
    }
    if is_value {
        let found = found.into_iter();
        let found = found.map(|(word, says)| (in_case(&word, current), says));
        return (host.unwrap_or_default(), found.collect());
    }
    if current.starts_with('-') {
        let dashes = if tool == AppleCli::Diskutil {
            "--"
        } else {
            "-"
        };
        host = Some(ShellCompletion::None);
        found = verb
            .options()
            .flat_map(|option| spelled(option, dashes))
            .collect();
    } else if words.is_empty() {
        // The first operand of some verbs is a word: `create blank`.
        let first = |form: &'static str| {
            let word = form.split_whitespace().next()?;
            word.chars().all(|c| c.is_ascii_lowercase()).then_some(word)
        };
        let firsts = verb.operands.split('|').filter_map(first);
        found.extend(firsts.map(|word| (word.to_owned(), "")));
    }
    (host.unwrap_or(ShellCompletion::Files), found)
}

/// Returns the names of a verb with its description.
fn names(verb: &'static Verb) -> impl Iterator<Item = Candidate> {
    let says = if verb.run.is_some() {
        verb.says
    } else {
        "not supported"
    };
    verb.names
        .iter()
        .map(move |name| ((*name).to_owned(), says))
}

/// Returns the spellings of an option that has an effect.
fn spelled(option: Opt, dashes: &'static str) -> impl Iterator<Item = Candidate> {
    let is_refused = option.effect == Effect::Refused;
    let names = option.names.into_iter().filter(move |_| !is_refused);
    names.map(move |name| {
        let dashes = if name.len() == 1 { "-" } else { dashes };
        (format!("{dashes}{name}"), option.says)
    })
}

/// Returns the words that a value can be, and what the shell completes, if it is known.
fn values(takes: &OptionValue) -> (Option<ShellCompletion>, Vec<&'static str>) {
    match takes {
        OptionValue::Nothing => (None, Vec::new()),
        OptionValue::Value("file" | "bundle" | "device") | OptionValue::File => {
            (Some(ShellCompletion::Files), Vec::new())
        }
        OptionValue::Value("folder") => (Some(ShellCompletion::Folders), Vec::new()),
        OptionValue::Value("option,...") => (Some(ShellCompletion::None), MOUNT_OPTIONS.to_vec()),
        OptionValue::Value(_) => (Some(ShellCompletion::None), Vec::new()),
        OptionValue::Choice(_, words) => (Some(ShellCompletion::None), words.clone()),
        OptionValue::Word(words) => (None, words.clone()),
    }
}

/// Returns a word in the case in which it was begun, as case does not matter.
fn in_case(word: &str, begun: &str) -> String {
    match begun.chars().any(char::is_lowercase) && !word.starts_with(begun) {
        true => word.to_lowercase(),
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of options that are not one of a few words.
    const OPEN: [&str; 23] = [
        "arguments",
        "bundle",
        "device",
        "file",
        "folder",
        "glob",
        "hashes",
        "key=value",
        "keychain",
        "name",
        "number",
        "number and b, k, m, g, t, p or e",
        "number or min",
        "option,...",
        "range",
        "sectors",
        "segment",
        "size",
        "size or min",
        "text",
        "type",
        "user",
        "value",
    ];

    #[test]
    fn every_value_of_a_few_words_is_completed() {
        for verb in VERBS.iter().chain(diskutil::VERBS).chain(disks::VERBS) {
            for option in verb.options() {
                match option.takes {
                    OptionValue::Value(what) => {
                        assert!(OPEN.contains(&what), "{:?}: {what}", option.names);
                    }
                    OptionValue::Choice(_, words) => assert!(!words.is_empty()),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn verbs_options_and_values_are_found() {
        let found = |tool, line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let (current, before) = words.split_last().unwrap();
            let (host, found) = complete(tool, before, current);
            let words = found.into_iter().map(|(word, _)| word);
            (
                host,
                words
                    .filter(|word| word.starts_with(current))
                    .collect::<Vec<_>>(),
            )
        };
        let hdiutil = |line: &str| found(AppleCli::Hdiutil, line);
        let diskutil = |line: &str| found(AppleCli::Diskutil, line);
        assert_eq!(hdiutil("imagei").1, ["imageinfo"]);
        assert_eq!(hdiutil("create -form").1, ["-format"]);
        assert_eq!(hdiutil("create -format UDZ").1, ["UDZO"]);
        assert_eq!(hdiutil("create -format udz").1, ["udzo"]);
        assert_eq!(hdiutil("create -type=SPARSEB").1, ["-type=SPARSEBUNDLE"]);
        assert_eq!(
            hdiutil("create -srcfolder x"),
            (ShellCompletion::Folders, Vec::new())
        );
        assert_eq!(hdiutil("create -encryption AES-1").1, ["AES-128"]);
        assert_eq!(hdiutil("create -passphr").1, [""; 0], "it is refused");
        assert_eq!(hdiutil("attach x"), (ShellCompletion::Files, Vec::new()));
        assert_eq!(diskutil("ima").1, ["image"]);
        assert_eq!(diskutil("image create bl").1, ["blank"]);
        assert_eq!(diskutil("image create blank --form").1, ["--format"]);
        assert_eq!(diskutil("image create blank --format AS").1, ["ASIF"]);
        assert_eq!(diskutil("image attach --mountPolicy no").1, ["noMount"]);
    }
}
