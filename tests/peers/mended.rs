//! Volumes with one structure damaged each, mended by us: the kernel mounts every one, finds what was in it and works on it.

use std::sync::Arc;

use bandsaw::device::{BlockDevice, Memory, Slice};
use bandsaw::fs::hfsplus::{Repair, check};
use bandsaw::partition::APPLE_HFS;
use bandsaw::partition::gpt::{self, NewPartition};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::store::Open;
use bandsaw::testing::damage;
use uuid::Uuid;

use crate::disk::{self, DISK_GUID};
use crate::qemu::Guest;

const MIB: u64 = 1 << 20;
/// Bytes of a place for a volume.
const PLACE: u64 = 8 * MIB;
/// Volumes that one guest mounts.
const AT_ONCE: usize = 26;

pub(crate) fn every_kind_of_damage() {
    let damages: Vec<_> = damage::hfsplus().collect();
    assert!(damages.len() >= 50);
    let scratch = crate::scratch();
    let path = scratch.path().join("disk.img");
    let file = std::fs::File::create(&path).expect("making the disk");
    file.set_len((damages.len() as u64 + 1) * PLACE).expect("making the disk");
    drop(file);
    let places = |index: usize| MIB + index as u64 * PLACE..MIB + (index as u64 + 1) * PLACE;
    let partitions: Vec<_> = (0..damages.len())
        .map(|index| NewPartition { range: places(index), type_guid: APPLE_HFS, guid: Uuid::new_v4(), name: String::new() })
        .collect();
    let open = || Arc::new(disk::open(&path, Open::Write)) as Arc<dyn BlockDevice>;
    let disk = open();
    gpt::create(&*disk, 512, DISK_GUID, &partitions).expect("making a map");
    for (index, (words, bytes)) in damages.iter().enumerate() {
        let device = Arc::new(Memory::from(bytes.clone()));
        let repair = Repair::plan(device.clone(), &Silent).unwrap_or_else(|error| panic!("{words}: {error}"));
        repair.apply(&Silent).unwrap_or_else(|error| panic!("{words}: {error}"));
        disk.write_at(places(index).start, &device.to_vec()).expect("writing the volume");
    }
    disk.flush().expect("flushing");

    let numbers: Vec<_> = (1..=damages.len()).map(|number| number.to_string()).collect();
    let reports = numbers.chunks(AT_ONCE).map(|numbers| {
        let script = format!("numbers='{}'\n{SCRIPT}", numbers.join(" "));
        let report = Guest::new(script).modules(&["nls_utf8", "hfsplus"]).disk(&path).boot().succeeded();
        let mut said = report.kernel_about("hfsplus");
        said.retain(|line| !line.ends_with("only inline data xattr are supported"));
        assert_eq!(said, Vec::<&str>::new());
        report
    });
    let reports: Vec<_> = reports.collect();
    for (index, (words, _)) in damages.iter().enumerate() {
        let report = &reports[index / AT_ONCE];
        let [mount, files, bytes] = report.section(&format!("{}", index + 1)) else { panic!("{words}: no answer") };
        assert!(mount.contains(" rw,"), "{words}: {mount}");
        // A leaf that is no node any more takes what was in it.
        let [files, bytes] = [files, bytes].map(|count| count.parse::<u32>().expect("a count"));
        assert!(files >= 80 && bytes == 5000 * files, "{words}: {files} files, {bytes} of their bytes are what they were");
        let volume = Arc::new(Slice::new(disk.clone(), places(index)).expect("the disk has it"));
        let mut found = check(volume, &Silent).expect("a check");
        found.retain(|problem| problem.severity > Severity::Note);
        assert!(found.is_empty(), "{words}, after the kernel: {found:#?}");
    }
}

/// Of each volume: how it is mounted, how many files of the right length there are, how many bytes are the right ones.
const SCRIPT: &str = r#"
for number in $numbers; do
    mount -t hfsplus /dev/vda$number /mnt
    section $number
    grep /mnt /proc/mounts
    find /mnt -type f -name 'file *' -size 5000c | wc -l
    find /mnt -type f -name 'file *' -size 5000c -exec cat {} + | tr -cd A | wc -c
    mkdir /mnt/new
    echo from the guest >/mnt/new/file
    find /mnt -type f -name 'file 1*' -exec rm {} +
    umount /mnt
done
"#;
