//! `cargo xtask bench`: the project's speed goals, each as a ratio of two alternating measurements
//! in one run.
//!
//! The results go to `docs/benchmarks.md` (a summary), `docs/benchmarks/full.md` (all cases) and
//! `docs/benchmarks.json` (all samples).

mod bare_nbd;
mod buckets;
mod codecs;
mod crypt;
mod decmpfs;
mod encrypted_volume;
mod fio;
mod formats;
mod harness;
mod measure;
mod mount;
mod nbd;
mod programs;
mod report;
mod scale;
mod space;
mod startup;
mod stream;
mod trees;
mod volumes;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use bandsaw::container::Format;
use bandsaw::crypt::{Encryption, MIN_ITERATIONS, Secret};
use bandsaw::device::{Access, BlockDevice};
use bandsaw::open::{self, CreateOptions, Keys, OpenOptions};
use bandsaw_bench::folder::{clean_up, scratch};
use measure::Case;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Passphrase of encrypted images; they contain no secrets.
const PASSPHRASE: &str = "passphrase";

/// Measure the speed goals and write `docs/benchmarks.md`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Folder to work in; a memory file system takes the disk out of the picture.
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Pairs of measurements for each case.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Multiplies every size, to try things out; below 1 the figures say little.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Only these goals, by number; the report keeps what it says of the others.
    #[arg(long, value_delimiter = ',')]
    goals: Vec<u32>,
    /// Write the report to this file; `-` prints the table of all cases only.
    #[arg(long, default_value = "docs/benchmarks.md")]
    report: String,
    /// The command to measure, such as that of `cargo xtask dist`; otherwise it is built with
    /// `--release`.
    #[arg(long)]
    command: Option<PathBuf>,
    /// Write the pages again from the JSON beside the report, without measuring.
    #[arg(long)]
    page: bool,
    /// Used by goals 23, 32 and 35 on themselves: do this work on that, print seconds and peak
    /// memory.
    #[arg(long, hide = true, num_args = 2)]
    probe: Vec<String>,
}

/// Folder and scale of the measurements.
#[derive(Debug)]
struct Bench {
    dir: PathBuf,
    rounds: usize,
    scale: f64,
    bandsaw: PathBuf,
}

impl Bench {
    fn scaled(&self, bytes: u64) -> u64 {
        self.count(bytes, 4 * MIB).next_multiple_of(2 * MIB)
    }

    /// Returns a number of files or the like times the scale.
    fn count(&self, count: u64, least: u64) -> u64 {
        ((count as f64 * self.scale) as u64).max(least)
    }

    /// Removes a file or folder of the scratch folder if it exists.
    fn remove(&self, name: &str) {
        let path = self.dir.join(name);
        let _ = if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
    }

    /// Creates an image without a volume in place of an older one.
    fn create(&self, name: &str, options: &CreateOptions) -> Result<Arc<dyn BlockDevice>> {
        self.remove(name);
        let image = open::create(&self.dir.join(name), options)?;
        Ok(image.disk().clone())
    }

    fn blank(
        &self,
        name: &str,
        format: Format,
        len: u64,
        band_size: Option<u64>,
    ) -> Result<Arc<dyn BlockDevice>> {
        let options = CreateOptions {
            format,
            len,
            band_size,
            ..CreateOptions::default()
        };
        self.create(name, &options)
    }

    /// Creates a blank image and opens it anew.
    fn fresh(
        &self,
        name: &str,
        format: Format,
        len: u64,
        encrypted: bool,
    ) -> Result<Arc<dyn BlockDevice>> {
        let secret = encrypted.then(|| Secret::new(PASSPHRASE.into()));
        let encryption = secret.clone().map(|secret| Encryption {
            iterations: Some(MIN_ITERATIONS),
            cipher_block: Some(4096),
            ..Encryption::new(secret)
        });
        let options = CreateOptions {
            format,
            len,
            encryption,
            ..CreateOptions::default()
        };
        drop(self.create(name, &options)?);
        self.open(name, format, secret.as_ref())
    }

