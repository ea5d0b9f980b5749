//! The out-of-tree Linux driver for APFS: it mounts our containers, reads their contents, and
//! changes them; our check finds no problem afterwards.

use std::collections::BTreeMap;
use std::path::Path;

use bandsaw::device::Access;
use bandsaw::open::{self, OpenOptions};
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::testing::Random;

use crate::apfs_readers::our_files;
use crate::common::changing::operate;
use crate::programs::Program;
use crate::qemu::{self, Guest, Report};
use crate::suite::Suite;
use crate::{scratch, tree};

/// Minimum size of a container that it supports.
const LEN: u64 = 600 << 20;

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[Program::GuestModule("apfs")]].concat();
    suite
        .heavy_peer("linux on APFS", "boots Linux in an emulator", &needs)
        .test("reads_and_changes_ours", reads_and_changes_ours);
}

/// Reads, creates, changes, moves and removes files.
const WORK: &str = r#"
sums() { section "$1"; find . -type f -exec sha256sum {} +; }
for disk in vda vdb; do
    mount -t apfs -o ro /dev/$disk /mnt
    cd /mnt
    sums "$disk before"
    cd /
    umount /mnt
    mount -t apfs -o readwrite /dev/$disk /mnt
    section "$disk mount"
    grep /mnt /proc/mounts
    cd /mnt
    mkdir New New/deeper
    echo from the guest >New/file
    for number in $(seq 200); do echo $number >"New/deeper/number $number"; done
    for number in $(seq 3 3 200); do rm "New/deeper/number $number"; done
    head -c 3000000 /dev/urandom >New/large
    mv New/file "New/another name"
    ln New/large "New/second name"
    ln -s large New/link
    rm -r Many/07
    head -c 5000 /dev/urandom | dd of=New/large bs=1000 seek=700 conv=notrunc
    head -c 9000 /dev/urandom >>New/large
    head -c 100000 /dev/urandom >New/short
    truncate -s 33333 New/short
    head -c 4000 /dev/urandom | dd of=New/sparse bs=4000 seek=100
    mv New/sparse "New/deeper/number 1"
    chmod 600 New/short
    chown 12:34 New/short
    rm "New/second name"
    cd /
    umount /mnt
    mount -t apfs -o ro /dev/$disk /mnt
    cd /mnt
    sums "$disk after"
    cd /
    umount /mnt
done
"#;

fn reads_and_changes_ours() {
    let folder = scratch();
    let images: Vec<_> = (0..)
        .zip([NewFormat::Apfs, NewFormat::ApfsCaseSensitive])
        .map(|(number, format)| {
            let (source, image) = (
                folder.path().join(format!("source {number}")),
                folder.path().join(format!("{number}.img")),
            );
            tree::write(&source, format == NewFormat::ApfsCaseSensitive);
            let volume = NewVolume {
                layout: Layout::None,
                name: "Ours".into(),
                format,
                block_size: None,
                source: Source::Folder(source),
            };
            let options = CreateOptions {
                len: Some(LEN),
                volume: Some(volume),
                ..CreateOptions::default()
            };
            create(&image, options, &Silent).expect("making an image");
            change(&image, number, 200);
            image
        })
        .collect();
    let before: Vec<_> = images.iter().map(|image| files(image)).collect();
    let guest = images
        .iter()
        .fold(Guest::new(WORK).modules(&["apfs"]), |guest, image| {
            guest.disk(image)
        });
    let report = guest.boot().succeeded();
    for ((image, before), disk) in images.iter().zip(before).zip(["vda", "vdb"]) {
        let mount = &report.section(&format!("{disk} mount"))[0];
        assert!(mount.contains(" rw,"), "{mount}");
        assert!(
            !before.is_empty() && sums(&report, &format!("{disk} before")) == before,
            "{disk}"
        );
        let after = files(image);
        assert!(sums(&report, &format!("{disk} after")) == after, "{disk}");
        assert!(
            after.contains_key("/New/another name") && after.len() > before.len(),
            "{disk}"
        );
        check(image);
        change(image, 9, 50);
        check(image);
    }
}

/// Checks that the container has no problems, regardless of its last writer.
fn check(image: &Path) {
    let found = open::examine(image, &OpenOptions::default(), &Silent)
        .expect("a check")
        .problems;
    assert!(found.worst() <= Some(Severity::Note), "{found:#?}");
}

/// Parses the guest's checksums of the files in a section.
fn sums(report: &Report, section: &str) -> BTreeMap<String, String> {
    let lines = report
        .section(section)
        .iter()
        .filter_map(|line| line.split_once("  ."));
    lines
        .map(|(sum, path)| (path.to_owned(), sum.to_owned()))
        .collect()
}

fn files(image: &Path) -> BTreeMap<String, String> {
    let opened = open::open(image, &OpenOptions::default()).expect("opening an image");
    let container = opened.volumes()[0].container().expect("a container");
    assert!(
        container.problems().is_empty(),
        "{:?}",
        container.problems()
    );
    container.trusted_free_map().expect("a map in order");
    our_files(&*opened.file_system(None).expect("a volume"))
}

fn change(image: &Path, seed: u64, operations: u64) {
    let mut random = Random::new(seed);
    let options = OpenOptions {
        access: Access::ReadWrite,
        ..OpenOptions::default()
    };
    let opened = open::open(image, &options).expect("opening an image");
    let fs = opened
        .file_system_mut(None)
        .expect("a volume that can be changed");
    for _ in 0..operations {
        operate(&*fs, &mut random);
    }
    fs.unmount().expect("an unmount");
}
