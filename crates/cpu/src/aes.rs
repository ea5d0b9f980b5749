//! AES-CBC of many blocks of an image: eight chains in parallel with AES-NI, sixteen with VAES on
//! 256-bit or 512-bit registers.
//!
//! One file, as the widths differ in their registers only and have to be read side by side.

use std::arch::x86_64::*;
use std::array;
use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{CELL, from_bytes, to_bytes};

/// Round keys for both directions, and the number of rounds (10 or 14).
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct Schedule {
    pub(super) encrypt: [[u8; CELL]; 15],
    pub(super) decrypt: [[u8; CELL]; 15],
    pub(super) rounds: usize,
}

/// Width of the registers: one, two or four AES blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Width {
    /// AES-NI.
    Single,
    /// VAES and AVX2.
    Double,
    /// VAES and AVX-512F.
    Quadruple,
}

impl Width {
    /// Returns the widest supported width up to `most`, if there is one.
    pub(super) fn detect(most: Self) -> Option<Self> {
        let vaes = is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("aes")
            // SAFETY: the features were detected.
            && unsafe { wide_is_right() };
        [Self::Quadruple, Self::Double, Self::Single]
            .into_iter()
            .filter(|width| *width <= most)
            .find(|width| match width {
                Self::Single => is_x86_feature_detected!("aes"),
                Self::Double => vaes,
                Self::Quadruple => vaes && is_x86_feature_detected!("avx512f"),
            })
    }
}

/// Returns true if an instruction on two blocks has the results of the one on each block. The
/// emulator of QEMU 7.2 claims VAES and computes the second block wrongly: data written there would
/// be lost.
#[target_feature(enable = "aes,vaes,avx2")]
fn wide_is_right() -> bool {
    let block = _mm256_set_epi64x(1, 2, 3, 4);
    let key = _mm256_set_epi64x(5, 6, 7, 8);
    let halves = |of: __m256i| {
        [
            _mm256_castsi256_si128(of),
            _mm256_extracti128_si256::<1>(of),
        ]
    };
    let ([low, high], [low_key, high_key]) = (halves(block), halves(key));
    let pairs = [
        (
            _mm256_aesenc_epi128(block, key),
            [
                _mm_aesenc_si128(low, low_key),
                _mm_aesenc_si128(high, high_key),
            ],
        ),
        (
            _mm256_aesdec_epi128(block, key),
            [
                _mm_aesdec_si128(low, low_key),
                _mm_aesdec_si128(high, high_key),
            ],
        ),
    ];
    pairs.into_iter().all(|(wide, [low, high])| {
        let same = _mm256_cmpeq_epi8(wide, _mm256_set_m128i(high, low));
        _mm256_movemask_epi8(same) == -1
    })
}

/// AES with AES-NI, eight chains in parallel, or with VAES, sixteen, if the processor supports it.
pub struct NativeAes {
    schedule: Schedule,
    width: Width,
}

/// Shows no key.
impl fmt::Debug for NativeAes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeAes")
            .field("width", &self.width)
            .finish_non_exhaustive()
    }
}

impl NativeAes {
    /// Expands a key of 16 or 32 bytes for registers no wider than `most`. Returns `None` if this
    /// processor lacks the instructions.
    pub fn new(key: &[u8], most: Width) -> Option<Self> {
        let width = Width::detect(most).filter(|_| matches!(key.len(), 16 | 32))?;
        Some(Self {
            // SAFETY: the processor has AES-NI, as every width needs.
            schedule: unsafe { expand(key) },
            width,
        })
    }

    /// Encrypts `ivs.len()` blocks of `block` bytes from `plain` to `cipher`. Each block is a CBC
    /// chain with its own initialization vector.
    pub fn encrypt(&self, ivs: &[[u8; CELL]], plain: &[u8], cipher: &mut [u8], block: usize) {
        check(ivs, plain, block);
        check(ivs, cipher, block);
        if self.width == Width::Double && block >= 1024 && block.is_multiple_of(STRIPE) {
            return self.encrypt_striped(ivs, plain, cipher, block);
        }
        self.encrypt_chains(ivs, plain, cipher, block);
    }

