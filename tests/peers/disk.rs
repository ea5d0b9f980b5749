//! A partitioned disk of ours, for partition tools.

use std::fs::File;
use std::path::{Path, PathBuf};

use bandsaw::device::Memory;
use bandsaw::partition::gpt::{self, NewPartition};
use bandsaw::partition::{APPLE_APFS, APPLE_HFS, EFI_SYSTEM, Map};
use bandsaw::store::{LocalFile, Open};
use tempfile::TempDir;
use uuid::{Uuid, uuid};

pub(crate) const DISK_GUID: Uuid = uuid!("0d15c0de-1111-4222-8333-444455556666");
pub(crate) const DISK_LEN: u64 = 64 << 20;

/// Returns three partitions with gaps between them: the second has a name that is not ASCII, the
/// last one extends to the end.
pub(crate) fn partitions(block: u32) -> Vec<NewPartition> {
    let end = gpt::MapGeometry::of(DISK_LEN, block)
        .expect("64 MiB hold a map")
        .partition()
        .end;
    let mib = |at: u64| at << 20;
    [
        (mib(1)..mib(5), EFI_SYSTEM, "EFI System Partition"),
        (mib(8)..mib(30), APPLE_HFS, "Büro 日本"),
        (
            mib(30)..end,
            APPLE_APFS,
            "a name of exactly thirty-six letters",
        ),
    ]
    .into_iter()
    .zip(1..)
    .map(|((range, type_guid, name), number)| NewPartition {
        range,
        type_guid,
        guid: Uuid::from_u128(0xa0a1_a2a3_b4b5_4c6c_8d7d_e8e9_eaeb_ece0 + number),
        name: name.into(),
    })
    .collect()
}

/// Creates a disk image in a scratch folder, with a GPT of ours.
pub(crate) fn with_our_gpt(block: u32) -> (TempDir, PathBuf) {
    let disk = Memory::zeros(usize::try_from(DISK_LEN).expect("64 MiB fit"));
    gpt::create(&disk, block, DISK_GUID, &partitions(block)).expect("making a GPT");
    let (scratch, path) = blank();
    std::fs::write(&path, disk.to_vec()).expect("writing the disk");
    (scratch, path)
}

/// Creates an empty disk image in a scratch folder, for other programs.
pub(crate) fn blank() -> (TempDir, PathBuf) {
    let scratch = crate::scratch();
    let path = scratch.path().join("disk.img");
    File::create(&path)
        .and_then(|file| file.set_len(DISK_LEN))
        .expect("making a disk");
    (scratch, path)
}

/// Opens the disk as a device.
pub(crate) fn open(path: &Path, mode: Open) -> LocalFile {
    LocalFile::open(path, mode)
        .expect("opening the disk")
        .expect("the disk is there")
}

/// Returns our reading of a disk written by another program, which must have no problems.
pub(crate) fn our_view(path: &Path) -> Map {
    let map = bandsaw::partition::probe(&open(path, Open::Read))
        .expect("reading the map")
        .expect("found");
    assert!(map.problems.is_empty(), "{:?}", map.problems);
    map
}
