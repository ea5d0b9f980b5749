//! AES and SHA-1 with processor instructions on x86-64; the only `unsafe` code of the library.
//!
//! CBC encryption is serial within a block of the image, but blocks are independent: sixteen of
//! them run in parallel, one in each 128-bit lane of four 512-bit registers or eight of 256 bits,
//! which hides the latency of the AES unit twelvefold; with AES-NI alone eight. Decryption is
//! inherently parallel. An initialization vector is the HMAC-SHA1 of a number, two compressions
//! once the key's pads are prepared; with 512-bit registers sixteen run in parallel, one in each
//! 32-bit lane, at a fourth of the cost of the SHA extensions; eight in 256-bit registers at about
//! half the cost. XTS is parallel in both directions; four of its tweaks are computed at a time,
//! one in each lane of a 512-bit register.
//!
//! Every function here is compared with the plain crates on random input (`aes.rs`, `hmac.rs`,
//! `sectors.rs`, `xts.rs` above). Each back end is a type that only its own detection can
//! construct, which proves that its instructions are supported.
#![allow(unsafe_code, reason = "intrinsics; each block says why it is sound")]

mod aes;
mod sha1;
mod sha1_wide;
mod xts;

use std::arch::x86_64::__m128i;

pub(super) use aes::{NativeAes, Width};
pub(super) use sha1::NativeSha1;
pub(super) use sha1_wide::WideSha1;
pub(super) use xts::NativeXts;

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
