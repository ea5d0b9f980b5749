//! Interrupted commits.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::Kind;
use crate::container::Format;
use crate::container::asif::{Asif, AsifOptions, LayerKind};
use crate::container::stack::{ChainLink, Identity, Stack, check_chain};
use crate::device::Memory;
use crate::open::NewMode;
use crate::open::overlays::LowerDisk;
use crate::progress::Silent;
use crate::store::{Open, Store};
use crate::testing::{PowerCut, Random};

const MIB: u64 = 1 << 20;

fn file(store: &dyn Store, name: &str, mode: Open) -> Arc<dyn BlockDevice> {
    store.open(name, mode).unwrap().unwrap()
}

/// Creates a base, and on top of it a layer of another length, in a store.
fn make(store: &dyn Store, len: u64) {
    let options = AsifOptions {
        len: 2 * MIB,
        block: 512,
        kind: LayerKind::Disk,
    };
    let base = Asif::create(file(store, "base", Open::CreateNew), &options).unwrap();
    base.write_at(0, &Random::new(1).bytes(MIB as usize + 5000))
        .unwrap();
    base.flush().unwrap();
    let options = AsifOptions {
        len,
        block: 512,
        kind: LayerKind::Overlay(base.uuid()),
    };
    let layer = Asif::create(file(store, "layer", Open::CreateNew), &options).unwrap();
    layer.write_at(4096, &Random::new(2).bytes(8192)).unwrap();
    layer.discard(20_480..40_960, AfterDiscard::Zeros).unwrap();
    layer.write_at(len - 512, &[7; 512]).unwrap();
    layer.flush().unwrap();
    store.sync().unwrap();
}

fn images(store: &dyn Store) -> (Arc<Asif>, LayerFile) {
    let base = Arc::new(Asif::open(file(store, "base", Open::Write)).unwrap());
    let image = Arc::new(Asif::open(file(store, "layer", Open::Write)).unwrap());
    (
        base,
        LayerFile {
            path: "layer".into(),
            role: Role::Overlay,
            image,
        },
    )
}

fn job<'a>(base: &Arc<Asif>, layer: &LayerFile, progress: &'a dyn Progress) -> CommitJob<'a> {
    let identity = Identity {
        uuid: base.uuid(),
        ..Identity::default()
    };
    let links = vec![ChainLink {
        name: "base".to_owned(),
        identity,
    }];
    let below = LowerDisk {
        disk: base.clone(),
        links,
        layers: Vec::new(),
        bundle: None,
        top: Some(base.clone()),
        note: None,
        mode: NewMode::default(),
    };
    CommitJob {
        below,
        layer: layer.clone(),
        progress,
        parent: Uuid::nil(),
        committed: Committed::default(),
    }
}

/// Returns the disk of both, after the check that they fit.
fn shown(base: &Arc<Asif>, layer: &LayerFile) -> Vec<u8> {
    let identity = Identity {
        uuid: base.uuid(),
        ..Identity::default()
    };
    check_chain(&[
        ChainLink {
            name: "base".to_owned(),
            identity,
        },
        layer.link(),
    ])
    .unwrap();
    let stack = Stack::new(
        base.clone(),
        vec![(Role::Overlay, layer.image.clone())],
        Access::ReadOnly,
    )
    .unwrap();
    stack.read_vec(0, stack.info().len as usize).unwrap()
}

#[test]
fn power_cuts_are_survived() {
    for (seed, len) in [(1, 3 * MIB), (2, MIB + 512)] {
        let cut = PowerCut::default();
        make(&cut, len);
        let begin = cut.position();
        let (base, layer) = images(&cut);
        let expected = shown(&base, &layer);
        job(&base, &layer, &Silent).run().unwrap();
        assert!(base.read_vec(0, base.info().len as usize).unwrap() == expected);
        let mut crashes = 0;
        for crash in cut.crashes_from(begin, seed, 1) {
            let (base, layer) = images(&crash.store);
            assert!(
                shown(&base, &layer) == expected,
                "after event {} ({:?})",
                crash.position,
                crash.keep
            );
            job(&base, &layer, &Silent).run().unwrap();
            assert!(
                base.read_vec(0, base.info().len as usize).unwrap() == expected,
                "begun again"
            );
            crashes += 1;
        }
        assert!(crashes > 50, "only {crashes} crashes");
    }
}

/// Cancels after a number of pieces.
struct Stopping(AtomicU64);

impl Progress for Stopping {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _n: u64) {
        let _left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            });
    }

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

