//! States of volumes and bundles: snapshots to look at and to compare.

use std::fs;
use std::sync::Arc;

use bandsaw::container::Format;
use bandsaw::device::{BlockDevice, Memory};
use bandsaw::fs::Timestamp;
use bandsaw::fs::apfs::{ApfsMut, Container, WriteOptions};
use bandsaw::fs::{FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, NewKind, NewNode};
use bandsaw::open::NetworkOptions;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::ops::snapshot;
use bandsaw::progress::Silent;
use bandsaw_web::{Limits, Permissions};

use crate::common::{Images, Site, link};

/// Creates an image with an APFS volume that has two snapshots.
pub(crate) fn with_snapshots(images: &Images) {
    let image = images.root().join("apfs.img");
    let options = CreateOptions {
        format: Format::Udrw,
        volume: Some(NewVolume {
            layout: Layout::None,
            name: "Data".to_owned(),
            format: NewFormat::Apfs,
            block_size: None,
            source: Source::Folder(images.path("tree")),
        }),
        len: Some(16 << 20),
        ..CreateOptions::default()
    };
    create(&image, options, &Silent).unwrap();
    let memory = Arc::new(Memory::from(fs::read(&image).unwrap()));
    let device: Arc<dyn BlockDevice> = memory.clone();
    let open = |seconds| {
        let container = Arc::new(Container::open(device.clone(), None).unwrap());
        let options = WriteOptions {
            now: Some(Timestamp::from_seconds(seconds)),
        };
        ApfsMut::open(&container, 1, options, &|_| unreachable!("not encrypted")).unwrap()
    };
    for (number, name) in [(1, "first"), (2, "before & after")] {
        let volume = open(1_700_000_000 + number);
        let file = NewNode::new(NewKind::File);
        let added = volume
            .create(volume.root(), &format!("added {number}.txt"), &file)
            .unwrap();
        volume.write_all(added, b"added").unwrap();
        let changed = volume.resolve("/hello.txt").unwrap();
        volume
            .write_all(changed.id, format!("version {number}").as_bytes())
            .unwrap();
        volume.take_snapshot(name, None).unwrap();
        volume.unmount().unwrap();
    }
    let volume = open(1_700_000_010);
    volume.remove(volume.root(), "added 1.txt").unwrap();
    volume.unmount().unwrap();
    drop(volume);
    fs::write(&image, memory.to_vec()).unwrap();
}

#[test]
fn snapshots_of_a_volume_are_compared() {
    let images = Images::new();
    with_snapshots(&images);
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let image = visitor.page("image?r=0&i=apfs.img");
    let timeline = visitor.page(&link(&image, "time?", "v=1.1"));
    for part in [
        "<bdi>first</bdi>",
        "<bdi>before &amp; after</bdi>",
        "Now",
        "Compare",
    ] {
        assert!(timeline.contains(part), "{part}: {timeline}");
    }
    let compare = |old: &str, new: &str, path: &str| {
        visitor.page(&format!(
            "compare?r=0&i=apfs.img&v=1.1&p={path}&old={old}&new={new}"
        ))
    };
    let later = "snapshot+before+%26+after";
    let changed = compare("snapshot+first", later, "/");
    assert!(
        changed.contains("/added 2.txt") && changed.contains("<td>added</td>"),
        "{changed}"
    );
    assert!(
        changed.contains("/hello.txt") && changed.contains("changed: contents"),
        "{changed}"
    );
    assert!(!changed.contains("added 1.txt"), "{changed}");
    let removed = compare(later, "now", "/");
    assert!(
        removed.contains("/added 1.txt") && removed.contains("<td>removed</td>"),
        "{removed}"
    );
    assert!(compare("now", "now", "/").contains("no difference"));
    assert!(compare(later, "now", "/sub").contains("no difference"));
    let file = compare("snapshot+first", "now", "/hello.txt");
    assert!(
        file.contains("<bdi>/hello.txt</bdi>") && file.contains("1 differences"),
        "{file}"
    );
    for (query, status) in [
        ("p=/added%201.txt&old=snapshot+first&new=now", 404),
        ("p=/&old=snapshot+none&new=now", 404),
        ("p=/&old=backup+0&new=now", 400),
        ("p=/&old=&new=now", 400),
    ] {
        let page = format!("compare?r=0&i=apfs.img&v=1.1&{query}");
        assert_eq!(visitor.get(&page).status, status, "{query}");
    }
    // Every version of a file, and what each holds.
    let versions = visitor.page("time?r=0&i=apfs.img&v=1.1&p=/hello.txt");
    let first = visitor.page(&link(&versions, "file?", "s=first"));
    assert!(first.contains("version 1"), "{first}");
    assert!(
        visitor
            .page("file?r=0&i=apfs.img&v=1.1&p=/hello.txt")
            .contains("version 2")
    );
}

#[test]
fn snapshots_of_a_bundle_are_looked_at() {
    let images = Images::new();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let bundle = images.root().join("a.sparsebundle");
    snapshot::create(&bundle, "before & x", NetworkOptions::default(), &Silent).unwrap();
    let permissions = Permissions {
        changes: true,
        ..Permissions::default()
    };
    let site = Site::permitted(&images.root(), Limits::default(), permissions);
    let visitor = &site.visitor;
    let image = visitor.page("image?r=0&i=a.sparsebundle");
    let address = link(&image, "image?", "b=");
    let shown = visitor.page(&address);
    assert!(shown.contains("a.sparsebundle@before &amp; x"), "{shown}");
    assert!(
        !shown.contains("/proc/self/fd") && !shown.contains("changes?"),
        "{shown}"
    );
    let folder = visitor.page(&link(&shown, "folder?", "b=before"));
    let file = visitor.page(&link(&folder, "file?", "hello.txt"));
    assert!(file.contains("hello, world"), "{file}");
    assert!(
        visitor
            .page(&link(&folder, "archive.zip?", "b=before"))
            .starts_with("PK")
    );
    let found = link(&folder, "sizes?", "b=before").replace("sizes?", "find?q=hello&");
    let found = visitor.page(&found);
    assert!(found.contains("hello.txt"));
    assert!(
        visitor
            .page(&link(&shown, "image?", "a.sparsebundle"))
            .contains("b=before")
    );
    // Neither changes, nor names that lead elsewhere.
    let query = address.split_once('?').unwrap().1;
    assert_eq!(visitor.get(&format!("changes?{query}")).status, 409);
    for name in ["none", "..", "..%2F..%2Fx", ".", "a%2Fb"] {
        let page = visitor.page(&format!("image?r=0&i=a.sparsebundle&b={name}"));
        assert!(page.contains("class=\"bad\""), "{name}: {page}");
        assert!(!page.contains("folder?"), "{name}: {page}");
    }
}
