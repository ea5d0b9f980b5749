//! Power failures while a volume is repaired: after each it can be repaired, with all its files.

use std::collections::BTreeSet;
use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::codec::Level;
use bandsaw::decision::CopyChoice;
use bandsaw::decmpfs::{Method, PackOptions};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory, Spill};
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::hfsplus::{HfsPlus, HfsPlusMut, Repair, WriteOptions, check};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystem, FileSystemExt, FileSystemMut, Fork, Timestamp, UF_COMPRESSED};
use bandsaw::ops::compress::{CompressOptions, compress_one};
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Store};
use bandsaw::testing::PowerCut;

const LEN: u64 = 2 << 20;
/// Offsets in the volume header: the block size, and the catalog's first block.
const BLOCK_SIZE: u64 = 1024 + 40;
const CATALOG: u64 = 1024 + 272 + 16;

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

fn number(disk: &dyn BlockDevice, at: u64) -> u64 {
    u32::from_be_bytes(disk.read_array(at).unwrap()).into()
}

fn damaged() -> PowerCut {
    let store = PowerCut::default();
    let disk = disk(&store);
    disk.set_len(LEN, AfterDiscard::Zeros).unwrap();
    let created = Timestamp::from_seconds(1_700_000_000);
    let mut tree = Tree::empty(created);
    for file in 0..40_u8 {
        let kind = SourceKind::File(Stream::Bytes(vec![file + 1; 3000].into()));
        let root = tree.nodes[0].clone();
        tree.nodes.push(SourceNode {
            name: format!("file {file}").into(),
            kind,
            ..root
        });
    }
    let options = Options {
        name: "Cut".into(),
        case_sensitive: false,
        journaled: false,
        block_size: None,
        created,
        latest: None,
        opens: false,
        identifier: 1,
    };
    Plan::new(tree, options)
        .unwrap()
        .build(&*disk, &Silent)
        .unwrap();
    // Without its header node the catalog cannot be read, and half of the bitmap is wrong.
    let catalog = number(&*disk, CATALOG) * number(&*disk, BLOCK_SIZE);
    disk.write_at(catalog, &[0xA5; 512]).unwrap();
    disk.write_at(number(&*disk, BLOCK_SIZE) + 2, &[0xF0; 8])
        .unwrap();
    disk.flush().unwrap();
    store.sync().unwrap();
    store
}

fn files(disk: Arc<dyn BlockDevice>) -> usize {
    let volume = HfsPlus::open(disk).unwrap();
    let entries = volume.entries(volume.root()).unwrap();
    for entry in &entries {
        let fork = volume.open(entry.attributes.id, Fork::Data).unwrap();
        let byte = fork.read_array::<1>(0).unwrap()[0];
        assert_eq!(entry.name, format!("file {}", byte - 1));
        assert_eq!(fork.read_vec(0, 3000).unwrap(), vec![byte; 3000]);
    }
    entries.len()
}

#[test]
fn a_cut_leaves_a_volume_that_is_repaired_or_can_be() {
    let store = damaged();
    let before = store.position();
    let repair = Repair::plan(disk(&store), &Silent).unwrap();
    assert!(!repair.findings().is_empty());
    repair.apply(&Silent).unwrap();
    assert!(check(disk(&store), &Silent).unwrap().is_empty());
    assert_eq!(files(disk(&store)), 40);

    let (mut whole, mut crashes) = (0, 0);
    for crash in store.crashes_from(before, 7, 4) {
        let disk = disk(&crash.store);
        // Between the writes of both headers, only the user can decide; `ops::repair` has undo data
        // for that.
        let repair = match Repair::plan(disk.clone(), &Silent) {
            Err(error) if error.kind() == Kind::Undecided => {
                let spill = Arc::new(Spill::to(std::env::temp_dir()));
                Repair::plan_on(disk.clone(), Some(CopyChoice::Primary), &spill, &Silent)
            }
            plan => plan,
        };
        let repair = repair.unwrap_or_else(|error| panic!("{crash:?}: {error}"));
        whole += usize::from(!repair.is_needed());
        repair
            .apply(&Silent)
            .unwrap_or_else(|error| panic!("{crash:?}: {error}"));
        let left = check(disk.clone(), &Silent).unwrap();
        assert!(left.is_empty(), "{crash:?}: {left:?}");
        assert_eq!(files(disk), 40, "{crash:?}");
        crashes += 1;
    }
    assert!(
        whole > 0 && whole < crashes,
        "{whole} of {crashes} crashes left a repaired volume"
    );
}

/// Returns a volume with 600 files in its root folder, and the offset and size of the nodes of its
/// catalog.
fn with_files() -> (Vec<u8>, usize, usize) {
    let created = Timestamp::from_seconds(1_700_000_000);
    let mut tree = Tree::empty(created);
    for file in 0..600_u32 {
        let kind = SourceKind::File(Stream::Bytes(file.to_be_bytes().repeat(50).into()));
        let root = tree.nodes[0].clone();
        tree.nodes.push(SourceNode {
            name: format!("file {file}").into(),
            kind,
            ..root
        });
    }
    let options = Options {
        name: "Files".into(),
        case_sensitive: false,
        journaled: false,
        block_size: None,
        created,
        latest: None,
        opens: false,
        identifier: 1,
    };
    let device = Memory::zeros(8 << 20);
    Plan::new(tree, options)
        .unwrap()
        .build(&device, &Silent)
        .unwrap();
    let catalog = number(&device, CATALOG) * number(&device, BLOCK_SIZE);
    let node = u16::from_be_bytes(device.read_array(catalog + 32).unwrap());
    (device.to_vec(), catalog as usize, node.into())
}

