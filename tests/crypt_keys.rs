//! Key slots of an encrypted image: passphrases and certificates are added and removed, also with
//! crashes.

use std::sync::Arc;

use bandsaw::crypt::{
    Certificate, Device, Key, KeyRing, KeySlot, KeyWrap, LockedHeader, NewKeySlot, PrivateKey,
    Protection, Secret, erase_keys,
};
use bandsaw::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use bandsaw::store::{Open, Store};
use bandsaw::testing::PowerCut;
use bandsaw::testing::faults::{Call, Fault, FaultyDevice, at_every};
use bandsaw::{Kind, Reason, Result};

const OWNER: &[u8] = include_bytes!("keys/owner.pem");
const OWNER_PKCS1: &[u8] = include_bytes!("keys/owner-pkcs1.pem");
const STRANGER: &[u8] = include_bytes!("keys/stranger.pem");
const CERTIFICATE: &[u8] = include_bytes!("keys/owner-certificate.pem");
const CERTIFICATE_DER: &[u8] = include_bytes!("keys/owner-certificate.der");
const TEXT: &[u8] = b"what is inside";

fn word(text: &str) -> Key {
    Key::Passphrase(Secret::new(text.into()))
}

fn new_word(text: &str) -> NewKeySlot {
    NewKeySlot::Passphrase {
        passphrase: Secret::new(text.into()),
        iterations: 2,
        wrap: KeyWrap::TripleDes,
    }
}

fn new_certificate() -> NewKeySlot {
    NewKeySlot::Certificate(Certificate::parse(CERTIFICATE).unwrap())
}

fn private(pem: &[u8]) -> Key {
    Key::Private(PrivateKey::parse(pem).unwrap())
}

/// Creates an image in `file` with the passphrase `old`.
fn make(file: &Arc<dyn BlockDevice>) {
    let passphrase = Some(Secret::new(b"old".to_vec()));
    let protection = Protection {
        key_bits: 256,
        block: 512,
        passphrase,
        iterations: 2,
        key_wrap: KeyWrap::TripleDes,
        certificates: Vec::new(),
    };
    let device = Device::create(file.clone(), &protection).unwrap();
    device.set_len(4096, AfterDiscard::Zeros).unwrap();
    device.write_at(1000, TEXT).unwrap();
    device.flush().unwrap();
}

fn image() -> Arc<dyn BlockDevice> {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(0));
    make(&file);
    file
}

/// Returns the data that a key decrypts at the offset of [`TEXT`].
fn read(file: &Arc<dyn BlockDevice>, key: &Key) -> Result<Vec<u8>> {
    let locked = LockedHeader::read(&**file)?.expect("an encrypted image");
    let keys = locked.unlock_with(key)?;
    Device::new(file.clone(), locked, &keys)?.read_vec(1000, TEXT.len())
}

fn opens(file: &Arc<dyn BlockDevice>, key: &Key) -> bool {
    match read(file, key) {
        Ok(text) => text == TEXT,
        Err(error) => {
            assert_eq!(error.kind(), Kind::WrongKey, "{error}");
            false
        }
    }
}

fn ring(file: &Arc<dyn BlockDevice>, key: &Key) -> KeyRing {
    KeyRing::unlock(file.clone(), key).unwrap()
}

fn header(file: &Arc<dyn BlockDevice>) -> Vec<u8> {
    file.read_vec(0, 0x1DE00).unwrap()
}

fn key_slots(file: &Arc<dyn BlockDevice>) -> Vec<KeySlot> {
    LockedHeader::read(&**file)
        .unwrap()
        .unwrap()
        .describe()
        .key_slots
}

