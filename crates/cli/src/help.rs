//! The help: `-h` fits a screen, `--help` has details and examples, and options that most verbs
//! share are described once, by `bandsaw help options`.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;

use clap::{Args, Command};

use crate::failure;
use crate::global_args::{Global, TERM_WIDTH};
use crate::headings::{COMPRESSION, is_shared};
use crate::passphrase::{Iterations, KeyWrapArgs, NewPassphrase, UnlockArgs};
use crate::source::OpenArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  bandsaw create Docs.sparsebundle --from ~/Documents   make a sparse bundle from a folder
  bandsaw Docs.sparsebundle                             show its layers and volumes
  bandsaw ls -l Docs.sparsebundle:/Letters              list a folder in it
  bandsaw extract Docs.sparsebundle out                 extract all files to a folder";

const MORE: &str = "Passphrases, buckets and output: bandsaw help options";

const OPTIONS: &str = "\
Options common to many commands

A command accepts the options that apply to it: those for encrypted images if it opens one, those
for new passphrases if it sets one, and so on.";

/// The verbs by task; `bandsaw -h` describes those of the first group only.
const GROUPS: [(&str, &[&str]); 9] = [
    (
        "Commands",
        &[
            "create", "info", "ls", "extract", "cp", "convert", "mount", "attach", "detach",
            "compact", "check", "repair",
        ],
    ),
    (
        "Files in a volume",
        &[
            "tree",
            "cat",
            "put",
            "rm",
            "mv",
            "mkdir",
            "ln",
            "xattr",
            "chmod",
            "touch",
            "compress",
            "decompress",
            "stat",
        ],
    ),
    (
        "Making and changing images",
        &[
            "format",
            "dmg",
            "resize",
            "segment",
            "join",
            "resources",
            "enable-journal",
            "disable-journal",
            "stack",
            "snapshot",
            "checkpoint",
        ],
    ),
    ("Space", &["du", "trim", "reband", "advise"]),
    (
        "Integrity",
        &[
            "verify", "checksum", "diagnose", "recover", "report", "diff", "evidence",
        ],
    ),
    (
        "Backups",
        &["timemachine", "health", "scrub", "watch", "send", "receive"],
    ),
    ("Encryption", &["passwd", "isencrypted", "erase-keys"]),
    ("Serving", &["serve", "web", "list"]),
    (
        "Other",
        &["bench", "hdiutil", "diskutil", "shims", "completions"],
    ),
];

/// Prints the help of `all` commands that `words` ask for, and exits.
pub(crate) fn exit(mut all: Command, words: Vec<OsString>) -> ! {
    all.build();
    match top(shortened(all)).try_get_matches_from(words) {
        Err(error) => error.exit(),
        Ok(_) => std::process::exit(0),
    }
}

/// Returns true for `bandsaw help options`.
pub(crate) fn is_options(words: &[OsString]) -> bool {
    words.len() == 3 && words[1] == "help" && words[2] == "options"
}

/// Prints the options that verbs share.
pub(crate) fn print_options() -> io::Result<()> {
    let command = Command::new("options")
        .disable_help_flag(true)
        .max_term_width(TERM_WIDTH);
    let command = Global::augment_args(command);
    let command = OpenArgs::<UnlockArgs>::augment_args(command);
    let command = NewPassphrase::augment_args(command);
    let command = Iterations::augment_args(command);
    KeyWrapArgs::augment_args(command)
        .help_template(format!("{OPTIONS}\n\n{{all-args}}"))
        .print_long_help()
}

/// Leaves shared options out of the help of a verb, and examples out of its short help.
fn shortened(command: Command) -> Command {
    let examples = command.get_after_help().map(ToString::to_string);
    let compresses = command
        .get_arguments()
        .any(|arg| arg.get_id() == "compress");
    command
        .mut_subcommands(shortened)
        .mut_args(|arg| {
            let is_shared = is_shared(&arg);
            let is_detail = compresses
                && arg.get_help_heading() == Some(COMPRESSION)
                && arg.get_id() != "compress";
            let is_detail = is_detail || arg.is_hide_short_help_set();
            arg.hide_short_help(is_shared || is_detail)
                .hide_long_help(is_shared)
        })
        .after_help(MORE)
        .after_long_help(match examples {
            Some(examples) => format!("{examples}\n\n{MORE}"),
            None => MORE.to_owned(),
        })
}

/// Lists the verbs by task.
fn top(all: Command) -> Command {
    let (mut short, mut long) = (String::new(), String::new());
    for (task, names) in GROUPS {
        let verbs = names.iter().filter_map(|name| all.find_subcommand(name));
        let _ = writeln!(long, "{task}:");
        for verb in verbs {
            let about = verb.get_about().unwrap_or_default();
            let _ = writeln!(long, "  {:<15}  {about}", verb.get_name());
        }
        if short.is_empty() {
            short = format!("{long}\nMore commands:\n");
        } else {
            let _ = writeln!(short, "  {task}: {}", names.join(", "));
        }
    }
    let short = format!(
        "{short}\n\
         Help for a command:   bandsaw COMMAND -h, or with examples: bandsaw COMMAND --help\n\
         All commands:         bandsaw --help\n\
         Version:              bandsaw --version\n\n{MORE}"
    );
    let long = format!(
        "{long}\n{}\n\n{MORE}\n\n{}",
        EXAMPLES,
        failure::exit_status_help()
    );
    all.help_template("{about-with-newline}\n{usage-heading} {usage}{after-help}")
        .after_help(short)
        .after_long_help(long)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// Calls `each` for every visible verb and sub-verb.
    fn visit(command: &Command, each: &mut dyn FnMut(&Command)) {
        each(command);
        command
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .for_each(|verb| visit(verb, each));
    }

    fn all() -> Command {
        let mut all = Cli::command().disable_help_subcommand(true);
        all.build();
        all
    }

    #[test]
    fn every_verb_is_in_one_group() {
        let mut seen: BTreeMap<_, _> = all()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| (verb.get_name().to_owned(), 0))
            .collect();
        for name in GROUPS.iter().flat_map(|(_, verbs)| *verbs) {
            match seen.get_mut(*name) {
                Some(count) => *count += 1,
                // These exist only on Linux.
                None => assert!(["attach", "detach", "mount"].contains(name), "{name}"),
            }
        }
        assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    }

    #[test]
    fn options_begin_with_a_short_phrase() {
        const QUESTIONS: [&str; 6] = ["What", "Which", "Who", "Where", "Whether", "How"];
        let check = |of: &str, text: &str| {
            assert!(text.chars().count() <= 60, "{of}: {text}");
            let first = text.split_whitespace().next();
            assert!(
                first.is_some_and(|word| !QUESTIONS.contains(&word)),
                "{of}: {text}"
            );
        };
        visit(&all(), &mut |verb| {
            let name = verb.get_bin_name().unwrap_or_default();
            check(name, &verb.get_about().unwrap_or_default().to_string());
            for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let help = arg.get_help().unwrap_or_default().to_string();
                check(&format!("{name} {}", arg.get_id()), &help);
            }
        });
    }

    #[test]
    fn examples_fit_the_width_of_the_help() {
        visit(&all(), &mut |verb| {
            let examples = verb.get_after_help().unwrap_or_default().to_string();
            for line in examples.lines() {
                assert!(line.chars().count() <= TERM_WIDTH, "{line}");
            }
        });
    }
}