    /// Encrypts chains at a stride at which they would all use the same sets of the first-level
    /// cache: a stripe of each of sixteen chains at a time is copied to where it lies beside the
    /// others.
    fn encrypt_striped(&self, ivs: &[[u8; CELL]], plain: &[u8], cipher: &mut [u8], block: usize) {
        let (mut near, mut out) = ([0; CHAINS * STRIPE], [0; CHAINS * STRIPE]);
        for ((ivs, plain), cipher) in ivs
            .chunks(CHAINS)
            .zip(plain.chunks(CHAINS * block))
            .zip(cipher.chunks_mut(CHAINS * block))
        {
            let len = ivs.len() * STRIPE;
            let mut last = [[0; CELL]; CHAINS];
            let last = &mut last[..ivs.len()];
            last.copy_from_slice(ivs);
            for at in (0..block).step_by(STRIPE) {
                for (near, chain) in near.chunks_exact_mut(STRIPE).zip(plain.chunks_exact(block)) {
                    near.copy_from_slice(&chain[at..at + STRIPE]);
                }
                self.encrypt_chains(last, &near[..len], &mut out[..len], STRIPE);
                for ((out, chain), last) in out
                    .chunks_exact(STRIPE)
                    .zip(cipher.chunks_exact_mut(block))
                    .zip(last.iter_mut())
                {
                    chain[at..at + STRIPE].copy_from_slice(out);
                    last.copy_from_slice(&out[STRIPE - CELL..]);
                }
            }
        }
        near.zeroize();
    }

    /// Encrypts as many chains at a time as the registers hold.
    fn encrypt_chains(&self, ivs: &[[u8; CELL]], plain: &[u8], cipher: &mut [u8], block: usize) {
        let mut done = 0;
        while done < ivs.len() {
            let chains = Chains {
                ivs: &ivs[done..],
                plain: &plain[done * block..],
                cipher: &mut cipher[done * block..],
                block,
            };
            // SAFETY: `new` detected AES-NI, and what `width` says beyond that; `check` proved that
            // each chain has `block` bytes on both sides, and the arm taken that there are as many
            // chains as its lanes.
            done += unsafe {
                match (self.width, chains.ivs.len()) {
                    (Width::Quadruple, 16..) => encrypt_quadruple::<4>(&self.schedule, chains),
                    (Width::Quadruple, 8..) => encrypt_quadruple::<2>(&self.schedule, chains),
                    (Width::Quadruple, 4..) => encrypt_quadruple::<1>(&self.schedule, chains),
                    (Width::Double, 16..) => encrypt_double::<8>(&self.schedule, chains),
                    (Width::Double, 8..) => encrypt_double::<4>(&self.schedule, chains),
                    (_, 8..) => encrypt_single::<8>(&self.schedule, chains),
                    (_, 4..) => encrypt_single::<4>(&self.schedule, chains),
                    (_, 2..) => encrypt_single::<2>(&self.schedule, chains),
                    _ => encrypt_single::<1>(&self.schedule, chains),
                }
            };
        }
    }

    /// Decrypts `ivs.len()` blocks of `block` bytes in place. Each block is a CBC chain with its
    /// own initialization vector.
    pub fn decrypt(&self, ivs: &[[u8; CELL]], data: &mut [u8], block: usize) {
        check(ivs, data, block);
        for (iv, chain) in ivs.iter().zip(data.chunks_exact_mut(block)) {
            // SAFETY: as for `encrypt`; the wider forms take chains of whole 512 bytes only.
            unsafe {
                match self.width {
                    Width::Quadruple if block.is_multiple_of(512) => {
                        decrypt_quadruple(&self.schedule, iv, chain)
                    }
                    Width::Double if block.is_multiple_of(512) => {
                        decrypt_double(&self.schedule, iv, chain)
                    }
                    _ => decrypt_single(&self.schedule, iv, chain),
                }
            }
        }
    }
}

