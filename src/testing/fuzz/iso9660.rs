//! ISO 9660 volumes.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{describe, disk};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::iso9660::{IsoVolume, check, fixture, stated_len};
use crate::fs::{Ancestors, Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use crate::progress::Silent;

/// Maximum number of entries that are looked at.
const MAX_ENTRIES: usize = 2000;
/// Maximum number of bytes read of a fork.
const MAX_READ: u64 = 16 << 10;

/// Takes an input that describes a disk. The volume opens or is refused, and all of its objects can
/// be looked at.
pub fn iso9660(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(disk.to_vec()));
    let _ = stated_len(&*device);
    let _ = check(device.clone(), &Silent);
    let Ok(volume) = IsoVolume::open(device) else {
        return;
    };
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
            if entry.attributes.kind == FileKind::Folder && left > 0 {
                ahead.push((entry.attributes.id, depth + 1));
            }
            look_at(&volume, &entry.attributes);
        }
    }
    let _ = volume.resolve("/folder/here/inner.txt");
    let _ = volume.attributes(NodeId(u64::MAX));
}

fn look_at(volume: &IsoVolume, attributes: &Attributes) {
    let id = attributes.id;
    if let Ok(again) = volume.attributes(id) {
        assert_eq!(again.id, id);
    }
    let _ = volume.read_link(id);
    for name in volume.xattrs(id).unwrap_or_default() {
        let _ = volume.xattr(id, &name);
    }
    for fork in [Fork::Data, Fork::Resource] {
        if let Ok(contents) = volume.open(id, fork) {
            let len = contents.info().len.min(MAX_READ);
            let _ = contents.read_vec(0, len as usize);
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let options = |block_size, rock_ridge, joliet| fixture::IsoOptions {
        block_size,
        rock_ridge,
        joliet,
    };
    [
        options(2048, true, true),
        options(512, true, false),
        options(2048, false, true),
        options(1024, false, false),
    ]
    .iter()
    .map(|options| describe(&fixture::volume(options)))
    .collect()
}
