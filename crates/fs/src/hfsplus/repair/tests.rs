//! Volumes damaged in one structure each are repaired, and undamaged contents remain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zerocopy::FromBytes;

use super::*;
use crate::hfsplus::check::corruptions::{ATTRIBUTES, CATALOG, Corruption, TREES, VOLUME};
use crate::hfsplus::check::sample::Sample;
use crate::hfsplus::layout::{
    CatalogKey, CatalogRecord, Cnid, FILE_LINK_TYPE, FileRaw, record_flags,
};
use crate::hfsplus::links::{INODE, inode_number};
use crate::hfsplus::unicode::decode_name;
use crate::hfsplus::{HfsPlus, HfsPlusMut, WriteOptions};
use crate::{
    Attributes, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, Lost,
    NewKind, NewNode, UF_COMPRESSED,
};
use bandsaw_core::decision::Undecided;
use bandsaw_core::decmpfs;
use bandsaw_core::device::{AfterDiscard, BlockDeviceExt, Memory};
use bandsaw_core::progress::Silent;

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

/// Repairs the damage; returns the volume, and the paths of which something is lost.
fn repaired(damage: &Corruption, case_sensitive: bool) -> Result<(Arc<Memory>, BTreeSet<String>)> {
    let mut sample = Sample::new(case_sensitive);
    damage.0(&mut sample);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent)?;
    repair.apply(&Silent)?;
    let left = check(device.clone(), &Silent)?;
    match left.into_iter().find(is_wrong) {
        None => Ok((device, lost(&repair))),
        Some(problem) => Err(Error::new(
            Kind::Corrupt,
            LAYER,
            format!("{:?} leave {}", repair.steps(), problem.error),
        )),
    }
}

fn lost(repair: &Repair) -> BTreeSet<String> {
    let certain = repair.losses().certain.iter();
    certain.map(|loss| loss.path.clone()).collect()
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
}

