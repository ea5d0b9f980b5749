//! Volumes of every form, damaged and hostile ones included.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, ExtentKind, Memory};
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Silent;
use bandsaw_core::{Kind, Result};
use bandsaw_testing::{Random, conformance, mutate};

use super::contents::{RunStorage, UdfContents};
use super::fixture::{
    self, FINDER, MANY, RESOURCES, UdfForm, UdfOptions, contents, sparse_contents,
};
use super::{UdfVolume, check, is_recognized, stated_len};
use crate::{
    Ancestors, Attributes, FileKind, FileSystem, FileSystemExt, Fork, NodeId, RESOURCE_FORK,
};

/// Maximum number of entries that a test walks through.
const MAX_ENTRIES: usize = 2000;
const LONG: &str = "/A long name: \u{e9}.text";

fn device(bytes: Vec<u8>) -> Arc<dyn BlockDevice> {
    Arc::new(Memory::read_only(bytes))
}

fn open(options: &UdfOptions) -> UdfVolume {
    UdfVolume::open(device(fixture::volume(options))).unwrap()
}

fn forms() -> Vec<UdfOptions> {
    let form = |revision, block_size, form| UdfOptions {
        revision,
        block_size,
        form,
        chains: false,
    };
    vec![
        UdfOptions::default(),
        form(0x0102, 2048, UdfForm::Plain),
        form(0x0201, 512, UdfForm::Plain),
        form(0x0200, 4096, UdfForm::Plain),
        form(0x0150, 2048, UdfForm::Sparable),
        form(0x0150, 2048, UdfForm::Virtual),
        form(0x0201, 2048, UdfForm::Virtual),
        form(0x0250, 2048, UdfForm::Metadata),
        form(0x0260, 512, UdfForm::Metadata),
        UdfOptions {
            chains: true,
            ..UdfOptions::default()
        },
    ]
}

fn of_form(form: UdfForm) -> Vec<u8> {
    fixture::volume(&UdfOptions {
        form,
        revision: 0x0250,
        ..UdfOptions::default()
    })
}

fn read(volume: &UdfVolume, node: NodeId, fork: Fork) -> Result<Vec<u8>> {
    let device = volume.open(node, fork)?;
    device.read_vec(0, device.info().len as usize)
}

/// Returns all objects by their paths. A folder that contains itself, or cannot be read, is not
/// entered.
fn objects(volume: &UdfVolume) -> BTreeMap<String, Attributes> {
    let mut found = BTreeMap::new();
    let (mut ahead, mut ancestors) = (
        vec![(String::new(), volume.root(), 0)],
        Ancestors::default(),
    );
    while let Some((path, folder, depth)) = ahead.pop() {
        if ancestors.enter(folder, depth).is_err() || found.len() > MAX_ENTRIES {
            continue;
        }
        let _ = volume.list(folder, &mut |entry| {
            let path = format!("{path}/{}", entry.name);
            if entry.attributes.kind == FileKind::Folder {
                ahead.push((path.clone(), entry.attributes.id, depth + 1));
            }
            found.insert(path, entry.attributes);
            Ok(ControlFlow::Continue(()))
        });
    }
    found
}

fn problems(bytes: Vec<u8>) -> Vec<Problem> {
    check(device(bytes), &Silent).unwrap()
}

fn place(bytes: &[u8], what: &[u8]) -> usize {
    let found = bytes.windows(what.len()).position(|window| window == what);
    found.expect("it is in the volume")
}

