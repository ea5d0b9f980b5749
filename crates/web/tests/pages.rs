//! Every page, with and without what it is about.

use std::fs;

use bandsaw::container::Format;
use bandsaw::crypt::{MIN_ITERATIONS, Secret};
use bandsaw::fs::VolumeEncryption;
use bandsaw::ops::create::{CreateOptions, Layout, NewVolume, Source, create};
use bandsaw::ops::format::NewFormat;
use bandsaw::progress::Silent;

use crate::common::{Images, Site, folder_of, link};

#[test]
fn images_are_listed_and_found() {
    let images = Images::plain();
    images.create("other.sparsebundle", Format::Udsb, NewFormat::Apfs, None);
    images.create("secret.dmg", Format::Udrw, NewFormat::HfsPlus, Some("key"));
    fs::write(images.root().join("notes.txt"), "no image").unwrap();
    let site = Site::new(&images.root());
    let list = site.visitor.page("");
    for part in [
        "docs.dmg",
        "other.sparsebundle",
        "secret.dmg",
        "UDZO",
        "UDSB",
        "encrypted image",
    ] {
        assert!(list.contains(part), "{part}: {list}");
    }
    assert!(!list.contains("notes.txt") && !list.contains("other.sparsebundle/bands"));
    assert!(list.contains("<td>yes</td>") && list.contains("<td>no</td>"));
    let found = site.visitor.page("?q=OTHER");
    assert!(found.contains("other.sparsebundle") && !found.contains("docs.dmg"));
    assert!(site.visitor.page("?q=nothing+like+it").contains("No image"));
    assert_eq!(site.visitor.get("?page=7").status, 200);
}

#[test]
fn an_image_is_shown_with_its_space() {
    let images = Images::new();
    images.create("a.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    images.create("b.sparseimage", Format::Udsp, NewFormat::Apfs, None);
    images.create("c.dmg", Format::Udzo, NewFormat::HfsPlus, None);
    let site = Site::new(&images.root());
    let list = site.visitor.page("");
    for image in ["a.sparsebundle", "b.sparseimage", "c.dmg"] {
        let page = site.visitor.page(&link(&list, "image?", image));
        for part in ["Docs &amp; &lt;more&gt;", "Partitions", "Layers", "GPT"] {
            assert!(page.contains(part), "{image}: {part}");
        }
        assert!(!page.contains("/proc/self/fd"), "{image}");
        let space = site.visitor.page(&link(&page, "space?", image));
        assert!(space.contains("Compaction would free") && !space.contains("/proc/self/fd"));
        assert_eq!(space.contains("<svg"), image != "c.dmg", "{image}");
    }
}

#[test]
fn folders_are_sorted_and_paged() {
    let images = Images::new();
    for number in 0..2500 {
        fs::write(
            images.path("tree/empty").join(format!("f{number:04}")),
            vec![0; number % 7],
        )
        .unwrap();
    }
    images.create("docs.dmg", Format::Udzo, NewFormat::HfsPlus, None);
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    for order in ["name", "size", "modified", "kind", "stored"] {
        for down in ["", "&down=1"] {
            let mut page = format!("folder?r=0&i=docs.dmg&v=1&p=/empty&sort={order}{down}");
            let mut names = Vec::new();
            for part in 0.. {
                assert!(part < 3, "{order}");
                let text = visitor.page(&page);
                let before = names.len();
                names.extend(
                    text.split("<bdi>f")
                        .skip(1)
                        .map(|rest| rest[..4].to_owned()),
                );
                assert!(names.len() - before <= 1000);
                if !text.contains("rel=\"next\"") {
                    break;
                }
                let next = text.split("rel=\"next\"").next().unwrap();
                page = next
                    .rsplit("href=\"")
                    .next()
                    .unwrap()
                    .split('"')
                    .next()
                    .unwrap()
                    .replace("&amp;", "&");
            }
            assert_eq!(names.len(), 2500, "{order}{down}");
            if order == "name" {
                assert_eq!(
                    names.first().unwrap(),
                    if down.is_empty() { "0000" } else { "2499" }
                );
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 2500, "{order}{down}");
        }
    }
    assert!(
        visitor
            .page("folder?r=0&i=docs.dmg&v=1&p=/sub")
            .contains("deep")
    );
    assert_eq!(
        visitor.get("folder?r=0&i=docs.dmg&v=1&p=/hello.txt").status,
        404
    );
    assert_eq!(visitor.get("folder?r=0&i=docs.dmg&v=7").status, 404);
    assert_ne!(
        visitor.get("folder?r=0&i=docs.dmg&v=1&s=before").status,
        500
    );
}

#[test]
fn files_are_shown() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let details = |name: &str| visitor.page(&format!("file?r=0&i=docs.dmg&v=1&p=/{name}"));
    let text = details("hello.txt");
    for part in [
        "<pre",
        "hello, world",
        "Data fork",
        "Resource fork",
        "Compression",
        "Extents",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let list = details("info.plist");
    assert!(list.contains("&lt;key&gt;Name&lt;/key&gt;"), "{list}");
    let picture = details("picture.png");
    assert!(
        picture.contains("<img class=\"preview\" src=\"raw?"),
        "{picture}"
    );
    let bytes = details("big.bin");
    assert!(bytes.contains("no preview"));
    let hex = visitor.page(&link(&text, "hex?", "hello"));
    assert!(
        hex.contains("00000000  68 65 6c 6c 6f 2c 20 77  6f 72 6c 64 0a"),
        "{hex}"
    );
    let end = visitor.page("hex?r=0&i=docs.dmg&v=1&p=/big.bin&at=99999999999");
    assert!(end.contains("Begin") && !end.contains("Forward"));
    assert_eq!(visitor.get("hex?r=0&i=docs.dmg&v=1&p=/sub").status, 404);
    assert_eq!(
        visitor.get("file?r=0&i=docs.dmg&v=1&p=/nothing").status,
        404
    );
}

#[test]
fn sizes_of_folders_are_drawn() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let folder = site.visitor.page(&folder_of(&site.visitor, "docs.dmg"));
    let sizes = site.visitor.page(&link(&folder, "sizes?", "docs.dmg"));
    assert!(
        sizes.contains("<svg") && sizes.contains("big.bin: 2.9 MiB"),
        "{sizes}"
    );
    let below = site.visitor.page(&link(&sizes, "sizes?", "sub"));
    assert!(below.contains("deep"));
    assert!(
        site.visitor
            .page("sizes?r=0&i=docs.dmg&v=1&p=/empty")
            .contains("0 bytes")
    );
}

