//! The Linux kernel's own drivers, in a guest.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::{BlockDevice, Slice};
use bandsaw::fs::hfsplus::{self, HfsPlus, HfsPlusMut, WriteOptions};
use bandsaw::fs::{
    ExistingTarget, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, NewKind, NewNode,
};
use bandsaw::problem::{Problem, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::Open;

use crate::common::corpus;
use crate::guest_listing::{self, GETFATTR};
use crate::programs::{Program, SEVEN_ZIP, run};
use crate::qemu::{self, Guest};
use crate::suite::Suite;
use crate::tree::{Kind, assert_same, sha256};
use crate::volume::Volume;
use crate::{disk, ours, repaired_volumes, volume};

const HFSPLUS: [&str; 2] = ["nls_utf8", "hfsplus"];
const SETFATTR: Program = Program::Command(&["setfattr"]);

pub(crate) fn add(suite: &mut Suite) {
    let needs = [&qemu::NEEDS[..], &[SEVEN_ZIP, GETFATTR, SETFATTR]].concat();
    suite
        .heavy_peer("linux", "boots Linux in an emulator", &needs)
        .test("guest", guest)
        .test("partitions", partitions)
        .test("our_volumes", our_volumes)
        .test("resized_volumes", resized_volumes)
        .test("repaired_volumes", repaired_volumes)
        .test(
            "every_kind_of_damage",
            repaired_volumes::every_kind_of_damage,
        )
        .corpus_test("real_volume", real_volume);
}

/// A failing command is detected, and the output before it is kept.
fn guest() {
    let report = Guest::new("section first\ncat /text\nsection second\nls /nowhere\necho never\n")
        .file("/text", "of this\n")
        .boot();
    assert_eq!(report.section("first"), ["of this"]);
    assert_eq!(
        report.section("second"),
        ["ls: /nowhere: No such file or directory"]
    );
    assert_ne!(report.status, 0);
    assert!(!report.section("kernel").is_empty());
}

/// The kernel recognizes our partitions, with any sector size.
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
        // The kernel counts in 512 bytes, with any sector size of the disk.
        let expected = disk::partitions(block).into_iter().map(|partition| {
            let range = partition.range;
            format!("{} {}", range.start / 512, (range.end - range.start) / 512)
        });
        assert_eq!(report.section(name), expected.collect::<Vec<_>>());
    }
}

/// Of the volumes built as a whole, one in a partition and one on a whole disk; and those filled
/// file by file.
fn our_volumes() {
    let volumes = volume::all().iter().filter(|volume| {
        !volume.resized && (volume.changed || volume.mapped != volume.case_sensitive)
    });
    rework(volumes.zip(["vda1", "vdb", "vdc", "vdd"]).collect());
}

/// Volumes with a journal that were grown and shrunk.
fn resized_volumes() {
    rework(
        volume::all()
            .iter()
            .filter(|volume| volume.resized)
            .zip(["vda1", "vdb1"])
            .collect(),
    );
}

/// The kernel reads our volumes correctly, and changes them without an error; we read the changes.
fn rework(volumes: Vec<(&Volume, &str)>) {
    let scratch = crate::scratch();
    let names: Vec<_> = volumes.iter().map(|(_, name)| *name).collect();
    let script = format!("volumes='{}'\n{REWORK}", names.join(" "));
    let mut guest = guest_listing::guest(&script).modules(&HFSPLUS);
    for (volume, name) in &volumes {
        let copy = scratch.path().join(name);
        std::fs::copy(&volume.disk, &copy).expect("copying the disk");
        guest = guest.disk(&copy);
    }
    let report = guest.boot().succeeded();

    // Only this limitation may be logged, once per listing; any other message is an error.
    let mut said = report.kernel_about("hfsplus");
    said.retain(|line| !line.ends_with("only inline data xattr are supported"));
    assert_eq!(said, Vec::<&str>::new());
    for (volume, name) in volumes {
        let mount = &report.section(&format!("{name} mount"))[0];
        assert!(mount.contains(" rw,"), "{mount}");
        assert_same(
            &guest_listing::visible(&volume.files),
            &guest_listing::parse(&report, &format!("{name} before")),
        );
        let free = |volume: &HfsPlus| {
            (volume.volume().free / u64::from(volume.volume().block_size)).to_string()
        };
        let built = ours::open(&volume.disk, volume.range.clone());
        assert_eq!(
            report.section(&format!("{name} free before")),
            [free(&built)]
        );
        let after = guest_listing::parse(&report, &format!("{name} after"));
        let reworked = ours::open(&scratch.path().join(name), volume.range.clone());
        assert_same(&after, &guest_listing::visible(&ours::list(&reworked)));
        assert_eq!(
            report.section(&format!("{name} free after")),
            [free(&reworked)]
        );
        assert!(reworked.problems().is_empty(), "{:?}", reworked.problems());
        let findings = unexpected(ours::check(
            &scratch.path().join(name),
            volume.range.clone(),
        ));
        assert!(findings.is_empty(), "{name}: {findings:?}");
        change_again(&scratch.path().join(name), volume.range.clone());
        assert_eq!(
            after["New/file"].kind,
            Kind::File {
                len: 15,
                sha256: sha256(b"from the guest\n")
            }
        );
        assert_eq!(after["Links/first name"].links, 3);
        assert!(!after.contains_key("Many/07"));
    }
}

