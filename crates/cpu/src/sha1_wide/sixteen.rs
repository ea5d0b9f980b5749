//! Sixteen lanes, with AVX-512.

use std::arch::x86_64::*;
use std::array;

use super::{CELL, compress, rounds};

const LANES: usize = 16;

compress!(__m512i, "avx512f");

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn number_macs(inner: &[u32; 5], outer: &[u32; 5], first: u32) -> [[u8; CELL]; LANES] {
    // Numbered so that the cells are in order below, where lane l of register q is that of state 4
    // * l + q.
    let numbers = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let numbers = add(splat(first), numbers);
    let inner = compress(array::from_fn(|word| splat(inner[word])), [numbers]);
    let [a, b, c, d, _] = compress(array::from_fn(|word| splat(outer[word])), inner);
    let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let cells = [
        _mm512_unpacklo_epi64(ab_low, cd_low),
        _mm512_unpackhi_epi64(ab_low, cd_low),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ];
    let big_endian = _mm512_broadcast_i32x4(_mm_set_epi8(
        12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3,
    ));
    let mut macs = [[0; CELL]; LANES];
    for (cells, macs) in cells.into_iter().zip(macs.as_chunks_mut::<4>().0) {
        // SAFETY: four cells of 16 bytes are 64 bytes.
        unsafe {
            _mm512_storeu_si512(
                macs.as_mut_ptr().cast(),
                _mm512_shuffle_epi8(cells, big_endian),
            )
        };
    }
    macs
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u32) -> __m512i {
    _mm512_set1_epi32(word as i32)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add(x: __m512i, y: __m512i) -> __m512i {
    _mm512_add_epi32(x, y)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor(x: __m512i, y: __m512i) -> __m512i {
    _mm512_xor_si512(x, y)
}

// The constants are truth tables of three inputs.

#[inline]
#[target_feature(enable = "avx512f")]
fn choose(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xCA>(b, c, d)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn parity(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(b, c, d)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn majority(b: __m512i, c: __m512i, d: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xE8>(b, c, d)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn left_1(x: __m512i) -> __m512i {
    _mm512_rol_epi32::<1>(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn left_5(x: __m512i) -> __m512i {
    _mm512_rol_epi32::<5>(x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn left_30(x: __m512i) -> __m512i {
    _mm512_rol_epi32::<30>(x)
}