#[test]
fn names_are_searched_below_a_folder() {
    let images = Images::plain();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let all = visitor.page("find?r=0&i=docs.dmg&v=1&p=/&q=B%26C");
    assert!(
        all.contains("/sub/deep/a b&amp;c.txt") && all.contains("1 found"),
        "{all}"
    );
    let none = visitor.page("find?r=0&i=docs.dmg&v=1&p=/empty&q=a");
    assert!(none.contains("0 found"));
    let file = visitor.page(&link(&all, "file?", "deep"));
    assert!(file.contains("deep\n"));
}

#[test]
fn checks_run_beside_other_pages() {
    let images = Images::plain();
    images.create("secret.dmg", Format::Udrw, NewFormat::HfsPlus, Some("key"));
    let broken = fs::read(images.root().join("docs.dmg")).unwrap();
    fs::write(
        images.root().join("broken.dmg"),
        &broken[..broken.len() / 2],
    )
    .unwrap();
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    for (image, kind, expected) in [
        ("docs.dmg", "check", "no problem was found"),
        ("docs.dmg", "diagnose", "no problem was found"),
        ("broken.dmg", "diagnose", "it "),
        ("secret.dmg", "check", "passphrase"),
    ] {
        let started = visitor.post(&format!("check?r=0&i={image}"), &format!("kind={kind}"));
        assert_eq!(started.status, 303, "{image}");
        let job = started.field("location").unwrap();
        let number = job.split('=').nth(1).unwrap();
        // The events end with the check.
        let events = visitor.get(&format!("events?id={number}"));
        assert_eq!(events.field("content-type").unwrap(), "text/event-stream");
        assert!(events.is_whole && events.text().ends_with("event: end\ndata: \n\n"));
        let page = visitor.page(&job);
        assert!(page.contains(expected), "{image} {kind}: {page}");
        assert!(
            !page.contains("/proc/self/fd") && !page.contains("<progress"),
            "{page}"
        );
        let mut other = visitor.clone();
        other.cookie = None;
        assert_eq!(other.get(&job).status, 401);
    }
    assert_eq!(visitor.get("job?id=0000").status, 404);
}

#[test]
fn an_encrypted_image_is_browsed() {
    let images = Images::new();
    images.create(
        "secret.sparsebundle",
        Format::Udsb,
        NewFormat::Apfs,
        Some("key"),
    );
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let unlocked = visitor.post("unlock?r=0&i=secret.sparsebundle", "passphrase=key");
    assert_eq!(unlocked.status, 303);
    let folder = visitor.page(&folder_of(visitor, "secret.sparsebundle"));
    assert!(folder.contains("hello.txt"));
    let raw = visitor.get("raw?r=0&i=secret.sparsebundle&v=1.1&p=/hello.txt");
    assert_eq!(raw.text(), "hello, world\n");
}

