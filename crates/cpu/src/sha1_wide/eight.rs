//! Eight lanes, with AVX2.

use std::arch::x86_64::*;
use std::array;

use super::{CELL, compress, rounds};

const LANES: usize = 8;

compress!(__m256i, "avx2");

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn number_macs(inner: &[u32; 5], outer: &[u32; 5], first: u32) -> [[u8; CELL]; LANES] {
    // Numbered so that the cells are in order below, where half h of register q is that of state 2
    // * q + h.
    let numbers = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    let numbers = add(splat(first), numbers);
    let inner = compress(array::from_fn(|word| splat(inner[word])), [numbers]);
    let [a, b, c, d, _] = compress(array::from_fn(|word| splat(outer[word])), inner);
    let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let cells = [
        _mm256_unpacklo_epi64(ab_low, cd_low),
        _mm256_unpackhi_epi64(ab_low, cd_low),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ];
    let big_endian = _mm256_broadcastsi128_si256(_mm_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
    ));
    let mut macs = [[0; CELL]; LANES];
    for (cells, macs) in cells.into_iter().zip(macs.as_chunks_mut::<2>().0) {
        // SAFETY: two cells of 16 bytes are 32 bytes.
        unsafe {
            _mm256_storeu_si256(
                macs.as_mut_ptr().cast(),
                _mm256_shuffle_epi8(cells, big_endian),
            )
        };
    }
    macs
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(word: u32) -> __m256i {
    _mm256_set1_epi32(word as i32)
}

#[inline]
#[target_feature(enable = "avx2")]
fn add(x: __m256i, y: __m256i) -> __m256i {
    _mm256_add_epi32(x, y)
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(x: __m256i, y: __m256i) -> __m256i {
    _mm256_xor_si256(x, y)
}

#[inline]
#[target_feature(enable = "avx2")]
fn choose(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    xor(d, _mm256_and_si256(b, xor(c, d)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn parity(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    xor(b, xor(c, d))
}

#[inline]
#[target_feature(enable = "avx2")]
fn majority(b: __m256i, c: __m256i, d: __m256i) -> __m256i {
    _mm256_or_si256(
        _mm256_and_si256(b, c),
        _mm256_and_si256(d, _mm256_or_si256(b, c)),
    )
}

#[inline]
#[target_feature(enable = "avx2")]
fn left_1(x: __m256i) -> __m256i {
    // More of the processor's units can add than shift.
    _mm256_or_si256(add(x, x), _mm256_srli_epi32::<31>(x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn left_5(x: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<5>(x), _mm256_srli_epi32::<27>(x))
}

#[inline]
#[target_feature(enable = "avx2")]
fn left_30(x: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<30>(x), _mm256_srli_epi32::<2>(x))
}