fn paths(volume: &HfsPlus) -> BTreeSet<String> {
    let entries = volume.entries(volume.root()).unwrap();
    entries
        .iter()
        .map(|entry| format!("/{}", entry.name))
        .collect()
}

/// Repairs a volume; returns the paths of its files, and of those that are lost.
fn repaired(bytes: Vec<u8>) -> (BTreeSet<String>, BTreeSet<String>) {
    let device = Arc::new(Memory::from(bytes));
    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    assert!(check(device.clone(), &Silent).unwrap().is_empty());
    let lost = repair.losses().certain.iter();
    let lost = lost.map(|loss| loss.path.clone()).collect();
    (paths(&HfsPlus::open(device).unwrap()), lost)
}

#[test]
fn files_of_lost_nodes_are_named_without_any_header() {
    let (sound, catalog, node) = with_files();
    let all: BTreeSet<_> = (0..600).map(|file| format!("/file {file}")).collect();
    for nodes in 1..4 {
        let mut bytes = sound.clone();
        bytes[catalog..catalog + nodes * node].fill(0);
        // The number of files in both volume headers is of no use.
        let len = bytes.len();
        for header in [1024, len - 1024] {
            bytes[header + 32..header + 40].fill(0);
        }
        let (found, mut lost) = repaired(bytes);
        // The record of the root folder was in the first leaf.
        lost.remove("/");
        assert_eq!(
            all.difference(&found).cloned().collect::<BTreeSet<_>>(),
            lost
        );
        assert_eq!(lost.is_empty(), nodes == 1, "{nodes} nodes");
    }
}

#[test]
fn a_catalog_without_a_root_is_rebuilt_from_its_leaves() {
    let (sound, catalog, _) = with_files();
    for zeroed in [0..16, 0..20, 14..20, 0..32, 0..33, 0..64] {
        let mut bytes = sound.clone();
        bytes[catalog + zeroed.start..catalog + zeroed.end].fill(0);
        let (found, lost) = repaired(bytes);
        assert_eq!((found.len(), lost.len()), (600, 0), "{zeroed:?}");
    }
}

#[test]
fn a_wrong_offset_in_a_leaf_costs_nothing() {
    let (sound, catalog, node) = with_files();
    for (leaf, record) in [(1, 1), (2, 8), (5, 3)] {
        for bit in 0..16 {
            let mut bytes = sound.clone();
            let at = catalog + (leaf + 1) * node - 2 * (record + 1) + bit / 8;
            bytes[at] ^= 1 << (bit % 8);
            let (found, lost) = repaired(bytes);
            assert_eq!(
                (found.len(), lost.len()),
                (600, 0),
                "leaf {leaf}, bit {bit}"
            );
        }
    }
}

#[test]
fn a_lost_flag_of_compression_is_found_and_restored() {
    let (bytes, ..) = with_files();
    let device = Arc::new(Memory::from(bytes));
    let volume = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
    let file = volume.resolve("/file 7").unwrap();
    let pack = PackOptions::new(Method::Zlib, Level::default()).unwrap();
    let options = CompressOptions::new(pack);
    compress_one(&volume, String::new(), &file, &options, &Silent).unwrap();
    volume.unmount().unwrap();
    drop(volume);
    assert!(check(device.clone(), &Silent).unwrap().is_empty());

    // The key and the type of the record; its flags are 41 bytes after its beginning.
    let mut bytes = device.to_vec();
    let key = *b"\0\0\0\x02\0\x06\0f\0i\0l\0e\0 \x007\0\x02";
    let at = bytes.windows(key.len()).position(|found| found == key);
    let flags = &mut bytes[at.unwrap() + key.len() - 2 + 41];
    assert_eq!(u32::from(*flags), UF_COMPRESSED);
    *flags = 0;
    let device = Arc::new(Memory::from(bytes));
    let problems = check(device.clone(), &Silent).unwrap();
    let [problem] = problems.as_slice() else {
        panic!("{problems:?}");
    };
    assert!(
        problem.error.to_string().contains("reads as empty"),
        "{problem:?}"
    );

    let repair = Repair::plan(device.clone(), &Silent).unwrap();
    repair.apply(&Silent).unwrap();
    assert!(check(device.clone(), &Silent).unwrap().is_empty());
    let volume = HfsPlus::open(device).unwrap();
    let file = volume.resolve("/file 7").unwrap();
    let contents = volume.open(file.id, Fork::Data).unwrap();
    assert_eq!(
        contents.read_vec(0, 200).unwrap(),
        7_u32.to_be_bytes().repeat(50)
    );
}
