//! `cargo xtask space`: images that are filled, emptied and compacted; their size on disk is shown
//! in a table beside the figures of the article with this protocol.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use bandsaw::progress::Silent;
use bandsaw_bench::images::space::{Case, Measured, run as protocol};

/// Fill, empty and compact an image of each kind; fails where one takes more than it may.
#[derive(Debug, clap::Args)]
pub(crate) struct SpaceArgs {
    /// Folder to work in.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// What every size of the original is divided by.
    #[arg(long, default_value_t = 100)]
    scale: u64,
    /// Only kinds whose name contains this, such as `UDSP encrypted`.
    #[arg(long, default_value = "")]
    only: String,
}

pub(crate) fn run(args: &SpaceArgs) -> Result<()> {
    let mut wasteful = Vec::new();
    println!(
        "| image | fresh | in use | full | of in use | compacted | emptied | compacted | of written |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: | --: | --: |");
    for case in Case::all(args.scale.max(1))
        .into_iter()
        .filter(|case| case.to_string().contains(&args.only))
    {
        let measured = measure(&args.dir, &case)?;
        println!("{}", row(&case, &measured));
        if !measured.is_tight() {
            wasteful.push(case.to_string());
        }
    }
    println!("| Apple, UDSB, 1/1 | 14.8 MB | | 104.08 GB | | | 1.12 GB | 1.06 GB | |");
    println!("| Apple, UDRW, 1/1 | 336 MB | | 91.63 GB | | | 937.9 MB | | |");
    ensure!(
        wasteful.is_empty(),
        "these take more than they may: {}",
        wasteful.join(", ")
    );
    Ok(())
}

fn measure(dir: &Path, case: &Case) -> Result<Measured> {
    let scratch = tempfile::Builder::new()
        .prefix("bandsaw-space")
        .tempdir_in(dir)?;
    Ok(protocol(&scratch.path().join("image"), case, &Silent)?)
}

fn row(case: &Case, measured: &Measured) -> String {
    let mb = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    let Measured {
        fresh,
        written,
        in_use,
        full,
        full_compacted,
        emptied,
        compacted,
        journal,
        ..
    } = *measured;
    let of_use = full as f64 / in_use.max(1) as f64;
    // A fully written journal does not count as a remainder of files.
    let of_written =
        100.0 * compacted.saturating_sub(fresh + journal) as f64 / written.max(1) as f64;
    let (fresh, in_use, full) = (mb(fresh), mb(in_use), mb(full));
    let (full_compacted, emptied, compacted) = (mb(full_compacted), mb(emptied), mb(compacted));
    format!(
        "| {case} | {fresh} | {in_use} | {full} | {of_use:.4} | {full_compacted} | {emptied} | {compacted} | {of_written:.3} % |"
    )
}
