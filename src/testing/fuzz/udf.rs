//! UDF volumes.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::{describe, disk};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::fs::udf::fixture::{UdfForm, UdfOptions, seal, volume};
use crate::fs::udf::{UdfVolume, check, is_recognized, stated_len};
use crate::fs::{Ancestors, Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use crate::progress::Silent;

/// Maximum number of entries that are looked at.
const MAX_ENTRIES: usize = 2000;
/// Maximum number of bytes read of a fork.
const MAX_READ: u64 = 16 << 10;

/// Takes an input that describes a disk. The volume opens or is refused, and all of its objects can
/// be looked at, as it is and with right sums.
pub fn udf(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let mut bytes = disk.to_vec();
    look_at(bytes.clone());
    seal(&mut bytes);
    look_at(bytes);
}

fn look_at(bytes: Vec<u8>) {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(bytes));
    let _ = (is_recognized(&*device), stated_len(&device));
    let _ = check(device.clone(), &Silent);
    let Ok(volume) = UdfVolume::open(device) else {
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
            look_at_object(&volume, &entry.attributes);
        }
    }
    let _ = volume.resolve("/folder/deep.txt");
    let _ = volume.attributes(NodeId(u64::MAX));
}

fn look_at_object(volume: &UdfVolume, attributes: &Attributes) {
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
    let options = |revision, block_size, form, chains| UdfOptions {
        revision,
        block_size,
        form,
        chains,
    };
    [
        options(0x0201, 512, UdfForm::Plain, false),
        options(0x0201, 512, UdfForm::Plain, true),
        options(0x0102, 2048, UdfForm::Sparable, false),
        options(0x0150, 512, UdfForm::Virtual, false),
        options(0x0250, 512, UdfForm::Metadata, false),
    ]
    .iter()
    .map(|options| describe(&volume(options)))
    .collect()
}
