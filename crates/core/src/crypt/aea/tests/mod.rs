//! Tests of archives made by the fixture: whole ones, damaged ones, and ones that lie with right
//! MACs.

#[cfg(feature = "recipients")]
mod recipients;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::fixture::{ArchiveFixture, KEY, signer};
use super::*;
use crate::crypt::Secret;
use crate::device::{BlockDevice, BlockDeviceExt, Extent, FileRange, Info, Memory, read_only};
use crate::problem::{Problems, Severity};
use crate::progress::Silent;
use crate::{Error, Kind, Reason, Result};

/// Text that compresses, and is the same nowhere else.
fn text(len: usize) -> Vec<u8> {
    let lines = (0_u64..).map(|n| format!("{n:x} {:x}\n", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    lines.flat_map(String::into_bytes).take(len).collect()
}

fn open_with(bytes: &[u8], keys: &ArchiveKeys) -> Result<Archive> {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::from(bytes.to_vec()));
    let locked = LockedArchive::read(&*file)?.expect("it is an archive");
    Ok(Archive::new(file, locked.unlock(keys)?))
}

fn read_all(archive: &Archive) -> Result<Vec<u8>> {
    archive.read_vec(0, archive.info().len as usize)
}

const PROFILES: [Profile; 4] = [
    Profile::Signed,
    Profile::Symmetric,
    Profile::SymmetricSigned,
    Profile::Passphrase,
];

#[test]
fn each_profile_and_compression_reads_as_it_was() {
    let plain = text(200_000);
    for profile in PROFILES {
        for (compression, checksum) in [(b'-', 0), (b'e', 1), (b'x', 2), (b'z', 2)] {
            let fixture = ArchiveFixture {
                profile,
                compression,
                checksum,
                ..ArchiveFixture::default()
            };
            let bytes = fixture.of(&plain);
            let archive = open_with(&bytes, &fixture.keys()).unwrap();
            assert!(
                read_all(&archive).unwrap() == plain,
                "{profile:?} {compression}"
            );
            assert!(archive.is_authenticated());
            // Pieces of any place, backwards.
            for at in (0..plain.len() - 3000).step_by(7001).rev() {
                assert!(archive.read_vec(at as u64, 3000).unwrap() == plain[at..at + 3000]);
            }
            let mut problems = Problems::default();
            let checked = check(&archive, &mut problems, &Silent).unwrap();
            assert_eq!((checked.segments, checked.damaged), (13, 0));
            let warnings = u64::from(profile.is_signed());
            assert_eq!(problems.count(Severity::Warning), warnings);
            assert_eq!(problems.count(Severity::Damage), 0);
            if profile == Profile::Passphrase {
                break; // slow
            }
        }
    }
}

#[test]
fn large_segments_are_decoded_directly_and_ahead() {
    let fixture = ArchiveFixture {
        segment_size: 128 << 10,
        ..ArchiveFixture::default()
    };
    let plain = text(3_000_000);
    let archive = open_with(&fixture.of(&plain), &fixture.keys()).unwrap();
    assert!(read_all(&archive).unwrap() == plain);
    for (at, expected) in (0..).step_by(50_000).zip(plain.chunks(50_000)) {
        assert!(archive.read_vec(at, expected.len()).unwrap() == expected);
    }
}

#[test]
fn empty_and_exact_lengths() {
    let fixture = ArchiveFixture::default();
    for len in [0, 1, 16 << 10, 64 << 10, (64 << 10) + 1, 128 << 10] {
        let plain = text(len);
        let archive = open_with(&fixture.of(&plain), &fixture.keys()).unwrap();
        assert!(read_all(&archive).unwrap() == plain, "{len}");
        assert_eq!(
            archive.read_at(len as u64, &mut [0]).unwrap_err().kind(),
            Kind::OutOfRange
        );
    }
}

#[test]
fn missing_and_wrong_keys_are_distinguished() {
    let plain = text(1000);
    let none = ArchiveKeys::default();
    let fails = |profile, keys: &ArchiveKeys| {
        let fixture = ArchiveFixture {
            profile,
            ..ArchiveFixture::default()
        };
        let error = open_with(&fixture.of(&plain), keys).unwrap_err();
        assert_eq!(error.kind(), Kind::WrongKey, "{error}");
        error.reason()
    };
    assert_eq!(
        fails(Profile::Symmetric, &none),
        Some(Reason::ArchiveKeyNeeded)
    );
    assert_eq!(
        fails(Profile::SymmetricSigned, &none),
        Some(Reason::ArchiveKeyNeeded)
    );
    assert_eq!(
        fails(Profile::Passphrase, &none),
        Some(Reason::PassphraseNeeded)
    );
    let wrong = ArchiveKeys {
        key: Some(ArchiveKey::Symmetric(
            SymmetricKey::parse(&[1; 32]).unwrap(),
        )),
        signer: Some(signer()),
    };
    let is_wrong = Some(Reason::WrongArchiveKey);
    assert_eq!(fails(Profile::Symmetric, &wrong), is_wrong);
    assert_eq!(fails(Profile::SymmetricSigned, &wrong), is_wrong);
    // A key of another sort is none.
    assert_eq!(
        fails(Profile::Passphrase, &wrong),
        Some(Reason::PassphraseNeeded)
    );
    let passphrase = ArchiveKeys {
        key: Some(ArchiveKey::Passphrase(Secret::new(b"wrong".to_vec()))),
        signer: None,
    };
    assert_eq!(fails(Profile::Passphrase, &passphrase), None);
    let unsigned = ArchiveKeys {
        key: Some(ArchiveKey::Symmetric(SymmetricKey::parse(&KEY).unwrap())),
        signer: None,
    };
    assert_eq!(
        fails(Profile::SymmetricSigned, &unsigned),
        Some(Reason::SignerKeyNeeded)
    );
    let mut other = [8; 65];
    other[0] = 4;
    let other = ArchiveKeys {
        signer: Some(P256PublicKey::parse(&other).unwrap()),
        ..unsigned
    };
    assert_eq!(fails(Profile::SymmetricSigned, &other), is_wrong);
    assert_eq!(fails(Profile::Signed, &other), is_wrong);
}

#[test]
fn a_signed_archive_is_read_without_its_public_key_and_says_so() {
    let fixture = ArchiveFixture {
        profile: Profile::Signed,
        ..ArchiveFixture::default()
    };
    let plain = text(100_000);
    let mut bytes = fixture.of(&plain);
    let archive = open_with(&bytes, &ArchiveKeys::default()).unwrap();
    assert!(read_all(&archive).unwrap() == plain);
    assert!(!archive.is_authenticated());
    let signature = archive.description().signature;
    assert_eq!(signature, SignatureState::NoPublicKey);
    assert!(signature.warning().unwrap().contains("not verified"));
    // Its checksums are still compared.
    let last = bytes.len() - 5;
    bytes[last] ^= 1;
    let archive = open_with(&bytes, &ArchiveKeys::default()).unwrap();
    assert_eq!(read_all(&archive).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn the_description_needs_no_key() {
    for profile in PROFILES {
        let fixture = ArchiveFixture {
            profile,
            ..ArchiveFixture::default()
        };
        let file = Memory::from(fixture.of(b"x"));
        let description = LockedArchive::read(&file).unwrap().unwrap().describe();
        assert_eq!((description.profile, description.root), (profile, None));
        assert_eq!(description.metadata.unwrap()[0].name, "key");
        assert_eq!(
            description.signature == SignatureState::None,
            !profile.is_signed()
        );
    }
}

#[test]
fn any_changed_byte_is_an_error_at_its_place_and_never_other_contents() {
    let fixture = ArchiveFixture {
        segments_per_cluster: 2,
        checksum: 0,
        ..ArchiveFixture::default()
    };
    let plain = text(80_000);
    let bytes = fixture.of(&plain);
    let open_and_read =
        |bytes: &[u8]| -> Result<Vec<u8>> { read_all(&open_with(bytes, &fixture.keys())?) };
    for at in (4..200).chain((200..bytes.len()).step_by(97)) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        match open_and_read(&changed) {
            // The MAC after the last cluster, and those of absent segments, cover nothing.
            Ok(contents) => assert!(contents == plain, "byte {at}"),
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    Kind::Corrupt | Kind::WrongKey | Kind::Limit | Kind::Unsupported
                ),
                "byte {at}: {error}"
            ),
        }
    }
    // Undamaged segments are still read, and the check counts the rest.
    let mut changed = bytes.clone();
    let last = bytes.len() - 1;
    changed[last] ^= 1;
    let archive = open_with(&changed, &fixture.keys()).unwrap();
    assert!(archive.read_vec(0, 60_000).unwrap() == plain[..60_000]);
    let mut buf = vec![7; 80_000];
    let error = archive.read_at(0, &mut buf).unwrap_err();
    assert_eq!((error.kind(), error.layer()), (Kind::Corrupt, LAYER));
    assert_ne!(*error.place(), crate::error::Place::None);
    let mut problems = Problems::default();
    let checked = check(&archive, &mut problems, &Silent).unwrap();
    assert_eq!((checked.segments, checked.damaged), (5, 1));
    assert_eq!(problems.count(Severity::Damage), 1);
}

