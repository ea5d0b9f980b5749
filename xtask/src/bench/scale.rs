//! Opening of bundles with a million bands, compared with a thousand (goal 23).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::open::{self, CreateOptions, OpenOptions};

use super::measure::{Case, Workload, time};
use super::{Bench, MIB};

/// Number of bands read after opening, spread over the disk.
const READS: u64 = 2000;

pub(super) fn million_bands(bench: &Bench) -> Result<Vec<Case>> {
    let many_bands = ((1_000_000.0 * bench.scale.min(1.0)) as u64).max(10_000);
    let few = fill(bench, "few.sparsebundle", 1000)?;
    let many = fill(bench, "many.sparsebundle", many_bands)?;
    let case = |what: &str, least: f64| Case {
        goal: 23,
        name: format!("{what} of {many_bands} bands"),
        reference: "1,000 bands".into(),
        at_least: least,
        pairs: Vec::new(),
        work: Workload::Run,
    };
    let opening =
        case("opening", 1.0 / 1.2).measure(bench.rounds * 5, || opened(&many), || opened(&few))?;
    let memory = Case {
        work: Workload::Memory,
        ..case("peak memory after reading 2,000", 1.0 / 1.2)
    };
    let memory = memory.measure_costs(3, || peak(&many), || peak(&few))?;
    super::remove(&few);
    super::remove(&many);
    Ok(vec![opening, memory])
}

/// Creates a bundle of `bands` tiny bands, written as files, as other programs would.
fn fill(bench: &Bench, name: &str, bands: u64) -> Result<PathBuf> {
    let path = bench.dir.join(name);
    let options = CreateOptions {
        format: Format::Udsb,
        len: bands * MIB,
        band_size: Some(MIB),
        ..CreateOptions::default()
    };
    drop(open::create(&path, &options)?);
    for band in 0..bands {
        std::fs::write(path.join("bands").join(format!("{band:x}")), b"x")?;
    }
    Ok(path)
}

fn options() -> OpenOptions<'static> {
    OpenOptions {
        access: Access::ReadOnly,
        image_format: Some(Format::Udsb),
        ..OpenOptions::default()
    }
}

fn opened(path: &Path) -> Result<Duration> {
    time(|| Ok(open::open(path, &options())?))
}

/// Returns the peak memory of a separate process, in megabytes.
fn peak(bundle: &Path) -> Result<f64> {
    let out = Command::new(std::env::current_exe()?)
        .args(["bench", "--probe"])
        .arg(bundle)
        .output()?;
    ensure!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let kib: f64 = String::from_utf8(out.stdout)?
        .trim()
        .parse()
        .context("peak memory in KiB")?;
    Ok(kib * 1024.0 / 1e6)
}

/// Opens a bundle, reads from bands spread over it, and prints the peak memory of the process in
/// KiB.
pub(super) fn probe(bundle: &Path) -> Result<()> {
    let image = open::open(bundle, &options())?;
    let disk = image.disk();
    for n in 0..READS {
        disk.read_vec(disk.info().len / READS * n / MIB * MIB, 512)?;
    }
    println!("{}", peak_kib()?);
    Ok(())
}

/// Returns the peak memory of this process, in KiB.
pub(super) fn peak_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("VmHWM")?;
    Ok(peak.trim().trim_end_matches(" kB").parse()?)
}
