//! Trees of files into an HFS+ volume and out of it (goals 20 and 21).

use std::path::Path;

use anyhow::Result;

use super::Bench;
use super::measure::{Case, Work};
use super::startup::{present, process};

/// Files in the tree.
const FILES: u64 = 50_000;

/// Builds 50,000 files against `tar cf` and `fstool`, extracts them against `tar x` and `7zz`.
pub(super) fn build_and_extract(bench: &Bench) -> Result<Vec<Case>> {
    let files = ((FILES as f64 * bench.scale) as u64).max(1000);
    let tree = bench.dir.join("tree");
    grow_tree(&tree, files)?;
    let dir = bench.dir.as_path();
    let case = |goal: u32, name: &str, reference: &str, least: f64| Case {
        goal,
        name: format!("{name}, {files} files"),
        reference: reference.to_owned(),
        at_least: least,
        pairs: Vec::new(),
        work: Work::Files(files),
    };
    let clean = |name: &str| super::remove(&dir.join(name));
    let build = || {
        clean("b.img");
        process(
            &bench.bandsaw,
            &["create", "b.img", "--format", "udrw", "--fs", "hfs+", "--volname", "Bench", "--from", "tree", "--layout", "none"],
            dir,
        )
    };
    let extract = || {
        clean("out.bandsaw");
        process(&bench.bandsaw, &["extract", "b.img", "out.bandsaw"], dir)
    };
    let tar_create = || {
        clean("t.tar");
        process("tar".as_ref(), &["cf", "t.tar", "-C", "tree", "."], dir)
    };
    let mut cases = vec![case(20, "create --from", "tar cf", 1.0).measure(bench.rounds, build, tar_create)?];
    if present("fstool") {
        let fstool = || {
            clean("f.img");
            process("fstool".as_ref(), &["create", "-t", "hfs+", "tree", "-o", "f.img"], dir)
        };
        cases.push(case(20, "create --from", "fstool create -t hfs+", 1.7).measure(bench.rounds, build, fstool)?);
        clean("f.img");
    } else {
        eprintln!("  fstool is absent: its case is left out (cargo install fstool)");
    }
    let tar_extract = || {
        clean("out.tar");
        std::fs::create_dir(dir.join("out.tar"))?;
        process("tar".as_ref(), &["xf", "t.tar", "-C", "out.tar"], dir)
    };
    cases.push(case(21, "extract", "tar x", 0.9).measure(bench.rounds, extract, tar_extract)?);
    clean("out.tar");
    if present("7zz") {
        let seven = || {
            clean("out.7zz");
            process("7zz".as_ref(), &["x", "-oout.7zz", "-y", "b.img"], dir)
        };
        cases.push(case(21, "extract", "7zz x", 1.0).measure(bench.rounds, extract, seven)?);
    } else {
        eprintln!("  7zz is absent: its case is left out (apt install 7zip)");
    }
    for name in ["tree", "b.img", "t.tar", "out.bandsaw", "out.7zz"] {
        clean(name);
    }
    Ok(cases)
}

/// `files` files in folders of a hundred, most of them small, one in fifty large: 8.5 KB on average.
fn grow_tree(root: &Path, files: u64) -> Result<()> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let noise: Vec<u8> = (0..1 << 20).map(|_| random() as u8).collect();
    for file in 0..files {
        let folder = root.join(format!("folder {:03}", file / 100));
        if file % 100 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        let len = if file % 50 == 0 { 100_000 + random() % 200_000 } else { random() % 9_000 };
        let from = (random() % (noise.len() as u64 - len)) as usize;
        std::fs::write(folder.join(format!("file {file:05}.dat")), &noise[from..from + len as usize])?;
    }
    Ok(())
}