#[test]
fn every_form_of_volume_is_read() {
    for options in forms() {
        let bytes = fixture::volume(&options);
        let block = u64::from(options.block_size);
        assert!(
            is_recognized(&Memory::from(bytes.clone())).unwrap(),
            "{options:?}"
        );
        let volume = UdfVolume::open(device(bytes)).unwrap();
        let info = volume.volume();
        assert_eq!((info.format, &*info.name), ("UDF", "Sample"));
        assert!(
            info.clean && info.case_sensitive && info.total > 0,
            "{options:?}: {info:?}"
        );
        assert_eq!(u64::from(info.block_size), block);
        assert_eq!(info.created.unwrap().to_string(), "2024-03-01T12:34:56Z");
        if options.form != UdfForm::Virtual || options.revision >= 0x0200 {
            assert_eq!(
                (info.files, info.folders),
                (MANY as u64 + 9, 3),
                "{options:?}"
            );
        }
        let found = objects(&volume);
        assert_eq!(found.len(), MANY + 11, "{options:?}: {:?}", found.keys());
        for (path, expected) in [
            ("/a.txt", b"hello".to_vec()),
            ("/folder/again.txt", b"hello".to_vec()),
            ("/folder/deep.txt", b"deep down".to_vec()),
            (LONG, contents(50_000)),
            ("/\u{20ac}uro", Vec::new()),
            ("/sparse", sparse_contents(options.block_size)),
            ("/App", contents(100)),
            ("/many/file 07", b"file 07".to_vec()),
        ] {
            let object = volume.resolve(path).unwrap();
            assert_eq!(object, found[path], "{options:?}: {path}");
            assert!(
                read(&volume, object.id, Fork::Data).unwrap() == expected,
                "{options:?}: {path}"
            );
            assert_eq!(object.size, expected.len() as u64, "{path}");
        }
        let link = &found["/link"];
        assert_eq!((link.kind, link.size), (FileKind::Symlink, 16));
        assert_eq!(volume.read_link(link.id).unwrap(), "/folder/../a.txt");
        let file = &found["/a.txt"];
        assert_eq!((file.mode, file.uid, file.gid), (0o644, 501, 20));
        assert_eq!((file.links, file.id), (2, found["/folder/again.txt"].id));
        assert_eq!(file.modified.unwrap().to_string(), "2024-03-01T12:34:56Z");
        assert_eq!(
            (file.accessed, file.changed),
            (file.modified, file.modified)
        );
        assert_eq!(file.created.is_some(), options.revision >= 0x0200);
        assert_eq!(found["/folder"].mode, 0o1755);
        let null = &found["/null"];
        assert_eq!(
            (null.kind, null.device),
            (FileKind::CharDevice, 3 << 24 | 2)
        );
        assert_eq!(found["/many"].size, MANY as u64);
        assert_eq!(found["/sparse"].allocated, 2 * block);
        let root = volume.attributes(volume.root()).unwrap();
        assert_eq!((root.kind, root.uid), (FileKind::Folder, 99));
        assert!(volume.lookup(volume.root(), "A.TXT").unwrap().is_none());
        assert!(volume.lookup(volume.root(), "gone").unwrap().is_none());
        assert!(volume.read_link(file.id).is_err());
        assert!(volume.open(found["/many"].id, Fork::Data).is_err());
        let unknown = volume.attributes(NodeId(7)).unwrap_err();
        assert_eq!(unknown.kind(), Kind::NotFound);
    }
}

#[test]
fn resource_forks_finder_info_and_streams_are_read() {
    for options in forms() {
        let volume = open(&options);
        let app = volume.resolve("/App").unwrap();
        assert_eq!(app.resource_size, RESOURCES.len() as u64, "{options:?}");
        assert_eq!(read(&volume, app.id, Fork::Resource).unwrap(), RESOURCES);
        let names = volume.xattrs(app.id).unwrap();
        assert_eq!(names[..2], ["com.apple.FinderInfo", RESOURCE_FORK]);
        let value = |name: &str| volume.xattr(app.id, name).unwrap().unwrap();
        let finder = value(&names[0]).read_vec(0, 32).unwrap();
        assert_eq!((&finder[..10], &finder[10..]), (&FINDER[..], &[0; 22][..]));
        assert_eq!(value(RESOURCE_FORK).read_vec(0, 9).unwrap(), RESOURCES);
        let has_streams = options.revision >= 0x0200;
        assert_eq!(
            (names.len(), app.has_xattrs),
            (2 + usize::from(has_streams), has_streams)
        );
        if has_streams {
            assert_eq!(names[2], "com.example.note");
            assert_eq!(value(&names[2]).read_vec(0, 6).unwrap(), b"a note");
        }
        assert!(volume.xattr(app.id, "other").unwrap().is_none());
        assert!(volume.xattrs(volume.root()).unwrap().is_empty());
        let file = volume.resolve("/a.txt").unwrap();
        assert!(read(&volume, file.id, Fork::Resource).unwrap().is_empty());
    }
}

