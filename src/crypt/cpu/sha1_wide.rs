//! HMAC-SHA1 of sixteen numbers at once: each in its own 32-bit lane of 512-bit registers, which hold word `i` of all of them.

use std::arch::x86_64::*;
use std::array;

use super::CELL;

/// Numbers side by side.
const LANES: usize = 16;

/// SHA-1 by AVX-512.
#[derive(Clone, Copy)]
pub(in crate::crypt) struct WideSha1(());

/// The words A to E of sixteen states.
type States = [__m512i; 5];

impl WideSha1 {
    /// If this processor has the instructions.
    pub(in crate::crypt) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")).then_some(Self(()))
    }

    /// The first 16 bytes of HMAC-SHA1 of each of the numbers from `first`, 32 bits big-endian, by the states of the key's two pads.
    pub(in crate::crypt) fn number_macs(self, inner: &[u32; 5], outer: &[u32; 5], first: u32, macs: &mut [[u8; CELL]]) {
        let mut number = first;
        for macs in macs.chunks_mut(LANES) {
            // SAFETY: AVX-512F and BW were detected, or `self` would not exist.
            let all = unsafe { number_macs(inner, outer, number) };
            macs.copy_from_slice(&all[..macs.len()]);
            number = number.wrapping_add(LANES as u32);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn splat(word: u32) -> __m512i {
    _mm512_set1_epi32(word as i32)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn number_macs(inner: &[u32; 5], outer: &[u32; 5], first: u32) -> [[u8; CELL]; LANES] {
    // Numbered so that the cells come out in order below, where lane l of register q is that of state 4 * l + q.
    let numbers = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let numbers = _mm512_add_epi32(splat(first), numbers);
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
    let big_endian = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
    let mut macs = [[0; CELL]; LANES];
    for (cells, macs) in cells.into_iter().zip(macs.as_chunks_mut::<4>().0) {
        // SAFETY: four cells of 16 bytes are 64 bytes.
        unsafe { _mm512_storeu_si512(macs.as_mut_ptr().cast(), _mm512_shuffle_epi8(cells, big_endian)) };
    }
    macs
}

/// One compression in each lane, of `N` words that are all of the message after a pad of 64 bytes. A function for each `N` and
/// unrolled, so that the compiler folds what is known of the padded block.
#[inline]
#[target_feature(enable = "avx512f")]
fn compress<const N: usize>(start: States, words: [__m512i; N]) -> States {
    let mut message = [_mm512_setzero_si512(); 16];
    message[..N].copy_from_slice(&words);
    message[N] = splat(0x8000_0000);
    message[15] = splat((64 + 4 * N as u32) * 8);
    let [mut a, mut b, mut c, mut d, mut e] = start;
    // `$mix` is the truth table of the round's function of b, c and d.
    macro_rules! round {
        ($round:literal, $mix:literal, $constant:literal) => {
            const AT: usize = $round % 16;
            if $round >= 16 {
                let early = _mm512_xor_si512(message[(AT + 2) % 16], message[AT]);
                let late = _mm512_xor_si512(message[(AT + 13) % 16], message[(AT + 8) % 16]);
                message[AT] = _mm512_rol_epi32::<1>(_mm512_xor_si512(early, late));
            }
            let mixed = _mm512_ternarylogic_epi32::<$mix>(b, c, d);
            let added = _mm512_add_epi32(_mm512_add_epi32(message[AT], splat($constant)), e);
            (e, d, c, b) = (d, c, _mm512_rol_epi32::<30>(b), a);
            a = _mm512_add_epi32(_mm512_add_epi32(mixed, added), _mm512_rol_epi32::<5>(a));
        };
    }
    macro_rules! rounds {
        ($mix:literal, $constant:literal: $($round:literal)*) => { $({ round!($round, $mix, $constant); })* };
    }
    // Choose, parity, majority, parity: FIPS 180-4, 4.1.1.
    rounds!(0xCA, 0x5A82_7999: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
    rounds!(0x96, 0x6ED9_EBA1: 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39);
    rounds!(0xE8, 0x8F1B_BCDC: 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59);
    rounds!(0x96, 0xCA62_C1D6: 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79);
    let end = [a, b, c, d, e];
    array::from_fn(|word| _mm512_add_epi32(start[word], end[word]))
}
