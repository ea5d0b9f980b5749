//! The overhead of `bandsaw bench` itself: a timed file, compared with the same requests alone.

use std::fs::File;
use std::io::Write;

use anyhow::{Context, Result};
use bandsaw::progress::Silent;
use bandsaw_bench::clock::HostClock;
use bandsaw_bench::contents::Contents;
use bandsaw_bench::files::Run;
use bandsaw_bench::place::{Caches, HostFolder};
use bandsaw_bench::plan::PlannedFile;

use super::measure::{Case, Workload, time};
use super::{Bench, MIB};

/// The benchmark of files: less than 2 % of a write of 1 MiB requests to memory.
pub(super) fn files(bench: &Bench) -> Result<Vec<Case>> {
    let size = bench.scaled(512 * MIB);
    let file = PlannedFile {
        set: 1,
        number: 1,
        size,
    };
    let place = HostFolder::new(&bench.dir, Caches::Keep);
    // The same bytes, so that only the overhead of a request differs.
    let contents = || Contents::new(1, MIB as usize, false);
    let ours = || {
        bench.remove(&file.name());
        let clock = HostClock::default();
        let mut run = Run {
            place: &place,
            clock: &clock,
            contents: contents(),
            verify: false,
        };
        let samples = run.write(std::slice::from_ref(&file), &Silent)?;
        Ok(samples.first().context("a sample")?.seconds)
    };
    let bare = || {
        bench.remove(&file.name());
        let mut contents = contents();
        let buf = contents.at(1, 0, MIB as usize);
        time(|| {
            let mut file = File::create(bench.dir.join(file.name()))?;
            Ok((0..size / MIB).try_for_each(|_| file.write_all(buf))?)
        })
    };
    let name = "a file timed by `bandsaw bench`, requests of 1 MiB";
    let reference = "the same requests, bare";
    let case = Case::new(33, name, reference, 0.98, Workload::Bytes(size));
    Ok(vec![case.measure(bench.rounds + 8, ours, bare)?])
}
