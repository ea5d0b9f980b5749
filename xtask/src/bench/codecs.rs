//! Compressed images: compression and decompression, compared with common programs (goals 17, 18
//! and 19).

use std::fs::{self, DirEntry, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::measure::{Case, Workload};
use super::{Bench, MIB};

/// Folders whose contents fill the disk: programs, libraries and texts, as in images for
/// distribution.
const SOURCES: [&str; 3] = ["/usr/bin", "/usr/share", "/usr/lib"];

const RAW: &str = "codecs.img";

pub(super) fn pack_and_unpack(bench: &Bench) -> Result<Vec<Case>> {
    let size = gather(&bench.dir.join(RAW), bench.scaled(256 * MIB))?;
    let work = Workload::Bytes(size);
    // Freeing the output of the last round is not part of the measurement.
    let into = |to: &str, line: &str| {
        bench.remove(to);
        bench.run(line)
    };
    // Data that is not a disk is opened as raw only on request.
    let pack = |to: &str, how: &str| {
        into(
            to,
            &format!("bandsaw convert {RAW} {to} --image-format udrw --format {how}"),
        )
    };
    let mut cases = Vec::new();

    let udzo = || pack("z.dmg", "udzo --level 6");
    if bench.has("pigz", "apt install pigz") {
        let pigz = || bench.run_into("codecs.gz", &format!("pigz -6 -p 2 -c {RAW}"));
        let case = Case::new(18, "UDZO level 6, packed", "pigz -6 -p 2", 3.0, work);
        cases.push(case.measure(bench.rounds, udzo, pigz)?);
        let megabytes = |name: &str| Ok(fs::metadata(bench.dir.join(name))?.len() as f64 / 1e6);
        let sizes = Case::new(18, "size of UDZO level 6", "pigz -6", 1.0, Workload::Memory);
        cases.push(sizes.measure(1, || megabytes("z.dmg"), || megabytes("codecs.gz"))?);
    }
    udzo()?;
    let unpack = || into("out.img", "bandsaw convert z.dmg out.img --format udrw");
    if bench.has("dmg2img", "apt install dmg2img") {
        let theirs = || into("theirs.img", "dmg2img -s -i z.dmg -o theirs.img");
        let case = Case::new(17, "UDZO to raw", "dmg2img", 3.0, work);
        cases.push(case.measure(bench.rounds, unpack, theirs)?);
    }
    if bench.has("7zz", "apt install 7zip") {
        let theirs = || bench.run_into("theirs.img", "7zz e -so -tDmg z.dmg");
        let case = Case::new(17, "UDZO to raw", "7zz", 3.0, work);
        cases.push(case.measure(bench.rounds, unpack, theirs)?);
    }
    unpack()?;
    ensure!(
        fs::read(bench.dir.join(RAW))? == fs::read(bench.dir.join("out.img"))?,
        "the disk came back changed"
    );

    for format in ["udbz", "ulfo", "ulmo"] {
        let name = format!("{format}.dmg");
        pack(&name, format)?;
        let convert = format!("bandsaw convert {name} out.img --format udrw");
        let both = || into("out.img", &convert);
        let one_core = || into("out.img", &format!("taskset -c 0 {convert}"));
        let label = format!("{} to raw, two cores", format.to_uppercase());
        let case = Case::new(19, label, "one core", 1.85, work);
        cases.push(case.measure(bench.rounds.min(3), both, one_core)?);
        bench.remove(&name);
    }
    Ok(cases)
}

/// Copies files of this machine, of `wanted` bytes or until there are no more: `copy` has the path,
/// the file and the bytes that are left to copy, and returns the bytes that it copied. Returns the
/// number of bytes.
pub(super) fn copy_sources(
    wanted: u64,
    mut copy: impl FnMut(&Path, File, u64) -> io::Result<u64>,
) -> Result<u64> {
    let mut left = wanted;
    let mut folders = SOURCES.map(PathBuf::from).to_vec();
    while let Some(folder) = folders.pop().filter(|_| left > 0) {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && left > 0
                && let Ok(file) = File::open(entry.path())
            {
                left = left.saturating_sub(copy(&entry.path(), file, left)?);
            }
        }
    }
    Ok(wanted - left)
}

/// Fills a file with `wanted` bytes of this machine's files; returns the number of bytes.
pub(super) fn gather(path: &Path, wanted: u64) -> Result<u64> {
    let mut out = File::create(path)?;
    let copied = copy_sources(wanted, |_, file, left| {
        io::copy(&mut file.take(left), &mut out)
    })?;
    let full = copied / 512 * 512;
    ensure!(full > 0, "nothing to pack in {SOURCES:?}");
    out.set_len(full)?;
    Ok(full)
}