/// Volumes that lost the head of their catalog, a part of their bitmap and the first header are
/// repaired, and the kernel reads all of their contents.
fn repaired_volumes() {
    let scratch = crate::scratch();
    let volumes = volume::all()
        .iter()
        .filter(|volume| !volume.mapped && !volume.changed);
    let mut guest = guest_listing::guest(
        "for disk in vda vdb; do\n\
         mount -t hfsplus /dev/$disk /mnt\n\
         cd /mnt\n\
         list \"$disk after\"\n\
         echo new >\"a new file\"\n\
         cd /\n\
         umount /mnt\n\
         done\n",
    )
    .modules(&HFSPLUS);
    let volumes: Vec<_> = volumes.zip(["vda", "vdb"]).collect();
    for (volume, name) in &volumes {
        let copy = scratch.path().join(name);
        std::fs::copy(&volume.disk, &copy).expect("copying the disk");
        ours::damage(&copy);
        assert!(!ours::check(&copy, volume.range.clone()).is_empty());
        ours::repair(&copy);
        let findings = ours::check(&copy, volume.range.clone());
        assert!(findings.is_empty(), "{name}: {findings:?}");
        guest = guest.disk(&copy);
    }
    let report = guest.boot().succeeded();
    let mut said = report.kernel_about("hfsplus");
    said.retain(|line| !line.ends_with("only inline data xattr are supported"));
    assert_eq!(said, Vec::<&str>::new());
    for (volume, name) in volumes {
        assert_same(
            &guest_listing::visible(&volume.files),
            &guest_listing::parse(&report, &format!("{name} after")),
        );
        let findings = ours::check(&scratch.path().join(name), volume.range.clone());
        assert!(findings.is_empty(), "{name}: {findings:?}");
    }
}

/// Returns the findings except those about hard link chains: the kernel's driver does not support
/// chains, and does not mark links that it adds.
fn unexpected(mut findings: Vec<Problem>) -> Vec<Problem> {
    findings.retain(|problem| {
        problem.severity == Severity::Damage
            || !problem.error.message().contains("marked as a chain")
    });
    findings
}

/// Checks that the guest's volume can be changed further, and is consistent before and after.
fn change_again(disk: &Path, range: Range<u64>) {
    let disk: Arc<dyn BlockDevice> = Arc::new(disk::open(disk, Open::Write));
    let volume: Arc<dyn BlockDevice> =
        Arc::new(Slice::new(disk, range).expect("the volume is on the disk"));
    let sound = || {
        let problems =
            unexpected(hfsplus::check(volume.clone(), &Silent).expect("checking the volume"));
        assert!(problems.is_empty(), "{problems:#?}");
    };
    sound();
    let fs = HfsPlusMut::open(volume.clone(), WriteOptions::default()).expect("opening the volume");
    let new = fs.resolve("New").expect("what the guest made").id;
    for entry in fs
        .entries(fs.resolve("Many/11").expect("what was there").id)
        .expect("listing")
    {
        let from = fs.resolve("Many/11").expect("what was there").id;
        fs.rename(
            (from, &entry.name),
            (new, &entry.name),
            ExistingTarget::Replace,
        )
        .expect("moving");
    }
    let id = fs
        .create(new, "made after the guest", &NewNode::new(NewKind::File))
        .expect("making a file");
    fs.write_all(id, &[7; 100_000]).expect("writing it");
    fs.remove(new, "the café").expect("removing a file");
    fs.unmount().expect("leaving the volume clean");
    sound();
}

