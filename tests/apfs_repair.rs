//! Rollback to an older checkpoint of an APFS container, and power failures during it.

use std::sync::Arc;

use crate::common::changing::bytes;
use bandsaw::Kind;
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::fs::apfs::build::{NewVolume, Options, Plan};
use bandsaw::fs::apfs::{ApfsMut, Container, OlderCheckpoint, WriteOptions};
use bandsaw::fs::source::Tree;
use bandsaw::fs::{
    FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, NewKind, NewNode, Timestamp,
    VolumePlan,
};
use bandsaw::problem::{Problems, Severity};
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Store};
use bandsaw::testing::PowerCut;

const LEN: u64 = 2 << 20;
const BLOCK: u64 = 4096;

fn disk(store: &PowerCut) -> Arc<dyn BlockDevice> {
    store.open("disk", Open::Create).unwrap().unwrap()
}

fn open(device: &Arc<dyn BlockDevice>, checkpoint: Option<u64>) -> Arc<Container> {
    Arc::new(Container::open(device.clone(), checkpoint).unwrap())
}

fn plan(device: &Arc<dyn BlockDevice>, xid: u64) -> bandsaw::Result<Option<OlderCheckpoint>> {
    OlderCheckpoint::plan(
        device,
        xid,
        &|_| unreachable!("it is not encrypted"),
        &Silent,
    )
}

/// Adds a file in a checkpoint of its own; returns its transaction ID.
fn add(device: &Arc<dyn BlockDevice>, name: &str) -> u64 {
    let options = WriteOptions {
        now: Some(Timestamp::from_seconds(1_750_000_000)),
    };
    let fs = ApfsMut::open(&open(device, None), 1, options, &|_| {
        unreachable!("it is not encrypted")
    })
    .unwrap();
    let id = fs
        .create(fs.root(), name, &NewNode::new(NewKind::File))
        .unwrap();
    fs.write_all(id, &[7; 9000]).unwrap();
    fs.unmount().unwrap();
    drop(fs);
    open(device, None).checkpoint()
}

/// Returns the names in a volume, which must be consistent.
fn names(device: &Arc<dyn BlockDevice>) -> Vec<String> {
    let container = open(device, None);
    let mut problems = Problems::default();
    container
        .check("here", &|_| unreachable!(), &mut problems, &Silent)
        .unwrap();
    assert!(problems.worst() <= Some(Severity::Note), "{problems:#?}");
    let fs = container.open_volume(1, None, &|_| unreachable!()).unwrap();
    let mut names: Vec<_> = fs
        .entries(fs.root())
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    names.sort_unstable();
    names
}

/// Corrupts the superblock of the volume written by transaction `xid`.
fn spoil(device: &dyn BlockDevice, xid: u64) {
    let is_it = |block: &[u8]| block[32..36] == *b"APSB" && block[16..24] == xid.to_le_bytes();
    let block = (0..LEN / BLOCK)
        .find(|at| is_it(&device.read_vec(at * BLOCK, 4096).unwrap()))
        .unwrap();
    device.write_at(block * BLOCK + 100, &[0xA5; 8]).unwrap();
    device.flush().unwrap();
}

/// Creates three checkpoints, each with one more file; returns the transaction IDs of the second
/// and third.
fn filled(device: &Arc<dyn BlockDevice>) -> (u64, u64) {
    device.set_len(LEN, AfterDiscard::Zeros).unwrap();
    let created = Timestamp::from_seconds(1_700_000_000);
    let volume = NewVolume {
        name: "Cut".into(),
        case_sensitive: false,
        uuid: uuid::Uuid::nil(),
    };
    let options = Options {
        volumes: vec![volume],
        created,
        latest: None,
        uuid: uuid::Uuid::nil(),
    };
    Plan::new(Tree::empty(created), options)
        .unwrap()
        .build(&**device, &Silent)
        .unwrap();
    add(device, "one");
    (add(device, "two"), add(device, "three"))
}

