//! `cargo xtask compression`: savings and costs of compressing files in a volume, on files like
//! those of an article about macOS, in a table beside its figures (`docs/compression.md`). The
//! protocol is that of `bandsaw bench images`.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;
use bandsaw_bench::images::{self, Announced, Kind, Options, Protocol, Via};
use bandsaw_bench::place::Caches;
use bandsaw_bench::plan::Plan;
use bandsaw_bench::report::{Report, Settings, table};

/// Measure the article's five files and write `docs/compression.md`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder to work in, with 1.5 GB free. On a disk, readings are cold; in memory they are not.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// What the length of the two large files is multiplied by.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Where to write the table; `-` prints it only.
    #[arg(long, default_value = "docs/compression.md")]
    report: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let kind = |file_system| Kind {
        format: Format::Udrw,
        key_bits: 0,
        file_system,
        volume_key: false,
        via: Via::Library,
    };
    let plan = Plan {
        sizes: Vec::new(),
        sets: 1,
        scale: args.scale,
        seed: 1,
        random: None,
    };
    let settings = Settings {
        plan,
        request: 1 << 20,
        caches: Caches::Drop,
        compressible: true,
        verify: true,
        pause: 0.0,
    };
    let options = Options {
        protocol: Protocol::Compression,
        settings,
        kinds: vec![kind(NewFormat::HfsPlus), kind(NewFormat::Apfs)],
        band_sizes: Vec::new(),
        // No server is needed: all access is through the library.
        program: PathBuf::new(),
    };
    let announced = Announced::new(&args.dir, &options)?;
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
# Compressed files: what it saves, what it costs

Written by `cargo xtask compression`; `bandsaw bench images --protocol compression` does the same on any image. An article about
transparent compression on macOS measured five files on an HFS+ volume of a 5,400 rpm disk, the cache emptied before each reading.
Here are five files like these, generated: words, instructions, and PDFs three quarters of which is compressed already. Sizes are
bytes: on the volume those of whole blocks of 4096 and of what is in the attribute. Times are means of three readings, from
finding and opening a file to its last byte: cold with the image just opened and the host's memory of it dropped, warm right after
that. Speeds are those of the compressed file over those of the same file as it is, in the same kind of image; the last two columns
are the article's.

";

const TAIL: &str = "
What to take from it: a disk that had to seek was slower than the decoder, so that compressed files were *faster* to read in the
article. Memory is faster than any decoder, so that warm readings are slower compressed: this shows what the processor pays, the
article what the disk saves. The smallest files have their bytes in the attribute and save the way to a block. The article's
tool refused the file of 404 MB; the limit of ours is 4 GiB, above which macOS fails.
";