#[test]
fn sparse_files_have_holes() {
    let volume = open(&UdfOptions::default());
    let sparse = volume.resolve("/sparse").unwrap();
    let file = volume.open(sparse.id, Fork::Data).unwrap();
    let kinds: Vec<_> = file
        .extents(0..file.info().len)
        .map(|found| {
            found
                .map(|(range, kind)| (range.end - range.start, kind))
                .unwrap()
        })
        .collect();
    assert_eq!(
        kinds,
        [
            (2048, ExtentKind::Data),
            (4096, ExtentKind::Zero),
            (2048, ExtentKind::Hole),
            (2048, ExtentKind::Data)
        ]
    );
}

#[test]
fn the_contents_are_a_device_like_others() {
    let plain = contents(1 << 20);
    let mut file = UdfContents::new(device(plain.clone()), 135_733);
    file.push(40_960, RunStorage::Recorded(409_600));
    file.push(20_480, RunStorage::Unallocated);
    file.push(20_480, RunStorage::Recorded(20_480));
    file.push(60_000, RunStorage::Recorded(40_960));
    assert_eq!(file.runs(), 3, "joined");
    let expected = [
        &plain[409_600..450_560],
        &[0; 20_480],
        &plain[20_480..][..74_293],
    ]
    .concat();
    assert!(file.read_vec(0, expected.len()).unwrap() == expected);
    conformance::read_only(Arc::new(file.clone()));
    file.check_places().unwrap();
    let mut short = UdfContents::new(device(plain), 10);
    short.push(9, RunStorage::Allocated);
    assert_eq!(short.check_places().unwrap_err().kind(), Kind::Corrupt);
    let error = short.read_vec(0, 10).unwrap_err();
    assert!(
        error.message().contains("hold 9 of its 10 bytes"),
        "{error}"
    );
    short.push(1, RunStorage::Recorded(1 << 20));
    assert!(
        short
            .check_places()
            .unwrap_err()
            .message()
            .contains("the volume ends at")
    );
}

#[test]
fn checks_find_nothing_in_whole_volumes() {
    for options in forms() {
        let bytes = fixture::volume(&options);
        let problems = problems(bytes.clone());
        assert!(problems.is_empty(), "{options:?}: {problems:?}");
        let stated = stated_len(&device(bytes.clone())).unwrap();
        if options.form == UdfForm::Virtual {
            assert_eq!(stated, None);
            continue;
        }
        let stated = stated.unwrap() as usize;
        assert!(stated <= bytes.len());
        let short = bytes[..stated - 2048].to_vec();
        if let Ok(problems) = check(device(short), &Silent) {
            let is_short = |problem: &Problem| problem.error.message().contains("but space for");
            assert!(problems.iter().any(is_short), "{options:?}: {problems:?}");
        }
    }
    assert_eq!(stated_len(&device(vec![0; 100])).unwrap(), None);
}

#[test]
fn a_damaged_main_sequence_is_replaced_by_the_reserve() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    // The logical volume descriptor, fourth of its sequence.
    bytes[99 * 2048 + 100] ^= 1;
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    assert_eq!(volume.resolve("/a.txt").unwrap().size, 5);
    let found = problems(bytes.clone());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .error
            .message()
            .contains("main volume descriptor sequence")
    );
    assert_eq!(found[0].severity, Severity::Warning);
    bytes[131 * 2048 + 100] ^= 1;
    let error = UdfVolume::open(device(bytes)).unwrap_err();
    assert!(
        error.message().contains("missing in both sequences"),
        "{error}"
    );
}

