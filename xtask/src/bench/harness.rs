//! The overhead of `bandsaw bench` itself: a timed file, compared with the same requests alone.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

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
    let path = bench.dir.join(file.name());
    let place = HostFolder::new(&bench.dir, Caches::Keep);
    let ours = || {
        super::remove(&path);
        let clock = HostClock::default();
        let contents = Contents::new(1, MIB as usize, false);
        let mut run = Run {
            place: &place,
            clock: &clock,
            contents,
            verify: false,
        };
        let samples = run.write(std::slice::from_ref(&file), &Silent)?;
        Ok(Duration::from_secs_f64(
            samples.first().context("a sample")?.seconds,
        ))
    };
    let bare = || {
        super::remove(&path);
        // The same bytes, so that only the overhead of a request differs.
        let mut contents = Contents::new(1, MIB as usize, false);
        let buf = contents.at(1, 0, MIB as usize);
        time(|| {
            let mut file = File::create(&path)?;
            (0..size / MIB).try_for_each(|_| file.write_all(buf))?;
            Ok(())
        })
    };
    let case = Case {
        goal: 33,
        name: "a file timed by `bandsaw bench`, requests of 1 MiB".to_owned(),
        reference: "the same requests, bare".to_owned(),
        at_least: 0.98,
        pairs: Vec::new(),
        work: Workload::Bytes(size),
    };
    let case = case.measure(bench.rounds + 8, ours, bare)?;
    super::remove(&path);
    Ok(vec![case])
}
