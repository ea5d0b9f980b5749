//! Tests with synthetic containers: contents of valid ones, and errors for corrupt ones.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::container::Container;
use super::fixture::{BLOCK, Fixture, at, reseal, sample};
use super::layout::{FileId, Paddr};
use super::names::NameRules;
use super::volume::Apfs;
use crate::{FileKind, FileSystem, FileSystemExt, Fork, LockedVolume, NodeId, VolumeKey};
use bandsaw_core::device::{BlockDeviceExt, ExtentKind, Memory};
use bandsaw_core::{Error, Kind, Result};

const ROOT: NodeId = NodeId(2);

fn container(bytes: Vec<u8>) -> Result<Arc<Container>> {
    Container::open(Arc::new(Memory::read_only(bytes)), None).map(Arc::new)
}

fn no_key(_: &LockedVolume) -> Result<VolumeKey> {
    Err(Error::new(Kind::WrongKey, "test", "nobody knows"))
}

fn open(bytes: Vec<u8>) -> Result<Apfs> {
    container(bytes)?.open_volume(1, None, &no_key)
}

fn read(volume: &Apfs, path: &str) -> Vec<u8> {
    let id = volume.resolve(path).unwrap().id;
    let device = volume.open(id, Fork::Data).unwrap();
    device.read_vec(0, device.info().len as usize).unwrap()
}

fn names(volume: &Apfs, dir: NodeId) -> Vec<String> {
    volume
        .entries(dir)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}

#[test]
fn everything_drawn_is_read() {
    for rules in [
        NameRules::Bytes,
        NameRules::CaseSensitive,
        NameRules::CaseInsensitive,
    ] {
        let volume = open(sample(rules)).unwrap();
        assert_eq!(names(&volume, ROOT).len(), 6);
        assert_eq!(read(&volume, "/docs/file.txt"), b"deep down");
        assert_eq!(read(&volume, "/same.txt"), b"deep down");
        assert_eq!(read(&volume, "/Größe é 漢字"), [7; 10_000]);
        assert_eq!(
            volume
                .open(volume.resolve("/empty").unwrap().id, Fork::Resource)
                .unwrap()
                .info()
                .len,
            0
        );
        let link = volume.resolve("/link").unwrap();
        assert_eq!((link.kind, link.size), (FileKind::Symlink, 13));
        assert_eq!(volume.read_link(link.id).unwrap(), "docs/file.txt");
        let file = volume.resolve("/docs/file.txt").unwrap();
        assert!(file.has_xattrs);
        assert_eq!(
            volume.xattrs(file.id).unwrap(),
            ["com.apple.FinderInfo", "user.color"]
        );
        let color = volume.xattr(file.id, "user.color").unwrap().unwrap();
        assert_eq!(color.read_vec(0, 4).unwrap(), b"blue");
        let many = volume.resolve("/many").unwrap();
        assert_eq!(names(&volume, many.id).len(), 60);
        assert!(
            volume
                .lookup(many.id, "entry number 060")
                .unwrap()
                .is_none()
        );
    }
}

#[test]
fn names_are_looked_up_by_the_volumes_rules() {
    let found = |rules, name: &str| {
        open(sample(rules))
            .unwrap()
            .lookup(ROOT, name)
            .unwrap()
            .is_some()
    };
    let decomposed = "Gro\u{308}ße e\u{301} 漢字";
    assert!(found(NameRules::CaseInsensitive, "GRÖSSE É 漢字"));
    assert!(
        found(NameRules::CaseInsensitive, decomposed)
            && found(NameRules::CaseSensitive, decomposed)
    );
    assert!(
        !found(NameRules::CaseSensitive, "größe é 漢字") && !found(NameRules::Bytes, decomposed)
    );
}

#[test]
fn holes_read_as_zeros() {
    let mut fixture = Fixture::new(NameRules::CaseInsensitive);
    let file = fixture.file(FileId::ROOT, "sparse", &[9; 3 * BLOCK]);
    // Instead of the one extent: a hole, a block, and no extent for the third block.
    fixture.extent(file, 0, BLOCK as u64, Paddr(0));
    fixture.extent(file, BLOCK as u64, BLOCK as u64, Paddr(at::CONTENTS + 1));
    let volume = open(fixture.draw()).unwrap();
    let contents = read(&volume, "/sparse");
    assert_eq!(
        contents,
        [vec![0; BLOCK], vec![9; BLOCK], vec![0; BLOCK]].concat()
    );
    let device = volume.open(NodeId(file.0), Fork::Data).unwrap();
    let kinds: Vec<_> = device
        .extents(0..3 * BLOCK as u64)
        .map(|extent| extent.unwrap().1)
        .collect();
    assert_eq!(
        kinds,
        [ExtentKind::Hole, ExtentKind::Data, ExtentKind::Hole]
    );
    assert_eq!(device.read_vec(BLOCK as u64 - 1, 2).unwrap(), [0, 9]);
    assert!(device.read_vec(3 * BLOCK as u64, 1).is_err());
}

