//! Results as two pages, a summary and a table of all cases, and as JSON with every sample.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use bandsaw_bench::machine::Machine;
use bandsaw_bench::report::table::Table;
use serde::{Deserialize, Serialize};

use super::measure::{Case, two_thread_scaling, yes_or_no};

/// All cases of one run and its machine.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) cases: Vec<Case>,
    pub(super) scaling_before: f64,
    scaling_after: f64,
    rounds: usize,
    scale: f64,
    machine: Machine,
}

impl Run {
    pub(super) fn begin(dir: &Path, rounds: usize, scale: f64) -> Result<Self> {
        Ok(Self {
            cases: Vec::new(),
            scaling_before: two_thread_scaling()?,
            scaling_after: 0.0,
            rounds,
            scale,
            machine: Machine::this(dir),
        })
    }

    pub(super) fn finish(&mut self) -> Result<()> {
        self.scaling_after = two_thread_scaling()?;
        Ok(())
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

    /// The page for people: goals, one row each, and the cases that miss.
    pub(super) fn summary(&self) -> String {
        let cases = self.cases();
        let heading = "goal | subject and reference | wanted | measured | cases met | met";
        let mut by_goal = table(heading, 2);
        for (goal, subject) in goals() {
            let of_goal = |case: &&&Case| case.goal == goal && case.is_wanted();
            let wanted: Vec<&&Case> = cases.iter().filter(of_goal).collect();
            let tightest = wanted
                .iter()
                .min_by(|a, b| a.margin().total_cmp(&b.margin()));
            let Some(tightest) = tightest else {
                continue;
            };
            let met = wanted.iter().filter(|case| case.met()).count();
            by_goal.rows.push(vec![
                goal.to_string(),
                subject.to_owned(),
                format!("{:.2}", tightest.at_least),
                format!("{:.2}", tightest.ratio().value),
                format!("{met} of {}", wanted.len()),
                yes_or_no(met == wanted.len()).to_owned(),
            ]);
        }
        let mut missed = table("goal | case | reference | wanted | measured", 3);
        for case in cases.iter().filter(|case| !case.met()) {
            let mut cells = case.cells();
            cells.truncate(3);
            cells.push(format!("{:.2}", case.at_least));
            cells.push(format!("{:.3}", case.ratio().value));
            missed.rows.push(cells);
        }
        let heading =
            "goals | machine | files on | pairs | size factor | two threads, before and after";
        let mut runs = table(heading, 3);
        for run in &self.runs {
            let goals: Vec<String> = run.goals().iter().map(u32::to_string).collect();
            runs.rows.push(vec![
                goals.join(", "),
                run.machine.to_string(),
                run.machine.file_system.clone(),
                run.rounds.to_string(),
                run.scale.to_string(),
                format!("{:.2}, {:.2}", run.scaling_before, run.scaling_after),
            ]);
        }
        let [by_goal, missed, runs] = [by_goal, missed, runs].map(|table| table.markdown());
        format!(
            "{SUMMARY}{by_goal}\n## Cases that miss their goal\n\n{missed}{MACHINE}{runs}{CLOSING}"
        )
    }

    /// The table of all cases.
    pub(super) fn full(&self) -> String {
        let heading =
            "goal | case | reference | ratio [min..max] | wanted | met | figure | of the reference";
        let mut all = table(heading, 3);
        all.rows = self.cases().into_iter().map(Case::cells).collect();
        format!("{FULL}{}", all.markdown())
    }

    /// All cases in the order of their goals.
    fn cases(&self) -> Vec<&Case> {
        let mut cases: Vec<&Case> = self.runs.iter().flat_map(|run| &run.cases).collect();
        cases.sort_by_key(|case| case.goal);
        cases
    }
}

/// Returns a table without a title.
fn table(heading: &str, texts: usize) -> Table {
    Table {
        texts,
        ..Table::new("", heading)
    }
}

/// The subject of each goal, and the reference it is compared with: a line for each, after its
/// number.
const GOALS: &str = "\
1 raw image against a plain file, one thread
2 sparse bundle against a plain file, one thread
3 sparse bundle on two threads against a plain file on two threads
4 slowest of twelve band sizes (2 to 1000 MiB) against the fastest
5 one file read while another is written, in an image against on the host
6 sparse image and ASIF against a plain file
7 writes right after creation against writes after close and reopen
8 AES-256 on one core against `openssl speed`
9 encrypted sparse bundle against an unencrypted one and a plain file
10 other encrypted images against the encrypted sparse bundle
11 AES-128 against AES-256
12 deriving a key from a passphrase against `openssl kdf`
13 NBD server, large requests, against nbdkit and qemu-nbd
14 NBD server, random 4 KiB reads, against nbdkit and qemu-nbd
15 NBD server on an encrypted bundle against the plain bundle, LUKS and a minimal server
16 FUSE mount against bindfs on a plain file
17 UDZO to raw against dmg2img and 7-Zip
18 UDZO compression, speed and size, against pigz
19 decoding UDBZ, ULFO and ULMO on two cores against one
20 `create --from` with 50,000 files against `tar c`; APFS against HFS+
21 `extract` of 50,000 files against `tar x`, 7-Zip and fsapfsmount
22 formatting 8 TiB against 1 GiB and mkapfs; bytes written
23 opening a bundle of 1,000,000 bands against 1,000 bands, time and memory
24 size on disk, full and after compaction; `compact` and `reband` times
25 `info` against an empty process and `qemu-img info`
26 compressed files (decmpfs) against libdeflate, tar and mksquashfs
30 50,000 files created one by one in a volume against ext4 on a loop device
31 lookup in a folder of 1,000,000 entries against a fixed limit
32 `check` of 1,000,000 files against limits of time and memory
33 `bandsaw bench` against the same requests without it
34 reads of an encrypted APFS volume against the plain volume and OpenSSL
35 sparse bundle in a bucket against bare PUT and GET; memory";

fn goals() -> impl Iterator<Item = (u32, &'static str)> {
    GOALS.lines().filter_map(|line| {
        let (goal, subject) = line.split_once(' ')?;
        Some((goal.parse().ok()?, subject))
    })
}

const SUMMARY: &str = "# Benchmarks

Bandsaw's speed goals, each against a reference that is measured in the same run. `cargo xtask bench`
writes this page, the [table of all cases](benchmarks/full.md) and [every sample](benchmarks.json).

## Goals

A figure is a ratio: the speed of Bandsaw divided by the speed of the reference (for goals about sizes
and memory, the reference divided by Bandsaw). Higher is better; 1.00 is parity. A goal has one case for
each format, request size or reference. The row shows the case that comes closest to missing, or misses by
most; a goal is met if all of its cases are.

";

const MACHINE: &str = "
## Machine

The last column is the speed of two threads relative to one, at work that shares nothing, before and after
the run. Below 1.7 other programs kept the machine busy, and the run should be repeated.

";

const CLOSING: &str = "
## Reproduce

```sh
cargo xtask bench                        # all goals, in /dev/shm
cargo xtask bench --goals 2,13           # two goals; the others keep their results
cargo xtask bench --dir /mnt/disk        # on another file system
cargo xtask bench --command target/dist-build/x86_64-unknown-linux-musl/dist/bandsaw    # the published command
cargo xtask bench --page                 # writes the pages again from benchmarks.json
```

Candidate and reference run in turn, in changing order. A ratio is the median of the ratios of all pairs. Most
reference programs come with `scripts/install-test-tools`; a case
whose program is missing is left out.

## What not to conclude

* The files are on tmpfs, a file system in memory: the figures show the processor time that Bandsaw costs, not
  the speed of a disk. Reads come from memory even where caches were dropped.
* Absolute rates change with the machine and its load. Ratios change much less.
* All runs were on two cores. They say nothing about larger machines.
* On a processor without VAES, ciphers run at half the speed relative to memory, and waking a thread costs a quarter, which
  helps programs that sleep between requests: goals 9, 13, 15, 16 and 34 were missed there.
* Hosts with the same processor differ in memory. On one where a plain file is read a third faster, goals 3 and 4 were missed, and
  goals 15 and 19 by less.
* Plain bytes go from the page cache to the socket without a copy, decrypted ones cannot: in goal 15 a server that does
  nothing but read, decrypt and send reaches 0.36 to 0.60 of the bundle in the clear, on which 0.80 is wanted.
* Goal 4 compares the fastest with the slowest of twelve samples. Twelve samples of the *same* band size (the control in
  the table of all cases) differ as much: which size is the slowest changes from run to run.
* The command that was measured is that of `cargo xtask dist`, as it is published. `cargo install` makes one that is not compiled as
  a whole: it starts half a millisecond slower, and misses goals 17 and 25.
* In goal 22, a quarter of the time is the start of the command, and another the 2 MiB of structures that the format requires of
  an APFS volume of 8 TiB.
* Nothing was measured on macOS. Published figures of Apple's images, where a page shows them, come from Macs:
  compare the ratios only.

## Protocols of published measurements

`bandsaw bench articles` repeats all of them by one command; [articles](articles.md) is a run on a real disk.
On Linux as root, with `modprobe -a nbd hfsplus`, it also measures what the kernel's own file system does on our disks; with
`--without-holes FOLDER` it measures sizes on a medium whose files have no holes. Where the page cache keeps files that were to be
dropped, root drops the whole page cache.

`bandsaw bench images` runs one of them, and `bandsaw bench files` the files of the articles in a folder of the host:
[a run](benchmarks/files.md), with fewer small files, which show the speed of memory.
";

const FULL: &str = "# Benchmarks: all cases

Written by `cargo xtask bench`; [benchmarks.md](../benchmarks.md) explains the figures. A ratio is the median of
the pairs, with the smallest and the largest in brackets. Rates are medians. A case without a wanted ratio shows
what is possible: a minimal program against the same reference.

";

#[cfg(test)]
mod tests {
    use super::*;

    fn docs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    }

    #[test]
    fn pages_are_up_to_date() {
        let report = Report::read(&docs().join("benchmarks.json")).unwrap();
        for (page, expected) in [
            ("benchmarks.md", report.summary()),
            ("benchmarks/full.md", report.full()),
        ] {
            let written = std::fs::read_to_string(docs().join(page)).unwrap();
            assert!(
                written == expected,
                "{page}: run `cargo xtask bench --page`"
            );
        }
    }

    #[test]
    fn every_goal_has_a_subject() {
        let named: BTreeSet<u32> = goals().map(|(goal, _)| goal).collect();
        let measured = super::super::GROUPS.iter().flat_map(|(goals, _)| *goals);
        assert_eq!(named, measured.copied().collect());
    }

    #[test]
    fn every_page_of_the_folder_is_listed() {
        for entry in std::fs::read_dir(docs().join("benchmarks")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let link = format!("(benchmarks/{name})");
            assert!(SUMMARY.contains(&link) || CLOSING.contains(&link), "{name}");
        }
    }
}