#[test]
fn other_anchors_replace_the_first() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    bytes[256 * 2048] ^= 1;
    UdfVolume::open(device(bytes.clone())).unwrap();
    let found = problems(bytes.clone());
    assert!(
        found[0].error.message().contains("no anchor in sector 256"),
        "{found:?}"
    );
    let last = bytes.len() - 2048;
    bytes[last] ^= 1;
    let error = UdfVolume::open(device(bytes)).unwrap_err();
    assert!(error.message().contains("no anchor"), "{error}");
}

#[test]
fn a_damaged_metadata_file_is_replaced_by_its_mirror() {
    let whole = of_form(UdfForm::Metadata);
    let volume = UdfVolume::open(device(whole.clone())).unwrap();
    let found = objects(&volume);
    // The first copy of the name of a file, of a file entry, and of all metadata.
    let name = place(&whole, b"\x08deep.txt");
    for at in [
        name + 3,
        place(&whole, b"\x08file 07") + 2,
        place(&whole, b"file 07"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let volume = UdfVolume::open(device(bytes)).unwrap();
        assert_eq!(objects(&volume), found, "{at}");
    }
    // The file entry of the metadata file.
    let mut bytes = whole.clone();
    let icb = (288..)
        .find(|sector| whole[sector * 2048..][..2] == [0x0A, 1] && whole[sector * 2048 + 27] == 250)
        .unwrap();
    bytes[icb * 2048 + 100] ^= 1;
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    assert_eq!(objects(&volume), found);
    let found = problems(bytes);
    assert!(
        found[0]
            .error
            .message()
            .contains("the metadata file cannot be used"),
        "{found:?}"
    );
}

#[test]
fn the_newest_sparing_table_counts() {
    let whole = of_form(UdfForm::Sparable);
    let sectors = [160, 176_u32];
    let at = |sector: u32| sector as usize * 2048;
    // The tables change places.
    let mut bytes = whole.clone();
    for (from, to) in [(160, 176), (176, 160_u32)] {
        let table = &whole[at(from)..at(from) + 512];
        bytes[at(to)..at(to) + 512].copy_from_slice(table);
        bytes[at(to) + 12..at(to) + 16].copy_from_slice(&to.to_le_bytes());
        bytes[at(to) + 4] = super::tag::checksum(&bytes[at(to)..at(to) + 16]);
    }
    for bytes in [whole.clone(), bytes] {
        let volume = UdfVolume::open(device(bytes)).unwrap();
        assert_eq!(objects(&volume).len(), MANY + 11);
    }
    let mut bytes = whole;
    for (sector, is_open) in sectors.into_iter().rev().zip([true, false]) {
        bytes[at(sector) + 60] ^= 1;
        let opened = UdfVolume::open(device(bytes.clone()));
        assert_eq!(opened.is_ok(), is_open, "{sector}");
        if is_open {
            let found = problems(bytes.clone());
            assert!(
                found[0]
                    .error
                    .message()
                    .contains("sparing table in sector 176"),
                "{found:?}"
            );
        }
    }
}

#[test]
fn a_table_of_a_disc_is_found_before_padding() {
    for revision in [0x0150, 0x0201] {
        let whole = fixture::volume(&UdfOptions {
            revision,
            form: UdfForm::Virtual,
            ..UdfOptions::default()
        });
        let longer = [whole.clone(), vec![0; 300 * 2048 + 17]].concat();
        let volume = UdfVolume::open(device(longer)).unwrap();
        assert_eq!(objects(&volume).len(), MANY + 11);
        let shorter = whole[..whole.len() - 2048].to_vec();
        let error = UdfVolume::open(device(shorter)).unwrap_err();
        assert!(
            error.message().contains("no virtual allocation table"),
            "{error}"
        );
    }
}

#[test]
fn unknown_structures_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = of_form(UdfForm::Virtual);
        change(&mut bytes);
        fixture::seal(&mut bytes);
        UdfVolume::open(device(bytes)).unwrap_err()
    };
    let error = refused(&|bytes| {
        for _ in 0..2 {
            let at = place(bytes, b"*UDF Virtual Partition");
            bytes[at..at + 22].copy_from_slice(b"*UDF Another Partition");
        }
    });
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(
        error.message().contains("*UDF Another Partition"),
        "{error}"
    );
    let error = refused(&|bytes| {
        let at = 144 * 2048 + 80 + 16 + 40;
        bytes[at..at + 2].copy_from_slice(&[0x00, 0x03]);
    });
    assert!(error.message().contains("UDF 3.00"), "{error}");
}