/// Number of chains that are encrypted at a time with 256-bit registers.
const CHAINS: usize = 16;
/// Bytes of a chain that are copied at a time: sixteen stripes and their results fit in the
/// first-level cache beside everything else.
const STRIPE: usize = 256;

/// Chains to encrypt: an initialization vector, and `block` bytes of plain and cipher text for
/// each.
struct Chains<'a> {
    ivs: &'a [[u8; CELL]],
    plain: &'a [u8],
    cipher: &'a mut [u8],
    block: usize,
}

fn check(ivs: &[[u8; CELL]], data: &[u8], block: usize) {
    assert!(
        block >= 64 && block.is_multiple_of(64),
        "blocks are of whole 64 bytes"
    );
    assert_eq!(ivs.len() * block, data.len(), "one vector for each block");
}

/// Expands a key as in FIPS 197; round constants are applied separately, so that the loop needs no
/// constant operand.
#[target_feature(enable = "aes")]
pub(super) fn expand(key: &[u8]) -> Schedule {
    let words = key.len() / 4;
    let rounds = words + 6;
    let mut w = [0u32; 60];
    for (word, bytes) in w.iter_mut().zip(key.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    let mut constant = 1u32;
    for i in words..4 * (rounds + 1) {
        let mut next = w[i - 1];
        if i % words == 0 {
            next = substitute(next).rotate_right(8) ^ constant;
            constant = (constant << 1) ^ (if constant & 0x80 != 0 { 0x11B } else { 0 });
        } else if words == 8 && i % words == 4 {
            next = substitute(next);
        }
        w[i] = w[i - words] ^ next;
    }
    let mut schedule = Schedule {
        encrypt: [[0; CELL]; 15],
        decrypt: [[0; CELL]; 15],
        rounds,
    };
    for (round, words) in w.chunks_exact(4).take(rounds + 1).enumerate() {
        let key = _mm_set_epi32(
            words[3] as i32,
            words[2] as i32,
            words[1] as i32,
            words[0] as i32,
        );
        let inner = if round == 0 || round == rounds {
            key
        } else {
            _mm_aesimc_si128(key)
        };
        schedule.encrypt[round] = to_bytes(key);
        schedule.decrypt[rounds - round] = to_bytes(inner);
    }
    w.zeroize();
    schedule
}

/// Applies the S-box to each byte of a word.
#[target_feature(enable = "aes")]
fn substitute(word: u32) -> u32 {
    let all = _mm_set1_epi32(word as i32);
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128(all, 0)) as u32
}

/// Loads the round keys into registers.
#[inline]
#[target_feature(enable = "aes")]
fn keys(bytes: &[[u8; CELL]; 15]) -> [__m128i; 15] {
    array::from_fn(|round| from_bytes(&bytes[round]))
}

/// Encrypts `L` chains in step, one in each 128-bit register. Returns `L`.
///
/// # Safety
/// There are at least `L` chains.
#[target_feature(enable = "aes")]
unsafe fn encrypt_single<const L: usize>(schedule: &Schedule, chains: Chains<'_>) -> usize {
    let key = keys(&schedule.encrypt);
    let mut chain: [__m128i; L] = array::from_fn(|lane| from_bytes(&chains.ivs[lane]));
    let (source, target, block) = (
        chains.plain.as_ptr(),
        chains.cipher.as_mut_ptr(),
        chains.block,
    );
    for at in (0..block).step_by(CELL) {
        // SAFETY: lane < L and at + 16 <= block, so every access is within the L * block bytes of
        // either side.
        unsafe {
            for (lane, x) in chain.iter_mut().enumerate() {
                let plain = _mm_loadu_si128(source.add(lane * block + at).cast());
                *x = _mm_xor_si128(_mm_xor_si128(*x, plain), key[0]);
            }
            for round in key.iter().take(schedule.rounds).skip(1) {
                for x in &mut chain {
                    *x = _mm_aesenc_si128(*x, *round);
                }
            }
            for (lane, x) in chain.iter_mut().enumerate() {
                *x = _mm_aesenclast_si128(*x, key[schedule.rounds]);
                _mm_storeu_si128(target.add(lane * block + at).cast(), *x);
            }
        }
    }
    L
}

