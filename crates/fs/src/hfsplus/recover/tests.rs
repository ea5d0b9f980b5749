//! Volumes whose files are deleted: by the library, with a journal, and in the raw bytes as macOS does, with
//! what it leaves in a node. The truth is what was written.

use std::collections::BTreeMap;

use super::*;
use crate::hfsplus::build::{Options, Plan};
use crate::hfsplus::check::sample::Sample;
use crate::hfsplus::layout::{CatalogKey, CatalogRecord, FileRaw, node_kind};
use crate::hfsplus::unicode::decode_name;
use crate::hfsplus::{HfsPlusMut, WriteOptions};
use crate::source::Tree;
use crate::{
    Certainty, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, LossReason,
    NewKind, NewNode, NodeId, RecordSource, RecoveredFile, Timestamp,
};
use bandsaw_core::device::{BlockDeviceExt, Memory};
use bandsaw_core::progress::Silent;
use bandsaw_testing::Random;

const NOW: Timestamp = Timestamp::from_seconds(1_750_000_000);

/// Scans a volume that cannot be written to.
fn scan(bytes: Vec<u8>) -> (Vec<RecoveredFile>, RecoverySummary) {
    let device = Arc::new(Memory::read_only(bytes));
    let mut found = Vec::new();
    let summary = HfsPlusRecovery::open(device)
        .unwrap()
        .scan(&Silent, &mut |file| {
            found.push(file);
            Ok(())
        })
        .unwrap();
    assert_eq!(summary.files, found.len() as u64);
    (found, summary)
}

fn contents(file: &RecoveredFile) -> Vec<u8> {
    let device = file.open(Fork::Data).unwrap();
    device.read_vec(0, device.info().len as usize).unwrap()
}

fn named<'a>(found: &'a [RecoveredFile], path: &str) -> &'a RecoveredFile {
    found
        .iter()
        .find(|file| file.path == path)
        .unwrap_or_else(|| panic!("no {path} in {found:#?}"))
}

fn journaled(len: usize) -> Arc<Memory> {
    let created = Timestamp::from_seconds(1_700_000_000);
    let options = Options {
        name: "Deleted".into(),
        case_sensitive: false,
        journaled: true,
        block_size: None,
        created,
        latest: None,
        opens: false,
        identifier: 7,
    };
    let device = Arc::new(Memory::zeros(len));
    Plan::new(Tree::empty(created), options)
        .unwrap()
        .build(&*device, &Silent)
        .unwrap();
    device
}

fn open(device: &Arc<Memory>) -> HfsPlusMut {
    let options = WriteOptions {
        now: Some(NOW),
        ..WriteOptions::default()
    };
    HfsPlusMut::open(device.clone(), options).unwrap()
}

fn write(fs: &HfsPlusMut, dir: NodeId, name: &str, bytes: &[u8]) {
    let id = fs.create(dir, name, &NewNode::new(NewKind::File)).unwrap();
    fs.write_all(id, bytes).unwrap();
    fs.sync().unwrap();
}

#[test]
fn files_deleted_from_a_journaled_volume_are_found_in_the_journal() {
    let device = journaled(16 << 20);
    let fs = open(&device);
    let dir = fs
        .create(fs.root(), "Letters", &NewNode::new(NewKind::Folder))
        .unwrap();
    let mut written = BTreeMap::new();
    for number in 0..20_u8 {
        let bytes = vec![number + 1; 3000 * usize::from(number) + 1];
        let name = format!("file {number}");
        write(&fs, dir, &name, &bytes);
        written.insert(format!("/Letters/{name}"), bytes);
    }
    let before = device.to_vec();
    for number in 0..20 {
        fs.remove(dir, &format!("file {number}")).unwrap();
    }
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    // Contents of freed blocks may be discarded by the library; macOS leaves them on a disk. They are put
    // back where the volume does not use them.
    let mut after = device.to_vec();
    restore_free(&mut after, &before);
    let (found, summary) = scan(after.clone());
    assert!(!summary.is_damaged, "{summary:?}");
    for (path, bytes) in &written {
        let file = named(&found, path);
        assert_eq!(file.certainty, Certainty::Whole, "{file:?}");
        assert_eq!(file.source, RecordSource::Journal);
        assert_eq!(contents(file), *bytes, "{path}");
        assert!(!file.is_orphan && !file.is_earlier_version);
    }
    assert_eq!(found.len(), written.len(), "{found:#?}");

    // With its folder deleted, too, the folder's own record gives the path.
    let device = Arc::new(Memory::from(after));
    let fs = open(&device);
    fs.remove(fs.root(), "Letters").unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let mut after = device.to_vec();
    restore_free(&mut after, &before);
    let (found, _) = scan(after);
    for path in written.keys() {
        assert_eq!(named(&found, path).certainty, Certainty::Whole, "{path}");
    }
}

