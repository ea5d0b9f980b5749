//! Formatting: growth of its time and its stored bytes with the size of the volume (goal 22).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;

use super::measure::{Case, Workload};
use super::startup::{present, process};
use super::{Bench, MIB};

/// Sizes for the command line: a common one and the maximum.
const SIZES: [&str; 2] = ["1g", "8t"];

/// Measures `create --fs` of 8 TiB compared with 1 GiB and with `mkapfs` of 100 GiB, and the stored
/// bytes.
pub(super) fn formats(bench: &Bench) -> Result<Vec<Case>> {
    let image = bench.dir.join("f.sparsebundle");
    let create = |fs: &str, size: &str| {
        super::remove(&image);
        process(
            &bench.bandsaw,
            &[
                "create",
                "f.sparsebundle",
                "--fs",
                fs,
                "--volname",
                "Bench",
                "--size",
                size,
            ],
            &bench.dir,
        )
    };
    let rounds = bench.rounds * 4 + 1;
    let [usual, largest] = SIZES;
    let mut cases = Vec::new();
    for fs in ["hfs+", "hfs+j", "apfs"] {
        let case = |reference: &str, least: f64, work| Case {
            goal: 22,
            name: format!("create --fs {fs} of {largest}"),
            reference: reference.to_owned(),
            at_least: least,
            pairs: Vec::new(),
            work,
        };
        let reference = format!("the same of {usual}");
        let largest_ones = || create(fs, largest);
        cases.push(case(&reference, 1.0 / 1.5, Workload::Run).measure(
            rounds,
            largest_ones,
            || create(fs, usual),
        )?);
        create(fs, largest)?;
        let stored = stored(&image)? as f64 / 1e6;
        cases.push(case("at most", 1.0, Workload::Memory).measure_costs(
            1,
            || Ok(stored),
            || Ok(MIB as f64 / 1e6),
        )?);
        if present("mkapfs") {
            let rival = || {
                let file = std::fs::File::create(bench.dir.join("f.img"))?;
                file.set_len(100 << 30)?;
                process("mkapfs".as_ref(), &["f.img"], &bench.dir)
            };
            cases.push(case("mkapfs of 100 GiB", 0.5, Workload::Run).measure(
                rounds,
                largest_ones,
                rival,
            )?);
            super::remove(&bench.dir.join("f.img"));
        } else {
            eprintln!("  mkapfs is absent: its case is left out (apt install apfsprogs)");
        }
    }
    super::remove(&image);
    Ok(cases)
}

/// Returns the size on disk of a folder's files, in bytes.
fn stored(folder: &Path) -> Result<u64> {
    let mut all = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        all += if entry.file_type()?.is_dir() {
            stored(&entry.path())?
        } else {
            entry.metadata()?.blocks() * 512
        };
    }
    Ok(all)
}
