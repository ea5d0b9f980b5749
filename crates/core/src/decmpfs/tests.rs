//! Tests with attributes and forks as specified.

use std::ops::Range;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::codec::{Codec, Encoder, Level};
use crate::device::BlockDeviceExt;

fn attribute(number: u32, size: u64, payload: &[u8]) -> Vec<u8> {
    let mut value = HeaderRaw {
        magic: MAGIC,
        compression_type: number.into(),
        uncompressed_size: size.into(),
    }
    .as_bytes()
    .to_vec();
    value.extend_from_slice(payload);
    value
}

fn no_fork() -> Result<Arc<dyn BlockDevice>> {
    panic!("the resource fork is not wanted")
}

fn of_fork(number: u32, size: usize, fork: &[u8]) -> Result<Arc<dyn BlockDevice>> {
    contents(&attribute(number, size as u64, &[]), || {
        Ok(Arc::new(Memory::read_only(fork)))
    })
}

fn read(device: &dyn BlockDevice) -> Vec<u8> {
    device.read_vec(0, device.info().len as usize).unwrap()
}

/// Returns compressible text with varying lines.
fn text(len: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|n| format!("{n} of {}; ", n.wrapping_mul(7919) % 9973).into_bytes())
        .take(len)
        .collect()
}

/// Returns the chunks of `plain`, compressed with `codec`; every third is stored after `marker`.
fn chunks(codec: Codec, marker: u8, plain: &[u8]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(codec, Level::default());
    let pack = |(index, chunk): (usize, &[u8])| {
        let mut packed = Vec::new();
        if index % 3 == 2 || !encoder.encode(chunk, &mut packed).unwrap() {
            packed = [&[marker], chunk].concat();
        }
        packed
    };
    plain.chunks(CHUNK as usize).enumerate().map(pack).collect()
}

/// Returns a classic resource fork of one resource (§4.1), without its map, which is not read.
fn classic(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut fork = vec![0; 0x100];
    fork[..4].copy_from_slice(&RESOURCES_BYTES);
    let mut at = 4 + 8 * chunks.len() as u32;
    let len = at + chunks.iter().map(|chunk| chunk.len() as u32).sum::<u32>();
    fork.extend(len.to_be_bytes());
    fork.extend((chunks.len() as u32).to_le_bytes());
    for chunk in chunks {
        fork.extend(at.to_le_bytes());
        fork.extend((chunk.len() as u32).to_le_bytes());
        at += chunk.len() as u32;
    }
    fork.extend(chunks.concat());
    fork
}

const RESOURCES_BYTES: [u8; 4] = layout::RESOURCES.to_be_bytes();

/// Returns a fork that starts with offsets (§4.2).
fn offsets(chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut fork = Vec::new();
    let mut at = 4 * (chunks.len() as u32 + 1);
    fork.extend(at.to_le_bytes());
    for chunk in chunks {
        at += chunk.len() as u32;
        fork.extend(at.to_le_bytes());
    }
    fork.extend(chunks.concat());
    fork
}

/// Returns a chunk in Apple's LZ4 frame, without matches: the first half packed, the rest plain.
fn lz4(plain: &[u8]) -> Vec<u8> {
    let (first, rest) = plain.split_at(plain.len() / 2);
    let mut literals = vec![0xF0];
    match first.len().checked_sub(15) {
        Some(more) => {
            literals.extend(std::iter::repeat_n(0xFF, more / 255));
            literals.push((more % 255) as u8);
        }
        None => literals[0] = (first.len() as u8) << 4,
    }
    literals.extend_from_slice(first);
    let len = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
    [
        &b"bv41"[..],
        &len(first),
        &len(&literals),
        &literals,
        b"bv4-",
        &len(rest),
        rest,
        b"bv4$",
    ]
    .concat()
}

/// macOS 27 refuses a chunk of types 11 to 16 that begins with 0.
#[test]
fn a_chunk_behind_a_zero_is_damaged() {
    for number in [11, 13, 15] {
        let payload = [&[0][..], b"four"].concat();
        let error = contents(&attribute(number, 4, &payload), no_fork).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "type {number}");
        let device = of_fork(number + 1, 4, &offsets(&[payload])).unwrap();
        let error = device.read_vec(0, 4).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "type {}", number + 1);
    }
}

