//! `bandsaw __complete`: candidates for the word before the cursor, for the scripts of
//! `bandsaw completions`.
//!
//! The first line of the output says what to complete besides: `files`, `folders` or `none`. Every
//! other line is a candidate, and after a tab its description.

mod inside;
mod line;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::OnceLock;

use bandsaw::container::Format;
use bandsaw::decision::Assumptions;
use bandsaw::ops::advise::Place;
use bandsaw::ops::checksum::Algorithm;
use bandsaw::ops::create::Layout;
use bandsaw::ops::format::NewFormat;
use bandsaw_evidence::Field;
use bandsaw_registry::Registry;
use clap::{Arg, Args, Command, CommandFactory, ValueEnum, ValueHint};

use crate::args::Cli;
use crate::failure::Outcome;
use crate::mount_helper::MOUNT_OPTIONS;
use crate::output::Output;

/// Print the candidates for a word
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw __complete words info Docs.sparsebundle:/Le
  bandsaw __complete bash 'bandsaw info Docs.sparsebundle:/Le' ':='")]
pub(crate) struct Complete {
    /// The form of the line: its words, or bash's line and COMP_WORDBREAKS
    #[arg(value_enum)]
    form: Form,
    /// The words after the program, with the one to complete at the end
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Form {
    Words,
    Bash,
}

/// Completion by the shell itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ShellCompletion {
    #[default]
    None,
    Files,
    Folders,
}

/// Candidates and their descriptions, sorted.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    also: ShellCompletion,
    found: BTreeMap<String, String>,
}

impl Candidates {
    pub(crate) fn new(also: ShellCompletion) -> Self {
        Self {
            also,
            found: BTreeMap::new(),
        }
    }

    /// Adds a candidate, unless it does not continue `current`.
    pub(crate) fn add(&mut self, current: &str, candidate: String, description: &str) {
        // A line break cannot be written in the protocol.
        if candidate.starts_with(current) && !candidate.contains(['\n', '\t']) {
            let description = description.replace(['\n', '\t'], " ");
            self.found.insert(candidate, description);
        }
    }

    fn add_all<'a>(&mut self, current: &str, all: impl IntoIterator<Item = &'a str>) {
        for candidate in all {
            self.add(current, candidate.to_owned(), "");
        }
    }
}

impl Complete {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("__complete")?;
        let mut out = output.stdout();
        match self.form {
            Form::Words => {
                let candidates = candidates(&self.words);
                writeln!(out, "{}", also(candidates.also))?;
                for (candidate, description) in &candidates.found {
                    match &**description {
                        "" => writeln!(out, "{candidate}")?,
                        text => writeln!(out, "{candidate}\t{text}")?,
                    }
                }
            }
            Form::Bash => {
                let typed = self.words.first().map_or("", String::as_str);
                let breaks = self.words.get(1).map_or("", String::as_str);
                let line = line::Line::new(typed, breaks);
                let words = line.words.get(1..).unwrap_or_default();
                let candidates = candidates(words);
                writeln!(out, "{}", also(candidates.also))?;
                for candidate in candidates.found.keys() {
                    writeln!(out, "{}", line.written(candidate))?;
                }
            }
        }
        Ok(out.flush()?)
    }
}

fn also(also: ShellCompletion) -> &'static str {
    match also {
        ShellCompletion::None => "none",
        ShellCompletion::Files => "files",
        ShellCompletion::Folders => "folders",
    }
}

/// The candidates for the words of another program; `None` for words of this one.
type OtherProgram = fn(&[String]) -> Option<Candidates>;

static OTHER_PROGRAM: OnceLock<OtherProgram> = OnceLock::new();

/// Sets what completes the words of programs that this one emulates.
pub(crate) fn set_other_program(other: OtherProgram) {
    let _ = OTHER_PROGRAM.set(other);
}

