//! Sequential streams: raw images and bundles compared with `pread` and `pwrite` on a plain file
//! (goals 1 to 7), encrypted images with plain ones (goals 9 and 10).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bandsaw::container::Format;
use bandsaw::device::BlockDevice;
use bandsaw_bench::stats::Interval;

use super::measure::{Case, Workload, time};
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
) -> Result<f64> {
    let part = (size / threads).next_multiple_of(block);
    let work = |n: u64| -> Result<()> {
        let mut buf: Vec<u8> = (0..block).map(|i| (i * 131 + 7) as u8).collect();
        (n * part..((n + 1) * part).min(size))
            .step_by(block as usize)
            .try_for_each(|offset| target.run(pass, offset, &mut buf))
    };
    time(|| {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    })
}

pub(super) fn plain(path: &Path) -> Result<File> {
    Ok(File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?)
}

/// Creates a bundle that is full.
pub(super) fn filled(bench: &Bench, name: &str, size: u64, encrypted: bool) -> Result<()> {
    let device = bench.fresh(name, Format::Udsb, size, encrypted)?;
    stream(&device, Pass::Write, size, MIB, 1)?;
    Ok(device.flush()?)
}

/// Returns the name of an image of this format in the scratch folder.
fn subject(format: Format) -> &'static str {
    match format {
        Format::Udsb => "subject.sparsebundle",
        _ => "subject.img",
    }
}

/// Cases of sequential streams, which share their targets: all of them have a pair in each round.
struct Streams {
    size: u64,
    block: u64,
    threads: u64,
    round: usize,
    cases: Vec<Case>,
}

impl Streams {
    fn new(size: u64, block: u64, threads: u64) -> Self {
        Self {
            size,
            block,
            threads,
            round: 0,
            cases: Vec::new(),
        }
    }

    fn add(&mut self, goal: u32, name: String, reference: &str, at_least: f64) {
        let work = Workload::Bytes(self.size);
        self.cases
            .push(Case::new(goal, name, reference, at_least, work));
    }

    fn run(&self, target: &dyn Target, pass: Pass) -> Result<f64> {
        stream(target, pass, self.size, self.block, self.threads)
    }

    /// Measures a pair of the case of this number.
    fn pair(
        &mut self,
        case: usize,
        pass: Pass,
        ours: &dyn Target,
        theirs: &dyn Target,
    ) -> Result<()> {
        let Self {
            size,
            block,
            threads,
            round,
            ..
        } = *self;
        let run = |target: &dyn Target| stream(target, pass, size, block, threads);
        self.cases[case].pair(round, || run(ours), || run(theirs))
    }

    fn finish(self) -> impl Iterator<Item = Case> {
        self.cases.into_iter().map(Case::told)
    }
}

/// Goals 1, 2 and 6 (one thread) and 3 (two): an image compared with a plain file.
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
    // Offset in the image's only file of a range as long as the disk that is almost all data.
    let data_at = match format {
        Format::Udrw => Some(0),
        Format::Udsp => Some(4 * KIB), // the index
        Format::Asif => Some(5 * MIB), // header, a table, metadata, a bitmap, and the first chunk of the disk
        _ => None,
    };
    let mut all = Vec::new();
    for block in [64 * KIB, MIB] {
        let mut streams = Streams::new(size, block, threads);
        for (what, least) in ["first write", "rewrite", "read"].into_iter().zip(least) {
            let name = format!("{format} {what}, {} KiB, {threads} thread(s)", block / KIB);
            let reference = format!("one plain file, {threads} thread(s)");
            streams.add(goal, name, &reference, least);
        }
        for round in 0..bench.rounds + 2 {
            streams.round = round;
            bench.remove("plain");
            let device = bench.blank(subject(format), format, size, None)?;
            let mut file = Window(plain(&bench.dir.join("plain"))?, 0);
            streams.pair(0, Pass::Write, &device, &file)?;
            if let Some(at) = data_at {
                // Overwriting the image's tables is harmless: they are in memory, and nothing is
                // flushed.
                let image = bench.dir.join(subject(format));
                file = Window(File::options().read(true).write(true).open(image)?, at);
            }
            streams.pair(1, Pass::Write, &device, &file)?;
            streams.pair(2, Pass::Read, &device, &file)?;
        }
        all.extend(streams.finish());
    }
    Ok(all)
}

/// Goal 9: an encrypted bundle on two threads, compared with a plain file and the unencrypted
/// bundle.
pub(super) fn encrypted_bundle(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(1024 * MIB);
    let mut streams = Streams::new(size, MIB, 2);
    for (what, reference, least) in [
        ("rewrite", "one plain file's pwrite, 2 threads", 1.0),
        ("rewrite", "the unencrypted bundle", 0.6),
        ("read", "the unencrypted bundle", 0.6),
        ("first write", "the unencrypted bundle", 0.6),
    ] {
        let name = format!("encrypted UDSB {what}, 1024 KiB, 2 threads");
        streams.add(9, name, reference, least);
    }
    for round in 0..bench.rounds + 2 {
        streams.round = round;
        bench.remove("plain");
        let file = plain(&bench.dir.join("plain"))?;
        let cipher = bench.fresh("cipher.sparsebundle", Format::Udsb, size, true)?;
        let clear = bench.fresh("clear.sparsebundle", Format::Udsb, size, false)?;
        streams.pair(3, Pass::Write, &cipher, &clear)?;
        streams.run(&file, Pass::Write)?;
        streams.pair(0, Pass::Write, &cipher, &file)?;
        streams.pair(1, Pass::Write, &cipher, &clear)?;
        streams.pair(2, Pass::Read, &cipher, &clear)?;
    }
    Ok(streams.finish().collect())
}

