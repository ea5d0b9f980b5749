//! NTFS: `mkntfs`, `ntfscp`, `ntfscat`, `ntfsinfo`, and the checks that `ntfsresize` and `ntfsfix`
//! make in advance.

use std::path::Path;

use bandsaw::open::VolumeFormat;

use super::{Disk, MIB};
use crate::noise::noise;
use crate::programs::{Program, run, run_text};
use crate::suite::Suite;

const MKNTFS: Program = Program::Command(&["mkntfs"]);
const NTFSCP: Program = Program::Command(&["ntfscp"]);
const NTFSCAT: Program = Program::Command(&["ntfscat"]);
const NTFSINFO: Program = Program::Command(&["ntfsinfo"]);
const NTFSRESIZE: Program = Program::Command(&["ntfsresize"]);
const NTFSFIX: Program = Program::Command(&["ntfsfix"]);
const SFDISK: Program = Program::Command(&["sfdisk"]);

pub(super) fn add(suite: &mut Suite) {
    suite
        .peer(
            "ntfs-3g",
            &[
                MKNTFS, NTFSCP, NTFSCAT, NTFSINFO, NTFSRESIZE, NTFSFIX, SFDISK,
            ],
        )
        .test("say_what_is_free", say_what_is_free)
        .test(
            "inconsistent_volumes_are_skipped",
            inconsistent_volumes_are_skipped,
        );
}

fn made(options: &[&str]) -> Disk {
    let disk = Disk::blank(24 * MIB);
    run_text(
        MKNTFS
            .command()
            .args(["-F", "-q", "-f"])
            .args(options)
            .arg(&disk.path),
    );
    for number in 0..8 {
        let name = format!("file{number}");
        let file = disk.file(&name, &noise(200 + 90_000 * number));
        run_text(
            NTFSCP
                .command()
                .arg("-f")
                .arg(&disk.path)
                .arg(file)
                .arg(&name),
        );
    }
    disk
}

fn say_what_is_free() {
    let kinds = [
        &[][..],
        &["-c", "512"],
        &["-c", "65536"],
        &["-s", "4096", "-c", "8192"],
    ];
    for (at, options) in kinds.into_iter().enumerate() {
        let disk = made(options);
        let report = run_text(NTFSINFO.command().args(["-f", "-m"]).arg(&disk.path));
        let number = |what: &str| {
            let line = report
                .lines()
                .find_map(|line| line.trim().strip_prefix(what))
                .unwrap_or_else(|| panic!("{what}\n{report}"));
            line.split_whitespace()
                .next()
                .and_then(|number| number.parse::<u64>().ok())
                .expect("a number")
        };
        let free: u64 = disk.free().iter().map(|run| run.end - run.start).sum();
        assert_eq!(
            free,
            number("Free Clusters:") * number("Cluster Size:"),
            "{options:?}\n{report}"
        );
        disk.judge(VolumeFormat::Ntfs, at == 0, &|path: &Path| {
            // It counts the clusters of all files, and compares them with the map.
            run_text(
                NTFSRESIZE
                    .command()
                    .args(["--info", "--force", "--no-progress-bar"])
                    .arg(path),
            );
            run_text(NTFSFIX.command().arg("-n").arg(path));
            (0..8)
                .map(|number| {
                    run(NTFSCAT
                        .command()
                        .arg("-f")
                        .arg(path)
                        .arg(format!("file{number}")))
                })
                .collect()
        });
    }
}

fn inconsistent_volumes_are_skipped() {
    let disk = made(&[]);
    // The repair tool only marks it dirty for Windows.
    run_text(NTFSFIX.command().arg(&disk.path));
    disk.assert_refused();
}
