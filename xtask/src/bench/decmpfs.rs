//! Compressed files: reading, creation, and savings (goal 26).

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bandsaw::codec::{Codec, Level};
use bandsaw::decmpfs::{Bounds, Method, Packing, Plain, pack};
use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::{FileSystem, FileSystemExt, Fork, RESOURCE_FORK};
use bandsaw::open::{OpenOptions, open};
use bandsaw::progress::Silent;
use bandsaw_bench::images::article::text;
use rayon::prelude::*;

use super::codecs::{SOURCES, gather};
use super::measure::{Case, Workload, time};
use super::startup::{present, process};
use super::{Bench, MIB};

/// Size of a chunk in bytes.
const CHUNK: usize = 64 << 10;
/// Size of a request in bytes, as in programs that copy files.
const REQUEST: usize = 1 << 20;

fn case(name: &str, reference: &str, least: f64, work: Workload) -> Case {
    Case {
        goal: 26,
        name: name.to_owned(),
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work,
    }
}

/// Runs something on a number of cores.
fn on_cores<T: Send>(count: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(count)
        .build()?
        .install(work)
}

pub(super) fn files(bench: &Bench) -> Result<Vec<Case>> {
    let mut cases = one_file(bench)?;
    cases.extend(small_file(bench)?);
    cases.extend(trees(bench)?);
    Ok(cases)
}

/// Measures a long file: compressed and read on one core and on two, compared with the codec alone.
fn one_file(bench: &Bench) -> Result<Vec<Case>> {
    let dir = bench.dir.as_path();
    std::fs::create_dir_all(dir.join("one"))?;
    let len = gather(&dir.join("one/file"), bench.scaled(256 * MIB))?;
    build(bench, "one", "one.img", &["--compress", "zlib"])?;
    let image = open(&dir.join("one.img"), &OpenOptions::default())?;
    let fs = image.file_system(None)?;
    let id = fs.resolve("/file")?.id;
    let chunks = Arc::new(chunks(&*fs, id)?);
    let read = |cores: usize| {
        let file = fs.open(id, Fork::Data)?;
        on_cores(cores, || time(|| read_all(&*file)))
    };
    let decode = |cores: usize| on_cores(cores, || time(|| decode_all(&chunks, len)));
    let (work, rounds) = (Workload::Bytes(len), bench.rounds);
    let mut cases = vec![
        case(
            "a compressed file read, one core",
            "libdeflate on its chunks, one core",
            0.9,
            work,
        )
        .measure(rounds, || read(1), || decode(1))?,
        case(
            "a compressed file read, two cores",
            "libdeflate on its chunks, two cores",
            0.9,
            work,
        )
        .measure(rounds, || read(2), || decode(2))?,
        case("a compressed file read, two cores", "one core", 1.8, work).measure(
            rounds,
            || read(2),
            || read(1),
        )?,
    ];
    let plain = std::fs::read(dir.join("one/file"))?;
    let pack_all = |cores: usize| on_cores(cores, || time(|| pack_whole(&plain)));
    let encode = |cores: usize| on_cores(cores, || time(|| encode_all(&plain)));
    cases.push(
        case(
            "a file packed, two cores",
            "libdeflate -5 on its chunks, two cores",
            0.9,
            work,
        )
        .measure(rounds, || pack_all(2), || encode(2))?,
    );
    super::remove(&dir.join("one"));
    super::remove(&dir.join("one.img"));
    Ok(cases)
}

/// Builds a volume from a folder of the scratch folder.
fn build(bench: &Bench, from: &str, image: &str, how: &[&str]) -> Result<Duration> {
    super::remove(&bench.dir.join(image));
    let args = [
        "create",
        image,
        "--format",
        "udrw",
        "--fs",
        "hfs+",
        "--volname",
        "Bench",
        "--layout",
        "none",
        "--from",
        from,
    ];
    process(&bench.bandsaw, &[&args, how].concat(), &bench.dir)
}

