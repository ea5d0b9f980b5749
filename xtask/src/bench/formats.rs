//! Formatting: growth of its time and its stored bytes with the size of the volume (goal 22).

use anyhow::Result;
use bandsaw::ops::usage::HostUsage;
use bandsaw::progress::Silent;

use super::measure::{Case, Workload};
use super::{Bench, MIB};

/// Measures `create --fs` of 8 TiB, the maximum for the command line, compared with 1 GiB and with
/// `mkapfs` of 100 GiB, and the stored bytes.
pub(super) fn formats(bench: &Bench) -> Result<Vec<Case>> {
    let image = "f.sparsebundle";
    let rounds = bench.rounds * 4 + 1;
    let mut cases = Vec::new();
    for fs in ["hfs+", "hfs+j", "apfs"] {
        let create = |size: &str| {
            bench.remove(image);
            bench.run(&format!(
                "bandsaw create {image} --fs {fs} --volname Bench --size {size}"
            ))
        };
        let largest = || create("8t");
        let case = |reference: &str, least: f64, work| {
            let name = format!("create --fs {fs} of 8t");
            Case::new(22, name, reference, least, work)
        };
        let usual = case("the same of 1g", 1.0 / 1.5, Workload::Run);
        cases.push(usual.measure(rounds, largest, || create("1g"))?);
        create("8t")?;
        let stored = HostUsage::of(&bench.dir.join(image), &Silent)?.allocated;
        let limited = case("at most", 1.0, Workload::Memory);
        cases.push(limited.measure(1, || Ok(stored as f64 / 1e6), || Ok(MIB as f64 / 1e6))?);
        if bench.has("mkapfs", "apt install apfsprogs") {
            let rival = || {
                let file = std::fs::File::create(bench.dir.join("f.img"))?;
                file.set_len(100 << 30)?;
                bench.run("mkapfs f.img")
            };
            let case = case("mkapfs of 100 GiB", 0.5, Workload::Run);
            cases.push(case.measure(rounds, largest, rival)?);
        }
    }
    Ok(cases)
}
