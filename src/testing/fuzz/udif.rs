//! Compressed images and the streams in them.

use std::sync::Arc;

use crate::codec::{Codec, Encoder, Level};
use crate::container::udif::{self, SegmentPart, Udif};
use crate::device::{BlockDevice, BlockDeviceExt, Memory};
use crate::problem::{Problems, Severity};
use crate::progress::Silent;

/// Limits of a test: number of runs of one image that are read, and bytes of a disk whose checksums
/// are computed.
const MAX_RUNS: usize = 20;
const MAX_SUMMED: u64 = 4 << 20;

const CODECS: [Codec; 5] = [
    Codec::Adc,
    Codec::Zlib,
    Codec::Bzip2,
    Codec::Lzfse,
    Codec::Lzma,
];

/// Takes an input of a codec, the decoded length in bytes (16 bits), and a stream. It decodes to
/// exactly that length or is refused, with the same result each time, independent of the buffer's
/// previous contents.
pub fn codec(input: &[u8]) {
    let Some((&[codec, low, high], packed)) = input.split_first_chunk() else {
        return;
    };
    let codec = CODECS[usize::from(codec) % CODECS.len()];
    let len = usize::from(u16::from_le_bytes([low, high]));
    let (mut one, mut other) = (vec![0; len], vec![0xff; len]);
    let decoded = codec.decode(packed, &mut one).is_ok();
    assert_eq!(decoded, codec.decode(packed, &mut other).is_ok());
    assert!(
        !decoded || one == other,
        "{codec:?} left a part of its room as it was"
    );
}

/// Takes an input of a codec, a level, and bytes. If the compressed stream is shorter, it decodes
/// to the bytes.
pub fn encode(input: &[u8]) {
    let Some((&[codec, level], plain)) = input.split_first_chunk() else {
        return;
    };
    let codec = CODECS[usize::from(codec) % CODECS.len()];
    let level = Level::new(level % 9 + 1).expect("from 1 to 9");
    let mut packed = Vec::new();
    if Encoder::new(codec, level)
        .encode(plain, &mut packed)
        .expect("anything can be compressed")
    {
        assert!(packed.len() < plain.len());
        let mut back = vec![0xaa; plain.len()];
        codec
            .decode(&packed, &mut back)
            .expect("what was encoded decodes");
        assert!(back == plain, "{codec:?}");
    }
}

/// Takes an input that is a compressed image. It is refused, and a check reports damage, or it is a
/// disk of whole sectors whose runs are within it and, as far as they decode, read the same in one
/// call and in pieces.
pub fn udif(input: &[u8]) {
    let file: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(input));
    let mut problems = Problems::default();
    let part = SegmentPart {
        file: file.clone(),
        name: "fuzz.dmg".into(),
    };
    let checked = udif::check(vec![part], &mut problems, &Silent);
    let report = checked.is_err() || problems.count(Severity::Damage) > 0;
    let Ok(image) = Udif::open(file) else {
        assert!(
            report,
            "a check finds nothing wrong with an image that does not open"
        );
        return;
    };
    // An image without any table opens, as zeros; a check refuses it.
    assert!(checked.is_ok_and(|checked| checked.info().len == image.info().len) || report);
    let len = image.info().len;
    assert!(len.is_multiple_of(512));
    for extent in image.extents(0..len).take(MAX_RUNS) {
        let Ok((range, _)) = extent else { return };
        let piece = (range.end - range.start).min(4096);
        let start = image.read_vec(range.start, piece as usize).ok();
        let last = image.read_vec(range.end - piece, piece as usize).ok();
        let halves = [range.start, range.start + piece / 2]
            .map(|at| image.read_vec(at, (piece / 2) as usize).ok());
        if let (Some(start), [Some(first), Some(second)]) = (start, halves) {
            assert!(start.starts_with(&[first, second].concat()));
            assert!(last.is_some() || range.end - range.start > piece);
        }
    }
    if len <= MAX_SUMMED {
        let _ = image.verify(&Silent);
    }
}