/// Returns the error of opening, listing and reading a container that was modified and got valid
/// checksums.
fn broken(change: impl FnOnce(&mut [u8])) -> Error {
    let mut bytes = sample(NameRules::CaseInsensitive);
    change(&mut bytes);
    reseal(&mut bytes);
    let started = Instant::now();
    let error = open(bytes).and_then(|volume| {
        let folder = volume.resolve("/many")?;
        volume.entries(folder.id)?;
        volume.entries(ROOT)?;
        volume.open(volume.resolve("/Größe é 漢字")?.id, Fork::Data)?;
        Ok(())
    });
    assert!(started.elapsed() < Duration::from_secs(5));
    error.expect_err("a broken container")
}

fn put(block: u64, offset: usize, value: &[u8]) -> impl FnOnce(&mut [u8]) {
    let start = block as usize * BLOCK + offset;
    move |bytes| bytes[start..start + value.len()].copy_from_slice(value)
}

#[test]
fn broken_containers_are_refused_with_object_and_block() {
    let leaf = at::FILES + 1;
    let table: [(u64, usize, &[u8], &str); 10] = [
        (
            leaf,
            0x08,
            &[9],
            "object 0x405 in block 16: unexpected object 0x409",
        ),
        (
            leaf,
            0x22,
            &[1],
            "object 0x405 in block 16: has flags 0x2, which do not fit its level 1",
        ),
        (leaf, 0x24, &[0xFF; 4], "records 4294967295 keys"),
        (leaf, 0x38 + 2, &[0xFF; 2], "key or value 0 of"),
        (leaf, 0x1C, &[0x0B], "expected type 0x3/0xe, found 0x3/0xb"),
        (
            leaf,
            0x10,
            &[6],
            "records transaction 7, but the node has 6",
        ),
        (
            at::VOLUME,
            0x20,
            b"XXXX",
            "expected a volume superblock (APSB)",
        ),
        (at::VOLUME, 0x38, &[0, 4], "unsupported features 0x400"),
        (
            at::VOLUME,
            0x80,
            &[0, 0, 1],
            "object 0x10000 in block 65536: 1 blocks from block 65536 reach past the end of the \
             container",
        ),
        (
            at::OMAP_TREE,
            BLOCK - 0x28 + 4,
            &[0, 0x20],
            "nodes of 8192 bytes, expected 4096",
        ),
    ];
    for (block, offset, value, words) in table {
        let error = broken(put(block, offset, value));
        assert!(error.to_string().contains(words), "{error}, not {words}");
    }
    let unsealed = {
        let mut bytes = sample(NameRules::CaseInsensitive);
        bytes[leaf as usize * BLOCK + 3000] ^= 1;
        open(bytes)
            .and_then(|volume| volume.entries(ROOT).map(drop))
            .unwrap_err()
    };
    assert!(
        unsealed
            .to_string()
            .contains("object 0x405 in block 16: checksum mismatch"),
        "{unsealed}"
    );
}

/// The root of the tree refers to itself, or repeatedly to one leaf.
#[test]
fn circles_end() {
    let root = at::FILES as usize * BLOCK;
    let children = |bytes: &mut [u8], child: u64| {
        let count = usize::from(u16::from_le_bytes([bytes[root + 0x24], bytes[root + 0x25]]));
        for index in 1..=count {
            let value = root + BLOCK - 0x28 - 8 * index;
            bytes[value..value + 8].copy_from_slice(&child.to_le_bytes());
        }
    };
    let error = broken(|bytes| children(bytes, 0x404));
    assert!(
        error
            .to_string()
            .contains("expected a node of level 0, found level 1"),
        "{error}"
    );
    let error = broken(|bytes| children(bytes, 0x405));
    assert!(
        matches!(error.kind(), Kind::Corrupt | Kind::NotFound),
        "{error}"
    );
}

/// A folder that is its own descendant.
#[test]
fn a_folder_within_itself_is_refused() {
    let mut fixture = Fixture::new(NameRules::CaseInsensitive);
    let outer = fixture.folder(FileId::ROOT, "outer");
    let inner = fixture.folder(outer, "inner");
    fixture.entry(inner, "again", outer, 0x4000);
    let volume = open(fixture.draw()).unwrap();
    let inner = volume.resolve("/outer/inner").unwrap();
    let error = volume.entries(inner.id).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("its entry is in folder 0x11, but its inode records folder 0x2"),
        "{error}"
    );
}

#[test]
fn a_damaged_first_block_is_replaced_by_what_is_found_behind_it() {
    let mut bytes = sample(NameRules::CaseInsensitive);
    bytes[100] ^= 1;
    let container = container(bytes).unwrap();
    assert_eq!((container.checkpoint(), container.problems().len()), (7, 1));
}

#[test]
fn a_truncated_image_is_read_up_to_its_end() {
    let mut bytes = sample(NameRules::CaseInsensitive);
    bytes.truncate((at::CONTENTS as usize + 2) * BLOCK);
    let container = container(bytes).unwrap();
    assert!(
        container.problems()[0].to_string().contains("truncated"),
        "{:?}",
        container.problems()
    );
    let volume = container.open_volume(1, None, &no_key).unwrap();
    assert_eq!(read(&volume, "/docs/file.txt"), b"deep down");
    let long = volume
        .open(volume.resolve("/Größe é 漢字").unwrap().id, Fork::Data)
        .unwrap();
    assert!(long.read_vec(0, 10_000).is_err());
}
