//! AES-128-XTS: eight blocks in parallel with AES-NI, thirty-two with VAES on 512-bit registers.

use std::arch::x86_64::*;
use std::array;
use std::fmt;

use super::aes::{Schedule, Width, expand};
use super::{CELL, from_bytes};

/// Size of a unit in bytes.
const UNIT: usize = 512;
/// Number of registers per unit.
const REGISTERS: usize = UNIT / 64;
/// Number of units whose first tweaks are encrypted at a time, four to a register.
const BATCH: usize = 16;

/// Number of blocks that AES-NI processes in parallel.
const LANES: usize = 8;

/// AES-128-XTS, for processors with AES-NI, or with VAES and AVX-512F.
#[derive(Clone)]
pub struct NativeXts {
    data: Schedule,
    tweak: Schedule,
    /// True if the processor has VAES and AVX-512F.
    is_wide: bool,
}

/// Shows no key.
impl fmt::Debug for NativeXts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeXts").finish_non_exhaustive()
    }
}

impl NativeXts {
    /// Expands the key for the data and the one for the numbers, for registers no wider than `most`.
    /// Returns `None` if this processor lacks the instructions.
    pub fn new(data: &[u8; CELL], tweak: &[u8; CELL], most: Width) -> Option<Self> {
        let width = Width::detect(most)?;
        // SAFETY: the processor has AES-NI, as every width needs.
        unsafe {
            Some(Self {
                data: expand(data),
                tweak: expand(tweak),
                is_wide: width == Width::Quadruple,
            })
        }
    }

    /// Encrypts units in place; `first` is the number of the first. A partial unit at the end is
    /// left unchanged.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) {
        // SAFETY: `new` detected AES-NI, and VAES and AVX-512F if `is_wide`.
        unsafe {
            match self.is_wide {
                true => self.each_unit::<true>(first, data),
                false => self.each_unit_single::<true>(first, data),
            }
        }
    }

    /// Decrypts units in place; `first` is the number of the first. A partial unit at the end is
    /// left unchanged.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) {
        // SAFETY: as for `encrypt`.
        unsafe {
            match self.is_wide {
                true => self.each_unit::<false>(first, data),
                false => self.each_unit_single::<false>(first, data),
            }
        }
    }

    #[target_feature(enable = "aes")]
    fn each_unit_single<const ENCRYPT: bool>(&self, first: u64, data: &mut [u8]) {
        let single = |keys: &[[u8; CELL]; 15]| keys.map(|key| from_bytes(&key));
        let of_numbers = single(&self.tweak.encrypt);
        let of_data = single(if ENCRYPT {
            &self.data.encrypt
        } else {
            &self.data.decrypt
        });
        let mut number = first;
        for batch in data.as_chunks_mut::<UNIT>().0.chunks_mut(LANES) {
            // The last batch may be shorter; its surplus numbers are ignored.
            let mut starts: [__m128i; LANES] =
                array::from_fn(|n| _mm_set_epi64x(0, number.wrapping_add(n as u64) as i64));
            rounds_single::<true>(&of_numbers, self.tweak.rounds, &mut starts);
            for (unit, start) in batch.iter_mut().zip(starts) {
                let mut tweak = start;
                for part in unit.as_chunks_mut::<{ LANES * CELL }>().0 {
                    let base: *mut u8 = part.as_mut_ptr();
                    let tweaks: [__m128i; LANES] = array::from_fn(|_| {
                        let this = tweak;
                        tweak = double(tweak);
                        this
                    });
                    // SAFETY: eight times 16 bytes are the 128 of `part`.
                    let mut cells: [__m128i; LANES] = array::from_fn(|n| unsafe {
                        _mm_xor_si128(_mm_loadu_si128(base.add(CELL * n).cast()), tweaks[n])
                    });
                    rounds_single::<ENCRYPT>(&of_data, self.data.rounds, &mut cells);
                    for n in 0..LANES {
                        // SAFETY: as for the loads.
                        unsafe {
                            _mm_storeu_si128(
                                base.add(CELL * n).cast(),
                                _mm_xor_si128(cells[n], tweaks[n]),
                            )
                        };
                    }
                }
            }
            number = number.wrapping_add(LANES as u64);
        }
    }

    #[target_feature(enable = "aes,vaes,avx512f")]
    fn each_unit<const ENCRYPT: bool>(&self, first: u64, data: &mut [u8]) {
        let of_numbers = keys(&self.tweak.encrypt);
        let of_data = keys(if ENCRYPT {
            &self.data.encrypt
        } else {
            &self.data.decrypt
        });
        let mut number = first;
        for batch in data.as_chunks_mut::<UNIT>().0.chunks_mut(BATCH) {
            // The last batch may be shorter; its surplus numbers are ignored.
            let mut starts: [__m512i; BATCH / 4] = array::from_fn(|register| {
                let n = |lane: u64| number.wrapping_add(4 * register as u64 + lane) as i64;
                _mm512_set_epi64(0, n(3), 0, n(2), 0, n(1), 0, n(0))
            });
            rounds::<true, _>(&of_numbers, self.tweak.rounds, &mut starts);
            for (at, unit) in batch.iter_mut().enumerate() {
                let start = spread(starts[at / 4], at % 4);
                one_unit::<ENCRYPT>(&of_data, self.data.rounds, start, unit);
            }
            number = number.wrapping_add(BATCH as u64);
        }
    }
}

