//! Kernel block devices: the command attaches images in a Linux guest, whose kernel mounts their
//! volumes.

use crate::programs::Program;
use crate::qemu::{self, Guest};
use crate::suite::Suite;

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[Program::Bandsaw]].concat();
    suite
        .heavy_peer("linux with our disks", "boots Linux in an emulator", &needs)
        .test("images_are_attached", images_are_attached);
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
