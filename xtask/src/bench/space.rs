//! Space reclamation, and files inside of images (goals 5 and 24).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use bandsaw::container::Format;
use bandsaw::device::{Access, AfterDiscard, BlockDevice};
use bandsaw::fs::{FileSystemMut, Fork, NewKind, NewNode};
use bandsaw::open::{self, Image, OpenOptions};
use bandsaw::ops::compact::{self, compact};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::reband::reband;
use bandsaw::progress::Silent;
use bandsaw_bench::images::space::{Case as Protocol, run};

use super::measure::{Case, Workload, time};
use super::stream::{Pass, Target, plain};
use super::{Bench, MIB};

/// Figures of the article, for the table.
const APPLES_FULL: &str =
    "1.03 of the bytes in use (Apple's bundle: 1.14 of the raw image, 104.08 GB to 91.63)";
const APPLES_EMPTY: &str =
    "a new image and 0.2 % of what was written (Apple's bundle: 1.06 GB of 265 GB written, 0.4 %)";
/// Maximum seconds for discarding 120,000 bands.
const COMPACTION: f64 = 2.0;
const BANDS: u64 = 120_000;
const BAND: u64 = 8 * MIB;

fn case(
    goal: u32,
    name: String,
    reference: impl Into<String>,
    at_least: f64,
    work: Workload,
) -> Case {
    Case {
        goal,
        name,
        reference: reference.into(),
        at_least,
        pairs: Vec::new(),
        work,
    }
}

fn volume(path: &Path, format: Format, band_size: Option<u64>, len: u64) -> Result<()> {
    let volume = NewVolume {
        layout: Layout::Gptspud,
        name: "Bench".into(),
        format: NewFormat::HfsPlus,
        block_size: None,
        source: Source::Empty,
    };
    let options = CreateOptions {
        format,
        band_size,
        len: Some(len),
        volume: Some(volume),
        ..CreateOptions::default()
    };
    create(path, options, &Silent)?;
    Ok(())
}

fn open(path: &Path) -> Result<Image> {
    Ok(open::open(
        path,
        &OpenOptions {
            access: Access::ReadWrite,
            ..OpenOptions::default()
        },
    )?)
}

/// Goal 5: reading one file of a volume while writing another, compared with the host.
pub(super) fn within_one_image(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let mut cases = Vec::new();
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let path = bench.dir.join("inside");
        super::remove(&path);
        volume(&path, format, None, 3 * size)?;
        let image = open(&path)?;
        let inside = image.file_system_mut(None)?;
        let (from, to) = (bench.dir.join("from"), bench.dir.join("to"));
        write(&make(&*inside, "from", size)?, size)?;
        write(&plain(&from)?, size)?;
        let ours = || {
            let _ = inside.remove(inside.root(), "to");
            // Its storage is reclaimed here, as on the host when its file is removed.
            inside.sync()?;
            let source = inside.open(
                inside
                    .lookup(inside.root(), "from")?
                    .map(|found| found.id)
                    .unwrap_or(inside.root()),
                Fork::Data,
            )?;
            time(|| copy(&source, &make(&*inside, "to", size)?, size))
        };
        let hosts = || {
            super::remove(&to);
            let source = File::open(&from)?;
            time(|| copy(&source, &plain(&to)?, size))
        };
        let case = case(
            5,
            format!("{format}: one file read, another written"),
            "the same on the host",
            0.9,
            Workload::Bytes(size),
        );
        cases.push(case.measure(bench.rounds + 2, ours, hosts)?);
        inside.unmount()?;
        [&path, &from, &to]
            .into_iter()
            .for_each(|path| super::remove(path));
    }
    Ok(cases)
}

fn make(
    volume: &dyn FileSystemMut,
    name: &str,
    size: u64,
) -> Result<std::sync::Arc<dyn BlockDevice>> {
    let file = volume.open_mut(
        volume.create(volume.root(), name, &NewNode::new(NewKind::File))?,
        Fork::Data,
    )?;
    file.set_len(size, AfterDiscard::Any)?;
    Ok(file)
}

fn write(to: &dyn Target, size: u64) -> Result<()> {
    let mut buf: Vec<u8> = (0..MIB).map(|n| (n * 131 + 7) as u8).collect();
    (0..size)
        .step_by(MIB as usize)
        .try_for_each(|at| to.run(Pass::Write, at, &mut buf))
}

