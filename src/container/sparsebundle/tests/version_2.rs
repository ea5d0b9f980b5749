//! Bundles of version 2, whose bands have maps of their blocks.

use super::*;

/// Returns a band map of 32 bytes: the second 32 KiB are unmapped, and some blocks of the third.
fn map() -> Vec<u8> {
    let mut map = vec![0xff; 32];
    map[1] = 0;
    map[2] = 0x0f;
    map
}

fn version_2_bundle() -> (MemoryStore, Bundle) {
    let (store, shared) = memory();
    for name in ["Info.plist", "Info.bckup"] {
        put(&store, name, version_2().as_bytes());
    }
    put(&store, "bands/0", &[9; 128 << 10]);
    put(&store, "mapped/0", &map());
    put(&store, "mapped/2", &map());
    (store, Bundle::open(shared, Access::ReadWrite).unwrap())
}

#[test]
fn unmapped_blocks_read_as_zeros() {
    let (store, bundle) = version_2_bundle();
    assert_eq!(bundle.version(), Version::Two);
    let bytes = bundle.read_vec(0, 256 << 10).unwrap();
    let expected = [
        &[9; 32 << 10][..],
        &[0; 32 << 10],
        &[9; 64 << 10],
        &[0; 128 << 10],
    ]
    .concat();
    assert!(bytes == expected);
    let kinds: Vec<_> = bundle
        .extents(0..BAND)
        .map(|extent| extent.unwrap().1)
        .collect();
    assert_eq!(
        kinds,
        [
            ExtentKind::Data,
            ExtentKind::Zero,
            ExtentKind::Data,
            ExtentKind::Hole
        ]
    );
    assert!(
        len_of(&store, "mapped/0").is_some(),
        "reading changes nothing"
    );
}

#[test]
fn the_map_goes_before_the_first_write() {
    let (store, bundle) = version_2_bundle();
    bundle.discard(0..4096, AfterDiscard::Any).unwrap();
    assert!(
        len_of(&store, "mapped/0").is_some(),
        "nothing was asked that is worth a write"
    );
    bundle.write_at(40 << 10, &[3; 4096]).unwrap();
    assert_eq!(len_of(&store, "mapped/0"), None);
    let band = store.open("bands/0", Open::Read).unwrap().unwrap();
    assert!(
        band.read_vec(32 << 10, 8 << 10).unwrap() == [0; 8 << 10],
        "hidden bytes are gone for good"
    );
    assert_eq!(
        bundle.read_vec(40 << 10, 4097).unwrap(),
        [&[3; 4096][..], &[0]].concat()
    );

    bundle.write_at(2 * BAND, &[4; 512]).unwrap();
    assert_eq!(
        len_of(&store, "mapped/2"),
        None,
        "the map of a band long gone hides nothing"
    );
    bundle.flush().unwrap();
    drop(bundle);
    let bundle = open(&store).unwrap();
    assert_eq!(bundle.version(), Version::Two);
    assert_eq!(bundle.read_vec(2 * BAND, 512).unwrap(), [4; 512]);
}

#[test]
fn a_removed_band_takes_its_map_along() {
    let (store, bundle) = version_2_bundle();
    bundle.discard(0..BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        (len_of(&store, "bands/0"), len_of(&store, "mapped/0")),
        (None, None)
    );
    bundle.set_len(BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(len_of(&store, "mapped/2"), None);
    assert!(
        text(&store, "Info.plist")
            .contains("<key>bundle-backingstore-version</key>\n\t<integer>2</integer>")
    );
}
