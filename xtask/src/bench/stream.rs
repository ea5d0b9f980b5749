//! Sequential streams: raw images and bundles compared with `pread` and `pwrite` on a plain file
//! (goals 1 to 7).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDevice};
use bandsaw::open::{self, CreateOptions, OpenOptions};

use super::measure::{Case, Workload, median, time};
use super::{Bench, KIB, MIB};

/// Direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    Write,
    Read,
}

/// A target of a stream, accessed by offset.
pub(super) trait Target: Sync {
    fn run(&self, pass: Pass, offset: u64, buf: &mut [u8]) -> Result<()>;
}

impl Target for File {
    fn run(&self, pass: Pass, offset: u64, buf: &mut [u8]) -> Result<()> {
        match pass {
            Pass::Write => self.write_all_at(buf, offset)?,
            Pass::Read => self.read_exact_at(buf, offset)?,
        }
        Ok(())
    }
}

/// A file from an offset on.
struct Window(File, u64);

impl Target for Window {
    fn run(&self, pass: Pass, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.run(pass, self.1 + offset, buf)
    }
}

impl Target for Arc<dyn BlockDevice> {
    fn run(&self, pass: Pass, offset: u64, buf: &mut [u8]) -> Result<()> {
        match pass {
            Pass::Write => self.write_at(offset, buf)?,
            Pass::Read => self.read_at(offset, buf)?,
        }
        Ok(())
    }
}

/// Times one pass over `size` bytes in requests of `block` bytes; each of `threads` has its own
/// part.
pub(super) fn stream(
    target: &dyn Target,
    pass: Pass,
    size: u64,
    block: u64,
    threads: u64,
) -> Result<Duration> {
    let part = (size / threads).next_multiple_of(block);
    time(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|n| {
                    scope.spawn(move || -> Result<()> {
                        let mut buf: Vec<u8> = (0..block).map(|i| (i * 131 + 7) as u8).collect();
                        for offset in (n * part..((n + 1) * part).min(size)).step_by(block as usize)
                        {
                            target.run(pass, offset, &mut buf)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    })
}

/// An image under test, created or reopened.
struct Subject<'a> {
    bench: &'a Bench,
    format: Format,
    band_size: Option<u64>,
    len: u64,
}

impl Subject<'_> {
    fn path(&self) -> PathBuf {
        let extension = match self.format {
            Format::Udsb => "sparsebundle",
            Format::Udsp => "sparseimage",
            Format::Asif => "asif",
            _ => "img",
        };
        self.bench.dir.join("subject").with_extension(extension)
    }

    /// Returns the offset in the image's only file of a range as long as the disk that is almost
    /// all data. `None` if it has several files.
    fn data_at(&self) -> Option<u64> {
        match self.format {
            Format::Udrw => Some(0),
            Format::Udsp => Some(4 * KIB), // the index
            Format::Asif => Some(5 * MIB), // header, a table, metadata, a bitmap, and the first chunk of the disk
            _ => None,
        }
    }

    fn create(&self) -> Result<Arc<dyn BlockDevice>> {
        let (format, len, band_size) = (self.format, self.len, self.band_size);
        let options = CreateOptions {
            format,
            len,
            band_size,
            overwrite: true,
            ..CreateOptions::default()
        };
        Ok(open::create(&self.path(), &options)?.disk().clone())
    }

    fn open(&self) -> Result<Arc<dyn BlockDevice>> {
        let options = OpenOptions {
            access: Access::ReadWrite,
            image_format: Some(self.format),
            ..OpenOptions::default()
        };
        Ok(open::open(&self.path(), &options)?.disk().clone())
    }

    fn remove(&self) {
        super::remove(&self.path());
    }
}

pub(super) fn plain(path: &Path) -> Result<File> {
    Ok(File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?)
}

/// Goals 1 and 2 (one thread) and 3 (two): an image compared with a plain file.
///
/// On a memory file system, the physical pages of a file change its speed by up to a half, for as
/// long as it exists. So both are created anew in every round, and for an image in one file the
/// reference reads and rewrites that same file.
pub(super) fn against_plain_file(
    bench: &Bench,
    format: Format,
    goal: u32,
    threads: u64,
    least: [f64; 3],
) -> Result<Vec<Case>> {
    let size = bench.scaled(1024 * MIB);
    let subject = Subject {
        bench,
        format,
        band_size: None,
        len: size,
    };
    let host = bench.dir.join("plain");
    let mut all = Vec::new();
    for block in [64 * KIB, MIB] {
        let case = |what: &str, least: f64| Case {
            goal,
            name: format!("{format} {what}, {} KiB, {threads} thread(s)", block / KIB),
            reference: format!("one plain file, {threads} thread(s)"),
            at_least: least,
            pairs: Vec::new(),
            work: Workload::Bytes(size),
        };
        let run = |target: &dyn Target, pass: Pass| {
            Ok(stream(target, pass, size, block, threads)?.as_secs_f64())
        };
        let mut cases = [
            case("first write", least[0]),
            case("rewrite", least[1]),
            case("read", least[2]),
        ];
        for round in 0..bench.rounds + 2 {
            subject.remove();
            super::remove(&host);
            let (device, mut file) = (subject.create()?, Window(plain(&host)?, 0));
            cases[0].pair(
                round,
                || run(&device, Pass::Write),
                || run(&file, Pass::Write),
            )?;
            if let Some(at) = subject.data_at() {
                // Overwriting the image's tables is harmless: they are in memory, and nothing is
                // flushed.
                file = Window(
                    File::options()
                        .read(true)
                        .write(true)
                        .open(subject.path())?,
                    at,
                );
            }
            cases[1].pair(
                round,
                || run(&device, Pass::Write),
                || run(&file, Pass::Write),
            )?;
            cases[2].pair(
                round,
                || run(&device, Pass::Read),
                || run(&file, Pass::Read),
            )?;
        }
        cases.iter().for_each(Case::tell);
        all.extend(cases);
    }
    subject.remove();
    super::remove(&host);
    Ok(all)
}

/// Goal 4: the slowest of twelve band sizes compared with the fastest, by the medians over all
/// rounds; and, as a control, the slowest of twelve bundles with the *same* band size. The slowest
/// of twelve noisy medians is below their common value by chance alone: the loss in the control is
/// that of the machine.
pub(super) fn band_sizes(bench: &Bench) -> Result<Vec<Case>> {
    const BANDS_MIB: [u64; 12] = [2, 4, 6, 8, 15, 32, 64, 100, 200, 400, 700, 1000];
    let mut cases = sweep(bench, &BANDS_MIB, "12 band sizes, 2 to 1000 MiB", 0.9)?;
    cases.extend(sweep(
        bench,
        &[8; 12],
        "12 times the same band size (control)",
        0.0,
    )?);
    Ok(cases)
}

fn sweep(bench: &Bench, bands_mib: &[u64], what: &str, at_least: f64) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let mut times = [(); 3].map(|()| vec![Vec::new(); bands_mib.len()]);
    for round in 0..bench.rounds * 2 {
        for step in 0..bands_mib.len() {
            let place = (step + round) % bands_mib.len();
            let band_size = Some(bands_mib[place] * MIB);
            let subject = Subject {
                bench,
                format: Format::Udsb,
                band_size,
                len: size.max(1024 * MIB),
            };
            subject.remove();
            let device = subject.create()?;
            stream(&device, Pass::Write, size, MIB, 1)?;
            times[0][place].push(stream(&device, Pass::Write, size, MIB, 1)?.as_secs_f64());
            times[1][place].push(stream(&device, Pass::Read, size, MIB, 1)?.as_secs_f64());
            times[2][place].push(copy_within(&device, size)?.as_secs_f64());
            subject.remove();
        }
    }
    let cases = ["rewrite", "read", "read one half, write the other"]
        .iter()
        .zip(times)
        .map(|(pass, times)| {
            let medians: Vec<f64> = times.into_iter().map(median).collect();
            let (slow, fast) = medians.iter().fold((0f64, f64::MAX), |(slow, fast), &t| {
                (slow.max(t), fast.min(t))
            });
            let at = |t: f64| bands_mib[medians.iter().position(|&m| m == t).unwrap_or_default()];
            let case = Case {
                goal: 4,
                name: format!("slowest of {what}, {pass} (slowest {} MiB)", at(slow)),
                reference: format!("the fastest ({} MiB)", at(fast)),
                at_least,
                pairs: vec![(slow, fast)],
                work: Workload::Bytes(size),
            };
            eprintln!("  goal  4 {}: {:.2}", case.name, case.ratio().median);
            case
        });
    Ok(cases.collect())
}

