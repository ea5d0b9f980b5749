//! Volumes of every form, damaged and hostile ones included.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw_core::problem::Severity;
use bandsaw_core::progress::Silent;
use bandsaw_core::{Kind, Result};
use bandsaw_testing::{Random, conformance, mutate};
use zerocopy::{FromBytes, IntoBytes};

use super::contents::join_sections;
use super::fixture::{self, FINDER, IsoOptions, MANY, RESOURCES, contents};
use super::layout::{BothU16, BothU32, RecordRaw};
use super::{IsoVolume, Space, check, stated_len};
use crate::{
    Ancestors, Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId, RESOURCE_FORK,
};

/// Maximum number of entries that a test walks through.
const MAX_ENTRIES: usize = 2000;

fn device(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::read_only(bytes))
}

fn open(options: &IsoOptions) -> IsoVolume {
    IsoVolume::open(device(fixture::volume(options))).unwrap()
}

fn forms() -> Vec<IsoOptions> {
    let mut forms = Vec::new();
    for block_size in [512, 1024, 2048] {
        for (rock_ridge, joliet) in [(true, true), (true, false), (false, true), (false, false)] {
            forms.push(IsoOptions {
                block_size,
                rock_ridge,
                joliet,
            });
        }
    }
    forms
}

fn read(volume: &IsoVolume, node: NodeId, fork: Fork) -> Result<Vec<u8>> {
    let device = volume.open(node, fork)?;
    device.read_vec(0, device.info().len as usize)
}

/// Returns all objects by their paths. A folder that contains itself, or cannot be read, is not
/// entered.
fn objects(volume: &IsoVolume) -> BTreeMap<String, Attributes> {
    let mut found = BTreeMap::new();
    let (mut ahead, mut ancestors) = (
        vec![(String::new(), volume.root(), 0)],
        Ancestors::default(),
    );
    while let Some((path, folder, depth)) = ahead.pop() {
        if ancestors.enter(folder, depth).is_err() || found.len() > MAX_ENTRIES {
            continue;
        }
        for entry in volume.entries(folder).unwrap_or_default() {
            let path = format!("{path}/{}", entry.name);
            if entry.attributes.kind == FileKind::Folder {
                ahead.push((path.clone(), entry.attributes.id, depth + 1));
            }
            found.insert(path, entry.attributes);
        }
    }
    found
}

fn at(volume: &IsoVolume, path: &str) -> NodeId {
    volume.resolve(path).unwrap().id
}

fn place(bytes: &[u8], what: &[u8]) -> usize {
    let found = bytes.windows(what.len()).position(|window| window == what);
    found.expect("it is in the volume")
}

/// Changes the record whose identifier is the first `name` in a volume.
fn change_record(bytes: &mut [u8], name: &[u8], change: impl FnOnce(&mut RecordRaw)) {
    let start = place(bytes, name) - 33;
    let raw = RecordRaw::mut_from_bytes(&mut bytes[start..start + 33]).unwrap();
    change(raw);
}

#[test]
fn rock_ridge_is_read_with_every_block_size() {
    for options in forms().into_iter().filter(|options| options.rock_ridge) {
        let volume = open(&options);
        let info = volume.volume();
        assert_eq!((info.format, &*info.name), ("ISO 9660", "SAMPLE"));
        assert!(info.case_sensitive && info.total > 0);
        assert_eq!(info.created.unwrap().to_string(), "2024-03-01T12:34:56Z");
        let found = objects(&volume);
        assert_eq!(found.len(), MANY + 11, "{options:?}: {:?}", found.keys());
        for (path, expected) in [
            ("/a.txt", b"hello".to_vec()),
            ("/folder/deep.txt", b"deep down".to_vec()),
            ("/folder/here/inner.txt", b"moved".to_vec()),
            ("/A long name: \u{e9}.text", contents(5000)),
            ("/parts", [contents(4096), contents(1000)].concat()),
            ("/App", contents(100)),
            ("/many/file 07", b"file 07".to_vec()),
        ] {
            assert!(
                read(&volume, at(&volume, path), Fork::Data).unwrap() == expected,
                "{path}"
            );
            assert_eq!(found[path].size, expected.len() as u64, "{path}");
        }
        let link = &found["/link"];
        assert_eq!(
            (link.kind, link.mode, link.size),
            (FileKind::Symlink, 0o777, 16)
        );
        assert_eq!(volume.read_link(link.id).unwrap(), "/folder/../a.txt");
        let file = &found["/a.txt"];
        assert_eq!(
            (file.mode, file.uid, file.gid, file.links),
            (0o644, 501, 20, 1)
        );
        assert_eq!(file.modified.unwrap().to_string(), "2024-03-01T12:34:56Z");
        assert_eq!((file.accessed, file.created), (file.modified, None));
        assert_eq!(found["/many"].size, MANY as u64);
        assert_eq!(found["/rr_moved"].size, 0, "its folder is shown elsewhere");
        assert!(volume.lookup(volume.root(), "A.TXT").unwrap().is_none());
        assert!(volume.read_link(file.id).is_err());
        assert!(volume.open(found["/many"].id, Fork::Data).is_err());
    }
}

