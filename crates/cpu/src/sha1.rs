//! HMAC-SHA1 with the SHA extensions. A compression is serial, so several run in parallel.

use std::arch::x86_64::*;
use std::array;

use super::{CELL, to_bytes};

/// SHA-1 with the SHA extensions.
#[derive(Debug, Clone, Copy)]
pub struct NativeSha1(());

/// A SHA-1 state in the layout of the instructions: the words A to D with A on top, and E in the
/// top word of the second register.
#[derive(Clone, Copy)]
struct Sha1State {
    abcd: __m128i,
    e: __m128i,
}

impl NativeSha1 {
    /// Returns a value if this processor has the instructions.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1")).then_some(Self(()))
    }

    /// Computes the first 16 bytes of HMAC-SHA1 of each number from `first` on, 32 bits big-endian.
    /// `inner` and `outer` are the states of the key's two pads.
    pub fn number_macs(
        self,
        inner: &[u32; 5],
        outer: &[u32; 5],
        first: u32,
        macs: &mut [[u8; CELL]],
    ) {
        // SAFETY: the SHA extensions were detected, or `self` would not exist.
        unsafe { number_macs(inner, outer, first, macs) }
    }

    /// Computes the chain of PBKDF2: xors `count` further MACs, each of the previous one, into
    /// `sum`.
    pub fn chain(
        self,
        inner: &[u32; 5],
        outer: &[u32; 5],
        mac: &mut [u32; 5],
        sum: &mut [u32; 5],
        count: u32,
    ) {
        // SAFETY: as above.
        unsafe { chain(inner, outer, mac, sum, count) }
    }
}

#[target_feature(enable = "sha,sse4.1")]
fn load(state: &[u32; 5]) -> Sha1State {
    let [a, b, c, d, e] = state.map(|word| word as i32);
    Sha1State {
        abcd: _mm_set_epi32(a, b, c, d),
        e: _mm_set_epi32(e, 0, 0, 0),
    }
}

#[target_feature(enable = "sha,sse4.1")]
fn words(state: Sha1State) -> [u32; 5] {
    [
        _mm_extract_epi32::<3>(state.abcd) as u32,
        _mm_extract_epi32::<2>(state.abcd) as u32,
        _mm_extract_epi32::<1>(state.abcd) as u32,
        _mm_extract_epi32::<0>(state.abcd) as u32,
        _mm_extract_epi32::<3>(state.e) as u32,
    ]
}

/// Performs one compression in each of `L` lanes: twenty groups of four rounds, with the message
/// schedule in four registers.
#[inline]
#[target_feature(enable = "sha,sse4.1")]
fn compress<const L: usize>(state: &mut [Sha1State; L], mut message: [[__m128i; 4]; L]) {
    let start = *state;
    macro_rules! group {
        ($i:expr, $f:expr) => {
            for lane in 0..L {
                let w = &mut message[lane];
                if $i >= 4 {
                    let mixed = _mm_xor_si128(
                        _mm_sha1msg1_epu32(w[$i & 3], w[($i + 1) & 3]),
                        w[($i + 2) & 3],
                    );
                    w[$i & 3] = _mm_sha1msg2_epu32(mixed, w[($i + 3) & 3]);
                }
                let next = if $i == 0 {
                    _mm_add_epi32(state[lane].e, w[0])
                } else {
                    _mm_sha1nexte_epu32(state[lane].e, w[$i & 3])
                };
                state[lane].e = state[lane].abcd;
                state[lane].abcd = _mm_sha1rnds4_epu32::<$f>(state[lane].abcd, next);
            }
        };
    }
    macro_rules! groups {
        ($($i:literal $f:literal),*) => { $(group!($i, $f);)* };
    }
    groups!(0 0, 1 0, 2 0, 3 0, 4 0, 5 1, 6 1, 7 1, 8 1, 9 1, 10 2, 11 2, 12 2, 13 2, 14 2, 15 3, 16 3, 17 3, 18 3, 19 3);
    for lane in 0..L {
        state[lane].abcd = _mm_add_epi32(state[lane].abcd, start[lane].abcd);
        state[lane].e = _mm_sha1nexte_epu32(state[lane].e, start[lane].e);
    }
}

/// Returns the MAC of a message whose last block, padded, is `message`: the rest of the inner hash,
/// then the whole outer one.
#[inline]
#[target_feature(enable = "sha,sse4.1")]
fn mac<const L: usize>(
    inner: Sha1State,
    outer: Sha1State,
    message: [[__m128i; 4]; L],
) -> [Sha1State; L] {
    let mut hash = [inner; L];
    compress(&mut hash, message);
    let mut tag = [outer; L];
    compress(&mut tag, array::from_fn(|lane| digest_block(hash[lane])));
    tag
}

/// Returns the padded block of a 20-byte digest after a pad of 64 bytes.
#[inline]
#[target_feature(enable = "sha,sse4.1")]
fn digest_block(hash: Sha1State) -> [__m128i; 4] {
    let pad = _mm_set_epi32(0, 0x8000_0000_u32 as i32, 0, 0);
    let last = _mm_and_si128(hash.e, _mm_set_epi32(-1, 0, 0, 0));
    [
        hash.abcd,
        _mm_or_si128(last, pad),
        _mm_setzero_si128(),
        _mm_set_epi32(0, 0, 0, (64 + 20) * 8),
    ]
}

/// Returns the padded block of a 32-bit number after a pad of 64 bytes.
#[inline]
#[target_feature(enable = "sha,sse4.1")]
fn number_block(number: u32) -> [__m128i; 4] {
    let zero = _mm_setzero_si128();
    [
        _mm_set_epi32(number as i32, 0x8000_0000_u32 as i32, 0, 0),
        zero,
        zero,
        _mm_set_epi32(0, 0, 0, (64 + 4) * 8),
    ]
}

#[target_feature(enable = "sha,sse4.1")]
fn number_macs(inner: &[u32; 5], outer: &[u32; 5], first: u32, macs: &mut [[u8; CELL]]) {
    let (inner, outer) = (load(inner), load(outer));
    // The schedules of more than two do not fit the registers.
    let (pairs, rest) = macs.as_chunks_mut::<2>();
    let mut number = first;
    for pair in pairs {
        *pair = some_macs(inner, outer, number);
        number = number.wrapping_add(2);
    }
    for mac in rest {
        [*mac] = some_macs(inner, outer, number);
        number = number.wrapping_add(1);
    }
}

/// Computes the MACs of `L` numbers from `first` on in parallel.
#[inline]
#[target_feature(enable = "sha,sse4.1")]
fn some_macs<const L: usize>(inner: Sha1State, outer: Sha1State, first: u32) -> [[u8; CELL]; L] {
    let swap = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let tags = mac::<L>(
        inner,
        outer,
        array::from_fn(|lane| number_block(first.wrapping_add(lane as u32))),
    );
    array::from_fn(|lane| to_bytes(_mm_shuffle_epi8(tags[lane].abcd, swap)))
}

#[target_feature(enable = "sha,sse4.1")]
fn chain(inner: &[u32; 5], outer: &[u32; 5], last: &mut [u32; 5], sum: &mut [u32; 5], count: u32) {
    let (inner, outer) = (load(inner), load(outer));
    let (mut tag, mut xored) = (load(last), load(sum));
    for _ in 0..count {
        [tag] = mac(inner, outer, [digest_block(tag)]);
        xored.abcd = _mm_xor_si128(xored.abcd, tag.abcd);
        xored.e = _mm_xor_si128(xored.e, tag.e);
    }
    *last = words(tag);
    *sum = words(xored);
}
