//! Sparse bundles: their property lists, and reads and writes.

use std::sync::Arc;

use crate::container::sparsebundle::{Bundle, BundleOptions};
use crate::device::{Access, AfterDiscard, BlockDevice};
use crate::progress::Silent;
use crate::store::{MemoryStore, Put, Store};
use crate::testing::model::{Model, Op, Span};

/// Takes an input that is an `Info.plist`. The bundle is refused, or it is a blank disk of whole
/// sectors that can be read at both ends, and nothing in its folder changed.
pub fn info_plist(input: &[u8]) {
    let store = MemoryStore::default();
    let put = store.put("Info.plist", input, Put::Replace);
    assert!(put.is_ok());
    if let Ok(bundle) = Bundle::open(Arc::new(store.clone()), Access::ReadOnly) {
        let len = bundle.info().len;
        assert!(len.is_multiple_of(512) && bundle.band_size().is_multiple_of(512));
        for offset in [0, len.saturating_sub(512)] {
            let mut sector = vec![1; len.min(512) as usize];
            assert!(bundle.read_at(offset, &mut sector).is_ok());
            assert!(sector.iter().all(|&byte| byte == 0));
        }
        assert!(bundle.read_at(len, &mut [0]).is_err());
    }
    let mut names = Vec::new();
    let listed = store.list("", &mut |entry| {
        names.push(entry.name.to_owned());
        Ok(())
    });
    assert!(listed.is_ok() && names == ["Info.plist"], "{names:?}");
}

/// Takes an input that is the `rebanding.plist` of a bundle without bands whose other lists record
/// a change of the band size. The bundle is refused, or it is a blank disk, which can be written
/// and finished and then contains the written data.
pub fn rebanding_plist(input: &[u8]) {
    let store = MemoryStore::default();
    for (name, bytes) in [
        ("Info.plist", REBANDING.as_bytes()),
        ("rebanding.plist", input),
    ] {
        let put = store.put(name, bytes, Put::Replace);
        assert!(put.is_ok());
    }
    let Ok(bundle) = Bundle::open(Arc::new(store.clone()), Access::ReadOnly) else {
        return;
    };
    let len = bundle.info().len;
    let mut sector = vec![1; len.min(512) as usize];
    for offset in [0, len.saturating_sub(512)] {
        assert!(bundle.read_at(offset, &mut sector).is_ok());
        assert!(sector.iter().all(|&byte| byte == 0));
    }
    drop(bundle);
    let open = || {
        Bundle::open(Arc::new(store.clone()), Access::ReadWrite).expect("the bundle can be opened")
    };
    let at = len.saturating_sub(512);
    let bundle = open();
    // Memory has no holes: the file of a band that is written far from its beginning would be
    // allocated entirely.
    let written = len <= MAX_LEN && bundle.write_at(at, &vec![7; sector.len()]).is_ok();
    assert!(bundle.flush().is_ok());
    if bundle.reband(None, &Silent).is_ok() {
        let bundle = open();
        assert!(!bundle.is_between() && bundle.info().len == len);
        assert!(bundle.read_at(at, &mut sector).is_ok());
        assert!(
            sector
                .iter()
                .all(|&byte| byte == if written { 7 } else { 0 })
        );
    }
}

/// Maximum length in bytes of a disk that is written.
const MAX_LEN: u64 = 1 << 20;
/// The other property lists.
const REBANDING: &str = "<plist version=\"1.0\"><dict><key>diskimage-bundle-type</key><string>bandsaw.rebanding</string></dict></plist>";

pub(super) fn rebanding_seeds() -> Vec<Vec<u8>> {
    let list = |from: u64, to: u64, moved: u64, naming: bool| {
        format!(
            "<plist version=\"1.0\"><dict><key>band-size</key><integer>{to}</integer>\
             <key>band-size-before</key><integer>{from}</integer><key>bundle-backingstore-version</key><integer>1</integer>\
             <key>moved</key><integer>{moved}</integer><key>naming</key><{naming}/><key>size</key><integer>61440</integer>\
             </dict></plist>"
        )
    };
    let all = [
        (4096, 8192, 0, false),
        (8192, 4096, 12288, false),
        (4096, 12288, 61440, false),
        (4096, 8192, 61440, true),
    ];
    all.into_iter()
        .map(|(from, to, moved, naming)| list(from, to, moved, naming).into_bytes())
        .collect()
}

