//! Conversion of contents to compressed form and back: unchanged for every reader, before and after
//! every crash.

use super::*;
use crate::{Stored, UF_COMPRESSED, UnlinkedFile};
use bandsaw_core::codec::Level;
use bandsaw_core::decmpfs::{Bounds, Method, PackOptions, PlainContents, pack};
use bandsaw_core::device::AfterDiscard;
use bandsaw_core::{Error, Kind};

const ALL: Bounds = Bounds {
    attribute: 3802,
    fork: u64::MAX,
};

/// Returns compressible text.
fn text(len: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|n| format!("{n} of {}; ", n.wrapping_mul(7919) % 9973).into_bytes())
        .take(len)
        .collect()
}

fn compress(fs: &HfsPlusMut, node: NodeId, bounds: Bounds) -> Result<()> {
    let (_nameless, contents) = UnlinkedFile::new(fs, &file())?;
    let out = fs.open_mut(contents, Fork::Data)?;
    let plain = FileSystem::open(fs, node, Fork::Data)?;
    let mut write = |at: u64, bytes: &[u8]| {
        out.set_len(
            out.info().len.max(at + bytes.len() as u64),
            AfterDiscard::Any,
        )?;
        out.write_at(at, bytes)
    };
    let packing = PackOptions::new(Method::Lzvn, Level::default())?;
    let len = plain.info().len;
    let source = PlainContents {
        len,
        read: &mut |at, buf| plain.read_at(at, buf),
    };
    let packed = pack(source, packing, bounds, &Silent, &mut write)?.expect("it is worth it");
    drop(plain);
    fs.store(
        node,
        &Stored::Packed {
            attribute: &packed.attribute,
            contents,
        },
    )
}

fn decompress(fs: &HfsPlusMut, node: NodeId) -> Result<()> {
    let (_nameless, contents) = UnlinkedFile::new(fs, &file())?;
    let out = fs.open_mut(contents, Fork::Data)?;
    let packed = FileSystem::open(fs, node, Fork::Data)?;
    let plain = packed.read_vec(0, packed.info().len as usize)?;
    drop(packed);
    out.set_len(plain.len() as u64, AfterDiscard::Any)?;
    out.write_at(0, &plain)?;
    fs.store(node, &Stored::Plain { contents })
}

fn contents(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let found = fs.resolve(path).unwrap();
    let file = fs.open(found.id, Fork::Data).unwrap();
    assert_eq!(file.info().len, found.size, "{path}");
    file.read_vec(0, file.info().len as usize).unwrap()
}

/// Creates a fragmented file.
fn scattered(fs: &HfsPlusMut, name: &str, plain: &[u8]) -> NodeId {
    let root = fs.root();
    let node = fs.create(root, name, &file()).unwrap();
    for (number, piece) in plain.chunks(5000).enumerate() {
        let at = number as u64 * 5000;
        let open = fs.open_mut(node, Fork::Data).unwrap();
        open.set_len(at + piece.len() as u64, AfterDiscard::Any)
            .unwrap();
        open.write_at(at, piece).unwrap();
        // A closed file has no reservation.
        drop(open);
        let between = fs
            .create(root, &format!("in between {number}"), &file())
            .unwrap();
        fs.write_all(between, b"between").unwrap();
    }
    node
}

