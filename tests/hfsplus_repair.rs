//! Power failures while a volume is repaired: after each it can be repaired, with all its files.

use std::sync::Arc;

use bandsaw::Kind;
use bandsaw::decision::Which;
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt};
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::hfsplus::{HfsPlus, Repair, check};
use bandsaw::fs::source::{SourceKind, SourceNode, Stream, Tree};
use bandsaw::fs::{FileSystem, FileSystemExt, Fork, Timestamp};
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
                Repair::plan_assuming(disk.clone(), Some(Which::Primary), &Silent)
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
