//! The keys of archives with a passphrase: scrypt (RFC 7914) with a block size of 8 and no
//! parallelism.

use scrypt::Params;
use zeroize::Zeroizing;

use super::LAYER;
use crate::{Error, Result};

/// Binary logarithms of the costs of the strengths in the header: 16, 64 and 256 MiB of memory. The
/// strongest takes 1 GiB, and is refused.
const LOG_COSTS: [u8; 3] = [14, 16, 18];
/// The largest strength of the format.
const MAX_STRENGTH: u8 = 3;

/// Derives 32 bytes from a passphrase. [`Kind::Limit`](crate::Kind::Limit) if it takes too much
/// memory.
pub(super) fn derive(passphrase: &[u8], salt: &[u8], strength: u8) -> Result<Zeroizing<[u8; 32]>> {
    let limit = |message: String| Error::limit(LAYER, message).at(7);
    let Some(&log_cost) = LOG_COSTS.get(usize::from(strength)) else {
        return Err(limit(match strength {
            MAX_STRENGTH => {
                "scrypt strength 3 takes 1 GiB of memory: at most 2 is supported".into()
            }
            _ => format!("unknown scrypt strength {strength}: expected 0 to {MAX_STRENGTH}"),
        }));
    };
    let params = Params::new(log_cost, 8, 1).map_err(|error| limit(error.to_string()))?;
    let mut derived = Zeroizing::new([0; 32]);
    scrypt::scrypt(passphrase, salt, &params, &mut *derived)
        .map_err(|error| limit(error.to_string()))?;
    Ok(derived)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// RFC 7914, section 12, the third case: the first half.
    #[test]
    fn known_derived_key() {
        let derived = derive(b"pleaseletmein", b"SodiumChloride", 0).unwrap();
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
                derive(b"x", b"y", strength).unwrap_err().kind(),
                Kind::Limit
            );
        }
    }
}