/// Returns the compressed chunks of a file with zlib in a resource fork.
fn chunks(fs: &dyn FileSystem, id: bandsaw::fs::NodeId) -> Result<Vec<Vec<u8>>> {
    let fork = fs.xattr(id, RESOURCE_FORK)?.context("a resource fork")?;
    let fork = fork.read_vec(0, fork.info().len as usize)?;
    let word = |at: usize| {
        fork.get(at..at + 4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize)
    };
    let count = word(0x104).context("a table")?;
    let chunk = |n: usize| {
        let (at, len) = (word(0x108 + 8 * n)? + 0x104, word(0x10C + 8 * n)?);
        fork.get(at..at + len).map(<[u8]>::to_vec)
    };
    (0..count).map(|n| chunk(n).context("a chunk")).collect()
}

/// Decodes chunks in memory, one request at a time.
fn decode_all(chunks: &[Vec<u8>], len: u64) -> Result<()> {
    let (mut plain, mut left) = (vec![0; REQUEST], len as usize);
    for chunks in chunks.chunks(REQUEST / CHUNK) {
        let now = left.min(REQUEST);
        let work: Vec<_> = chunks.iter().zip(plain[..now].chunks_mut(CHUNK)).collect();
        work.into_par_iter()
            .try_for_each(|(packed, plain)| match packed.first() {
                Some(first) if first & 0xF == 0xF => {
                    plain.copy_from_slice(&packed[1..]);
                    Ok(())
                }
                _ => Codec::Zlib.decode(packed, plain),
            })?;
        left -= now;
    }
    Ok(())
}

fn read_all(file: &dyn BlockDevice) -> Result<()> {
    let (mut buf, len) = (vec![0; REQUEST], file.info().len);
    for at in (0..len).step_by(REQUEST) {
        let now = (len - at).min(REQUEST as u64) as usize;
        file.read_at(at, &mut buf[..now])?;
    }
    Ok(())
}

fn packing() -> Result<Packing> {
    Ok(Packing::new(Method::Zlib, Level::new(5)?)?)
}

fn pack_whole(plain: &[u8]) -> Result<()> {
    let bounds = Bounds {
        attribute: 0,
        fork: u64::MAX,
    };
    let mut read = |at: u64, buf: &mut [u8]| {
        buf.copy_from_slice(&plain[at as usize..][..buf.len()]);
        Ok(())
    };
    let source = Plain {
        len: plain.len() as u64,
        read: &mut read,
    };
    ensure!(
        pack(source, packing()?, bounds, &Silent, &mut |_, _| Ok(()))?.is_some(),
        "it was not worth it"
    );
    Ok(())
}

fn encode_all(plain: &[u8]) -> Result<()> {
    let level = Level::new(5)?;
    let encode = |encoder: &mut bandsaw::codec::Encoder, chunk: &[u8]| {
        encoder.encode(chunk, &mut Vec::with_capacity(CHUNK))
    };
    // An equal share for each core, with a single wait at the end.
    let part = plain
        .len()
        .div_ceil(rayon::current_num_threads())
        .next_multiple_of(CHUNK);
    plain.par_chunks(part).try_for_each(|part| {
        let mut encoder = bandsaw::codec::Encoder::new(Codec::Zlib, level);
        part.chunks(CHUNK)
            .try_for_each(|chunk| encode(&mut encoder, chunk).map(drop))
    })?;
    Ok(())
}