/// Creates, changes, moves and removes files, in the middle of full B-trees.
const REWORK: &str = r#"
for disk in $volumes; do
    # The kernel writes to a volume with a journal only if it is told to.
    mount -t hfsplus -o force /dev/$disk /mnt
    section "$disk mount"
    grep /mnt /proc/mounts
    cd /mnt
    list "$disk before"
    section "$disk free before"
    stat -f -c %f .
    mkdir New
    echo from the guest >New/file
    for number in $(seq 200); do echo $number >"Many/11/between $number"; done
    mv "Names/café" "New/the café"
    mv Deep New/Deep
    rm -r Many/07 "Sizes/zeros"
    rm "Links/second name"
    ln "Links/elsewhere/third name" "New/third name too"
    ln "Names/plain" "New/plain too"
    ln -s "../Names/Zebra" New/link
    head -c 100000 /dev/urandom >>"Sizes/4097 bytes"
    head -c 1000 /dev/urandom | dd of="Sizes/30 MB" bs=1000 seek=20000 conv=notrunc status=none
    chmod 600 "Names/alpha"
    touch -d '2001-09-09 01:46:40' "Names/Beta"
    cd /
    umount /mnt
    mount -t hfsplus -o ro /dev/$disk /mnt
    cd /mnt
    list "$disk after"
    section "$disk free after"
    stat -f -c %f .
    cd /
    umount /mnt
done
"#;

/// A volume made by macOS and changed by Linux: the guest's checksums of the old files are those of
/// the manifest, and we read all that it wrote, moved and removed. 7zz also reads the volume, as an
/// independent check of the guest.
fn real_volume() {
    let image = corpus::image("linux::real_volume", "raw/gofilesystems-hfsplus.dmg.gz")
        .expect("the corpus has it");
    let scratch = crate::scratch();
    let disk = scratch.path().join("disk.img");
    std::fs::write(
        &disk,
        image
            .bytes()
            .expect("is a folder, expected a file of format packed"),
    )
    .expect("writing the image");
    let old = image.files();
    let sums: Vec<_> = old
        .iter()
        .map(|file| format!("{}  .{}\n", file.sha256, file.path))
        .collect();

    let report = guest_listing::guest(WORK)
        .modules(&HFSPLUS)
        .program(SETFATTR)
        .file("/sums", sums.concat())
        .disk(&disk)
        .boot()
        .succeeded();

    assert!(
        report.section("mount")[0].contains(" rw,"),
        "mounted {:?}",
        report.section("mount")
    );
    assert_eq!(report.section("sums").len(), old.len());
    assert_eq!(report.kernel_about("hfsplus"), Vec::<&str>::new());
    let text = guest_listing::parse(&report, "list");
    assert!(text.len() > 250, "only {} files", text.len());
    let volume = ours::open(
        &disk,
        0..std::fs::metadata(&disk).expect("the disk is there").len(),
    );
    assert_same(&text, &guest_listing::visible(&ours::list(&volume)));
    let found = run(SEVEN_ZIP
        .command()
        .args(["e", "-so", "-sns-"])
        .arg(&disk)
        .arg("*/guest.txt"));
    assert_eq!(found, b"from the guest\n");
}

/// Enough for B-trees to split and shrink, and two files with more extents than a catalog record
/// can store.
const WORK: &str = r#"
mount -t hfsplus /dev/vda /mnt
section mount
grep /mnt /proc/mounts
section sums
cd /mnt
sha256sum -c /sums
section work
mkdir -p many/more "many/mañana"
for number in $(seq 400); do echo "file $number" >"many/file $number"; done
for number in $(seq 3 3 400); do rm "many/file $number"; done
for number in $(seq 1 7 400); do [ ! -f "many/file $number" ] || mv "many/file $number" "many/more/moved $number"; done
for piece in $(seq 12); do
    for name in odd even; do head -c 65536 /dev/urandom >>$name; sync; done
done
echo from the guest >guest.txt
cp guest.txt new.txt
ln new.txt "many/mañana/a second name"
ln -s ../new.txt many/pointer
mkfifo -m 640 many/fifo
chmod 4711 new.txt
touch -d '2001-09-09 01:46:40' many/more
setfattr -n user.color -v blue new.txt
cd /
umount /mnt
mount -t hfsplus -o ro /dev/vda /mnt
cd /mnt
list list
cd /
umount /mnt
"#;
