//! FAT12, FAT16, FAT32: `mkfs.vfat`, `fsck.vfat`, and mtools.

use std::path::Path;
use std::process::Command;

use bandsaw::open::VolumeFormat;

use super::{Disk, MIB};
use crate::noise::noise;
use crate::programs::{Program, run, run_text};
use crate::suite::Suite;

const MKFS: Program = Program::Command(&["mkfs.vfat", "mkfs.fat"]);
const FSCK: Program = Program::Command(&["fsck.vfat", "fsck.fat"]);
const MCOPY: Program = Program::Command(&["mcopy"]);
const MDEL: Program = Program::Command(&["mdel"]);
const MTYPE: Program = Program::Command(&["mtype"]);
const SFDISK: Program = Program::Command(&["sfdisk"]);

/// Kinds of volumes: size in MiB, and the options of mkfs.
const KINDS: [(u64, &[&str]); 5] = [
    (4, &["-F", "12"]),
    (20, &["-F", "16"]),
    (40, &["-F", "32", "-s", "1"]),
    (40, &["-F", "32", "-s", "1", "-f", "1"]),
    (3, &["-F", "12", "-r", "1024", "-R", "7"]),
];

pub(super) fn add(suite: &mut Suite) {
    suite
        .peer(
            "dosfstools and mtools",
            &[MKFS, FSCK, MCOPY, MDEL, MTYPE, SFDISK],
        )
        .test("say_what_is_free", say_what_is_free)
        .test(
            "inconsistent_volumes_are_skipped",
            inconsistent_volumes_are_skipped,
        );
}

fn made(mib: u64, options: &[&str]) -> Disk {
    let disk = Disk::blank(mib * MIB);
    run_text(MKFS.command().args(options).arg(&disk.path));
    for number in 0..12 {
        let file = disk.file(&format!("file{number}"), &noise(30_000 + 20_000 * number));
        run(on(&mut MCOPY.command(), &disk.path).arg(file).arg("::"));
    }
    for number in (0..12).filter(|number| number % 3 != 0) {
        run(on(&mut MDEL.command(), &disk.path).arg(format!("::file{number}")));
    }
    disk
}

fn on<'a>(command: &'a mut Command, path: &Path) -> &'a mut Command {
    command.env("MTOOLS_SKIP_CHECK", "1").arg("-i").arg(path)
}

fn say_what_is_free() {
    for (kind, (mib, options)) in KINDS.into_iter().enumerate() {
        let disk = made(mib, options);
        // "disk.img: 4 files, 12/345 clusters"
        let report = run_text(FSCK.command().arg("-n").arg("-v").arg(&disk.path));
        let line = report
            .lines()
            .find(|line| line.ends_with(" clusters"))
            .expect("it counts clusters");
        let (used, all) = line
            .trim_end_matches(" clusters")
            .rsplit_once(' ')
            .and_then(|(_, count)| count.split_once('/'))
            .unwrap();
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let size = report
            .lines()
            .find_map(|line| line.trim().strip_suffix(" bytes per cluster"))
            .expect("it tells their size");
        let free: u64 = disk.free().iter().map(|run| run.end - run.start).sum();
        assert_eq!(
            free,
            (number(all) - number(used)) * number(size),
            "{options:?}\n{report}"
        );
        disk.judge(VolumeFormat::Fat, kind == 0, &|path| {
            run_text(FSCK.command().arg("-n").arg(path));
            let contents = (0..12).filter(|number| number % 3 == 0);
            contents
                .map(|number| run(on(&mut MTYPE.command(), path).arg(format!("::file{number}"))))
                .collect()
        });
    }
}

fn inconsistent_volumes_are_skipped() {
    for (mib, options, at) in [
        (4, ["-F", "12"], 0x25),
        (20, ["-F", "16"], 0x25),
        (40, ["-F", "32"], 0x41),
    ] {
        let disk = made(mib, &options);
        let mut bytes = std::fs::read(&disk.path).expect("reading the disk");
        bytes[at] |= 1;
        std::fs::write(&disk.path, bytes).expect("writing the disk");
        disk.assert_refused();
    }
}