    fn open(
        &self,
        name: &str,
        format: Format,
        secret: Option<&Secret>,
    ) -> Result<Arc<dyn BlockDevice>> {
        let options = OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(format),
            keys: secret.map(|secret| secret as &dyn Keys),
            ..OpenOptions::default()
        };
        let image = open::open(&self.dir.join(name), &options)?;
        Ok(image.disk().clone())
    }
}

type Group = (&'static [u32], fn(&Bench) -> Result<Vec<Case>>);

const GROUPS: &[Group] = &[
    (&[1], |b| {
        stream::against_plain_file(b, Format::Udrw, 1, 1, [0.95, 0.97, 0.97])
    }),
    (&[2], |b| {
        stream::against_plain_file(b, Format::Udsb, 2, 1, [0.95, 0.95, 0.95])
    }),
    (&[3], |b| {
        stream::against_plain_file(b, Format::Udsb, 3, 2, [1.6, 1.6, 0.95])
    }),
    (&[4], stream::band_sizes),
    (&[5], space::within_one_image),
    (&[6], |b| {
        stream::against_plain_file(b, Format::Udsp, 6, 1, [0.9, 0.95, 0.95])
    }),
    (&[6], |b| {
        stream::against_plain_file(b, Format::Asif, 6, 1, [0.9, 0.95, 0.95])
    }),
    (&[7], stream::first_uses),
    (&[8, 11], crypt::cipher),
    (&[9], stream::encrypted_bundle),
    (&[10], stream::encrypted_formats),
    (&[12], crypt::unlock),
    (&[13, 14], nbd::plain),
    (&[15], nbd::encrypted),
    (&[16], mount::fuse),
    (&[17, 18, 19], codecs::pack_and_unpack),
    (&[20, 21], trees::build_and_extract),
    (&[22], formats::formats),
    (&[23], scale::million_bands),
    (&[24], space::comes_back),
    (&[25], startup::info),
    (&[26], decmpfs::files),
    (&[30], volumes::small_files),
    (&[31], volumes::lookups),
    (&[32], volumes::checks),
    (&[33], harness::files),
    (&[34], encrypted_volume::reads),
    (&[35], buckets::bundles),
];

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    if let [what, argument] = &args.probe[..] {
        return programs::probe(what, argument);
    }
    if args.page {
        return write(
            &report::Report::read(&Path::new(&args.report).with_extension("json"))?,
            &args.report,
        );
    }
    let mut bench = Bench {
        dir: PathBuf::new(),
        rounds: args.rounds.max(1),
        scale: args.scale,
        bandsaw: startup::install_command(args.command.as_deref())?,
    };
    let wanted =
        |goals: &[u32]| args.goals.is_empty() || goals.iter().any(|goal| args.goals.contains(goal));
    let mut report = match args.report.as_str() {
        "-" => report::Report::default(),
        path => report::Report::read(&Path::new(path).with_extension("json"))?,
    };
    let mut run = report::Run::begin(&args.dir, bench.rounds, args.scale)?;
    eprintln!("two threads give {:.2} of one", run.scaling_before);
    for (goals, measure) in GROUPS.iter().filter(|(goals, _)| wanted(goals)) {
        eprintln!("goals {goals:?}");
        // Files are freed between goals.
        let scratch = scratch(&args.dir)?;
        bench.dir = scratch.path().to_owned();
        run.cases.extend(measure(&bench)?);
        clean_up(scratch)?;
    }
    run.finish()?;
    report.add(run);
    write(&report, &args.report)
}

/// Writes the summary to `path`, its JSON beside it and the table of all cases to `full.md` in the
/// folder of the same name; to `-`, prints the table of all cases.
fn write(report: &report::Report, path: &str) -> Result<()> {
    if path == "-" {
        print!("{}", report.full());
        return Ok(());
    }
    let folder = Path::new(path).with_extension("");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("full.md"), report.full())?;
    std::fs::write(path, report.summary())?;
    std::fs::write(Path::new(path).with_extension("json"), report.json()?)?;
    Ok(())
}