/// Alternately reads from the first half and writes to the second.
fn copy_within(target: &dyn Target, size: u64) -> Result<Duration> {
    let mut buf = vec![0; MIB as usize];
    time(|| {
        (0..size / 2).step_by(MIB as usize).try_for_each(|offset| {
            target.run(Pass::Read, offset, &mut buf)?;
            target.run(Pass::Write, size / 2 + offset, &mut buf)
        })
    })
}

/// Goal 7: writing immediately after creation, compared with writing after close and reopen, both
/// to unallocated storage.
pub(super) fn first_uses(bench: &Bench) -> Result<Vec<Case>> {
    [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif]
        .into_iter()
        .map(|format| first_use(bench, format))
        .collect()
}

fn first_use(bench: &Bench, format: Format) -> Result<Case> {
    let size = bench.scaled(512 * MIB);
    let subject = Subject {
        bench,
        format,
        band_size: None,
        len: size,
    };
    let case = Case {
        goal: 7,
        name: format!("{format} written right after creation"),
        reference: "the same after close and reopen".into(),
        at_least: 0.95,
        pairs: Vec::new(),
        work: Workload::Bytes(size),
    };
    let fresh = |reopen: bool| {
        subject.remove();
        let mut device = subject.create()?;
        if reopen {
            drop(device);
            device = subject.open()?;
        }
        stream(&device, Pass::Write, size, MIB, 1)
    };
    let case = case.measure(bench.rounds, || fresh(false), || fresh(true))?;
    subject.remove();
    Ok(case)
}
