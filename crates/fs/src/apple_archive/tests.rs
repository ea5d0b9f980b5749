//! Archives made here: every kind of object, and what is refused.

use std::sync::Arc;

use bandsaw_core::Kind;
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::problem::Severity;
use bandsaw_core::progress::Silent;

use super::fixture::{CONTENTS, FixtureEntry, RESOURCES, TIME, archive};
use super::{AppleArchive, check};
use crate::{FileKind, FileSystem, FileSystemExt, Fork, Timestamp};

fn open(bytes: Vec<u8>) -> bandsaw_core::Result<AppleArchive> {
    AppleArchive::open(Arc::new(Memory::read_only(bytes)))
}

fn read(archive: &AppleArchive, path: &str) -> Vec<u8> {
    let found = archive.resolve(path).unwrap();
    let device = archive.open(found.id, Fork::Data).unwrap();
    device
        .read_vec(0, device.info().len.try_into().unwrap())
        .unwrap()
}

fn file(path: &str) -> FixtureEntry {
    FixtureEntry::new(b'F', path).blob("DAT", 2, b"x")
}

fn refused(entries: &[FixtureEntry], kind: Kind, message: &str) {
    let bytes = entries.iter().flat_map(FixtureEntry::bytes).collect();
    let error = open(bytes).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn every_kind_of_object_is_read() {
    let archive = open(archive()).unwrap();
    let info = archive.volume();
    assert_eq!((info.files, info.folders), (8, 3));
    // The kernel takes object 1 of a mounted volume for its root.
    assert_eq!(archive.root().0, 2);
    let names: Vec<_> = archive
        .entries(archive.root())
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name, entry.attributes.kind))
        .collect();
    let expected = [
        ("clone.txt", FileKind::File),
        ("cloned.txt", FileKind::File),
        ("device", FileKind::CharDevice),
        ("empty", FileKind::File),
        ("fifo", FileKind::Fifo),
        ("folder", FileKind::Folder),
        ("link", FileKind::Symlink),
        ("unknown", FileKind::Folder),
    ]
    .map(|(name, kind)| (name.to_owned(), kind));
    assert_eq!(names, expected);
    let found = archive.resolve("/folder/file.txt").unwrap();
    assert_eq!(
        (found.mode, found.uid, found.gid, found.links, found.size),
        (0o640, 501, 20, 2, CONTENTS.len() as u64)
    );
    let modified = Timestamp {
        seconds: TIME,
        nanos: 5,
    };
    assert_eq!(found.modified, Some(modified));
    assert_eq!(found.created, Some(Timestamp::from_seconds(TIME - 1)));
    assert_eq!(archive.resolve("folder/again.txt").unwrap().id, found.id);
    assert_eq!(read(&archive, "folder/again.txt"), CONTENTS);
    assert_eq!(read(&archive, "cloned.txt"), b"the same");
    assert_eq!(read(&archive, "empty"), b"");
    assert_eq!(read(&archive, "unknown/large"), [7; 70_000]);
    let link = archive.resolve("link").unwrap();
    assert_eq!(archive.read_link(link.id).unwrap(), "folder/file.txt");
    assert_eq!(archive.resolve("device").unwrap().device, 0x0300_0002);
    assert!(archive.resolve("none").is_err());
}

/// The header that The Apple Wiki shows, of a folder archived by macOS.
#[test]
fn an_entry_of_macos_is_read() {
    let bytes = [
        &b"AA01\x46\0TYP1DPATP\0\0UID1\0GID1\x50MOD2\xed\x01FLG1\0"[..],
        b"MTMT\xbd\xada\x66\0\0\0\0\x63\x76\x91\x0c",
        b"CTMT\xa6\xa4a\x66\0\0\0\0\xd4\xba\x2e\x03",
    ]
    .concat();
    let archive = open(bytes).unwrap();
    let root = archive.attributes(archive.root()).unwrap();
    assert_eq!((root.mode, root.uid, root.gid), (0o755, 0, 80));
    assert_eq!(
        root.modified.unwrap().to_string(),
        "2024-06-06T12:38:21.210859619Z"
    );
    assert!(root.created < root.modified);
}

