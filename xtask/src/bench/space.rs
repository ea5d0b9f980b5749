//! Space reclamation, and files inside of images (goals 5 and 24).

use std::fs::{self, File};
use std::sync::Arc;

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

/// Creates an image with an empty volume in place of an older one, and opens it.
fn volume(
    bench: &Bench,
    name: &str,
    format: Format,
    band_size: Option<u64>,
    len: u64,
) -> Result<Image> {
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
    bench.remove(name);
    create(&bench.dir.join(name), options, &Silent)?;
    open(bench, name)
}

fn open(bench: &Bench, name: &str) -> Result<Image> {
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    Ok(open::open(&bench.dir.join(name), &options)?)
}

/// Goal 5: reading one file of a volume while writing another, compared with the host.
pub(super) fn within_one_image(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let mut cases = Vec::new();
    for format in [Format::Udrw, Format::Udsb, Format::Udsp, Format::Asif] {
        let image = volume(bench, "inside", format, None, 3 * size)?;
        let inside = image.file_system_mut(None)?;
        let (from, to) = (bench.dir.join("from"), bench.dir.join("to"));
        write(&make(&*inside, "from", size)?, size)?;
        write(&plain(&from)?, size)?;
        let ours = || {
            let _ = inside.remove(inside.root(), "to");
            // Its storage is reclaimed here, as on the host when its file is removed.
            inside.sync()?;
            let found = inside.lookup(inside.root(), "from")?;
            let source = found.map_or(inside.root(), |found| found.id);
            let source = inside.open(source, Fork::Data)?;
            time(|| copy(&source, &make(&*inside, "to", size)?, size))
        };
        let hosts = || {
            bench.remove("to");
            let source = File::open(&from)?;
            time(|| copy(&source, &plain(&to)?, size))
        };
        let name = format!("{format}: one file read, another written");
        let case = Case::new(5, name, "the same on the host", 0.9, Workload::Bytes(size));
        cases.push(case.measure(bench.rounds + 2, ours, hosts)?);
        inside.unmount()?;
    }
    Ok(cases)
}

fn make(volume: &dyn FileSystemMut, name: &str, size: u64) -> Result<Arc<dyn BlockDevice>> {
    let new = volume.create(volume.root(), name, &NewNode::new(NewKind::File))?;
    let file = volume.open_mut(new, Fork::Data)?;
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
        bench.remove("space");
        let measured = run(&bench.dir.join("space"), &protocol, &Silent)?;
        let (full, empty) = (measured.max_when_full(), measured.max_when_empty());
        for (what, reference, size, most) in [
            ("full", APPLES_FULL, measured.full, full),
            (
                "emptied and compacted",
                APPLES_EMPTY,
                measured.compacted,
                empty,
            ),
        ] {
            let name = format!("{protocol}, {what}");
            let case = Case::new(24, name, reference, 1.0, Workload::Memory);
            let mb = |bytes: u64| Ok(bytes as f64 / 1e6);
            cases.push(case.measure(1, || mb(size), || mb(most))?);
        }
    }
    bench.remove("space");
    cases.push(many_bands(bench)?);
    cases.extend(other_bands(bench)?);
    Ok(cases)
}

/// Measures the compaction of a terabyte volume that uses 10 GB, with all of its band files
/// allocated.
fn many_bands(bench: &Bench) -> Result<Case> {
    let bands = bench.count(BANDS, 2000).min(BANDS);
    let name = "many.sparsebundle";
    let folder = bench.dir.join(name).join("bands");
    let compacted = || {
        let image = volume(bench, name, Format::Udsb, Some(BAND), bands * BAND)?;
        let inside = image.file_system_mut(None)?;
        make(&*inside, "used", bands * BAND / 100)?;
        inside.unmount()?;
        drop((inside, image));
        for band in 0..bands {
            let path = folder.join(format!("{band:x}"));
            let file = File::options().create(true).append(true).open(path)?;
            if file.metadata()?.len() == 0 {
                file.set_len(BAND)?;
            }
        }
        let options = compact::Options {
            battery_allowed: true,
            ..compact::Options::default()
        };
        let seconds = time(|| Ok(compact(&open(bench, name)?, &options, None, &Silent)?))?;
        let left = fs::read_dir(&folder)?.count() as u64;
        ensure!(left < bands / 50, "{left} of {bands} bands are left");
        Ok(seconds)
    };
    let of_bands = format!("compaction of {bands} bands");
    let case = Case::new(24, of_bands, "2 s", 1.0, Workload::Run);
    let case = case.measure(bench.rounds, compacted, || Ok(COMPACTION));
    bench.remove(name);
    case
}

/// Measures changing the band size, compared with `cp` of the bundle.
fn other_bands(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(1024 * MIB);
    let mut cases = Vec::new();
    for (from, to) in [(8, 64), (64, 8)] {
        let fresh = || {
            let bands = Some(from * MIB);
            let device = bench.blank("bands.sparsebundle", Format::Udsb, size, bands)?;
            write(&device, size)?;
            Ok::<_, anyhow::Error>(device.flush()?)
        };
        let ours = || {
            fresh()?;
            let (path, options) = (bench.dir.join("bands.sparsebundle"), OpenOptions::default());
            time(|| Ok(reband(&path, Some(to * MIB), &options, &Silent)?))
        };
        let cp = || {
            fresh()?;
            bench.remove("copy.sparsebundle");
            bench.run("cp -r bands.sparsebundle copy.sparsebundle")
        };
        let name = format!("bands of {from} MiB become {to} MiB");
        let reference = "cp -r of the bundle";
        let case = Case::new(24, name, reference, 0.8, Workload::Bytes(size));
        cases.push(case.measure(bench.rounds, ours, cp)?);
    }
    Ok(cases)
}
