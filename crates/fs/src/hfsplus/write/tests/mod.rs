//! Changes of small volumes, each checked by an independent implementation of the rules.

mod crashes;
mod exchange;
mod growing;
mod held;
mod operations;
mod resize;
mod swaps;

use std::sync::Arc;

use super::*;
use crate::hfsplus::HfsPlus;
use crate::hfsplus::build::tests::check::check;
use crate::hfsplus::build::{Options, Plan};
use crate::source::Tree;
use crate::{FileSystemExt, FileSystemMutExt, NewKind};
use bandsaw_core::device::Memory;
use bandsaw_core::progress::Silent;
use bandsaw_core::store::{Open, Store};
use bandsaw_testing::power_cut::Keep;
use bandsaw_testing::{PowerCut, Random};

const NOW: Timestamp = Timestamp::from_seconds(1_750_000_000);

fn options() -> WriteOptions {
    WriteOptions {
        cache: 1 << 20,
        now: Some(NOW),
        ..WriteOptions::default()
    }
}

fn layout(case_sensitive: bool, block_size: Option<u32>) -> Options {
    Options {
        name: "Changing".into(),
        case_sensitive,
        journaled: false,
        block_size,
        created: Timestamp::from_seconds(1_700_000_000),
        latest: None,
        opens: false,
        identifier: 7,
    }
}

/// Checks a volume with the rules of the builder's tests, and with the public check.
fn sound(device: Arc<dyn BlockDevice>) {
    check(&*device);
    let problems = crate::hfsplus::check::check(device, &Silent).unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Creates an empty volume over all of `device`.
fn format(device: &dyn BlockDevice, options: Options) {
    Plan::new(Tree::empty(options.created), options)
        .unwrap()
        .build(device, &Silent)
        .unwrap();
}

fn empty(len: usize) -> Arc<Memory> {
    let device = Arc::new(Memory::zeros(len));
    format(&*device, layout(false, None));
    device
}

fn open(device: &Arc<Memory>) -> HfsPlusMut {
    HfsPlusMut::open(device.clone(), options()).unwrap()
}

fn file() -> NewNode {
    NewNode::new(NewKind::File)
}

fn folder() -> NewNode {
    NewNode::new(NewKind::Folder)
}

/// Returns contents that differ from position to position.
fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| {
            (at as u8)
                .wrapping_mul(31)
                .wrapping_add((at >> 8) as u8)
                .wrapping_add(seed)
        })
        .collect()
}

fn contents(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let file = fs.open(fs.resolve(path).unwrap().id, Fork::Data).unwrap();
    file.read_vec(0, file.info().len as usize).unwrap()
}

fn names(fs: &dyn FileSystem, path: &str) -> Vec<String> {
    let dir = fs.resolve(path).unwrap().id;
    fs.entries(dir)
        .unwrap()
        .into_iter()
        .map(|entry| entry.name)
        .collect()
}
