//! Volumes with one corrupt structure each, repaired by us: the kernel mounts each of them, reads
//! the same contents as we do, and changes it. Tests beside the repair check that everything that
//! can be recovered is recovered.

use std::sync::Arc;

use bandsaw::device::{BlockDevice, Memory, Slice};
use bandsaw::fs::hfsplus::{HfsPlus, Repair, check};
use bandsaw::partition::APPLE_HFS;
use bandsaw::partition::gpt::{self, NewPartition};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::store::Open;
use bandsaw::testing::corruptions;
use uuid::Uuid;

use crate::disk::{self, DISK_GUID};
use crate::tree::{Kind, Listing, assert_same};
use crate::{guest_listing, ours};

const MIB: u64 = 1 << 20;
/// Space for a volume on the disk, in bytes.
const PLACE: u64 = 8 * MIB;
/// Piece size in bytes when a volume is written; pieces of zeros are omitted.
const PIECE: usize = 64 << 10;
static ZEROS: [u8; PIECE] = [0; PIECE];

pub(crate) fn every_kind_of_damage() {
    let damages: Vec<_> = corruptions::hfsplus().collect();
    assert!(damages.len() >= 50);
    let scratch = crate::scratch();
    let path = scratch.path().join("disk.img");
    let file = std::fs::File::create(&path).expect("making the disk");
    file.set_len((damages.len() as u64 + 1) * PLACE)
        .expect("making the disk");
    drop(file);
    let places = |index: usize| MIB + index as u64 * PLACE..MIB + (index as u64 + 1) * PLACE;
    let partitions: Vec<_> = (0..damages.len())
        .map(|index| NewPartition {
            range: places(index),
            type_guid: APPLE_HFS,
            guid: Uuid::new_v4(),
            name: String::new(),
        })
        .collect();
    let disk: Arc<dyn BlockDevice> = Arc::new(disk::open(&path, Open::Write));
    gpt::create(&*disk, 512, DISK_GUID, &partitions).expect("making a map");
    let mut repaired = Vec::new();
    for (index, (words, bytes)) in damages.iter().enumerate() {
        let device = Arc::new(Memory::from(bytes.clone()));
        let repair = Repair::plan(device.clone(), &Silent)
            .unwrap_or_else(|error| panic!("{words}: {error}"));
        repair
            .apply(&Silent)
            .unwrap_or_else(|error| panic!("{words}: {error}"));
        let bytes = device.to_vec();
        let pieces = bytes
            .chunks(PIECE)
            .zip((places(index).start..).step_by(PIECE));
        for (piece, at) in pieces.filter(|(piece, _)| *piece != &ZEROS[..piece.len()]) {
            disk.write_at(at, piece).expect("writing the volume");
        }
        repaired.push(ours::list(
            &HfsPlus::open(device).unwrap_or_else(|error| panic!("{words}: {error}")),
        ));
    }
    disk.flush().expect("flushing");

    let script = format!("last={}\n{SCRIPT}", damages.len());
    let report = guest_listing::guest(&script)
        .modules(&["nls_utf8", "hfsplus"])
        .disk(&path)
        .boot()
        .succeeded();
    let mut said = report.kernel_about("hfsplus");
    said.retain(|line| !line.ends_with("only inline data xattr are supported"));
    assert_eq!(said, Vec::<&str>::new());
    for (index, ((words, _), repaired)) in damages.iter().zip(&repaired).enumerate() {
        let name = (index + 1).to_string();
        let [mount] = report.section(&name) else {
            panic!("{words}: no answer")
        };
        assert!(mount.contains(" rw,"), "{words}: {mount}");
        let (ours, theirs) = (
            without_attributes(repaired),
            guest_listing::parse(&report, &format!("{name} files")),
        );
        if ours != theirs {
            eprintln!("{words}:");
        }
        assert_same(&ours, &theirs);
        let volume = Arc::new(Slice::new(disk.clone(), places(index)).expect("the disk has it"));
        let mut found = check(volume.clone(), &Silent).expect("a check");
        found.retain(|problem| problem.severity > Severity::Note);
        assert!(found.is_empty(), "{words}, after the kernel: {found:#?}");
        let after =
            ours::list(&HfsPlus::open(volume).unwrap_or_else(|error| panic!("{words}: {error}")));
        let file = after
            .get("new/file")
            .unwrap_or_else(|| panic!("{words}: the guest's file is not there"));
        assert!(
            matches!(file.kind, Kind::File { len: 15, .. }),
            "{words}: {file:?}"
        );
        assert!(
            !after.keys().any(|path| path.contains("/file 1")),
            "{words}: the guest removed these"
        );
    }
}

/// Removes the attributes, which take the guest long to list.
fn without_attributes(files: &Listing) -> Listing {
    let mut files = files.clone();
    files.values_mut().for_each(|item| item.xattrs.clear());
    files
}

/// Prints the mount options and the files of each volume; then creates and removes some.
const SCRIPT: &str = r#"
for number in $(seq $last); do
    mount -t hfsplus /dev/vda$number /mnt
    section $number
    grep /mnt /proc/mounts
    cd /mnt
    list_files "$number files"
    mkdir new
    echo from the guest >new/file
    find . -type f -name 'file 1*' -exec rm {} +
    cd /
    umount /mnt
done
"#;
