//! Hashes of contents.

use bandsaw::Result;
use bandsaw::device::BlockDevice;
use bandsaw::progress::Progress;
use md5::Md5;
use sha2::{Digest, Sha256};

/// Bytes of a read.
pub(crate) const PIECE: usize = 1 << 20;

/// The hashes of a file, in lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hashes {
    pub(crate) sha256: String,
    pub(crate) md5: String,
}

/// Calls `each` for the bytes of a device, in order.
pub(crate) fn pieces(
    of: &dyn BlockDevice,
    progress: &dyn Progress,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let len = of.info().len;
    let most = usize::try_from(len).unwrap_or(PIECE).min(PIECE);
    let mut buf = vec![0; most];
    let mut at = 0;
    while at < len {
        progress.check()?;
        let length = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
        let piece = &mut buf[..length];
        of.read_at(at, piece)?;
        each(piece);
        at += length as u64;
        progress.advance(length as u64);
    }
    Ok(())
}

/// Returns both hashes of a device.
pub(crate) fn hashes(of: &dyn BlockDevice, progress: &dyn Progress) -> Result<Hashes> {
    let (mut sha256, mut md5) = (Sha256::new(), Md5::new());
    pieces(of, progress, &mut |bytes| {
        sha256.update(bytes);
        md5.update(bytes);
    })?;
    Ok(Hashes {
        sha256: hex(&sha256.finalize()),
        md5: hex(&md5.finalize()),
    })
}

/// Returns the SHA-256 of a device.
pub(crate) fn sha256(of: &dyn BlockDevice, progress: &dyn Progress) -> Result<[u8; 32]> {
    let mut sum = Sha256::new();
    pieces(of, progress, &mut |bytes| sum.update(bytes))?;
    Ok(sum.finalize().into())
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 15)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}
