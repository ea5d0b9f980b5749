//! Start-up time of the command (goal 25).

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bandsaw::Error;
use bandsaw::container::{Format, udif};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, Extent, ExtentKind, FileRange, Info};
use bandsaw::open::{self, CreateOptions};
use bandsaw::progress::Silent;

use super::measure::{Case, Workload, time};
use super::{Bench, MIB};

/// Builds the command and installs it as users do; returns its path.
pub(super) fn build_command() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "bandsaw-cli"])
        .status()?;
    ensure!(built.success(), "the command does not build");
    let folder = std::env::current_exe()?
        .parent()
        .context("the build folder")?
        .to_owned();
    // A copy was written sequentially, and is read in large pieces. The linker's output was written
    // in random order, is read page by page, and starts half a millisecond later.
    let installed = folder.join("installed");
    std::fs::create_dir_all(&installed)?;
    let (new, command) = (installed.join("bandsaw.new"), installed.join("bandsaw"));
    std::fs::copy(folder.join("bandsaw"), &new)?;
    std::fs::rename(&new, &command)?;
    Ok(command)
}

/// Times a process from start to end, discarding its output.
pub(super) fn process(program: &Path, args: &[&str], dir: &Path) -> Result<Duration> {
    time(|| {
        let status = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let status = status.with_context(|| program.display().to_string())?;
        ensure!(status.success(), "{} {args:?} failed", program.display());
        Ok(())
    })
}

/// Returns true if a program can be started.
pub(super) fn present(program: &str) -> bool {
    Command::new(program)
        .arg("--help")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}

/// Measures `bandsaw info` of an image of every kind, compared with `qemu-img info` and an empty
/// process; and of many chunks, compared with few.
pub(super) fn info(bench: &Bench) -> Result<Vec<Case>> {
    let names = [
        ("i.img", Format::Udrw),
        ("i.sparseimage", Format::Udsp),
        ("i.sparsebundle", Format::Udsb),
        ("i.asif", Format::Asif),
    ];
    for (name, format) in names {
        drop(open::create(
            &bench.dir.join(name),
            &CreateOptions {
                format,
                len: 64 * MIB,
                ..CreateOptions::default()
            },
        )?);
    }
    let case = |name: &str, reference: &str, least: f64| Case {
        goal: 25,
        name: format!("info {name}"),
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work: Workload::Run,
    };
    let ours = |name: &str| process(&bench.bandsaw, &["info", name], &bench.dir);
    let rounds = bench.rounds * 4 + 1;
    for (name, chunks) in [("few.dmg", 10), ("many.dmg", 5000)] {
        compressed(&bench.dir.join(name), chunks)?;
    }
    let mut cases = Vec::new();
    for name in names.map(|(name, _)| name).into_iter().chain(["few.dmg"]) {
        let empty = || process("true".as_ref(), &[], &bench.dir);
        // Reported without a limit.
        cases.push(case(name, "an empty process", 0.0).measure(rounds, || ours(name), empty)?);
        if present("qemu-img") {
            let qemu = || process("qemu-img".as_ref(), &["info", "i.img"], &bench.dir);
            cases.push(case(name, "qemu-img info of a raw image", 1.5).measure(
                rounds,
                || ours(name),
                qemu,
            )?);
        }
    }
    let many = case("many.dmg, 5,000 chunks", "few.dmg, 10 chunks", 1.0 / 1.5);
    cases.push(many.measure(rounds, || ours("many.dmg"), || ours("few.dmg"))?);
    Ok(cases)
}

/// Writes a UDZO image of `chunks` identical chunks.
fn compressed(path: &Path, chunks: u64) -> Result<()> {
    let disk = Alike(chunks * MIB);
    let areas = [udif::Area {
        range: 0..disk.0,
        name: String::new(),
        kind: String::new(),
        is_free: false,
    }];
    let options = udif::EncodeOptions {
        format: Format::Udzo,
        level: None,
    };
    let mut sink = udif::ToStream(File::create(path)?);
    udif::encode(
        &disk,
        (udif::Numbers::Whole, &areas),
        &options,
        &mut sink,
        &Silent,
    )?;
    Ok(())
}

/// A disk of this many identical bytes, which need no storage.
#[derive(Debug)]
struct Alike(u64);

impl BlockDevice for Alike {
    fn info(&self) -> Info {
        Info {
            len: self.0,
            block: 512,
            write: 1,
            discard: 1,
            access: Access::ReadOnly,
        }
    }

    fn read_at(&self, _offset: u64, buf: &mut [u8]) -> bandsaw::Result<()> {
        buf.fill(0xA5);
        Ok(())
    }

    fn extent_at(&self, range: Range<u64>) -> bandsaw::Result<Extent> {
        Ok(Extent {
            kind: ExtentKind::Data,
            len: range.end - range.start,
        })
    }

    fn file_range(&self, _range: Range<u64>) -> bandsaw::Result<Option<FileRange>> {
        Ok(None)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> bandsaw::Result<()> {
        Err(Error::read_only("bench"))
    }

    fn discard(&self, _range: Range<u64>, _leave: AfterDiscard) -> bandsaw::Result<()> {
        Err(Error::read_only("bench"))
    }

    fn flush(&self) -> bandsaw::Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> bandsaw::Result<()> {
        Err(Error::read_only("bench"))
    }
}