/// Losses by the list that the damage is in, and its words.
const LOSSES: [(&str, &str, Loss); 8] = [
    (
        "catalog",
        "length of 18446744073709551615 bytes exceeds",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "reaches past the end of the volume",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "are used by",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "its compressed contents are missing",
        Loss::Contents("/folder/inner/file 3"),
    ),
    (
        "catalog",
        "points to iNode4242",
        Loss::File("/folder/second name"),
    ),
    (
        "attributes",
        "of unknown type or truncated",
        Loss::Attribute("/with attributes", "small"),
    ),
    (
        "attributes",
        "which does not exist",
        Loss::Attribute("/with attributes", "small"),
    ),
    (
        "attributes",
        "is for block 1",
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

/// Returns the expected objects of a volume after this loss.
fn without(loss: &Loss, mut items: BTreeMap<String, Item>) -> BTreeMap<String, Item> {
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

#[test]
fn damage_of_every_kind_is_repaired() {
    let whole = items(Sample::new(false).bytes);
    assert!(whole.len() > 125);
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
            let (mut found, report) = match repaired(case, false) {
                Ok((device, report)) => (items(device.to_vec()), report),
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
            let expected = without(loss, whole.clone());
            if let Loss::Contents(path) = loss
                && found.remove(*path).is_none()
            {
                wrong.push(format!("{words}: {path} is gone"));
            }
            // Exactly what is lost is told of.
            let is_reported = match loss {
                Loss::Nothing => report.is_empty(),
                Loss::File(path) | Loss::Contents(path) => report.contains(*path),
                // The number of the object may be what is damaged.
                Loss::Attribute(path, _) => {
                    report.contains(*path)
                        || report.iter().any(|report| report.starts_with("object "))
                }
            };
            if !is_reported {
                wrong.push(format!("{words}: losses are {report:?}"));
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

/// Zeroes the records of a leaf of the catalog, and keeps its head and offsets.
fn lose_records(sample: &mut Sample, leaf: u32) -> Vec<String> {
    let names = sample.objects_in_leaf(leaf);
    let node = sample.node(Cnid::CATALOG, leaf);
    let end = node.len() - 512;
    node[14..end].fill(0);
    names
}

#[test]
fn every_file_of_a_lost_leaf_is_named_or_counted() {
    let sound = items(Sample::new(false).bytes);
    for with_header in [true, false] {
        for leaf in 1..8 {
            let mut sample = Sample::new(false);
            let names = lose_records(&mut sample, leaf);
            if !with_header {
                sample.node(Cnid::CATALOG, 0).fill(0);
                let header = sample.header();
                (header.file_count, header.folder_count) = (7.into(), 3.into());
            }
            let device = Arc::new(Memory::from(sample.bytes));
            let repair = Repair::plan(device.clone(), &Silent).unwrap();
            repair.apply(&Silent).unwrap();
            let found = items(device.to_vec());
            let report = lost(&repair);
            let gone: Vec<_> = sound
                .keys()
                .filter(|path| !found.contains_key(*path))
                .collect();
            let unnamed = repair
                .losses()
                .certain
                .iter()
                .any(|loss| matches!(loss.what, Lost::Entries(_)));
            // A folder without record and thread is restored under another name.
            let is_file = |path: &&&String| sound[**path].kind != FileKind::Folder;
            for path in gone.iter().filter(is_file) {
                // The name of a folder above may be lost.
                let is_moved = found
                    .keys()
                    .chain(&report)
                    .any(|other| other.rsplit('/').next() == path.rsplit('/').next());
                assert!(
                    report.contains(*path) || unnamed || is_moved,
                    "leaf {leaf}, {path}: {report:?}"
                );
            }
            assert_eq!(gone.is_empty(), names.is_empty(), "leaf {leaf}");
            if names.is_empty() {
                assert!(
                    report.is_empty(),
                    "leaf {leaf} holds only threads: {report:?}"
                );
            }
        }
    }
}

#[test]
fn a_dry_run_is_the_run() {
    let plan = || {
        let mut sample = Sample::new(false);
        lose_records(&mut sample, 1);
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        (repair.steps().to_vec(), repair.losses().clone())
    };
    let first = plan();
    assert!(first.0.iter().any(|step| step.files.len() > 3) && !first.1.certain.is_empty());
    for _ in 0..3 {
        assert_eq!(plan(), first);
    }
}

/// Gives the largest free runs of blocks to a file.
fn fill(sample: &mut Sample) {
    while fill_run(sample) {}
}

/// Gives the largest free run of blocks to a file; returns false if there is none.
fn fill_run(sample: &mut Sample) -> bool {
    let total = sample.header().total_blocks.get();
    let bitmap = sample.start(Cnid::ALLOCATION);
    let is_used =
        |bytes: &[u8], block: u32| bytes[bitmap + block as usize / 8] & (0x80 >> (block % 8)) != 0;
    let (mut best, mut start) = ((0, 0), 0);
    for block in 0..total {
        if is_used(&sample.bytes, block) {
            start = block + 1;
        } else if block + 1 - start > best.1 {
            best = (start, block + 1 - start);
        }
    }
    let (start, count) = best;
    let mut has_room = false;
    sample.file("file 3", |raw| {
        has_room = raw.data_fork.extents[7].block_count.get() == 0
    });
    if count == 0 || !has_room {
        return false;
    }
    (start..start + count).for_each(|block| sample.flip(block));
    let header = sample.header();
    header.free_blocks = (header.free_blocks.get() - count).into();
    sample.file("file 3", |raw| {
        let extent = raw
            .data_fork
            .extents
            .iter_mut()
            .find(|extent| extent.block_count.get() == 0)
            .unwrap();
        (extent.start_block, extent.block_count) = (start.into(), count.into());
        let blocks = raw.data_fork.total_blocks.get() + count;
        raw.data_fork.total_blocks = blocks.into();
        raw.data_fork.logical_size = (u64::from(blocks) * 4096).into();
    });
    true
}

#[test]
fn a_full_volume_is_repaired_over_its_old_trees() {
    let mut sample = Sample::new(false);
    fill(&mut sample);
    assert!(sample.check().iter().all(|problem| !is_wrong(problem)));
    let full = items(sample.bytes.clone());
    sample.node(Cnid::CATALOG, 0)[..64].fill(0);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    assert!(repair.losses().is_empty(), "{:?}", repair.losses());
    let is_in_place = |step: &RepairStep| step.text.starts_with("overwrite the old trees");
    assert!(
        repair.steps().iter().any(is_in_place),
        "{:?}",
        repair.steps()
    );
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec()) == full);
}

#[test]
fn a_full_volume_grows_with_its_device_if_files_need_room() {
    let mut sample = Sample::new(false);
    fill(&mut sample);
    // Both files get these blocks, which are most of the volume.
    let mut fork = ForkRaw::default();
    sample.file("file 3", |raw| fork = raw.data_fork);
    sample.file("file 7", |raw| raw.data_fork = fork);
    sample.node(Cnid::CATALOG, 0)[..64].fill(0);
    let full = Arc::new(Memory::from(sample.bytes.clone()));
    let kind = Repair::plan(full, &Silent).err().map(|error| error.kind());
    assert_eq!(kind, Some(Kind::Limit));
    let mut bytes = sample.bytes;
    bytes.resize(24 << 20, 0);
    let device = Arc::new(Memory::from(bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    let both = ["/folder/inner/file 3", "/folder/inner/file 7"];
    assert_eq!(lost(&repair), both.map(str::to_owned).into());
    repair.apply(&Silent).unwrap();
    assert!(check(device.clone(), &Silent).unwrap().is_empty());
    assert_eq!(HfsPlus::open(device).unwrap().volume().total, 24 << 20);
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
            .contains("the type of a hard link, but contents")),
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
    Repair::plan_assuming(device.clone(), Some(CopyChoice::Primary), &Silent)
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

/// Returns a volume with a compressed file `packed`.
fn with_compressed_file() -> Sample {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    let file = NewNode::new(NewKind::File);
    let id = volume.create(volume.root(), "packed", &file).unwrap();
    let value = [&b"fpmc\x03\0\0\0\x05\0\0\0\0\0\0\0\xFF"[..], b"plain"].concat();
    volume
        .set_xattr_bytes(id, decmpfs::ATTRIBUTE, &value)
        .unwrap();
    volume.unmount().unwrap();
    let mut sample = Sample {
        bytes: device.to_vec(),
    };
    sample.file("packed", |raw| raw.bsd.owner_flags |= UF_COMPRESSED as u8);
    sample
}

#[test]
fn the_flag_of_compressed_contents_is_restored() {
    let mut sample = with_compressed_file();
    // The end of the record, as by a sector of zeros, and something that `check` finds.
    sample.file("packed", |raw| {
        (raw.bsd.owner_flags, raw.bsd.file_mode) = (0, 0.into());
    });
    sample.thread("file 3", |data| data[7] ^= 1);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    assert!(repair.losses().is_empty(), "{:?}", repair.losses());
    repair.apply(&Silent).unwrap();
    assert_eq!(items(device.to_vec())["/packed"].contents, b"plain");
}

#[test]
fn the_mark_of_compressed_contents_is_restored() {
    let mut sample = with_compressed_file();
    let whole = items(sample.bytes.clone());
    assert_eq!(whole["/packed"].contents, b"plain");
    sample.attribute(decmpfs::ATTRIBUTE, |record| {
        let magic = record.windows(4).position(|bytes| bytes == b"fpmc");
        record[magic.unwrap()] = b'3';
    });
    let found = sample.check();
    assert!(found.iter().any(is_wrong), "{found:?}");
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    assert!(repair.losses().is_empty(), "{:?}", repair.losses());
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec()) == whole);
}

#[test]
fn a_link_whose_forks_are_noise_stays_a_link() {
    let mut sample = Sample::new(false);
    let whole = items(sample.bytes.clone());
    sample.file("second name", |raw| {
        raw.resource_fork.logical_size = u64::MAX.into();
        raw.resource_fork.total_blocks = u32::MAX.into();
        raw.resource_fork.extents[0].start_block = 0x7265_6D6F.into();
        raw.resource_fork.extents[0].block_count = 3.into();
    });
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    assert!(repair.losses().is_empty(), "{:?}", repair.losses());
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec()) == whole);
}

#[test]
fn a_file_whose_record_ends_in_zeros_is_a_loss() {
    let mut sample = Sample::new(false);
    let (mut names, mut cut) = (Vec::new(), 0);
    for leaf in 1..8 {
        names = sample.objects_in_leaf(leaf);
        cut = leaf;
        if names.len() > 3 && names[1].starts_with("file ") {
            break;
        }
    }
    let name = names[1].clone();
    let wanted = |record: &[u8]| {
        let (key, data) = CatalogKey::split(record).unwrap();
        decode_name(key.name) == name
            && !matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(_)))
    };
    // Both forks of one record, and the next one, as by a sector of zeros.
    let mut bytes = Vec::new();
    sample.record(Cnid::CATALOG, wanted, |record| bytes = record.to_vec());
    let node = sample.node(Cnid::CATALOG, cut);
    let at = node
        .windows(bytes.len())
        .position(|window| window == bytes)
        .unwrap();
    let end = at + bytes.len();
    node[end - 168..end + 40].fill(0);
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device, &Silent).unwrap();
    let certain = &repair.losses().certain;
    let is_named = certain
        .iter()
        .any(|loss| loss.path.ends_with(&name) && loss.what == Lost::Contents(None));
    assert!(is_named, "{name}: {certain:?}");
}