#[test]
fn encoded_files_are_refused_when_they_are_opened() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    let at = place(&bytes, b"hello") / 2048 * 2048;
    bytes[at + 16 + 18 + 1] |= 0x08;
    fixture::seal(&mut bytes);
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    let file = volume.resolve("/a.txt").unwrap();
    let error = volume.open(file.id, Fork::Data).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(error.message().contains("encrypted"), "{error}");
    assert_eq!(problems(bytes)[0].severity, Severity::Note);
}

#[test]
fn a_damaged_file_leaves_its_neighbors() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    let at = place(&bytes, b"hello");
    bytes[at] ^= 1;
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    let found = objects(&volume);
    assert_eq!(found.len(), MANY + 11);
    let file = &found["/a.txt"];
    assert_eq!((file.kind, file.size), (FileKind::File, 0));
    let error = volume.open(file.id, Fork::Data).unwrap_err();
    assert!(error.message().contains("checksum mismatch"), "{error}");
    let found = problems(bytes);
    assert!(
        found
            .iter()
            .any(|problem| problem.severity == Severity::Damage
                && problem.error.to_string().contains("/a.txt")),
        "{found:?}"
    );
}

#[test]
fn a_damaged_name_leaves_those_after_it() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    let at = place(&bytes, b"\x08file 07");
    bytes[at + 1] ^= 1;
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    let many = volume.resolve("/many").unwrap();
    assert!(volume.lookup(many.id, "file 08").unwrap().is_some());
    assert_eq!(
        volume.lookup(many.id, "file 07").unwrap_err().kind(),
        Kind::Corrupt
    );
    let mut names = 0;
    let error = volume.list(many.id, &mut |_| {
        names += 1;
        Ok(ControlFlow::Continue(()))
    });
    assert_eq!(
        (names, error.unwrap_err().kind()),
        (MANY - 1, Kind::Corrupt)
    );
    assert!(!problems(bytes).is_empty());
}

#[test]
fn folders_that_contain_themselves_are_found() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    let root = (volume.root().0 as u32).to_le_bytes();
    let at = place(&bytes, b"\x08many") - 38;
    bytes[at + 24..at + 28].copy_from_slice(&root);
    fixture::seal(&mut bytes);
    let volume = UdfVolume::open(device(bytes.clone())).unwrap();
    assert_eq!(volume.resolve("/many/many/many").unwrap().id, volume.root());
    assert!(objects(&volume).len() < 30);
    let found = problems(bytes);
    let is_circle = |problem: &Problem| problem.error.message().contains("contains itself");
    assert!(found.iter().any(is_circle), "{found:?}");
}

