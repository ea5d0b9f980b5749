//! The Linux kernel's own drivers, in a guest.

use crate::programs::{Program, SEVEN_ZIP, run};
use crate::qemu::{self, Guest};
use crate::suite::Suite;
use crate::{corpus, disk};

const GETFATTR: Program = Program::Command(&["getfattr"]);
const SETFATTR: Program = Program::Command(&["setfattr"]);

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[SEVEN_ZIP, GETFATTR, SETFATTR]].concat();
    suite.peer("linux", &needs).test("guest", guest).test("partitions", partitions).corpus_test("real_volume", real_volume);
}

/// A failing command is seen, and what was printed before it is not lost.
fn guest() {
    let report =
        Guest::new("section first\ncat /told\nsection second\nls /nowhere\necho never\n").file("/told", "of this\n").boot();
    assert_eq!(report.section("first"), ["of this"]);
    assert_eq!(report.section("second"), ["ls: /nowhere: No such file or directory"]);
    assert_ne!(report.status, 0);
    assert!(!report.section("kernel").is_empty());
}

/// The kernel finds our partitions, whatever the size of a sector.
fn partitions() {
    let (_scratch, small) = disk::with_our_gpt(512);
    let (_scratch_too, large) = disk::with_our_gpt(4096);
    let report = Guest::new(
        "for disk in vda vdb; do\n\
         section $disk\n\
         for part in /sys/class/block/$disk?; do\n\
         echo $(cat $part/start $part/size)\n\
         done\n\
         done\n",
    )
    .disk(&small)
    .disk_of_sectors(&large, 4096)
    .boot()
    .succeeded();
    for (name, block) in [("vda", 512), ("vdb", 4096)] {
        // The kernel counts in 512 bytes, whatever the disk does.
        let expected = disk::partitions(block).into_iter().map(|partition| {
            let range = partition.range;
            format!("{} {}", range.start / 512, (range.end - range.start) / 512)
        });
        assert_eq!(report.section(name), expected.collect::<Vec<_>>());
    }
}

/// The guest reads what macOS wrote as the manifest says, and what it writes is found by others.
fn real_volume() {
    let image = corpus::image("raw/gofilesystems-hfsplus.dmg.gz");
    let scratch = crate::scratch();
    let disk = scratch.path().join("disk.img");
    std::fs::write(&disk, image.bytes).expect("writing the image");
    let sums: Vec<_> = image.files.iter().map(|(path, sha256)| format!("{sha256}  {}\n", path.trim_start_matches('/'))).collect();

    let report = Guest::new(
        "mount -t hfsplus /dev/vda /mnt\n\
         section mount\n\
         grep /mnt /proc/mounts\n\
         section sums\n\
         (cd /mnt; sha256sum -c /sums)\n\
         echo from the guest >/mnt/new.txt\n\
         setfattr -n user.color -v blue /mnt/new.txt\n\
         umount /mnt\n\
         mount -t hfsplus -o ro /dev/vda /mnt\n\
         section again\n\
         (cd /mnt; sha256sum -c /sums)\n\
         section xattr\n\
         (cd /mnt; getfattr --only-values -n user.color new.txt; echo)\n\
         umount /mnt\n",
    )
    .modules(&["nls_utf8", "hfsplus"])
    .program(GETFATTR)
    .program(SETFATTR)
    .file("/sums", sums.concat())
    .disk(&disk)
    .boot()
    .succeeded();

    assert!(report.section("mount")[0].contains(" rw,"), "mounted {:?}", report.section("mount"));
    assert_eq!(report.section("sums").len(), image.files.len());
    assert_eq!(report.section("again"), report.section("sums"));
    assert_eq!(report.section("xattr"), ["blue"]);
    assert_eq!(report.kernel_about("hfsplus"), Vec::<&str>::new());
    let found = run(SEVEN_ZIP.command().args(["e", "-so", "-sns-"]).arg(&disk).arg("*/new.txt"));
    assert_eq!(found, b"from the guest\n");
}