/// Returns text that compresses, but not to nothing.
fn plain() -> Vec<u8> {
    (0..400_u32)
        .flat_map(|n| format!("line {n} of {}; ", n * n % 97).into_bytes())
        .take(4096)
        .collect()
}

fn packed(codec: Codec) -> Vec<u8> {
    let mut packed = Vec::new();
    let shorter = Encoder::new(codec, Level::default())
        .encode(&plain(), &mut packed)
        .expect("memory takes everything");
    assert!(shorter, "{codec:?}");
    packed
}

pub(super) fn codec_seeds() -> Vec<Vec<u8>> {
    let len = (plain().len() as u16).to_le_bytes();
    (0..)
        .zip(CODECS)
        .map(|(number, codec)| [&[number, len[0], len[1]][..], &packed(codec)].concat())
        .collect()
}

pub(super) fn encode_seeds() -> Vec<Vec<u8>> {
    (0..10)
        .map(|number| {
            [
                &[number, number / 5 * 5][..],
                &plain(),
                &[number; 300],
                &plain(),
            ]
            .concat()
        })
        .collect()
}

pub(super) fn udif_seeds() -> Vec<Vec<u8>> {
    let kinds = [
        0x8000_0004_u32,
        0x8000_0005,
        0x8000_0006,
        0x8000_0007,
        0x8000_0008,
    ];
    kinds
        .into_iter()
        .zip(CODECS)
        .map(|(kind, codec)| image(kind, &packed(codec)))
        .collect()
}

/// Returns an image of 24 sectors: eight compressed, eight raw, eight zeros. Source:
/// docs/formats/udif.md.
fn image(kind: u32, packed: &[u8]) -> Vec<u8> {
    let mut fork = packed.to_vec();
    fork.extend(plain());
    let stored = packed.len() as u64;
    let runs = [(kind, 0, stored, 0), (1, stored, 4096, 8), (0, 0, 0, 16)];
    let mut table = [&b"mish\0\0\0\x01"[..], &be64([0, 24, 0])].concat();
    table.resize(0xc8, 0);
    table.extend((runs.len() as u32 + 1).to_be_bytes());
    for (kind, offset, length, first) in runs {
        table.extend([kind.to_be_bytes(), [0; 4]].concat());
        table.extend(be64([first, 8, offset, length]));
    }
    table.extend(0xffff_ffff_u32.to_be_bytes());
    table.extend([&[0; 4][..], &be64([24, 0, 0, 0])].concat());
    let entry = plist::Dictionary::from_iter([
        ("Data", plist::Value::Data(table)),
        ("ID", "0".into()),
        ("Name", "whole".into()),
    ]);
    let forks = plist::Dictionary::from_iter([("blkx", plist::Value::Array(vec![entry.into()]))]);
    let list = plist::Value::from(plist::Dictionary::from_iter([(
        "resource-fork",
        plist::Value::from(forks),
    )]));
    let mut file = fork.clone();
    list.to_writer_xml(&mut file)
        .expect("memory takes everything");
    let list_len = file.len() - fork.len();
    let mut trailer = vec![0; 512];
    trailer[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
    trailer[0x20..0x28].copy_from_slice(&(fork.len() as u64).to_be_bytes());
    trailer[0xd8..0xe8].copy_from_slice(&be64([fork.len() as u64, list_len as u64]));
    trailer[0x1e8..0x1f4].copy_from_slice(&[&1_u32.to_be_bytes()[..], &be64([24])].concat());
    file.extend(trailer);
    file
}

fn be64<const N: usize>(numbers: [u64; N]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_good() {
        for codec in CODECS {
            let mut room = vec![0; plain().len()];
            codec.decode(&packed(codec), &mut room).unwrap();
            assert_eq!(room, plain(), "{codec:?}");
        }
        for seed in udif_seeds() {
            let image = Udif::open(Arc::new(Memory::read_only(seed))).unwrap();
            assert_eq!(
                image.read_vec(0, 24 * 512).unwrap(),
                [plain(), plain(), vec![0; 4096]].concat()
            );
        }
    }
}