#[test]
fn contents_in_the_attribute() {
    let plain = text(900);
    let zlib = chunks(Codec::Zlib, 0xFF, &plain).concat();
    let lzfse = chunks(Codec::Lzfse, 0xFF, &plain).concat();
    let stored = |marker: u8| [&[marker], &plain[..]].concat();
    for (number, payload) in [
        (1, plain.clone()),
        (3, zlib),
        (3, stored(0xFF)),
        (7, stored(0x06)),
        (9, stored(0xCC)),
        (11, lzfse),
        (11, stored(0xFF)),
        (13, stored(0xFF)),
        (15, stored(0xFF)),
        (15, lz4(&plain)),
    ] {
        let device = contents(&attribute(number, 900, &payload), no_fork).unwrap();
        assert_eq!(read(&*device), plain, "type {number}");
    }
    let zeros = contents(&attribute(5, 3 << 30, &[0; 12]), no_fork).unwrap();
    assert_eq!(zeros.info().len, 3 << 30);
    assert_eq!(zeros.read_vec(2 << 30, 10).unwrap(), [0; 10]);
    let empty = contents(&attribute(3, 0, &[]), no_fork).unwrap();
    assert_eq!(empty.info().len, 0);
}

#[test]
fn contents_in_the_fork() {
    for len in [0, 1, 65_535, 65_536, 65_537, 1_500_000] {
        let plain = text(len);
        let zlib = chunks(Codec::Zlib, 0xFF, &plain);
        let lzfse = chunks(Codec::Lzfse, 0xFF, &plain);
        let stored: Vec<_> = plain
            .chunks(CHUNK as usize)
            .map(|chunk| [&[0xCC], chunk].concat())
            .collect();
        let marked: Vec<_> = plain
            .chunks(CHUNK as usize)
            .map(|chunk| [&[0xFF], chunk].concat())
            .collect();
        let lz4s: Vec<_> = plain.chunks(CHUNK as usize).map(lz4).collect();
        for (number, fork) in [
            (4, classic(&zlib)),
            (12, offsets(&lzfse)),
            (10, offsets(&stored)),
            (10, classic(&stored)),
            (12, offsets(&marked)),
            (14, offsets(&marked)),
            (16, offsets(&marked)),
            (16, offsets(&lz4s)),
        ] {
            let device = of_fork(number, len, &fork).unwrap();
            assert_eq!(device.info().len, len as u64);
            assert!(read(&*device) == plain, "type {number}, {len} bytes");
        }
    }
}

#[test]
fn on_any_place_in_any_order() {
    let plain = text(1_500_000);
    let device = of_fork(4, plain.len(), &classic(&chunks(Codec::Zlib, 0xFF, &plain))).unwrap();
    let check = |range: Range<usize>| {
        assert!(
            device.read_vec(range.start as u64, range.len()).unwrap() == plain[range.clone()],
            "{range:?}"
        );
    };
    // Sequential reads in pieces of all sizes, then random ones.
    for piece in [1_000, 4_096, 65_536, 100_000, 900_000] {
        (0..plain.len())
            .step_by(piece)
            .for_each(|at| check(at..(at + piece).min(plain.len())));
    }
    (0..300_usize).for_each(|n| {
        let at = n * 104_729 % plain.len();
        check(at..(at + n * 7_919 % 700_000).min(plain.len()));
    });
    assert!(device.read_vec(1_499_999, 2).is_err());
}