#[test]
fn an_encrypted_volume_asks_for_its_own_passphrase() {
    let images = Images::new();
    let options = CreateOptions {
        volume: Some(NewVolume {
            layout: Layout::Gptspud,
            name: "Secret & <b>".to_owned(),
            format: NewFormat::Apfs,
            block_size: None,
            source: Source::Folder(images.path("tree")),
        }),
        volume_encryption: Some(VolumeEncryption {
            passphrase: Secret::new(b"key".to_vec()),
            recovery_key: None,
            hint: None,
            iterations: MIN_ITERATIONS,
        }),
        ..CreateOptions::default()
    };
    drop(create(&images.root().join("volume.img"), options, &Silent).unwrap());
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let folder = folder_of(visitor, "volume.img");
    let asked = visitor.get(&folder);
    assert_eq!(asked.status, 403);
    let text = asked.text();
    assert!(
        text.contains("name=\"volume\" value=\"Secret &amp; &lt;b&gt;\""),
        "{text}"
    );
    let form = "volume=Secret+%26+%3Cb%3E&passphrase";
    let unlock = link(&text, "unlock?", "volume.img");
    assert_eq!(visitor.post(&unlock, &format!("{form}=wrong")).status, 403);
    assert_eq!(visitor.post(&unlock, &format!("{form}=key")).status, 303);
    assert!(visitor.page(&folder).contains("hello.txt"));
    assert_eq!(visitor.post("lock", "").status, 303);
    assert_eq!(visitor.get(&folder).status, 403);
}

#[test]
fn backups_are_shown_over_time() {
    let images = Images::new();
    images.create("docs.dmg", Format::Udzo, NewFormat::Apfs, None);
    let folder = "tree/Backups.backupdb/Mac";
    for (date, text) in [
        ("2026-11-01-120000", Some("one")),
        ("2026-11-02-120000", Some("one and more")),
        ("2026-11-03-120000", None),
    ] {
        let volume = images.path(&format!("{folder}/{date}/Disk & <b>"));
        fs::create_dir_all(&volume).unwrap();
        if let Some(text) = text {
            fs::write(volume.join("a.txt"), text).unwrap();
        }
        fs::write(volume.join("new.txt"), date).unwrap();
    }
    images.create("tm.sparsebundle", Format::Udsb, NewFormat::HfsPlus, None);
    let site = Site::new(&images.root());
    let visitor = &site.visitor;
    let all = visitor.page("time?r=0&i=tm.sparsebundle&v=1");
    for date in ["2026-11-01", "2026-11-02", "2026-11-03"] {
        assert!(all.contains(date), "{all}");
    }
    let path = "/Backups.backupdb/Mac/2026-11-02-120000/Disk%20%26%20%3Cb%3E/a.txt";
    let file = visitor.page(&format!("file?r=0&i=tm.sparsebundle&v=1&p={path}"));
    let versions = visitor.page(&link(&file, "time?", "a.txt"));
    assert!(
        versions.contains("<bdi>/Disk &amp; &lt;b&gt;/a.txt</bdi>"),
        "{versions}"
    );
    let cells = |number: u64| format!("<td class=\"number\">{number}</td>");
    assert!(versions.contains(&cells(1)) && versions.contains(&cells(2)));
    assert!(!versions.contains(&cells(3)));
    let old = visitor.page(&link(&versions, "file?", "2026-11-01"));
    assert!(old.contains("<pre") && old.contains("one"), "{old}");
    let same = "compare?r=0&i=tm.sparsebundle&v=1&p=/";
    let changed = visitor.page(&format!("{same}&old=backup%200&new=backup%201"));
    assert!(
        changed.contains("a.txt") && changed.contains("changed"),
        "{changed}"
    );
    let removed = visitor.page(&format!("{same}&old=backup%201&new=backup%202"));
    assert!(
        removed.contains("removed") && removed.contains("/Disk &amp; &lt;b&gt;/a.txt"),
        "{removed}"
    );
    assert!(
        visitor
            .page(&format!("{same}&old=backup%201&new=backup%201"))
            .contains("no difference")
    );
    assert_eq!(
        visitor
            .get(&format!("{same}&old=backup%201&new=backup%207"))
            .status,
        404
    );
    assert_eq!(visitor.get(&format!("{same}&old=backup%201")).status, 400);
    let none = visitor.page("time?r=0&i=docs.dmg&v=1.1");
    assert!(none.contains("neither snapshots nor"), "{none}");
}
