//! Tests of the on-disk form of a bundle, step by step. The suites for all devices are in `tests/`.

mod encrypted;
mod locks;
mod version_2;

use super::create::{DEFAULT_BAND_SIZE, DEFAULT_MAX_BANDS};
use super::*;
use crate::device::{AfterDiscard, BlockDeviceExt, Extent, ExtentKind};
use crate::error::Place;
use crate::progress::Silent;
use crate::store::{Local, MemoryStore, Put};
use crate::testing::faults::{Call, Fault, Faults, FaultyStore, at_every};

const BAND: u64 = 1 << 20;

fn memory() -> (MemoryStore, Arc<dyn Store>) {
    let store = MemoryStore::default();
    (store.clone(), Arc::new(store))
}

fn options(len: u64) -> BundleOptions {
    BundleOptions {
        len,
        band_size: Some(BAND),
    }
}

fn create(len: u64) -> (MemoryStore, Bundle) {
    let (store, shared) = memory();
    (store, Bundle::create(shared, &options(len)).unwrap())
}

fn open(store: &MemoryStore) -> Result<Bundle> {
    Bundle::open(Arc::new(store.clone()), Access::ReadWrite)
}

fn names(store: &dyn Store) -> Vec<String> {
    let mut names = Vec::new();
    let mut keep = |entry: crate::store::Entry<'_>| {
        names.push(entry.name.to_owned());
        Ok(())
    };
    store.list("", &mut keep).unwrap();
    names.sort();
    names
}

fn text(store: &dyn Store, name: &str) -> String {
    let file = store.open(name, Open::Read).unwrap().unwrap();
    String::from_utf8(file.read_vec(0, file.info().len as usize).unwrap()).unwrap()
}

fn put(store: &dyn Store, name: &str, bytes: &[u8]) {
    store.put(name, bytes, Put::Replace).unwrap();
}

fn len_of(store: &dyn Store, name: &str) -> Option<u64> {
    store.stat(name).unwrap().map(|meta| meta.len)
}

/// Returns the list of a version 2 bundle of four bands.
fn version_2() -> String {
    plist::Info {
        size: 4 * BAND,
        band_size: BAND,
        version: Version::Two,
    }
    .to_xml()
}

#[test]
fn a_blank_bundle_has_no_band() {
    let (store, bundle) = create(40_960_000);
    assert_eq!(names(&store), ["Info.bckup", "Info.plist", "lock", "token"]);
    assert_eq!(text(&store, "Info.plist"), text(&store, "Info.bckup"));
    assert!(
        text(&store, "Info.plist").contains("\t<key>size</key>\n\t<integer>40960000</integer>\n")
    );
    assert_eq!(
        (len_of(&store, "token"), len_of(&store, "lock")),
        (Some(0), Some(0))
    );
    assert_eq!(
        (bundle.band_size(), bundle.band_count(), bundle.version()),
        (BAND, 40, Version::One)
    );
    assert_eq!(bundle.read_vec(12_345_678, 100).unwrap(), [0; 100]);
    assert_eq!(
        bundle.extent_at(0..40_960_000).unwrap(),
        Extent {
            kind: ExtentKind::Hole,
            len: BAND
        }
    );
}

