//! NBD servers with one client, fio's engine, over a Unix socket (goals 13 to 15): ours compared
//! with nbdkit and qemu-nbd.
//!
//! All servers of a case run concurrently and are measured in turn. Files contain incompressible
//! data without zeros.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bandsaw::container::Format;

use super::bare_nbd;
use super::crypt::fresh;
use super::measure::{Case, Workload};
use super::startup::present;
use super::stream::{Pass, stream};
use super::{Bench, MIB};

/// Duration of a random workload.
const RANDOM: Duration = Duration::from_secs(1);
/// Number of passes of a sequential workload: a single one takes a twentieth of a second, too short
/// for a measurement.
const LOOPS: u32 = 4;
const SECRET: &str = "passphrase";

/// Name of the minimal server of an encrypted disk, the upper bound.
const BARE: &str = "a server that only reads, decrypts and sends";

/// A server, stopped on drop.
struct Served {
    /// Server process; `None` if this process serves.
    child: Option<Child>,
    socket: PathBuf,
}

impl Served {
    fn begin(bench: &Bench, name: &str, program: &Path, args: &[&str]) -> Result<Self> {
        let socket = bench.dir.join(format!("{name}.sock"));
        let at = socket.to_str().context("a folder with a name in UTF-8")?;
        let args = args.iter().map(|arg| arg.replace("@SOCKET", at));
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(&bench.dir)
            .env("XDG_RUNTIME_DIR", &bench.dir)
            .env("BENCH_PASSPHRASE", SECRET);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let served = Self {
            child: Some(child),
            socket,
        };
        let begun = Instant::now();
        while !served.socket.exists() {
            ensure!(
                begun.elapsed() < Duration::from_secs(20),
                "{} does not serve",
                program.display()
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(served)
    }

    fn ours(bench: &Bench, image: &str, more: &[&str]) -> Result<Self> {
        let args = [&["serve", image, "--quiet", "--socket", "@SOCKET"], more].concat();
        Self::begin(bench, &format!("ours-{image}"), &bench.bandsaw, &args)
    }

    /// Runs fio; returns the seconds of its work, as it reports them.
    fn run(&self, load: &Load, size: u64) -> Result<f64> {
        let uri = format!("nbd+unix:///?socket={}", self.socket.display());
        let each = size / load.connections;
        let mut fio = Command::new("fio");
        fio.args([
            "--name=x",
            "--ioengine=nbd",
            "--thread",
            "--group_reporting",
            "--output-format=terse",
            "--terse-version=3",
        ]);
        fio.arg(format!("--uri={uri}"))
            .arg(format!("--rw={}", load.rw))
            .arg(format!("--bs={}", load.block));
        fio.arg(format!("--iodepth={}", load.depth))
            .arg(format!("--numjobs={}", load.connections));
        fio.arg(format!("--size={each}"))
            .arg(format!("--offset_increment={each}"))
            .arg(format!("--loops={LOOPS}"));
        if load.is_random() {
            fio.args(["--time_based", "--norandommap"])
                .arg(format!("--runtime={}", RANDOM.as_secs()));
        }
        let output = fio.output().context("fio")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said
            .lines()
            .find(|line| line.starts_with("3;"))
            .context("fio says nothing")?;
        let fields: Vec<f64> = line
            .split(';')
            .map(|field| field.parse().unwrap_or(0.0))
            .collect();
        // KiB per second and requests per second of reads, then of writes.
        let [read, write] =
            [6, 47].map(|at| fields.get(at..at + 2).unwrap_or(&[0.0, 0.0]).to_vec());
        let cost = match load.is_random() {
            true => load.requests() as f64 / (read[1] + write[1]),
            false => size as f64 / ((read[0] + write[0]) * 1024.0),
        };
        if !cost.is_finite() {
            bail!(
                "fio moved nothing: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(cost)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Workload of fio.
struct Load {
    rw: &'static str,
    block: &'static str,
    depth: u32,
    connections: u64,
}

impl Load {
    const fn new(rw: &'static str, block: &'static str, depth: u32, connections: u64) -> Self {
        Self {
            rw,
            block,
            depth,
            connections,
        }
    }

    fn is_random(&self) -> bool {
        self.rw.starts_with("rand")
    }

    /// Number of requests per figure for random workloads.
    fn requests(&self) -> u64 {
        100_000
    }

    fn case(&self, goal: u32, what: &str, reference: &str, at_least: f64, size: u64) -> Case {
        Case {
            goal,
            name: format!(
                "NBD {what}{} {}, depth {}, {} connection(s)",
                self.rw, self.block, self.depth, self.connections
            ),
            reference: reference.to_owned(),
            at_least,
            pairs: Vec::new(),
            work: if self.is_random() {
                Workload::Requests(self.requests())
            } else {
                Workload::Bytes(size)
            },
        }
    }
}

fn noise(path: &Path, size: u64) -> Result<()> {
    let mut random = File::open("/dev/urandom")?.take(size);
    let mut file = File::create(path)?;
    std::io::copy(&mut random, &mut file)?;
    Ok(file.flush()?)
}

/// Goals 13 and 14: a raw image.
pub(super) fn plain(bench: &Bench) -> Result<Vec<Case>> {
    if !["fio", "nbdkit", "qemu-nbd"].into_iter().all(present) {
        eprintln!("  skipped: fio, nbdkit or qemu-nbd is missing");
        return Ok(Vec::new());
    }
    let size = bench.scaled(256 * MIB);
    for name in ["ours.img", "nbdkit.img", "qemu.img"] {
        noise(&bench.dir.join(name), size)?;
    }
    let ours = Served::ours(bench, "ours.img", &["--image-format", "udrw"])?;
    let nbdkit = Served::begin(
        bench,
        "nbdkit",
        "nbdkit".as_ref(),
        &["-f", "-U", "@SOCKET", "file", "nbdkit.img"],
    )?;
    let qemu = ["-t", "-e", "8", "-k", "@SOCKET", "-f", "raw", "qemu.img"];
    let qemu = Served::begin(bench, "qemu", "qemu-nbd".as_ref(), &qemu)?;
    let mut cases = Vec::new();
    let mut compare =
        |goal, load: Load, nbdkit_least: f64, qemu_least: Option<f64>| -> Result<()> {
            let case = load.case(goal, "", "nbdkit file", nbdkit_least, size);
            cases.push(case.measure_costs(
                bench.rounds,
                || ours.run(&load, size),
                || nbdkit.run(&load, size),
            )?);
            if let Some(least) = qemu_least {
                let case = load.case(goal, "", "qemu-nbd raw", least, size);
                cases.push(case.measure_costs(
                    bench.rounds,
                    || ours.run(&load, size),
                    || qemu.run(&load, size),
                )?);
            }
            Ok(())
        };
    for connections in [1, 4] {
        compare(
            13,
            Load::new("read", "64k", 16, connections),
            1.3,
            Some(2.0),
        )?;
        compare(13, Load::new("read", "1m", 4, connections), 1.3, Some(2.0))?;
        compare(13, Load::new("write", "64k", 16, connections), 1.1, None)?;
        compare(13, Load::new("write", "1m", 4, connections), 1.1, None)?;
    }
    compare(14, Load::new("randread", "4k", 32, 1), 1.3, Some(2.5))?;
    compare(14, Load::new("randread", "4k", 1, 1), 1.2, None)?;
    drop((ours, nbdkit, qemu));
    ["ours.img", "nbdkit.img", "qemu.img"]
        .iter()
        .for_each(|name| super::remove(&bench.dir.join(name)));
    Ok(cases)
}

/// Number of attempts to create a LUKS image.
const ATTEMPTS: u32 = 5;

/// Goal 15: an encrypted bundle, compared with LUKS of the same key size, with the plain bundle,
/// and with the minimal server.
pub(super) fn encrypted(bench: &Bench) -> Result<Vec<Case>> {
    if !["fio", "qemu-nbd", "qemu-img"].into_iter().all(present) {
        eprintln!("  skipped: fio or qemu-utils is missing");
        return Ok(Vec::new());
    }
    let size = bench.scaled(256 * MIB);
    for (name, encrypted) in [("cipher.sparsebundle", true), ("clear.sparsebundle", false)] {
        let (_, device) = fresh(bench, name, Format::Udsb, size, encrypted)?;
        stream(&device, Pass::Write, size, MIB, 1)?;
        device.flush()?;
    }
    noise(&bench.dir.join("plain.img"), size)?;
    let secret = format!("secret,id=s0,data={SECRET}");
    let options =
        "key-secret=s0,cipher-alg=aes-256,cipher-mode=xts,ivgen-alg=plain64,iter-time=100";
    let qemu_img = |args: &[&str]| -> Result<()> {
        let done = Command::new("qemu-img")
            .args(args)
            .current_dir(&bench.dir)
            .stdout(Stdio::null())
            .status()?;
        ensure!(done.success(), "qemu-img {args:?} failed");
        Ok(())
    };
    // It benchmarks the processor first, which sometimes fails with a coarse clock.
    let create = || {
        qemu_img(&[
            "create",
            "-q",
            "--object",
            &secret,
            "-f",
            "luks",
            "-o",
            options,
            "luks.img",
            &size.to_string(),
        ])
    };
    (0..ATTEMPTS)
        .find_map(|_| create().ok())
        .map_or_else(create, Ok)?;
    let target = "driver=luks,key-secret=s0,file.filename=luks.img";
    qemu_img(&[
        "convert",
        "-n",
        "--object",
        &secret,
        "--target-image-opts",
        "-f",
        "raw",
        "plain.img",
        target,
    ])?;

    let udsb = ["--image-format", "udsb"];
    let cipher = Served::ours(
        bench,
        "cipher.sparsebundle",
        &[&udsb[..], &["--passenv", "BENCH_PASSPHRASE"]].concat(),
    )?;
    let clear = Served::ours(bench, "clear.sparsebundle", &udsb)?;
    let luks = [
        "-t",
        "-e",
        "8",
        "-k",
        "@SOCKET",
        "--object",
        &secret,
        "--image-opts",
        target,
    ];
    let luks = Served::begin(bench, "luks", "qemu-nbd".as_ref(), &luks)?;
    let bare = Served {
        child: None,
        socket: bench.dir.join("bare.sock"),
    };
    bare_nbd::serve(&bench.dir.join("plain.img"), &bare.socket)?;
    let mut cases = Vec::new();
    for load in [
        Load::new("read", "1m", 4, 1),
        Load::new("read", "64k", 16, 1),
        Load::new("read", "1m", 4, 4),
    ] {
        let case = load.case(15, "of an encrypted bundle, ", "qemu-nbd LUKS", 5.0, size);
        cases.push(case.measure_costs(
            bench.rounds,
            || cipher.run(&load, size),
            || luks.run(&load, size),
        )?);
        let case = load.case(
            15,
            "of an encrypted bundle, ",
            "the bundle in the clear",
            0.8,
            size,
        );
        cases.push(case.measure_costs(
            bench.rounds,
            || cipher.run(&load, size),
            || clear.run(&load, size),
        )?);
        let case = load.case(15, "of an encrypted bundle, ", BARE, 0.9, size);
        cases.push(case.measure_costs(
            bench.rounds,
            || cipher.run(&load, size),
            || bare.run(&load, size),
        )?);
        let case = load.case(
            15,
            &format!("of {BARE}, "),
            "the bundle in the clear",
            0.0,
            size,
        );
        cases.push(case.measure_costs(
            bench.rounds,
            || bare.run(&load, size),
            || clear.run(&load, size),
        )?);
    }
    drop((cipher, clear, luks, bare));
    [
        "cipher.sparsebundle",
        "clear.sparsebundle",
        "plain.img",
        "luks.img",
    ]
    .iter()
    .for_each(|name| super::remove(&bench.dir.join(name)));
    Ok(cases)
}
