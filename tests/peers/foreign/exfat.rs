//! exFAT: `mkfs.exfat`, `dump.exfat`, `fsck.exfat`. None of them can write files, so one is written
//! by hand.

use std::path::Path;

use bandsaw::open::VolumeFormat;

use super::{Disk, MIB};
use crate::noise::noise;
use crate::programs::{Program, run_text};
use crate::suite::Suite;

const MKFS: Program = Program::Command(&["mkfs.exfat"]);
const DUMP: Program = Program::Command(&["dump.exfat"]);
const FSCK: Program = Program::Command(&["fsck.exfat"]);
const SFDISK: Program = Program::Command(&["sfdisk"]);

pub(super) fn add(suite: &mut Suite) {
    suite
        .peer("exfatprogs", &[MKFS, DUMP, FSCK, SFDISK])
        .test("say_what_is_free", say_what_is_free)
        .test(
            "inconsistent_volumes_are_skipped",
            inconsistent_volumes_are_skipped,
        );
}

/// A volume, with the offset and size of its clusters, and the first cluster of the file.
struct Made {
    disk: Disk,
    heap: usize,
    cluster: usize,
    first: usize,
}

const CLUSTERS: usize = 40;

fn made(cluster: usize) -> Made {
    let disk = Disk::blank(24 * MIB);
    run_text(
        MKFS.command()
            .args(["-c", &cluster.to_string()])
            .arg(&disk.path),
    );
    let mut bytes = std::fs::read(&disk.path).expect("reading the disk");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (heap, root) = (word(0x58) * 512, word(0x60));
    // Far from all existing data.
    let first = 1000;
    let place = |number: usize| heap + (number - 2) * cluster;
    let directory = place(root);
    let bitmap = (0..8)
        .map(|slot| directory + 32 * slot)
        .find(|&at| bytes[at] == 0x81)
        .expect("it has a bitmap");
    let bits =
        place(u32::from_le_bytes(bytes[bitmap + 20..bitmap + 24].try_into().unwrap()) as usize);
    for number in first - 2..first - 2 + CLUSTERS {
        bytes[bits + number / 8] |= 1 << (number % 8);
    }
    let contents = noise(CLUSTERS * cluster);
    bytes[place(first)..place(first) + contents.len()].copy_from_slice(&contents);
    let free = (0..64)
        .map(|slot| directory + 32 * slot)
        .find(|&at| bytes[at] == 0)
        .expect("there is room");
    bytes[free..free + 96].copy_from_slice(&entries("KEPT", first, contents.len()));
    std::fs::write(&disk.path, bytes).expect("writing the disk");
    Made {
        disk,
        heap,
        cluster,
        first,
    }
}

/// Returns the three entries of a file with contiguous clusters.
fn entries(name: &str, first: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; 96];
    (bytes[0], bytes[1], bytes[4]) = (0x85, 2, 0x20);
    // 1 January 2020.
    for at in [8, 12, 16] {
        bytes[at..at + 4].copy_from_slice(&0x5021_0000_u32.to_le_bytes());
    }
    (bytes[32], bytes[33], bytes[35]) = (0xC0, 0x03, name.len() as u8);
    let utf16: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let hash = utf16.iter().fold(0_u16, |sum, &byte| {
        sum.rotate_right(1).wrapping_add(byte.into())
    });
    bytes[36..38].copy_from_slice(&hash.to_le_bytes());
    for at in [40, 56] {
        bytes[at..at + 8].copy_from_slice(&(len as u64).to_le_bytes());
    }
    bytes[52..56].copy_from_slice(&(first as u32).to_le_bytes());
    bytes[64] = 0xC1;
    bytes[66..66 + utf16.len()].copy_from_slice(&utf16);
    let counted = bytes
        .iter()
        .enumerate()
        .filter(|(at, _)| !matches!(at, 2 | 3));
    let sum = counted.fold(0_u16, |sum, (_, &byte)| {
        sum.rotate_right(1).wrapping_add(byte.into())
    });
    bytes[2..4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn say_what_is_free() {
    for (kind, cluster) in [512, 4096, 8192].into_iter().enumerate() {
        let Made {
            disk,
            heap,
            cluster,
            first,
        } = made(cluster);
        let report = run_text(DUMP.command().arg(&disk.path));
        let clusters = report
            .lines()
            .find_map(|line| line.strip_prefix("Free Clusters:"))
            .expect("it counts clusters");
        let free: u64 = disk.free().iter().map(|run| run.end - run.start).sum();
        assert_eq!(
            free,
            clusters.trim().parse::<u64>().expect("a number") * cluster as u64,
            "{report}"
        );
        disk.judge(VolumeFormat::ExFat, kind == 0, &|path: &Path| {
            let report = run_text(FSCK.command().arg("-n").arg(path));
            assert!(
                report.contains("clean") && report.contains("files 1"),
                "{report}"
            );
            let bytes = std::fs::read(path).expect("reading the disk");
            let at = heap + (first - 2) * cluster;
            vec![bytes[at..at + CLUSTERS * cluster].to_vec()]
        });
    }
}

fn inconsistent_volumes_are_skipped() {
    let Made { disk, .. } = made(4096);
    let mut bytes = std::fs::read(&disk.path).expect("reading the disk");
    bytes[0x6A] |= 2;
    std::fs::write(&disk.path, bytes).expect("writing the disk");
    disk.assert_refused();
}
