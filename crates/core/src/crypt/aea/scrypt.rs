//! scrypt (RFC 7914) over the crates' Salsa20/8 and SHA-256, with a block size of 8 and no
//! parallelism, as archives use it.

use salsa20::SalsaCore;
use salsa20::cipher::StreamCipherCore;
use salsa20::cipher::typenum::U4;
use zeroize::Zeroizing;

use super::LAYER;
use crate::crypt::hmac256::hmac_sha256_of;
use crate::device;
use crate::{Error, Result};

/// Length of a block in bytes: 128 times the block size.
const BLOCK: usize = 128 * 8;
/// Length of half a unit of the mixing function in bytes.
const CELL: usize = 64;
/// The costs of the strengths in the header; as many kibibytes of memory are used. The strongest
/// is 1 GiB, and refused.
const COSTS: [usize; 3] = [0x4000, 0x10000, 0x40000];
/// The largest strength of the format.
const MAX_STRENGTH: u8 = 3;

/// Derives 32 bytes from a passphrase. [`Kind::Limit`](crate::Kind::Limit) if it takes too much
/// memory.
pub(super) fn scrypt(passphrase: &[u8], salt: &[u8], strength: u8) -> Result<Zeroizing<[u8; 32]>> {
    let Some(&cost) = COSTS.get(usize::from(strength)) else {
        let message = match strength {
            MAX_STRENGTH => {
                "scrypt strength 3 takes 1 GiB of memory: at most 2 is supported".into()
            }
            _ => format!("unknown scrypt strength {strength}: expected 0 to {MAX_STRENGTH}"),
        };
        return Err(Error::limit(LAYER, message).at(7));
    };
    let mut block = Zeroizing::new([0; BLOCK]);
    pbkdf2_once(passphrase, salt, &mut *block);
    mix(&mut block, cost)?;
    let mut derived = Zeroizing::new([0; 32]);
    pbkdf2_once(passphrase, &*block, &mut *derived);
    Ok(derived)
}

/// PBKDF2-HMAC-SHA-256 with one iteration.
fn pbkdf2_once(passphrase: &[u8], salt: &[u8], out: &mut [u8]) {
    for (number, piece) in (1_u32..).zip(out.chunks_mut(32)) {
        let hash = Zeroizing::new(hmac_sha256_of(passphrase, &[salt, &number.to_be_bytes()]));
        piece.copy_from_slice(&hash[..piece.len()]);
    }
}

/// The function ROMix. `cost` is a power of two.
fn mix(block: &mut [u8; BLOCK], cost: usize) -> Result<()> {
    let mut table = Zeroizing::new(device::zeros(cost * BLOCK)?);
    let mut mixed = Zeroizing::new([0; BLOCK]);
    for row in table.chunks_exact_mut(BLOCK) {
        row.copy_from_slice(block);
        mix_block(block, &mut mixed);
        std::mem::swap(block, &mut *mixed);
    }
    for _ in 0..cost {
        let at = BLOCK - CELL;
        let number = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let row = number as usize & (cost - 1);
        xor(block, &table[row * BLOCK..][..BLOCK]);
        mix_block(block, &mut mixed);
        std::mem::swap(block, &mut *mixed);
    }
    Ok(())
}

/// The function BlockMix.
fn mix_block(block: &[u8; BLOCK], out: &mut [u8; BLOCK]) {
    let mut cell = [0; CELL];
    cell.copy_from_slice(&block[BLOCK - CELL..]);
    for (number, next) in block.chunks_exact(CELL).enumerate() {
        xor(&mut cell, next);
        let mut words = [0; CELL / 4];
        for (word, bytes) in words.iter_mut().zip(cell.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        SalsaCore::<U4>::from_raw_state(words).write_keystream_block((&mut cell).into());
        let to = number / 2 * CELL + number % 2 * (BLOCK / 2);
        out[to..to + CELL].copy_from_slice(&cell);
    }
}

fn xor(to: &mut [u8], other: &[u8]) {
    to.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// RFC 7914, section 12, the third case: the first half.
    #[test]
    fn known_derived_key() {
        let derived = scrypt(b"pleaseletmein", b"SodiumChloride", 0).unwrap();
        assert_eq!(
            derived[..],
            [
                0x70, 0x23, 0xbd, 0xcb, 0x3a, 0xfd, 0x73, 0x48, 0x46, 0x1c, 0x06, 0xcd, 0x81, 0xfd,
                0x38, 0xeb, 0xfd, 0xa8, 0xfb, 0xba, 0x90, 0x4f, 0x8e, 0x3e, 0xa9, 0xb5, 0x43, 0xf6,
                0x54, 0x5d, 0xa1, 0xf2
            ]
        );
    }

    #[test]
    fn too_much_memory_is_refused() {
        for strength in [3, 4, 255] {
            assert_eq!(
                scrypt(b"x", b"y", strength).unwrap_err().kind(),
                Kind::Limit
            );
        }
    }
}
