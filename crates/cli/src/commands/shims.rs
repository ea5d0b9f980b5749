//! `bandsaw shims`: links by whose names the command behaves as programs of macOS.

use std::io::Write;
use std::path::PathBuf;

use bandsaw::{Error, Kind};
use clap::{Args, Subcommand, ValueHint};

use crate::failure::Outcome;
use crate::output::Output;
use crate::shims::{SHIMS, install};

/// Stand in for macOS's programs in release scripts
///
/// A link of one of these names to this command behaves as the program does: hdiutil, diskutil,
/// ditto, SetFile, osascript and others, as far as scripts that make disk images need them. What is
/// not supported is refused. docs/release-images.md has examples for build servers.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw shims install ~/mac-bin      then PATH=~/mac-bin:$PATH create-dmg App.dmg build
  bandsaw shims list")]
pub(crate) struct Shims {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Install(Install),
    List(ListShims),
}

/// Make a link for each program
///
/// Existing links to this command are kept. If another file has one of the names, nothing is made.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw shims install ~/mac-bin")]
struct Install {
    /// The folder for the links; made if it is missing
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

/// List the programs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw shims list")]
struct ListShims {}

impl Shims {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("shims")?;
        let mut out = output.stdout();
        match &self.verb {
            Verb::Install(Install { folder }) => {
                for link in install(folder, &program()?)? {
                    writeln!(out, "{}", output.name(&link.to_string_lossy()))?;
                }
            }
            Verb::List(ListShims {}) => {
                for shim in SHIMS {
                    writeln!(out, "{:12} {}", shim.name, shim.says)?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// Returns the path of this command.
fn program() -> Outcome<PathBuf> {
    let program = std::env::current_exe()
        .map_err(|error| Error::io("shims", "find the path of this command", error))?;
    match program.is_absolute() {
        true => Ok(program),
        false => Err(Error::new(Kind::NotFound, "shims", "this command has no path").into()),
    }
}
