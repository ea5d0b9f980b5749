//! Results as a web page, and as JSON with every sample.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::measure::{Case, Ratio, two_thread_scaling};

/// All cases of one run and its machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) cases: Vec<Case>,
    pub(super) scaling_before: f64,
    scaling_after: f64,
    rounds: usize,
    scale: f64,
    host: String,
    folder: String,
}

impl Run {
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

    fn goals(&self) -> BTreeSet<u32> {
        self.cases.iter().map(|case| case.goal).collect()
    }
}

/// The newest run of each goal: measuring all of them takes longer than a machine stays idle.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Report {
    runs: Vec<Run>,
}

impl Report {
    /// Reads the report of earlier runs at `path`; an empty one if there is no such file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        match std::fs::read(path) {
            Ok(json) => serde_json::from_slice(&json)
                .with_context(|| format!("{} is no report of this program", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Adds a run, which replaces earlier results of its goals.
    pub(super) fn add(&mut self, run: Run) {
        let anew = run.goals();
        for older in &mut self.runs {
            older.cases.retain(|case| !anew.contains(&case.goal));
        }
        self.runs.push(run);
        self.runs.retain(|run| !run.cases.is_empty());
        self.runs.sort_by_key(Run::goals);
    }

    pub(super) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    pub(super) fn markdown(&self) -> String {
        let mut page = String::from(PREFACE);
        page.push_str("| goals | machine | files on | pairs | sizes times | two threads, before and after |\n");
        page.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for run in &self.runs {
            let goals: Vec<String> = run.goals().iter().map(u32::to_string).collect();
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} | {} | {:.2}, {:.2} |",
                goals.join(", "),
                run.host,
                run.folder,
                run.rounds,
                run.scale,
                run.scaling_before,
                run.scaling_after
            );
        }
        page.push_str("\n| goal | case | ratio [min..max] | wanted | met | rate | reference |\n");
        page.push_str("| --- | --- | --- | --- | --- | --- | --- |\n");
        let mut cases: Vec<&Case> = self.runs.iter().flat_map(|run| &run.cases).collect();
        cases.sort_by_key(|case| case.goal);
        for case in cases {
            let Ratio { median, min, max } = case.ratio();
            let (rate, reference) = case.figures();
            let wanted = match (case.is_wanted(), case.met()) {
                (false, _) => "- | -".to_owned(),
                (true, true) => format!("{:.2} | yes", case.at_least),
                (true, false) => format!("{:.2} | **no**", case.at_least),
            };
            let _ = writeln!(
                page,
                "| {} | {} | **{median:.2}** [{min:.2}..{max:.2}] | {wanted} | {rate} | {}: {reference} |",
                case.goal, case.name, case.reference
            );
        }
        page
    }
}

/// Returns the second part of the page: the output of `bandsaw bench` in the folder beside it, a
/// file per protocol. Empty without that folder.
pub(super) fn protocols(folder: &Path) -> Result<String> {
    let Ok(listed) = std::fs::read_dir(folder) else {
        return Ok(String::new());
    };
    let mut parts = listed
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    parts.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    parts.sort_by_key(|path| (place(path), path.clone()));
    if parts.is_empty() {
        return Ok(String::new());
    }
    let mut page = String::from(PROTOCOLS);
    for part in parts {
        page.push('\n');
        page.push_str(&std::fs::read_to_string(&part).with_context(|| part.display().to_string())?);
    }
    Ok(page)
}

/// Returns the position of a part: folders first, then the protocols from R1 to R6, then all
/// others.
fn place(part: &Path) -> usize {
    const ORDER: [&str; 7] = [
        "files",
        "rewrite",
        "steady",
        "space",
        "bands",
        "refill",
        "compression",
    ];
    let name = part.file_stem().unwrap_or_default().to_string_lossy();
    ORDER
        .iter()
        .position(|known| name == *known)
        .unwrap_or(ORDER.len())
}

const PROTOCOLS: &str = "
# The articles' protocols

Written by `bandsaw bench files` and `bandsaw bench images`, each part by one run, whose machine, scale and file system it names.

What must not be concluded: a scaled run keeps the number of files and makes them smaller, so that latency counts for more; files
under 1 MB tell the speed of memory. Where caches could not be dropped, reading tells the speed of memory, too. Ratios are to files
in the host's own folder in the same run; what was published of Apple's images was measured on Macs, and stands beside for its ratios alone.
";

const PREFACE: &str = "# Benchmarks

Written by `cargo xtask bench`; every sample is in `benchmarks.json` beside this page.

How to read it: a ratio is *speed of Bandsaw over speed of the reference*, both measured one after the other in the same run, the
order changing from pair to pair; the figure is the median of the pairs, with the smallest and largest in brackets. Rates are medians
and drift with the machine, ratios much less. What must not be concluded: figures on a memory file system say what the
engine costs, not how fast a disk is; nothing here was run on a Mac.

A case without a wanted ratio says what is possible: a bare program against the same reference.

The machine of each run, and how much faster two threads were than one at work that shares nothing: under 1.7 a busy neighbour spoils
the run.

";

/// Returns the processor and kernel, if the system reports them.
fn host() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release: Vec<&str> = kernel.trim().splitn(3, '.').collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{model}, {cores} cores, Linux {}",
        release
            .get(..2)
            .map_or_else(String::new, |parts| parts.join("."))
    )
}

/// Returns the file system type of `dir`: the mount with the longest matching path.
fn file_system(dir: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let at = fields
        .filter(|(at, _)| dir.starts_with(at))
        .max_by_key(|(at, _)| at.len());
    at.map_or_else(
        || "an unknown file system".into(),
        |(_, kind)| kind.to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_wrote_is_the_second_part() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("benchmarks");
        assert_eq!(protocols(&folder).unwrap(), "");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("notes.txt"), "no part").unwrap();
        assert_eq!(protocols(&folder).unwrap(), "");
        for name in ["vm", "bands", "compression", "files", "rewrite"] {
            std::fs::write(
                folder.join(name).with_extension("md"),
                format!("## {name}\n"),
            )
            .unwrap();
        }
        let page = protocols(&folder).unwrap();
        assert!(page.starts_with(PROTOCOLS));
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .collect();
        assert_eq!(headings, ["files", "rewrite", "bands", "compression", "vm"]);
    }
}
