//! `cargo xtask space`: images that are filled, emptied and compacted; their size on disk is shown
//! in a table beside the figures of the article with this protocol.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use bandsaw::progress::Silent;
use bandsaw_bench::folder::{clean_up, scratch};
use bandsaw_bench::images::space::{Case, SizeBounds, run as protocol};
use bandsaw_bench::report::table::Table;
use bandsaw_bench::units::bytes;

/// Fill, empty and compact an image of each kind; fails where one takes more than it may.
#[derive(Debug, clap::Args)]
pub(crate) struct SpaceArgs {
    /// Folder to work in.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Divisor of every size of the original.
    #[arg(long, default_value_t = 100)]
    scale: u64,
    /// Only kinds whose name contains this, such as `UDSP encrypted`.
    #[arg(long, default_value = "")]
    only: String,
}

pub(crate) fn run(args: &SpaceArgs) -> Result<()> {
    let heading =
        "image | fresh | in use | full | of in use | compacted | emptied | compacted | of written";
    let (mut table, mut wasteful) = (Table::new("", heading), Vec::new());
    let cases = Case::all(args.scale.max(1)).into_iter();
    for case in cases.filter(|case| case.to_string().contains(&args.only)) {
        eprintln!("{case}");
        let scratch = scratch(&args.dir)?;
        let measured = protocol(&scratch.path().join("image"), &case, &Silent)?;
        clean_up(scratch)?;
        table.rows.push(row(&case, &measured));
        if !measured.is_tight() {
            wasteful.push(case.to_string());
        }
    }
    print!("{}", table.markdown());
    println!("| Apple, UDSB, 1/1 | 14.8 MB | | 104.08 GB | | | 1.12 GB | 1.06 GB | |");
    println!("| Apple, UDRW, 1/1 | 336 MB | | 91.63 GB | | | 937.9 MB | | |");
    ensure!(
        wasteful.is_empty(),
        "these take more than they may: {}",
        wasteful.join(", ")
    );
    Ok(())
}

fn row(case: &Case, measured: &SizeBounds) -> Vec<String> {
    let SizeBounds {
        fresh,
        written,
        in_use,
        full,
        full_compacted,
        emptied,
        compacted,
        journal,
    } = *measured;
    // A fully written journal does not count as a remainder of files.
    let left = compacted.saturating_sub(fresh + journal) as f64;
    vec![
        case.to_string(),
        bytes(fresh),
        bytes(in_use),
        bytes(full),
        format!("{:.4}", full as f64 / in_use.max(1) as f64),
        bytes(full_compacted),
        bytes(emptied),
        bytes(compacted),
        format!("{:.3} %", 100.0 * left / written.max(1) as f64),
    ]
}