#[test]
fn used_blocks_that_an_older_leaf_does_not_state_are_a_loss() {
    let losses = |is_used: bool| {
        let mut sample = Sample::new(false);
        let wanted = |record: &[u8]| {
            let data = CatalogKey::split(record).unwrap().1;
            matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(thread))
                if decode_name(thread.name) == "file 5")
        };
        // An object without a thread, as one that was deleted since.
        sample.record(Cnid::CATALOG, wanted, |record| record[3] ^= 0x40);
        if is_used {
            sample.flip(2000);
        }
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        repair.losses().certain.clone()
    };
    assert!(losses(false).is_empty(), "{:?}", losses(false));
    let found = losses(true);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].what, Lost::Unowned(4096));
}

#[test]
fn an_attribute_that_the_tree_does_not_count_is_a_possible_loss() {
    let mut sample = Sample::new(false);
    sample.attribute("small", |record| record[5] ^= 0x01);
    let tree = sample.tree(Cnid::ATTRIBUTES);
    tree.leaf_records = (tree.leaf_records.get() - 1).into();
    let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
    let losses = repair.losses();
    assert!(losses.certain.is_empty(), "{losses:?}");
    assert_eq!(losses.possible.len(), 1, "{losses:?}");
}

#[test]
fn lost_attributes_are_listed_under_every_name_or_counted() {
    let losses = |is_flagged: bool| {
        let mut sample = Sample::new(false);
        sample.attribute("small", |record| record.fill(0xFF));
        if is_flagged {
            let is_target =
                |record: &[u8]| inode_number(CatalogKey::split(record).unwrap().0.name).is_some();
            sample.record(Cnid::CATALOG, is_target, |record| {
                let at = record.len() - CatalogKey::split(record).unwrap().1.len();
                let (raw, _) = FileRaw::mut_from_prefix(&mut record[at..]).unwrap();
                raw.flags = (raw.flags.get() | record_flags::HAS_ATTRIBUTES).into();
            });
        }
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        let certain = repair.losses().certain.iter();
        certain
            .map(|loss| (loss.path.clone(), loss.what.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(losses(false), [("/".to_owned(), Lost::AnyAttributes(1))]);
    let names = [
        "/first name",
        "/folder/inner/third name",
        "/folder/second name",
    ];
    let expected = names.map(|name| (name.to_owned(), Lost::Attributes));
    assert_eq!(losses(true), expected);
}

/// Puts an older state of a leaf in its place, in which `change` was made to the record of a file,
/// and its newest state in place of the next leaf. Both have the same dates. Returns the path of
/// that file and the contents before the damage.
fn with_older_leaf(
    sample: &mut Sample,
    is_linked: bool,
    change: impl FnOnce(&mut FileRaw),
) -> (String, Item) {
    let whole = items(sample.bytes.clone());
    let is_plain = |name: &&String| name.starts_with("file ");
    let mut leaves = (1..8).map(|leaf| (leaf, sample.objects_in_leaf(leaf)));
    let (leaf, names) = leaves
        .find(|(_, names)| names.iter().filter(is_plain).count() > 2)
        .unwrap();
    let name = names.iter().find(is_plain).unwrap();
    let newest = sample.node(Cnid::CATALOG, leaf).to_vec();
    sample.file(name, change);
    let links = sample.node(Cnid::CATALOG, leaf + 1)[..8].to_vec();
    let next = sample.node(Cnid::CATALOG, leaf + 1);
    next.copy_from_slice(&newest);
    next[..8].copy_from_slice(&links);
    if !is_linked {
        // The leaf was the last one then.
        sample.node(Cnid::CATALOG, leaf)[..4].fill(0);
    }
    let mut found = whole.into_iter();
    found
        .find(|(path, _)| path.ends_with(&format!("/{name}")))
        .unwrap()
}

#[test]
fn a_record_whose_blocks_are_free_gives_way_to_one_of_the_same_date() {
    let mut sample = Sample::new(false);
    let (path, before) = with_older_leaf(&mut sample, true, |raw| {
        raw.data_fork.extents[0].start_block = 2000.into();
    });
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec())[&path] == before, "{path}");
}

#[test]
fn a_record_of_a_leaf_that_its_neighbors_contradict_gives_way() {
    let mut sample = Sample::new(false);
    let (path, before) = with_older_leaf(&mut sample, false, |raw| {
        raw.data_fork.logical_size = 100.into();
    });
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    assert!(items(device.to_vec())[&path] == before, "{path}");
}

#[test]
fn new_trees_beyond_the_limit_of_memory_go_to_a_file() {
    const LIMIT: u64 = 16 << 10;
    let mut sample = Sample::new(false);
    lose_records(&mut sample, 1);
    let in_memory = Arc::new(Memory::from(sample.bytes.clone()));
    let repair = Repair::plan(in_memory.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let spill = Arc::new(Spill::limited(folder.path().to_owned(), LIMIT));
    let device = Arc::new(Memory::from(sample.bytes));
    let repair = Repair::plan_on(device.clone(), None, &spill, &Silent).unwrap();
    assert!(spill.used() > LIMIT, "{} bytes", spill.used());
    let kept = repair.pending.as_ref().unwrap().overlay.in_memory();
    assert!(kept <= LIMIT, "{kept} bytes");
    repair.apply(&Silent).unwrap();
    assert!(device.to_vec() == in_memory.to_vec());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_header_with_noise_in_an_unused_extent_is_wrong() {
    let sound = Sample::new(false).bytes;
    let whole = items(sound.clone());
    // The second extent of the attributes file, which has only one, in either header.
    for header in [HEADER_OFFSET as usize, sound.len() - HEADER_OFFSET as usize] {
        let mut bytes = sound.clone();
        bytes[header + 379] ^= 0x80;
        let device = Arc::new(Memory::from(bytes));
        let repair = Repair::plan(device.clone(), &Silent).unwrap();
        assert!(repair.is_needed(), "{header}");
        assert!(repair.losses().is_empty(), "{:?}", repair.losses());
        repair.apply(&Silent).unwrap();
        assert!(items(device.to_vec()) == whole, "{header}");
        assert!(check(device, &Silent).unwrap().is_empty(), "{header}");
    }
}

/// A sector of the catalog from before the file was written: the record has no extents, but the
/// overflow tree has some.
#[test]
fn a_file_that_is_longer_than_its_older_record_states_is_a_loss() {
    let device = Arc::new(Memory::from(Sample::new(false).bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    let root = volume.root();
    let file = NewNode::new(NewKind::File);
    let [scattered, between] =
        ["scattered", "between"].map(|name| volume.create(root, name, &file).unwrap());
    for turn in 0..12_u64 {
        for node in [scattered, between] {
            let open = volume.open_mut(node, Fork::Data).unwrap();
            open.set_len((turn + 1) * 4096, AfterDiscard::Zeros)
                .unwrap();
            open.write_at(turn * 4096, &[turn as u8 + 1; 4096]).unwrap();
            // A closed file has no reservation.
            drop(open);
            volume.sync().unwrap();
        }
    }
    volume.unmount().unwrap();
    let bytes = device.to_vec();
    let losses = |change: &dyn Fn(&mut FileRaw), free: bool| {
        let mut sample = Sample {
            bytes: bytes.clone(),
        };
        let mut blocks = 0..0;
        sample.file("scattered", |raw| {
            assert!(raw.data_fork.total_blocks.get() == 12, "not scattered");
            assert_ne!(raw.data_fork.extents[7].block_count.get(), 0);
            let first = raw.data_fork.extents[7].start_block.get() + 1;
            blocks = first..first + 12;
            change(raw);
        });
        if free {
            // Nothing of it is in use: the tree has a record of a file that was shortened.
            let start = sample.start(Cnid::ALLOCATION);
            for block in blocks {
                sample.bytes[start + block as usize / 8] &= !(0x80 >> (block % 8));
            }
        }
        let repair = Repair::plan(Arc::new(Memory::from(sample.bytes)), &Silent).unwrap();
        let losses = repair.losses().certain.clone();
        losses
            .into_iter()
            .filter(|loss| loss.path == "/scattered")
            .map(|loss| loss.what)
            .collect::<Vec<_>>()
    };
    let empty = |raw: &mut FileRaw| raw.data_fork = ForkRaw::default();
    let short = |raw: &mut FileRaw| {
        raw.data_fork.logical_size = (8 * 4096).into();
        raw.data_fork.total_blocks = 8.into();
    };
    assert_eq!(losses(&empty, false), [Lost::Contents(Some(12 * 4096))]);
    let cut = Lost::End {
        from: 12 * 4096,
        to: 8 * 4096,
    };
    assert_eq!(losses(&short, false), [cut]);
    assert_eq!(losses(&short, true), []);
}
