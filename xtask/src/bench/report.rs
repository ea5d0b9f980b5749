//! What was measured, as a page for people and as JSON with every sample.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::measure::{Case, Ratio, two_thread_scaling};

/// All cases of one run and the machine they ran on.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) cases: Vec<Case>,
    pub(super) scaling_before: f64,
    scaling_after: f64,
    rounds: usize,
    scale: f64,
    host: String,
    folder: String,
}

impl Report {
    pub(super) fn begin(dir: &Path, rounds: usize, scale: f64) -> Self {
        Self {
            cases: Vec::new(),
            scaling_before: two_thread_scaling(),
            scaling_after: 0.0,
            rounds,
            scale,
            host: host(),
            folder: file_system(dir),
        }
    }

    pub(super) fn finish(&mut self) {
        self.scaling_after = two_thread_scaling();
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(super) fn markdown(&self) -> String {
        let mut page = String::from(PREFACE);
        let _ = writeln!(
            page,
            "Machine: {}; files on {}. {} pairs a case, sizes times {}.",
            self.host, self.folder, self.rounds, self.scale
        );
        let _ = writeln!(
            page,
            "Two threads gave {:.2} times one before the run and {:.2} after; under 1.7 a busy neighbour spoils the run.\n",
            self.scaling_before, self.scaling_after
        );
        page.push_str(
            "| goal | case | ratio [min..max] | wanted | met | rate | reference |\n| --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for case in &self.cases {
            let Ratio { median, min, max } = case.ratio();
            let (rate, reference) = case.figures();
            let _ = writeln!(
                page,
                "| {} | {} | **{median:.2}** [{min:.2}..{max:.2}] | {:.2} | {} | {rate} | {}: {reference} |",
                case.goal,
                case.name,
                case.at_least,
                if case.met() { "yes" } else { "**no**" },
                case.reference
            );
        }
        page
    }
}

const PREFACE: &str = "# Benchmarks

Written by `cargo xtask bench`; every sample is in `benchmarks.json` beside this page.

How to read it: a ratio is *speed of Bandsaw over speed of the reference*, both measured one after the other in the same run, the
order changing from pair to pair; the figure is the median of the pairs, with the smallest and largest in brackets. Rates are medians
and drift with the machine, ratios much less. What must not be concluded: figures on a memory file system say what the
engine costs, not how fast a disk is; nothing here was run on a Mac.

";

/// Processor and kernel, as far as the system tells.
fn host() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release: Vec<&str> = kernel.trim().splitn(3, '.').collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{model}, {cores} cores, Linux {}", release.get(..2).map_or_else(String::new, |parts| parts.join(".")))
}

/// The type of the file system that holds `dir`: the mount with the longest matching path.
fn file_system(dir: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let at = fields.filter(|(at, _)| dir.starts_with(at)).max_by_key(|(at, _)| at.len());
    at.map_or_else(|| "an unknown file system".into(), |(_, kind)| kind.to_owned())
}