/// Copies the blocks of `before` that are free in `after`.
fn restore_free(after: &mut [u8], before: &[u8]) {
    let volume = HfsPlus::open(Arc::new(Memory::from(after.to_vec()))).unwrap();
    let map = volume.free_map().unwrap();
    let mut at = 0;
    while let Some(run) = map.free_from(at).unwrap() {
        let range = run.start as usize..run.end as usize;
        after[range.clone()].copy_from_slice(&before[range]);
        at = run.end;
    }
}

#[test]
fn blocks_that_another_file_has_are_lost() {
    let device = journaled(8 << 20);
    let fs = open(&device);
    let root = fs.root();
    write(&fs, root, "victim", &[1; 200_000]);
    let before = device.to_vec();
    fs.remove(root, "victim").unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let mut after = device.to_vec();
    restore_free(&mut after, &before);
    let (found, _) = scan(after.clone());
    let victim = named(&found, "/victim");
    assert_eq!(victim.certainty, Certainty::Whole);
    let run = victim.runs[0].range.clone();
    // Use one block in the middle.
    let mut sample = Sample { bytes: after };
    let block_size = u64::from(sample.header().block_size.get());
    let block = run.start / block_size + 5;
    sample.flip(block as u32);
    let (found, _) = scan(sample.bytes.clone());
    let victim = named(&found, "/victim");
    assert_eq!(victim.certainty, Certainty::Partial);
    assert_eq!(victim.losses.len(), 1);
    assert_eq!(victim.losses[0].reason, LossReason::InUse);
    assert_eq!(victim.losses[0].range, 5 * block_size..6 * block_size);
    let bytes = contents(victim);
    let (start, end) = (5 * block_size as usize, 6 * block_size as usize);
    assert!(
        bytes[..start]
            .iter()
            .chain(&bytes[end..])
            .all(|&byte| byte == 1)
    );
    assert!(bytes[start..end].iter().all(|&byte| byte == 0));
    // Use all of them.
    sample.flip(block as u32);
    for block in run.start / block_size..run.end.div_ceil(block_size) {
        sample.flip(block as u32);
    }
    let (found, _) = scan(sample.bytes);
    assert_eq!(named(&found, "/victim").certainty, Certainty::NameOnly);
}

/// Removes record `index` of a leaf as macOS does: later records move, and the bytes behind them stay.
fn remove_record(node: &mut [u8], index: usize) {
    let count = usize::from(u16::from_be_bytes([node[10], node[11]]));
    let place = |index: usize| node.len() - 2 * (index + 1);
    let offsets: Vec<usize> = (0..=count)
        .map(|index| {
            let at = place(index);
            usize::from(u16::from_be_bytes([node[at], node[at + 1]]))
        })
        .collect();
    let len = offsets[index + 1] - offsets[index];
    node.copy_within(offsets[index + 1]..offsets[count], offsets[index]);
    for later in index..count {
        let at = node.len() - 2 * (later + 1);
        let offset = (offsets[later + 1] - len) as u16;
        node[at..at + 2].copy_from_slice(&offset.to_be_bytes());
    }
    node[10..12].copy_from_slice(&(count as u16 - 1).to_be_bytes());
}

/// Deletes the file whose record is the last of a leaf; returns its name and record. Its blocks are free.
fn delete_last(sample: &mut Sample, number: u32) -> Option<(String, FileRaw)> {
    let node = sample.node(Cnid::CATALOG, number);
    if node[8] as i8 != node_kind::LEAF {
        return None;
    }
    let count = usize::from(u16::from_be_bytes([node[10], node[11]]));
    let offset = |index: usize| {
        let at = node.len() - 2 * (index + 1);
        usize::from(u16::from_be_bytes([node[at], node[at + 1]]))
    };
    let record = node[offset(count - 1)..offset(count)].to_vec();
    let (key, data) = CatalogKey::split(&record)?;
    let Some(CatalogRecord::File(file)) = CatalogRecord::parse(data) else {
        return None;
    };
    let (name, file) = (decode_name(key.name), *file);
    if count < 3 || file.data_fork.total_blocks.get() == 0 {
        return None;
    }
    remove_record(node, count - 1);
    for fork in [&file.data_fork, &file.resource_fork] {
        for extent in extents_of(&fork.extents) {
            for block in extent.start.0..extent.start.0 + extent.count {
                sample.flip(block);
            }
        }
    }
    Some((name, file))
}

