//! The command line: global options, and `bandsaw IMAGE` as a short form of `info`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands::{Command, Info};
use crate::global_args::{Global, TERM_WIDTH};
use crate::help;
use crate::mount_helper;
use crate::output::Output;

/// Create, read, change and repair Apple disk images
///
/// Bandsaw reads and writes raw images, sparse bundles, sparse images (UDSP and ASIF) and
/// compressed images (UDIF), encrypted or not, with HFS+ and APFS volumes. It needs no privileges;
/// only `mount` and `attach` mount anything.
///
/// An object in an image is written IMAGE[:VOLUME][:/PATH]. VOLUME is a name, or #N for partition
/// N; the default is the first volume that can be read. An existing host file of that name takes
/// precedence, and a leading ./ always means a host file. IMAGE:VOLUME@SNAPSHOT is a snapshot of an
/// APFS volume, which `bandsaw info` lists; NAME.sparsebundle@SNAPSHOT is a snapshot of the bundle
/// made by `bandsaw snapshot`. Both are read-only.
///
/// Sizes are written 8m or 8MiB (binary), 8MB (decimal), 16384s (sectors of 512 bytes), or as plain
/// bytes.
#[derive(Debug, Parser)]
#[command(name = NAME, version, arg_required_else_help = true, max_term_width = TERM_WIDTH)]
#[command(
    override_usage = "bandsaw [OPTIONS] <COMMAND>\n       bandsaw [OPTIONS] <IMAGE>    (the same as info)"
)]
#[command(after_help = help::EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// The program's own name.
const NAME: &str = "bandsaw";

/// Reads the command line. Usage errors, `--help` and `--version` exit here.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Cli {
    let words: Vec<OsString> = mount_helper::translated(args.into_iter().collect());
    // The words of a line that is not complete yet stay as they are.
    let words = match words.get(1) {
        Some(verb) if verb == "__complete" => words,
        _ => with_cipher(with_info(words)),
    };
    if help::is_options(&words) {
        let _ = help::print_options();
        std::process::exit(0);
    }
    let mut command = Cli::command();
    let mut matches = command
        .try_get_matches_from_mut(&words)
        .unwrap_or_else(|error| match error.kind() {
            ErrorKind::DisplayHelp => help::exit(Cli::command(), words.clone()),
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
                if !is_json(&words) =>
            {
                help::exit(Cli::command(), words.clone())
            }
            _ => refuse(with_plain_value(best_first(error)), &words),
        });
    crate::failure::set_verb(verb_of(&matches));
    Cli::from_arg_matches_mut(&mut matches)
        .unwrap_or_else(|error| refuse(error.format(&mut command), &words))
}

/// Returns the names of a verb and of its part: `timemachine restore`.
fn verb_of(matches: &ArgMatches) -> String {
    let (mut names, mut at) = (Vec::new(), matches);
    while let Some((name, inner)) = at.subcommand() {
        names.push(name);
        at = inner;
    }
    names.join(" ")
}

/// Returns true if `--json` is one of the options.
fn is_json(words: &[OsString]) -> bool {
    words
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--json")
}

/// Prints a usage error, as JSON if that is requested, and exits. `--version` is no error.
fn refuse(error: clap::Error, words: &[OsString]) -> ! {
    if !error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
        || !is_json(words)
    {
        error.exit();
    }
    let output = Output::for_json();
    let (message, hint) = sentences(&error);
    crate::failure::report_usage(reason(error.kind()), &message, Some(&hint), &output);
    std::process::exit(2);
}

/// Returns the message and the tips of a usage error, each on one line.
fn sentences(error: &clap::Error) -> (String, String) {
    let help = "run `bandsaw --help` for the usage".to_owned();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return ("a command is missing".to_owned(), help);
    }
    let text = error.render().to_string();
    let lines = || text.lines().map(str::trim);
    let message: Vec<_> = lines().take_while(|line| !line.is_empty()).collect();
    let message = message.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let tips: Vec<_> = lines()
        .filter_map(|line| line.strip_prefix("tip: "))
        .collect();
    let hint = if tips.is_empty() {
        help
    } else {
        tips.join("; ")
    };
    (message.to_owned(), hint)
}