#[test]
fn a_truncated_file_says_so() {
    let fixture = ArchiveFixture::default();
    let bytes = fixture.of(&text(200_000));
    for len in (4..bytes.len()).step_by(1009).chain([11, 12, 25, 180]) {
        let error = open_with(&bytes[..len], &fixture.keys()).unwrap_err();
        assert_eq!(error.reason(), Some(Reason::Truncated), "{len}: {error}");
    }
    for len in 0..4 {
        let file = Memory::from(bytes[..len].to_vec());
        assert!(LockedArchive::read(&file).unwrap().is_none());
    }
}

/// Archives whose MACs are right, made by somebody who has the key.
#[test]
fn lies_are_refused_without_much_memory() {
    let plain = text(100_000);
    let fails = |fixture: ArchiveFixture| -> Error {
        let bytes = fixture.of(&plain);
        match open_with(&bytes, &fixture.keys()) {
            Ok(archive) => read_all(&archive).unwrap_err(),
            Err(error) => error,
        }
    };
    let root = |change_root: fn(&mut [u8])| {
        fails(ArchiveFixture {
            change_root,
            ..ArchiveFixture::default()
        })
        .kind()
    };
    assert_eq!(root(|root| root[..8].fill(0xFF)), Kind::Limit);
    assert_eq!(root(|root| root[5] = 1), Kind::Corrupt, "a terabyte");
    assert_eq!(root(|root| root[8..16].fill(0x7F)), Kind::Corrupt);
    assert_eq!(root(|root| root[16..20].fill(0)), Kind::Corrupt);
    assert_eq!(root(|root| root[16..20].fill(0xFF)), Kind::Limit);
    assert_eq!(root(|root| root[20..24].fill(0)), Kind::Corrupt);
    assert_eq!(root(|root| root[20..24].fill(0xFF)), Kind::Limit);
    assert_eq!(root(|root| root[24] = b'?'), Kind::Unsupported);
    assert_eq!(root(|root| root[25] = 3), Kind::Unsupported);
    for compression in [b'-', b'4', b'b', b'e', b'f', b'x'] {
        let fixture = ArchiveFixture {
            compression,
            ..ArchiveFixture::default()
        };
        let kind = match compression {
            // Segments of zlib under another name.
            b'-' | b'4' | b'b' | b'f' => fails(ArchiveFixture {
                compression: b'z',
                change_root: match compression {
                    b'-' => |root| root[24] = b'-',
                    b'4' => |root| root[24] = b'4',
                    b'b' => |root| root[24] = b'b',
                    _ => |root| root[24] = b'f',
                },
                ..fixture
            }),
            _ => fails(ArchiveFixture {
                change_root: |root| root[24] = b'z',
                ..fixture
            }),
        };
        assert_eq!(kind.kind(), Kind::Corrupt, "{kind}");
    }
    let cluster = |change_cluster: fn(u32, &mut [u8])| {
        fails(ArchiveFixture {
            change_cluster,
            ..ArchiveFixture::default()
        })
        .kind()
    };
    for change in [
        (|_, headers| headers[0] ^= 1) as fn(u32, &mut [u8]),
        |_, headers| headers[..4].fill(0xFF),
        |_, headers| headers[..8].fill(0xFF),
        |_, headers| headers[4..8].fill(0xFF),
        |_, headers| headers[4..8].fill(0),
        |_, headers| headers[8] ^= 1,
        |number, headers| headers[4] ^= u8::from(number == 1),
    ] {
        assert_eq!(cluster(change), Kind::Corrupt);
    }
}

