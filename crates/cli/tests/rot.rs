//! Rot below the file system: bytes of the disk change, and no file gets another time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use bandsaw::testing::Random;
use serde_json::Value;

use crate::common::{Scratch, skip, stderr};

const BANDS: usize = 120;
const LEN: usize = 64 << 10;
const PLACES: usize = 1000;

/// Inode, length and times of each band.
fn identities(scratch: &Scratch) -> BTreeMap<String, (u64, u64, i64, i64)> {
    let entries = fs::read_dir(scratch.path("mnt/Mac.sparsebundle/bands")).unwrap();
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, (meta.ino(), meta.len(), meta.mtime(), meta.ctime()))
        })
        .collect()
}

/// A bundle on a volume of a raw image, which is mounted: `scrub` records hashes, then a thousand bytes of
/// the image change while it is not mounted, and some bands are written while it is.
#[test]
fn a_thousand_places_of_rot_are_found_below_a_file_system() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    fs::create_dir(&run).unwrap();
    let command = |args: &[&str]| {
        let mut command = scratch.command(args);
        command.env("XDG_RUNTIME_DIR", &run).output().unwrap()
    };
    let mount = || command(&["mount", "disk.img", "mnt"]);
    let detach = || {
        let detached = command(&["detach", "mnt"]);
        assert!(detached.status.success(), "{}", stderr(&detached));
    };
    scratch.ok(&["create", "disk.img", "--size", "32m", "--fs", "hfs+"]);
    let mounted = mount();
    if stderr(&mounted).contains("FUSE") {
        skip::without_program(
            "a_thousand_places_of_rot_are_found_below_a_file_system",
            "no FUSE",
        );
        return;
    }
    assert!(mounted.status.success(), "{}", stderr(&mounted));
    scratch.ok(&[
        "create",
        "mnt/Mac.sparsebundle",
        "--size",
        "1g",
        "--band-size",
        "1m",
    ]);
    let mut random = Random::new(91);
    let mut truth: Vec<Vec<u8>> = Vec::new();
    for band in 0..BANDS {
        truth.push(random.bytes(LEN));
        fs::write(
            scratch.path(&format!("mnt/Mac.sparsebundle/bands/{band:x}")),
            &truth[band],
        )
        .unwrap();
    }
    // Times of a file tell who wrote it only when they are some seconds old.
    std::thread::sleep(std::time::Duration::from_secs(4));
    scratch.ok(&["scrub", "mnt/Mac.sparsebundle"]);
    let before = identities(&scratch);
    detach();

    let disk = fs::File::options()
        .read(true)
        .write(true)
        .open(scratch.path("disk.img"))
        .unwrap();
    let mut image = vec![0; disk.metadata().unwrap().len() as usize];
    disk.read_exact_at(&mut image, 0).unwrap();
    let starts: Vec<BTreeMap<usize, usize>> = truth
        .iter()
        .map(|band| {
            // The place of each block on the disk.
            let blocks = band.chunks(4096).enumerate();
            blocks
                .map(|(number, block)| {
                    let at = image.chunks(4096).position(|other| other == block);
                    (number, at.expect("a block is on the disk") * 4096)
                })
                .collect()
        })
        .collect();
    let mut rotten = BTreeSet::new();
    for _ in 0..PLACES {
        // A part of the bands stays sound.
        let band = random.within(0..BANDS as u64 * 3 / 4) as usize;
        let at = random.within(0..LEN as u64) as usize;
        let place = (starts[band][&(at / 4096)] + at % 4096) as u64;
        let mut byte = [0];
        disk.read_exact_at(&mut byte, place).unwrap();
        let flipped = [byte[0] ^ (1 << random.within(0..8))];
        disk.write_all_at(&flipped, place).unwrap();
        rotten.insert(band);
    }
    drop(disk);

    assert!(mount().status.success());
    assert_eq!(identities(&scratch), before, "rot has no times");
    // Writes of a Mac meanwhile are no rot.
    let written = BANDS - 5..BANDS;
    for band in written.clone() {
        let path = scratch.path(&format!("mnt/Mac.sparsebundle/bands/{band:x}"));
        fs::write(path, random.bytes(LEN)).unwrap();
    }
    let output = scratch.run(&["scrub", "mnt/Mac.sparsebundle", "--json"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let found: BTreeSet<usize> = findings
        .iter()
        .map(|one| {
            assert_eq!(one["finding"], "faulty");
            let name = one["name"]
                .as_str()
                .unwrap()
                .strip_prefix("bands/")
                .unwrap();
            usize::from_str_radix(name, 16).unwrap()
        })
        .collect();
    // Two places can undo each other.
    let is_rotten = |band: &usize| {
        let path = scratch.path(&format!("mnt/Mac.sparsebundle/bands/{band:x}"));
        fs::read(path).unwrap() != truth[*band]
    };
    rotten.retain(is_rotten);
    assert!(rotten.len() > BANDS / 2, "{}", rotten.len());
    assert_eq!(found, rotten);
    assert_eq!(report["changed_bands"], written.len());

    // A copy repairs all of them, and none of what was written.
    let written: Vec<Vec<u8>> = written
        .map(|band| {
            fs::read(scratch.path(&format!("mnt/Mac.sparsebundle/bands/{band:x}"))).unwrap()
        })
        .collect();
    for (band, bytes) in truth.iter().enumerate() {
        scratch.write(&format!("copy.sparsebundle/bands/{band:x}"), bytes);
    }
    scratch.ok(&[
        "scrub",
        "mnt/Mac.sparsebundle",
        "--from",
        "copy.sparsebundle",
    ]);
    truth.splice(BANDS - 5.., written);
    for (band, bytes) in truth.iter().enumerate() {
        let path = scratch.path(&format!("mnt/Mac.sparsebundle/bands/{band:x}"));
        assert!(fs::read(path).unwrap() == *bytes, "{band:x}");
    }
    detach();
}
