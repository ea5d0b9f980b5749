//! Downloads: whole, in part, and of damaged files.

use std::fs;
use std::io::{Cursor, Read};

use bandsaw::container::Format;
use bandsaw::ops::format::NewFormat;

use crate::common::{HOSTILE, Images, Site, noise};

const BIG: &str = "raw?r=0&i=docs.dmg&v=1&p=/big.bin";

#[test]
fn files_are_downloaded_whole_and_in_ranges() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let (visitor, expected) = (&site.visitor, noise(3_000_017));
    let whole = visitor.get(BIG);
    assert!(whole.is_whole && whole.body == expected);
    assert_eq!(whole.field("accept-ranges").unwrap(), "bytes");
    let tag = whole.field("etag").unwrap();
    for (range, part) in [
        ("bytes=0-9", 0..10),
        ("bytes=1000000-", 1_000_000..3_000_017),
        ("bytes=-17", 3_000_000..3_000_017),
        ("bytes=2999999-9999999999", 2_999_999..3_000_017),
    ] {
        let reply = visitor.get_with(
            BIG,
            &[&format!("Range: {range}"), &format!("If-Range: {tag}")],
        );
        assert_eq!((reply.status, reply.is_whole), (206, true), "{range}");
        assert!(reply.body == expected[part.clone()], "{range}");
        let stated = format!("bytes {}-{}/3000017", part.start, part.end - 1);
        assert_eq!(reply.field("content-range").unwrap(), stated);
    }
    let past = visitor.get_with(BIG, &["Range: bytes=3000017-"]);
    assert_eq!(
        (past.status, past.field("content-range").unwrap()),
        (416, "bytes */3000017".to_owned())
    );
    let changed = visitor.get_with(BIG, &["Range: bytes=0-9", "If-Range: \"other\""]);
    assert_eq!((changed.status, changed.body.len()), (200, 3_000_017));
    let head = visitor.send(&visitor.request("HEAD", BIG, &[], ""));
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.field("content-length").unwrap(), "3000017");
}

#[test]
fn folders_are_downloaded_as_zip() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let reply = site.visitor.get("archive.zip?r=0&i=docs.dmg&v=1");
    assert!(reply.is_whole && reply.status == 200, "{}", reply.head);
    assert!(
        reply
            .field("content-disposition")
            .unwrap()
            .contains("Docs & _more_.zip")
    );
    let mut archive = zip::ZipArchive::new(Cursor::new(reply.body)).unwrap();
    let mut names: Vec<_> = archive
        .file_names()
        .map(|name| name.unwrap().into_owned())
        .collect();
    names.sort();
    for name in [
        "hello.txt",
        "sub/deep/",
        "sub/deep/a b&c.txt",
        "empty/",
        HOSTILE,
        "שלום.txt",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
    let mut contents = Vec::new();
    archive
        .by_name("big.bin")
        .unwrap()
        .read_to_end(&mut contents)
        .unwrap();
    assert!(contents == noise(3_000_017));
    let part = site.visitor.get("archive.zip?r=0&i=docs.dmg&v=1&p=/sub");
    let archive = zip::ZipArchive::new(Cursor::new(part.body)).unwrap();
    assert!(
        archive
            .file_names()
            .any(|name| name.unwrap() == "deep/a b&c.txt")
    );
}

#[test]
fn folders_are_downloaded_as_tar() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let reply = site.visitor.get("archive.tar?r=0&i=docs.dmg&v=1");
    assert!(reply.is_whole && reply.status == 200, "{}", reply.head);
    let image = bandsaw::open::open(&images.root().join("docs.dmg"), &Default::default()).unwrap();
    let volume = image.file_system(None).unwrap();
    let mut expected = Vec::new();
    let silent = bandsaw::progress::Silent;
    bandsaw::ops::export::to_tar(&*volume, "/", &mut expected, &silent).unwrap();
    assert!(reply.body == expected);
}

#[test]
fn a_damaged_file_makes_downloads_visibly_incomplete() {
    let images = Images::new();
    let lines: String = (0..500_000).map(|number| format!("{number}\n")).collect();
    fs::write(images.path("tree/big.bin"), &lines).unwrap();
    images.create("docs.dmg", Format::Udzo, NewFormat::HfsPlus, None);
    let path = images.root().join("docs.dmg");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let raw = visitor.get(BIG);
    assert_eq!((raw.status, raw.is_whole), (200, false));
    assert!(raw.body.len() < lines.len() && lines.as_bytes().starts_with(&raw.body));
    let note = visitor.page("");
    assert!(
        note.contains("The last download is incomplete") && note.contains("big.bin"),
        "{note}"
    );
    assert!(!visitor.page("").contains("incomplete"), "it is said once");
    for archive in ["archive.zip", "archive.tar"] {
        let reply = visitor.get(&format!("{archive}?r=0&i=docs.dmg&v=1"));
        assert_eq!((reply.status, reply.is_whole), (200, false), "{archive}");
        assert!(
            zip::ZipArchive::new(Cursor::new(&reply.body)).is_err(),
            "{archive}"
        );
        assert!(!reply.body.ends_with(&[0; 1024]), "{archive} has no end");
    }
    // Other files are not concerned.
    assert_eq!(
        visitor.get("raw?r=0&i=docs.dmg&v=1&p=/hello.txt").text(),
        "hello, world\n"
    );
}
