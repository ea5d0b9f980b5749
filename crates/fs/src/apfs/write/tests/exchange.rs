//! Tests of compressing and decompressing stored contents, which readers must not notice.

use super::*;
use crate::apfs::layout::{DataStreamIdRaw, RecordKey, record_type};
use crate::{Stored, UF_COMPRESSED, UnlinkedFile};
use bandsaw_core::codec::Level;
use bandsaw_core::decmpfs::{Bounds, Method, PackOptions, PlainContents, pack};

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

fn compress(fs: &ApfsMut, node: NodeId) -> Result<()> {
    let (_nameless, contents) = UnlinkedFile::new(fs, &NewNode::new(NewKind::File))?;
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
    let packed = pack(source, packing, ALL, &Silent, &mut write)?.expect("it is worth it");
    drop(plain);
    fs.store(
        node,
        &Stored::Packed {
            attribute: &packed.attribute,
            contents,
        },
    )
}

fn decompress(fs: &ApfsMut, node: NodeId) -> Result<()> {
    let (_nameless, contents) = UnlinkedFile::new(fs, &NewNode::new(NewKind::File))?;
    let out = fs.open_mut(contents, Fork::Data)?;
    let packed = FileSystem::open(fs, node, Fork::Data)?;
    let plain = packed.read_vec(0, packed.info().len as usize)?;
    drop(packed);
    out.set_len(plain.len() as u64, AfterDiscard::Any)?;
    out.write_at(0, &plain)?;
    fs.store(node, &Stored::Plain { contents })
}

#[test]
fn readers_do_not_see_it() {
    let device = container(16 << 20, false);
    let plain = text(300_000);
    let fs = open(&device);
    let root = fs.root();
    let (long, short) = (
        file(&fs, root, "long", &plain),
        file(&fs, root, "short", &plain[..3000]),
    );
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
    assert_eq!(
        fs.open_mut(long, Fork::Data).unwrap_err().kind(),
        Kind::Unsupported
    );
    fs.unmount().unwrap();
    drop(fs);
    assert!(
        blocks() + 30 < at_first,
        "{} and {at_first} blocks",
        blocks()
    );
    let found = read(&device);
    for (path, expected) in [
        ("/long", &plain[..]),
        ("/short", &plain[..3000]),
        ("/another name", &plain[..3000]),
    ] {
        assert!(contents(&found, path) == expected, "{path}");
    }
    assert_eq!(
        found.entries(found.root()).unwrap().len(),
        3,
        "nothing is left of what was on the way"
    );
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
    assert_eq!(
        found.xattrs(found.resolve("/short").unwrap().id).unwrap(),
        ["mine"]
    );
    drop(found);

    let fs = open(&device);
    for name in ["long", "short", "another name"] {
        fs.remove(fs.root(), name).unwrap();
    }
    fs.unmount().unwrap();
    assert_eq!(
        read(&device).raw.allocated_blocks.get(),
        5,
        "blocks of an empty volume"
    );
}

#[test]
fn files_that_cannot_be_exchanged_are_refused() {
    let device = container(4 << 20, false);
    let fs = open(&device);
    let root = fs.root();
    let plain = text(90_000);
    let node = file(&fs, root, "file", &plain);
    let held = fs.open_mut(node, Fork::Data).unwrap();
    assert_eq!(kind(compress(&fs, node)), Kind::Conflict);
    drop(held);
    fs.set_xattr_bytes(node, "com.apple.ResourceFork", b"forked")
        .unwrap();
    assert_eq!(kind(compress(&fs, node)), Kind::Conflict);
    let folder = fs
        .create(root, "folder", &NewNode::new(NewKind::Folder))
        .unwrap();
    let (_nameless, contents_of) = UnlinkedFile::new(&fs, &NewNode::new(NewKind::File)).unwrap();
    assert_eq!(
        kind(fs.store(
            folder,
            &Stored::Plain {
                contents: contents_of
            }
        )),
        Kind::Invalid
    );
    assert_eq!(contents(&fs, "/file"), plain);
}

/// Makes the second a clone of the first, as macOS does it.
fn share(fs: &ApfsMut, [original, clone]: [NodeId; 2]) {
    fs.shared
        .write()
        .change(true, |volume| {
            let (original, mut clone) = (volume.object(original)?, volume.object(clone)?);
            clone.raw.private_id = original.raw.private_id;
            clone.set_stream(original.stream());
            let stream =
                RecordKey::single(original.raw.private_id.into(), record_type::DATA_STREAM);
            volume.put_raw(
                stream,
                &DataStreamIdRaw {
                    references: 2.into(),
                },
            )?;
            volume.put_inode(&clone)
        })
        .unwrap();
}

