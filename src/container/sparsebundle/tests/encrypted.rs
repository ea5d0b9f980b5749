//! Tests of the on-disk form of an encrypted bundle.

use super::*;
use crate::crypt::{KeyMaterial, KeyWrap, Protection, Secret, Sectors};
use crate::problem::{Problems, Severity};

fn protection(block: u32) -> Protection {
    Protection {
        key_bits: 256,
        block,
        iterations: 1,
        key_wrap: KeyWrap::TripleDes,
        passphrase: Some(Secret::new(b"open".to_vec())),
        certificates: Vec::new(),
    }
}

fn create_with(len: u64, block: u32) -> (MemoryStore, Bundle) {
    let (store, shared) = memory();
    (
        store,
        Bundle::create_encrypted(shared, &options(len), &protection(block)).unwrap(),
    )
}

fn unlocked(store: &MemoryStore) -> (LockedHeader, KeyMaterial) {
    let locked = encryption(store).unwrap().unwrap();
    let keys = locked.unlock(b"open").unwrap();
    (locked, keys)
}

fn open_with(store: &MemoryStore, access: Access) -> Result<Bundle> {
    let (locked, keys) = unlocked(store);
    Bundle::open_encrypted(Arc::new(store.clone()), access, &locked, &keys)
}

fn stored(store: &MemoryStore, name: &str) -> Vec<u8> {
    let file = store.open(name, Open::Read).unwrap().unwrap();
    file.read_vec(0, file.info().len as usize).unwrap()
}

#[test]
fn written_bytes_are_stored_encrypted_and_read_again() {
    for block in [512, 4096] {
        let (store, bundle) = create_with(4 * BAND, block);
        assert_eq!(
            len_of(&store, "token"),
            Some(if block == 512 { 0x1DE00 } else { 0x1E000 })
        );
        bundle.write_at(BAND - 700, &[7; 3000]).unwrap();
        bundle.flush().unwrap();
        assert_eq!(
            (len_of(&store, "bands/0"), len_of(&store, "bands/1")),
            (Some(BAND), Some(4096)),
            "whole blocks, no more"
        );
        for name in ["bands/0", "bands/1"] {
            let cipher = stored(&store, name);
            assert!(
                cipher
                    .chunks(16)
                    .all(|cell| cell != [7; 16] && cell != [0; 16]),
                "gaps are encrypted zeros"
            );
        }
        drop(bundle);
        let bundle = open_with(&store, Access::ReadWrite).unwrap();
        let expected = [&[0; 300][..], &[7; 3000], &[0; 900]].concat();
        assert_eq!(bundle.read_vec(BAND - 1000, 4200).unwrap(), expected);
        assert_eq!(
            bundle.read_vec(BAND + 4000, 200).unwrap(),
            [0; 200],
            "past the end of the file"
        );
        assert_eq!(bundle.info().write, block);
    }
}

#[test]
fn a_band_is_data_and_the_rest_is_a_hole() {
    let (_, bundle) = create_with(3 * BAND, 512);
    bundle.write_at(BAND + 9000, &[1; 10]).unwrap();
    let kinds: Vec<_> = bundle
        .extents(0..3 * BAND)
        .map(|extent| extent.unwrap())
        .collect();
    let expected = [
        (0..BAND, ExtentKind::Hole),
        (BAND..BAND + 12288, ExtentKind::Data),
        (BAND + 12288..2 * BAND, ExtentKind::Hole),
        (2 * BAND..3 * BAND, ExtentKind::Hole),
    ];
    assert_eq!(kinds, expected);
}

