//! Kernel block devices: the command attaches images in a Linux guest, whose kernel mounts their
//! volumes.

use crate::programs::Program;
use crate::qemu::{self, Guest};
use crate::suite::Suite;

const MKFS_EXFAT: Program = Program::Command(&["mkfs.exfat"]);

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[Program::Bandsaw, MKFS_EXFAT]].concat();
    suite
        .heavy_peer("linux with our disks", "boots Linux in an emulator", &needs)
        .test("images_are_attached", images_are_attached)
        .test(
            "kernel_file_systems_are_measured",
            kernel_file_systems_are_measured,
        );
}

/// Shell functions for commands that must fail, and their messages, in a section.
const PRELUDE: &str = r#"
mkdir -m 700 /tmp/run
export XDG_RUNTIME_DIR=/tmp/run RUST_BACKTRACE=1
ln -s bandsaw /bin/hdiutil
cd /tmp
fails() { if "$@"; then echo "succeeded: $*"; exit 1; fi; }
written() { bandsaw cat "$1" | sha256sum; }
"#;

/// Images are attached, changed, refused while in use, detached by each of their names; removed
/// with their server; and mounted as folders if the kernel has no NBD support.
const WORK: &str = r#"
section attach
bandsaw create x.sparsebundle --size 64m --fs hfs+ --volname Vol
bandsaw attach x.sparsebundle
bandsaw list
hdiutil info
mount -t hfsplus /dev/nbd0p1 /mnt
mkdir /mnt/folder
dd if=/dev/urandom of=/mnt/folder/file bs=64k count=100 2>/dev/null
sum=$(sha256sum </mnt/folder/file)
section mounted
fails bandsaw detach disk1
fails bandsaw detach /dev/nbd0
fails hdiutil detach /dev/nbd0p1
umount /mnt
section open
sleep 1000 </dev/nbd0p1 &
fails bandsaw detach disk1
kill $!
wait $! || :
section detach
bandsaw detach /dev/nbd0
bandsaw list
test ! -e /sys/block/nbd0/pid
test "$(written x.sparsebundle:/folder/file)" = "$sum"
bandsaw check x.sparsebundle

section space
bandsaw attach x.sparsebundle --json
before=$(du -s x.sparsebundle | cut -f1)
mount -t hfsplus /dev/nbd0p1 /mnt
rm /mnt/folder/file
umount /mnt
dd if=/dev/zero bs=512 count=1 2>/dev/null | tr '\0' 'x' >/tmp/sector
dd if=/tmp/sector of=/dev/nbd0 bs=512 seek=20000 conv=fsync 2>/dev/null
dd if=/dev/nbd0 bs=512 skip=20000 count=1 2>/dev/null | cmp - /tmp/sector
blkdiscard -o 10240000 -l 512 /dev/nbd0
hdiutil detach disk1
bandsaw attach x.sparsebundle
bandsaw detach x.sparsebundle
test "$(du -s x.sparsebundle | cut -f1)" -lt $((before - 4000))

section killed
bandsaw attach x.sparsebundle
mount -t hfsplus /dev/nbd0p1 /mnt
dd if=/dev/urandom of=/mnt/kept bs=64k count=20 2>/dev/null
sum=$(sha256sum </mnt/kept)
sync
kill -9 "$(bandsaw list --json | grep '"process"' | tr -dc 0-9)"
while bandsaw list | grep -q disk1; do sleep 0.1; done
umount /mnt
test ! -e /sys/block/nbd0/pid
test "$(written x.sparsebundle:/kept)" = "$sum"

section forced
bandsaw create v.sparsebundle --size 64m --fs hfs+
bandsaw attach v.sparsebundle
mount -t hfsplus /dev/nbd0p1 /mnt
cp /tmp/sector /mnt/late
bandsaw detach --force disk1
umount /mnt
written v.sparsebundle:/late
sha256sum </tmp/sector

section read-only
bandsaw attach --read-only x.sparsebundle
fails dd if=/dev/zero of=/dev/nbd0 bs=512 count=1
mount -t hfsplus -o ro /dev/nbd0p1 /mnt
ls /mnt
umount /mnt
bandsaw create y.asif --size 4g
bandsaw attach y.asif
bandsaw list
bandsaw detach disk1
bandsaw detach /dev/nbd1

section folders
bandsaw attach --folders x.sparsebundle
bandsaw detach disk1
rmmod nbd
bandsaw attach x.sparsebundle
ls /Volumes/Vol
bandsaw detach /Volumes/Vol
"#;