/// A clone shares the stream of a file until the contents of one of them are stored in the other
/// form.
#[test]
fn clones_keep_what_they_have() {
    for removed_packed in [false, true] {
        let device = container(8 << 20, false);
        let plain = text(200_000);
        let fs = open(&device);
        let (original, clone) = (
            file(&fs, fs.root(), "original", &plain),
            file(&fs, fs.root(), "clone", &[]),
        );
        share(&fs, [original, clone]);
        fs.sync().unwrap();
        assert!(contents(&fs, "/clone") == plain);
        compress(&fs, original).unwrap();
        assert!(contents(&fs, "/original") == plain && contents(&fs, "/clone") == plain);
        if !removed_packed {
            decompress(&fs, original).unwrap();
            assert!(contents(&fs, "/original") == plain && contents(&fs, "/clone") == plain);
        }
        fs.remove(fs.root(), "original").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert!(
            contents(&read(&device), "/clone") == plain,
            "its blocks are still its own"
        );
        let fs = open(&device);
        compress(&fs, clone).unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert!(contents(&read(&device), "/clone") == plain);
    }
}

/// Snapshots keep the stored form of files, compressed or not, sparse or not, under all of their
/// names, also when the files are deleted.
#[test]
fn snapshots_keep_how_files_were_stored() {
    for device in [container(16 << 20, false), encrypted(16 << 20)] {
        let plain = text(200_000);
        let mut holes = vec![0; 1_000_000];
        holes[..5000].copy_from_slice(&plain[..5000]);
        holes[900_000..910_000].copy_from_slice(&plain[..10_000]);
        let fs = open(&device);
        let root = fs.root();
        let (long, short) = (
            file(&fs, root, "long", &plain),
            file(&fs, root, "short", &plain[..2000]),
        );
        let sparse = fs
            .create(root, "sparse", &NewNode::new(NewKind::File))
            .unwrap();
        {
            let out = fs.open_mut(sparse, Fork::Data).unwrap();
            out.set_len(holes.len() as u64, AfterDiscard::Zeros)
                .unwrap();
            out.write_at(0, &holes[..5000]).unwrap();
            out.write_at(900_000, &holes[900_000..910_000]).unwrap();
        }
        fs.link(long, root, "name").unwrap();
        let all = [long, short, sparse];
        fs.take_snapshot("plain", None).unwrap();
        all.iter().for_each(|&node| compress(&fs, node).unwrap());
        fs.take_snapshot("packed", None).unwrap();
        all.iter().for_each(|&node| decompress(&fs, node).unwrap());
        fs.take_snapshot("plain again", None).unwrap();
        compress(&fs, long).unwrap();
        fs.remove(root, "sparse").unwrap();
        fs.write_all(short, b"other").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        let now = read(&device);
        assert!(
            contents(&now, "/long") == plain
                && contents(&now, "/name") == plain
                && contents(&now, "/short") == b"other"
        );
        for snapshot in ["plain", "packed", "plain again"] {
            let then = now.container.open_volume(1, Some(snapshot), &key).unwrap();
            for (path, expected) in [
                ("/long", &plain[..]),
                ("/name", &plain),
                ("/short", &plain[..2000]),
                ("/sparse", &holes),
            ] {
                assert!(contents(&then, path) == expected, "{path} in {snapshot}");
                let flags = then.resolve(path).unwrap().flags;
                assert_eq!(
                    flags & UF_COMPRESSED != 0,
                    snapshot == "packed",
                    "{path} in {snapshot}"
                );
            }
        }
    }
}

/// A file and its clone are compressed and decompressed in any order.
#[test]
fn clones_are_packed_in_any_order() {
    for first_packed in [0, 1] {
        let device = container(16 << 20, false);
        let plain = text(250_000);
        let fs = open(&device);
        let root = fs.root();
        let nodes = [
            file(&fs, root, "original", &plain),
            file(&fs, root, "clone", &[]),
        ];
        fs.sync().unwrap();
        share(&fs, nodes);
        for round in 0..2 {
            let (one, other) = (
                nodes[(first_packed + round) % 2],
                nodes[(first_packed + round + 1) % 2],
            );
            compress(&fs, one).unwrap();
            fs.sync().unwrap();
            compress(&fs, other).unwrap();
            decompress(&fs, one).unwrap();
            fs.sync().unwrap();
            decompress(&fs, other).unwrap();
            assert!(
                contents(&fs, "/original") == plain && contents(&fs, "/clone") == plain,
                "round {round}"
            );
        }
        fs.write_all(nodes[0], b"changed").unwrap();
        fs.unmount().unwrap();
        drop(fs);
        assert!(contents(&read(&device), "/clone") == plain);
        let fs = open(&device);
        fs.remove(fs.root(), "clone").unwrap();
        fs.remove(fs.root(), "original").unwrap();
        fs.unmount().unwrap();
        assert_eq!(
            read(&device).raw.allocated_blocks.get(),
            5,
            "blocks of an empty volume"
        );
    }
}