#[test]
fn readers_do_not_see_it() {
    let device = empty(8 << 20);
    let fs = open(&device);
    let root = fs.root();
    let plain = text(300_000);
    let long = scattered(&fs, "long", &plain);
    let short = fs.create(root, "short", &file()).unwrap();
    fs.write_all(short, &plain[..3000]).unwrap();
    fs.link(short, root, "another name").unwrap();
    fs.set_xattr_bytes(short, "mine", b"kept").unwrap();
    let before = fs.attributes(long).unwrap();
    let free = fs.volume().free;

    compress(&fs, long, ALL).unwrap();
    compress(&fs, short, ALL).unwrap();
    let after = fs.attributes(long).unwrap();
    assert_eq!(after.flags, UF_COMPRESSED);
    assert!(after.allocated < before.allocated / 2);
    assert_eq!(
        (after.size, after.modified, after.changed, after.mode),
        (before.size, before.modified, before.changed, before.mode)
    );
    assert_eq!(fs.attributes(short).unwrap().allocated, 0);
    assert_eq!(fs.xattrs(short).unwrap(), ["mine"]);
    fs.sync().unwrap();
    assert!(fs.volume().free > free, "{} and {free}", fs.volume().free);
    drop(fs);

    sound(device.clone());
    let read = HfsPlus::open(device.clone()).unwrap();
    for (path, expected) in [
        ("/long", &plain[..]),
        ("/short", &plain[..3000]),
        ("/another name", &plain[..3000]),
    ] {
        assert!(contents(&read, path) == expected, "{path}");
    }
    drop(read);

    let fs = open(&device);
    let refused = |done: Result<()>| done.map_err(|error: Error| error.kind()).unwrap_err();
    assert_eq!(refused(compress(&fs, long, ALL)), Kind::Conflict);
    assert_eq!(
        fs.open_mut(long, Fork::Data).unwrap_err().kind(),
        Kind::Unsupported
    );
    assert_eq!(
        refused(fs.remove_xattr(long, "com.apple.decmpfs")),
        Kind::Unsupported
    );
    fs.set_attributes(
        long,
        &Change {
            flags: Some(0),
            ..Change::default()
        },
    )
    .unwrap();
    assert!(
        contents(&fs, "/long") == plain,
        "flags do not make it another file"
    );
    decompress(&fs, long).unwrap();
    decompress(&fs, short).unwrap();
    assert_eq!(refused(decompress(&fs, short)), Kind::Conflict);
    assert_eq!(fs.attributes(long).unwrap().flags, 0);
    fs.write_all(short, b"written again").unwrap();
    drop(fs);
    sound(device.clone());
    let read = HfsPlus::open(device).unwrap();
    assert!(contents(&read, "/long") == plain);
    assert_eq!(contents(&read, "/another name"), b"written again");
    assert_eq!(
        read.xattrs(read.resolve("/short").unwrap().id).unwrap(),
        ["mine"]
    );
}

#[test]
fn files_that_cannot_be_exchanged_are_refused() {
    let device = empty(2 << 20);
    let fs = open(&device);
    let (root, plain) = (fs.root(), text(9000));
    let node = fs.create(root, "file", &file()).unwrap();
    fs.write_all(node, &plain).unwrap();
    let kind = |done: Result<()>| done.map_err(|error| error.kind()).unwrap_err();
    let held = fs.open_mut(node, Fork::Data).unwrap();
    assert_eq!(kind(compress(&fs, node, ALL)), Kind::Conflict);
    drop(held);
    fs.open_mut(node, Fork::Resource)
        .unwrap()
        .set_len(10, AfterDiscard::Zeros)
        .unwrap();
    assert_eq!(kind(compress(&fs, node, ALL)), Kind::Conflict);
    let folder = fs.create(root, "folder", &folder()).unwrap();
    let (nameless, contents_of) = UnlinkedFile::new(&fs, &file()).unwrap();
    assert!(
        fs.store(
            folder,
            &Stored::Plain {
                contents: contents_of
            }
        )
        .is_err()
    );
    let link = fs
        .create(root, "link", &NewNode::new(NewKind::Symlink("file".into())))
        .unwrap();
    assert!(
        fs.store(
            link,
            &Stored::Plain {
                contents: contents_of
            }
        )
        .is_err()
    );
    drop(nameless);
    assert_eq!(contents(&fs, "/file"), plain);
    drop(fs);
    sound(device);
}

#[test]
fn a_crash_leaves_one_or_the_other() {
    let store = PowerCut::default();
    let disk = |store: &PowerCut| store.open("disk", Open::Create).unwrap().unwrap();
    disk(&store).set_len(2 << 20, AfterDiscard::Zeros).unwrap();
    format(&*disk(&store), layout(false, None));
    let plain = text(150_000);
    let fs = HfsPlusMut::open(disk(&store), options()).unwrap();
    scattered(&fs, "long", &plain);
    let short = fs.create(fs.root(), "short", &file()).unwrap();
    fs.write_all(short, &plain[..3000]).unwrap();
    fs.unmount().unwrap();
    store.sync().unwrap();
    let before = store.position();
    let long = fs.resolve("/long").unwrap().id;
    compress(&fs, long, ALL).unwrap();
    fs.sync().unwrap();
    compress(&fs, short, ALL).unwrap();
    fs.sync().unwrap();
    decompress(&fs, long).unwrap();
    fs.unmount().unwrap();
    drop(fs);

    let mut seen = [0; 2];
    for crash in store.crashes_from(before, 5, 3) {
        let fs = HfsPlusMut::open(disk(&crash.store), options())
            .unwrap_or_else(|error| panic!("{crash:?}: {error}"));
        assert!(contents(&fs, "/long") == plain, "{crash:?}");
        assert!(contents(&fs, "/short") == plain[..3000], "{crash:?}");
        seen[usize::from(fs.resolve("/long").unwrap().flags == UF_COMPRESSED)] += 1;
        // A change deletes the files left without a name.
        fs.create(fs.root(), "one more", &file()).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        sound(disk(&crash.store));
    }
    assert!(
        seen.iter().all(|count| *count > 0),
        "both were met: {seen:?}"
    );
}
