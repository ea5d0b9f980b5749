//! The only `unsafe` of the library: AES and SHA-1 through the processor's own instructions, on
//! x86-64.
//!
//! CBC encryption is serial within a block of the image, but blocks are independent: sixteen of
//! them run side by side, one in each 128-bit lane of four 512-bit registers or eight of 256 bits,
//! and hide the latency of the AES unit twelvefold; by AES-NI alone eight. Decryption is parallel
//! by nature. An initialisation vector is the HMAC-SHA1 of a number, two compressions once the
//! key's pads are prepared; with 512-bit registers sixteen run side by side, one in each 32-bit
//! lane, and cost a fourth of what the SHA extensions take for as many; eight in 256-bit registers
//! cost about half. XTS is parallel in both directions; of its tweaks four are made at once, one in
//! each lane of a 512-bit register.
//!
//! Every function here is compared with the plain crates on random input (`aes.rs`, `hmac.rs`,
//! `sectors.rs`, `xts.rs` above), and each back end is a type that only its own detection can make,
//! which is the proof that its instructions exist.
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

/// Bytes of an AES block, and of an initialisation vector.
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