/// Applies all rounds of AES to each block.
#[inline]
#[target_feature(enable = "aes")]
fn rounds_single<const ENCRYPT: bool>(
    key: &[__m128i; 15],
    rounds: usize,
    cells: &mut [__m128i; LANES],
) {
    for x in cells.iter_mut() {
        *x = _mm_xor_si128(*x, key[0]);
    }
    for round in key.iter().take(rounds).skip(1) {
        for x in cells.iter_mut() {
            *x = match ENCRYPT {
                true => _mm_aesenc_si128(*x, *round),
                false => _mm_aesdec_si128(*x, *round),
            };
        }
    }
    for x in cells.iter_mut() {
        *x = match ENCRYPT {
            true => _mm_aesenclast_si128(*x, key[rounds]),
            false => _mm_aesdeclast_si128(*x, key[rounds]),
        };
    }
}

/// Returns `x` times x in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1.
#[inline]
#[target_feature(enable = "sse2")]
fn double(x: __m128i) -> __m128i {
    // The top bits of both halves, as masks in the low words of the other half.
    let out = _mm_srai_epi32::<31>(_mm_shuffle_epi32::<0x13>(x));
    let carry = _mm_and_si128(out, _mm_set_epi32(0, 1, 0, 0x87));
    _mm_xor_si128(_mm_add_epi64(x, x), carry)
}

/// Loads the round keys, each into all four lanes.
#[inline]
#[target_feature(enable = "aes,avx512f")]
fn keys(bytes: &[[u8; CELL]; 15]) -> [__m512i; 15] {
    array::from_fn(|round| _mm512_broadcast_i32x4(from_bytes(&bytes[round])))
}

/// Applies all rounds of AES to each lane.
#[inline]
#[target_feature(enable = "aes,vaes,avx512f")]
fn rounds<const ENCRYPT: bool, const N: usize>(
    key: &[__m512i; 15],
    rounds: usize,
    cells: &mut [__m512i; N],
) {
    for x in cells.iter_mut() {
        *x = _mm512_xor_si512(*x, key[0]);
    }
    for round in key.iter().take(rounds).skip(1) {
        for x in cells.iter_mut() {
            *x = if ENCRYPT {
                _mm512_aesenc_epi128(*x, *round)
            } else {
                _mm512_aesdec_epi128(*x, *round)
            };
        }
    }
    for x in cells.iter_mut() {
        let last = key[rounds];
        *x = if ENCRYPT {
            _mm512_aesenclast_epi128(*x, last)
        } else {
            _mm512_aesdeclast_epi128(*x, last)
        };
    }
}

/// Copies one lane to all four.
#[inline]
#[target_feature(enable = "avx512f")]
fn spread(x: __m512i, lane: usize) -> __m512i {
    match lane {
        0 => _mm512_shuffle_i32x4::<0x00>(x, x),
        1 => _mm512_shuffle_i32x4::<0x55>(x, x),
        2 => _mm512_shuffle_i32x4::<0xAA>(x, x),
        _ => _mm512_shuffle_i32x4::<0xFF>(x, x),
    }
}

/// Processes a unit; all lanes of `start` hold its first tweak.
#[inline]
#[target_feature(enable = "aes,vaes,avx512f")]
fn one_unit<const ENCRYPT: bool>(
    key: &[__m512i; 15],
    count: usize,
    start: __m512i,
    unit: &mut [u8; UNIT],
) {
    let base: *mut u8 = unit.as_mut_ptr();
    // Lane l of register n belongs to cell 4n + l, whose tweak is the first one times x^(4n + l).
    let mut tweak = times_x(start, _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0));
    let four = _mm512_set1_epi64(4);
    let tweaks: [__m512i; REGISTERS] = array::from_fn(|_| {
        let this = tweak;
        tweak = times_x(tweak, four);
        this
    });
    // SAFETY: eight times 64 bytes are the 512 of `unit`.
    let mut cells: [__m512i; REGISTERS] = array::from_fn(|n| unsafe {
        _mm512_xor_si512(_mm512_loadu_si512(base.add(64 * n).cast()), tweaks[n])
    });
    rounds::<ENCRYPT, _>(key, count, &mut cells);
    for n in 0..REGISTERS {
        // SAFETY: as for the loads.
        unsafe {
            _mm512_storeu_si512(
                base.add(64 * n).cast(),
                _mm512_xor_si512(cells[n], tweaks[n]),
            )
        };
    }
}

/// Returns each lane times x^count in GF(2^128), modulo x^128 + x^7 + x^2 + x + 1. `count`: equal
/// in both halves of a lane, at most 4.
#[inline]
#[target_feature(enable = "avx512f")]
fn times_x(x: __m512i, count: __m512i) -> __m512i {
    // Shifts by 64 give zeros.
    let out = _mm512_srlv_epi64(x, _mm512_sub_epi64(_mm512_set1_epi64(64), count));
    // The bits shifted out of the lower half enter the upper one; those shifted out of the upper
    // half are reduced to multiples of the polynomial.
    let out = _mm512_shuffle_epi32::<0x4E>(out);
    let low = _mm512_maskz_mov_epi64(0x55, out);
    let shifted = _mm512_xor_si512(_mm512_sllv_epi64(x, count), out);
    let (one, two) = (_mm512_slli_epi64::<1>(low), _mm512_slli_epi64::<2>(low));
    _mm512_ternarylogic_epi64::<0x96>(
        _mm512_xor_si512(shifted, one),
        two,
        _mm512_slli_epi64::<7>(low),
    )
}