#[test]
fn headers_that_lie_before_the_key_are_refused() {
    let bytes = ArchiveFixture::default().of(b"x");
    let read = |change: fn(&mut [u8])| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        LockedArchive::read(&Memory::from(bytes))
            .map(drop)
            .unwrap_err()
            .kind()
    };
    assert_eq!(read(|bytes| bytes[8..12].fill(0xFF)), Kind::Limit);
    assert_eq!(read(|bytes| bytes[9] = 0x10), Kind::Corrupt);
    assert_eq!(read(|bytes| bytes[4] = 6), Kind::Unsupported);
    assert_eq!(read(|bytes| bytes[6] = 1), Kind::Unsupported);
    let mut of_recipient = bytes.clone();
    of_recipient[4] = 3;
    of_recipient.resize(1000, 0);
    let locked = LockedArchive::read(&Memory::from(of_recipient))
        .unwrap()
        .unwrap();
    assert_eq!(locked.describe().profile, Profile::Recipient);
    let error = locked.unlock(&ArchiveKeys::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::WrongKey);
    assert_eq!(error.reason(), Some(Reason::ArchivePrivateKeyNeeded));
}

#[test]
fn many_threads_read_the_same_archive() {
    let fixture = ArchiveFixture {
        segments_per_cluster: 1,
        ..ArchiveFixture::default()
    };
    // More clusters than headers are kept.
    let plain = text(100 * (16 << 10));
    let archive = open_with(&fixture.of(&plain), &fixture.keys()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (archive, plain) = (&archive, &plain);
            scope.spawn(move || {
                for n in 0..50 {
                    let at = (n * 7919 + thread * 104_729) * 16 % (plain.len() - 20_000);
                    let read = archive.read_vec(at as u64, 20_000).unwrap();
                    assert!(read == plain[at..at + 20_000]);
                }
            });
        }
    });
}

