//! Checksum of the whole disk of an image. It does not depend on the container: the same disk has
//! the same checksum in every format.

use std::fmt;
use std::str::FromStr;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::pipeline::{self, DiskPiece};
use crate::device::{BlockDevice, ZEROS};
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Result};

/// A checksum algorithm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names")]
pub enum Algorithm {
    Crc32,
    Md5,
    Sha1,
    #[default]
    Sha256,
    Sha384,
    Sha512,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 6] = [
        Self::Crc32,
        Self::Md5,
        Self::Sha1,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
    ];

    /// Returns hdiutil's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Error;

    /// Parses hdiutil's name in any case, with or without a hyphen. `SHA` is SHA-1.
    fn from_str(text: &str) -> Result<Self> {
        let name = match text.to_ascii_uppercase().replace('-', "").as_str() {
            "SHA" => "SHA1".to_owned(),
            name => name.to_owned(),
        };
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(|algorithm| algorithm.name().to_ascii_lowercase());
                Error::invalid(
                    "checksum",
                    format!("unknown name: expected one of {}", known.join(", ")),
                )
                .named(text)
            })
    }
}

/// Returns the checksum of all bytes of `disk`, in lower-case hexadecimal digits.
pub fn checksum(
    disk: &dyn BlockDevice,
    algorithm: Algorithm,
    progress: &dyn Progress,
) -> Result<String> {
    let len = disk.info().len;
    progress.stage("checksum", len);
    let mut sum = ChecksumState::new(algorithm);
    pipeline::in_order(disk, 0..len, progress, |piece| {
        match piece {
            DiskPiece::Data(_, bytes) => sum.update(bytes),
            DiskPiece::Zeros(range) => sum.update_zeros(range.end - range.start),
        }
        Ok(())
    })?;
    Ok(sum.finish())
}

/// A checksum in progress.
enum ChecksumState {
    Crc32(crc32fast::Hasher),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl ChecksumState {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Crc32 => Self::Crc32(crc32fast::Hasher::new()),
            Algorithm::Md5 => Self::Md5(Md5::default()),
            Algorithm::Sha1 => Self::Sha1(Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha384 => Self::Sha384(Sha384::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(sum) => sum.update(bytes),
            Self::Md5(sum) => sum.update(bytes),
            Self::Sha1(sum) => sum.update(bytes),
            Self::Sha256(sum) => sum.update(bytes),
            Self::Sha384(sum) => sum.update(bytes),
            Self::Sha512(sum) => sum.update(bytes),
        }
    }

    /// Adds `count` zeros. Only CRC-32 can be combined from parts; the others hash every zero.
    fn update_zeros(&mut self, count: u64) {
        if let Self::Crc32(sum) = self {
            return sum.combine(&crc_of_zeros(count));
        }
        let mut left = count;
        while left > 0 {
            let piece = left.min(ZEROS.len() as u64);
            self.update(&ZEROS[..to_usize(piece)]);
            left -= piece;
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Crc32(sum) => format!("{:08x}", sum.finalize()),
            Self::Md5(sum) => hex(&sum.finalize()),
            Self::Sha1(sum) => hex(&sum.finalize()),
            Self::Sha256(sum) => hex(&sum.finalize()),
            Self::Sha384(sum) => hex(&sum.finalize()),
            Self::Sha512(sum) => hex(&sum.finalize()),
        }
    }
}

/// Returns the CRC-32 of `count` zeros, combined from those of powers of two.
fn crc_of_zeros(count: u64) -> crc32fast::Hasher {
    let (mut sum, mut power) = (crc32fast::Hasher::new(), crc32fast::Hasher::new());
    power.update(&[0]);
    for bit in 0..u64::BITS - count.leading_zeros() {
        if count >> bit & 1 == 1 {
            sum.combine(&power);
        }
        power.combine(&power.clone());
    }
    sum
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::device::Memory;
    use crate::progress::Silent;

    /// Source of the sums: `printf abc | sha256sum`, and the corresponding commands.
    #[test]
    fn the_sums_of_others() {
        let disk = Memory::from(b"abc".to_vec());
        let of = |name: &str| checksum(&disk, name.parse().unwrap(), &Silent).unwrap();
        assert_eq!(of("crc32"), "352441c2");
        assert_eq!(of("MD5"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(of("SHA"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            of("sha-256"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            of("sha384").starts_with("cb00753f45a35e8bb5a03d699ac65007")
                && of("sha512").starts_with("ddaf35a193617aba")
        );
        assert_eq!(
            "crc28".parse::<Algorithm>().unwrap_err().kind(),
            Kind::Invalid
        );
    }

    #[test]
    fn zeros_that_are_not_read_count_the_same() {
        for count in [0, 1, 2, 511, 65_537, 1 << 20] {
            let mut bytes = vec![7; 100];
            bytes.resize(100 + count, 0);
            for algorithm in Algorithm::ALL {
                let (mut whole, mut parts) =
                    (ChecksumState::new(algorithm), ChecksumState::new(algorithm));
                whole.update(&bytes);
                parts.update(&bytes[..100]);
                parts.update_zeros(count as u64);
                assert_eq!(
                    whole.finish(),
                    parts.finish(),
                    "{algorithm} of {count} zeros"
                );
            }
        }
    }
}
