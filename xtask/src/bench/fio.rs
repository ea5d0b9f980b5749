//! Workloads of fio, on a file or a server.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::measure::Workload;

/// Number of requests per figure for random workloads.
const REQUESTS: u64 = 100_000;

/// A workload.
pub(super) struct Load {
    pub(super) rw: &'static str,
    pub(super) block: &'static str,
    pub(super) depth: u32,
    pub(super) jobs: u64,
}

impl Load {
    pub(super) const fn new(rw: &'static str, block: &'static str, depth: u32, jobs: u64) -> Self {
        Self {
            rw,
            block,
            depth,
            jobs,
        }
    }

    pub(super) fn is_random(&self) -> bool {
        self.rw.starts_with("rand")
    }

    pub(super) fn work(&self, size: u64) -> Workload {
        match self.is_random() {
            true => Workload::Requests(REQUESTS),
            false => Workload::Bytes(size),
        }
    }

    /// Runs fio with the options `on`; returns the seconds of its work, as it reports them.
    pub(super) fn run(&self, bench: &Bench, on: &str, size: u64) -> Result<f64> {
        let Self {
            rw,
            block,
            depth,
            jobs,
        } = self;
        let (each, random) = (size / jobs, "--time_based --norandommap --runtime=1");
        let more = if self.is_random() { random } else { "" };
        let output = bench
            .command(&format!(
                "fio --name=x --thread --group_reporting --output-format=terse --terse-version=3 {on} \
                --rw={rw} --bs={block} --iodepth={depth} --numjobs={jobs} --size={each} \
                --offset_increment={each} {more}"
            ))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .context("fio")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said.lines().find(|line| line.starts_with("3;"));
        let fields = line.context("fio says nothing")?.split(';');
        let fields: Vec<f64> = fields.map(|field| field.parse().unwrap_or(0.0)).collect();
        // KiB per second and requests per second of reads, then of writes.
        let both = |at: usize| fields.get(at).unwrap_or(&0.0) + fields.get(at + 41).unwrap_or(&0.0);
        let cost = match self.is_random() {
            true => REQUESTS as f64 / both(7),
            false => size as f64 / (both(6) * 1024.0),
        };
        ensure!(
            cost.is_finite(),
            "fio moved nothing: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(cost)
    }
}