#[test]
fn a_changed_passphrase_leaves_nothing_of_the_old_one() {
    let file = image();
    let before = header(&file);
    ring(&file, &word("old"))
        .replace(0, &new_word("new"))
        .unwrap();
    assert!(opens(&file, &word("new")) && !opens(&file, &word("old")));
    let after = header(&file);
    // The layout is that of macOS: one entry at 0x60, followed by zeros. Only salt, vector and
    // wrapped keys differ.
    assert_eq!(before[..0x70], after[..0x70]);
    for (same, what) in [
        (0x84..0x94, "salt's padding"),
        (0x9C..0xC8, "lengths"),
        (0x108..0x1DE00, "the rest"),
    ] {
        assert_eq!(before[same.clone()], after[same], "{what}");
    }
    for old in [
        &before[0x70..0x84],
        &before[0x94..0x9C],
        &before[0xC8..0x108],
    ] {
        assert!(
            !after.windows(old.len()).any(|window| window == old),
            "a part of the old entry is left"
        );
    }
}

#[test]
fn several_ways_in() {
    let file = image();
    assert_eq!(
        ring(&file, &word("old"))
            .insert(&new_word("second"))
            .unwrap(),
        1
    );
    // Certificates are first; the header is readable by programs that expect the passphrase at a
    // fixed offset.
    assert_eq!(
        ring(&file, &word("second"))
            .insert(&new_certificate())
            .unwrap(),
        0
    );
    assert_eq!(
        ring(&file, &word("old"))
            .insert(&new_word("third"))
            .unwrap(),
        3
    );
    let id = Certificate::parse(CERTIFICATE_DER).unwrap().id().to_vec();
    let passphrase = KeySlot::Passphrase {
        iterations: 2,
        wrap: KeyWrap::TripleDes,
    };
    let expected = [
        KeySlot::PublicKey { id, bits: 2048 },
        passphrase.clone(),
        passphrase.clone(),
        passphrase,
    ];
    assert_eq!(key_slots(&file), expected);
    for key in [
        word("old"),
        word("second"),
        word("third"),
        private(OWNER),
        private(OWNER_PKCS1),
    ] {
        assert!(opens(&file, &key));
    }
    assert!(!opens(&file, &private(STRANGER)) && !opens(&file, &word("fourth")));
    let opened = ring(&file, &private(OWNER));
    assert_eq!(opened.opened(), 0);
    opened.remove(1).unwrap();
    assert!(
        !opens(&file, &word("old"))
            && opens(&file, &word("second"))
            && opens(&file, &private(OWNER))
    );
    assert_eq!(ring(&file, &word("third")).opened(), 2);
    ring(&file, &word("third")).remove(0).unwrap();
    assert!(!opens(&file, &private(OWNER)) && opens(&file, &word("second")));
    assert!(
        read(&file, &private(OWNER))
            .unwrap_err()
            .message()
            .contains("only with a passphrase")
    );
}

#[test]
fn a_certificate_may_be_the_only_way_in() {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(0));
    let certificates = vec![Certificate::parse(CERTIFICATE).unwrap()];
    let protection = Protection {
        key_bits: 128,
        block: 4096,
        passphrase: None,
        iterations: 0,
        key_wrap: KeyWrap::TripleDes,
        certificates,
    };
    let device = Device::create(file.clone(), &protection).unwrap();
    device.set_len(4096, AfterDiscard::Zeros).unwrap();
    device.write_at(1000, TEXT).unwrap();
    device.flush().unwrap();
    assert!(opens(&file, &private(OWNER)));
    assert!(
        read(&file, &word("old"))
            .unwrap_err()
            .message()
            .contains("only with a private key")
    );
    let nothing = Protection {
        certificates: Vec::new(),
        ..protection
    };
    assert_eq!(
        Device::create(Arc::new(Memory::zeros(0)), &nothing)
            .unwrap_err()
            .kind(),
        Kind::Invalid
    );
}

/// Source: the header files of the program vfdecrypt, which finds the passphrase at 0x2A8 "if
/// there's a recovery key".
#[test]
fn behind_one_certificate_the_passphrase_stands_at_0x2a8() {
    let file = image();
    ring(&file, &word("old"))
        .insert(&new_certificate())
        .unwrap();
    assert_eq!(
        header(&file)[0x2A8..0x2B4],
        [0, 0, 0, 0x67, 0, 0, 0, 0, 0, 0, 0, 2]
    );
}