/// Encrypts `2 * Y` chains, two in each 256-bit register. Each chain's next 32 bytes are loaded as
/// a whole, so that at a stride of 4096 bytes, where all chains use the same set of the first-level
/// cache, a line is fetched twice instead of four times. The halves are swapped so that lane l of a
/// register belongs to chain l, and two AES blocks of each chain are encrypted in sequence. Returns
/// `2 * Y`.
///
/// # Safety
/// There are at least `2 * Y` chains.
#[target_feature(enable = "aes,vaes,avx2")]
unsafe fn encrypt_double<const Y: usize>(schedule: &Schedule, chains: Chains<'_>) -> usize {
    let key: [__m256i; 15] =
        array::from_fn(|round| _mm256_broadcastsi128_si256(from_bytes(&schedule.encrypt[round])));
    let (source, target, block) = (
        chains.plain.as_ptr(),
        chains.cipher.as_mut_ptr(),
        chains.block,
    );
    // SAFETY: two vectors of 16 bytes are 32 bytes, and there are 2 * Y of them.
    let mut chain: [__m256i; Y] =
        array::from_fn(|y| unsafe { _mm256_loadu_si256(chains.ivs.as_ptr().add(2 * y).cast()) });
    for at in (0..block).step_by(32) {
        let mut cells = [[_mm256_setzero_si256(); 2]; Y];
        for (y, cells) in cells.iter_mut().enumerate() {
            // SAFETY: 2 * y + 1 < 2 * Y and at + 32 <= block.
            let halves = [0, 1].map(|lane| unsafe {
                _mm256_loadu_si256(source.add((2 * y + lane) * block + at).cast())
            });
            *cells = swap_halves(halves);
        }
        for step in 0..2 {
            for (x, cells) in chain.iter_mut().zip(&cells) {
                *x = _mm256_xor_si256(*x, _mm256_xor_si256(cells[step], key[0]));
            }
            for round in key.iter().take(schedule.rounds).skip(1) {
                for x in &mut chain {
                    *x = _mm256_aesenc_epi128(*x, *round);
                }
            }
            for (x, cells) in chain.iter_mut().zip(&mut cells) {
                *x = _mm256_aesenclast_epi128(*x, key[schedule.rounds]);
                cells[step] = *x;
            }
        }
        for (y, cells) in cells.into_iter().enumerate() {
            for (lane, half) in swap_halves(cells).into_iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe {
                    _mm256_storeu_si256(target.add((2 * y + lane) * block + at).cast(), half)
                };
            }
        }
    }
    2 * Y
}

/// Returns the lower halves of both, then the upper ones.
#[inline]
#[target_feature(enable = "avx2")]
fn swap_halves([a, b]: [__m256i; 2]) -> [__m256i; 2] {
    [
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x31>(a, b),
    ]
}

