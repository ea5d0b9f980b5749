//! NBD servers with one client, fio's engine, over a Unix socket (goals 13 to 15): ours compared
//! with nbdkit and qemu-nbd.
//!
//! All servers of a case run concurrently and are measured in turn. Files contain incompressible
//! data without zeros.

use std::fs::File;
use std::io::Read;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::fio::Load;
use super::measure::Case;
use super::stream::filled;
use super::{Bench, MIB, PASSPHRASE, bare_nbd};

/// Name of the minimal server of an encrypted disk, the upper bound.
const BARE: &str = "a server that only reads, decrypts and sends";

/// A server, stopped on drop.
struct Served<'a> {
    bench: &'a Bench,
    /// Server process; `None` if this process serves.
    child: Option<Child>,
    name: &'static str,
}

impl<'a> Served<'a> {
    /// Starts a server, which makes the socket that `@SOCKET` stands for.
    fn begin(bench: &'a Bench, name: &'static str, line: &str) -> Result<Self> {
        let line = line.replace("@SOCKET", &format!("@/{name}.sock"));
        let child = bench
            .command(&line)
            .env("XDG_RUNTIME_DIR", &bench.dir)
            .env("BENCH_PASSPHRASE", PASSPHRASE)
            .spawn()
            .with_context(|| line.clone())?;
        let served = Self {
            bench,
            child: Some(child),
            name,
        };
        let begun = Instant::now();
        while !bench.dir.join(format!("{name}.sock")).exists() {
            ensure!(
                begun.elapsed() < Duration::from_secs(20),
                "`{line}` does not serve"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(served)
    }

    /// Runs fio; returns the seconds of its work. A single pass of a sequential workload takes a
    /// twentieth of a second, too short for a measurement.
    fn run(&self, load: &Load, size: u64) -> Result<f64> {
        let on = format!(
            "--ioengine=nbd --uri=nbd+unix:///?socket=@/{}.sock --loops=4",
            self.name
        );
        load.run(self.bench, &on, size)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures a server compared with another.
fn compare(
    (goal, what): (u32, &str),
    load: &Load,
    ours: &Served<'_>,
    (reference, theirs): (&str, &Served<'_>),
    at_least: f64,
    size: u64,
) -> Result<Case> {
    let name = format!(
        "NBD {what}{} {}, depth {}, {} connection(s)",
        load.rw, load.block, load.depth, load.jobs
    );
    let case = Case::new(goal, name, reference, at_least, load.work(size));
    case.measure(
        ours.bench.rounds,
        || ours.run(load, size),
        || theirs.run(load, size),
    )
}

fn noise(bench: &Bench, name: &str, size: u64) -> Result<()> {
    let mut random = File::open("/dev/urandom")?.take(size);
    std::io::copy(&mut random, &mut File::create(bench.dir.join(name))?)?;
    Ok(())
}

/// Goals 13 and 14: a raw image.
pub(super) fn plain(bench: &Bench) -> Result<Vec<Case>> {
    if !bench.has("fio nbdkit qemu-nbd", "apt install fio nbdkit qemu-utils") {
        return Ok(Vec::new());
    }
    let size = bench.scaled(256 * MIB);
    for name in ["ours.img", "nbdkit.img", "qemu.img"] {
        noise(bench, name, size)?;
    }
    let ours = "bandsaw serve ours.img --quiet --socket @SOCKET --image-format udrw";
    let ours = Served::begin(bench, "ours", ours)?;
    let nbdkit = Served::begin(bench, "nbdkit", "nbdkit -f -U @SOCKET file nbdkit.img")?;
    let qemu = "qemu-nbd -t -e 8 -k @SOCKET -f raw qemu.img";
    let qemu = Served::begin(bench, "qemu", qemu)?;
    let mut cases = Vec::new();
    // Goal, workload, minimum ratio to nbdkit and to qemu-nbd.
    for (goal, load, nbdkit_least, qemu_least) in [
        (13, Load::new("read", "64k", 16, 1), 1.3, Some(2.0)),
        (13, Load::new("read", "1m", 4, 1), 1.3, Some(2.0)),
        (13, Load::new("write", "64k", 16, 1), 1.1, None),
        (13, Load::new("write", "1m", 4, 1), 1.1, None),
        (13, Load::new("read", "64k", 16, 4), 1.3, Some(2.0)),
        (13, Load::new("read", "1m", 4, 4), 1.3, Some(2.0)),
        (13, Load::new("write", "64k", 16, 4), 1.1, None),
        (13, Load::new("write", "1m", 4, 4), 1.1, None),
        (14, Load::new("randread", "4k", 32, 1), 1.3, Some(2.5)),
        (14, Load::new("randread", "4k", 1, 1), 1.2, None),
    ] {
        let mut with = |theirs, least| -> Result<()> {
            cases.push(compare((goal, ""), &load, &ours, theirs, least, size)?);
            Ok(())
        };
        with(("nbdkit file", &nbdkit), nbdkit_least)?;
        if let Some(least) = qemu_least {
            with(("qemu-nbd raw", &qemu), least)?;
        }
    }
    Ok(cases)
}

/// Number of attempts to create a LUKS image.
const ATTEMPTS: u32 = 5;

/// Goal 15: an encrypted bundle, compared with LUKS of the same key size, with the plain bundle,
/// and with the minimal server.
pub(super) fn encrypted(bench: &Bench) -> Result<Vec<Case>> {
    if !bench.has("fio qemu-nbd qemu-img", "apt install fio qemu-utils") {
        return Ok(Vec::new());
    }
    let size = bench.scaled(256 * MIB);
    filled(bench, "cipher.sparsebundle", size, true)?;
    filled(bench, "clear.sparsebundle", size, false)?;
    noise(bench, "plain.img", size)?;
    let secret = format!("--object secret,id=s0,data={PASSPHRASE}");
    let cipher = "cipher-alg=aes-256,cipher-mode=xts,ivgen-alg=plain64,iter-time=100";
    // It benchmarks the processor first, which sometimes fails with a coarse clock.
    let create =
        format!("qemu-img create -q {secret} -f luks -o key-secret=s0,{cipher} luks.img {size}");
    let create = || bench.run(&create);
    (0..ATTEMPTS)
        .find_map(|_| create().ok())
        .map_or_else(create, Ok)?;
    let target = "driver=luks,key-secret=s0,file.filename=luks.img";
    bench.run(&format!(
        "qemu-img convert -n {secret} --target-image-opts -f raw plain.img {target}"
    ))?;

    let ours = "bandsaw serve --quiet --socket @SOCKET --image-format udsb";
    let cipher = format!("{ours} cipher.sparsebundle --passenv BENCH_PASSPHRASE");
    let cipher = &Served::begin(bench, "cipher", &cipher)?;
    let clear = Served::begin(bench, "clear", &format!("{ours} clear.sparsebundle"))?;
    let luks = format!("qemu-nbd -t -e 8 -k @SOCKET {secret} --image-opts {target}");
    let luks = Served::begin(bench, "luks", &luks)?;
    let bare = Served {
        bench,
        child: None,
        name: "bare",
    };
    bare_nbd::serve(&bench.dir.join("plain.img"), &bench.dir.join("bare.sock"))?;
    let in_clear = ("the bundle in the clear", &clear);
    let mut cases = Vec::new();
    for load in [
        Load::new("read", "1m", 4, 1),
        Load::new("read", "64k", 16, 1),
        Load::new("read", "1m", 4, 4),
    ] {
        let of_bundle = (15, "of an encrypted bundle, ");
        let of_bare = format!("of {BARE}, ");
        for (what, ours, theirs, least) in [
            (of_bundle, cipher, ("qemu-nbd LUKS", &luks), 5.0),
            (of_bundle, cipher, in_clear, 0.8),
            (of_bundle, cipher, (BARE, &bare), 0.9),
            ((15, &*of_bare), &bare, in_clear, 0.0),
        ] {
            cases.push(compare(what, &load, ours, theirs, least, size)?);
        }
    }
    Ok(cases)
}
