//! Every verb explains itself, and the manual says the same.

use std::fs;
use std::path::Path;

use crate::common::Scratch;

/// The verbs that `bandsaw --help` lists.
fn verbs(scratch: &Scratch) -> Vec<String> {
    let help = scratch.ok(&["--help"]);
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let verbs: Vec<_> = commands
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter_map(|entry| entry.split_whitespace().next().map(str::to_owned))
        .collect();
    assert!(verbs.iter().any(|verb| verb == "info"), "{help}");
    verbs
}

/// The sub-verbs that `bandsaw VERB -h` lists.
fn sub_verbs(help: &str) -> Vec<String> {
    let Some(commands) = help.split("Commands:\n").nth(1) else {
        return Vec::new();
    };
    commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|verb| verb != "help")
        .collect()
}

#[test]
fn short_help_fits_a_screen() {
    let scratch = Scratch::new();
    let help_of = |words: &[&str]| {
        let at = |columns: &str| {
            let mut command = scratch.command(&[words, &["-h"]].concat());
            let output = command.env("COLUMNS", columns).output().unwrap();
            let help = String::from_utf8(output.stdout).unwrap();
            assert!(help.lines().count() <= 40, "{words:?}:\n{help}");
            help
        };
        let narrow = at("80");
        let widest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{words:?}:\n{narrow}");
        let help = at("100");
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{words:?}:\n{help}");
        let last = help.lines().rfind(|line| !line.is_empty());
        assert_eq!(
            last,
            Some("Passphrases, buckets and output: bandsaw help options"),
            "{words:?}"
        );
        help
    };
    help_of(&[]);
    let mut parts = 0;
    for verb in verbs(&scratch) {
        for part in sub_verbs(&help_of(&[&verb])) {
            help_of(&[&verb, &part]);
            parts += 1;
        }
    }
    assert!(parts > 10, "{parts} sub-verbs");
}

#[test]
fn shared_options_are_described_once() {
    let scratch = Scratch::new();
    let options = scratch.ok(&["help", "options"]);
    for option in [
        "--json",
        "--passfile",
        "--volume-passfile",
        "--new-passfile",
        "--shadow",
        "--bandwidth",
    ] {
        assert!(options.contains(&format!("  {option}")), "{option}");
        for form in ["-h", "--help"] {
            let help = scratch.ok(&["convert", form]);
            assert!(!help.contains(&format!("  {option}")), "{option}:\n{help}");
        }
    }
    assert!(scratch.ok(&["help", "create"]).contains("Examples:"));
}

#[test]
fn every_verb_has_examples() {
    let scratch = Scratch::new();
    for verb in verbs(&scratch) {
        let help = scratch.ok(&[&verb, "--help"]);
        let examples = help
            .split("Examples:\n")
            .nth(1)
            .unwrap_or_else(|| panic!("{verb} has no examples:\n{help}"));
        let examples = examples.split("\n\n").next().unwrap();
        assert!(
            examples.lines().all(|line| line.starts_with("  ")),
            "{help}"
        );
        assert!(examples.contains(&format!("bandsaw {verb}")), "{help}");
    }
}

#[test]
fn examples_parse() {
    let scratch = Scratch::new();
    for verb in verbs(&scratch) {
        let help = scratch.ok(&[&verb, "--help"]);
        for line in help
            .split("Examples:\n")
            .nth(1)
            .unwrap()
            .lines()
            .filter(|line| line.contains("bandsaw "))
        {
            // As the shell would, as far as the examples need it: comments, redirections and
            // pipes end the command.
            let command = line
                .split("   ")
                .find(|part| part.contains("bandsaw "))
                .unwrap();
            let command = &command[command.find("bandsaw ").unwrap()..];
            let words = command
                .split_whitespace()
                .take_while(|word| !matches!(*word, ">" | "|" | "<"))
                .skip(1);
            // Measuring would take a minute and more: its folder is not there.
            let words: Vec<_> = words
                .map(|word| {
                    if verb == "bench" && word == "." {
                        "nowhere"
                    } else {
                        word
                    }
                })
                .collect();
            let output = scratch.run(&words);
            assert_ne!(
                output.status.code(),
                Some(2),
                "{line}: {}",
                crate::common::stderr(&output)
            );
        }
    }
}

#[test]
fn the_manual_is_up_to_date() {
    let scratch = Scratch::new();
    scratch.ok(&["man", "man"]);
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let again =
        "run `cargo run -p bandsaw-cli -- man docs/man` and remove pages of verbs that are gone";
    assert_eq!(names(&committed), names(&scratch.path("man")), "{again}");
    for name in names(&committed) {
        let same = fs::read(committed.join(&name)).unwrap()
            == fs::read(scratch.path("man").join(&name)).unwrap();
        assert!(
            same,
            "docs/man/{} is not what --help says: {again}",
            name.display()
        );
    }
}

#[test]
fn completions_name_every_verb() {
    let scratch = Scratch::new();
    // The others ask the command (`completion.rs`).
    for shell in ["elvish", "powershell"] {
        let script = scratch.ok(&["completions", shell]);
        for verb in verbs(&scratch) {
            assert!(script.contains(&verb), "{shell}: {verb}");
        }
    }
}

#[test]
fn a_misspelt_verb_is_not_taken_for_an_image() {
    let scratch = Scratch::new();
    let creat = scratch.fails(2, &["creat", "x.dmg"]);
    assert!(
        creat.contains("similar subcommands exist: 'create'"),
        "{creat}"
    );
    assert!(scratch.fails(2, &["lss"]).contains("'ls'"));
    assert!(scratch.fails(3, &["missing.dmg"]).contains("missing.dmg"));
}