#[test]
fn records_in_the_slack_of_leaves_are_found() {
    let mut deleted = 0;
    for case_sensitive in [false, true] {
        let mut sample = Sample::new(case_sensitive);
        let whole = HfsPlus::open(Arc::new(Memory::from(sample.bytes.clone()))).unwrap();
        let total = sample.tree(Cnid::CATALOG).total_nodes.get();
        for number in 1..total {
            let before = sample.bytes.clone();
            let Some((name, file)) = delete_last(&mut sample, number) else {
                continue;
            };
            let id = NodeId(file.file_id.get().into());
            let (found, summary) = scan(sample.bytes.clone());
            assert!(!summary.is_damaged, "{summary:?}");
            let one = found.iter().find(|file| file.attributes.id == id);
            let one = one.unwrap_or_else(|| panic!("{name} in {found:#?}"));
            assert_eq!(one.name(), name);
            assert!(
                matches!(one.source, RecordSource::NodeSlack | RecordSource::FreeNode),
                "{one:?}"
            );
            let expected = whole.open(id, Fork::Data);
            if one.certainty == Certainty::Whole
                && let Ok(expected) = expected
            {
                let expected = expected.read_vec(0, expected.info().len as usize).unwrap();
                assert_eq!(contents(one), expected, "{name}");
                deleted += 1;
            }
            sample.bytes = before;
        }
    }
    assert!(deleted > 2, "{deleted}");
}

#[test]
fn nothing_is_found_where_nothing_was_deleted() {
    for case_sensitive in [false, true] {
        let (found, summary) = scan(Sample::new(case_sensitive).bytes);
        assert!(
            found.is_empty() && summary.problems.is_empty(),
            "{found:#?}"
        );
        assert!(summary.searched > 0 && !summary.is_damaged);
    }
    let device = journaled(16 << 20);
    let fs = open(&device);
    for number in 0..30_u8 {
        write(
            &fs,
            fs.root(),
            &format!("file {number}"),
            &vec![number; 5000],
        );
    }
    fs.rename(
        (fs.root(), "file 3"),
        (fs.root(), "other"),
        crate::ExistingTarget::Error,
    )
    .unwrap();
    fs.sync().unwrap();
    fs.unmount().unwrap();
    drop(fs);
    let (found, _) = scan(device.to_vec());
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn files_of_a_volume_without_a_catalog_header_are_recovered() {
    let mut sample = Sample::new(false);
    let whole = HfsPlus::open(Arc::new(Memory::from(sample.bytes.clone()))).unwrap();
    let paths = files_below(&whole, whole.root(), "");
    assert!(paths.len() > 50);
    sample.node(Cnid::CATALOG, 0).fill(0x5A);
    let (found, summary) = scan(sample.bytes);
    assert!(summary.is_damaged);
    let mut equal = 0;
    for (path, expected) in &paths {
        let Some(file) = found.iter().find(|file| file.path == *path) else {
            continue; // a hard link has the number and the path of its target
        };
        if file.certainty == Certainty::NameOnly {
            continue;
        }
        assert_eq!(contents(file), *expected, "{file:?}");
        equal += 1;
    }
    assert!(equal + 10 > paths.len(), "{equal} of {}", paths.len());
}

/// Returns the paths and contents of all files.
fn files_below(fs: &HfsPlus, dir: NodeId, path: &str) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs.entries(dir).unwrap() {
        let path = format!("{path}/{}", entry.name);
        match entry.attributes.kind {
            crate::FileKind::Folder => all.extend(files_below(fs, entry.attributes.id, &path)),
            crate::FileKind::File => {
                let device = fs.open(entry.attributes.id, Fork::Data).unwrap();
                let bytes = device.read_vec(0, device.info().len as usize).unwrap();
                all.insert(path, bytes);
            }
            _ => {}
        }
    }
    all
}

#[test]
fn an_alternate_header_is_enough() {
    let mut sample = Sample::new(false);
    sample.bytes[1024..1536].fill(0);
    let (found, summary) = scan(sample.bytes);
    assert!(found.is_empty() && !summary.is_damaged, "{summary:?}");
    assert!(!summary.problems.is_empty());
}

/// No damage makes a search panic, write, or call a file whole that has a block in use.
#[test]
fn damaged_volumes_are_searched() {
    let sound = Sample::new(false).bytes;
    let mut sample = Sample::new(false);
    let catalog = sample.start(Cnid::CATALOG);
    let mut random = Random::new(11);
    for _ in 0..60 {
        let mut bytes = sound.clone();
        for _ in 0..random.within(1..40) {
            let at = match random.within(0..3) {
                0 => random.within(1024..1536) as usize,
                1 => catalog + random.within(0..200_000) as usize,
                _ => random.within(0..bytes.len() as u64) as usize,
            };
            bytes[at] = random.within(0..256) as u8;
        }
        let device = Arc::new(Memory::read_only(bytes));
        let Ok(recovery) = HfsPlusRecovery::open(device) else {
            continue;
        };
        let scanned = recovery.scan(&Silent, &mut |file| {
            let device = file.open(Fork::Data);
            if let Ok(device) = device {
                let len = device.info().len.min(1 << 16);
                let _ = device.read_vec(0, len as usize);
            }
            Ok(())
        });
        if let Err(error) = scanned {
            assert_ne!(error.kind(), Kind::ReadOnly, "{error}");
        }
    }
}
