//! Volumes damaged in one structure each are repaired, and undamaged contents remain.

mod full;
mod headers;
mod losses;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros};

use super::*;
use crate::hfsplus::check::corruptions::{ATTRIBUTES, CATALOG, Corruption, TREES, VOLUME};
use crate::hfsplus::check::sample::Sample;
use crate::hfsplus::layout::{
    CatalogKey, CatalogRecord, Cnid, FILE_LINK_TYPE, FileRaw, ForkRaw, record_flags,
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

/// Zeroes the records of a leaf of the catalog, and keeps its head and offsets.
fn lose_records(sample: &mut Sample, leaf: u32) -> Vec<String> {
    let names = sample.objects_in_leaf(leaf);
    let node = sample.node(Cnid::CATALOG, leaf);
    let end = node.len() - 512;
    node[14..end].fill(0);
    names
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
