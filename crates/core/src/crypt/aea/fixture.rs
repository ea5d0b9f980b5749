//! Archives for tests, with any contents of their headers.

use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::{U32, U64};
use zeroize::Zeroizing;

use super::derive::{KeySchedule, derivation_key, hkdf};
use super::keys::{ArchiveKey, ArchiveKeys, P256PublicKey, SymmetricKey};
use super::layout::{ChecksumKind, HeaderRaw, MAC, MAGIC, Profile, RootRaw, SegmentRaw, TailRaw};
use super::scrypt::derive;
use super::segments::checksum;
use crate::codec::{Codec, Encoder, Level};
use crate::crypt::Secret;
use crate::size::{narrow, to_usize};

/// The symmetric key of archives for tests.
pub const KEY: [u8; 32] = [0x4B; 32];
/// The passphrase of archives for tests.
pub const PASSPHRASE: &str = "correct horse";

/// An archive to make. It is not signed, even if its profile is.
#[derive(Debug, Clone)]
pub struct ArchiveFixture {
    /// The profile; not one with a private key.
    pub profile: Profile,
    /// The metadata.
    pub metadata: Vec<u8>,
    /// Size of a segment in bytes.
    pub segment_size: u32,
    /// Number of segments in a cluster.
    pub segments_per_cluster: u32,
    /// The compression, `-`, `e`, `x` or `z`; any other is recorded, and segments are stored as they are.
    pub compression: u8,
    /// The number of the kind of checksum: 0, 1 or 2.
    pub checksum: u8,
    /// Changes the root header before it is encrypted.
    pub change_root: fn(&mut [u8]),
    /// Changes the headers of the segments of a cluster before they are encrypted.
    pub change_cluster: fn(u32, &mut [u8]),
}

impl Default for ArchiveFixture {
    fn default() -> Self {
        Self {
            profile: Profile::Symmetric,
            metadata: b"\x0d\0\0\0key\0value".to_vec(),
            segment_size: 16 << 10,
            segments_per_cluster: 4,
            compression: b'z',
            checksum: 2,
            change_root: |_| {},
            change_cluster: |_, _| {},
        }
    }
}

/// Returns the public key of archives for tests. It belongs to no private key.
pub fn signer() -> P256PublicKey {
    let mut point = [9; 65];
    point[0] = 4;
    P256PublicKey::parse(&point).unwrap_or_else(|error| panic!("{error}"))
}

impl ArchiveFixture {
    /// Returns the keys that open the archive.
    pub fn keys(&self) -> ArchiveKeys {
        let key = match self.profile {
            Profile::Passphrase => ArchiveKey::Passphrase(Secret::new(PASSPHRASE.into())),
            _ => ArchiveKey::Symmetric(
                SymmetricKey::parse(&KEY).unwrap_or_else(|error| panic!("{error}")),
            ),
        };
        ArchiveKeys {
            key: self.profile.is_encrypted().then_some(key),
            signer: self.profile.is_signed().then(signer),
        }
    }

    fn checksum(&self, plain: &[u8]) -> Vec<u8> {
        let kind = match self.checksum {
            1 => ChecksumKind::Murmur,
            2 => ChecksumKind::Sha256,
            _ => ChecksumKind::None,
        };
        checksum(kind, plain)
    }

    fn pack(&self, plain: &[u8]) -> Vec<u8> {
        let codec = match self.compression {
            b'e' => Codec::Lzfse,
            b'x' => Codec::Lzma,
            b'z' => Codec::Zlib,
            _ => return plain.to_vec(),
        };
        let mut packed = Vec::new();
        match Encoder::new(codec, Level::FASTEST).encode(plain, &mut packed) {
            Ok(true) if packed.len() < plain.len() => packed,
            _ => plain.to_vec(),
        }
    }

    /// Returns an archive of `plain`.
    ///
    /// # Panics
    ///
    /// Panics for a profile with a private key.
    pub fn of(&self, plain: &[u8]) -> Vec<u8> {
        self.signed_by(&signer(), plain)
    }

    /// Returns an archive of `plain` to be signed by the owner of a key.
    ///
    /// # Panics
    ///
    /// Panics for a profile with a private key.
    pub fn signed_by(&self, signer: &P256PublicKey, plain: &[u8]) -> Vec<u8> {
        let size = self.segment_size as usize;
        let segment = |number: u64| {
            let at = to_usize(number) * size;
            Some(plain[at..plain.len().min(at + size)].to_vec())
        };
        let pieces = self.pieces_signed_by(signer, plain.len() as u64, &segment);
        pieces.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }

    /// Returns the parts of an archive of `len` bytes, with their offsets. `segment` returns the contents of a
    /// segment; `None`: it is one that does not compress, and only its header is made. It cannot be read.
    ///
    /// # Panics
    ///
    /// Panics for a profile with a private key.
    pub fn pieces(
        &self,
        len: u64,
        segment: &dyn Fn(u64) -> Option<Vec<u8>>,
    ) -> Vec<(u64, Vec<u8>)> {
        self.pieces_signed_by(&signer(), len, segment)
    }

