//! `sgdisk`: the strictest reader of GPT, and a writer.

use std::path::Path;

use bandsaw::device::BlockDevice;
use bandsaw::open::OpenOptions;
use bandsaw::ops::repair::{Mode, Options, repair};
use bandsaw::partition::{APPLE_APFS, APPLE_HFS, Scheme, TypeId, gpt};
use bandsaw::progress::Silent;
use bandsaw::store::Open;

use crate::disk::{DISK_GUID, open, our_view, partitions, with_our_gpt};
use crate::programs::{Program, everything, output, run_text};
use crate::suite::Suite;
use crate::volume;

const SGDISK: Program = Program::Command(&["sgdisk"]);
const SECTOR: u64 = 512;

pub(crate) fn add(suite: &mut Suite) {
    suite
        .peer("sgdisk", &[SGDISK])
        .test("reads_our_gpt", reads_our_gpt)
        .test("we_read_its_gpt", we_read_its_gpt)
        .test("reads_resized_disks", reads_resized_disks)
        .test("agrees_that_we_repaired", agrees_that_we_repaired)
        .test(
            "agrees_that_we_repaired_the_ends",
            agrees_that_we_repaired_the_ends,
        );
}

fn reads_our_gpt() {
    let (_scratch, disk) = with_our_gpt(512);
    assert_sound(&disk);
    let printed = run_text(SGDISK.command().arg("--print").arg(&disk));
    let guid = DISK_GUID.to_string().to_uppercase();
    assert!(
        printed.contains(&format!("Disk identifier (GUID): {guid}")),
        "{printed}"
    );

    for (number, partition) in (1..).zip(partitions(512)) {
        let report = run_text(SGDISK.command().arg(format!("--info={number}")).arg(&disk));
        for line in [
            format!(
                "Partition GUID code: {} ",
                partition.type_guid.to_string().to_uppercase()
            ),
            format!(
                "Partition unique GUID: {}\n",
                partition.guid.to_string().to_uppercase()
            ),
            format!("First sector: {} ", partition.range.start / SECTOR),
            format!("Last sector: {} ", partition.range.end / SECTOR - 1),
            format!("Partition name: '{}'\n", partition.name),
        ] {
            assert!(report.contains(&line), "no {line:?} in\n{report}");
        }
    }
}

/// Disks with a changed map: the type of the partition changed when it was formatted, its end
/// twice.
fn reads_resized_disks() {
    for volume in volume::all().iter().filter(|volume| volume.mapped) {
        assert_sound(&volume.disk);
        let report = run_text(SGDISK.command().arg("--info=1").arg(&volume.disk));
        let last = format!("Last sector: {} ", volume.range.end / SECTOR - 1);
        assert!(
            report.contains(&last) && report.contains("Apple HFS/HFS+"),
            "{report}"
        );
    }
}

fn we_read_its_gpt() {
    let (_scratch, disk) = crate::disk::blank();
    let mut sgdisk = SGDISK.command();
    sgdisk.args([
        "-n",
        "1:2048:+10M",
        "-t",
        "1:af00",
        "-c",
        "1:Docs é",
        "-u",
        "1:5f0fcef0-6898-4e49-9848-86f463c2b824",
    ]);
    sgdisk.args([
        "-n",
        "7:40960:81919",
        "-t",
        "7:af0a",
        "-A",
        "7:set:2",
        "-U",
        &DISK_GUID.to_string(),
    ]);
    run_text(sgdisk.arg(&disk));

    let map = our_view(&disk);
    assert_eq!(
        (map.scheme, map.block, map.disk_guid),
        (Scheme::Gpt, 512, Some(DISK_GUID))
    );
    let [first, seventh] = &map.partitions[..] else {
        panic!("{map:#?}")
    };
    assert_eq!(
        (first.number, first.range.clone(), first.name.as_str()),
        (1, 1 << 20..11 << 20, "Docs é")
    );
    assert_eq!(first.type_id, TypeId::Guid(APPLE_HFS));
    assert_eq!(
        first.guid.map(|guid| guid.to_string()).as_deref(),
        Some("5f0fcef0-6898-4e49-9848-86f463c2b824")
    );
    assert_eq!(
        (seventh.number, seventh.range.clone(), seventh.flags),
        (7, 40960 * SECTOR..81920 * SECTOR, 4)
    );
    assert_eq!(seventh.type_id, TypeId::Guid(APPLE_APFS));
}

/// Either copy is destroyed: sgdisk reports it before the repair but not after it, and the map is
/// unchanged.
fn agrees_that_we_repaired() {
    let last_block = crate::disk::DISK_LEN - SECTOR;
    for damaged in [SECTOR, last_block] {
        let (_scratch, path) = with_our_gpt(512);
        let whole = our_view(&path).partitions;
        let disk = open(&path, Open::Write);
        disk.write_at(damaged, &[0xa5; 100])
            .expect("damaging the disk");
        let verdict = verdict(&path);
        assert!(!is_sound(&verdict), "{verdict}");

        gpt::repair(&disk).expect("repairing");
        assert_sound(&path);
        assert_eq!(our_view(&path).partitions, whole);
    }
}

/// A disk that has grown, and one that has lost its last sectors, after our repair of the file.
fn agrees_that_we_repaired_the_ends() {
    for len in [
        crate::disk::DISK_LEN + (7 << 20),
        crate::disk::DISK_LEN - 20 * SECTOR,
    ] {
        let (_scratch, path) = with_our_gpt(512);
        let whole = our_view(&path).partitions;
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(len))
            .expect("another length");
        assert!(
            !is_sound(&verdict(&path)) || len > crate::disk::DISK_LEN,
            "{}",
            verdict(&path)
        );
        repair(
            &path,
            &OpenOptions::default(),
            &Options {
                mode: Mode::Apply,
                ..Options::default()
            },
            &Silent,
        )
        .expect("repairing");
        assert_sound(&path);
        assert_eq!(our_view(&path).partitions, whole);
    }
}

fn assert_sound(disk: &Path) {
    let verdict = verdict(disk);
    assert!(is_sound(&verdict), "{verdict}");
}

fn verdict(disk: &Path) -> String {
    everything(&output(SGDISK.command().arg("--verify").arg(disk)))
}

/// Returns true if sgdisk found no problem. It says "no problems" even if it could use only one
/// copy of the map.
fn is_sound(verdict: &str) -> bool {
    verdict.contains("No problems found.") && !verdict.contains("corrupt")
}
