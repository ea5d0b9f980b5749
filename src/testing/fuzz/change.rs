//! Changes of corrupt volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::disk;
use super::hfsplus::sample_with_room;
use crate::Result;
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use crate::fs::hfsplus::{self, HfsPlus, HfsPlusMut, WriteOptions};
use crate::fs::{
    Change, ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt,
    Fork, NewKind, NewNode, NodeId, Timestamp,
};
use crate::problem::Severity;
use crate::progress::Silent;

/// Maximum number of objects of a volume that are read.
const MAX_OBJECTS: usize = 500;

/// Takes an input that describes a disk. The volume on it is refused, or can be changed and
/// unmounted; nothing panics or loops forever. A volume in which a check finds nothing is sound
/// afterwards too, and unchanged data is intact.
pub fn hfsplus_change(input: &[u8]) {
    let Some(disk) = disk(input) else { return };
    let device = Arc::new(disk);
    let before = is_sound(&device).then(|| contents(&device)).flatten();
    let options = WriteOptions {
        cache: 256 << 10,
        now: Some(Timestamp::from_seconds(1_750_000_000)),
        system_files: false,
    };
    let Ok(fs) = HfsPlusMut::open(device.clone(), options) else {
        return;
    };
    let _ = change(&fs, before.is_none());
    let left = fs.unmount();
    drop(fs);
    let Some(before) = before else { return };
    assert!(left.is_ok(), "a sound volume cannot be unmounted: {left:?}");
    assert!(
        is_sound(&device),
        "{:?}",
        hfsplus::check(device.clone(), &Silent)
    );
    let after = contents(&device).expect("a sound volume opens");
    for (id, bytes) in before {
        assert!(
            after.get(&id) == Some(&bytes),
            "object {id:?} is not what it was"
        );
    }
}

fn is_sound(device: &Arc<Memory>) -> bool {
    let device: Arc<dyn BlockDevice> = device.clone();
    hfsplus::check(device, &Silent).is_ok_and(|problems| {
        problems
            .iter()
            .all(|problem| problem.severity < Severity::Warning)
    })
}

/// Reads each file; `None` if the volume does not open.
fn contents(device: &Arc<Memory>) -> Option<BTreeMap<NodeId, Vec<u8>>> {
    let fs = HfsPlus::open(device.clone()).ok()?;
    let mut found = BTreeMap::new();
    let mut folders = vec![fs.root()];
    while let Some(folder) = folders.pop() {
        for entry in fs.entries(folder).unwrap_or_default() {
            match entry.attributes.kind {
                FileKind::Folder => folders.push(entry.attributes.id),
                FileKind::File if !entry.name.starts_with(".journal") => {
                    let Ok(file) = fs.open(entry.attributes.id, Fork::Data) else {
                        continue;
                    };
                    if let Ok(bytes) = file.read_vec(0, file.info().len as usize) {
                        found.insert(entry.attributes.id, bytes);
                    }
                }
                _ => {}
            }
            if found.len() + folders.len() > MAX_OBJECTS {
                return Some(found);
            }
        }
    }
    Some(found)
}

/// Does some of every operation in a new folder; on a volume that is corrupt anyway also on
/// existing objects.
pub(super) fn change(fs: &dyn FileSystemMut, all: bool) -> Result<()> {
    let root = fs.root();
    let dir = fs.create(root, "a new folder", &NewNode::new(NewKind::Folder))?;
    for number in 0..20_u8 {
        let id = fs.create(
            dir,
            &format!("a file of a longer name {number}"),
            &NewNode::new(NewKind::File),
        )?;
        let _ = fs.write_all(id, &vec![number; 700 * usize::from(number)]);
        let _ = fs.set_xattr_bytes(id, "user.small", &[number; 50]);
    }
    let id = fs
        .lookup(dir, "a file of a longer name 7")?
        .map_or(dir, |found| found.id);
    let _ = fs.set_xattr_bytes(id, "user.large", &[3; 9000]);
    let _ = fs.link(id, root, "a second name");
    let _ = fs.rename(
        (dir, "a file of a longer name 8"),
        (root, "a moved file"),
        ExistingTarget::Error,
    );
    let file = fs.open_mut(id, Fork::Data)?;
    let _ = file.set_len(20_000, AfterDiscard::Zeros);
    let _ = fs.remove(dir, "a file of a longer name 7");
    let _ = file.set_len(10, AfterDiscard::Zeros);
    let _ = fs.sync();
    if all {
        spoil(fs)?;
    }
    for entry in fs.entries(dir)?.into_iter().take(100) {
        let _ = fs.remove(dir, &entry.name);
    }
    fs.remove(dir, "what is not there").or(Ok(()))
}

/// Changes the existing objects of a corrupt volume.
pub(super) fn spoil(fs: &dyn FileSystemMut) -> Result<()> {
    let mut folders = vec![fs.root()];
    let mut met = 0;
    while let Some(folder) = folders.pop() {
        for (number, entry) in fs
            .entries(folder)
            .unwrap_or_default()
            .into_iter()
            .enumerate()
        {
            met += 1;
            if met > MAX_OBJECTS {
                return Ok(());
            }
            let id = entry.attributes.id;
            if entry.attributes.kind == FileKind::Folder {
                folders.push(id);
            }
            let _ = match number % 6 {
                0 => fs.remove(folder, &entry.name),
                1 => fs.rename(
                    (folder, &entry.name),
                    (fs.root(), "moved"),
                    ExistingTarget::Replace,
                ),
                2 => fs.set_attributes(
                    id,
                    &Change {
                        mode: Some(0o600),
                        ..Change::default()
                    },
                ),
                3 => fs.set_xattr_bytes(id, "user.color", b"green"),
                4 => fs
                    .open_mut(id, Fork::Data)
                    .and_then(|file| file.set_len(30_000, AfterDiscard::Zeros)),
                _ => fs.link(id, folder, "a name more"),
            };
        }
    }
    Ok(())
}

/// Returns volumes with some room: without a journal, and with one.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain = sample_with_room(4096, 768 << 10);
    let journaled = Arc::new(Memory::from(plain.clone()));
    let fs =
        HfsPlusMut::open(journaled.clone(), WriteOptions::default()).expect("the sample opens");
    fs.enable_journal(None)
        .expect("the sample has room for a journal");
    drop(fs);
    [plain, journaled.to_vec()]
        .iter()
        .map(|volume| super::describe(volume))
        .collect()
}