/// Returns the candidates for the last of the words after the program.
fn candidates(words: &[String]) -> Candidates {
    if let Some(found) = OTHER_PROGRAM.get().and_then(|other| other(words)) {
        return found;
    }
    let Some((current, before)) = words.split_last() else {
        return Candidates::default();
    };
    let mut root = Cli::command();
    root.build();
    let mut verb = &root;
    let mut names: Vec<&str> = Vec::new();
    let mut operands: Vec<&str> = Vec::new();
    let mut waiting: Option<&Arg> = None;
    let mut only_operands = false;
    for word in before {
        if waiting.take().is_some() {
            continue;
        }
        if !only_operands && word == "--" {
            only_operands = true;
        } else if !only_operands && word.starts_with('-') && word.len() > 1 {
            waiting = option(verb, word).filter(|_| !word.contains('='));
        } else if let Some(found) = verb
            .find_subcommand(word)
            .filter(|_| operands.is_empty() && !only_operands)
        {
            verb = found;
            names.push(found.get_name());
        } else {
            operands.push(word);
        }
    }
    // `bandsaw IMAGE` is `bandsaw info IMAGE`.
    if names.is_empty() && !operands.is_empty() {
        verb = root.find_subcommand("info").unwrap_or(&root);
    }
    if let Some(option) = waiting {
        return values(verb, option, current, &operands);
    }
    if !only_operands
        && let Some((name, value)) = current.split_once('=')
        && let Some(option) = name.starts_with("--").then(|| option(verb, name)).flatten()
    {
        let of_value = values(verb, option, value, &operands);
        let found = of_value
            .found
            .into_iter()
            .map(|(candidate, text)| (format!("{name}={candidate}"), text));
        return Candidates {
            also: of_value.also,
            found: found.collect(),
        };
    }
    if !only_operands && current.starts_with('-') {
        return options(verb, current);
    }
    let mut candidates = match operand(verb, operands.len()) {
        Some(arg) => values(verb, arg, current, &operands),
        None => Candidates::default(),
    };
    if operands.is_empty() {
        for verb in verb.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let about = verb.get_about().map(ToString::to_string);
            candidates.add(
                current,
                verb.get_name().to_owned(),
                &about.unwrap_or_default(),
            );
        }
    }
    if names.is_empty() {
        // An image is named without a verb too.
        candidates.also = ShellCompletion::Files;
        inside::add(&mut candidates, current, true);
    }
    candidates
}

/// Returns the option of a verb that a word names, if it takes a value.
fn option<'a>(verb: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or_default();
    let named = |arg: &&Arg| match name.strip_prefix("--") {
        Some(long) => {
            arg.get_long() == Some(long)
                || arg
                    .get_all_aliases()
                    .is_some_and(|aliases| aliases.contains(&long))
        }
        None => arg
            .get_short()
            .is_some_and(|short| name.len() == 2 && name.ends_with(short)),
    };
    // An option with an optional value takes it after `=` alone, except --encrypt.
    verb.get_arguments()
        .filter(|arg| arg.get_action().takes_values())
        .find(named)
}

/// Returns the operand at this place; the last one may take several.
fn operand(verb: &Command, at: usize) -> Option<&Arg> {
    let mut last = None;
    for (place, arg) in verb.get_positionals().enumerate() {
        if place == at {
            return Some(arg);
        }
        last = Some(arg);
    }
    last.filter(|arg| {
        let several = arg
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1);
        several || matches!(arg.get_action(), clap::ArgAction::Append)
    })
}

fn options(verb: &Command, current: &str) -> Candidates {
    let mut candidates = Candidates::default();
    for option in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let help = option.get_help().map(ToString::to_string);
        let help = help.unwrap_or_default();
        if let Some(long) = option.get_long() {
            candidates.add(current, format!("--{long}"), &help);
        }
        if let Some(short) = option.get_short() {
            candidates.add(current, format!("-{short}"), &help);
        }
    }
    candidates
}