#[test]
fn the_last_way_in_stays() {
    let file = image();
    let before = header(&file);
    let refused = |entry: usize, key: &Key| ring(&file, key).remove(entry).unwrap_err();
    assert!(
        refused(0, &word("old"))
            .message()
            .contains("last key entry")
    );
    assert_eq!(refused(1, &word("old")).kind(), Kind::NotFound);
    assert_eq!(header(&file), before);
    ring(&file, &word("old")).insert(&new_word("new")).unwrap();
    // Removing a key slot requires another key that opens the image.
    assert!(refused(1, &word("new")).message().contains("give another"));
    ring(&file, &word("new")).remove(0).unwrap();
    assert!(opens(&file, &word("new")));
}

#[test]
fn there_is_room_for_as_many_as_one_sector_leads_to() {
    let file = image();
    for n in 1..21 {
        ring(&file, &word("old"))
            .insert(&new_word(&n.to_string()))
            .unwrap();
    }
    let before = header(&file);
    let error = ring(&file, &word("20"))
        .insert(&new_word("21"))
        .unwrap_err();
    assert_eq!((error.kind(), header(&file) == before), (Kind::Limit, true));
    ring(&file, &word("20")).remove(0).unwrap();
    assert!(
        opens(&file, &word("20")) && !opens(&file, &word("old")) && key_slots(&file).len() == 20
    );
}

#[test]
fn erased_keys_are_gone() {
    let file = image();
    ring(&file, &word("old"))
        .insert(&new_certificate())
        .unwrap();
    erase_keys(&*file).unwrap();
    assert!(header(&file)[0x48..].iter().all(|&byte| byte == 0));
    for key in [word("old"), private(OWNER)] {
        let error = read(&file, &key).unwrap_err();
        assert!(
            error.kind() == Kind::Corrupt && error.message().contains("erased"),
            "{error}"
        );
    }
    // Erasing twice is harmless.
    erase_keys(&*file).unwrap();
}

/// Runs an operation on an image on a disk with power failures, and checks the state after every
/// crash.
fn survives(
    prepare: impl Fn(&Arc<dyn BlockDevice>),
    change: impl Fn(&Arc<dyn BlockDevice>),
    check: impl Fn(&Arc<dyn BlockDevice>),
) {
    let store = PowerCut::default();
    let file = store.open("image", Open::Create).unwrap().unwrap();
    make(&file);
    prepare(&file);
    store.sync().unwrap();
    let first = store.position();
    change(&file);
    let mut crashes = 0;
    for crash in store.crashes_from(first, 7, 12) {
        let found = crash
            .store
            .open("image", Open::Write)
            .unwrap()
            .expect("a synced name");
        check(&found);
        crashes += 1;
    }
    assert!(crashes > 100, "{crashes} crashes");
}

#[test]
fn a_crash_leaves_the_old_passphrase_or_the_new() {
    survives(
        |_| {},
        |file| {
            ring(file, &word("old"))
                .replace(0, &new_word("new"))
                .unwrap()
        },
        |found| {
            let (old, new) = (opens(found, &word("old")), opens(found, &word("new")));
            assert!(old != new, "old {old}, new {new}");
            // A retry succeeds and leaves nothing behind.
            let key = if old { word("old") } else { word("new") };
            ring(found, &key).replace(0, &new_word("newest")).unwrap();
            assert!(opens(found, &word("newest")));
            assert!(header(found)[0x108..].iter().all(|&byte| byte == 0));
        },
    );
}

/// A full disk or a failed write at any point: the error says which passphrase opens the image.
#[test]
fn a_failed_change_says_which_passphrase_is_in_force() {
    let mut changed = 0;
    for (call, fault) in [
        (Call::Write, Fault::NoSpace),
        (Call::Write, Fault::Io),
        (Call::Flush, Fault::Io),
    ] {
        let calls = at_every(call, fault, |faults, n| {
            let file = image();
            let faulty: Arc<dyn BlockDevice> = Arc::new(FaultyDevice::new(file.clone(), faults));
            let done = ring(&faulty, &word("old")).replace(0, &new_word("new"));
            let is_new = match &done {
                Ok(()) => true,
                Err(error) => error.reason() == Some(Reason::KeysChanged),
            };
            changed += u32::from(is_new && done.is_err());
            assert_eq!(opens(&file, &word("new")), is_new, "{call:?} {n}: {done:?}");
            assert_eq!(
                opens(&file, &word("old")),
                !is_new,
                "{call:?} {n}: {done:?}"
            );
        });
        assert!(calls > 2, "{calls} calls");
    }
    assert!(changed > 2, "{changed} failures after the commit");
}

