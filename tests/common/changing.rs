//! Random changes of a volume, and its contents.

use std::collections::BTreeMap;

use bandsaw::device::{BlockDevice, BlockDeviceExt};
use bandsaw::fs::{
    ExistingTarget, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork,
    NewKind, NewNode, NodeId,
};
use bandsaw::testing::Random;

/// Contents of a volume by path: kind, number of names, contents and extended attributes.
pub(crate) type World = BTreeMap<String, (FileKind, u32, Vec<u8>, Vec<(String, Vec<u8>)>)>;

pub(crate) fn bytes(device: &dyn BlockDevice) -> Vec<u8> {
    device.read_vec(0, device.info().len as usize).unwrap()
}

pub(crate) fn read_into(fs: &dyn FileSystem, dir: NodeId, path: &str, world: &mut World) {
    for entry in fs.entries(dir).unwrap() {
        let (path, found) = (format!("{path}/{}", entry.name), entry.attributes);
        let contents = match found.kind {
            FileKind::File => bytes(&*fs.open(found.id, Fork::Data).unwrap()),
            FileKind::Symlink => fs.read_link(found.id).unwrap().into_bytes(),
            _ => Vec::new(),
        };
        let value = |name: &String| bytes(&*fs.xattr(found.id, name).unwrap().unwrap());
        let xattrs = fs
            .xattrs(found.id)
            .unwrap()
            .iter()
            .map(|name| (name.clone(), value(name)))
            .collect();
        world.insert(path.clone(), (found.kind, found.links, contents, xattrs));
        if found.kind == FileKind::Folder {
            read_into(fs, found.id, &path, world);
        }
    }
}

/// Runs a random operation, which may be refused.
pub(crate) fn operate(fs: &dyn FileSystemMut, random: &mut Random) {
    let name = |random: &mut Random| {
        format!(
            "{} {}",
            "long name ".repeat(random.within(0..12) as usize),
            random.within(0..12)
        )
    };
    let folders: Vec<_> = {
        let found = fs
            .entries(fs.root())
            .unwrap()
            .into_iter()
            .map(|entry| entry.attributes);
        found
            .filter(|found| found.kind == FileKind::Folder)
            .map(|found| found.id)
            .chain([fs.root()])
            .collect()
    };
    let mut dir = || folders[random.within(0..folders.len() as u64) as usize];
    let (dir, other) = (dir(), dir());
    let (old, new) = (name(random), name(random));
    let count = random.within(0..30_000) as usize;
    let contents = random.bytes(count);
    let there = fs.lookup(dir, &old).unwrap();
    let _ = match (random.within(0..10), there) {
        (0, _) if dir == fs.root() => fs
            .create(dir, &new, &NewNode::new(NewKind::Folder))
            .map(drop),
        (1, _) => fs
            .create(
                dir,
                &new,
                &NewNode::new(NewKind::Symlink("somewhere".into())),
            )
            .map(drop),
        (2, Some(_)) => fs.remove(dir, &old),
        (3, Some(_)) => fs.rename((dir, &old), (other, &new), ExistingTarget::Replace),
        (8, Some(_)) => fs.swap((dir, &old), (other, &new)),
        (4, Some(found)) => fs.link(found.id, other, &new),
        (5, Some(found)) => fs.set_xattr_bytes(found.id, "user.name", &contents[..count / 3]),
        (6, Some(found)) => fs.remove_xattr(found.id, "user.name"),
        (7, Some(found)) if found.kind == FileKind::File => fs.write_all(found.id, &contents),
        _ => fs
            .create(dir, &new, &NewNode::new(NewKind::File))
            .and_then(|id| fs.write_all(id, &contents)),
    };
}