/// Encrypts `4 * Z` chains, four in each 512-bit register. Each chain's next 64 bytes are loaded as
/// a whole and transposed in registers, so that lane l of a register belongs to chain l; then four
/// AES blocks of each chain are encrypted in sequence. Returns `4 * Z`.
///
/// # Safety
/// There are at least `4 * Z` chains.
#[target_feature(enable = "aes,vaes,avx512f")]
unsafe fn encrypt_quadruple<const Z: usize>(schedule: &Schedule, chains: Chains<'_>) -> usize {
    let key: [__m512i; 15] =
        array::from_fn(|round| _mm512_broadcast_i32x4(from_bytes(&schedule.encrypt[round])));
    let (source, target, block) = (
        chains.plain.as_ptr(),
        chains.cipher.as_mut_ptr(),
        chains.block,
    );
    // SAFETY: four vectors of 16 bytes are 64 bytes, and there are 4 * Z of them.
    let mut chain: [__m512i; Z] =
        array::from_fn(|z| unsafe { _mm512_loadu_si512(chains.ivs.as_ptr().add(4 * z).cast()) });
    for at in (0..block).step_by(64) {
        let mut cells: [[__m512i; 4]; Z] = [[_mm512_setzero_si512(); 4]; Z];
        for (z, cells) in cells.iter_mut().enumerate() {
            for (lane, cell) in cells.iter_mut().enumerate() {
                // SAFETY: 4 * z + lane < 4 * Z and at + 64 <= block.
                *cell =
                    unsafe { _mm512_loadu_si512(source.add((4 * z + lane) * block + at).cast()) };
            }
            transpose(cells);
        }
        for step in 0..4 {
            for (x, cells) in chain.iter_mut().zip(&cells) {
                *x = _mm512_ternarylogic_epi64::<0x96>(*x, cells[step], key[0]);
            }
            for round in key.iter().take(schedule.rounds).skip(1) {
                for x in &mut chain {
                    *x = _mm512_aesenc_epi128(*x, *round);
                }
            }
            for (x, cells) in chain.iter_mut().zip(&mut cells) {
                *x = _mm512_aesenclast_epi128(*x, key[schedule.rounds]);
                cells[step] = *x;
            }
        }
        for (z, cells) in cells.iter_mut().enumerate() {
            transpose(cells);
            for (lane, cell) in cells.iter().enumerate() {
                // SAFETY: as for the loads.
                unsafe {
                    _mm512_storeu_si512(target.add((4 * z + lane) * block + at).cast(), *cell)
                };
            }
        }
    }
    4 * Z
}

/// Transposes a matrix of four by four 128-bit cells.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(x: &mut [__m512i; 4]) {
    let p = _mm512_shuffle_i32x4::<0x88>(x[0], x[1]);
    let q = _mm512_shuffle_i32x4::<0xDD>(x[0], x[1]);
    let r = _mm512_shuffle_i32x4::<0x88>(x[2], x[3]);
    let s = _mm512_shuffle_i32x4::<0xDD>(x[2], x[3]);
    *x = [
        _mm512_shuffle_i32x4::<0x88>(p, r),
        _mm512_shuffle_i32x4::<0x88>(q, s),
        _mm512_shuffle_i32x4::<0xDD>(p, r),
        _mm512_shuffle_i32x4::<0xDD>(q, s),
    ];
}

/// Decrypts one chain, eight AES blocks in parallel, whose states leave no register for the cipher
/// text: it is loaded again before it is overwritten, from the last block to the first.
#[target_feature(enable = "aes")]
fn decrypt_single(schedule: &Schedule, iv: &[u8; CELL], data: &mut [u8]) {
    const LANES: usize = 8;
    let key = keys(&schedule.decrypt);
    let mut previous = from_bytes(iv);
    let (parts, rest) = data.as_chunks_mut::<{ LANES * CELL }>();
    for part in parts {
        let base: *mut u8 = part.as_mut_ptr();
        // SAFETY: n < 8, and eight times 16 bytes are the 128 of `part`.
        let load = |n: usize| unsafe { _mm_loadu_si128(base.add(CELL * n).cast()) };
        let mut plain: [__m128i; LANES] = array::from_fn(|n| _mm_xor_si128(load(n), key[0]));
        for round in key.iter().take(schedule.rounds).skip(1) {
            for x in &mut plain {
                *x = _mm_aesdec_si128(*x, *round);
            }
        }
        let last = load(LANES - 1);
        for n in (0..LANES).rev() {
            let chained = if n == 0 { previous } else { load(n - 1) };
            let x = _mm_aesdeclast_si128(plain[n], key[schedule.rounds]);
            // SAFETY: as for the loads.
            unsafe { _mm_storeu_si128(base.add(CELL * n).cast(), _mm_xor_si128(x, chained)) };
        }
        previous = last;
    }
    for block in rest.as_chunks_mut::<CELL>().0 {
        let cipher = from_bytes(block);
        let mut x = _mm_xor_si128(cipher, key[0]);
        for round in key.iter().take(schedule.rounds).skip(1) {
            x = _mm_aesdec_si128(x, *round);
        }
        x = _mm_xor_si128(_mm_aesdeclast_si128(x, key[schedule.rounds]), previous);
        *block = to_bytes(x);
        previous = cipher;
    }
}