#[test]
fn a_crash_never_takes_the_ways_in_that_stay() {
    let stay = |found: &Arc<dyn BlockDevice>| {
        assert!(opens(found, &word("old")) && opens(found, &word("second")))
    };
    let prepare = |file: &Arc<dyn BlockDevice>| {
        ring(file, &word("old"))
            .insert(&new_word("second"))
            .unwrap();
        ring(file, &word("old")).insert(&new_word("third")).unwrap();
    };
    survives(
        prepare,
        |file| {
            assert_eq!(
                ring(file, &word("old")).insert(&new_certificate()).unwrap(),
                0
            )
        },
        stay,
    );
    survives(
        prepare,
        |file| ring(file, &word("old")).remove(2).unwrap(),
        stay,
    );
    survives(
        prepare,
        |file| {
            ring(file, &word("second"))
                .replace(2, &new_word("new"))
                .unwrap()
        },
        stay,
    );
}

#[test]
fn invalid_keys_are_refused() {
    let refused = |pem: &[u8]| PrivateKey::parse(pem).unwrap_err();
    assert_eq!(refused(b"nonsense").kind(), Kind::Invalid);
    assert_eq!(refused(CERTIFICATE).kind(), Kind::Invalid);
    assert!(
        refused(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
            .message()
            .contains("the private key is encrypted")
    );
    let cut = &OWNER[..OWNER.len() / 2];
    assert!(refused(cut).message().contains("malformed"));
    for bytes in [
        &b""[..],
        OWNER,
        &CERTIFICATE[..100],
        &CERTIFICATE_DER[..100],
    ] {
        assert_eq!(Certificate::parse(bytes).unwrap_err().kind(), Kind::Invalid);
    }
    let error = Certificate::parse(include_bytes!("keys/curve-certificate.pem")).unwrap_err();
    assert!(
        error.kind() == Kind::Unsupported && error.message().contains("RSA"),
        "{error}"
    );
    // Key material is not displayed.
    let shown = format!("{:?} {:?}", private(OWNER), word("very secret"));
    assert_eq!(shown, "Private(PrivateKey(..)) Passphrase(Secret(..))");
}

#[test]
fn an_entry_in_an_unknown_form_is_named() {
    let file = image();
    ring(&file, &word("old"))
        .insert(&new_certificate())
        .unwrap();
    for (at, name) in [
        (0x24, "wrapping cipher"),
        (0x28, "padding"),
        (0x2C, "wrapping mode"),
    ] {
        let place = 0x4C + 40 + at + 3;
        let was = file.read_vec(place, 1).unwrap();
        file.write_at(place, &[was[0] ^ 0x40]).unwrap();
        let error = read(&file, &private(OWNER)).unwrap_err();
        assert!(
            error.kind() == Kind::Unsupported && error.message().contains(name),
            "{error}"
        );
        // The damaged entry does not prevent opening with the passphrase.
        assert!(opens(&file, &word("old")));
        file.write_at(place, &was).unwrap();
    }
    assert!(opens(&file, &private(OWNER)));
}

/// Certificate entries have the size and the position that macOS uses.
#[test]
fn certificate_entries_are_as_macos_writes_them() {
    let file = image();
    ring(&file, &word("old"))
        .insert(&new_certificate())
        .unwrap();
    let directory: Vec<u64> = file
        .read_vec(0x48, 44)
        .unwrap()
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u64::from(u32::from_be_bytes(*word)))
        .collect();
    // The count; for each entry its kind, and in two halves its offset and its size.
    assert_eq!(directory, [2, 2, 0, 0x74, 0, 564, 1, 0, 0x74 + 564, 0, 616]);
}

const WRAPS: [KeyWrap; 4] = [
    KeyWrap::TripleDes,
    KeyWrap::Aes128,
    KeyWrap::Aes192,
    KeyWrap::Aes256,
];