/// Goal 10: the other formats, encrypted, compared with the encrypted bundle, on one thread.
///
/// The file that is written first gets other physical pages than the second: they take turns.
pub(super) fn encrypted_formats(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let mut all = Vec::new();
    for format in [Format::Udrw, Format::Udsp, Format::Asif] {
        let mut streams = Streams::new(size, MIB, 1);
        for what in ["rewrite", "read"] {
            let name = format!("encrypted {format} {what}, 1024 KiB, 1 thread");
            streams.add(10, name, "the encrypted bundle", 0.9);
        }
        for round in 0..2 * bench.rounds {
            streams.round = round / 2;
            let image = bench.fresh(subject(format), format, size, true)?;
            let bundle = bench.fresh("cipher.sparsebundle", Format::Udsb, size, true)?;
            let [first, second] = match round % 2 {
                0 => [&image, &bundle],
                _ => [&bundle, &image],
            };
            streams.run(first, Pass::Write)?;
            streams.run(second, Pass::Write)?;
            streams.pair(0, Pass::Write, &image, &bundle)?;
            streams.pair(1, Pass::Read, &image, &bundle)?;
        }
        all.extend(streams.finish());
    }
    Ok(all)
}

/// Goal 4: the slowest of twelve band sizes compared with the fastest, by the medians over all
/// rounds; and, as a control, the slowest of twelve bundles with the *same* band size. The slowest
/// of twelve noisy medians is below their common value by chance alone: the loss in the control is
/// that of the machine.
pub(super) fn band_sizes(bench: &Bench) -> Result<Vec<Case>> {
    const BANDS_MIB: [u64; 12] = [2, 4, 6, 8, 15, 32, 64, 100, 200, 400, 700, 1000];
    let control = "12 times the same band size (control)";
    let mut cases = sweep(bench, &BANDS_MIB, "12 band sizes, 2 to 1000 MiB", 0.9)?;
    cases.extend(sweep(bench, &[8; 12], control, 0.0)?);
    Ok(cases)
}

fn sweep(bench: &Bench, bands_mib: &[u64], what: &str, at_least: f64) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let mut times = [(); 3].map(|()| vec![Vec::new(); bands_mib.len()]);
    for round in 0..bench.rounds * 2 {
        for step in 0..bands_mib.len() {
            let place = (step + round) % bands_mib.len();
            let (band_size, len) = (Some(bands_mib[place] * MIB), size.max(1024 * MIB));
            let device = bench.blank(subject(Format::Udsb), Format::Udsb, len, band_size)?;
            stream(&device, Pass::Write, size, MIB, 1)?;
            times[0][place].push(stream(&device, Pass::Write, size, MIB, 1)?);
            times[1][place].push(stream(&device, Pass::Read, size, MIB, 1)?);
            times[2][place].push(copy_within(&device, size)?);
        }
    }
    let passes = ["rewrite", "read", "read one half, write the other"];
    let cases = passes.iter().zip(times).map(|(pass, times)| {
        let median = |times: &Vec<f64>| Interval::median(times).unwrap_or_default().value;
        let mut medians: Vec<_> = times.iter().map(median).zip(bands_mib).collect();
        medians.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let ((fast, fastest), (slow, slowest)) = (medians[0], medians[medians.len() - 1]);
        let name = format!("slowest of {what}, {pass} (slowest {slowest} MiB)");
        let reference = format!("the fastest ({fastest} MiB)");
        let mut case = Case::new(4, name, reference, at_least, Workload::Bytes(size));
        case.pairs.push((slow, fast));
        case.told()
    });
    Ok(cases.collect())
}

/// Alternately reads from the first half and writes to the second.
fn copy_within(target: &dyn Target, size: u64) -> Result<f64> {
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
    let size = bench.scaled(512 * MIB);
    let first_use = |format: Format| {
        let fresh = |reopen: bool| {
            let mut device = bench.blank(subject(format), format, size, None)?;
            if reopen {
                drop(device);
                device = bench.open(subject(format), format, None)?;
            }
            stream(&device, Pass::Write, size, MIB, 1)
        };
        let name = format!("{format} written right after creation");
        let reference = "the same after close and reopen";
        let case = Case::new(7, name, reference, 0.95, Workload::Bytes(size));
        case.measure(bench.rounds, || fresh(false), || fresh(true))
    };
    [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif]
        .into_iter()
        .map(first_use)
        .collect()
}
