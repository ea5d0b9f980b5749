//! ext2, ext3, ext4: `mkfs`, `debugfs`, `dumpe2fs` and `e2fsck`.

use std::ops::Range;
use std::path::Path;

use bandsaw::Kind;
use bandsaw::device::Access;
use bandsaw::open::VolumeFormat;
use bandsaw::ops::space::FreeSpace;

use super::{Disk, MIB};
use crate::noise::noise;
use crate::programs::{Program, run_text};
use crate::suite::Suite;

const MKE2FS: Program = Program::Command(&["mke2fs"]);
const DEBUGFS: Program = Program::Command(&["debugfs"]);
const DUMPE2FS: Program = Program::Command(&["dumpe2fs"]);
const E2FSCK: Program = Program::Command(&["e2fsck"]);
const SFDISK: Program = Program::Command(&["sfdisk"]);

/// Kinds of volumes, by the options of mke2fs.
const KINDS: [&[&str]; 9] = [
    &["-t", "ext2", "-b", "1024", "-g", "2048"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-g", "1024"],
    &["-t", "ext4", "-b", "4096", "-g", "512"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-O",
        "^64bit,^flex_bg",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "2048",
        "-O",
        "^metadata_csum,uninit_bg",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "256",
        "-O",
        "meta_bg,^resize_inode",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-O",
        "sparse_super2",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "2048",
        "-O",
        "metadata_csum_seed,inline_data,casefold",
    ],
];

pub(super) fn add(suite: &mut Suite) {
    suite
        .peer("e2fsprogs", &[MKE2FS, DEBUGFS, DUMPE2FS, E2FSCK, SFDISK])
        .test("say_what_is_free", say_what_is_free)
        .test(
            "inconsistent_volumes_are_skipped",
            inconsistent_volumes_are_skipped,
        )
        .test(
            "unknown_features_are_refused_by_name",
            unknown_features_are_refused_by_name,
        );
}

fn made(options: &[&str]) -> Disk {
    let disk = Disk::blank(20 * MIB + 7 * 1024);
    run_text(
        MKE2FS
            .command()
            .args(["-q", "-F"])
            .args(options)
            .arg(&disk.path),
    );
    for number in 0..12 {
        let name = format!("file{number}");
        let file = disk.file(&name, &noise(150_000 + 40_000 * number));
        debug(&disk.path, &format!("write {} {name}", file.display()));
    }
    for number in (0..12).filter(|number| number % 3 != 0) {
        debug(&disk.path, &format!("rm file{number}"));
    }
    disk
}

fn debug(path: &Path, request: &str) -> String {
    run_text(DEBUGFS.command().args(["-w", "-R", request]).arg(path))
}

fn say_what_is_free() {
    for (kind, options) in KINDS.into_iter().enumerate() {
        let disk = made(options);
        assert_eq!(disk.free(), report(&disk.path), "{options:?}");
        disk.judge(VolumeFormat::Ext, kind == 0, &|path| {
            run_text(E2FSCK.command().args(["-f", "-n"]).arg(path));
            let out = path.with_extension("out");
            let contents = (0..12).filter(|number| number % 3 == 0).map(|number| {
                debug(path, &format!("dump file{number} {}", out.display()));
                std::fs::read(&out).expect("a file of the volume")
            });
            contents.collect()
        });
    }
}

/// Returns the free extents that dumpe2fs prints, in bytes, merged across groups.
fn report(path: &Path) -> Vec<Range<u64>> {
    let report = run_text(DUMPE2FS.command().arg(path));
    let size = report
        .lines()
        .find_map(|line| line.strip_prefix("Block size:"))
        .expect("it tells the size of blocks");
    let size: u64 = size.trim().parse().expect("a number");
    let lines = report
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Free blocks:"))
        .skip(1);
    let mut runs: Vec<Range<u64>> = Vec::new();
    for run in lines
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .filter(|run| !run.is_empty())
    {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let (start, end) = (number(first) * size, (number(last) + 1) * size);
        match runs.last_mut() {
            Some(before) if before.end == start => before.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

fn inconsistent_volumes_are_skipped() {
    for request in [
        "ssv state 0",
        "feature needs_recovery",
        "ssv last_orphan 12",
    ] {
        let disk = made(&["-t", "ext4", "-b", "1024"]);
        debug(&disk.path, request);
        disk.assert_refused();
    }
}

fn unknown_features_are_refused_by_name() {
    let disk = Disk::blank(20 * MIB);
    run_text(
        MKE2FS
            .command()
            .args(["-q", "-F", "-t", "ext4", "-O", "bigalloc"])
            .arg(&disk.path),
    );
    let image = super::open(&disk.path, Access::ReadOnly);
    let space = FreeSpace::of(&image);
    let error = space.volumes[0].map.as_ref().expect_err("it is refused");
    assert!(
        error.kind() == Kind::Unsupported && error.message().contains("bigalloc"),
        "{error}"
    );
    assert!(space.is_unknown());
}
