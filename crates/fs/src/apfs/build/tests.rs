//! Containers made by the builder, and the inputs that it rejects.

use super::*;
use crate::apfs::layout::{ContainerRaw, verify};
use crate::source::{SourceKind, SourceNode, Stream};
use bandsaw_core::Kind;
use bandsaw_core::device::{BlockDeviceExt, Memory};
use zerocopy::FromBytes;

fn options(volumes: &[(&str, bool)]) -> Options {
    let volume = |(name, case_sensitive): &(&str, bool)| {
        let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
        NewVolume {
            name: (*name).into(),
            case_sensitive: *case_sensitive,
            uuid,
        }
    };
    Options {
        volumes: volumes.iter().map(volume).collect(),
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        uuid: Uuid::from_u128(7),
    }
}

fn tree(files: &[(&str, usize)]) -> Tree {
    let mut tree = Tree::empty(Timestamp::from_seconds(1_600_000_000));
    for &(name, len) in files {
        let root = tree.nodes[0].clone();
        let kind = SourceKind::File(Stream::Bytes(vec![b'x'; len].into()));
        tree.nodes.push(SourceNode {
            name: name.into(),
            kind,
            ..root
        });
    }
    tree
}

fn plan(files: &[(&str, usize)], case_sensitive: bool) -> Result<Plan> {
    Plan::new(tree(files), options(&[("Test", case_sensitive)]))
}

fn built(plan: &Plan, len: u64) -> (Memory, NewVolumeInfo) {
    let device = Memory::zeros(len.try_into().unwrap());
    let built = plan.build(&device, &Silent).unwrap();
    (device, built)
}

fn superblock(device: &Memory, block: u64) -> ContainerRaw {
    let block = device.read_vec(block * 4096, 4096).unwrap();
    assert!(verify(&block));
    ContainerRaw::read_from_prefix(&block).unwrap().0
}

#[test]
fn the_least_length_is_enough_and_less_is_refused() {
    for files in [
        &[][..],
        &[("a", 1), ("b", 700_000)],
        &[("large", 9_000_000)],
    ] {
        let plan = plan(files, false).unwrap();
        let len = plan.minimum_len().unwrap();
        let (_, made) = built(&plan, len);
        assert_eq!(
            (made.len, made.files, made.folders),
            (len, files.len() as u64, 0)
        );
        if len > MIN_CONTAINER_LEN {
            let error = plan
                .build(&Memory::zeros(len as usize - 4096), &Silent)
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Limit);
        }
        assert!(plan.comfortable_len().unwrap() >= len + (4 << 20));
    }
}

#[test]
fn both_superblocks_agree_and_numbers_are_those_of_macos() {
    let (device, _) = built(&plan(&[], false).unwrap(), 1014 * 4096);
    let first = superblock(&device, 0);
    assert_eq!(first, superblock(&device, 2));
    assert_eq!(
        (
            first.block_count.get(),
            first.next_xid.get(),
            first.next_oid.get()
        ),
        (1014, 2, 0x406)
    );
    assert_eq!(
        (
            first.desc_blocks.get(),
            first.data_blocks.get(),
            first.volume_oids[0].get()
        ),
        (8, 52, 0x402)
    );
}

#[test]
fn the_same_input_gives_the_same_bytes_whatever_was_there() {
    let plan = plan(&[("a", 5000), ("B", 10)], true).unwrap();
    let (device, _) = built(&plan, 2 << 20);
    let used = Memory::from(vec![0xAA; 2 << 20]);
    plan.build(&used, &Silent).unwrap();
    assert_eq!(device.to_vec(), used.to_vec());
}

#[test]
fn names_that_the_volume_takes_for_the_same_are_refused() {
    for (a, b, case_sensitive, same) in [
        ("Name", "nAME", false, true),
        ("Name", "nAME", true, false),
        ("é", "e\u{301}", true, true),
        ("straße", "STRASSE", false, true),
        ("a", "b", false, false),
    ] {
        let refused = plan(&[(a, 0), (b, 0)], case_sensitive)
            .err()
            .map(|error| error.kind());
        assert_eq!(refused, same.then_some(Kind::Conflict), "{a} {b}");
    }
    assert_eq!(
        plan(&[(&"n".repeat(255), 0)], false)
            .err()
            .map(|error| error.kind()),
        None
    );
    assert_eq!(
        plan(&[(&"n".repeat(256), 0)], false).unwrap_err().kind(),
        Kind::Unsupported
    );
}

#[test]
fn volumes_have_names_and_room() {
    assert_eq!(
        Plan::new(tree(&[]), options(&[])).unwrap_err().kind(),
        Kind::Invalid
    );
    assert_eq!(
        Plan::new(tree(&[]), options(&[("", false)]))
            .unwrap_err()
            .kind(),
        Kind::Invalid
    );
    let two = Plan::new(tree(&[("a", 1)]), options(&[("One", false), ("Two", true)])).unwrap();
    assert_eq!(
        two.build(&Memory::zeros(64 << 20), &Silent)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
    assert!(two.minimum_len().unwrap() > 512 << 20);
}

#[test]
fn a_broken_off_run_leaves_no_container() {
    #[derive(Debug)]
    struct Stop;
    impl Progress for Stop {
        fn stage(&self, _name: &str, _total: u64) {}
        fn advance(&self, _n: u64) {}
        fn cancelled(&self) -> bool {
            true
        }
    }
    let device = Memory::zeros(2 << 20);
    let error = plan(&[("a", 5000)], false)
        .unwrap()
        .build(&device, &Stop)
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);
    assert_eq!(device.read_vec(0, 4096).unwrap(), [0; 4096]);
}
