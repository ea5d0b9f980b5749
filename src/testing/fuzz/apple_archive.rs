//! Apple Archives, compressed or not.

use std::sync::Arc;

use crate::container::apple_archive::{AppleArchiveFile, fixture, probe};
use crate::container::mapped::{DiskMap, MappedDisk};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::apple_archive::{self as archive, AppleArchive};
use crate::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork};
use crate::problem::Severity;
use crate::progress::Silent;

/// Maximum number of bytes read of a fork.
const MAX_READ: u64 = 16 << 10;

/// Takes a file. It opens or is refused, its names are safe, and all of its objects can be looked at. Contents
/// that cannot be read are found by a check.
pub fn apple_archive(input: &[u8]) {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(input));
    if !matches!(probe(&*file), Ok(true)) {
        return;
    }
    let Ok(map) = AppleArchiveFile::open(file) else {
        return;
    };
    map.facts();
    let disk: Arc<dyn BlockDevice> = Arc::new(MappedDisk::new(map));
    let checked = archive::check(disk.clone(), &Silent);
    let Ok(archive) = AppleArchive::open(disk) else {
        assert!(
            checked.is_err(),
            "a check finds nothing wrong with an archive that does not open"
        );
        return;
    };
    let is_whole = checked.is_ok_and(|problems| {
        !problems
            .iter()
            .any(|problem| problem.severity == Severity::Damage)
    });
    let mut ahead = vec![archive.root()];
    while let Some(folder) = ahead.pop() {
        for entry in archive.entries(folder).expect("a folder of the list") {
            assert!(!matches!(&*entry.name, "" | "." | ".."), "{:?}", entry.name);
            assert!(!entry.name.contains(['/', '\0']), "{:?}", entry.name);
            if entry.attributes.kind == FileKind::Folder {
                ahead.push(entry.attributes.id);
            }
            look_at_object(&archive, &entry.attributes, is_whole);
        }
    }
}

fn look_at_object(archive: &AppleArchive, attributes: &Attributes, is_whole: bool) {
    let id = attributes.id;
    assert_eq!(archive.attributes(id).expect("it is listed").id, id);
    let _ = archive.read_link(id);
    for name in archive.xattrs(id).unwrap_or_default() {
        let _ = archive.xattr(id, &name);
    }
    if let Ok(fork) = archive.open(id, Fork::Resource) {
        assert_eq!(fork.info().len, attributes.resource_size);
    }
    if let Ok(contents) = archive.open(id, Fork::Data) {
        assert_eq!(contents.info().len, attributes.size);
        let len = contents.info().len.min(MAX_READ);
        let read = contents.read_vec(0, len as usize);
        assert!(read.is_ok() || !is_whole, "a check and a read disagree");
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain = archive::fixture::archive();
    let mut seeds: Vec<_> = b"-4exz"
        .iter()
        .map(|letter| fixture::packed(*letter, 1000, &plain))
        .collect();
    seeds.push(plain);
    seeds
}