/// Bytes of an operation in an input of [`bundle_model`].
const OP: usize = 12;
/// Maximum number of operations of one input.
const MAX_OPS: usize = 64;
/// Maximum length in bytes of one operation.
const MAX_BYTES: u32 = 20_000;

/// Takes an input of the length of a disk and of its bands, in sectors, a flag for version 2, and
/// then operations. The bundle behaves as a plain vector does, and has the same contents after it
/// is reopened.
pub fn bundle_model(input: &[u8]) {
    let Some((&[len, band, version], operations)) = input.split_first_chunk() else {
        return;
    };
    let store = MemoryStore::default();
    let plist = plist(
        (u64::from(len % 64) + 1) * 4096,
        (u64::from(band) + 1) * 512,
        1 + version % 2,
    );
    let put = store.put("Info.plist", plist.as_bytes(), Put::Replace);
    assert!(put.is_ok());
    let open = || -> Arc<dyn BlockDevice> {
        Arc::new(
            Bundle::open(Arc::new(store.clone()), Access::ReadWrite)
                .expect("the bundle can be opened"),
        )
    };
    let operations: Vec<_> = operations
        .as_chunks()
        .0
        .iter()
        .take(MAX_OPS)
        .map(operation)
        .collect();
    Model::new(open()).reopen(open).run(&operations);
}

/// Decodes an operation; any twelve bytes are valid.
fn operation(bytes: &[u8; OP]) -> Op {
    let &[what, flags, a, b, c, d, e, f, seed @ ..] = bytes;
    let span = Span {
        start: u16::from_le_bytes([a, b]),
        aligned: flags & 1 != 0,
        len: u32::from_le_bytes([c, d, e, f]) % MAX_BYTES,
    };
    match what % 16 {
        0..4 => Op::Read(span),
        4..8 => Op::Write(span, u32::from_le_bytes(seed).into()),
        8..10 => Op::Discard(
            span,
            if flags & 2 == 0 {
                AfterDiscard::Zeros
            } else {
                AfterDiscard::Any
            },
        ),
        10 => Op::Extents(span),
        11 => Op::Flush,
        12..14 => Op::Resize(a as i8),
        _ => Op::Reopen,
    }
}

fn plist(len: u64, band: u64, version: u8) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><plist version=\"1.0\"><dict>\
         <key>CFBundleInfoDictionaryVersion</key><string>6.0</string>\
         <key>band-size</key><integer>{band}</integer>\
         <key>bundle-backingstore-version</key><integer>{version}</integer>\
         <key>diskimage-bundle-type</key><string>com.apple.diskimage.sparsebundle</string>\
         <key>size</key><integer>{len}</integer></dict></plist>"
    )
}

pub(super) fn plist_seeds() -> Vec<Vec<u8>> {
    let store = MemoryStore::default();
    let made = Bundle::create(
        Arc::new(store.clone()),
        &BundleOptions {
            len: 1 << 30,
            band_size: None,
        },
    );
    assert!(made.is_ok());
    let info = store
        .open("Info.plist", crate::store::Open::Read)
        .ok()
        .flatten()
        .expect("a bundle has an Info.plist");
    let mut xml = vec![0; info.info().len as usize];
    info.read_at(0, &mut xml).expect("it can be read");
    let mut binary = Vec::new();
    let value = plist::Value::from_reader_xml(&*xml).expect("it is a property list");
    value
        .to_writer_binary(&mut binary)
        .expect("it can be written");
    vec![xml, binary, plist(4096, 512, 2).into_bytes()]
}

pub(super) fn model_seeds() -> Vec<Vec<u8>> {
    let operations = |seed| crate::testing::Random::new(seed).bytes(OP * MAX_OPS);
    let disks = [[16, 8, 0], [16, 8, 1], [255, 255, 0], [1, 0, 1], [0, 0, 0]];
    (0..)
        .zip(disks)
        .map(|(seed, disk)| [&disk[..], &operations(seed)].concat())
        .collect()
}
