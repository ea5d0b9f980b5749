//! `cargo xtask compression`: savings and costs of compressing files in a volume, on files like
//! those of an article about macOS, in a table beside its figures (`docs/compression.md`). The
//! protocol is that of `bandsaw bench images`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw_bench::articles::{EXPERIMENTS, Scope};
use bandsaw_bench::images::{self, Kind, Protocol, RunPlan, Via};
use bandsaw_bench::report::{Report, table};

/// Measure the article's five files and write `docs/compression.md`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompressionArgs {
    /// Folder to work in, with 1.5 GB free. On a disk, readings are cold; in memory they are not.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Factor of the length of the two large files.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Write the table to this file; `-` prints it only.
    #[arg(long, default_value = "docs/compression.md")]
    report: String,
}

pub(crate) fn run(args: &CompressionArgs) -> Result<()> {
    let mut experiments = EXPERIMENTS.iter();
    let experiment = experiments.find(|of| of.protocol == Protocol::Compression);
    let mut options = experiment.context("no experiment")?.options(&Scope {
        scale: args.scale,
        sets: None,
        pause: None,
        seed: 1,
        ways: vec![Via::Library],
        // No server is needed: all access is through the library.
        program: PathBuf::new(),
        without_holes: None,
    });
    let of_article = options.kinds[0];
    options.kinds = [NewFormat::HfsPlus, NewFormat::Apfs]
        .map(|file_system| Kind {
            file_system,
            ..of_article
        })
        .to_vec();
    options.settings.compressible = true;
    options.settings.verify = true;
    let announced = RunPlan::new(&args.dir, &options)?;
    let page = page(&images::run(&args.dir, &options, &announced, &Silent)?);
    match args.report.as_str() {
        "-" => print!("{page}"),
        path => std::fs::write(path, page)?,
    }
    Ok(())
}

fn page(report: &Report) -> String {
    let mut page = String::from(HEAD);
    for (name, value) in table::facts(report) {
        let _ = writeln!(page, "* {name}: {value}");
    }
    for table in table::compressed(report) {
        let _ = write!(page, "\n## {}\n\n{}", table.title, table.markdown());
    }
    page.push_str(TAIL);
    page
}

const HEAD: &str = "\
# Compressed files: savings and cost

Written by `cargo xtask compression`; `bandsaw bench images --protocol compression` does the same on any image. An article about
transparent compression on macOS measured five files on an HFS+ volume of a 5,400 rpm disk, with an empty cache before each read.
The five files here are generated to resemble them: words, instructions, and PDFs of which three quarters are compressed already. Sizes
are bytes on the volume: whole blocks of 4096 bytes, and the bytes in the attribute. Times are means of three reads, from the lookup
of the file to its last byte: cold reads directly after the image is opened, with the host's cache dropped, warm reads directly after
those. A speed is that of the compressed file divided by that of the same file uncompressed, in the same kind of image. The last two
columns are the article's.

";

const TAIL: &str = "
In the article, compressed files were *faster* to read, because the decoder was faster than a disk that has to seek. Memory is
faster than any decoder, so that warm reads of compressed files are slower here. These figures show the cost in processor time, the
article's the saving in disk time. The bytes of the smallest files are in the attribute, which saves the read of a block. The article's
tool refused the file of 404 MB; the limit of Bandsaw is 4 GiB, above which macOS fails.
";