/// Asserts that the numbers of cipher blocks start at 0 in every band, as in bundles by macOS:
/// equal plain text at the same offset of two bands gives the same cipher text, and each band
/// decrypts in place of any other.
#[test]
fn block_numbers_start_again_in_every_band() {
    for block in [512, 4096] {
        let (store, bundle) = create_with(4 * BAND, block);
        bundle.write_at(0, &vec![5; 2 * BAND as usize]).unwrap();
        // Filled gaps, partial blocks, and a growing band use the same numbers.
        bundle.write_at(2 * BAND + 20_000, &[6; 700]).unwrap();
        bundle.write_at(3 * BAND + 20_000, &[6; 700]).unwrap();
        bundle.flush().unwrap();
        assert!(stored(&store, "bands/0") == stored(&store, "bands/1"));
        assert!(stored(&store, "bands/2") == stored(&store, "bands/3"));
        let (_, keys) = unlocked(&store);
        let (mut first, sectors) = (
            stored(&store, "bands/3"),
            Sectors::new(&keys, block).unwrap(),
        );
        sectors.decrypt(0, &mut first).unwrap();
        assert_eq!(
            first[19_990..20_710],
            [&[0; 10][..], &[6; 700], &[0; 10]].concat()
        );
        drop(bundle);
        put(&store, "bands/3", &stored(&store, "bands/1"));
        let bundle = open_with(&store, Access::ReadOnly).unwrap();
        assert!(bundle.read_vec(3 * BAND, BAND as usize).unwrap() == vec![5; BAND as usize]);
    }
}

#[test]
fn bytes_never_encrypted_are_zeros() {
    let (store, bundle) = create_with(2 * BAND, 512);
    bundle.write_at(0, &[9; 8192]).unwrap();
    bundle.flush().unwrap();
    drop(bundle);
    let mut cipher = stored(&store, "bands/0");
    cipher[1024..2048].fill(0);
    put(&store, "bands/0", &cipher);
    let bundle = open_with(&store, Access::ReadWrite).unwrap();
    let expected = [&[9; 1024][..], &[0; 1024], &[9; 6144]].concat();
    assert_eq!(bundle.read_vec(0, 8192).unwrap(), expected);
    bundle.write_at(1500, b"x").unwrap();
    assert_eq!(bundle.read_vec(1499, 3).unwrap(), b"\0x\0");
}

#[test]
fn discards_punch_blocks_write_zeros_and_unlink_bands() {
    let (store, bundle) = create_with(3 * BAND, 512);
    bundle.write_at(0, &vec![3; 3 * BAND as usize]).unwrap();
    bundle.discard(100..5000, AfterDiscard::Zeros).unwrap();
    assert!(
        stored(&store, "bands/0")
            .chunks(16)
            .all(|cell| cell != [0; 16])
    );
    bundle
        .discard(BAND + 100..BAND + 5000, AfterDiscard::Any)
        .unwrap();
    let cipher = stored(&store, "bands/1");
    assert!(
        cipher[512..4608].iter().all(|byte| *byte == 0)
            && cipher[..512] != [0; 512]
            && cipher[4608..5120] != [0; 512]
    );
    bundle
        .discard(2 * BAND..3 * BAND, AfterDiscard::Any)
        .unwrap();
    assert_eq!(len_of(&store, "bands/2"), None);
    let expected = [&[3; 100][..], &[0; 4900], &[3; 100]].concat();
    assert_eq!(bundle.read_vec(0, 5100).unwrap(), expected);
    assert_eq!(bundle.read_vec(BAND, 100).unwrap(), [3; 100]);
    assert_eq!(bundle.read_vec(BAND + 5000, 100).unwrap(), [3; 100]);
    assert_eq!(bundle.read_vec(2 * BAND, 100).unwrap(), [0; 100]);
}

#[test]
fn a_cut_within_a_cipher_block_leaves_nothing_for_a_growth_to_show() {
    let (store, bundle) = create_with(2 * BAND, 4096);
    bundle.write_at(0, &vec![4; 2 * BAND as usize]).unwrap();
    bundle.set_len(BAND + 512, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        len_of(&store, "bands/1"),
        Some(4096),
        "the block that the disk ends in is whole"
    );
    assert!(bundle.survey(&Silent).unwrap().problems.is_empty());
    bundle.set_len(2 * BAND, AfterDiscard::Zeros).unwrap();
    assert_eq!(
        bundle.read_vec(BAND, 8192).unwrap(),
        [&[4; 512][..], &[0; 7680]].concat()
    );
}