#[test]
fn extended_attributes_are_read() {
    let archive = open(archive()).unwrap();
    let found = archive.resolve("folder/file.txt").unwrap();
    assert!(found.has_xattrs);
    assert_eq!(found.resource_size, RESOURCES.len() as u64);
    assert_eq!(
        archive.xattrs(found.id).unwrap(),
        ["com.apple.ResourceFork", "user.note", "user.empty"]
    );
    let value = archive.xattr(found.id, "user.note").unwrap().unwrap();
    assert_eq!(value.read_vec(0, 6).unwrap(), b"a note");
    let empty = archive.xattr(found.id, "user.empty").unwrap().unwrap();
    assert_eq!(empty.info().len, 0);
    assert!(archive.xattr(found.id, "user").unwrap().is_none());
    let fork = archive.open(found.id, Fork::Resource).unwrap();
    assert_eq!(fork.read_vec(0, RESOURCES.len()).unwrap(), RESOURCES);
}

#[test]
fn contents_are_compared_with_their_hashes() {
    let mut bytes = archive();
    let problems = |bytes: &[u8]| {
        let stream = Arc::new(Memory::read_only(bytes.to_vec()));
        check(stream, &Silent).unwrap()
    };
    assert_eq!(problems(&bytes).len(), 0);
    let at = bytes
        .windows(CONTENTS.len())
        .position(|window| window == CONTENTS)
        .unwrap();
    bytes[at] ^= 1;
    let problems = problems(&bytes);
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].severity, Severity::Damage);
    assert!(problems[0].error.to_string().contains("checksum mismatch"));
}

#[test]
fn unsafe_paths_are_refused() {
    let long = "x".repeat(1025);
    for path in [
        "/etc/passwd",
        "../up",
        "a/../../b",
        "a//b",
        "a/",
        ".",
        &long,
    ] {
        refused(&[file(path)], Kind::Corrupt, "a path has the name");
    }
    refused(&[file("")], Kind::Corrupt, "has no name");
    refused(&[file("a\0b")], Kind::Corrupt, "not UTF-8");
    refused(&[file("a"), file("a")], Kind::Corrupt, "two entries");
    let folder = || FixtureEntry::new(b'D', "a");
    refused(&[folder(), folder()], Kind::Corrupt, "two entries");
    refused(&[folder(), file("a")], Kind::Corrupt, "two entries");
    // Through a symbolic link, a file could be written anywhere.
    let link = FixtureEntry::new(b'L', "a").text("LNK", "/etc");
    refused(&[link, file("a/b")], Kind::Corrupt, "no folder");
    let deep = "a/".repeat(512) + "b";
    refused(&[file(&deep)], Kind::Limit, "folders in each other");
}

#[test]
fn damaged_and_unknown_entries_are_refused() {
    let update = FixtureEntry::default()
        .number("TYP", 1, b'M'.into())
        .number("YOP", 1, b'E'.into());
    refused(&[update], Kind::Unsupported, "an update");
    refused(
        &[FixtureEntry::new(b'W', "a")],
        Kind::Unsupported,
        "of the type",
    );
    refused(
        &[FixtureEntry::default().text("PAT", "a")],
        Kind::Corrupt,
        "no type",
    );
    refused(
        &[FixtureEntry::default().number("TYP", 1, b'F'.into())],
        Kind::Corrupt,
        "no path",
    );
    refused(&[FixtureEntry::new(b'L', "a")], Kind::Corrupt, "no target");
    refused(
        &[file("a").text("PAT", "b")],
        Kind::Corrupt,
        "a field twice",
    );
    refused(
        &[file("a").text("MOD", "b")],
        Kind::Corrupt,
        "of another type",
    );
    refused(
        &[file("a").number("UID", 8, 1 << 40)],
        Kind::Corrupt,
        "too large",
    );
    refused(
        &[file("a").time("MTM", 0, 1_000_000_000)],
        Kind::Corrupt,
        "nanoseconds",
    );
    refused(
        &[file("a").blob("XAT", 2, b"\xff\0\0\0name\0")],
        Kind::Corrupt,
        "exceeds its blob",
    );
    let twice: &[(&str, &[u8])] = &[("a", b"1"), ("a", b"2")];
    refused(&[file("a").xattrs(twice)], Kind::Corrupt, "twice");
    // An entry cut at any byte.
    let bytes = file("a").bytes();
    for len in 1..bytes.len() {
        let error = open(bytes[..len].to_vec()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{len}: {error}");
    }
}

#[test]
fn a_file_without_its_contents_is_listed_and_not_read() {
    let missing = FixtureEntry::new(b'F', "a").number("SIZ", 2, 1000);
    let differs = file("b").number("SIZ", 2, 1000);
    let archive = open([missing.bytes(), differs.bytes()].concat()).unwrap();
    for path in ["a", "b"] {
        let found = archive.resolve(path).unwrap();
        assert_eq!(found.size, 1000);
        let error = archive.open(found.id, Fork::Data).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported, "{error}");
    }
}
