//! Searches for deleted files on damaged volumes.

use std::sync::Arc;

use super::{SECTOR, describe, disk, hfsplus};
use crate::Kind;
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::apfs::{self, ApfsRecovery, Container, container_at};
use crate::fs::hfsplus::{HfsPlusRecovery, volume_around};
use crate::fs::{Fork, RecoveredFile};
use crate::progress::Silent;
use crate::{Error, Result};

/// Maximum number of bytes that are read of a file.
const MAX_READ: u64 = 1 << 16;

/// Takes an input that describes a disk. It is searched as a volume of HFS+ and as a container of APFS, and
/// everything that is found can be read; nothing is written.
pub fn recover(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(disk.to_vec()));
    if let Ok(recovery) = HfsPlusRecovery::open(device.clone()) {
        let scanned = recovery.scan(&Silent, &mut |file| {
            read(&file);
            Ok(())
        });
        check(scanned);
    }
    search_container(device);
    let mut bytes = disk.to_vec();
    apfs::reseal(&mut bytes);
    search_container(Arc::new(Memory::read_only(bytes)));
}

/// Takes an input that describes a disk. Each sector is read as a header of HFS+ and as a superblock of APFS;
/// a volume that is found is within the disk and contains the sector, and nothing is written.
pub fn lost_volumes(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let mut bytes = disk.to_vec();
    search_sectors(&bytes);
    apfs::reseal(&mut bytes);
    search_sectors(&bytes);
}

fn search_sectors(bytes: &[u8]) {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes.to_vec()));
    for (offset, sector) in (0..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
        for found in [
            volume_around(&device, offset, sector),
            container_at(&device, offset, sector),
        ] {
            if let Ok(Some(range)) = &found {
                assert!(range.contains(&offset), "{offset}: {range:?}");
                assert!(range.end <= bytes.len() as u64, "{offset}: {range:?}");
            }
            check(found);
        }
    }
}

fn search_container(device: Arc<dyn BlockDevice>) {
    let Ok(container) = Container::open(device, None).map(Arc::new) else {
        return;
    };
    let mut recovery = ApfsRecovery::new(&container);
    for number in 1..=container.labels().len().min(4) as u32 {
        let locked = |_: &_| Err(Error::new(Kind::WrongKey, "fuzz", "no key"));
        let _ = recovery.add(number, &locked);
    }
    let scanned = recovery.scan(&Silent, &mut |_, file| {
        read(&file);
        Ok(())
    });
    check(scanned);
}

fn read(file: &RecoveredFile) {
    assert!(file.path.starts_with('/'), "{}", file.path);
    for fork in [Fork::Data, Fork::Resource] {
        if let Ok(device) = file.open(fork) {
            let len = device.info().len.min(MAX_READ);
            let _ = device.read_vec(0, len as usize);
        }
    }
}

fn check<T>(scanned: Result<T>) {
    if let Err(error) = scanned {
        assert_ne!(error.kind(), Kind::ReadOnly, "{error}");
    }
}

/// Volumes of both formats behind some other sectors.
pub(super) fn lost_seeds() -> Vec<Vec<u8>> {
    // A multiple of the block size, so that the checksums of APFS can be corrected.
    const BEFORE: usize = 8 * SECTOR;
    let behind = |volume: Vec<u8>| describe(&[vec![0; BEFORE], volume].concat());
    let containers = super::apfs::container_seeds();
    let containers = containers.iter().filter_map(|seed| super::described(seed));
    let volumes = [hfsplus::sample(false, 512), hfsplus::sample(true, 4096)];
    volumes.into_iter().chain(containers).map(behind).collect()
}

/// Volumes as they are, and with a catalog whose header is lost, so that all of its records are found.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let whole = hfsplus::sample(false, 512);
    let mut damaged = whole.clone();
    let block = |at: usize| {
        let bytes = whole[at..at + 4].try_into().unwrap_or_default();
        u32::from_be_bytes(bytes) as usize
    };
    let catalog = block(1024 + 272 + 16) * 512;
    damaged[catalog..catalog + 512].fill(0);
    let mut seeds = vec![describe(&whole), describe(&damaged)];
    seeds.extend(super::apfs::container_seeds());
    seeds
}
