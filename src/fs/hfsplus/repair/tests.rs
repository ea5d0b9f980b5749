//! Volumes damaged in one structure each are repaired, and undamaged contents remain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::decision::Undecided;
use crate::device::{BlockDeviceExt, Memory};
use crate::fs::hfsplus::check::corruptions::{ATTRIBUTES, CATALOG, Corruption, TREES, VOLUME};
use crate::fs::hfsplus::check::sample::Sample;
use crate::fs::hfsplus::layout::{CatalogKey, CatalogRecord, Cnid, FILE_LINK_TYPE};
use crate::fs::hfsplus::links::{INODE, inode_number};
use crate::fs::hfsplus::unicode::decode_name;
use crate::fs::hfsplus::{HfsPlus, HfsPlusMut, WriteOptions};
use crate::fs::{
    Attributes, FileKind, FileSystem, FileSystemExt, FileSystemMut, Fork, NewKind, NewNode,
};
use crate::progress::Silent;

/// Returns the number of the patient's 120 files that exist anywhere, with their names and
/// contents.
fn files_in(device: &Arc<Memory>) -> usize {
    let volume = HfsPlus::open(Arc::new(Memory::read_only(device.to_vec()))).unwrap();
    let mut waiting = vec![volume.root()];
    let mut found = 0;
    while let Some(folder) = waiting.pop() {
        for entry in volume.entries(folder).unwrap() {
            if entry.attributes.kind == FileKind::Folder {
                waiting.push(entry.attributes.id);
            }
            let whole =
                entry.name.starts_with("file ") && entry.attributes.kind == FileKind::File && {
                    let fork = volume.open(entry.attributes.id, Fork::Data).unwrap();
                    fork.read_vec(0, fork.info().len as usize).unwrap() == vec![0x41; 5000]
                };
            found += usize::from(whole);
        }
    }
    found
}

fn repaired(damage: &Corruption, case_sensitive: bool) -> Result<Arc<Memory>> {
    let mut sample = Sample::new(case_sensitive);
    damage.0(&mut sample);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent)?;
    repair.apply(&Silent)?;
    let left = check(device.clone(), &Silent)?;
    match left.into_iter().find(is_wrong) {
        None => Ok(device),
        Some(problem) => Err(Error::new(
            Kind::Corrupt,
            LAYER,
            format!("{:?} leave {}", repair.steps(), problem.error),
        )),
    }
}

