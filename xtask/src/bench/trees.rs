//! Import and export of file trees (goals 20 and 21).

use std::path::Path;

use anyhow::Result;
use bandsaw_bench::noise::SplitMix64;

use super::Bench;
use super::measure::{Case, Workload, time};

/// Builds volumes of 50,000 files, compared with `tar cf`, `fstool` and each other, and extracts
/// them, compared with `tar x`, `7zz` and `fsapfsmount`.
pub(super) fn build_and_extract(bench: &Bench) -> Result<Vec<Case>> {
    let files = bench.count(50_000, 1000);
    grow_tree(&bench.dir.join("tree"), files)?;
    let mut cases = Vec::new();
    for fs in ["hfs+", "hfs+j", "apfs"] {
        builds(bench, fs, files, &mut cases)?;
        extractions(bench, fs, files, &mut cases)?;
    }
    Ok(cases)
}

fn case(goal: u32, name: &str, files: u64, reference: &str, at_least: f64) -> Case {
    let (name, work) = (format!("{name}, {files} files"), Workload::Files(files));
    Case::new(goal, name, reference, at_least, work)
}

/// Goal 20: builds the volume, and leaves it in `b.img`.
fn builds(bench: &Bench, fs: &str, files: u64, cases: &mut Vec<Case>) -> Result<()> {
    let name = format!("create --fs {fs} --from");
    let case = |reference: &str, least| case(20, &name, files, reference, least);
    let into = |image: &str, line: &str| {
        bench.remove(image);
        bench.run(line)
    };
    let build = |fs: &str, image: &str| {
        let how = "--format udrw --volname Bench --layout none --from tree";
        into(image, &format!("bandsaw create {image} --fs {fs} {how}"))
    };
    let ours = || build(fs, "b.img");
    if fs == "apfs" {
        // At most 1.5 times the time.
        let case = case("create --fs hfs+ --from", 1.0 / 1.5);
        cases.push(case.measure(bench.rounds, ours, || build("hfs+", "h.img"))?);
        return Ok(());
    }
    let tar = || into("t.tar", "tar cf t.tar -C tree .");
    cases.push(case("tar cf", 1.0).measure(bench.rounds, ours, tar)?);
    if bench.has("fstool", "cargo install fstool") {
        let fstool = || into("f.img", "fstool create -t hfs+ tree -o f.img");
        let case = case("fstool create -t hfs+", 1.7);
        cases.push(case.measure(bench.rounds, ours, fstool)?);
    }
    Ok(())
}

/// Goal 21: extracts the volume in `b.img`.
fn extractions(bench: &Bench, fs: &str, files: u64, cases: &mut Vec<Case>) -> Result<()> {
    let rounds = bench.rounds;
    let into = |folder: &str, line: &str| {
        bench.remove(folder);
        bench.run(line)
    };
    let extract = |on: &str| {
        into(
            "out.bandsaw",
            &format!("{on} bandsaw extract b.img out.bandsaw"),
        )
    };
    let ours = || extract("");
    let seven = |on: &str| into("out.7zz", &format!("{on} 7zz x -oout.7zz -y b.img"));
    let tar = || {
        bench.remove("out.tar");
        std::fs::create_dir(bench.dir.join("out.tar"))?;
        bench.run("tar xf t.tar -C out.tar")
    };
    let name = format!("extract from {fs}");
    let case = |reference: &str, least| case(21, &name, files, reference, least);
    cases.push(case("tar x", 0.9).measure(rounds, ours, tar)?);
    if bench.has("7zz taskset", "apt install 7zip util-linux") {
        cases.push(case("7zz x", 1.5).measure(rounds, ours, || seven(""))?);
        let one = "taskset -c 0";
        let name = format!("{name} on one core");
        let case = self::case(21, &name, files, "7zz x on one core", 1.0);
        cases.push(case.measure(rounds, || extract(one), || seven(one))?);
    }
    if fs == "apfs"
        && bench.has(
            "fsapfsmount fusermount /dev/fuse",
            "apt install libfsapfs-utils fuse3",
        )
    {
        // It is slow enough that few rounds are sufficient.
        let case = case("fsapfsmount and cp", 3.0);
        cases.push(case.measure(rounds.min(2), ours, || copy_from_mount(bench))?);
    }
    Ok(())
}

/// Mounts the volume in `b.img` with libfsapfs and copies all of it.
fn copy_from_mount(bench: &Bench) -> Result<f64> {
    bench.remove("out.cp");
    std::fs::create_dir_all(bench.dir.join("fsapfs.mnt"))?;
    let copied = time(|| {
        bench.run("fsapfsmount b.img fsapfs.mnt")?;
        bench.run("cp -r fsapfs.mnt out.cp")
    });
    bench.run("fusermount -u -z @/fsapfs.mnt")?;
    copied
}

/// Creates `files` files in folders of a hundred, most of them small, one in fifty large: 8.5 KB on
/// average.
fn grow_tree(root: &Path, files: u64) -> Result<()> {
    let mut random = SplitMix64::new(20);
    let mut noise = vec![0; 1 << 20];
    random.fill(&mut noise);
    for file in 0..files {
        let folder = root.join(format!("folder {:03}", file / 100));
        if file % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let len = match file % 50 {
            0 => 100_000 + random.below(200_000),
            _ => random.below(9_000),
        };
        let from = random.below(noise.len() - len);
        let path = folder.join(format!("file {file:05}.dat"));
        std::fs::write(path, &noise[from..from + len])?;
    }
    Ok(())
}