/// A band whose file ends within a cipher block: what is before that block stays usable. The rest does not
/// read as zeros, nothing is stored there, and nothing removes it but a truncation of the disk.
#[test]
fn a_band_truncated_within_a_cipher_block_is_used_up_to_it() {
    let (store, bundle) = create_with(2 * BAND, 4096);
    bundle.write_at(BAND, &[8; 12288]).unwrap();
    bundle.flush().unwrap();
    drop(bundle);
    let whole = stored(&store, "bands/1");
    put(&store, "bands/1", &whole[..4096 + 512]);
    let bundle = open_with(&store, Access::ReadWrite).unwrap();
    let incomplete = |result: Result<()>| {
        let error = result.unwrap_err();
        let place = Place::Name("bands/1".to_owned());
        assert_eq!((error.kind(), error.place()), (Kind::Corrupt, &place));
        assert!(error.message().contains("byte 4096"), "{error}");
        assert!(error.message().contains("512 of 4096 bytes"), "{error}");
    };
    assert_eq!(bundle.read_vec(BAND, 4096).unwrap(), [8; 4096]);
    for (at, len) in [(4096, 1), (8192, 1), (4095, 2), (0, 12288)] {
        incomplete(bundle.read_vec(BAND + at, len).map(drop));
    }
    let kinds: Vec<_> = bundle
        .extents(BAND..2 * BAND)
        .map(|extent| extent.unwrap().1)
        .collect();
    assert_eq!(kinds, [ExtentKind::Data; 2]);

    bundle.write_at(BAND + 100, &[9; 100]).unwrap();
    for at in [4000, 4096, 8192, BAND - 512] {
        incomplete(bundle.write_at(BAND + at, &[9; 512]));
        incomplete(bundle.write_at(BAND + at, &[0; 512]));
    }
    incomplete(bundle.discard(BAND..2 * BAND, AfterDiscard::Zeros));
    bundle
        .discard(BAND + 4096..2 * BAND, AfterDiscard::Any)
        .unwrap();
    bundle.flush().unwrap();
    assert_eq!(len_of(&store, "bands/1"), Some(4096 + 512));
    assert_eq!(
        bundle.read_vec(BAND, 300).unwrap(),
        [[8; 100], [9; 100], [8; 100]].concat()
    );
    let stored = bundle.stored(&Silent).unwrap();
    bundle.free_range(&stored, &(0..2 * BAND), true).unwrap();
    assert_eq!(len_of(&store, "bands/1"), Some(4096 + 512));

    let problems = bundle.survey(&Silent).unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    incomplete(Err(problems.into_iter().next().unwrap()));
    let mut found = Problems::default();
    check(&store, &mut found, &Silent).unwrap();
    assert_eq!(found.worst(), Some(Severity::Damage));
    bundle.set_len(BAND + 4096, AfterDiscard::Zeros).unwrap();
    assert_eq!(len_of(&store, "bands/1"), Some(4096));
    assert!(bundle.survey(&Silent).unwrap().problems.is_empty());
}

#[test]
fn sizes_that_cannot_be_encrypted_are_refused() {
    let refused = |len, band_size, block| {
        let (store, shared) = memory();
        let options = BundleOptions {
            len,
            band_size: Some(band_size),
        };
        let error = Bundle::create_encrypted(shared, &options, &protection(block)).unwrap_err();
        assert!(names(&store).is_empty());
        error
    };
    assert_eq!(refused(BAND, BAND + 512, 4096).kind(), Kind::Invalid);

    // Block numbers start at 0 in every band, so they never run out.
    let (_, bundle) = create_with(2 << 40, 512);
    bundle.set_len(1 << 60, AfterDiscard::Zeros).unwrap();
    bundle.write_at((1 << 60) - 512, &[1; 512]).unwrap();
    assert_eq!(bundle.read_vec((1 << 60) - 1, 1).unwrap(), [1]);
}

#[test]
fn keys_and_token_belong_together() {
    let (store, bundle) = create_with(BAND, 512);
    drop(bundle);
    assert_eq!(open(&store).unwrap_err().kind(), Kind::WrongKey);
    let (locked, keys) = unlocked(&store);
    let (other, _) = create_with(BAND, 512);
    let error =
        Bundle::open_encrypted(Arc::new(other), Access::ReadOnly, &locked, &keys).unwrap_err();
    assert_eq!(
        (error.kind(), error.place()),
        (Kind::Conflict, &Place::Name("token".to_owned()))
    );
    put(&store, "token", b"");
    let gone =
        Bundle::open_encrypted(Arc::new(store), Access::ReadOnly, &locked, &keys).unwrap_err();
    assert_eq!(gone.kind(), Kind::Conflict);
}