/// Contents that a repair cannot restore, because they are not stored redundantly.
enum Loss {
    Nothing,
    /// The file at this path.
    File(&'static str),
    /// The contents of the file at this path. The file still exists, unless it has other names.
    Contents(&'static str),
    /// An attribute of the file at this path.
    Attribute(&'static str, &'static str),
    /// The objects whose records were in the catalog's first leaf, because these can no longer be
    /// identified.
    FirstLeaf,
}

/// Losses by the list that the damage is in, and its words.
const LOSSES: [(&str, &str, Loss); 13] = [
    ("trees", "kind -1 and height 1 expected", Loss::FirstLeaf),
    ("trees", "holds no records", Loss::FirstLeaf),
    ("trees", "claims 9999 records", Loss::FirstLeaf),
    ("trees", "offset 1 of its records", Loss::FirstLeaf),
    (
        "catalog",
        "of no known type",
        Loss::File("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "18446744073709551615 bytes in",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "reach past the volume",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "are used by",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "leads to iNode4242",
        Loss::File("/folder/second name"),
    ),
    (
        "catalog",
        "counts 3 links, 2 exist",
        Loss::Contents("/first name"),
    ),
    (
        "attributes",
        "of no known type or cut short",
        Loss::Attribute("/with attributes", "small"),
    ),
    (
        "attributes",
        "which does not exist",
        Loss::Attribute("/with attributes", "small"),
    ),
    (
        "attributes",
        "begins at block 1",
        Loss::Attribute("/with attributes", "small"),
    ),
];

/// An object: its kind, number of names, contents or link target, and attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    kind: FileKind,
    links: u64,
    contents: Vec<u8>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// Returns all objects of a volume by path.
fn items(bytes: Vec<u8>) -> BTreeMap<String, Item> {
    let volume = HfsPlus::open(Arc::new(Memory::read_only(bytes))).unwrap();
    let all =
        |device: Arc<dyn BlockDevice>| device.read_vec(0, device.info().len as usize).unwrap();
    let mut found = BTreeMap::new();
    let mut ahead = vec![(volume.root(), String::new())];
    while let Some((folder, above)) = ahead.pop() {
        for entry in volume.entries(folder).unwrap() {
            let (id, path) = (entry.attributes.id, format!("{above}/{}", entry.name));
            let contents = match entry.attributes.kind {
                FileKind::Folder => Vec::new(),
                FileKind::Symlink => volume.read_link(id).unwrap().into_bytes(),
                _ => all(volume.open(id, Fork::Data).unwrap()),
            };
            let xattrs = volume.xattrs(id).unwrap().into_iter();
            let xattrs = xattrs
                .map(|name| (name.clone(), all(volume.xattr(id, &name).unwrap().unwrap())))
                .collect();
            let Attributes { kind, links, .. } = entry.attributes;
            if kind == FileKind::Folder {
                ahead.push((id, path.clone()));
            }
            found.insert(
                path,
                Item {
                    kind,
                    links: links.into(),
                    contents,
                    xattrs,
                },
            );
        }
    }
    found
}

/// Returns the expected objects of a volume after this loss; by name only, if paths are lost too.
fn without(
    loss: &Loss,
    mut items: BTreeMap<String, Item>,
    first_leaf: &[String],
) -> BTreeMap<String, Item> {
    let gone = match loss {
        Loss::Nothing => None,
        Loss::File(path) | Loss::Contents(path) => items.remove(*path),
        Loss::Attribute(path, name) => {
            items
                .get_mut(*path)
                .and_then(|item| item.xattrs.remove(*name))
                .expect("it was there");
            None
        }
        Loss::FirstLeaf => {
            // The inode file of several names is in the leaf too, and is lost with all of them.
            assert!(
                first_leaf.iter().any(|name| name.starts_with(INODE)),
                "{first_leaf:?}"
            );
            items = by_name(items);
            items.retain(|name, item| item.links == 1 && !first_leaf.contains(name));
            None
        }
    };
    // The remaining names of a lost file have a lower count.
    if let Some(gone) = gone.filter(|gone| gone.links > 1) {
        items
            .values_mut()
            .filter(|item| item.contents == gone.contents)
            .for_each(|item| item.links -= 1);
    }
    items
}

/// Returns all objects that are not folders, by name without path.
fn by_name(items: BTreeMap<String, Item>) -> BTreeMap<String, Item> {
    let named = items
        .into_iter()
        .map(|(path, item)| (path.rsplit('/').next().unwrap_or_default().to_owned(), item));
    named
        .filter(|(_, item)| item.kind != FileKind::Folder)
        .collect()
}

#[test]
fn damage_of_every_kind_is_mended() {
    let mut sound = Sample::new(false);
    let (whole, leaf) = (items(sound.bytes.clone()), sound.objects_in_leaf(1));
    assert!(whole.len() > 125 && !leaf.is_empty());
    let mut wrong = Vec::new();
    let mut lossy = 0;
    for (group, cases) in [
        ("volume", VOLUME),
        ("trees", TREES),
        ("catalog", CATALOG),
        ("attributes", ATTRIBUTES),
    ] {
        for case in cases {
            let words = case.2;
            let found = match repaired(case, false) {
                Ok(device) => items(device.to_vec()),
                Err(error) => {
                    wrong.push(format!("{words}: {error}"));
                    continue;
                }
            };
            let known = LOSSES
                .iter()
                .find(|(of, known, _)| *of == group && *known == words);
            lossy += usize::from(known.is_some());
            let loss = known.map_or(&Loss::Nothing, |(.., loss)| loss);
            let (expected, mut found) = (without(loss, whole.clone(), &leaf), found);
            match loss {
                Loss::Contents(path) if found.remove(*path).is_none() => {
                    wrong.push(format!("{words}: {path} is gone"))
                }
                Loss::FirstLeaf => {
                    found = by_name(found);
                    assert!(
                        expected.len() > 60,
                        "{} objects are outside of the first leaf",
                        expected.len()
                    );
                }
                _ => {}
            }
            let differ = |path: &&String| expected.get(*path) != found.get(*path);
            let paths: BTreeSet<_> = expected.keys().chain(found.keys()).filter(differ).collect();
            if !paths.is_empty() {
                let shown = |item: Option<&Item>| {
                    item.map(|item| {
                        (
                            item.kind,
                            item.links,
                            item.contents.len(),
                            item.xattrs.len(),
                        )
                    })
                };
                let shown: Vec<_> = paths
                    .iter()
                    .map(|path| (path, shown(expected.get(*path)), shown(found.get(*path))))
                    .collect();
                wrong.push(format!("{words}, expected and found: {shown:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(lossy, LOSSES.len());
}

#[test]
fn a_file_that_only_has_the_type_of_a_link_is_kept() {
    let mut sample = Sample::new(false);
    sample.file("file 3", |raw| {
        (raw.user_info.file_type, raw.user_info.creator) = FILE_LINK_TYPE
    });
    let found = sample.check();
    assert!(
        found.iter().all(|problem| problem
            .error
            .to_string()
            .contains("the type of a hard link and contents")),
        "{found:?}"
    );
    sample.flip(2000);
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    assert_eq!(files_in(&device), 120);
    assert!(check(device, &Silent).unwrap().is_empty());
}

#[test]
fn the_target_of_hard_links_gets_its_name_back_from_its_thread() {
    let mut sample = Sample::new(false);
    let whole = items(sample.bytes.clone());
    let mut name = String::new();
    let inode = |record: &[u8]| {
        CatalogKey::split(record).is_some_and(|(key, _)| inode_number(key.name).is_some())
    };
    sample.record(Cnid::CATALOG, inode, |record| {
        name = decode_name(CatalogKey::split(record).unwrap().0.name);
        record[9] = b'Q';
    });
    assert!(name.starts_with(INODE), "{name}");
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    assert_eq!(items(device.to_vec()), whole);
}

#[test]
fn an_object_in_no_folder_is_put_where_its_thread_leads() {
    let mut sample = Sample::new(false);
    let whole = items(sample.bytes.clone());
    let wanted = |record: &[u8]| {
        CatalogKey::split(record).is_some_and(|(key, _)| decode_name(key.name) == "file 3")
    };
    sample.record(Cnid::CATALOG, wanted, |record| record[3] ^= 0x40);
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    assert_eq!(items(device.to_vec()), whole);
}

#[test]
fn a_volume_is_not_made_empty() {
    let mut sample = Sample::new(false);
    let start = sample.start(Cnid::CATALOG);
    let fork = sample.fork(Cnid::CATALOG);
    sample.bytes[start..start + fork.logical_size.get() as usize].fill(0);
    let damaged = sample.bytes.clone();
    let device = Arc::new(Memory::from(sample.bytes));
    let refused = Repair::plan(device.clone(), &Silent)
        .and_then(|repair| repair.apply(&Silent))
        .unwrap_err();
    assert!(
        refused.to_string().contains("no record of the catalog"),
        "{refused}"
    );
    assert_eq!(device.to_vec(), damaged);
}

#[test]
fn a_folder_whose_thread_lost_its_number_keeps_its_own() {
    let mut sample = Sample::new(false);
    let whole = items(sample.bytes.clone());
    let wanted = |record: &[u8]| match CatalogRecord::parse(CatalogKey::split(record).unwrap().1) {
        Some(CatalogRecord::Thread(thread)) => decode_name(thread.name) == "inner",
        _ => false,
    };
    sample.record(Cnid::CATALOG, wanted, |record| record[3] ^= 0x40);
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    assert_eq!(items(device.to_vec()), whole);
}

#[test]
fn files_that_are_moved_are_not_copied_over_each_other() {
    let mut sample = Sample::new(false);
    let whole = items(sample.bytes.clone());
    // Has other contents than the files.
    let mut value = 0;
    sample.attribute("large", |record| {
        let at = record.len() - 64;
        value = u32::from_be_bytes(record[at..at + 4].try_into().unwrap());
    });
    let mut neighbor = 0;
    sample.file("file 5", |raw| {
        neighbor = raw.data_fork.extents[0].start_block.get()
    });
    sample.file("file 3", |raw| {
        for extent in &mut raw.data_fork.extents[..2] {
            (extent.start_block, extent.block_count) = (value.into(), 1.into());
        }
    });
    // The blocks of this one become free when it is moved, and are as many as the other needs.
    sample.file("file 7", |raw| {
        raw.data_fork.total_blocks = 3.into();
        raw.data_fork.extents[1].start_block = neighbor.into();
        raw.data_fork.extents[1].block_count = 1.into();
    });
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    let found = items(device.to_vec());
    let differ: Vec<_> = whole
        .keys()
        .filter(|path| whole.get(*path) != found.get(*path))
        .collect();
    assert_eq!(differ, ["/folder/inner/file 3"]);
}

#[test]
fn a_fork_has_the_blocks_that_its_size_needs() {
    let mut sample = Sample::new(false);
    let whole = items(sample.bytes.clone());
    sample.file("file 3", |raw| raw.data_fork.total_blocks = 1.into());
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    assert_eq!(items(device.to_vec()), whole);
}

/// Returns a patient with a byte of its primary volume header changed by `flip`.
fn with_header_byte(at: usize, flip: u8) -> (Sample, Vec<u8>) {
    let mut sample = Sample::new(false);
    let sound = sample.bytes.clone();
    sample.bytes[1024 + at] ^= flip;
    (sample, sound)
}

#[test]
fn the_volume_header_that_agrees_with_the_volume_wins() {
    // Descriptors, starts and lengths of extents, block counts and sizes of all five files; sizes
    // of the volume.
    let bytes = [
        136, 131, 135, 127, 119, 216, 211, 215, 207, 199, 304, 291, 295, 287, 279, 384, 371, 375,
        367, 359, 456, 447,
    ];
    for at in bytes.into_iter().chain([42, 46, 1, 3]) {
        for flip in [0x08, 0x01] {
            let (sample, sound) = with_header_byte(at, flip);
            let found = sample.check();
            assert!(found.iter().any(is_wrong), "byte {at} of the header");
            let device = Arc::new(Memory::from(sample.bytes));
            let repair = Repair::plan(device.clone(), &Silent)
                .unwrap_or_else(|error| panic!("byte {at}: {error}"));
            repair
                .apply(&Silent)
                .unwrap_or_else(|error| panic!("byte {at}: {error}"));
            let bytes = device.to_vec();
            // Everything except the clean mark, the last writer and the write count is unchanged in
            // both headers.
            for place in [1024, bytes.len() - 1024] {
                let (was, is) = (&sound[place..place + 512], &bytes[place..place + 512]);
                assert_eq!(
                    (&was[..4], &was[12..68], &was[72..]),
                    (&is[..4], &is[12..68], &is[72..]),
                    "byte {at}"
                );
            }
            assert!(check(device, &Silent).unwrap().is_empty(), "byte {at}");
        }
    }
}

#[test]
fn headers_that_nothing_decides_between_are_left_to_the_user() {
    let mut sample = Sample::new(false);
    let before = sample.bytes.clone();
    // A startup file on blocks that are in use, described only by the alternate header.
    let at = sample.bytes.len() - 1024;
    let catalog = sample.fork(Cnid::CATALOG);
    let mut startup = ForkRaw {
        total_blocks: 1.into(),
        logical_size: 4096.into(),
        ..ForkRaw::default()
    };
    startup.extents[0].start_block = catalog.extents[0].start_block;
    startup.extents[0].block_count = 1.into();
    sample.bytes[at + 432..at + 512].copy_from_slice(zerocopy::IntoBytes::as_bytes(&startup));
    let damaged = sample.bytes.clone();
    let device = Arc::new(Memory::from(sample.bytes));
    let error = Repair::plan(device.clone(), &Silent).unwrap_err();
    let assumptions: Vec<_> = Undecided::of(&error)
        .iter()
        .map(|alternative| alternative.assume.as_str())
        .collect();
    assert_eq!(
        (error.kind(), &assumptions[..]),
        (Kind::Undecided, &["header=primary", "header=alternate"][..]),
        "{error}"
    );
    assert_eq!(device.to_vec(), damaged);
    Repair::plan_assuming(device.clone(), Some(Which::Primary), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    let bytes = device.to_vec();
    assert_eq!(bytes[at + 112..at + 512], before[at + 112..at + 512]);
    assert!(check(device, &Silent).unwrap().is_empty());
}

#[test]
fn what_an_interrupted_change_left_is_not_rebuilt_around() {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    volume
        .create(
            volume.root(),
            "a file of the mount",
            &NewNode::new(NewKind::File),
        )
        .unwrap();
    volume.sync().unwrap();
    let crashed = Arc::new(Memory::from(device.to_vec()));
    let error = Repair::plan(crashed.clone(), &Silent).unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    HfsPlusMut::open(crashed.clone(), WriteOptions::default())
        .unwrap()
        .unmount()
        .unwrap();
    assert!(!Repair::plan(crashed.clone(), &Silent).unwrap().is_needed());
    assert_eq!(files_in(&crashed), 120);
}

#[test]
fn a_journal_without_its_files_is_given_up() {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    HfsPlusMut::open(device.clone(), WriteOptions::default())
        .unwrap()
        .enable_journal(None)
        .unwrap();
    let mut sample = Sample {
        bytes: device.to_vec(),
    };
    assert!(sample.check().is_empty());
    // Its blocks belong to a file that can be deleted, and the next mount would overwrite the file
    // that gets them.
    sample.file(".journal", |raw| raw.user_info.file_type = *b"abcd");
    sample.flip(2000);
    let device = Arc::new(Memory::from(sample.bytes));
    Repair::plan(device.clone(), &Silent)
        .unwrap()
        .apply(&Silent)
        .unwrap();
    let volume = HfsPlus::open(device.clone()).unwrap().volume();
    assert!(!volume.journaled && volume.clean);
    assert_eq!(files_in(&device), 120);
}

#[test]
fn a_sound_volume_needs_no_repair() {
    let device = Arc::new(Memory::read_only(Sample::new(true).bytes));
    let repair = Repair::plan(device, &Silent).unwrap();
    assert!(!repair.is_needed() && repair.findings().is_empty());
    repair.apply(&Silent).unwrap();
}