/// Returns a base of random bytes with a layer of other random bytes in memory.
fn large() -> (Memory, Memory) {
    let (base_file, layer_file) = (Arc::new(Memory::zeros(0)), Arc::new(Memory::zeros(0)));
    let options = AsifOptions {
        len: 12 * MIB,
        block: 512,
        kind: LayerKind::Disk,
    };
    let base = Asif::create(base_file.clone(), &options).unwrap();
    let options = AsifOptions {
        kind: LayerKind::Overlay(base.uuid()),
        ..options
    };
    let layer = Asif::create(layer_file.clone(), &options).unwrap();
    layer
        .write_at(0, &Random::new(3).bytes(12 * MIB as usize))
        .unwrap();
    layer.flush().unwrap();
    drop((base, layer));
    (
        Memory::from(base_file.to_vec()),
        Memory::from(layer_file.to_vec()),
    )
}

#[test]
fn a_stopped_commit_continues_where_it_was() {
    let (base_file, layer_file) = large();
    let (base_file, layer_file): (Arc<dyn BlockDevice>, Arc<dyn BlockDevice>) =
        (Arc::new(base_file), Arc::new(layer_file));
    let open = || {
        let image = Arc::new(Asif::open(layer_file.clone()).unwrap());
        (
            Arc::new(Asif::open(base_file.clone()).unwrap()),
            LayerFile {
                path: "layer".into(),
                role: Role::Overlay,
                image,
            },
        )
    };
    let (base, layer) = open();
    let expected = shown(&base, &layer);
    // The first call is that of `advance(from)`.
    let stopping = Stopping(AtomicU64::new(6));
    let error = job(&base, &layer, &stopping).run().unwrap_err();
    assert_eq!(error.kind(), Kind::Cancelled);
    let (base, layer) = open();
    assert!(shown(&base, &layer) == expected);
    let mut again = job(&base, &layer, &Silent);
    again.run().unwrap();
    assert_eq!(
        (again.committed.resumed_at, again.committed.written),
        (5 * MIB, 7 * MIB)
    );
    assert!(base.read_vec(0, expected.len()).unwrap() == expected);

    // A layer that was changed since is committed from the beginning.
    let (base, layer) = open();
    job(&base, &layer, &Stopping(AtomicU64::new(6)))
        .run()
        .unwrap_err();
    let (base, layer) = open();
    layer.image.write_at(0, &[9; 512]).unwrap();
    layer.image.flush().unwrap();
    drop(layer);
    let (_, layer) = open();
    let mut again = job(&base, &layer, &Silent);
    again.run().unwrap();
    assert_eq!(again.committed.resumed_at, 0);
    assert_eq!(base.read_array::<1>(0).unwrap(), [9]);
}

#[test]
fn a_stopped_commit_into_a_raw_image_continues() {
    let folder = tempfile::tempdir().unwrap();
    let [base, layer] = ["base.img", "layer.asif"].map(|name| folder.path().join(name));
    std::fs::write(&base, Random::new(1).bytes(MIB as usize)).unwrap();
    let options = OpenOptions {
        image_format: Some(Format::Udrw),
        ..OpenOptions::default()
    };
    let wanted = LayerOptions {
        role: Role::Overlay,
        len: Some(3 * MIB),
        block: None,
        overwrite: false,
    };
    overlays::create_layer(&layer, &base, &options, &wanted).unwrap();
    std::fs::set_permissions(&layer, std::fs::Permissions::from_mode(0o600)).unwrap();
    let layers = [layer.clone()];
    let writable = OpenOptions {
        access: Access::ReadWrite,
        shadows: &layers,
        ..options
    };
    let disk = crate::open::open(&base, &writable).unwrap();
    disk.disk()
        .write_at(100, &vec![7; 2 * MIB as usize])
        .unwrap();
    disk.disk().flush().unwrap();
    drop(disk);
    let read = |options: &OpenOptions<'_>| {
        let image = crate::open::open(&base, options).unwrap();
        assert_eq!(image.warnings(), [""; 0]);
        image.disk().read_vec(0, 3 * MIB as usize).unwrap()
    };
    let both = OpenOptions {
        shadows: &layers,
        ..options
    };
    let expected = read(&both);
    assert_eq!(
        commit(&base, &layers, &options, &Stopping(AtomicU64::new(2)))
            .unwrap_err()
            .kind(),
        Kind::Cancelled
    );
    assert_eq!(
        base.metadata().unwrap().len(),
        3 * MIB,
        "it was stopped too early to tell"
    );
    assert!(read(&both) == expected);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("layer.asif", &link).unwrap();
    commit(&base, &[link], &options, &Silent).unwrap();
    assert!(read(&options) == expected && read(&both) == expected);
    let empty = overlays::open_layer(&layer, Access::ReadOnly)
        .unwrap()
        .image;
    assert_eq!(empty.extent_at(0..3 * MIB).unwrap().kind, ExtentKind::Hole);
    assert_eq!(
        layer.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
}
