//! Opening of bundles with a million bands, compared with a thousand (goal 23).

use std::path::Path;

use anyhow::Result;
use bandsaw::container::Format;
use bandsaw::device::{Access, BlockDeviceExt};
use bandsaw::open::{self, OpenOptions};

use super::measure::{Case, Workload, time};
use super::programs::probed;
use super::{Bench, MIB};

/// Number of bands read after opening, spread over the disk.
const READS: u64 = 2000;

pub(super) fn million_bands(bench: &Bench) -> Result<Vec<Case>> {
    let many_bands = bench.count(1_000_000, 10_000).min(1_000_000);
    let few = fill(bench, "few.sparsebundle", 1000)?;
    let many = fill(bench, "many.sparsebundle", many_bands)?;
    let case = |what: &str, work| {
        let name = format!("{what} of {many_bands} bands");
        Case::new(23, name, "1,000 bands", 1.0 / 1.2, work)
    };
    let opened = |path: &str| time(|| Ok(open::open(Path::new(path), &options())?));
    let memory = |path: &str| Ok(probed("bands", path)?.1);
    Ok(vec![
        case("opening", Workload::Run).measure(
            bench.rounds * 5,
            || opened(&many),
            || opened(&few),
        )?,
        case("peak memory after reading 2,000", Workload::Memory).measure(
            3,
            || memory(&many),
            || memory(&few),
        )?,
    ])
}

/// Creates a bundle of `bands` tiny bands, written as files, as other programs would; returns its
/// path.
fn fill(bench: &Bench, name: &str, bands: u64) -> Result<String> {
    drop(bench.blank(name, Format::Udsb, bands * MIB, Some(MIB))?);
    let path = bench.dir.join(name);
    for band in 0..bands {
        std::fs::write(path.join("bands").join(format!("{band:x}")), b"x")?;
    }
    Ok(path.display().to_string())
}

fn options() -> OpenOptions<'static> {
    OpenOptions {
        access: Access::ReadOnly,
        image_format: Some(Format::Udsb),
        ..OpenOptions::default()
    }
}

/// Opens a bundle, and reads from bands spread over it.
pub(super) fn probe(bundle: &str) -> Result<f64> {
    time(|| {
        let image = open::open(Path::new(bundle), &options())?;
        let disk = image.disk();
        for n in 0..READS {
            disk.read_vec(disk.info().len / READS * n / MIB * MIB, 512)?;
        }
        Ok(())
    })
}