    fn pieces_signed_by(
        &self,
        signer: &P256PublicKey,
        len: u64,
        segment: &dyn Fn(u64) -> Option<Vec<u8>>,
    ) -> Vec<(u64, Vec<u8>)> {
        let header = HeaderRaw {
            magic: MAGIC,
            profile: [self.profile.number(), 0, 0],
            scrypt_strength: 0,
            metadata_length: U32::new(narrow(self.metadata.len())),
        };
        let salt = [0x5A; 32];
        let mut main_salt = salt;
        let key = match self.profile {
            Profile::Signed | Profile::Symmetric | Profile::SymmetricSigned => Zeroizing::new(KEY),
            Profile::Passphrase => {
                let mut salts = [0; 64];
                hkdf(&[], &salt, &[b"AEA_SCRYPT"], &mut salts);
                main_salt.copy_from_slice(&salts[32..]);
                derive(PASSPHRASE.as_bytes(), &salts[..32], 0)
                    .unwrap_or_else(|error| panic!("{error}"))
            }
            other => panic!("{other:?} is not supported"),
        };
        let signer = match self.profile.is_signed() {
            true => signer.point().to_vec(),
            false => Vec::new(),
        };
        let info = [&b"AEA_AMK"[..], &header.as_bytes()[4..8], &signer];
        let main = derivation_key(&main_salt, &*key, &info);
        let keys = KeySchedule::new(main, self.profile.is_encrypted());
        let (clusters, first_mac) = self.clusters(len, segment, &keys);
        let clusters_len: u64 = clusters.iter().map(Part::len).sum();
        let mut prologue = [header.as_bytes(), &self.metadata].concat();
        let signature_at = prologue.len();
        prologue.resize(signature_at + self.profile.signature_len(), 0);
        if self.profile == Profile::Signed {
            prologue.extend_from_slice(&KEY);
        } else if self.profile.is_signed() {
            let key = keys.signature();
            let (signature, mac) = prologue[signature_at..].split_at_mut(128);
            key.apply(signature);
            mac.copy_from_slice(&key.mac(&[], signature));
        }
        let mut root = RootRaw {
            size: U64::new(len),
            archive_size: U64::new((prologue.len() + size_of::<TailRaw>()) as u64 + clusters_len),
            segment_size: U32::new(self.segment_size),
            segments: U32::new(self.segments_per_cluster),
            compression: self.compression,
            checksum: self.checksum,
            unused: [0; 22],
        };
        (self.change_root)(root.as_mut_bytes());
        let key = keys.root();
        key.apply(root.as_mut_bytes());
        let tail = TailRaw {
            salt,
            root_mac: key.mac(&[&first_mac, &self.metadata], root.as_bytes()),
            root: root.as_bytes().try_into().unwrap_or([0; 48]),
            first_mac,
        };
        let mut pieces = vec![(0, [&prologue, tail.as_bytes()].concat())];
        let mut at = pieces[0].1.len() as u64;
        for part in clusters {
            let start = at;
            at += part.len();
            if let Part::Made(bytes) = part {
                pieces.push((start, bytes));
            }
        }
        pieces
    }

    /// Returns all clusters, and the MAC of the header of the first.
    fn clusters(
        &self,
        len: u64,
        segment: &dyn Fn(u64) -> Option<Vec<u8>>,
        keys: &KeySchedule,
    ) -> (Vec<Part>, [u8; MAC]) {
        let size = u64::from(self.segment_size);
        let in_each = u64::from(self.segments_per_cluster);
        let mut next_mac = [0xEE; MAC];
        let mut clusters = Vec::new();
        for number in (0..len.div_ceil(size * in_each)).rev() {
            let key = keys.cluster(narrow(number));
            let (mut headers, mut macs, mut data) = (Vec::new(), next_mac.to_vec(), Vec::new());
            for place in 0..in_each {
                let at = (number * in_each + place) * size;
                let plain_len = len.saturating_sub(at).min(size);
                let plain = match plain_len {
                    0 => Some(Vec::new()),
                    _ => segment(number * in_each + place),
                };
                let mut packed = plain.as_ref().map(|plain| self.pack(plain));
                let stored = (packed.as_ref()).map_or(plain_len, |packed| packed.len() as u64);
                let header = SegmentRaw {
                    size: U32::new(narrow(plain_len)),
                    stored: U32::new(narrow(stored)),
                };
                headers.extend_from_slice(header.as_bytes());
                headers.extend(self.checksum(&plain.unwrap_or_default()));
                let of_segment = keys.segment(&key, narrow(place));
                if let Some(packed) = &mut packed {
                    of_segment.apply(packed);
                }
                let bytes = packed.as_deref().unwrap_or_default();
                macs.extend(of_segment.mac(&[], bytes));
                data.push(packed.map_or(Part::Absent(stored), Part::Made));
            }
            (self.change_cluster)(narrow(number), &mut headers);
            let of_header = keys.cluster_header(&key);
            of_header.apply(&mut headers);
            next_mac = of_header.mac(&[&macs], &headers);
            clusters.extend(data.into_iter().rev());
            clusters.push(Part::Made([headers, macs].concat()));
        }
        clusters.reverse();
        (clusters, next_mac)
    }
}

/// A part of an archive.
enum Part {
    Made(Vec<u8>),
    /// A segment of this many bytes that is not made.
    Absent(u64),
}

impl Part {
    fn len(&self) -> u64 {
        match self {
            Self::Made(bytes) => bytes.len() as u64,
            Self::Absent(len) => *len,
        }
    }
}