fn copy(from: &dyn Target, to: &dyn Target, size: u64) -> Result<()> {
    let mut buf = vec![0; MIB as usize];
    (0..size).step_by(MIB as usize).try_for_each(|at| {
        from.run(Pass::Read, at, &mut buf)?;
        to.run(Pass::Write, at, &mut buf)
    })
}

/// Goal 24: the space protocol, with sizes on disk instead of seconds; the duration of compaction;
/// changing the band size.
pub(super) fn comes_back(bench: &Bench) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for protocol in Protocol::all(((100.0 / bench.scale) as u64).max(1)) {
        let path = bench.dir.join("space");
        super::remove(&path);
        let measured = run(&path, &protocol, &Silent)?;
        super::remove(&path);
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let mut full = case(
            24,
            format!("{protocol}, full"),
            APPLES_FULL,
            1.0,
            Workload::Memory,
        );
        full.pairs
            .push((mb(measured.full), mb(measured.max_when_full())));
        let mut empty = case(
            24,
            format!("{protocol}, emptied and compacted"),
            APPLES_EMPTY,
            1.0,
            Workload::Memory,
        );
        empty
            .pairs
            .push((mb(measured.compacted), mb(measured.max_when_empty())));
        [&full, &empty].into_iter().for_each(Case::tell);
        cases.extend([full, empty]);
    }
    cases.push(many_bands(bench)?);
    cases.extend(other_bands(bench)?);
    Ok(cases)
}

/// Measures the compaction of a terabyte volume that uses 10 GB, with all of its band files
/// allocated.
fn many_bands(bench: &Bench) -> Result<Case> {
    let bands = ((BANDS as f64 * bench.scale.min(1.0)) as u64).max(2000);
    let path = bench.dir.join("many.sparsebundle");
    let mut case = case(
        24,
        format!("compaction of {bands} bands"),
        "2 s",
        1.0,
        Workload::Run,
    );
    for _ in 0..bench.rounds {
        super::remove(&path);
        volume(&path, Format::Udsb, Some(BAND), bands * BAND)?;
        {
            let image = open(&path)?;
            let inside = image.file_system_mut(None)?;
            make(&*inside, "used", bands * BAND / 100)?;
            inside.unmount()?;
        }
        for band in 0..bands {
            let file = File::options()
                .create(true)
                .append(true)
                .open(path.join("bands").join(format!("{band:x}")))?;
            if file.metadata()?.len() == 0 {
                file.set_len(BAND)?;
            }
        }
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        let seconds = time(|| Ok(compact(&open(&path)?, &options, None, &Silent)?))?.as_secs_f64();
        let left = fs::read_dir(path.join("bands"))?.count() as u64;
        ensure!(left < bands / 50, "{left} of {bands} bands are left");
        case.pairs.push((seconds, COMPACTION));
    }
    super::remove(&path);
    case.tell();
    Ok(case)
}

/// Measures changing the band size, compared with `cp` of the bundle.
fn other_bands(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(1024 * MIB);
    let (bundle, copied) = (
        bench.dir.join("bands.sparsebundle"),
        bench.dir.join("copy.sparsebundle"),
    );
    let fresh = |band_size: u64| -> Result<PathBuf> {
        super::remove(&bundle);
        let options = open::CreateOptions {
            format: Format::Udsb,
            len: size,
            band_size: Some(band_size),
            ..open::CreateOptions::default()
        };
        let image = open::create(&bundle, &options)?;
        write(image.disk(), size)?;
        image.disk().flush()?;
        Ok(bundle.clone())
    };
    let mut cases = Vec::new();
    for (from, to) in [(8, 64), (64, 8)] {
        let ours = || -> Result<Duration> {
            let path = fresh(from * MIB)?;
            time(|| {
                Ok(reband(
                    &path,
                    Some(to * MIB),
                    &OpenOptions::default(),
                    &Silent,
                )?)
            })
        };
        let cp = || -> Result<Duration> {
            let path = fresh(from * MIB)?;
            super::remove(&copied);
            time(|| {
                let done = Command::new("cp")
                    .arg("-r")
                    .arg(&path)
                    .arg(&copied)
                    .status()?;
                ensure!(done.success(), "cp failed");
                Ok(())
            })
        };
        let case = case(
            24,
            format!("bands of {from} MiB become {to} MiB"),
            "cp -r of the bundle",
            0.8,
            Workload::Bytes(size),
        );
        cases.push(case.measure(bench.rounds, ours, cp)?);
    }
    [&bundle, &copied]
        .into_iter()
        .for_each(|path| super::remove(path));
    Ok(cases)
}