/// Returns the values of an option or operand that continue `current`.
fn values(verb: &Command, arg: &Arg, current: &str, operands: &[&str]) -> Candidates {
    let mut candidates = Candidates::new(match arg.get_value_hint() {
        ValueHint::AnyPath | ValueHint::FilePath | ValueHint::ExecutablePath => {
            ShellCompletion::Files
        }
        ValueHint::DirPath => ShellCompletion::Folders,
        _ => ShellCompletion::None,
    });
    let possible = arg.get_possible_values();
    for value in possible.iter().filter(|value| !value.is_hide_set()) {
        let help = value.get_help().map(ToString::to_string);
        candidates.add(
            current,
            value.get_name().to_owned(),
            &help.unwrap_or_default(),
        );
    }
    let lower = |text: String| text.to_lowercase();
    let formats = |also_read_only: bool| {
        Format::ALL
            .iter()
            .filter(move |format| also_read_only || format.can_create())
            .map(|format| lower(format.code().to_owned()))
    };
    // A list separated by commas is completed at its end.
    let (list, end) = match (arg.get_value_delimiter(), current.rfind(',')) {
        (Some(','), Some(at)) => current.split_at(at + 1),
        _ => ("", current),
    };
    let mut add = |all: &mut dyn Iterator<Item = String>| {
        for value in all {
            if value.starts_with(end) {
                candidates.add(current, format!("{list}{value}"), "");
            }
        }
    };
    let name = arg.get_long().unwrap_or_default();
    match (verb.get_name(), name) {
        (_, "image-format") => add(&mut formats(true)),
        (_, "format") | ("images", "type") => add(&mut formats(false)),
        (_, "fs") => {
            let mut names: Vec<_> = NewFormat::ALL
                .iter()
                .filter_map(|format| format.names().first())
                .map(|name| lower((*name).to_owned()))
                .collect();
            if verb.get_name() == "create" {
                names.push("none".to_owned());
            }
            add(&mut names.into_iter());
        }
        (_, "layout") => add(&mut Layout::ALL.iter().map(|layout| lower(layout.to_string()))),
        (_, "assume") => add(&mut Assumptions::CHOICES.map(str::to_owned).into_iter()),
        (_, "sector-size" | "block-size" | "cipher-block") => {
            add(&mut ["512", "4096"].map(str::to_owned).into_iter());
        }
        (_, "via") => {
            let ways = ["library", "nbd", "mount", "kernel"];
            add(&mut ways.map(str::to_owned).into_iter());
        }
        (_, "compressor") => add(&mut ["lz4", "lzfse"].map(str::to_owned).into_iter()),
        ("diff", "ignore") => {
            add(&mut Field::ALL.iter().map(|field| field.name().to_owned()));
        }
        (_, "on") => add(&mut Place::ALL.iter().map(|place| place.name().to_owned())),
        ("checksum", "type") => {
            add(&mut Algorithm::ALL
                .iter()
                .map(|kind| lower(kind.name().to_owned())));
        }
        ("images", "cipher") => {
            add(&mut ["none", "aes-128", "aes-256"]
                .map(str::to_owned)
                .into_iter());
        }
        ("passwd", "entry") => {
            if let Some(image) = operands.first() {
                inside::add_key_slots(&mut candidates, current, image);
            }
        }
        (_, "checkpoint") => {
            if let Some(image) = operands.first() {
                inside::add_checkpoints(&mut candidates, current, image);
            }
        }
        ("send", "state") => {
            if let Some(bundle) = operands.first() {
                inside::add_states(&mut candidates, current, bundle);
            }
        }
        ("mount" | "attach", "options") => add(&mut MOUNT_OPTIONS.map(str::to_owned).into_iter()),
        _ => {}
    }
    if arg.get_long().is_none() {
        of_operand(&mut candidates, verb, arg, current, operands);
    }
    candidates
}

