//! Searches for deleted files on damaged volumes.

use std::sync::Arc;

use super::{describe, disk, hfsplus};
use crate::Kind;
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::apfs::{self, ApfsRecovery, Container};
use crate::fs::hfsplus::HfsPlusRecovery;
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
