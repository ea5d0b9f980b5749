//! Start-up time of the command (goal 25).

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bandsaw::container::{Format, udif};
use bandsaw::device::{BlockDevice, Extent, ExtentKind, FileRange, Info, read_only};
use bandsaw::progress::Silent;

use super::measure::{Case, Workload};
use super::{Bench, MIB};

/// Installs the command as users do, built unless it is `given`; returns its path.
pub(super) fn install_command(given: Option<&Path>) -> Result<PathBuf> {
    let folder = std::env::current_exe()?
        .parent()
        .context("the build folder")?
        .to_owned();
    let built = folder.join("bandsaw");
    if given.is_none() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--release", "--quiet", "--package", "bandsaw-cli"])
            .status()?;
        ensure!(built.success(), "the command does not build");
    }
    // A copy was written sequentially, and is read in large pieces. The linker's output was written
    // in random order, is read page by page, and starts half a millisecond later.
    let installed = folder.join("installed");
    std::fs::create_dir_all(&installed)?;
    let (new, command) = (installed.join("bandsaw.new"), installed.join("bandsaw"));
    std::fs::copy(given.unwrap_or(&built), &new)?;
    std::fs::rename(&new, &command)?;
    Ok(command)
}

/// Measures `bandsaw info` of an image of every kind, compared with `qemu-img info` and an empty
/// process; and of many chunks, compared with few.
pub(super) fn info(bench: &Bench) -> Result<Vec<Case>> {
    for (name, format) in [
        ("i.img", Format::Udrw),
        ("i.sparseimage", Format::Udsp),
        ("i.sparsebundle", Format::Udsb),
        ("i.asif", Format::Asif),
    ] {
        drop(bench.blank(name, format, 64 * MIB, None)?);
    }
    for (name, chunks) in [("few.dmg", 10), ("many.dmg", 5000)] {
        compressed(&bench.dir.join(name), chunks)?;
    }
    let case = |name: &str, reference: &str, least: f64| {
        Case::new(25, format!("info {name}"), reference, least, Workload::Run)
    };
    let rounds = bench.rounds * 4 + 1;
    let has_qemu = bench.has("qemu-img", "apt install qemu-utils");
    let mut cases = Vec::new();
    for name in [
        "i.img",
        "i.sparseimage",
        "i.sparsebundle",
        "i.asif",
        "few.dmg",
    ] {
        let info = format!("bandsaw info {name}");
        let ours = || bench.run(&info);
        // Reported without a limit.
        let empty = case(name, "an empty process", 0.0);
        cases.push(empty.measure(rounds, ours, || bench.run("true"))?);
        if has_qemu {
            let qemu = case(name, "qemu-img info of a raw image", 1.5);
            cases.push(qemu.measure(rounds, ours, || bench.run("qemu-img info i.img"))?);
        }
    }
    let many = case("many.dmg, 5,000 chunks", "few.dmg, 10 chunks", 1.0 / 1.5);
    cases.push(many.measure(
        rounds,
        || bench.run("bandsaw info many.dmg"),
        || bench.run("bandsaw info few.dmg"),
    )?);
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
    let mut sink = udif::StreamSink(File::create(path)?);
    udif::encode(
        &disk,
        (udif::TableNumbering::Whole, &areas),
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
        Info::read_only(self.0)
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

    read_only!("bench");
}