/// Counts the bytes that are read of a file.
#[derive(Debug)]
struct Counting {
    file: Memory,
    read: AtomicU64,
}

impl BlockDevice for Counting {
    fn info(&self) -> Info {
        self.file.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.file.read_at(offset, buf)
    }

    read_only!("counting");

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.file.extent_at(range)
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.file.file_range(range)
    }
}

#[test]
fn a_read_takes_the_headers_on_the_way_and_its_segments() {
    let fixture = ArchiveFixture {
        segment_size: 64 << 10,
        segments_per_cluster: 8,
        compression: b'-',
        ..ArchiveFixture::default()
    };
    let plain = text(10 << 20);
    let file = Arc::new(Counting {
        file: Memory::from(fixture.of(&plain)),
        read: AtomicU64::new(0),
    });
    let locked = LockedArchive::read(&*file).unwrap().unwrap();
    let archive = Archive::new(file.clone(), locked.unlock(&fixture.keys()).unwrap());
    let taken = || file.read.swap(0, Ordering::Relaxed);
    taken();
    let (header, segment) = (8 * (8 + 32 + 32) + 32, 64 << 10);
    let at = plain.len() - 100;
    assert!(archive.read_vec(at as u64, 100).unwrap() == plain[at..]);
    assert_eq!(taken(), 20 * header + segment);
    assert!(archive.read_vec(at as u64 - 1000, 100).is_ok());
    assert_eq!(taken(), 0, "it is cached");
    assert!(archive.read_vec(0, 100).is_ok());
    assert_eq!(taken(), header + segment);
}

#[cfg(feature = "signatures")]
#[test]
fn signatures_are_verified() {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
    let key = P256PublicKey::parse(pair.public_key().as_ref()).unwrap();
    let fixture = ArchiveFixture {
        profile: Profile::Signed,
        ..ArchiveFixture::default()
    };
    let mut bytes = fixture.signed_by(&key, b"contents");
    let keys = ArchiveKeys {
        key: None,
        signer: Some(key),
    };
    let state = |bytes: &[u8]| open_with(bytes, &keys).map(|it| it.description().signature);
    assert_eq!(state(&bytes).unwrap(), SignatureState::NotSigned);
    let at = 12 + fixture.metadata.len();
    let prologue = at + 128 + 32 + 0x90;
    let signature = pair.sign(&random, &bytes[..prologue]).unwrap();
    bytes[at..at + signature.as_ref().len()].copy_from_slice(signature.as_ref());
    assert_eq!(state(&bytes).unwrap(), SignatureState::Verified);
    bytes[at + 10] ^= 1;
    assert_eq!(state(&bytes).unwrap_err().kind(), Kind::Corrupt);
    bytes[at + 1] = 200;
    assert_eq!(state(&bytes).unwrap_err().kind(), Kind::Corrupt);
}

