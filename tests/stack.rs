//! Stacks: conformance, power failures, visibility of the layers, and layers below the top stay
//! unchanged.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::small_asif::{SMALL, small_image};
use bandsaw::container::asif::{Asif, AsifOptions, LayerKind};
use bandsaw::container::overlay::Overlay;
use bandsaw::container::stack::{Role, Stack};
use bandsaw::device::{
    Access, AfterDiscard, BlockDevice, BlockDeviceExt, Extent, ExtentKind, FileRange, Info, Memory,
};
use bandsaw::store::{LocalFile, MemoryStore, Open, Store};
use bandsaw::testing::model::{Model, operations};
use bandsaw::testing::power_cut::Survival;
use bandsaw::testing::{Random, conformance, mutate};
use bandsaw::{Kind, Result};
use proptest::prelude::*;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
use ExtentKind::{Data, Hole, Zero};

/// Returns a read-only raw disk of noise, with zeros in some ranges.
fn base(len: u64) -> Arc<dyn BlockDevice> {
    let mut bytes = Random::new(len).bytes(len as usize);
    bytes
        .chunks_mut(10_000)
        .skip(2)
        .step_by(5)
        .for_each(|chunk| chunk.fill(0));
    Arc::new(Memory::read_only(bytes))
}

fn overlay(len: u64, block: u32) -> Asif {
    let options = AsifOptions {
        len,
        block,
        kind: LayerKind::Overlay(Uuid::nil()),
    };
    Asif::create(Arc::new(Memory::zeros(0)), &options).unwrap()
}

fn cache(len: u64, block: u32) -> Asif {
    let options = AsifOptions {
        len,
        block,
        kind: LayerKind::Cache(Uuid::nil()),
    };
    Asif::create(Arc::new(Memory::zeros(0)), &options).unwrap()
}

fn over(base: Arc<dyn BlockDevice>, layers: impl IntoIterator<Item = Asif>) -> Arc<Stack> {
    let layers = layers.into_iter().map(|layer| -> (Role, Arc<dyn Overlay>) {
        (
            if layer.layer().is_cache {
                Role::Cache
            } else {
                Role::Overlay
            },
            Arc::new(layer),
        )
    });
    Arc::new(Stack::new(base, layers.collect(), Access::ReadWrite).unwrap())
}

/// Creates a stack of one overlay with small chunks, in a store.
fn small_stack(base: &Arc<dyn BlockDevice>, overlay: Asif) -> Arc<dyn BlockDevice> {
    over(base.clone(), [overlay.overlaid()])
}

fn reopened(store: &dyn Store) -> Result<Asif> {
    Asif::open(store.open("disk.asif", Open::Write)?.expect("the overlay"))
}

#[test]
fn a_stack_is_a_device() {
    // As long as the base, longer than it by parts of a chunk, shorter.
    for base_len in [20 * SMALL + 512, 19 * SMALL - 3 * 512, 40 * SMALL] {
        let (base, store) = (base(base_len), RefCell::new(MemoryStore::default()));
        let make = || {
            let new = MemoryStore::default();
            let image = small_image(&new, 20 * SMALL + 512).unwrap();
            *store.borrow_mut() = new;
            small_stack(&base, image)
        };
        let reopen = || small_stack(&base, reopened(&*store.borrow()).unwrap());
        conformance::Devices::new(make)
            .unit(SMALL)
            .reopen(reopen)
            .check();
    }
}

#[test]
fn larger_blocks_than_below_are_a_device() {
    let below = || {
        let middle = overlay(3 * MIB + 4096, 512);
        for at in (0..3 * MIB).step_by(7 * 512) {
            middle.write_at(at, &[0x55; 512]).unwrap();
        }
        middle
    };
    let make = || {
        over(
            base(3 * MIB - 512),
            [below(), overlay(3 * MIB + 8192, 4096)],
        ) as Arc<dyn BlockDevice>
    };
    conformance::Devices::new(make).unit(MIB).check();
}