fn wrapped(text: &str, wrap: KeyWrap) -> NewKeySlot {
    NewKeySlot::Passphrase {
        passphrase: Secret::new(text.into()),
        iterations: 3,
        wrap,
    }
}

#[test]
fn passphrases_change_among_all_ways_of_wrapping() {
    for key_bits in [128, 256] {
        let file: Arc<dyn BlockDevice> = Arc::new(Memory::zeros(0));
        let passphrase = Some(Secret::new(b"old".to_vec()));
        let key_wrap = KeyWrap::Aes192;
        let protection = Protection {
            key_bits,
            block: 512,
            passphrase,
            iterations: 2,
            key_wrap,
            certificates: Vec::new(),
        };
        let device = Device::create(file.clone(), &protection).unwrap();
        device.set_len(4096, AfterDiscard::Zeros).unwrap();
        device.write_at(1000, TEXT).unwrap();
        device.flush().unwrap();
        // As measured: algorithm AES, 192 bits, a vector of 8 bytes, 41 or 57 bytes and 7 of
        // padding.
        let entry = file.read_vec(0x60, 0x68).unwrap();
        assert_eq!(entry[0x30..0x34], [0, 0, 0, 8]);
        assert_eq!(entry[0x54..0x5C], [0, 0, 0, 192, 0x80, 0, 0, 1]);
        assert_eq!(
            entry[0x64..0x68],
            [0, 0, 0, if key_bits == 128 { 48 } else { 64 }]
        );
        assert!(opens(&file, &word("old")) && !opens(&file, &word("Old")));
        for from in WRAPS {
            for to in WRAPS {
                ring(&file, &word("old"))
                    .replace(0, &wrapped("old", from))
                    .unwrap();
                ring(&file, &word("old"))
                    .replace(0, &wrapped("new", to))
                    .unwrap();
                assert_eq!(
                    key_slots(&file),
                    [KeySlot::Passphrase {
                        iterations: 3,
                        wrap: to
                    }]
                );
                assert!(
                    opens(&file, &word("new")) && !opens(&file, &word("old")),
                    "{from} to {to}"
                );
                ring(&file, &word("new"))
                    .replace(0, &wrapped("old", from))
                    .unwrap();
            }
        }
        for wrap in WRAPS {
            ring(&file, &word("old"))
                .insert(&wrapped(&wrap.to_string(), wrap))
                .unwrap();
        }
        assert!(
            WRAPS
                .iter()
                .all(|wrap| opens(&file, &word(&wrap.to_string())))
                && opens(&file, &word("old"))
        );
        ring(&file, &word("AES-128")).remove(0).unwrap();
        assert!(!opens(&file, &word("old")) && opens(&file, &word("3DES")));
    }
}

/// Changes `bytes` of entry `number` in the header.
fn change_entry(file: &Arc<dyn BlockDevice>, number: u64, at: u64, bytes: &[u8]) -> Vec<u8> {
    let place = u64::from_be_bytes(file.read_array(0x4C + 20 * number + 4).unwrap());
    file.write_at(place + at, bytes).unwrap();
    file.read_vec(place, 616).unwrap()
}

