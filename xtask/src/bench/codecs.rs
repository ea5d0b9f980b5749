//! Compressed images: compression and decompression, compared with common programs (goals 17, 18
//! and 19).

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::measure::{Case, Workload, time};
use super::startup::{present, process};
use super::{Bench, MIB};

/// Folders whose contents fill the disk: programs, libraries and texts, as in images for
/// distribution.
pub(super) const SOURCES: [&str; 3] = ["/usr/lib", "/usr/share", "/usr/bin"];

const RAW: &str = "codecs.img";

pub(super) fn pack_and_unpack(bench: &Bench) -> Result<Vec<Case>> {
    let dir = bench.dir.as_path();
    let size = gather(&dir.join(RAW), bench.scaled(256 * MIB))?;
    let case = |goal: u32, name: &str, reference: &str, least: f64| Case {
        goal,
        name: name.to_owned(),
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work: Workload::Bytes(size),
    };
    // Freeing the output of the last round is not part of the measurement.
    let convert = |from: &str, to: &str, how: &[&str]| {
        super::remove(&dir.join(to));
        process(&bench.bandsaw, &[&["convert", from, to], how].concat(), dir)
    };
    let raw = ["--format", "udrw"];
    // Data that is not a disk is opened as raw only on request.
    let as_raw = ["--image-format", "udrw"];
    let pack = |to: &str, how: &[&str]| convert(RAW, to, &[&as_raw, how].concat());
    let mut cases = Vec::new();

    let udzo = ["--format", "udzo", "--level", "6"];
    if present("pigz") {
        let pigz = || {
            piped(
                Path::new("pigz"),
                &["-6", "-p", "2", "-c", RAW],
                dir,
                "codecs.gz",
            )
        };
        cases.push(
            case(18, "UDZO level 6, packed", "pigz -6 -p 2", 3.0).measure(
                bench.rounds,
                || pack("z.dmg", &udzo),
                pigz,
            )?,
        );
        let megabytes = |name: &str| Ok(std::fs::metadata(dir.join(name))?.len() as f64 / 1e6);
        let sizes = Case {
            work: Workload::Memory,
            ..case(18, "size of UDZO level 6", "pigz -6", 1.0)
        };
        cases.push(sizes.measure_costs(1, || megabytes("z.dmg"), || megabytes("codecs.gz"))?);
    } else {
        eprintln!("  pigz is absent: its case is left out (apt install pigz)");
    }
    pack("z.dmg", &udzo)?;
    let unpack = || convert("z.dmg", "out.img", &raw);
    if present("dmg2img") {
        let theirs = || {
            super::remove(&dir.join("theirs.img"));
            process(
                "dmg2img".as_ref(),
                &["-s", "-i", "z.dmg", "-o", "theirs.img"],
                dir,
            )
        };
        cases.push(case(17, "UDZO to raw", "dmg2img", 3.0).measure(
            bench.rounds,
            unpack,
            theirs,
        )?);
    } else {
        eprintln!("  dmg2img is absent: its case is left out (apt install dmg2img)");
    }
    if present("7zz") {
        let theirs = || {
            piped(
                Path::new("7zz"),
                &["e", "-so", "-tDmg", "z.dmg"],
                dir,
                "theirs.img",
            )
        };
        cases.push(case(17, "UDZO to raw", "7zz", 3.0).measure(bench.rounds, unpack, theirs)?);
    }
    unpack()?;
    ensure!(
        std::fs::read(dir.join(RAW))? == std::fs::read(dir.join("out.img"))?,
        "the disk came back changed"
    );

    for format in ["udbz", "ulfo", "ulmo"] {
        let name = format!("{format}.dmg");
        pack(&name, &["--format", format])?;
        let one_core = || {
            let program = bench.bandsaw.to_str().context("a path of plain letters")?;
            super::remove(&dir.join("one.img"));
            process(
                "taskset".as_ref(),
                &[
                    "-c", "0", program, "convert", &name, "one.img", "--format", "udrw",
                ],
                dir,
            )
        };
        let both = || convert(&name, "out.img", &raw);
        let label = format!("{} to raw, two cores", format.to_uppercase());
        cases.push(case(19, &label, "one core", 1.85).measure(
            bench.rounds.min(3),
            both,
            one_core,
        )?);
        super::remove(&dir.join(&name));
    }
    for name in [
        RAW,
        "codecs.gz",
        "z.dmg",
        "out.img",
        "one.img",
        "theirs.img",
    ] {
        super::remove(&dir.join(name));
    }
    Ok(cases)
}

/// Times a program whose output goes to a file.
fn piped(program: &Path, args: &[&str], dir: &Path, out: &str) -> Result<Duration> {
    super::remove(&dir.join(out));
    let out = File::create(dir.join(out))?;
    time(|| {
        let status = Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdout(out)
            .stderr(Stdio::null())
            .status();
        ensure!(
            status
                .with_context(|| program.display().to_string())?
                .success(),
            "{} {args:?} failed",
            program.display()
        );
        Ok(())
    })
}

/// Fills a file with `wanted` bytes of this machine's files; returns the number of bytes.
pub(super) fn gather(path: &Path, wanted: u64) -> Result<u64> {
    let mut out = File::create(path)?;
    let mut left = wanted;
    let mut folders: Vec<_> = SOURCES
        .iter()
        .rev()
        .map(|folder| Path::new(folder).to_owned())
        .collect();
    while let Some(folder) = folders.pop().filter(|_| left > 0) {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && left > 0 {
                let Ok(file) = File::open(entry.path()) else {
                    continue;
                };
                left -= std::io::copy(&mut file.take(left), &mut out)?;
            }
        }
    }
    let full = (wanted - left) / 512 * 512;
    ensure!(full > 0, "nothing to pack in {SOURCES:?}");
    out.flush()?;
    out.set_len(full)?;
    Ok(full)
}
