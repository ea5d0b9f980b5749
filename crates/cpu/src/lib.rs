//! AES and SHA-1 with processor instructions on x86-64, in `unsafe` code.
//!
//! CBC encryption is serial within a block of the image, but blocks are independent: sixteen of
//! them run in parallel, one in each 128-bit lane of four 512-bit registers or eight of 256 bits,
//! which hides the latency of the AES unit twelvefold; with AES-NI alone eight. Decryption is
//! inherently parallel. An initialization vector is the HMAC-SHA1 of a number, two compressions
//! once the key's pads are prepared; with 512-bit registers sixteen run in parallel, one in each
//! 32-bit lane, at a fourth of the cost of the SHA extensions; eight in 256-bit registers at about
//! half the cost. XTS is parallel in both directions: with 512-bit registers four of its tweaks
//! are computed at a time, one in each lane; with AES-NI eight blocks are in flight.
//!
//! The `aes` crate, with its own VAES back ends and 64 blocks in flight, encrypts at 0.4 to 0.6 of
//! this speed with 256-bit registers and decrypts at 0.3 of it, since each step is a pass of its own
//! over the data; so these functions stay.
//!
//! The tests here hold known answers; the library compares every function with the plain crates on
//! random input (`crates/core/src/crypt/{aes,hmac,sectors,xts}.rs`). Each back end is a type that only its own
//! detection can construct, which proves that its instructions are supported.
#![cfg(target_arch = "x86_64")]
#![allow(unsafe_code, reason = "intrinsics; each block says why it is sound")]

mod aes;
mod sha1;
mod sha1_wide;
mod xts;

use std::arch::x86_64::__m128i;

pub use aes::{NativeAes, Width};
pub use sha1::NativeSha1;
pub use sha1_wide::WideSha1;
pub use xts::NativeXts;

/// Size of an AES block, and of an initialization vector, in bytes.
const CELL: usize = 16;

#[inline]
fn to_bytes(x: __m128i) -> [u8; CELL] {
    // SAFETY: both are 16 plain bytes.
    unsafe { std::mem::transmute(x) }
}

