//! FAT and exFAT volumes.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::foreign::check_map;
use super::{describe, disk};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::exfat::{self, ExFatVolume};
use crate::fs::fat::{self, FatVolume};
use crate::fs::{Ancestors, FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use crate::progress::Silent;

/// Maximum number of entries that are looked at.
const MAX_ENTRIES: usize = 2000;
/// Maximum number of bytes read of a file.
const MAX_READ: u64 = 16 << 10;

/// Takes an input that describes a disk with a FAT volume. The volume opens or is refused, its free map is
/// consistent, and all of its objects can be looked at.
pub fn fat_volume(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let bytes = disk.to_vec();
    let len = bytes.len() as u64;
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let _ = fat::stated_len(&*device);
    let _ = fat::check(device.clone(), &Silent);
    if let Ok(map) = fat::free_map(device.clone()) {
        check_map(map, len);
    }
    if let Ok(volume) = FatVolume::open(device) {
        walk(&volume);
    }
}

/// Takes an input that describes a disk with an exFAT volume, as [`fat_volume`] does.
pub fn exfat_volume(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let mut bytes = disk.to_vec();
    // Otherwise nothing behind the checksum would be reached.
    exfat::fixture::seal_exfat(&mut bytes);
    let len = bytes.len() as u64;
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let _ = exfat::stated_len(&*device);
    let _ = exfat::check(device.clone(), &Silent);
    if let Ok(map) = exfat::free_map(device.clone()) {
        check_map(map, len);
    }
    if let Ok(volume) = ExFatVolume::open(device) {
        walk(&volume);
    }
}

fn walk(volume: &dyn FileSystem) {
    let _ = volume.volume();
    let mut left = MAX_ENTRIES;
    let (mut ahead, mut ancestors) = (vec![(volume.root(), 0)], Ancestors::default());
    while let Some((folder, depth)) = ahead.pop() {
        if ancestors.enter(folder, depth).is_err() {
            continue;
        }
        let mut entries = Vec::new();
        let _ = volume.list(folder, &mut |entry| {
            left = left.saturating_sub(1);
            entries.push(entry);
            Ok(match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            })
        });
        for entry in entries {
            assert!(!matches!(&*entry.name, "" | "." | ".."), "{:?}", entry.name);
            assert!(!entry.name.contains(['/', '\0']), "{:?}", entry.name);
            let id = entry.attributes.id;
            if entry.attributes.kind == FileKind::Folder && left > 0 {
                ahead.push((id, depth + 1));
            }
            if let Ok(again) = volume.attributes(id) {
                assert_eq!(again.id, id);
            }
            if let Ok(contents) = volume.open(id, Fork::Data) {
                let len = contents.info().len.min(MAX_READ);
                let _ = contents.read_vec(0, len as usize);
            }
        }
    }
    let _ = volume.resolve("/folder/inner/deep.bin");
    let _ = volume.attributes(NodeId(u64::MAX));
}

pub(super) fn fat_seeds() -> Vec<Vec<u8>> {
    use fat::fixture::{Width, fat, volume};
    let mut seeds = Vec::new();
    for width in [Width::Fat12, Width::Fat16, Width::Fat32] {
        seeds.push(describe(&fat(width, 2..30)));
    }
    // A FAT32 volume is longer than the disks that inputs describe.
    for width in [Width::Fat12, Width::Fat16] {
        seeds.push(describe(&volume(width)));
    }
    seeds
}

pub(super) fn exfat_seeds() -> Vec<Vec<u8>> {
    use exfat::fixture::{exfat, volume};
    vec![describe(&exfat(2..20)), describe(&volume())]
}