#[test]
fn unknown_key_entries_block_nothing_and_are_kept() {
    // Changes of the second of three passphrases: offset, value, and the message.
    let cases: [(u64, &[u8], &str); 9] = [
        (0x00, &[0, 0, 0, 0x68], "key derivation 0x68"),
        (0x04, &[0, 0, 0, 4], "derivation's MAC 0x4"),
        (0x08, &[0xFF; 4], "4294967295"),
        (0x08, &[0; 4], "iterations 0"),
        (0x0C, &[0, 0, 0, 99], "salt of 99 bytes"),
        (0x30, &[0, 0, 0, 12], "vector length 0xc"),
        (0x54, &[0, 0, 1, 0], "wrapping key bits 0x100"),
        (0x58, &[0x80, 0, 0, 9], "wrapping cipher 0x80000009"),
        (0x64, &[0, 0, 0, 41], "wrapped keys of 41 bytes"),
    ];
    for (at, bytes, words) in cases {
        let file = image();
        ring(&file, &word("old"))
            .insert(&new_word("second"))
            .unwrap();
        ring(&file, &word("old"))
            .insert(&wrapped("third", KeyWrap::Aes256))
            .unwrap();
        let kept = change_entry(&file, 1, at, bytes);
        assert!(
            matches!(&key_slots(&file)[1], KeySlot::Unknown { kind: 1, why, .. } if why.contains(words)),
            "{:?}",
            key_slots(&file)
        );
        assert!(
            opens(&file, &word("old")) && opens(&file, &word("third")),
            "{words}"
        );
        let error = read(&file, &word("second")).unwrap_err();
        assert!(
            error.kind() == Kind::WrongKey && error.message().contains(words),
            "{error}"
        );
        // It stays unchanged while the others are changed.
        ring(&file, &word("third"))
            .replace(0, &wrapped("first", KeyWrap::Aes128))
            .unwrap();
        ring(&file, &word("first"))
            .insert(&new_certificate())
            .unwrap();
        ring(&file, &private(OWNER)).remove(3).unwrap();
        let found = key_slots(&file);
        assert!(
            matches!(&found[2], KeySlot::Unknown { kind: 1, why, .. } if why.contains(words)),
            "{found:?}"
        );
        assert_eq!(change_entry(&file, 2, 0, &[]), kept, "{words}");
        assert!(
            opens(&file, &word("first"))
                && opens(&file, &private(OWNER))
                && !opens(&file, &word("third"))
        );
        ring(&file, &word("first")).remove(2).unwrap();
        assert_eq!(key_slots(&file).len(), 2);
    }
}

#[test]
fn places_that_no_entry_has_block_nothing() {
    let file = image();
    ring(&file, &word("old"))
        .insert(&new_word("second"))
        .unwrap();
    let whole = header(&file);
    // The kind, the offset and the size of the second entry.
    for (at, bytes, words) in [
        (0, [0, 0, 0, 0, 0, 0, 0, 3], "type 3"),
        (
            4,
            [0xFF; 8],
            "overlaps the directory of entries or the data",
        ),
        (
            12,
            [0, 0, 0, 0, 0, 2, 0, 0],
            "overlaps the directory of entries or the data",
        ),
        (12, [0, 0, 0, 0, 0, 0, 0, 9], "9 bytes"),
    ] {
        let bytes = if at == 0 { &bytes[4..] } else { &bytes[..] };
        file.write_at(0x4C + 20 + at, bytes).unwrap();
        assert!(opens(&file, &word("old")), "{words}");
        assert!(
            matches!(&key_slots(&file)[1], KeySlot::Unknown { why, .. } if why.contains(words)),
            "{:?}",
            key_slots(&file)
        );
        file.write_at(0, &whole).unwrap();
    }
    // An entry with an invalid offset cannot be kept, but can be removed.
    file.write_at(0x4C + 20 + 4, &[0xFF; 8]).unwrap();
    assert_eq!(
        ring(&file, &word("old"))
            .replace(0, &new_word("new"))
            .unwrap_err()
            .kind(),
        Kind::Corrupt
    );
    ring(&file, &word("old")).remove(1).unwrap();
    assert!(opens(&file, &word("old")) && key_slots(&file).len() == 1);
    // Overlapping entries cannot be kept either.
    file.write_at(0, &whole).unwrap();
    let first = file.read_vec(0x50, 8).unwrap();
    file.write_at(0x4C + 20 + 4, &first).unwrap();
    assert!(opens(&file, &word("old")));
    assert_eq!(
        ring(&file, &word("old"))
            .insert(&new_word("new"))
            .unwrap_err()
            .kind(),
        Kind::Corrupt
    );
}

#[test]
fn an_image_that_nothing_known_opens_says_why() {
    let file = image();
    change_entry(&file, 0, 0x58, &[0x80, 0, 0, 2]);
    for key in [word("old"), private(OWNER)] {
        let error = read(&file, &key).unwrap_err();
        assert!(
            error.kind() == Kind::Unsupported
                && error.message().contains("wrapping cipher 0x80000002"),
            "{error}"
        );
    }
}
