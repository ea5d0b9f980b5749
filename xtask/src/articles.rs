//! `cargo xtask articles`: the page of the articles' experiments, `docs/articles.md`, from the
//! results of `bandsaw bench articles`, which it starts.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bandsaw_bench::articles::Results;

use crate::root;

/// Repeat the experiments of the articles and write `docs/articles.md` with its plots.
#[derive(Debug, clap::Args)]
pub(crate) struct ArticlesArgs {
    /// Folder to work in, on the disk to be measured.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Folder of the results. Experiments whose results it has are not repeated.
    #[arg(long, default_value = "target/articles")]
    results: PathBuf,
    /// Write the page only.
    #[arg(long)]
    page: bool,
    /// A note about the run for the page.
    #[arg(long, default_value = "")]
    note: String,
    /// The command; by default the one that is built beside this program.
    #[arg(long)]
    bandsaw: Option<PathBuf>,
    /// More options of `bandsaw bench articles`.
    #[arg(last = true)]
    options: Vec<String>,
}

pub(crate) fn run(args: &ArticlesArgs) -> Result<()> {
    if !args.page {
        let beside = std::env::current_exe()?.with_file_name("bandsaw");
        let program = args.bandsaw.as_ref().unwrap_or(&beside);
        let mut command = Command::new(program);
        command
            .args(["bench", "articles", "--output"])
            .arg(&args.results);
        let status = command.arg(&args.dir).args(&args.options).status();
        let status = status.with_context(|| format!("{}: build it first", program.display()))?;
        ensure!(status.success(), "{}: {status}", program.display());
    }
    Ok(Results::open(&args.results)?.publish(&root().join("docs"), "articles", &args.note)?)
}