#[test]
fn a_stack_with_a_cache_is_a_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("top.asif");
    let base = base(2 * MIB);
    let make = || {
        let _none = std::fs::remove_file(&path);
        let file = Arc::new(LocalFile::open(&path, Open::CreateNew).unwrap().unwrap());
        let options = AsifOptions {
            len: 2 * MIB,
            block: 512,
            kind: LayerKind::Overlay(Uuid::nil()),
        };
        over(
            base.clone(),
            [cache(2 * MIB, 4096), Asif::create(file, &options).unwrap()],
        ) as Arc<dyn BlockDevice>
    };
    let reopen = || {
        let file = Arc::new(LocalFile::open(&path, Open::Write).unwrap().unwrap());
        over(
            base.clone(),
            [cache(2 * MIB, 512), Asif::open(file).unwrap().overlaid()],
        ) as Arc<dyn BlockDevice>
    };
    conformance::Devices::new(make)
        .unit(MIB)
        .reopen(reopen)
        .check();
}

/// Returns layers with little data each.
fn many(count: u64) -> impl Iterator<Item = Asif> {
    (0..count).map(|number| {
        let layer = small_image(&MemoryStore::default(), 20 * SMALL)
            .unwrap()
            .overlaid();
        layer
            .write_at(number * 5120, &vec![number as u8 + 1; 5632])
            .unwrap();
        layer
    })
}

#[test]
fn layers_over_layers_are_a_device() {
    let below = base(20 * SMALL);
    let make = || over(below.clone(), many(5)) as Arc<dyn BlockDevice>;
    conformance::Devices::new(make).unit(SMALL).check();
}

#[test]
fn sixty_four_layers_are_one_disk() {
    let below = base(20 * SMALL);
    let stack = over(below.clone(), many(64));
    let mut expected = below.read_vec(0, 20 * SMALL as usize).unwrap();
    (0..64).for_each(|number| expected[number * 5120..number * 5120 + 5632].fill(number as u8 + 1));
    assert!(stack.read_vec(0, expected.len()).unwrap() == expected);
    Model::new(stack).run(&operations(1, 40, 5000));
}

