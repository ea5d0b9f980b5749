//! `bandsaw man`: the manual pages, made from the same text as `--help`, for packagers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bandsaw::Error;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::Cli;
use crate::failure::{EXIT_STATUS, Outcome};
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
        let failed =
            |path: &Path, error| Error::io("manual", "cannot be written", error).in_file(path);
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
    let bare = command
        .clone()
        .name(name.to_owned())
        .after_help("")
        .after_long_help("");
    let (is_whole, has_parts) = (name == "bandsaw", bare.has_subcommands());
    let page = Page::new(bare);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
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
    }
    rest.to_writer(&mut text)?;
    Ok(text)
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
            "when set and not empty, no colour is used unless --color=always says so",
        ),
        (
            "SOURCE_DATE_EPOCH",
            "seconds since 1970: the date of everything that has no date of its own, so that the same source gives the same image",
        ),
    ] {
        roff.control("TP", [])
            .text([bold(name)])
            .text([roman(meaning)]);
    }
}