#[test]
fn attributes_are_those_of_the_listing() {
    for options in forms() {
        let volume = open(&options);
        for (path, attributes) in objects(&volume) {
            assert_eq!(
                volume.attributes(attributes.id).unwrap(),
                attributes,
                "{path}"
            );
        }
        let root = volume.attributes(volume.root()).unwrap();
        assert_eq!((root.kind, root.id), (FileKind::Folder, volume.root()));
        let mut names = Vec::new();
        volume
            .list_names(volume.root(), &mut |name, kind| {
                names.push((name.to_owned(), kind));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        let listed = volume.entries(volume.root()).unwrap().into_iter();
        let listed: Vec<_> = listed
            .map(|entry| (entry.name, entry.attributes.kind))
            .collect();
        assert_eq!(names, listed);
    }
}

#[test]
fn joliet_is_read_without_rock_ridge() {
    let volume = open(&IsoOptions {
        rock_ridge: false,
        ..IsoOptions::default()
    });
    assert_eq!(volume.volume().name, "Sample");
    let found = objects(&volume);
    let long = &found["/A long name: \u{e9}.text"];
    assert!(read(&volume, long.id, Fork::Data).unwrap() == contents(5000));
    assert_eq!((long.mode, long.uid), (0o644, 99));
    assert!(found.contains_key("/rr_moved/here/inner.txt"));
    assert_eq!(found["/link"].kind, FileKind::File);
    let upper = volume.lookup(volume.root(), "A.TXT").unwrap().unwrap();
    assert_eq!(upper.id, found["/a.txt"].id, "case is ignored");
}

#[test]
fn a_damaged_tree_of_joliet_leaves_the_plain_one() {
    let mut bytes = fixture::volume(&IsoOptions {
        rock_ridge: false,
        ..IsoOptions::default()
    });
    bytes[17 * 2048 + 0x9E..][..8].fill(0xFF);
    let volume = IsoVolume::open(device(bytes)).unwrap();
    assert!(objects(&volume).contains_key("/A.TXT"));
}

#[test]
fn plain_names_have_no_version() {
    let volume = open(&IsoOptions {
        rock_ridge: false,
        joliet: false,
        ..IsoOptions::default()
    });
    let found = objects(&volume);
    for path in [
        "/A.TXT",
        "/APP",
        "/LONG.TXT",
        "/FOLDER/DEEP.TXT",
        "/MANY/F00",
    ] {
        assert!(found.contains_key(path), "{path} in {:?}", found.keys());
    }
    assert!(volume.resolve("/folder/deep.txt").is_ok());
    assert_eq!(found["/FOLDER"].mode, 0o755);
}

#[test]
fn resource_forks_types_and_creators_are_read() {
    for options in forms() {
        let volume = open(&options);
        let name = if options.rock_ridge || options.joliet {
            "/App"
        } else {
            "/APP"
        };
        let app = volume.resolve(name).unwrap();
        assert_eq!(app.resource_size, RESOURCES.len() as u64);
        assert_eq!(read(&volume, app.id, Fork::Resource).unwrap(), RESOURCES);
        let names = volume.xattrs(app.id).unwrap();
        assert_eq!(names, ["com.apple.FinderInfo", RESOURCE_FORK]);
        let finder = volume.xattr(app.id, &names[0]).unwrap().unwrap();
        let finder = finder.read_vec(0, 32).unwrap();
        assert_eq!((&finder[..10], &finder[10..]), (&FINDER[..], &[0; 22][..]));
        let resource = volume.xattr(app.id, RESOURCE_FORK).unwrap().unwrap();
        assert_eq!(resource.read_vec(0, 9).unwrap(), RESOURCES);
        assert!(volume.xattr(app.id, "other").unwrap().is_none());
        assert!(volume.xattrs(volume.root()).unwrap().is_empty());
    }
}

#[test]
fn the_old_form_of_types_is_read() {
    let mut bytes = fixture::volume(&IsoOptions {
        rock_ridge: false,
        joliet: false,
        ..IsoOptions::default()
    });
    // The entry of 14 bytes becomes one of 13 without a length.
    for _ in 0..2 {
        let entry = place(&bytes, b"AA\x0e\x02APPL");
        bytes[entry..entry + 14].copy_from_slice(b"BA\x06TEXTttxt\x40\x00\0");
    }
    let volume = IsoVolume::open(device(bytes)).unwrap();
    let app = volume.resolve("/APP").unwrap();
    let finder = volume
        .xattr(app.id, "com.apple.FinderInfo")
        .unwrap()
        .unwrap();
    assert_eq!(finder.read_vec(0, 10).unwrap(), b"TEXTttxt\x40\x00");
    assert_eq!(app.flags, crate::UF_HIDDEN);
}

#[test]
fn the_contents_are_a_device_like_others() {
    let section = |block, size| RecordRaw {
        len: 34,
        attribute_blocks: 1,
        block: BothU32::new(block),
        size: BothU32::new(size),
        date: [0; 7],
        flags: 0,
        unit: 0,
        gap: 0,
        sequence: BothU16::new(1),
        name_len: 1,
    };
    let space = Space {
        device: device(contents(1 << 20)),
        block_size: 2048,
    };
    let sections = [
        section(200, 40_960),
        section(9, 61_440),
        section(39, 33_333),
    ];
    let file = join_sections(&space, &sections).unwrap();
    assert_eq!(file.info().len, 135_733);
    let plain = contents(1 << 20);
    let expected = [
        &plain[201 * 2048..221 * 2048],
        &plain[10 * 2048..][..94_773],
    ]
    .concat();
    assert!(file.read_vec(0, expected.len()).unwrap() == expected);
    assert_eq!(
        file.extent_at(50_000..135_733).unwrap().len,
        85_733,
        "joined"
    );
    conformance::read_only(Arc::new(file));
    let mut interleaved = section(9, 1);
    interleaved.gap = 1;
    let error = join_sections(&space, &[interleaved]).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}

#[test]
fn files_past_the_end_are_refused_when_they_are_read() {
    let whole = fixture::volume(&IsoOptions::default());
    let found = objects(&IsoVolume::open(device(whole.clone())).unwrap());
    let mut bytes = whole.clone();
    change_record(&mut bytes, b"LONG.TXT;1", |raw| {
        raw.block = BothU32::new(0xFFFF_FFF0)
    });
    let volume = IsoVolume::open(device(bytes.clone())).unwrap();
    assert_eq!(objects(&volume).len(), found.len());
    let long = at(&volume, "/A long name: \u{e9}.text");
    let error = read(&volume, long, Fork::Data).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.message().contains("the volume ends at"), "{error}");
    let problems = check(device(bytes), &Silent).unwrap();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].severity, Severity::Damage);
    assert!(
        problems[0].error.to_string().contains("A long name"),
        "{:?}",
        problems[0]
    );
}