/// Adds what an operand can name.
fn of_operand(
    candidates: &mut Candidates,
    verb: &Command,
    arg: &Arg,
    current: &str,
    operands: &[&str],
) {
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or("", |name| name.as_str());
    match (verb.get_name(), name) {
        ("detach", _) => candidates.add_all(current, in_use().iter().map(String::as_str)),
        ("restore" | "delete", "NAME") => {
            if let Some(image) = operands.first() {
                let names = inside::bundle_snapshots(image);
                candidates.add_all(current, names.iter().map(String::as_str));
            }
        }
        ("remove", "NUMBER") => {
            if let Some(image) = operands.first() {
                inside::add_key_slots(candidates, current, image);
            }
        }
        (_, "STATE") => {
            if let Some(bundle) = operands.first() {
                inside::add_states(candidates, current, bundle);
            }
        }
        (_, name) if name.starts_with("DATE") => {
            if let Some(image) = operands.first() {
                inside::add_dates(candidates, current, image);
            }
        }
        (_, "ADDRESS" | "SOURCE" | "TARGET") => inside::add(candidates, current, true),
        (_, name) if name.starts_with("IMAGE[:VOLUME") => inside::add(candidates, current, false),
        (_, "IMAGE") => inside::add_snapshots(candidates, current),
        _ => {}
    }
}

/// Returns the names of attached images: devices, mount points and paths.
fn in_use() -> Vec<String> {
    let entries = Registry::of_user().and_then(|registry| registry.entries());
    let mut names = Vec::new();
    for entry in entries.unwrap_or_default() {
        names.push(entry.device);
        names.extend(
            entry
                .mounts
                .into_iter()
                .map(|mount| mount.folder.display().to_string()),
        );
        names.push(entry.image.display().to_string());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of values that are not one of a few words.
    const OPEN: [&str; 35] = [
        "ADDRESS[:PORT]",
        "AGE",
        "BYTES",
        "COMMAND",
        "DATE",
        "DATE1",
        "DATE2",
        "DATE:/PATH",
        "DATE[:/PATH]",
        "EXTENSIONS",
        "FACTOR",
        "GLOB",
        "KIND[:ID]",
        "LEVEL",
        "LEVELS",
        "MB/S,MS",
        "MODE",
        "MODEL",
        "N",
        "NAME",
        "NAME=X,Y",
        "NAME[=VALUE]",
        "NUMBER",
        "PATH",
        "PERCENT",
        "POINTS",
        "PORT",
        "PREFIX",
        "RATIO",
        "SECONDS",
        "SECTORS",
        "SIZE",
        "STATE",
        "TEXT",
        "XID",
    ];

    /// Other values of a verb.
    const OPEN_OF_VERBS: [&str; 6] = [
        // In a bucket.
        " checkpoint image",
        " timemachine create uuid",
        " bench files sizes",
        " bench images sizes",
        " bench images band_sizes",
        " dmg window",
    ];

    /// Returns the values of verbs that nothing completes.
    fn open_values(verb: &Command, path: &str, open: &mut Vec<(String, String)>) {
        for arg in verb.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if !arg.get_action().takes_values() {
                continue;
            }
            let found = values(verb, arg, "", &[]);
            if found.found.is_empty() && found.also == ShellCompletion::None {
                let names = arg.get_value_names().unwrap_or_default();
                let name = names.first().map_or("", |name| name.as_str());
                open.push((format!("{path} {}", arg.get_id()), name.to_owned()));
            }
        }
        for inner in verb.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            open_values(inner, &format!("{path} {}", inner.get_name()), open);
        }
    }

    #[test]
    fn every_value_of_a_few_words_is_completed() {
        let mut root = Cli::command();
        root.build();
        let mut open = Vec::new();
        open_values(&root, "", &mut open);
        // The words of Apple's programs are completed by their own tables.
        open.retain(|(path, name)| {
            !OPEN.contains(&name.as_str())
                && !OPEN_OF_VERBS.contains(&path.as_str())
                && name != "WORDS"
        });
        assert!(open.is_empty(), "neither open nor completed: {open:#?}");
    }
}