#[test]
fn descriptors_that_continue_in_a_circle_are_refused() {
    let mut bytes = fixture::volume(&UdfOptions {
        block_size: 512,
        ..UdfOptions::default()
    });
    // The long file has several blocks of descriptors; the first one leads to itself.
    let at = (288..)
        .map(|block| block * 512)
        .find(|at| bytes[*at..][..2] == [2, 1])
        .unwrap();
    let block = bytes[at + 12..at + 16].to_vec();
    let len = u32::from_le_bytes(bytes[at + 20..at + 24].try_into().unwrap()) as usize;
    let last = at + 24 + len - 16;
    bytes[last + 3] = 0xC0;
    bytes[last + 4..last + 8].copy_from_slice(&block);
    fixture::seal(&mut bytes);
    let volume = UdfVolume::open(device(bytes)).unwrap();
    let file = volume.resolve(LONG).unwrap();
    let error = volume.open(file.id, Fork::Data).unwrap_err();
    assert!(
        error.message().contains("continue without an end"),
        "{error}"
    );
}

#[test]
fn checks_compare_blocks_and_counts() {
    let whole = fixture::volume(&UdfOptions::default());
    let found = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fixture::seal(&mut bytes);
        let all: Vec<_> = problems(bytes)
            .iter()
            .map(|problem| problem.error.to_string())
            .collect();
        all.join("\n")
    };
    let bitmap = (288..)
        .map(|sector| sector * 2048)
        .find(|at| whole[*at..][..2] == [8, 1])
        .unwrap();
    assert!(
        found(&|bytes| bytes[bitmap + 24] |= 1).contains("1 blocks of files are marked as free")
    );
    let said = found(&|bytes| bytes[bitmap + 24..bitmap + 4000].fill(0));
    assert!(
        said.contains("blocks are marked as used")
            && said.contains("free blocks of partition 0, its bitmap has 0"),
        "{said}"
    );
    assert!(found(&|bytes| bytes[144 * 2048 + 28] = 0).contains("not cleanly unmounted"));
    let hello = place(&whole, b"hello") / 2048 * 2048;
    assert!(found(&|bytes| bytes[hello + 48] = 3).contains("has 2 names, expected 3"));
    assert!(found(&|bytes| bytes[hello + 56] = 6).contains("hold 5 of its 6 bytes"));
    let other = place(&whole, b"\x08deep.txt") - 38;
    let said = found(&|bytes| bytes[other + 19 + 1 + 4] = bytes[other + 24].wrapping_add(1));
    assert!(!said.is_empty());
}

#[test]
fn bridge_discs_without_an_anchor_are_iso_9660() {
    let mut bytes = fixture::volume(&UdfOptions::default());
    let three = bytes[32_768..32_768 + 3 * 2048].to_vec();
    bytes[32_768 + 2 * 2048..][..three.len()].copy_from_slice(&three);
    for number in 0..2 {
        bytes[32_768 + number * 2048 + 1..][..5].copy_from_slice(b"CD001");
    }
    assert!(is_recognized(&Memory::from(bytes.clone())).unwrap());
    let cut = bytes[..255 * 2048].to_vec();
    assert!(!is_recognized(&Memory::from(cut)).unwrap());
}

#[test]
fn short_devices_are_refused() {
    let bytes = fixture::volume(&UdfOptions::default());
    for len in [
        0,
        1,
        2048,
        32_768,
        40_000,
        255 * 2048,
        257 * 2048,
        289 * 2048,
    ] {
        let short = bytes[..len].to_vec();
        assert!(UdfVolume::open(device(short.clone())).is_err(), "{len}");
        assert_eq!(
            is_recognized(&Memory::from(short)).unwrap(),
            len >= 40_000,
            "{len}"
        );
    }
}

#[test]
fn changed_bytes_never_cause_a_panic() {
    for (number, options) in (0..).zip(forms()) {
        let bytes = fixture::volume(&options);
        for copy in 0..30 {
            let mut random = Random::new(number << 32 | copy);
            let mut changed = mutate::mutated(&bytes, &mut random);
            if copy % 3 != 0 {
                fixture::seal(&mut changed);
            }
            let _ = check(device(changed.clone()), &Silent);
            let Ok(volume) = UdfVolume::open(device(changed)) else {
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
