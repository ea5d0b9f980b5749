//! `bandsaw completions`: completion scripts for shells.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Outcome;
use crate::output::Output;

/// Print a completion script for a shell
///
/// The scripts for bash, zsh and fish also complete values such as formats and file systems, mount
/// points, snapshots, and volumes and paths inside images.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bandsaw completions bash > ~/.local/share/bash-completion/completions/bandsaw
  bandsaw completions zsh > ~/.zfunc/_bandsaw
  bandsaw completions fish > ~/.config/fish/completions/bandsaw.fish")]
pub(crate) struct Completions {
    /// The shell that will read the script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        output.refuse_json("completions")?;
        let own = match self.shell {
            Shell::Bash => include_str!("completions/bandsaw.bash"),
            Shell::Zsh => include_str!("completions/bandsaw.zsh"),
            Shell::Fish => include_str!("completions/bandsaw.fish"),
            _ => "",
        };
        let mut script = own.as_bytes().to_vec();
        if script.is_empty() {
            // clap_complete panics if its writer fails, so it must not see a closed pipe.
            clap_complete::generate(self.shell, &mut Cli::command(), "bandsaw", &mut script);
        }
        let mut out = output.stdout();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}
