//! Compressed files: reading, creation, and savings (goal 26).

use std::fs::{self, File};
use std::io;

use anyhow::{Context, Result, ensure};
use bandsaw::codec::{Codec, Level};
use bandsaw::decmpfs::{Bounds, Method, PackOptions, PlainContents, pack};
use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::{FileSystem, FileSystemExt, Fork, RESOURCE_FORK};
use bandsaw::open::{OpenOptions, open};
use bandsaw::progress::Silent;
use bandsaw_bench::images::article::text;
use rayon::prelude::*;

use super::codecs::{copy_sources, gather};
use super::measure::{Case, Workload, time};
use super::{Bench, MIB};

/// Size of a chunk in bytes.
const CHUNK: usize = 64 << 10;
/// Size of a request in bytes, as in programs that copy files.
const REQUEST: usize = 1 << 20;

/// Runs something on a number of cores.
fn on_cores<T: Send>(count: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(count)
        .build()?
        .install(work)
}

pub(super) fn files(bench: &Bench) -> Result<Vec<Case>> {
    let mut cases = one_file(bench)?;
    cases.push(small_file(bench)?);
    cases.extend(trees(bench)?);
    Ok(cases)
}

/// Measures a long file: compressed and read on one core and on two, compared with the codec alone.
fn one_file(bench: &Bench) -> Result<Vec<Case>> {
    let dir = bench.dir.as_path();
    fs::create_dir_all(dir.join("one"))?;
    let len = gather(&dir.join("one/file"), bench.scaled(256 * MIB))?;
    build(bench, "one", "one.img", "--compress zlib")?;
    let image = open(&dir.join("one.img"), &OpenOptions::default())?;
    let fs = image.file_system(None)?;
    let id = fs.resolve("/file")?.id;
    let chunks = chunks(&*fs, id)?;
    let plain = fs::read(dir.join("one/file"))?;
    let read = |cores: usize| {
        let file = fs.open(id, Fork::Data)?;
        on_cores(cores, || time(|| read_all(&*file)))
    };
    let decode = |cores: usize| on_cores(cores, || time(|| decode_all(&chunks, len)));
    let pack_all = || on_cores(2, || time(|| pack_whole(&plain)));
    let encode = || on_cores(2, || time(|| encode_all(&plain)));
    let (work, rounds) = (Workload::Bytes(len), bench.rounds);
    let case =
        |name: &str, reference: &str, least: f64| Case::new(26, name, reference, least, work);
    let [one, two] = ["one core", "two cores"];
    let reading = |cores: &str| format!("a compressed file read, {cores}");
    let codec = |cores: &str| format!("libdeflate on its chunks, {cores}");
    let packing = format!("libdeflate -5 on its chunks, {two}");
    Ok(vec![
        case(&reading(one), &codec(one), 0.9).measure(rounds, || read(1), || decode(1))?,
        case(&reading(two), &codec(two), 0.9).measure(rounds, || read(2), || decode(2))?,
        case(&reading(two), one, 1.8).measure(rounds, || read(2), || read(1))?,
        case("a file packed, two cores", &packing, 0.9).measure(rounds, pack_all, encode)?,
    ])
}

/// Builds a volume from a folder of the scratch folder.
fn build(bench: &Bench, from: &str, image: &str, how: &str) -> Result<f64> {
    bench.remove(image);
    bench.run(&format!(
        "bandsaw create {image} --format udrw --fs hfs+ --volname Bench --layout none --from {from} {how}"
    ))
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

fn packing() -> Result<PackOptions> {
    Ok(PackOptions::new(Method::Zlib, Level::new(5)?)?)
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
    let source = PlainContents {
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
fn small_file(bench: &Bench) -> Result<Case> {
    fs::create_dir_all(bench.dir.join("small"))?;
    fs::write(bench.dir.join("small/text"), text(45_000))?;
    build(bench, "small", "plain.img", "")?;
    build(bench, "small", "packed.img", "--compress zlib")?;
    let name = "a 45 KB text by `bandsaw cat`, compressed";
    Case::new(26, name, "the same as it is", 1.0 / 1.1, Workload::Run).measure(
        bench.rounds * 8 + 1,
        || bench.run("bandsaw cat packed.img:/text"),
        || bench.run("bandsaw cat plain.img:/text"),
    )
}

/// Measures a tree of system files, built compressed.
fn trees(bench: &Bench) -> Result<Vec<Case>> {
    let tree = bench.dir.join("tree");
    let len = copy_sources(bench.scaled(256 * MIB), |path, mut file, _| {
        let to = tree.join(path.strip_prefix("/").unwrap_or(path));
        fs::create_dir_all(to.parent().unwrap_or(&tree))?;
        io::copy(&mut file, &mut File::create(to)?)
    })?;
    let mut cases = Vec::new();
    if bench.has("pigz", "apt install pigz") {
        let pigz = || bench.shell("tar cf - tree | pigz -6 -p 2 > tree.tgz");
        for level in ["6", "5"] {
            let how = format!("--compress zlib --level {level}");
            let ours = || build(bench, "tree", "tree.img", &how);
            let (name, reference) = (format!("create {how}"), "tar c | pigz -6 -p 2");
            let case = Case::new(26, name, reference, 3.0, Workload::Bytes(len));
            cases.push(case.measure(bench.rounds, ours, pigz)?);
        }
    }
    if bench.has("mksquashfs", "apt install squashfs-tools") {
        let used = |name: &str, how: &str| -> Result<f64> {
            build(bench, "tree", name, how)?;
            let image = open(&bench.dir.join(name), &OpenOptions::default())?;
            let volume = image.file_system(None)?.volume();
            Ok((volume.total - volume.free) as f64)
        };
        let ours = || {
            let plain = used("plain.img", "")?;
            Ok(1.0 / (1.0 - used("tree.img", "--compress zlib")? / plain))
        };
        let squash = |name: &str, how: &str| -> Result<f64> {
            let line = format!("mksquashfs tree {name} -noappend -quiet -no-progress {how}");
            bench.run(&line)?;
            Ok(fs::metadata(bench.dir.join(name))?.len() as f64)
        };
        let theirs = || {
            let packed = squash("packed.squash", "-comp gzip -b 64K")?;
            Ok(1.0 / (1.0 - packed / squash("plain.squash", "-noI -noD -noF -noX")?))
        };
        let (name, reference) = (
            "saving of a tree of system files",
            "mksquashfs -comp gzip -b 64K",
        );
        let case = Case::new(26, name, reference, 0.95, Workload::Saved);
        cases.push(case.measure(1, ours, theirs)?);
    }
    Ok(cases)
}
