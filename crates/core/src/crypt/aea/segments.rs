//! Decoding of one segment: authentication, decryption, decompression and its checksum.

use sha2::{Digest, Sha256};

use super::LAYER;
use super::clusters::{Cluster, Segment};
use super::derive::KeySchedule;
use super::layout::{ChecksumKind, Compression, RootHeader};
use crate::codec::{self, Codec};
use crate::device::{self, BlockDevice};
use crate::size::narrow;
use crate::{Error, Result};

/// The seed of the checksum `murmur`.
const MURMUR_SEED: u64 = 0xE223_6FDC_26A5_F6D2;

/// Decodes the segment at `place` of a cluster into `out`, which has its length. After a failure
/// `out` holds zeros.
pub(super) fn decode(
    cluster: &Cluster,
    place: usize,
    file: &dyn BlockDevice,
    root: &RootHeader,
    keys: &KeySchedule,
    out: &mut [u8],
) -> Result<()> {
    let decoded = decode_unchecked(cluster, place, file, root, keys, out);
    if decoded.is_err() {
        out.fill(0);
    }
    decoded
}

fn decode_unchecked(
    cluster: &Cluster,
    place: usize,
    file: &dyn BlockDevice,
    root: &RootHeader,
    keys: &KeySchedule,
    out: &mut [u8],
) -> Result<()> {
    let Some(segment) = cluster.segments.get(place) else {
        let count = cluster.segments.len() as u64;
        return Err(Error::out_of_range(LAYER, place as u64, 1, count));
    };
    let damaged = |message: &'static str| Error::corrupt(LAYER, segment.at, message);
    let key = keys.segment(&cluster.key, narrow(place));
    let wrong_mac = || damaged("the MAC of the segment does not match");
    if segment.stored == segment.len {
        file.read_at(segment.at, out)?;
        if !key.open(&[], out, &segment.mac) {
            return Err(wrong_mac());
        }
    } else {
        let mut packed = device::zeros(segment.stored as usize)?;
        file.read_at(segment.at, &mut packed)?;
        if !key.open(&[], &mut packed, &segment.mac) {
            return Err(wrong_mac());
        }
        decompress(root.compression, &packed, out).map_err(|error| {
            let message = "cannot decompress the segment";
            Error::new(error.kind(), LAYER, message)
                .at(segment.at)
                .caused_by(error)
        })?;
    }
    match is_right(root.checksum, segment, out) {
        true => Ok(()),
        false => Err(damaged("checksum mismatch of the segment")),
    }
}

fn decompress(compression: Compression, packed: &[u8], out: &mut [u8]) -> Result<()> {
    match compression {
        Compression::None => {
            let message = "the segment is shorter than its contents, but not compressed";
            Err(Error::corrupt(LAYER, 0, message))
        }
        Compression::Lz4 => codec::decode_lz4_framed_or_raw(packed, out),
        Compression::Lzbitmap => codec::decode_lzbitmap(packed, out),
        Compression::Lzfse => Codec::Lzfse.decode(packed, out),
        Compression::Lzvn => codec::decode_lzvn(packed, out),
        Compression::Lzma => Codec::Lzma.decode(packed, out),
        Compression::Zlib => Codec::Zlib.decode(packed, out),
    }
}

fn is_right(kind: ChecksumKind, segment: &Segment, contents: &[u8]) -> bool {
    segment.sum[..kind.len()] == checksum(kind, contents)
}

/// Returns the checksum of the contents of a segment.
pub(super) fn checksum(kind: ChecksumKind, contents: &[u8]) -> Vec<u8> {
    match kind {
        ChecksumKind::None => Vec::new(),
        ChecksumKind::Murmur => murmur(contents, MURMUR_SEED).to_le_bytes().to_vec(),
        ChecksumKind::Sha256 => Sha256::digest(contents).to_vec(),
    }
}

/// MurmurHash64A, by Austin Appleby. No well-kept crate has it.
fn murmur(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xC6A4_A793_5BD1_E995;
    const R: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> R;
        hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> R;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> R)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of python-aea, `murmur64a`.
    #[test]
    fn known_hashes() {
        for (bytes, expected) in [
            (&b""[..], 0x9FFE_FB51_D66F_1BD9),
            (&b"a"[..], 0x87BB_71AF_7E6F_83E2),
            (&b"12345678"[..], 0x7066_1ECE_E858_B31F),
            (&b"Hello World!"[..], 0xC965_A632_3EDC_7ABA),
        ] {
            assert_eq!(murmur(bytes, MURMUR_SEED), expected);
        }
    }
}