/// Decrypts one chain of a multiple of 256 bytes, sixteen AES blocks in parallel.
#[target_feature(enable = "aes,vaes,avx2")]
fn decrypt_double(schedule: &Schedule, iv: &[u8; CELL], data: &mut [u8]) {
    let key: [__m256i; 15] =
        array::from_fn(|round| _mm256_broadcastsi128_si256(from_bytes(&schedule.decrypt[round])));
    // The upper half of the previous register, to which the first cell of the next one is chained.
    let mut previous = _mm256_broadcastsi128_si256(from_bytes(iv));
    for part in data.as_chunks_mut::<256>().0 {
        let base: *mut u8 = part.as_mut_ptr();
        // SAFETY: eight times 32 bytes are the 256 of `part`.
        let cipher: [__m256i; 8] =
            array::from_fn(|n| unsafe { _mm256_loadu_si256(base.add(32 * n).cast()) });
        let mut plain: [__m256i; 8] = array::from_fn(|n| _mm256_xor_si256(cipher[n], key[0]));
        for round in key.iter().take(schedule.rounds).skip(1) {
            for x in &mut plain {
                *x = _mm256_aesdec_epi128(*x, *round);
            }
        }
        for n in 0..8 {
            let chained = _mm256_permute2x128_si256::<0x21>(previous, cipher[n]);
            previous = cipher[n];
            let x = _mm256_xor_si256(
                _mm256_aesdeclast_epi128(plain[n], key[schedule.rounds]),
                chained,
            );
            // SAFETY: as for the loads.
            unsafe { _mm256_storeu_si256(base.add(32 * n).cast(), x) };
        }
    }
}

/// Decrypts one chain of a multiple of 512 bytes, thirty-two AES blocks in parallel.
#[target_feature(enable = "aes,vaes,avx512f")]
fn decrypt_quadruple(schedule: &Schedule, iv: &[u8; CELL], data: &mut [u8]) {
    let key: [__m512i; 15] =
        array::from_fn(|round| _mm512_broadcast_i32x4(from_bytes(&schedule.decrypt[round])));
    // The top lane of the previous register, to which the first cell of the next one is chained.
    let mut previous = _mm512_broadcast_i32x4(from_bytes(iv));
    for part in data.as_chunks_mut::<512>().0 {
        let base: *mut u8 = part.as_mut_ptr();
        // SAFETY: eight times 64 bytes are the 512 of `part`.
        let cipher: [__m512i; 8] =
            array::from_fn(|n| unsafe { _mm512_loadu_si512(base.add(64 * n).cast()) });
        let mut plain: [__m512i; 8] = array::from_fn(|n| _mm512_xor_si512(cipher[n], key[0]));
        for round in key.iter().take(schedule.rounds).skip(1) {
            for x in &mut plain {
                *x = _mm512_aesdec_epi128(*x, *round);
            }
        }
        for n in 0..8 {
            let chained = _mm512_alignr_epi64::<6>(cipher[n], previous);
            previous = cipher[n];
            let x = _mm512_xor_si512(
                _mm512_aesdeclast_epi128(plain[n], key[schedule.rounds]),
                chained,
            );
            // SAFETY: as for the loads.
            unsafe { _mm512_storeu_si512(base.add(64 * n).cast(), x) };
        }
    }
}