/// Measures a text of 45 KB, the only file that macOS read more slowly when compressed.
fn small_file(bench: &Bench) -> Result<Option<Case>> {
    let dir = bench.dir.as_path();
    std::fs::create_dir_all(dir.join("small"))?;
    std::fs::write(dir.join("small/text"), text(45_000))?;
    build(bench, "small", "plain.img", &[])?;
    build(bench, "small", "packed.img", &["--compress", "zlib"])?;
    let cat = |address: &str| process(&bench.bandsaw, &["cat", address], dir);
    let small = case(
        "a 45 KB text by `bandsaw cat`, compressed",
        "the same as it is",
        1.0 / 1.1,
        Workload::Run,
    )
    .measure(
        bench.rounds * 8 + 1,
        || cat("packed.img:/text"),
        || cat("plain.img:/text"),
    )?;
    for name in ["small", "plain.img", "packed.img"] {
        super::remove(&dir.join(name));
    }
    Ok(Some(small))
}

/// Measures a tree of system files, built compressed.
fn trees(bench: &Bench) -> Result<Vec<Case>> {
    let dir = bench.dir.as_path();
    let len = copy_tree(&dir.join("tree"), bench.scaled(256 * MIB))?;
    let (work, mut cases) = (Workload::Bytes(len), Vec::new());
    let pigz = || shell("tar cf - tree | pigz -6 -p 2 > tree.tgz", dir);
    if present("pigz") {
        for level in ["6", "5"] {
            let ours = || {
                build(
                    bench,
                    "tree",
                    "tree.img",
                    &["--compress", "zlib", "--level", level],
                )
            };
            let name = format!("create --compress zlib --level {level}");
            cases.push(case(&name, "tar c | pigz -6 -p 2", 3.0, work).measure(
                bench.rounds,
                ours,
                pigz,
            )?);
        }
    } else {
        eprintln!("  pigz is absent: its case is left out (apt install pigz)");
    }
    if present("mksquashfs") {
        let ours = || -> Result<f64> {
            build(bench, "tree", "plain.img", &[])?;
            build(bench, "tree", "tree.img", &["--compress", "zlib"])?;
            let used = |name: &str| -> Result<f64> {
                let volume = open(&dir.join(name), &OpenOptions::default())?
                    .file_system(None)?
                    .volume();
                Ok((volume.total - volume.free) as f64)
            };
            Ok(1.0 / (1.0 - used("tree.img")? / used("plain.img")?))
        };
        let theirs = || -> Result<f64> {
            let squash = |name: &str, how: &str| -> Result<f64> {
                shell(
                    &format!("mksquashfs tree {name} -noappend -quiet -no-progress {how}"),
                    dir,
                )?;
                Ok(std::fs::metadata(dir.join(name))?.len() as f64)
            };
            let packed = squash("packed.squash", "-comp gzip -b 64K")?;
            Ok(1.0 / (1.0 - packed / squash("plain.squash", "-noI -noD -noF -noX")?))
        };
        let saved = case(
            "saving of a tree of system files",
            "mksquashfs -comp gzip -b 64K",
            0.95,
            Workload::Saved,
        );
        cases.push(saved.measure_costs(1, ours, theirs)?);
    } else {
        eprintln!("  mksquashfs is absent: its case is left out (apt install squashfs-tools)");
    }
    for name in [
        "tree",
        "tree.img",
        "plain.img",
        "tree.tgz",
        "packed.squash",
        "plain.squash",
    ] {
        super::remove(&dir.join(name));
    }
    Ok(cases)
}

fn shell(line: &str, dir: &Path) -> Result<Duration> {
    time(|| {
        let status = Command::new("sh")
            .args(["-c", line])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "`{line}` failed");
        Ok(())
    })
}

/// Copies `wanted` bytes of this machine's files; returns the number of bytes.
fn copy_tree(to: &Path, wanted: u64) -> Result<u64> {
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
        let target = to.join(folder.strip_prefix("/").unwrap_or(&folder));
        std::fs::create_dir_all(&target)?;
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && left > 0 {
                let Ok(mut file) = File::open(entry.path()) else {
                    continue;
                };
                let mut copy = File::create(target.join(entry.file_name()))?;
                left = left.saturating_sub(std::io::copy(&mut file, &mut copy)?);
            }
        }
    }
    Ok(wanted - left)
}
