//! `bandsaw completions`: completion scripts for shells.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Outcome;
use crate::output::Output;

/// Print a completion script for a shell
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
        // clap_complete panics if its writer fails, so it must not see a closed pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "bandsaw", &mut script);
        let mut out = output.stdout();
        out.write_all(&script)?;
        Ok(out.flush()?)
    }
}