#[test]
fn checks_find_nothing_in_whole_volumes() {
    for options in forms() {
        let bytes = fixture::volume(&options);
        assert_eq!(
            stated_len(&Memory::from(bytes.clone())).unwrap(),
            Some(bytes.len() as u64)
        );
        let problems = check(device(bytes.clone()), &Silent).unwrap();
        assert!(problems.is_empty(), "{options:?}: {problems:?}");
        let short = bytes[..bytes.len() - 2048].to_vec();
        let problems = check(device(short), &Silent).unwrap();
        assert_eq!(problems[0].severity, Severity::Warning);
    }
    assert_eq!(stated_len(&Memory::zeros(100)).unwrap(), None);
}

#[test]
fn numbers_that_differ_between_byte_orders_are_refused() {
    let bytes = fixture::volume(&IsoOptions::default());
    let refused = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        IsoVolume::open(device(bytes)).unwrap_err()
    };
    for at in [0x82, 0xA2, 0xAA] {
        assert_eq!(refused(16 * 2048 + at).kind(), Kind::Corrupt, "{at:#x}");
    }
    let mut changed = bytes.clone();
    change_record(&mut changed, b"A.TXT;1", |raw| {
        let mut number = raw.size.as_bytes().to_vec();
        number[7] = 6;
        raw.size = BothU32::read_from_bytes(&number).unwrap();
    });
    let volume = IsoVolume::open(device(changed)).unwrap();
    let error = read(&volume, at(&volume, "/a.txt"), Fork::Data).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    // The volume's own length decides nothing.
    let mut changed = bytes;
    changed[16 * 2048 + 0x54] ^= 1;
    assert_eq!(stated_len(&Memory::from(changed.clone())).unwrap(), None);
    IsoVolume::open(device(changed)).unwrap();
}