#[test]
fn the_folder_of_bands_is_there_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    Bundle::create(Arc::new(Local::new(folder.path())), &options(BAND)).unwrap();
    assert_eq!(
        std::fs::read_dir(folder.path().join("bands"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn default_bands_double_with_the_disk() {
    let limit = DEFAULT_MAX_BANDS * DEFAULT_BAND_SIZE;
    assert_eq!(default_band_size(512), 8 << 20);
    assert_eq!(default_band_size(limit), 8 << 20);
    assert_eq!(default_band_size(limit + 512), 16 << 20);
    assert_eq!(default_band_size(8 << 40), 128 << 20);
    assert_eq!(default_band_size(i64::MAX as u64), 8 << 30);
}

#[test]
fn band_sizes_are_used_as_asked_or_refused() {
    for size in [1 << 20, (1 << 20) + 512, 8 << 30] {
        let bundle = Bundle::create(
            memory().1,
            &BundleOptions {
                len: 512,
                band_size: Some(size),
            },
        )
        .unwrap();
        assert_eq!(bundle.band_size(), size);
        assert_eq!(bundle.warnings().len(), usize::from(size % 4096 != 0));
    }
    for size in [0, 512, (1 << 20) - 512, (1 << 20) + 1, (8 << 30) + 512] {
        let (store, shared) = memory();
        let error = Bundle::create(
            shared,
            &BundleOptions {
                len: 512,
                band_size: Some(size),
            },
        )
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(names(&store).is_empty());
    }
    let many = Bundle::create(
        memory().1,
        &BundleOptions {
            len: 100_001 << 20,
            band_size: Some(BAND),
        },
    )
    .unwrap();
    assert!(
        many.warnings()[0].contains("100001 bands"),
        "{:?}",
        many.warnings()
    );
}

#[test]
fn a_second_bundle_is_not_made_over_the_first() {
    let (store, bundle) = create(BAND);
    drop(bundle);
    assert_eq!(
        Bundle::create(Arc::new(store), &options(BAND))
            .unwrap_err()
            .kind(),
        Kind::Conflict
    );
}

#[test]
fn writes_land_in_the_bands_macos_would_use() {
    let (store, bundle) = create(20 * BAND + 1024);
    bundle.write_at(11 * BAND - 2, b"abcd").unwrap();
    bundle.write_at(20 * BAND + 512, &[7; 512]).unwrap();
    bundle.flush().unwrap();
    assert_eq!(len_of(&store, "bands/a"), Some(BAND));
    assert_eq!(
        len_of(&store, "bands/b"),
        Some(4096),
        "grown ahead while written, cut by the flush"
    );
    assert_eq!(
        len_of(&store, "bands/14"),
        Some(1024),
        "the last band ends with the disk"
    );
    drop(bundle);
    let bundle = open(&store).unwrap();
    assert_eq!(bundle.read_vec(11 * BAND - 3, 6).unwrap(), b"\0abcd\0");
    assert_eq!(bundle.read_vec(20 * BAND + 511, 2).unwrap(), [0, 7]);
}

#[test]
fn a_short_band_reads_as_zeros_past_its_end() {
    let (store, bundle) = create(3 * BAND);
    put(&store, "bands/1", &[5; 10]);
    assert_eq!(
        bundle.read_vec(BAND - 1, 12).unwrap(),
        [&[0][..], &[5; 10], &[0]].concat()
    );
    let kinds: Vec<_> = bundle
        .extents(0..3 * BAND)
        .map(|extent| extent.unwrap())
        .collect();
    let expected = [
        (0..BAND, ExtentKind::Hole),
        (BAND..BAND + 10, ExtentKind::Data),
        (BAND + 10..2 * BAND, ExtentKind::Hole),
        (2 * BAND..3 * BAND, ExtentKind::Hole),
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn zeros_are_not_stored_where_nothing_is() {
    let (store, bundle) = create(4 * BAND);
    bundle.write_at(0, &vec![0; 4 << 20]).unwrap();
    bundle.flush().unwrap();
    assert_eq!(names(&store).len(), 4, "{:?}", names(&store));
    bundle.write_at(BAND, &[1; 4096]).unwrap();
    bundle.write_at(BAND, &[0; 8192]).unwrap();
    assert_eq!(
        bundle.read_vec(BAND, 8192).unwrap(),
        [0; 8192],
        "what was stored is overwritten"
    );
}

#[test]
fn a_discarded_band_has_no_file() {
    let (store, bundle) = create(3 * BAND);
    bundle.write_at(0, &vec![1; 3 << 20]).unwrap();
    bundle.discard(BAND..2 * BAND, AfterDiscard::Any).unwrap();
    bundle
        .discard(2 * BAND + 10..2 * BAND + 20, AfterDiscard::Zeros)
        .unwrap();
    bundle.discard(0..BAND - 1, AfterDiscard::Zeros).unwrap();
    bundle.flush().unwrap();
    assert_eq!(len_of(&store, "bands/1"), None);
    assert_eq!(bundle.read_vec(BAND - 2, 3).unwrap(), [0, 1, 0]);
    assert_eq!(
        bundle.read_vec(2 * BAND + 9, 12).unwrap(),
        [&[1][..], &[0; 10], &[1]].concat()
    );
    bundle.discard(0..3 * BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(names(&store).len(), 4);
    bundle.write_at(BAND, b"again").unwrap();
    assert_eq!(bundle.read_vec(BAND, 6).unwrap(), b"again\0");
}

/// Source: docs/formats/sparsebundle.md §3: macOS reads no more of a band's file than the band
/// size.
#[test]
fn bytes_past_the_band_size_are_ignored_and_stay() {
    let (store, bundle) = create(16 * BAND);
    let long = [vec![1; BAND as usize], vec![2; 5000]].concat();
    put(&store, "bands/c", &long);
    assert_eq!(bundle.read_vec(13 * BAND - 2, 4).unwrap(), [1, 1, 0, 0]);
    bundle.write_at(13 * BAND - 1, &[3]).unwrap();
    bundle.flush().unwrap();
    assert_eq!(
        len_of(&store, "bands/c"),
        Some(BAND + 5000),
        "nothing is cut"
    );
    bundle
        .discard(12 * BAND..13 * BAND, AfterDiscard::Zeros)
        .unwrap();
    bundle.flush().unwrap();
    assert_eq!(bundle.read_vec(13 * BAND - 2, 4).unwrap(), [0; 4]);
    let file = store.open("bands/c", Open::Read).unwrap().unwrap();
    assert_eq!(file.read_vec(BAND, 5000).unwrap(), [2; 5000]);
    let survey = bundle.survey(&Silent).unwrap();
    assert!(
        survey.problems.is_empty() && survey.too_long[0].to_string().contains("bands/c"),
        "{survey:?}"
    );
}

#[test]
fn growing_removes_what_lay_past_the_end() {
    let (store, bundle) = create(BAND + 512);
    put(&store, "bands/1", &[6; 4096]);
    put(&store, "bands/2", &[7; 4096]);
    put(&store, "bands/ff", &[8; 4096]);
    let survey = bundle.survey(&Silent).unwrap();
    assert_eq!(
        (survey.bands, survey.len, survey.problems.len()),
        (1, 3 * 4096, 3)
    );
    assert_eq!(
        bundle.read_vec(BAND, 512).unwrap(),
        [6; 512],
        "ignored until then"
    );
    bundle.set_len(400 * BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        (
            len_of(&store, "bands/1"),
            len_of(&store, "bands/2"),
            len_of(&store, "bands/ff")
        ),
        (Some(512), None, None)
    );
    assert_eq!(
        bundle.read_vec(BAND, 1024).unwrap(),
        [[6; 512], [0; 512]].concat()
    );
    assert_eq!(bundle.read_vec(2 * BAND, 4096).unwrap(), [0; 4096]);
    assert!(text(&store, "Info.plist").contains("<integer>419430400</integer>"));
    assert_eq!(text(&store, "Info.plist"), text(&store, "Info.bckup"));
    assert!(bundle.survey(&Silent).unwrap().problems.is_empty());
}

#[test]
fn cutting_removes_bands_and_tails() {
    let (store, bundle) = create(4 * BAND);
    bundle.write_at(0, &vec![1; 4 << 20]).unwrap();
    bundle.set_len(BAND + 1024, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        (len_of(&store, "bands/1"), len_of(&store, "bands/2")),
        (Some(1024), None)
    );
    assert_eq!(
        bundle.read_at(BAND + 1023, &mut [0; 2]).unwrap_err().kind(),
        Kind::OutOfRange
    );
    bundle.set_len(3 * BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(bundle.read_vec(BAND + 1023, 3).unwrap(), [1, 0, 0]);
    for len in [0, 1000, 1 << 63] {
        assert!(bundle.set_len(len, AfterDiscard::Zeros).is_err());
        assert_eq!(bundle.info().len, 3 * BAND);
    }
}

#[test]
fn encrypted_bundles_are_recognized_by_their_token() {
    let (store, bundle) = create(BAND);
    drop(bundle);
    for token in [
        &b"e"[..],
        b"encrcds",
        b"encrcdsa\0\0\0\x02",
        b"\0\0\0\0\0\0\0\0\0cdsaencr",
    ] {
        put(&store, "token", token);
        let error = open(&store).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        assert!(error.to_string().contains("token"), "{error}");
    }
    for token in [&b"x"[..], b"0123456789abcdef"] {
        put(&store, "token", token);
        assert!(open(&store).unwrap().warnings()[0].contains("not an encryption header"));
    }
}

#[test]
fn stray_files_are_reported_and_kept() {
    let (store, bundle) = create(4 * BAND);
    for name in [
        "bands/A",
        "bands/01",
        "bands/4",
        "bands/x",
        "bands/sub/0",
        "bands/.DS_Store",
        "bands/._0",
        "com.apple.TimeMachine.MachineID.plist",
    ] {
        put(&store, name, b"stray");
    }
    let survey = bundle.survey(&Silent).unwrap();
    let mut found: Vec<_> = survey
        .problems
        .iter()
        .map(|error| error.to_string().split(": ").nth(1).unwrap().to_owned())
        .collect();
    found.sort();
    assert_eq!(
        found,
        ["bands/01", "bands/4", "bands/A", "bands/sub/0", "bands/x"]
    );
    bundle.set_len(8 * BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        len_of(&store, "bands/4"),
        None,
        "it would have become part of the disk"
    );
    assert_eq!(
        len_of(&store, "com.apple.TimeMachine.MachineID.plist"),
        Some(5)
    );
    assert_eq!(len_of(&store, "bands/A"), Some(5));
}

#[test]
fn more_bands_than_are_kept_open() {
    let folder = tempfile::tempdir().unwrap();
    let band_size = 1 << 20;
    let len = 5000 * band_size;
    let bundle = Bundle::create(
        Arc::new(Local::new(folder.path())),
        &BundleOptions {
            len,
            band_size: Some(band_size),
        },
    )
    .unwrap();
    for band in 0..5000u64 {
        bundle
            .write_at(band * band_size + 5, &(band + 1).to_le_bytes())
            .unwrap();
    }
    for band in (0..5000u64).rev() {
        assert_eq!(
            bundle.read_array::<8>(band * band_size + 5).unwrap(),
            (band + 1).to_le_bytes()
        );
    }
    bundle.flush().unwrap();
    assert_eq!(bundle.survey(&Silent).unwrap().bands, 5000);
}

#[test]
fn a_loan_shows_the_file_of_a_band() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = Bundle::create(Arc::new(Local::new(folder.path())), &options(4 * BAND)).unwrap();
    assert!(
        bundle.file_range(0..BAND).unwrap().is_none(),
        "nothing is stored"
    );
    bundle.write_at(BAND, &vec![1; 8192]).unwrap();
    let file_range = bundle.file_range(BAND + 4096..4 * BAND).unwrap().unwrap();
    assert_eq!((file_range.offset, file_range.len), (4096, 4096));
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| bundle.set_len(BAND + 512, AfterDiscard::Zeros));
        while bundle.info().len != BAND + 512 {
            std::thread::yield_now();
        }
        assert!(
            file_range.file.metadata().unwrap().len() >= 8192,
            "cut under a file range"
        );
        drop(file_range);
        cut.join().unwrap().unwrap();
    });
    assert!(bundle.file_range(BAND..BAND).unwrap().is_none());
}

/// A flush fails if the bundle's folder, or only the file of a changed band, was removed or replaced
/// while the bundle was open.
#[test]
fn a_bundle_that_is_removed_while_it_is_open_is_an_error() {
    for case in ["removed", "replaced", "band removed", "band replaced"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.sparsebundle");
        let bundle = Bundle::create(Arc::new(Local::new(&path)), &options(4 * BAND)).unwrap();
        bundle.write_at(0, &[1; 512]).unwrap();
        bundle.flush().unwrap();
        let band = path.join("bands/0");
        match case {
            "band removed" => std::fs::remove_file(&band).unwrap(),
            "band replaced" => {
                std::fs::write(path.join("other"), [3; 4096]).unwrap();
                std::fs::rename(path.join("other"), &band).unwrap();
            }
            _ => std::fs::remove_dir_all(&path).unwrap(),
        }
        if case == "replaced" {
            Bundle::create(Arc::new(Local::new(&path)), &options(4 * BAND)).unwrap();
        }
        bundle.write_at(0, &[2; 512]).unwrap();
        let error = bundle.flush().unwrap_err();
        assert!(error.message().contains("removed or replaced"), "{error}");
        assert_eq!(error.file(), path.to_str(), "{case}");
        let lost = if case.starts_with("band") {
            "bands/0"
        } else {
            "lock"
        };
        assert_eq!(error.part(), Some(lost), "{case}");
        assert!(
            bundle.write_at(0, &[3; 512]).is_err() && bundle.flush().is_err(),
            "an error is not forgotten"
        );
    }
}