#[inline]
fn from_bytes(x: &[u8; CELL]) -> __m128i {
    // SAFETY: both are 16 plain bytes.
    unsafe { std::mem::transmute(*x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    }

    /// NIST SP 800-38A, F.2.1 and F.2.5: CBC-AES128 and CBC-AES256 of four blocks.
    #[test]
    fn cbc_known_answers() {
        let plain: [u8; 64] = hex(concat!(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51",
            "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
        ));
        let iv: [u8; CELL] = std::array::from_fn(|at| at as u8);
        let short: [u8; 16] = hex("2b7e151628aed2a6abf7158809cf4f3c");
        let long: [u8; 32] =
            hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
        let answers = [
            concat!(
                "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2",
                "73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7"
            ),
            concat!(
                "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d",
                "39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b"
            ),
        ];
        for (key, answer) in [&short[..], &long[..]].into_iter().zip(answers) {
            for most in [Width::Single, Width::Double, Width::Quadruple] {
                let Some(aes) = NativeAes::new(key, most) else {
                    continue;
                };
                // As many chains as any register holds, and some more.
                let mut data = vec![0; 37 * 64];
                aes.encrypt(&[iv; 37], &plain.repeat(37), &mut data, 64);
                assert!(data.chunks(64).all(|chain| chain == hex::<64>(answer)));
                aes.decrypt(&[iv; 37], &mut data, 64);
                assert!(data.chunks(64).all(|chain| chain == plain));
            }
        }
    }

    /// A chain has the same result whichever chains are encrypted beside it, and however long it is.
    #[test]
    fn long_chains_are_independent() {
        let mut state = 1u64;
        let mut bytes = |len: usize| -> Vec<u8> {
            (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect()
        };
        let key = bytes(32);
        for most in [Width::Single, Width::Double, Width::Quadruple] {
            let Some(aes) = NativeAes::new(&key, most) else {
                continue;
            };
            for (block, chains) in [(1024, 1), (1088, 17), (4096, 15), (4096, 16), (8192, 35)] {
                let ivs: Vec<[u8; CELL]> = (0..chains)
                    .map(|_| bytes(CELL).try_into().unwrap())
                    .collect();
                let plain = bytes(chains * block);
                let mut together = vec![0; plain.len()];
                aes.encrypt(&ivs, &plain, &mut together, block);
                let mut alone = vec![0; plain.len()];
                for ((iv, plain), out) in ivs
                    .iter()
                    .zip(plain.chunks(block))
                    .zip(alone.chunks_mut(block))
                {
                    // In pieces of 64 bytes, each with the end of the one before as its vector.
                    let mut last = *iv;
                    for (plain, out) in plain.chunks(64).zip(out.chunks_mut(64)) {
                        aes.encrypt(&[last], plain, out, 64);
                        last.copy_from_slice(&out[48..]);
                    }
                }
                assert!(together == alone, "{most:?} {block} {chains}");
                aes.decrypt(&ivs, &mut together, block);
                assert!(together == plain, "{most:?} {block} {chains}");
            }
        }
    }

    /// The states of both pads of the key "key".
    const INNER: [u32; 5] = [
        0x57B4_B350,
        0x61F3_80AB,
        0x43E7_5E56,
        0x4113_05A2,
        0x588B_71BA,
    ];
    const OUTER: [u32; 5] = [
        0xD0DC_5C91,
        0xAED3_B16E,
        0xB2AF_8174,
        0x9B5E_179F,
        0xB070_BE78,
    ];

    /// HMAC-SHA1 by Python's `hmac`, the number as 32 bits big-endian.
    #[test]
    fn mac_known_answers() {
        let mut macs = [[0; CELL]; 16];
        let mut check = |compute: &dyn Fn(&mut [[u8; CELL]])| {
            macs = [[0; CELL]; 16];
            compute(&mut macs);
            assert_eq!(macs[0], hex("541e9758ce7c47c41f3ddbe6eaeb83c2"));
            assert_eq!(macs[1], hex("c981e6cee8d7137dd06d00ee9fe7083f"));
            assert_eq!(macs[15], hex("86bf34224138afc85caac1e71c1a99e5"));
        };
        for wide in [WideSha1::eight(), WideSha1::sixteen()]
            .into_iter()
            .flatten()
        {
            check(&|macs| wide.number_macs(&INNER, &OUTER, 5, macs));
        }
        if let Some(native) = NativeSha1::detect() {
            check(&|macs| native.number_macs(&INNER, &OUTER, 5, macs));
            // PBKDF2-HMAC-SHA1 of "key" and "salt", 1000 iterations, by Python's `hashlib`.
            let mut mac = [
                0xC36F_E126,
                0x3A2D_4392,
                0x168A_D616,
                0xE929_1ECC,
                0xE0AA_A0A4,
            ];
            let mut sum = mac;
            native.chain(&INNER, &OUTER, &mut mac, &mut sum, 999);
            assert_eq!(
                sum,
                [
                    0x079B_E1AA,
                    0xB2DA_EB94,
                    0x1EC4_98F1,
                    0x1D60_21FC,
                    0x80B8_4444
                ]
            );
        }
    }

    /// IEEE 1619-2007, annex B, vector 4: the data unit of 512 bytes with number 0.
    #[test]
    fn xts_known_answer() {
        for most in [Width::Single, Width::Quadruple] {
            let Some(xts) = NativeXts::new(
                &hex("27182818284590452353602874713526"),
                &hex("31415926535897932384626433832795"),
                most,
            ) else {
                return;
            };
            let plain: [u8; 512] = std::array::from_fn(|at| at as u8);
            let mut data = plain;
            xts.encrypt(0, &mut data);
            assert_eq!(
                data[..32],
                hex::<32>("27a7479befa1d476489f308cd4cfa6e2a96e4bbe3208ff25287dd3819616e89c")
            );
            assert_eq!(data[496..], hex::<16>("0a282df920147beabe421ee5319d0568"));
            xts.decrypt(0, &mut data);
            assert_eq!(data, plain);
        }
    }
}
