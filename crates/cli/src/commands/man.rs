//! `bandsaw man`: the manual pages, made from the same text as `--help`, for packagers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use clap::{Arg, ArgAction, Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::args::Cli;
use crate::failure::{EXIT_STATUS, Outcome};
use crate::headings;
use crate::output::Output;

/// Write the manual pages to a folder
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// The folder to write to, made if necessary
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("man")?;
        let failed = |path: &Path, error| Error::io("manual", "write", error).in_file(path);
        fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, error))?;
        for (name, text) in pages()? {
            let path = self.folder.join(name);
            fs::write(&path, text).map_err(|error| failed(&path, error))?;
        }
        Ok(())
    }
}

/// Returns the file name and text of every page: one for the command and one for each visible verb.
fn pages() -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut whole = Cli::command().disable_help_subcommand(true);
    whole.build();
    let mut pages = vec![("bandsaw.1".to_owned(), page(&whole, "bandsaw")?)];
    let shown = |verb: &&Command| !verb.is_hide_set() && verb.get_name() != "help";
    for verb in whole.get_subcommands().filter(shown) {
        let name = format!("bandsaw-{}", verb.get_name());
        pages.push((format!("{name}.1"), page(verb, &name)?));
        for part in verb.get_subcommands().filter(shown) {
            let name = format!("{name}-{}", part.get_name());
            pages.push((format!("{name}.1"), page(part, &name)?));
        }
    }
    Ok(pages)
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    // Examples and exit status become sections of their own, without filling.
    let examples = command.get_after_help().map(ToString::to_string);
    let bare = without_summary(command.clone())
        .name(name.to_owned())
        .after_help("")
        .after_long_help("");
    let (is_whole, has_parts) = (name == "bandsaw", bare.has_subcommands());
    let page = Page::new(bare);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    if is_whole {
        page.render_synopsis_section(&mut text)?;
    } else {
        synopsis(command).to_writer(&mut text)?;
    }
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_parts {
        page.render_subcommands_section(&mut text)?;
    }
    let mut rest = Roff::new();
    if let Some(examples) = examples {
        rest.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines().skip(1) {
            rest.text([roman(line.trim_start())]);
        }
        rest.control("fi", []);
    }
    exit_status(&mut rest);
    if is_whole {
        environment(&mut rest);
    } else {
        rest.control("SH", ["SEE ALSO"])
            .text([bold("bandsaw"), roman("(1)")]);
    }
    rest.to_writer(&mut text)?;
    Ok(text)
}

/// Leaves out the first sentence of the description, which the name section shows.
fn without_summary(command: Command) -> Command {
    let long = command.get_long_about().map(ToString::to_string);
    let details = long
        .as_deref()
        .and_then(|long| long.split_once("\n\n"))
        .map(|(_, details)| details.to_owned());
    match details {
        Some(details) => command.long_about(details),
        None => command,
    }
}

/// The arguments of a verb with their values; shared options are only hinted at.
fn synopsis(command: &Command) -> Roff {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut line = vec![bold(name)];
    let (shared, own): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(|option| {
            !option.is_positional() && !option.is_hide_set() && option.get_id() != "help"
        })
        .partition(|option| headings::is_shared(option));
    let is_optional = |arg: &Arg| !arg.is_required_set();
    for option in own {
        line.push(roman(if is_optional(option) { " [" } else { " " }));
        line.extend(names(option));
        if option
            .get_num_args()
            .is_some_and(|count| count.takes_values())
        {
            let is_optional = option
                .get_num_args()
                .is_some_and(|count| count.min_values() == 0);
            line.push(roman(if is_optional { " [" } else { " " }));
            line.push(italic(value(option)));
            line.push(roman(if is_optional { "]" } else { "" }));
        }
        line.push(roman(if is_optional(option) { "]" } else { "" }));
        if matches!(option.get_action(), ArgAction::Append) {
            line.push(roman("..."));
        }
    }
    if !shared.is_empty() {
        line.extend([roman(" ["), italic("common options"), roman("]")]);
    }
    for arg in command.get_positionals().filter(|arg| !arg.is_hide_set()) {
        line.push(roman(if is_optional(arg) { " [" } else { " " }));
        line.push(italic(value(arg)));
        line.push(roman(if is_optional(arg) { "]" } else { "" }));
        if matches!(arg.get_action(), ArgAction::Append) {
            line.push(roman("..."));
        }
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    if !command.is_subcommand_required_set() {
        roff.text(line).control("br", []);
    }
    if command.has_subcommands() {
        roff.text([bold(name), roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff
}

fn names(option: &Arg) -> Vec<Inline> {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    match (short, long) {
        (Some(short), Some(long)) => vec![bold(short), roman("|"), bold(long)],
        (short, long) => vec![bold(short.or(long).unwrap_or_default())],
    }
}

fn value(arg: &Arg) -> String {
    arg.get_value_names()
        .map_or_else(|| arg.get_id().to_string(), |names| names.join(" "))
}

fn exit_status(roff: &mut Roff) {
    roff.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in EXIT_STATUS {
        roff.control("TP", ["6"])
            .text([bold(*code)])
            .text([roman(*meaning)]);
    }
}

fn environment(roff: &mut Roff) {
    roff.control("SH", ["ENVIRONMENT"]);
    for (name, meaning) in [
        (
            "NO_COLOR",
            "if set and not empty, output is colored only with --color=always",
        ),
        (
            "SOURCE_DATE_EPOCH",
            "the date of everything without a date of its own, in seconds since 1970; it makes images reproducible",
        ),
    ] {
        roff.control("TP", [])
            .text([bold(name)])
            .text([roman(meaning)]);
    }
}