#[test]
fn a_cut_leaves_the_damaged_state_or_the_older_one() {
    let store = PowerCut::default();
    let (old, newest) = filled(&disk(&store));
    spoil(&*disk(&store), newest);
    store.sync().unwrap();
    let first = store.position();
    let fall_back = plan(&disk(&store), old)
        .unwrap()
        .expect("it is not the newest");
    assert_eq!(
        open(&disk(&store), None).checkpoint(),
        newest,
        "planning changes nothing"
    );
    fall_back.apply().unwrap();
    let (mut before, mut after) = (0, 0);
    for crash in store.crashes_from(first, 1, 1) {
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::from(bytes(&*disk(&crash.store))));
        if open(&device, None).checkpoint() == newest {
            before += 1;
            plan(&device, old)
                .unwrap()
                .expect("it can be done again")
                .apply()
                .unwrap();
        } else {
            after += 1;
        }
        assert_eq!(names(&device), ["one", "two"]);
    }
    assert!(before > 0 && after > 0, "{before}, {after}");
    let device = disk(&store);
    assert!(open(&device, None).checkpoint() > newest);
    add(&device, "four");
    assert_eq!(names(&device), ["four", "one", "two"]);
}

#[test]
fn damaged_containers_are_refused() {
    let device: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(LEN as usize));
    let (old, newest) = filled(&device);
    assert!(plan(&device, newest).unwrap().is_none());
    assert_eq!(plan(&device, 999).unwrap_err().kind(), Kind::NotFound);
    spoil(&*device, old);
    let error = plan(&device, old).unwrap_err();
    assert!(
        error.kind() == Kind::Corrupt && error.to_string().contains("damaged"),
        "{error}"
    );
    assert_eq!(names(&device), ["one", "three", "two"]);
}

/// The newest block of an object type, and its transaction.
fn newest(bytes: &[u8], kind: u32) -> (usize, u64) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let xid = |at: usize| u64::from_le_bytes(bytes[at + 16..at + 24].try_into().unwrap());
    (BLOCK as usize..bytes.len())
        .step_by(BLOCK as usize)
        .filter(|at| word(at + 24) == kind)
        .map(|at| (at, xid(at)))
        .max_by_key(|(_, xid)| *xid)
        .unwrap()
}

/// A damaged newest state is told with the time of the state that is read instead; a torn
/// superblock is the normal end of a power failure.
#[test]
fn an_older_state_is_reported() {
    const SUPERBLOCK: u32 = 0x8000_0001;
    const REAPER: u32 = 0x8000_0011;
    let store = PowerCut::default();
    let device = disk(&store);
    filled(&device);
    let before = open(&device, None).checkpoint();
    let block_0 = device.read_vec(0, BLOCK as usize).unwrap();
    let after = add(&device, "after");
    assert!(open(&device, None).older_state().is_none());
    let whole = device.read_vec(0, LEN as usize).unwrap();
    let damaged = |kind, restore: bool| {
        let mut bytes = whole.clone();
        let (at, xid) = newest(&bytes, kind);
        assert_eq!(xid, after);
        bytes[at + 100] ^= 1;
        if restore {
            bytes[..BLOCK as usize].copy_from_slice(&block_0);
        }
        let device: Arc<dyn BlockDevice> = Arc::new(Memory::from(bytes));
        device
    };
    for kind in [REAPER, SUPERBLOCK] {
        let device = damaged(kind, false);
        let container = open(&device, None);
        assert!(container.checkpoint() < after && container.checkpoint() >= before);
        let report = container.older_state().unwrap();
        assert!(report.contains("2025-06-15T15:06:40Z"), "{report}");
        assert!(report.contains(&format!("transaction {after}")), "{report}");
        // A state that was asked for is no surprise.
        let chosen = open(&device, Some(container.checkpoint()));
        assert!(chosen.older_state().is_none());
    }
    let torn = damaged(SUPERBLOCK, true);
    assert!(open(&torn, None).checkpoint() < after);
    assert!(open(&torn, None).older_state().is_none());
    let mut problems = Problems::default();
    let key = |_: &_| unreachable!("it is not encrypted");
    open(&torn, None)
        .check("", &key, &mut problems, &Silent)
        .unwrap();
    assert_eq!(problems.count(Severity::Damage), 0, "{problems:?}");
}