/// A new archive of `plain` in segments of 16 KiB, four in a cluster.
fn written(options: &NewArchive, plain: &[u8]) -> Vec<u8> {
    let file = Memory::zeros(0);
    let mut writer = ArchiveWriter::with_segments(&file, options, 16 << 10, 4).unwrap();
    for piece in plain.chunks(10_001) {
        writer.write(piece).unwrap();
    }
    let root = writer.finish(&Silent).unwrap().root.unwrap();
    let len = file.info().len;
    assert_eq!((root.size, root.archive_size), (plain.len() as u64, len));
    file.read_vec(0, len as usize).unwrap()
}

/// Text that each compression shortens.
fn repetitive(len: usize) -> Vec<u8> {
    let lines = (0..).map(|n| format!("line {} of a text that is much the same\n", n / 7));
    lines.flat_map(String::into_bytes).take(len).collect()
}

fn symmetric() -> SymmetricKey {
    SymmetricKey::parse(&KEY).unwrap()
}

#[test]
fn written_archives_read_as_they_were() {
    let of_key = ArchiveKeys {
        key: Some(ArchiveKey::Symmetric(symmetric())),
        signer: None,
    };
    for compression in Compression::WRITTEN {
        let options = NewArchive {
            key: Some(NewArchiveKey::Symmetric(symmetric())),
            signer: None,
            compression,
        };
        for len in [0, 1, 16 << 10, 64 << 10, (64 << 10) + 1, 200_000] {
            let plain = repetitive(len);
            let bytes = written(&options, &plain);
            let archive = open_with(&bytes, &of_key).unwrap();
            assert!(read_all(&archive).unwrap() == plain, "{compression} {len}");
            let mut problems = Problems::default();
            let checked = check(&archive, &mut problems, &Silent).unwrap();
            assert_eq!(checked.damaged, 0);
            assert_eq!(problems.count(Severity::Warning), 0);
            let root = archive.description().root.unwrap();
            assert_eq!(root.archive_size, bytes.len() as u64);
            assert_eq!(root.compression, compression);
            let is_shorter = bytes.len() < plain.len();
            assert!(len < 200_000 || is_shorter == (compression != Compression::None));
        }
    }
}

#[test]
fn written_archives_have_keys_of_their_own() {
    let passphrase = Secret::new(b"correct horse".to_vec());
    let options = NewArchive {
        key: Some(NewArchiveKey::Passphrase(passphrase.clone())),
        signer: None,
        compression: Compression::Zlib,
    };
    let plain = text(50_000);
    let (one, two) = (written(&options, &plain), written(&options, &plain));
    let same = one.iter().zip(&two).filter(|(a, b)| a == b).count();
    assert!(same < one.len() / 50, "{same}");
    let keys = ArchiveKeys {
        key: Some(ArchiveKey::Passphrase(passphrase)),
        signer: None,
    };
    assert!(read_all(&open_with(&one, &keys).unwrap()).unwrap() == plain);
    let wrong = ArchiveKeys {
        key: Some(ArchiveKey::Passphrase(Secret::new(b"other".to_vec()))),
        signer: None,
    };
    assert_eq!(open_with(&one, &wrong).unwrap_err().kind(), Kind::WrongKey);
}

#[test]
fn impossible_archives_are_refused() {
    let refused = |options: &NewArchive| {
        let file = Memory::zeros(0);
        let refused = ArchiveWriter::new(&file, options).map(drop);
        assert_eq!(file.info().len, 0);
        refused.unwrap_err().kind()
    };
    let mut options = NewArchive {
        key: None,
        signer: None,
        compression: Compression::None,
    };
    assert_eq!(refused(&options), Kind::Invalid);
    options.key = Some(NewArchiveKey::Symmetric(symmetric()));
    options.compression = Compression::Lzbitmap;
    assert_eq!(refused(&options), Kind::Unsupported);
}