#[test]
fn invalid_attributes_are_refused() {
    let report = |error: Error| format!("{error:?}");
    let inline = |number, size, payload: &[u8]| {
        report(contents(&attribute(number, size, payload), no_fork).unwrap_err())
    };
    assert!(inline(1, 5, b"four").contains("4 bytes; expected 5"));
    assert!(inline(3, 5, b"\xFFfour").contains("4 bytes; expected 5"));
    assert!(inline(3, 5, b"").contains("empty"));
    assert!(inline(3, 1 << 40, b"\xFF").contains("1099511627776"));
    assert!(inline(6, 5, b"").contains("type 6"));
    assert!(inline(0x8000_0001, 5, b"").contains("server"));

    let plain = text(200_000);
    let fork = offsets(&chunks(Codec::Lzfse, 0xFF, &plain));
    let open = |size, fork: &[u8]| of_fork(12, size, fork);
    assert!(report(open(300_000, &fork).unwrap_err()).contains("requires 5 chunks"));
    assert!(report(open(200_000, &fork[..3]).unwrap_err()).contains("resource fork at 3"));
    let mut outside = fork.clone();
    outside[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let device = open(200_000, &outside).unwrap();
    assert!(report(device.read_vec(0, 1).unwrap_err()).contains("invalid chunk 0"));
    assert_eq!(
        device.read_vec(140_000, 100).unwrap(),
        plain[140_000..140_100],
        "the others are read"
    );
    let mut damaged = fork;
    damaged[40] ^= 0x55;
    assert!(
        report(open(200_000, &damaged).unwrap().read_vec(0, 1).unwrap_err())
            .contains("cannot decompress chunk 0")
    );
}

/// Asserts that a size that disagrees with the payload, in either direction, is reported at the
/// latest when all bytes are read.
#[test]
fn sizes_that_disagree_with_the_payload() {
    let zbm = |plain: &[u8]| {
        let number = |n: usize| [n as u8, (n >> 8) as u8, (n >> 16) as u8];
        let block = |part: &[u8]| [&number(part.len() + 6)[..], &number(part.len()), part].concat();
        let blocks: Vec<u8> = plain.chunks(0x8000).flat_map(block).collect();
        [b"ZBM\x09", &blocks[..], &[6, 0, 0, 0, 0, 0]].concat()
    };
    let lzvn = |plain: &[u8]| {
        let mut packed = Vec::new();
        assert!(crate::codec::LzvnEncoder::default().encode(plain, &mut packed));
        packed
    };
    let of = |codec| move |plain: &[u8]| chunks(codec, 0xFF, plain).concat();
    let behind = |marker: u8| move |plain: &[u8]| [&[marker], plain].concat();
    type Pack<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let inline: [(u32, Pack<'_>); 9] = [
        (1, &<[u8]>::to_vec),
        (3, &of(Codec::Zlib)),
        (3, &behind(0xFF)),
        (7, &lzvn),
        (7, &behind(0x06)),
        (9, &behind(0xCC)),
        (11, &of(Codec::Lzfse)),
        (13, &zbm),
        (13, &behind(0xFF)),
    ];
    let right = 900;
    let plain = text(right);
    for (number, pack) in inline {
        let payload = pack(&plain);
        let open = |size| contents(&attribute(number, size, &payload), no_fork);
        assert_eq!(read(&*open(900).unwrap()), plain, "type {number}");
        for size in [0, 1, 899, 901, 4 << 20] {
            let error = open(size).expect_err(&format!("type {number}, {size} bytes"));
            assert_eq!(
                error.kind(),
                Kind::Corrupt,
                "type {number}, {size} bytes: {error}"
            );
        }
    }

    let plain = text(200_000);
    let each = |pack: Pack<'_>| plain.chunks(CHUNK as usize).map(pack).collect::<Vec<_>>();
    let forks = [
        (4, classic(&each(&of(Codec::Zlib)))),
        (4, classic(&each(&behind(0xFF)))),
        (8, offsets(&each(&lzvn))),
        (8, offsets(&each(&behind(0x06)))),
        (10, offsets(&each(&behind(0xCC)))),
        (10, classic(&each(&behind(0xCC)))),
        (12, offsets(&each(&of(Codec::Lzfse)))),
        (14, offsets(&each(&zbm))),
        (14, offsets(&each(&behind(0xFF)))),
    ];
    for (number, fork) in forks {
        let all =
            |size: usize| of_fork(number, size, &fork).and_then(|device| device.read_vec(0, size));
        assert!(all(200_000).unwrap() == plain, "type {number}");
        for size in [
            0, 1, 65_536, 131_072, 196_608, 199_999, 200_001, 262_144, 262_145,
        ] {
            let error = all(size).expect_err(&format!("type {number}, {size} bytes"));
            assert_eq!(
                error.kind(),
                Kind::Corrupt,
                "type {number}, {size} bytes: {error}"
            );
        }
    }
}

#[test]
fn compressed_files_are_recognized() {
    let value = attribute(3, 5, b"\xFFabcde");
    assert_eq!(
        Compression::parse(&value),
        Some(Compression { number: 3, size: 5 })
    );
    assert_eq!(Compression::parse(&value[..15]), None);
    assert_eq!(Compression::parse(b"cmpf............"), None);
    assert_eq!(Compression::parse(&attribute(3, 5, &[0; 3787])), None);
    assert_eq!(
        Compression::parse(&attribute(layout::DATALESS_PACKAGE, 3 << 40 | 7, &[]))
            .unwrap()
            .size,
        7
    );
}

proptest! {
    #[test]
    fn noise_is_refused_or_read(number in 0_u32..16, size in 0_u64..300_000, payload in prop::collection::vec(any::<u8>(), 0..600)) {
        let fork: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(payload.clone()));
        if let Ok(device) = contents(&attribute(number, size, &payload), || Ok(fork)) {
            let _ = device.read_vec(0, size as usize);
        }
    }
}
