//! Contents stored another way, and back: the same to every reader.

use super::*;
use crate::codec::Level;
use crate::decmpfs::{Bounds, Method, Packing, Plain, pack};
use crate::fs::{Nameless, Stored, UF_COMPRESSED};

const ALL: Bounds = Bounds { attribute: 3802, fork: u64::MAX };

/// Text that shrinks.
fn text(len: usize) -> Vec<u8> {
    (0_u32..).flat_map(|n| format!("{n} of {}; ", n.wrapping_mul(7919) % 9973).into_bytes()).take(len).collect()
}

fn compress(fs: &ApfsMut, node: NodeId) -> Result<()> {
    let (_nameless, contents) = Nameless::new(fs, &NewNode::new(NewKind::File))?;
    let out = fs.open_mut(contents, Fork::Data)?;
    let plain = FileSystem::open(fs, node, Fork::Data)?;
    let mut write = |at: u64, bytes: &[u8]| {
        out.set_len(out.info().len.max(at + bytes.len() as u64), Leave::Any)?;
        out.write_at(at, bytes)
    };
    let packing = Packing::new(Method::Lzvn, Level::default())?;
    let len = plain.info().len;
    let source = Plain { len, read: &mut |at, buf| plain.read_at(at, buf) };
    let packed = pack(source, packing, ALL, &Silent, &mut write)?.expect("it is worth it");
    drop(plain);
    fs.store(node, &Stored::Packed { attribute: &packed.attribute, contents })
}

fn decompress(fs: &ApfsMut, node: NodeId) -> Result<()> {
    let (_nameless, contents) = Nameless::new(fs, &NewNode::new(NewKind::File))?;
    let out = fs.open_mut(contents, Fork::Data)?;
    let packed = FileSystem::open(fs, node, Fork::Data)?;
    let plain = packed.read_vec(0, packed.info().len as usize)?;
    drop(packed);
    out.set_len(plain.len() as u64, Leave::Any)?;
    out.write_at(0, &plain)?;
    fs.store(node, &Stored::Plain { contents })
}

#[test]
fn readers_do_not_see_it() {
    let device = container(16 << 20, false);
    let plain = text(300_000);
    let fs = open(&device);
    let root = fs.root();
    let (long, short) = (file(&fs, root, "long", &plain), file(&fs, root, "short", &plain[..3000]));
    fs.link(short, root, "another name").unwrap();
    fs.set_xattr_bytes(short, "mine", b"kept").unwrap();
    fs.sync().unwrap();
    let before = fs.attributes(long).unwrap();
    let blocks = || read(&device).raw.allocated_blocks.get();
    let at_first = blocks();

    compress(&fs, long).unwrap();
    compress(&fs, short).unwrap();
    let after = fs.attributes(long).unwrap();
    assert_eq!(after.flags, UF_COMPRESSED);
    assert_eq!(
        (after.size, after.modified, after.changed, after.mode),
        (before.size, before.modified, before.changed, before.mode)
    );
    assert_eq!(fs.xattrs(short).unwrap(), ["mine"]);
    assert_eq!(kind(compress(&fs, long)), Kind::Conflict);
    assert_eq!(fs.open_mut(long, Fork::Data).unwrap_err().kind(), Kind::Unsupported);
    fs.unmount().unwrap();
    drop(fs);
    assert!(blocks() + 30 < at_first, "{} and {at_first} blocks", blocks());
    let found = read(&device);
    for (path, expected) in [("/long", &plain[..]), ("/short", &plain[..3000]), ("/another name", &plain[..3000])] {
        assert!(contents(&found, path) == expected, "{path}");
    }
    assert_eq!(found.entries(found.root()).unwrap().len(), 3, "nothing is left of what was on the way");
    drop(found);

    let fs = open(&device);
    decompress(&fs, long).unwrap();
    decompress(&fs, short).unwrap();
    assert_eq!(kind(decompress(&fs, short)), Kind::Conflict);
    assert_eq!(fs.attributes(long).unwrap().flags, 0);
    fs.write_all(short, b"written again").unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let found = read(&device);
    assert!(contents(&found, "/long") == plain);
    assert_eq!(contents(&found, "/another name"), b"written again");
    assert_eq!(found.xattrs(found.resolve("/short").unwrap().id).unwrap(), ["mine"]);
    drop(found);

    let fs = open(&device);
    for name in ["long", "short", "another name"] {
        fs.remove(fs.root(), name).unwrap();
    }
    fs.unmount().unwrap();
    assert_eq!(read(&device).raw.allocated_blocks.get(), 5, "blocks of an empty volume");
}

#[test]
fn what_is_in_the_way() {
    let device = container(4 << 20, false);
    let fs = open(&device);
    let root = fs.root();
    let plain = text(90_000);
    let node = file(&fs, root, "file", &plain);
    let held = fs.open_mut(node, Fork::Data).unwrap();
    assert_eq!(kind(compress(&fs, node)), Kind::Conflict);
    drop(held);
    fs.set_xattr_bytes(node, "com.apple.ResourceFork", b"forked").unwrap();
    assert_eq!(kind(compress(&fs, node)), Kind::Conflict);
    let folder = fs.create(root, "folder", &NewNode::new(NewKind::Folder)).unwrap();
    let (_nameless, contents_of) = Nameless::new(&fs, &NewNode::new(NewKind::File)).unwrap();
    assert_eq!(kind(fs.store(folder, &Stored::Plain { contents: contents_of })), Kind::Invalid);
    assert_eq!(contents(&fs, "/file"), plain);
}
