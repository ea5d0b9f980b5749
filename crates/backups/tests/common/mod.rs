//! Volumes of backups, opened as an image is.

#[path = "../../../../tests/common/backupd.rs"]
pub(crate) mod backupd;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bandsaw::device::{BlockDeviceExt, Memory};
use bandsaw::fs::{FileKind, FileSystem, FileSystemExt, Fork, NodeId};
use bandsaw::open::{Image, OpenOptions, open_device};
use bandsaw_backups::{Backups, volumes_of};

use self::backupd::{History, Item, OFFSET, Objects};

/// Opens the bytes of a disk.
pub(crate) fn image(bytes: Vec<u8>) -> Image {
    let device = Arc::new(Memory::read_only(bytes));
    open_device(device, Path::new("backups.img"), &OpenOptions::default()).unwrap()
}

pub(crate) fn backups(bytes: Vec<u8>) -> Backups {
    Backups::read(volumes_of(&image(bytes), None, None).unwrap())
}

/// Both kinds of backups of a history.
pub(crate) fn both(history: &History) -> [(&'static str, Backups); 2] {
    [
        ("HFS+", backups(backupd::hfs_plus(history, |_, _| {}))),
        ("APFS", backups(backupd::apfs(history, |_, _| {}))),
    ]
}

/// Returns everything below a folder.
pub(crate) fn objects(fs: &dyn FileSystem, folder: NodeId) -> Objects {
    let mut all = BTreeMap::new();
    let mut ahead = vec![(String::new(), folder)];
    while let Some((path, id)) = ahead.pop() {
        for entry in fs.entries(id).unwrap() {
            let path = format!("{path}/{}", entry.name);
            let id = entry.attributes.id;
            let item = match entry.attributes.kind {
                FileKind::Folder => {
                    ahead.push((path.clone(), id));
                    Item::Folder
                }
                FileKind::Symlink => Item::Link(fs.read_link(id).unwrap()),
                _ => {
                    let file = fs.open(id, Fork::Data).unwrap();
                    let bytes = file.read_vec(0, file.info().len as usize).unwrap();
                    Item::File(bytes, entry.attributes.modified.unwrap().seconds + OFFSET)
                }
            };
            all.insert(path, item);
        }
    }
    all
}