/// Returns the code of a kind of usage error.
fn reason(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => {
            "invalid_value"
        }
        ErrorKind::UnknownArgument => "unknown_argument",
        ErrorKind::InvalidSubcommand => "unknown_command",
        ErrorKind::ArgumentConflict => "argument_conflict",
        ErrorKind::NoEquals
        | ErrorKind::TooManyValues
        | ErrorKind::TooFewValues
        | ErrorKind::WrongNumberOfValues => "wrong_number_of_values",
        ErrorKind::MissingRequiredArgument => "missing_argument",
        _ => "missing_command",
    }
}

/// Returns true if all options of this name are hidden.
fn is_hidden(option: &str) -> bool {
    fn options(command: &clap::Command, name: &str, all: &mut Vec<bool>) {
        let named = command
            .get_arguments()
            .filter(|arg| arg.get_long() == Some(name));
        all.extend(named.map(clap::Arg::is_hide_set));
        command
            .get_subcommands()
            .for_each(|verb| options(verb, name, all));
    }
    let mut all = Vec::new();
    // Verbs get their options when they are built.
    let mut command = Cli::command();
    command.build();
    options(&command, option.trim_start_matches("--"), &mut all);
    !all.is_empty() && all.into_iter().all(|is_hidden| is_hidden)
}

/// Reverses the suggested verbs, as clap lists the most similar one last, and suggests no hidden
/// option.
fn best_first(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(option)) = error.get(ContextKind::SuggestedArg)
        && is_hidden(option)
    {
        error.remove(ContextKind::SuggestedArg);
    }
    let suggested = error.remove(ContextKind::SuggestedSubcommand);
    if let Some(ContextValue::Strings(mut verbs)) = suggested {
        verbs.reverse();
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(verbs),
        );
    }
    error
}

/// Says what is expected: the library's parsers repeat the value, and the standard library's say why
/// a number is none.
fn with_plain_value(error: clap::Error) -> clap::Error {
    let Some(cause) = std::error::Error::source(&error) else {
        return error;
    };
    let own = cause.downcast_ref::<bandsaw::Error>();
    let why = match (own, &*cause.to_string()) {
        (Some(own), _) => own.message().to_owned(),
        (_, "invalid float literal" | "cannot parse float from empty string") => {
            "expected a number, such as 0.5".to_owned()
        }
        (_, "invalid digit found in string" | "cannot parse integer from empty string") => {
            "expected a whole number".to_owned()
        }
        _ => return error,
    };
    let (Some(ContextValue::String(value)), Some(ContextValue::String(option))) = (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::InvalidArg),
    ) else {
        return error;
    };
    let message = format!(
        "invalid value '{value}' for '{option}': {why}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(error.kind(), message)
}

/// Expands `--encrypt IMAGE` to `--encrypt=aes-256 IMAGE`: the next word is a cipher only if it is
/// the name of one.
fn with_cipher(mut args: Vec<OsString>) -> Vec<OsString> {
    for at in 1..args.len() {
        if args[at] == "--" {
            break;
        }
        let cipher = args.get(at + 1).is_some_and(|word| {
            word.as_encoded_bytes()
                .to_ascii_lowercase()
                .starts_with(b"aes")
        });
        if args[at] == "--encrypt" && !cipher {
            args[at] = "--encrypt=aes-256".into();
        }
    }
    args
}

