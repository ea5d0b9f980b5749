//! Power failures during space reclamation: complete compactions of every container that relocates
//! or removes data.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandsaw::container::asif::{self, Asif};
use bandsaw::container::sparsebundle::{self, Bundle};
use bandsaw::container::sparseimage::{self, SparseImage};
use bandsaw::device::{Access, AfterDiscard, BlockDevice, BlockDeviceExt, Slice};
use bandsaw::fs::hfsplus::build::{Options, Plan};
use bandsaw::fs::hfsplus::{self, HfsPlus, HfsPlusMut, WriteOptions};
use bandsaw::fs::source::Tree;
use bandsaw::fs::{
    FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, Fork, FreeMapExt, NewKind, NewNode,
    Timestamp,
};
use bandsaw::problem::Severity;
use bandsaw::progress::Silent;
use bandsaw::store::{Open, Store};
use bandsaw::testing::{PowerCut, Random};

const MIB: u64 = 1 << 20;
const DISK: u64 = 8 * MIB;

type Files = BTreeMap<String, Vec<u8>>;

fn contents(disk: Arc<dyn BlockDevice>) -> Files {
    let fs = HfsPlus::open(disk).unwrap();
    let read = |entry: bandsaw::fs::Entry| {
        let fork = fs.open(entry.attributes.id, Fork::Data).unwrap();
        (
            entry.name,
            fork.read_vec(0, fork.info().len as usize).unwrap(),
        )
    };
    fs.entries(fs.root())
        .unwrap()
        .into_iter()
        .map(read)
        .collect()
}

/// Creates a volume of which a part was freed, by a system that does not discard.
fn use_up(disk: Arc<dyn BlockDevice>) -> Files {
    let created = Timestamp::from_seconds(1_700_000_000);
    let name = "Trim".into();
    let options = Options {
        name,
        case_sensitive: false,
        journaled: false,
        block_size: Some(4096),
        created,
        latest: None,
        opens: false,
        identifier: 3,
    };
    Plan::new(Tree::empty(created), options)
        .unwrap()
        .build(&*disk, &Silent)
        .unwrap();
    let fs = HfsPlusMut::open(disk.clone(), WriteOptions::default()).unwrap();
    for number in 0..10_u64 {
        let bytes = Random::new(number).bytes(500_000);
        let file = fs
            .create(
                fs.root(),
                &format!("{number}"),
                &NewNode::new(NewKind::File),
            )
            .unwrap();
        fs.write_all(file, &bytes).unwrap();
    }
    (0..10)
        .filter(|number| number % 9 != 0)
        .for_each(|number| fs.remove(fs.root(), &format!("{number}")).unwrap());
    fs.unmount().unwrap();
    drop(fs);
    disk.flush().unwrap();
    for run in free(&disk) {
        disk.write_at(
            run.start,
            &Random::new(run.start).bytes((run.end - run.start) as usize),
        )
        .unwrap();
    }
    disk.flush().unwrap();
    contents(disk)
}

fn free(disk: &Arc<dyn BlockDevice>) -> Vec<std::ops::Range<u64>> {
    let map = HfsPlus::open(disk.clone())
        .unwrap()
        .trusted_free_map()
        .unwrap();
    map.free_runs(0..u64::MAX).map(Result::unwrap).collect()
}

/// Checks that after every crash from event `first` on, a consistent volume has these files.
fn assert_survived(
    cut: &PowerCut,
    first: usize,
    files: &Files,
    open: impl Fn(PowerCut) -> Arc<dyn BlockDevice>,
) {
    let mut crashes = 0;
    for crash in cut.crashes_from(first, 5, 3) {
        let place = format!("after event {} ({:?})", crash.position, crash.keep);
        let disk = open(crash.store);
        let disk: Arc<dyn BlockDevice> =
            Arc::new(Slice::new(disk.clone(), 0..disk.info().len).unwrap());
        assert!(contents(disk.clone()) == *files, "{place}");
        let found = hfsplus::check(disk, &Silent).unwrap();
        assert!(
            found
                .iter()
                .all(|problem| problem.severity < Severity::Damage),
            "{place}"
        );
        crashes += 1;
    }
    assert!(crashes > 20, "{crashes} crashes");
}

fn file(store: &PowerCut, mode: Open) -> Arc<dyn BlockDevice> {
    store.open("image", mode).unwrap().unwrap()
}

#[test]
fn a_bundle_that_is_trimmed_loses_nothing() {
    let cut = PowerCut::default();
    let options = sparsebundle::BundleOptions {
        len: DISK,
        band_size: Some(MIB),
    };
    let bundle = Arc::new(Bundle::create(Arc::new(cut.clone()), &options).unwrap());
    let files = use_up(bundle.clone());
    let (first, stored) = (cut.position(), bundle.stored(&Silent).unwrap());
    let disk: Arc<dyn BlockDevice> = bundle.clone();
    free(&disk)
        .into_iter()
        .for_each(|run| bundle.free_range(&stored, &run, true).unwrap());
    bundle.flush().unwrap();
    assert!(bundle.stored(&Silent).unwrap().bands.len() < stored.bands.len());
    assert_survived(&cut, first, &files, |store| {
        Arc::new(Bundle::open(Arc::new(store), Access::ReadOnly).unwrap())
    });
}

#[test]
fn a_sparse_image_that_is_packed_loses_nothing() {
    let cut = PowerCut::default();
    let options = sparseimage::SparseImageOptions {
        len: DISK,
        band_size: Some(256 << 10),
    };
    let image = Arc::new(SparseImage::create(file(&cut, Open::Create), &options).unwrap());
    cut.sync().unwrap();
    let files = use_up(image.clone());
    let (first, before) = (cut.position(), file(&cut, Open::Read).info().len);
    let disk: Arc<dyn BlockDevice> = image.clone();
    free(&disk)
        .into_iter()
        .for_each(|run| image.discard(run, AfterDiscard::Any).unwrap());
    image.flush().unwrap();
    let after = file(&cut, Open::Read).info().len;
    assert!(after < before / 2, "{before} became {after}");
    assert_survived(&cut, first, &files, |store| {
        Arc::new(SparseImage::open(file(&store, Open::Write)).unwrap())
    });
}

#[test]
fn an_asif_image_that_is_packed_loses_nothing() {
    let cut = PowerCut::default();
    let options = asif::AsifOptions {
        len: DISK,
        block: 512,
        kind: asif::LayerKind::Disk,
    };
    let image = Arc::new(Asif::create(file(&cut, Open::Create), &options).unwrap());
    cut.sync().unwrap();
    let files = use_up(image.clone());
    let (first, before) = (cut.position(), file(&cut, Open::Read).info().len);
    let disk: Arc<dyn BlockDevice> = image.clone();
    free(&disk)
        .into_iter()
        .for_each(|run| image.discard(run, AfterDiscard::Any).unwrap());
    image.flush().unwrap();
    image.compact(&Silent).unwrap();
    let after = file(&cut, Open::Read).info().len;
    assert!(
        after < before && image.usage().unused == 0,
        "{before} became {after}"
    );
    assert_survived(&cut, first, &files, |store| {
        Arc::new(Asif::open(file(&store, Open::Write)).unwrap())
    });
}