fn images_are_attached() {
    let command = Program::Bandsaw.find().expect("it is there");
    let guest =
        Guest::new(format!("{PRELUDE}{WORK}")).modules(&["nbd", "fuse", "nls_utf8", "hfsplus"]);
    let report = guest
        .program_as(&command, "/bin/bandsaw")
        .boot()
        .succeeded();
    let said = |section: &str| report.section(section).join("\n");
    let attached = said("attach");
    assert!(
        attached.contains("disk1  UDSB  x.img  /dev/nbd0") && attached.contains("/dev/disk1\t"),
        "{attached}"
    );
    let mounted = said("mounted");
    assert!(
        mounted.matches("a mount on /mnt").count() == 3 && mounted.contains("--force"),
        "{mounted}"
    );
    assert!(said("open").contains("sleep (process "), "{}", said("open"));
    assert!(
        said("detach").contains("disk1 detached"),
        "{}",
        said("detach")
    );
    assert!(
        said("space").contains(r#""mount_point": "/dev/nbd0""#),
        "{}",
        said("space")
    );
    let sums: Vec<_> = report
        .section("forced")
        .iter()
        .filter(|line| line.ends_with("  -"))
        .collect();
    assert!(sums.len() == 2 && sums[0] == sums[1], "{}", said("forced"));
    let read_only = said("read-only");
    assert!(
        read_only.contains("/dev/nbd0  read-only")
            && read_only.contains("kept")
            && read_only.contains("/dev/nbd1"),
        "{read_only}"
    );
    let folders = said("folders");
    assert!(
        folders.matches("/Volumes/Vol").count() == 2 && folders.contains("kept"),
        "{folders}"
    );
    assert!(!folders.contains("/dev/nbd"), "{folders}");
}

/// Images are measured with the kernel's file system on them; nothing is left attached, also after
/// a failure.
const BENCHMARK: &str = r#"
mkdir /tmp/bench
section measured
bandsaw bench images /tmp/bench --type udsb,udsp --cipher none,aes-256 --fs hfs+ --via kernel --protocol steady \
    --scale 0.0001 --sets 2 --pause 0 --output /tmp/results.json
grep '"via"' /tmp/results.json
section journal
fails bandsaw bench images /tmp/bench --fs hfs+j --via kernel --scale 0.0001
section plan
mkdir /exfat
mount -t exfat /dev/vda /exfat
bandsaw bench articles /tmp/bench --dry-run --scale 0.0001 --without-holes /exfat
fails bandsaw bench articles /tmp/bench --dry-run --scale 0.0001 --without-holes /tmp
section holes
bandsaw bench images /exfat --protocol space --type udrw,asif --fs apfs --scale 0.0001 --sets 2 --pause 0 --json 2>/dev/null
section failed
rmmod hfsplus
fails bandsaw bench images /tmp/bench --type udsb --fs hfs+ --via kernel --protocol steady --scale 0.0001 --sets 2 --pause 0
bandsaw list >/tmp/left
rmmod nbd
fails bandsaw bench images /tmp/bench --type udsb --fs hfs+ --via kernel --protocol steady --scale 0.0001 --sets 2 --pause 0
section left
cat /tmp/left
bandsaw list
ls /tmp/bench /exfat
"#;

fn kernel_file_systems_are_measured() {
    let command = Program::Bandsaw.find().expect("it is there");
    let scratch = crate::scratch();
    let medium = scratch.path().join("medium");
    std::fs::File::create(&medium)
        .and_then(|file| file.set_len(400 << 20))
        .expect("making a disk");
    let mut format = MKFS_EXFAT.command();
    assert!(
        format
            .arg(&medium)
            .output()
            .expect("mkfs.exfat")
            .status
            .success()
    );
    let report = Guest::new(format!("{PRELUDE}{BENCHMARK}"))
        .modules(&["nbd", "fuse", "nls_utf8", "hfsplus", "exfat"])
        .disk(&medium)
        .program_as(&command, "/bin/bandsaw")
        .boot()
        .succeeded();
    let said = |section: &str| report.section(section).join("\n");
    let measured = said("measured");
    for image in ["UDSB, HFS+, kernel", "UDSP AES-256, HFS+, kernel"] {
        assert!(measured.contains(image), "{measured}");
    }
    assert!(measured.contains(r#""via": "kernel""#), "{measured}");
    assert!(
        said("journal").contains("HFS+ without a journal"),
        "{}",
        said("journal")
    );
    // Sizes on a medium without holes: that of a raw image is the disk's from the beginning.
    let plan = said("plan");
    assert!(
        plan.contains("without-holes  5 subjects") && plan.contains("without sparse files"),
        "{plan}"
    );
    let sizes: serde_json::Value = serde_json::from_str(&said("holes")).expect("a report");
    let new = |image: &str| {
        let series = sizes["series"].as_array().expect("series");
        let one = series
            .iter()
            .find(|one| one["label"] == image)
            .expect(image);
        let space = one["space"].as_array().expect("sizes");
        let new = space.iter().find(|space| space["at"] == "new");
        new.and_then(|space| space["on_disk"].as_u64())
            .expect("a size")
    };
    let (raw, asif) = (new("UDRW, APFS, library"), new("ASIF, APFS, library"));
    assert!(raw >= 64 << 20 && asif < raw / 4, "{raw} {asif}");
    // Three types and three ciphers through three interfaces with two file systems each, and by the
    // kernel with one; and the host.
    assert!(plan.contains("rewrite       64 subjects"), "{plan}");
    let failed = said("failed");
    assert!(failed.contains("network block device"), "{failed}");
    let left = said("left");
    assert!(
        !left.contains("disk1") && !left.contains("bandsaw-bench"),
        "{left}"
    );
}