#[test]
fn a_stack_that_is_not_to_be_changed_is_not() {
    let layers = |access| {
        let (below, top) = (overlay(MIB, 512), overlay(MIB, 512));
        top.write_at(4096, &[1; 512]).unwrap();
        let layers: Vec<(Role, Arc<dyn Overlay>)> = vec![
            (Role::Overlay, Arc::new(below)),
            (Role::Overlay, Arc::new(top)),
        ];
        Arc::new(Stack::new(base(MIB), layers, access).unwrap())
    };
    conformance::read_only(layers(Access::ReadOnly));
    // A cache on top is read-only, too.
    conformance::read_only(over(base(MIB), [cache(MIB, 512)]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_work_beside_a_vector(seed: u64, count in 1..200_usize, base_sectors in 1..400_u64) {
        let (base, store) = (base(base_sectors * 512), MemoryStore::default());
        let device = small_stack(&base, small_image(&store, 150 << 10).unwrap());
        let reopen = || small_stack(&base, reopened(&store).unwrap());
        Model::new(device).reopen(reopen).run(&operations(seed, count, 20_000));
    }

    #[test]
    fn random_work_over_smaller_blocks(seed: u64, count in 1..100_usize, base_sectors in 1..4000_u64) {
        let middle = overlay(MIB + 512, 512);
        middle.write_at(5 * 512, &vec![9; 200 * 512]).unwrap();
        middle.discard(300 * 512..500 * 512, AfterDiscard::Zeros).unwrap();
        let device = over(base(base_sectors * 512), [middle, cache(MIB + 512, 512), overlay(2 * MIB, 4096)]);
        Model::new(device).run(&operations(seed, count, 50_000));
    }
}

#[test]
fn power_cuts_are_survived() {
    for (seed, base_len) in [
        (1, 60 << 10),
        (2, 60 << 10),
        (3, 100 << 10),
        (4, 30 << 10),
        (5, 200 << 10),
    ] {
        let base = base(base_len);
        let survival = Survival::new(
            |store| small_image(store, 60 << 10).map(|image| small_stack(&base, image)),
            |store| reopened(store).map(|image| small_stack(&base, image)),
        );
        let crashes = survival.steps(60).resize_by(40 << 10).check(seed);
        assert!(crashes > 300, "only {crashes} crashes");
    }
}

/// Counts the bytes read from a device.
#[derive(Debug)]
struct Counted(Arc<dyn BlockDevice>, AtomicU64);

impl Counted {
    fn new(device: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self(device, AtomicU64::new(0)))
    }

    /// Returns the number of bytes since the last call.
    fn bytes(&self) -> u64 {
        self.1.swap(0, Ordering::Relaxed)
    }
}

impl BlockDevice for Counted {
    fn info(&self) -> Info {
        self.0.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> Result<()> {
        panic!("a base is never written");
    }

    fn discard(&self, _range: Range<u64>, _leave: AfterDiscard) -> Result<()> {
        panic!("a base is never written");
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.0.extent_at(range)
    }

    fn flush(&self) -> Result<()> {
        panic!("a base is never flushed");
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        panic!("a base is never cut");
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.0.file_range(range)
    }
}

#[test]
fn a_write_copies_the_rest_of_its_first_and_last_block_and_no_more() {
    for block in [512, 4096] {
        let below = Counted::new(base(8 * MIB));
        let stack = over(below.clone(), [overlay(8 * MIB, block)]);
        stack.write_at(MIB, &vec![1; 2 * MIB as usize]).unwrap();
        assert_eq!(below.bytes(), 0, "whole blocks");
        stack
            .write_at(4 * MIB - 100, &vec![2; MIB as usize])
            .unwrap();
        assert_eq!(below.bytes(), 2 * u64::from(block));
        stack.write_at(4 * MIB - 200, &[3; 50]).unwrap();
        stack.write_at(4 * MIB - 100, &[4; 300]).unwrap();
        assert_eq!(below.bytes(), 0, "blocks that it has");
        stack
            .discard(6 * MIB..7 * MIB, AfterDiscard::Zeros)
            .unwrap();
        stack.discard(6 * MIB..8 * MIB, AfterDiscard::Any).unwrap();
        stack.flush().unwrap();
        assert_eq!(below.bytes(), 0, "zeros are stated");
    }
}

#[test]
fn zeros_that_show_already_are_not_stated() {
    let below = overlay(1000 * MIB, 512);
    below.write_at(500 * MIB + 512, &[1; 1024]).unwrap();
    let top = Arc::new(overlay(1000 * MIB, 512));
    let stack = Stack::new(
        Arc::new(below),
        vec![(Role::Overlay, top.clone())],
        Access::ReadWrite,
    )
    .unwrap();
    stack
        .discard(3..1000 * MIB - 3, AfterDiscard::Zeros)
        .unwrap();
    stack
        .discard(900 * MIB..900 * MIB + 5, AfterDiscard::Zeros)
        .unwrap();
    stack.flush().unwrap();
    let stated: Vec<_> = top
        .extents(0..1000 * MIB)
        .map(Result::unwrap)
        .filter(|(_, kind)| *kind != Hole)
        .collect();
    assert_eq!(
        stated,
        [(500 * MIB..501 * MIB, Zero)],
        "a whole chunk, which takes no room"
    );
    let usage = top.usage();
    assert_eq!(
        (usage.data, usage.bitmaps),
        (1, 1),
        "nothing but the metadata"
    );
    // A partial block next to data of the base keeps that data.
    stack
        .discard(500 * MIB..501 * MIB, AfterDiscard::Any)
        .unwrap();
    let (other, again) = (overlay(1000 * MIB, 512), Arc::new(overlay(1000 * MIB, 512)));
    other.write_at(0, &[7; 512]).unwrap();
    let stack = Stack::new(
        Arc::new(other),
        vec![(Role::Overlay, again)],
        Access::ReadWrite,
    )
    .unwrap();
    stack.discard(100..200, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        stack.read_vec(0, 512).unwrap(),
        [vec![7; 100], vec![0; 100], vec![7; 312]].concat()
    );
}

#[test]
fn holes_fall_through_and_zeros_hide() {
    let lower = overlay(4 * MIB, 512);
    lower.write_at(MIB, &[1; 1024]).unwrap();
    lower
        .discard(2 * MIB..3 * MIB, AfterDiscard::Zeros)
        .unwrap();
    let upper = overlay(5 * MIB, 512);
    upper
        .discard(MIB + 512..MIB + 1024, AfterDiscard::Zeros)
        .unwrap();
    upper.write_at(2 * MIB + 512, &[2; 512]).unwrap();
    let bottom = Arc::new(Memory::read_only(vec![9; 3 * MIB as usize + 512]));
    let stack = over(bottom, [lower, upper]);
    let at = |offset| stack.read_array::<1>(offset).unwrap()[0];
    assert_eq!([0, MIB, MIB + 512, MIB + 1024].map(at), [9, 1, 0, 9]);
    assert_eq!([2 * MIB, 2 * MIB + 512, 2 * MIB + 1024].map(at), [0, 2, 0]);
    assert_eq!(
        [3 * MIB, 3 * MIB + 511, 3 * MIB + 512, 4 * MIB].map(at),
        [9, 9, 0, 0]
    );
    let kind = |offset| stack.extent_at(offset..offset + 512).unwrap().kind;
    assert_eq!(
        [0, MIB + 512, 2 * MIB, 3 * MIB + 512, 4 * MIB].map(kind),
        [Data, Zero, Zero, Hole, Hole]
    );
}

#[test]
fn a_layer_that_was_cut_lets_nothing_through_past_its_end() {
    let stack = over(
        base(4 * MIB),
        [overlay(2 * MIB, 512), overlay(4 * MIB, 512)],
    );
    assert_eq!(
        stack.extent_at(2 * MIB..4 * MIB).unwrap(),
        Extent {
            kind: Hole,
            len: 2 * MIB
        }
    );
    assert_eq!(
        stack.read_vec(2 * MIB, MIB as usize).unwrap(),
        vec![0; MIB as usize]
    );
}

#[test]
fn growth_shows_nothing_from_below() {
    for block in [512, 4096] {
        let below = base(5 * MIB);
        let (file, nil) = (Arc::new(Memory::zeros(0)), Uuid::nil());
        let options = AsifOptions {
            len: MIB + 8192,
            block,
            kind: LayerKind::Overlay(nil),
        };
        let stack = over(
            below.clone(),
            [Asif::create(file.clone(), &options).unwrap()],
        );
        stack.set_len(100 * MIB, AfterDiscard::Zeros).unwrap();
        stack.set_len(2 * MIB + 4096, AfterDiscard::Zeros).unwrap();
        stack.set_len(1000 * MIB, AfterDiscard::Any).unwrap();
        drop(stack);
        // Durable immediately, as the length is.
        let again = Asif::open(Arc::new(Memory::read_only(file.to_vec())))
            .unwrap()
            .overlaid();
        let stack = over(below.clone(), [again]);
        let expected = below.read_vec(0, MIB as usize + 8192).unwrap();
        assert!(stack.read_vec(0, expected.len()).unwrap() == expected);
        let rest = stack.read_vec(MIB + 8192, 6 * MIB as usize).unwrap();
        assert!(rest.iter().all(|byte| *byte == 0));
        assert_eq!(
            stack.extent_at(5 * MIB..1000 * MIB).unwrap().kind,
            Hole,
            "below there is nothing to hide"
        );
    }
}

#[test]
fn a_cache_is_filled_by_reading() {
    let below = Counted::new(base(4 * MIB));
    let kept = Arc::new(cache(4 * MIB, 4096));
    let layers = || -> Vec<(Role, Arc<dyn Overlay>)> {
        vec![
            (Role::Cache, kept.clone()),
            (Role::Overlay, Arc::new(overlay(4 * MIB, 512))),
        ]
    };
    let expected = below.read_vec(0, 4 * MIB as usize).unwrap();
    let read = |stack: &Stack, range: Range<u64>| {
        let found = stack
            .read_vec(range.start, (range.end - range.start) as usize)
            .unwrap();
        assert!(found == expected[range.start as usize..range.end as usize]);
        below.bytes()
    };
    below.bytes();
    let stack = Stack::new(below.clone(), layers(), Access::ReadOnly).unwrap();
    assert_eq!(
        [read(&stack, 100..200), read(&stack, 100..200)],
        [100, 100],
        "read-only changes nothing"
    );
    drop(stack);
    let stack = Stack::new(below.clone(), layers(), Access::ReadWrite).unwrap();
    assert_eq!(
        [
            read(&stack, 100..200),
            read(&stack, 0..4096),
            read(&stack, 0..4097)
        ],
        [4096, 0, 4096]
    );
    assert_eq!(
        [read(&stack, MIB..2 * MIB + 1), read(&stack, 0..3 * MIB)],
        [MIB + 4096, 2 * MIB - 3 * 4096]
    );
    assert!(stack.file_range(0..MIB).unwrap().is_none());
    drop(stack);
    let stack = Stack::new(below.clone(), layers(), Access::ReadOnly).unwrap();
    assert_eq!(read(&stack, 0..3 * MIB), 0);
    assert!(stack.cache_problem().is_none());
    assert_eq!(kept.uuid(), Uuid::nil(), "a cache keeps its UUID");
}

#[test]
fn a_cache_that_fails_does_not_keep_from_reading() {
    let blank = cache(MIB, 512);
    let file = Arc::new(Memory::zeros(0));
    drop(
        Asif::create(
            file.clone(),
            &AsifOptions {
                len: MIB,
                block: 512,
                kind: LayerKind::Cache(Uuid::nil()),
            },
        )
        .unwrap(),
    );
    // Its file cannot be written.
    let broken = Asif::open(Arc::new(Memory::read_only(file.to_vec()))).unwrap();
    drop(blank);
    let below = base(MIB);
    let stack = over(below.clone(), [broken, overlay(MIB, 512)]);
    assert!(stack.read_vec(0, MIB as usize).unwrap() == below.read_vec(0, MIB as usize).unwrap());
    assert_eq!(stack.cache_problem().unwrap().kind(), Kind::ReadOnly);
    stack.write_at(0, &[1]).unwrap();
    stack.flush().unwrap();
}

#[test]
fn invalid_stacks_are_refused() {
    let refused = |layers: Vec<Asif>| {
        let layers = layers.into_iter().map(|layer| -> (Role, Arc<dyn Overlay>) {
            (
                if layer.layer().is_cache {
                    Role::Cache
                } else {
                    Role::Overlay
                },
                Arc::new(layer),
            )
        });
        Stack::new(base(MIB), layers.collect(), Access::ReadOnly).unwrap_err()
    };
    assert_eq!(refused(vec![]).kind(), Kind::Invalid);
    assert!(
        refused(vec![cache(MIB, 512), cache(MIB, 512)])
            .to_string()
            .contains("2 caches")
    );
    assert!(
        refused(vec![cache(2 * MIB, 512)])
            .to_string()
            .contains("cache of 2097152 bytes over an image of 1048576")
    );
    let small = (0..257).map(|_| {
        small_image(&MemoryStore::default(), SMALL)
            .unwrap()
            .overlaid()
    });
    assert_eq!(refused(small.collect()).kind(), Kind::Invalid);
}

/// Corrupted files of a layer: each is opened or refused, read or refused, written or refused, and
/// never taken for another format.
#[test]
fn broken_layers_are_read_or_refused() {
    let store = MemoryStore::default();
    let good = small_image(&store, 20 * SMALL).unwrap().overlaid();
    good.write_at(3000, &Random::new(1).bytes(30_000)).unwrap();
    good.discard(2 * SMALL..5 * SMALL + 1024, AfterDiscard::Zeros)
        .unwrap();
    good.flush().unwrap();
    let file = store.open("disk.asif", Open::Read).unwrap().unwrap();
    let good = file.read_vec(0, file.info().len as usize).unwrap();
    let (mut refused, mut whole) = (0, 0);
    for seed in 0..200 {
        let broken = mutate::mutated(&good, &mut Random::new(seed));
        let Ok(layer) = Asif::open(Arc::new(Memory::from(broken))) else {
            refused += 1;
            continue;
        };
        let layer: Arc<dyn Overlay> = Arc::new(layer.overlaid());
        let Ok(stack) = Stack::new(
            base(20 * SMALL),
            vec![(Role::Overlay, layer)],
            Access::ReadWrite,
        ) else {
            continue;
        };
        let len = stack.info().len;
        let read = stack.extents(0..len).take(1000).all(|extent| {
            let piece = extent.and_then(|(at, _)| {
                stack.read_vec(at.start, (at.end - at.start).min(64 << 10) as usize)
            });
            piece.is_ok()
        });
        let changed = stack
            .write_at(len / 2, &[1])
            .and_then(|()| stack.discard(1..len.min(MIB), AfterDiscard::Zeros));
        let changed = changed
            .and_then(|()| stack.set_len(len.min(MIB) + 5120, AfterDiscard::Zeros))
            .and_then(|()| stack.flush());
        whole += u64::from(read && changed.is_ok());
    }
    assert!(
        refused >= 20 && whole >= 20,
        "{refused} were refused, {whole} were whole"
    );
}

#[test]
fn a_layer_gets_its_uuid_when_it_is_written_to() {
    let file = Arc::new(Memory::zeros(0));
    let options = AsifOptions {
        len: MIB,
        block: 512,
        kind: LayerKind::Overlay(Uuid::nil()),
    };
    let uuid = Asif::create(file.clone(), &options).unwrap().uuid();
    let layer = Arc::new(Asif::open(file.clone()).unwrap().overlaid());
    let stack = Stack::new(
        base(MIB),
        vec![(Role::Overlay, layer.clone())],
        Access::ReadWrite,
    )
    .unwrap();
    stack.read_vec(0, 4096).unwrap();
    stack.flush().unwrap();
    assert_eq!(layer.uuid(), uuid);
    stack.write_at(100, &[1]).unwrap();
    assert_ne!(layer.uuid(), uuid);
    assert_eq!(
        Asif::open(Arc::new(Memory::read_only(file.to_vec())))
            .unwrap()
            .uuid(),
        layer.uuid(),
        "at once"
    );
}

#[test]
fn a_session_begins_under_a_chosen_uuid_and_over_a_new_parent() {
    let file = Arc::new(Memory::zeros(0));
    let options = AsifOptions {
        len: MIB,
        block: 512,
        kind: LayerKind::Overlay(Uuid::from_u128(5)),
    };
    drop(Asif::create(file.clone(), &options).unwrap());
    let layer = Asif::open(file.clone()).unwrap();
    layer.begin_as(Uuid::from_u128(8)).unwrap();
    layer.write_at(0, &[1]).unwrap();
    layer.set_parent(Uuid::from_u128(6)).unwrap();
    layer.flush().unwrap();
    let again = Asif::open(Arc::new(Memory::read_only(file.to_vec()))).unwrap();
    assert_eq!(
        (again.uuid(), again.layer().parent),
        (Uuid::from_u128(8), Uuid::from_u128(6))
    );
    assert_eq!(
        cache(MIB, 512).set_parent(Uuid::nil()).unwrap_err().kind(),
        Kind::Invalid
    );
}
