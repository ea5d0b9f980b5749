//! FUSE mounts with one client, fio (goal 16): a bundle's disk as a file, and a volume, compared
//! with bindfs on a plain file and with sparsebundlefs.
//!
//! Requests use direct I/O, so that each reaches the server instead of the kernel's cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bandsaw::container::Format;

use super::crypt::fresh;
use super::measure::{Case, Workload};
use super::startup::present;
use super::stream::{Pass, stream};
use super::{Bench, MIB};

/// Number of requests per figure for random workloads.
const REQUESTS: u64 = 100_000;

/// A file in a mount, which is unmounted on drop.
struct Shown {
    folder: PathBuf,
    file: PathBuf,
}

impl Shown {
    fn begin(bench: &Bench, name: &str, file: &str, command: &mut Command) -> Result<Self> {
        let folder = bench.dir.join(format!("{name}.mnt"));
        std::fs::create_dir_all(&folder)?;
        let command = command
            .current_dir(&bench.dir)
            .env("XDG_RUNTIME_DIR", &bench.dir)
            .arg(&folder);
        let done = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| name.to_owned())?;
        ensure!(done.success(), "{name} does not mount");
        Ok(Self {
            file: folder.join(file),
            folder,
        })
    }

    /// Runs fio; returns the seconds of its work, as it reports them.
    fn run(&self, load: &Load, size: u64) -> Result<f64> {
        let mut fio = Command::new("fio");
        fio.args([
            "--name=x",
            "--ioengine=psync",
            "--direct=1",
            "--thread",
            "--group_reporting",
            "--output-format=terse",
        ]);
        fio.args(["--terse-version=3", "--readonly", "--norandommap"])
            .arg(format!("--filename={}", self.file.display()));
        fio.arg(format!("--rw={}", load.rw))
            .arg(format!("--bs={}", load.block))
            .arg(format!("--numjobs={}", load.jobs));
        let each = size / load.jobs;
        fio.arg(format!("--size={each}"))
            .arg(format!("--offset_increment={each}"));
        if load.is_random() {
            fio.args(["--time_based", "--runtime=1"]);
        }
        let output = fio.output().context("fio")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said
            .lines()
            .find(|line| line.starts_with("3;"))
            .context("fio says nothing")?;
        let field = |at: usize| {
            line.split(';')
                .nth(at)
                .and_then(|field| field.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        // KiB per second and requests per second of reads.
        let cost = if load.is_random() {
            REQUESTS as f64 / field(7)
        } else {
            size as f64 / (field(6) * 1024.0)
        };
        ensure!(
            cost.is_finite(),
            "fio moved nothing: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(cost)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3")
            .args(["-u", "-z"])
            .arg(&self.folder)
            .status();
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Workload of fio.
struct Load {
    rw: &'static str,
    block: &'static str,
    jobs: u64,
}

impl Load {
    fn is_random(&self) -> bool {
        self.rw.starts_with("rand")
    }

    fn case(&self, what: &str, reference: &str, at_least: f64, size: u64) -> Case {
        Case {
            goal: 16,
            name: format!(
                "FUSE, {what}: {} {}, {} job(s)",
                self.rw, self.block, self.jobs
            ),
            reference: reference.to_owned(),
            at_least,
            pairs: Vec::new(),
            work: if self.is_random() {
                Workload::Requests(REQUESTS)
            } else {
                Workload::Bytes(size)
            },
        }
    }
}

const LOADS: [Load; 4] = [
    Load {
        rw: "read",
        block: "1m",
        jobs: 1,
    },
    Load {
        rw: "read",
        block: "64k",
        jobs: 1,
    },
    Load {
        rw: "read",
        block: "1m",
        jobs: 2,
    },
    Load {
        rw: "randread",
        block: "4k",
        jobs: 1,
    },
];

/// Goal 16: FUSE mounts.
pub(super) fn fuse(bench: &Bench) -> Result<Vec<Case>> {
    if !["fio", "bindfs", "fusermount3"].into_iter().all(present)
        || !Path::new("/dev/fuse").exists()
    {
        eprintln!("  skipped: fio, bindfs, fusermount3 or /dev/fuse is missing");
        return Ok(Vec::new());
    }
    let size = bench.scaled(512 * MIB);
    let (_, device) = fresh(bench, "fuse.sparsebundle", Format::Udsb, size, false)?;
    stream(&device, Pass::Write, size, MIB, 1)?;
    device.flush()?;
    drop(device);
    let plain = bench.dir.join("fuse.plain");
    std::fs::create_dir_all(&plain)?;
    let bytes: Vec<u8> = (0..size).map(|at| (at * 131 + 7) as u8).collect();
    std::fs::write(plain.join("file"), &bytes)?;
    volume(bench, &plain.join("file"), size)?;

    let ours = |image: &str, more: &[&str], file: &str| {
        let mut command = Command::new(&bench.bandsaw);
        command
            .args(["mount", image, "--read-only", "--quiet"])
            .args(more);
        Shown::begin(bench, image, file, &mut command)
    };
    let disk = ours(
        "fuse.sparsebundle",
        &["--as-disk", "--image-format", "udsb"],
        "fuse.img",
    )?;
    let volume = ours("volume.sparsebundle", &[], "file")?;
    let bindfs = Shown::begin(bench, "bindfs", "file", Command::new("bindfs").arg(&plain))?;
    let other = match present("sparsebundlefs") {
        true => {
            let mut command = Command::new("sparsebundlefs");
            Some(Shown::begin(
                bench,
                "sparsebundlefs",
                "sparsebundle.dmg",
                command.arg("fuse.sparsebundle"),
            )?)
        }
        false => None,
    };
    let mut cases = Vec::new();
    for load in &LOADS {
        for (what, shown) in [("a bundle's disk", &disk), ("a file of HFS+", &volume)] {
            let case = load.case(what, "bindfs on a plain file", 1.0, size);
            cases.push(case.measure_costs(
                bench.rounds,
                || shown.run(load, size),
                || bindfs.run(load, size),
            )?);
        }
        if let Some(other) = &other {
            let least = if load.is_random() { 2.0 } else { 3.0 };
            let case = load.case("a bundle's disk", "sparsebundlefs", least, size);
            cases.push(case.measure_costs(
                bench.rounds,
                || disk.run(load, size),
                || other.run(load, size),
            )?);
        }
    }
    drop((disk, volume, bindfs, other));
    ["fuse.sparsebundle", "volume.sparsebundle", "fuse.plain"]
        .iter()
        .for_each(|name| super::remove(&bench.dir.join(name)));
    Ok(cases)
}

/// Creates a bundle with a volume that contains `file`.
fn volume(bench: &Bench, file: &Path, size: u64) -> Result<()> {
    let bandsaw = |args: &[&str]| -> Result<()> {
        let done = Command::new(&bench.bandsaw)
            .args(args)
            .arg("--quiet")
            .current_dir(&bench.dir)
            .status()?;
        ensure!(done.success(), "bandsaw {args:?} failed");
        Ok(())
    };
    let len = (size + size / 4 + 64 * MIB).to_string();
    bandsaw(&[
        "create",
        "volume.sparsebundle",
        "--size",
        &len,
        "--fs",
        "hfs+",
        "--overwrite",
    ])?;
    bandsaw(&[
        "cp",
        file.to_str().context("a folder with a name in UTF-8")?,
        "volume.sparsebundle:/file",
    ])
}