/// Expands `bandsaw IMAGE` to `bandsaw info IMAGE`, if the first argument that is not an option is
/// not a verb but an existing file, or can only be meant as one.
fn with_info(mut args: Vec<OsString>) -> Vec<OsString> {
    let info = Global::augment_args(Info::augment_args(clap::Command::new("info")));
    let mut words = args.iter().skip(1);
    let first = loop {
        match words.next() {
            Some(word) if takes_value(&info, word) => drop(words.next()),
            Some(word) if is_option(word) => {}
            first => break first,
        }
    };
    if first.is_some_and(|word| !is_verb(word) && is_image(word)) {
        args.insert(1, "info".into());
    }
    args
}

/// Returns true for an option of a verb whose value is the next word.
fn takes_value(verb: &clap::Command, word: &OsStr) -> bool {
    let Some(long) = word.to_str().and_then(|word| word.strip_prefix("--")) else {
        return false;
    };
    verb.get_arguments()
        .any(|option| option.get_long() == Some(long) && option.get_action().takes_values())
}

fn is_option(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

fn is_verb(word: &OsStr) -> bool {
    word == "help" || word.to_str().is_some_and(Command::has_subcommand)
}

/// Tells a missing image from a misspelled verb: names of images contain a dot, slash or colon.
fn is_image(word: &OsStr) -> bool {
    word.as_encoded_bytes()
        .iter()
        .any(|byte| b"./:".contains(byte))
        || Path::new(word).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        with_info(args)
            .iter()
            .map(|arg| arg.to_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_verb_is_listed_as_its_own_help_begins() {
        let (listed, mut built) = (Cli::command(), Cli::command());
        built.build();
        for verb in listed.get_subcommands() {
            let own = built.find_subcommand(verb.get_name()).unwrap();
            let sentence = |verb: &clap::Command| verb.get_about().map(ToString::to_string);
            assert_eq!(sentence(verb), sentence(own), "{}", verb.get_name());
            assert!(
                sentence(verb).is_some(),
                "{} says what it does",
                verb.get_name()
            );
        }
    }

    #[test]
    fn a_cipher_is_a_cipher_and_an_image_an_image() {
        let completed = |line: &str| {
            let args = with_cipher(line.split(' ').map(OsString::from).collect());
            args.iter()
                .map(|arg| arg.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            completed("bandsaw create --encrypt x.dmg"),
            "bandsaw create --encrypt=aes-256 x.dmg"
        );
        assert_eq!(
            completed("bandsaw create --encrypt aes-128 x.dmg"),
            "bandsaw create --encrypt aes-128 x.dmg"
        );
        assert_eq!(
            completed("bandsaw create x.dmg --encrypt"),
            "bandsaw create x.dmg --encrypt=aes-256"
        );
        assert_eq!(
            completed("bandsaw create -- --encrypt"),
            "bandsaw create -- --encrypt"
        );
    }

    #[test]
    fn an_image_alone_means_info() {
        assert_eq!(
            completed("bandsaw x.dmg --json"),
            "bandsaw info x.dmg --json"
        );
        assert_eq!(
            completed("bandsaw --json missing/disk"),
            "bandsaw info --json missing/disk"
        );
        assert_eq!(
            completed("bandsaw --image-format udrw x.bin"),
            "bandsaw info --image-format udrw x.bin"
        );
        assert_eq!(
            completed("bandsaw --checkpoint 7 -q --section 8..16 x.dmg"),
            "bandsaw info --checkpoint 7 -q --section 8..16 x.dmg"
        );
        assert_eq!(
            completed("bandsaw --passfile key x.dmg"),
            "bandsaw info --passfile key x.dmg"
        );
        assert_eq!(completed("bandsaw ls x.dmg"), "bandsaw ls x.dmg");
        assert_eq!(
            completed("bandsaw --json ls x.dmg"),
            "bandsaw --json ls x.dmg"
        );
        assert_eq!(completed("bandsaw creat x.dmg"), "bandsaw creat x.dmg");
        assert_eq!(completed("bandsaw --version"), "bandsaw --version");
        assert_eq!(completed("bandsaw help ls"), "bandsaw help ls");
    }
}
