//! Volumes of every form, damaged and hostile ones included.

use std::collections::BTreeSet;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::{Error, Kind, Result};
use bandsaw_testing::{Random, mutate};

use super::fixture::{DATE, Fixture, NewFile, ROOT, sample};
use super::{HfsVolume, stated_len};
use crate::hfsplus::{Probed, probe};
use crate::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId, Timestamp, UF_HIDDEN};

fn device(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::read_only(bytes))
}

fn open(bytes: Vec<u8>) -> HfsVolume {
    HfsVolume::open(device(bytes)).unwrap()
}

#[track_caller]
fn refused<T>(opened: Result<T>, kind: Kind, part: &str) -> Error {
    let error = opened.err().expect("it should be refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(part), "{error}");
    error
}

fn read(volume: &HfsVolume, id: NodeId, fork: Fork) -> Vec<u8> {
    all(&*volume.open(id, fork).unwrap())
}

fn all(device: &dyn BlockDevice) -> Vec<u8> {
    device.read_vec(0, device.info().len as usize).unwrap()
}

fn names(volume: &HfsVolume, path: &str) -> Vec<String> {
    let folder = volume.resolve(path).unwrap();
    let entries = volume.entries(folder.id).unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn the_properties_of_a_volume_are_read() {
    let volume = open(sample());
    let info = volume.volume();
    assert_eq!((info.format, &*info.name), ("HFS", "Sample"));
    assert_eq!((info.files, info.folders), (63, 3));
    assert!(info.clean && !info.case_sensitive && !info.journaled);
    let date = Timestamp::from_seconds(1_700_000_000);
    assert_eq!(info.created, Some(date));
    let later = Timestamp::from_seconds(1_700_000_120);
    assert_eq!(info.modified, Some(later));
    // Eight gaps and spare blocks.
    assert!(info.free >= 512 * 12 && info.free < info.total);
    assert_eq!(info.total % 512, 0);
}

#[test]
fn folders_are_listed_in_order() {
    let volume = open(sample());
    assert_eq!(names(&volume, "/"), ["docs", "many", "scattered"]);
    let docs = names(&volume, "/docs");
    assert_eq!(docs, ["deep", "Re\u{301}sume\u{301} 1:2"]);
    let many: Vec<_> = (0..60).map(|n| format!("entry number {n:03}")).collect();
    assert_eq!(names(&volume, "/many"), many);
    let root = volume.attributes(volume.root()).unwrap();
    assert_eq!((root.kind, root.size), (FileKind::Folder, 3));
    refused(volume.entries(NodeId(4711)), Kind::NotFound, "folder 4711");
    let file = volume.resolve("/docs/deep/Read Me").unwrap();
    refused(volume.entries(file.id), Kind::NotFound, "folder");
}

#[test]
fn both_forks_are_read_across_their_extents() {
    let volume = open(sample());
    let file = volume.resolve("/scattered").unwrap();
    let expected: Vec<u8> = (0..5000_u32).map(|at| (at / 100) as u8).collect();
    assert!(read(&volume, file.id, Fork::Data) == expected);
    assert!(read(&volume, file.id, Fork::Resource) == expected[..3000]);
    assert_eq!((file.size, file.resource_size), (5000, 3000));
    assert_eq!(file.allocated, 16 * 512);
    let empty = volume.resolve("/many/entry number 007").unwrap();
    for fork in [Fork::Data, Fork::Resource] {
        assert!(read(&volume, empty.id, fork).is_empty());
    }
    let folder = volume.open(volume.root(), Fork::Data);
    refused(folder, Kind::Invalid, "expected a file");
    refused(volume.read_link(file.id), Kind::Invalid, "symbolic link");
}

#[test]
fn attributes_are_those_of_the_record() {
    let volume = open(sample());
    let file = volume.resolve("/scattered").unwrap();
    assert_eq!(file.flags, 2, "locked");
    assert_eq!(file.created, Some(Timestamp::from_seconds(1_700_000_000)));
    assert_eq!(file.modified, Some(Timestamp::from_seconds(1_700_000_060)));
    assert_eq!((file.changed, file.backed_up), (None, None));
    assert_eq!((file.mode, file.uid, file.links), (0o644, 99, 1));
    let hidden = volume.resolve("/docs/Résumé 1:2").unwrap();
    assert_eq!(hidden.flags, UF_HIDDEN);
    let names = volume.xattrs(hidden.id).unwrap();
    assert_eq!(names, ["com.apple.FinderInfo", "com.apple.ResourceFork"]);
    let value = |id, name| volume.xattr(id, name).unwrap().map(|value| all(&*value));
    let resources = value(hidden.id, "com.apple.ResourceFork");
    assert_eq!(resources.as_deref(), Some(&b"resources"[..]));
    let text = volume.resolve("/docs/deep/Read Me").unwrap();
    assert_eq!(volume.xattrs(text.id).unwrap(), ["com.apple.FinderInfo"]);
    let mut expected = [0; 32];
    expected[..8].copy_from_slice(b"TEXTttxt");
    let info = value(text.id, "com.apple.FinderInfo");
    assert_eq!(info.as_deref(), Some(&expected[..]));
    assert_eq!(value(text.id, "com.apple.ResourceFork"), None);
    assert_eq!(value(text.id, "user.color"), None);
    assert_eq!(volume.xattrs(volume.root()).unwrap(), [""; 0]);
}

#[test]
fn names_are_found_in_any_case() {
    let volume = open(sample());
    let file = volume.resolve("/docs/deep/Read Me").unwrap();
    for path in ["/DOCS/Deep/READ ME", "/docs/./deep/read me"] {
        assert_eq!(volume.resolve(path).unwrap(), file, "{path}");
    }
    let resume = volume.resolve("/docs/Résumé 1:2").unwrap();
    for path in ["/docs/RÉSUMÉ 1:2", "/docs/re\u{301}sume\u{301} 1:2"] {
        assert_eq!(volume.resolve(path).unwrap(), resume, "{path}");
    }
    for path in ["/docs/Resume 1:2", "/docs/漢字", "/scattered/x", "/none"] {
        refused(volume.resolve(path), Kind::NotFound, "");
    }
    assert_eq!(volume.lookup(NodeId(1 << 40), "docs").unwrap(), None);
}

/// Names of other scripts sort by rules that are not known here.
#[test]
fn names_are_found_in_any_order() {
    let mut fixture = Fixture::new("Order", 512).sort_bytes();
    for number in (0..40_u8).rev() {
        fixture.file(
            ROOT,
            [0x80 + number, b'a' + number % 20],
            &NewFile::new(b""),
        );
    }
    let volume = open(fixture.build());
    let entries = volume.entries(volume.root()).unwrap();
    assert_eq!(entries.len(), 40);
    for entry in entries {
        let found = volume.lookup(volume.root(), &entry.name).unwrap();
        assert_eq!(found, Some(entry.attributes), "{}", entry.name);
    }
}

#[test]
fn the_exact_name_counts_before_another_case() {
    let mut fixture = Fixture::new("Case", 512);
    let first = fixture.file(ROOT, "READ ME", &NewFile::new(b""));
    let second = fixture.file(ROOT, "Read Me", &NewFile::new(b""));
    let volume = open(fixture.build());
    let found = |name| volume.lookup(volume.root(), name).unwrap().unwrap().id.0;
    assert_eq!(found("READ ME"), u64::from(first));
    assert_eq!(found("Read Me"), u64::from(second));
    assert_eq!(found("read me"), u64::from(first));
}

#[test]
fn objects_are_found_by_number() {
    let listed = open(sample());
    let mut objects: Vec<Attributes> = Vec::new();
    for path in ["/", "/docs", "/docs/deep", "/many"] {
        let folder = listed.resolve(path).unwrap();
        let entries = listed.entries(folder.id).unwrap();
        objects.extend(entries.into_iter().map(|entry| entry.attributes));
    }
    assert_eq!(objects.len(), 66);
    for object in &objects {
        assert_eq!(listed.attributes(object.id).unwrap(), *object);
        // Nothing was met in this one before.
        assert_eq!(open(sample()).attributes(object.id).unwrap(), *object);
    }
    for missing in [0, 5, 15, 4711, u64::from(u32::MAX), u64::MAX] {
        refused(listed.attributes(NodeId(missing)), Kind::NotFound, "");
    }
}

#[test]
fn an_empty_volume_opens() {
    let volume = open(Fixture::new("Empty", 4096).build());
    assert_eq!(names(&volume, "/"), [""; 0]);
    assert_eq!(volume.volume().block_size, 4096);
}

#[test]
fn a_volume_is_recognized_and_states_its_length() {
    let bytes = sample();
    let whole = device(bytes.clone());
    assert_eq!(probe(&*whole).unwrap(), Some(Probed::Hfs));
    let end = bytes.len() as u64 - 1024;
    assert_eq!(stated_len(&*whole).unwrap(), Some(end));
    let short = device(bytes[..4096].to_vec());
    assert_eq!(stated_len(&*short).unwrap(), Some(end));
    for other in [vec![0; 4096], vec![0; 1100], Vec::new()] {
        assert_eq!(stated_len(&*device(other)).unwrap(), None);
    }
}

#[test]
fn a_malformed_header_is_refused() {
    let opened = |at: usize, new: &[u8]| {
        let mut bytes = sample();
        bytes[1024 + at..][..new.len()].copy_from_slice(new);
        HfsVolume::open(device(bytes))
    };
    for (at, new, part) in [
        (0, &b"bd"[..], "invalid signature 0x6264"),
        (18, &[0, 0], "no allocation blocks"),
        (20, &[0, 0, 0, 0], "invalid block size 0"),
        (20, &[0, 0, 2, 1], "invalid block size 513"),
        (130, &[0, 0, 1, 0], "only 256 bytes"),
        (130, &[0xFF; 4], "missing extents"),
        (134, &[0xFF; 4], "past the end of the volume"),
        (146, &[0, 0, 0, 0], "only 0 bytes"),
        (150, &[0; 12], "missing extents"),
    ] {
        refused(opened(at, new), Kind::Corrupt, part);
    }
    for len in [0, 1024, 1100] {
        let opened = HfsVolume::open(device(sample()[..len].to_vec()));
        refused(opened, Kind::Corrupt, "too small");
    }
    // The name is not needed to read files.
    assert_eq!(opened(36, &[28]).unwrap().volume().name, "");
}

/// A volume with a catalog in one piece, and the offsets of its leaves.
fn contiguous() -> (Vec<u8>, Vec<usize>) {
    let mut fixture = Fixture::new("Leaves", 512);
    for number in 0..20 {
        fixture.file(ROOT, format!("file {number:02}"), &NewFile::new(b"x"));
    }
    let inner = fixture.folder(ROOT, "inner");
    fixture.folder(inner, "innermost");
    let bytes = fixture.build();
    let is_leaf = |at: &usize| bytes[*at + 8..*at + 10] == [0xFF, 1];
    let leaves: Vec<_> = (1536..bytes.len()).step_by(512).filter(is_leaf).collect();
    assert!(leaves.len() > 5, "{}", leaves.len());
    (bytes, leaves)
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

#[test]
fn cycles_of_leaves_are_detected() {
    let (sound, leaves) = contiguous();
    // The leaves are nodes 1 and following.
    let (first, last) = (leaves[0], leaves[leaves.len() - 1]);
    let scan = |bytes: &[u8]| open(bytes.to_vec()).attributes(NodeId(4711));
    refused(scan(&sound), Kind::NotFound, "");
    let mut bytes = sound.clone();
    put(&mut bytes, last, 1);
    refused(scan(&bytes), Kind::Corrupt, "previous leaf");
    put(&mut bytes, first + 4, leaves.len() as u32);
    refused(scan(&bytes), Kind::Corrupt, "cycle");
    let mut bytes = sound.clone();
    put(&mut bytes, leaves[2], 3);
    put(&mut bytes, leaves[2] + 4, 3);
    refused(scan(&bytes), Kind::Corrupt, "");
    for wrong in [0xFFFF_FFFF, 0x7000] {
        let mut bytes = sound.clone();
        put(&mut bytes, leaves[1], wrong);
        refused(scan(&bytes), Kind::Corrupt, "points to node");
    }
}

#[test]
fn folders_whose_threads_disagree_are_refused() {
    let (sound, _) = contiguous();
    let thread = |parent: u32, name: &str| {
        let mut record = vec![3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        record.extend(parent.to_be_bytes());
        record.push(name.len() as u8);
        record.extend(name.as_bytes());
        let found = sound.windows(record.len()).position(|part| part == record);
        found.unwrap() + 10
    };
    let inner = open(sound.clone()).resolve("/inner").unwrap().id;
    let mut bytes = sound.clone();
    put(&mut bytes, thread(inner.0 as u32, "innermost"), ROOT);
    let volume = open(bytes);
    refused(
        volume.entries(inner),
        Kind::Corrupt,
        "its thread points elsewhere",
    );
    // A root folder in itself would never end.
    let mut bytes = sound.clone();
    let folder = [1, 0, 0, 0, 0, 1];
    let record = [&folder[..], &(inner.0 as u32).to_be_bytes()].concat();
    let at = sound.windows(10).position(|part| part == record).unwrap();
    put(&mut bytes, at + 6, ROOT);
    put(&mut bytes, thread(1, "Leaves"), ROOT);
    let volume = open(bytes);
    refused(
        volume.entries(volume.root()),
        Kind::Corrupt,
        "folder 2 is in folder 2",
    );
}

#[test]
fn records_marked_as_deleted_are_skipped() {
    let (mut bytes, _) = contiguous();
    let key = b"\x0d\0\0\0\0\x02\x07file 05";
    let at = bytes.windows(key.len()).rposition(|part| part == key);
    bytes[at.unwrap()] = 0;
    let volume = open(bytes);
    assert_eq!(names(&volume, "/").len(), 20);
    refused(volume.resolve("/file 05"), Kind::NotFound, "");
}

#[test]
fn malformed_records_are_reported() {
    let (sound, leaves) = contiguous();
    let listed = |bytes: Vec<u8>| {
        let volume = HfsVolume::open(device(bytes))?;
        volume.entries(volume.root())
    };
    let mut bytes = sound.clone();
    bytes[leaves[2] + 14] = 3; // shorter than any key
    refused(listed(bytes), Kind::Corrupt, "malformed key");
    let mut bytes = sound.clone();
    bytes[leaves[2] + 14 + 14] = 9; // no type of a record
    refused(listed(bytes), Kind::Corrupt, "malformed record");
    let mut bytes = sound.clone();
    put(&mut bytes, leaves[2] + 508, 0xFFFF_0002); // offsets of records
    refused(listed(bytes), Kind::Corrupt, "invalid offset");
    let mut bytes = sound;
    bytes[leaves[2] + 8] = 1;
    refused(listed(bytes), Kind::Corrupt, "expected a node of kind -1");
}

/// Reads everything of a volume, of long folders the beginning; returns the number of errors.
fn walk(volume: &HfsVolume) -> usize {
    const MAX_OBJECTS: usize = 500;
    let (mut objects, mut errors) = (0, 0);
    let mut seen = BTreeSet::from([volume.root()]);
    let mut folders = vec![volume.root()];
    while let Some(folder) = folders.pop() {
        let mut entries = Vec::new();
        let listed = volume.list(folder, &mut |entry| {
            entries.push(entry);
            objects += 1;
            Ok(match objects < MAX_OBJECTS {
                true => std::ops::ControlFlow::Continue(()),
                false => std::ops::ControlFlow::Break(()),
            })
        });
        errors += usize::from(listed.is_err());
        for entry in entries {
            let id = entry.attributes.id;
            errors += usize::from(volume.lookup(folder, &entry.name).is_err());
            errors += usize::from(volume.attributes(id).is_err());
            for name in volume.xattrs(id).unwrap_or_default() {
                errors += usize::from(volume.xattr(id, &name).is_err());
            }
            if entry.attributes.kind == FileKind::Folder {
                folders.extend(seen.insert(id).then_some(id));
                continue;
            }
            for fork in [Fork::Data, Fork::Resource] {
                let contents = volume.open(id, fork).and_then(|device| {
                    let len = device.info().len.min(1 << 16);
                    device.read_vec(0, len as usize)
                });
                errors += usize::from(contents.is_err());
            }
        }
    }
    errors
}

#[test]
fn damaged_copies_never_panic() {
    let sound = sample();
    assert_eq!(walk(&open(sound.clone())), 0);
    let (mut whole, mut damaged, mut refused) = (0, 0, 0);
    for copy in 0..1000 {
        let bytes = mutate::mutated(&sound, &mut Random::new(copy));
        match HfsVolume::open(device(bytes)) {
            Err(_) => refused += 1,
            Ok(volume) => match walk(&volume) {
                0 => whole += 1,
                _ => damaged += 1,
            },
        }
    }
    // Otherwise the test would be void.
    let counts = [whole, damaged, refused];
    assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
}

#[test]
fn dates_of_the_fixture_are_as_stated() {
    assert_eq!(DATE, 3_782_844_800);
}