#[test]
fn folders_that_contain_themselves_are_found() {
    let options = IsoOptions {
        rock_ridge: false,
        joliet: false,
        ..IsoOptions::default()
    };
    let mut bytes = fixture::volume(&options);
    let root = open(&options).root().0 / 2048;
    change_record(&mut bytes, b"MANY", |raw| {
        raw.block = BothU32::new(root as u32)
    });
    let volume = IsoVolume::open(device(bytes.clone())).unwrap();
    assert_eq!(at(&volume, "/MANY/MANY/MANY"), volume.root());
    assert!(objects(&volume).len() < 30);
    let problems = check(device(bytes), &Silent).unwrap();
    assert!(
        problems[0].error.message().contains("contains itself"),
        "{problems:?}"
    );
}

#[test]
fn entries_that_continue_in_a_circle_are_refused() {
    let mut bytes = fixture::volume(&IsoOptions::default());
    let area = place(&bytes, "\0name: \u{e9}.text".as_bytes()) - 4;
    let block = BothU32::new((area / 2048) as u32);
    let circle = [block, BothU32::new((area % 2048) as u32), BothU32::new(28)];
    bytes[area..area + 4].copy_from_slice(b"CE\x1c\x01");
    for (number, part) in circle.iter().enumerate() {
        bytes[area + 4 + 8 * number..][..8].copy_from_slice(part.as_bytes());
    }
    let volume = IsoVolume::open(device(bytes)).unwrap();
    let error = volume.entries(volume.root()).unwrap_err();
    assert!(error.message().contains("continuation areas"), "{error}");
}

#[test]
fn sections_without_an_end_are_refused() {
    let mut bytes = fixture::volume(&IsoOptions::default());
    change_record(&mut bytes, b"LONG.TXT;1", |raw| raw.flags = 0x80);
    let volume = IsoVolume::open(device(bytes)).unwrap();
    let error = volume.entries(volume.root()).unwrap_err();
    assert!(error.message().contains("several sections"), "{error}");
}

#[test]
fn short_devices_are_refused() {
    let bytes = fixture::volume(&IsoOptions::default());
    for len in [0, 1, 2048, 32_768, 32_769, 34_815, 34_816, 36_000, 40_960] {
        assert!(
            IsoVolume::open(device(bytes[..len].to_vec())).is_err(),
            "{len}"
        );
    }
}

#[test]
fn changed_bytes_never_cause_a_panic() {
    for (number, options) in (0..).zip(forms()) {
        let bytes = fixture::volume(&options);
        for copy in 0..40 {
            let mut random = Random::new(number << 32 | copy);
            let changed = mutate::mutated(&bytes, &mut random);
            let _ = check(device(changed.clone()), &Silent);
            let Ok(volume) = IsoVolume::open(device(changed)) else {
                continue;
            };
            for attributes in objects(&volume).into_values() {
                let id = attributes.id;
                let _ = (volume.attributes(id), volume.read_link(id));
                let _ = volume
                    .xattrs(id)
                    .map(|names| names.iter().all(|name| volume.xattr(id, name).is_ok()));
                for fork in [Fork::Data, Fork::Resource] {
                    let Ok(contents) = volume.open(id, fork) else {
                        continue;
                    };
                    let len = contents.info().len.min(4096) as usize;
                    let _ = contents.read_vec(0, len);
                }
            }
        }
    }
}
