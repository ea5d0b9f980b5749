//! On-disk structures of encrypted archives. All integers are little-endian. Source:
//! docs/formats/aea.md.

use std::fmt;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::LAYER;
use crate::{Error, Result};

/// Magic at the start of an archive.
pub(super) const MAGIC: [u8; 4] = *b"AEA1";
/// Maximum length of the metadata in bytes; that of macOS has a few kilobytes.
pub(super) const MAX_METADATA: u32 = 1 << 20;
/// Maximum size of a segment in bytes; those of macOS have 1 MiB.
const MAX_SEGMENT: u32 = 64 << 20;
/// Maximum number of segments in a cluster; macOS writes 256.
const MAX_SEGMENTS: u32 = 1 << 16;
/// Length of a MAC in bytes.
pub(super) const MAC: usize = 32;

/// A MAC: HMAC-SHA-256.
pub(super) type Mac = [u8; MAC];

/// The header at the start of an archive.
///
/// Source: kinnay/AEA, FORMAT.md (docs/formats/aea.md §1).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeaderRaw {
    /*00*/ pub(super) magic: [u8; 4],
    /*04*/ pub(super) profile: [u8; 3],
    /*07*/ pub(super) scrypt_strength: u8,
    /*08*/
    pub(super) metadata_length: U32,
    /*0C*/ // metadata, signature, key, salt, MAC and root header
}
pub(super) const HEADER_SIZE: usize = 12;
const _: () = assert!(size_of::<HeaderRaw>() == HEADER_SIZE);

/// The part of the prologue that all profiles have in common, at its end.
///
/// Source: kinnay/AEA, FORMAT.md (docs/formats/aea.md §1).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct TailRaw {
    /*00*/ pub(super) salt: [u8; 32],
    /*20*/ pub(super) root_mac: Mac,
    /*40*/ pub(super) root: [u8; ROOT_SIZE],
    /*70*/ pub(super) first_mac: Mac,
}
pub(super) const TAIL_SIZE: usize = 0x90;
const _: () = assert!(size_of::<TailRaw>() == TAIL_SIZE);

/// The root header, encrypted unless the archive is only signed.
///
/// Source: kinnay/AEA, FORMAT.md (docs/formats/aea.md §2).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RootRaw {
    /*00*/ pub(super) size: U64,
    /*08*/ pub(super) archive_size: U64,
    /*10*/ pub(super) segment_size: U32,
    /*14*/ pub(super) segments: U32, // in each cluster
    /*18*/ pub(super) compression: u8,
    /*19*/ pub(super) checksum: u8,
    /*1A*/ pub(super) unused: [u8; 22],
}
pub(super) const ROOT_SIZE: usize = 48;
const _: () = assert!(size_of::<RootRaw>() == ROOT_SIZE);

/// The start of a segment header, which a checksum follows.
///
/// Source: kinnay/AEA, FORMAT.md (docs/formats/aea.md §3).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct SegmentRaw {
    /*00*/ pub(super) size: U32,
    /*04*/ pub(super) stored: U32,
    /*08*/ // the checksum
}
pub(super) const SEGMENT_SIZE: usize = 8;
const _: () = assert!(size_of::<SegmentRaw>() == SEGMENT_SIZE);

/// The kinds of keys, encryption and signature of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Profile 0: signed, not encrypted.
    Signed,
    /// Profile 1: encrypted with a symmetric key.
    Symmetric,
    /// Profile 2: encrypted with a symmetric key, and signed.
    SymmetricSigned,
    /// Profile 3: encrypted for the owner of a private key.
    Recipient,
    /// Profile 4: encrypted for the owner of a private key, and signed.
    RecipientSigned,
    /// Profile 5: encrypted with a passphrase.
    Passphrase,
}

impl Profile {
    /// All profiles, by their numbers.
    pub const ALL: [Self; 6] = [
        Self::Signed,
        Self::Symmetric,
        Self::SymmetricSigned,
        Self::Recipient,
        Self::RecipientSigned,
        Self::Passphrase,
    ];

    /// Returns the number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns Apple's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signed => "hkdf_sha256_hmac__none__ecdsa_p256",
            Self::Symmetric => "hkdf_sha256_aesctr_hmac__symmetric__none",
            Self::SymmetricSigned => "hkdf_sha256_aesctr_hmac__symmetric__ecdsa_p256",
            Self::Recipient => "hkdf_sha256_aesctr_hmac__ecdhe_p256__none",
            Self::RecipientSigned => "hkdf_sha256_aesctr_hmac__ecdhe_p256__ecdsa_p256",
            Self::Passphrase => "hkdf_sha256_aesctr_hmac__scrypt__none",
        }
    }

    /// Returns a description for users.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Signed => "signed, not encrypted",
            Self::Symmetric => "encrypted with a symmetric key",
            Self::SymmetricSigned => "encrypted with a symmetric key, signed",
            Self::Recipient => "encrypted for a private key",
            Self::RecipientSigned => "encrypted for a private key, signed",
            Self::Passphrase => "encrypted with a passphrase",
        }
    }

    /// Returns true if the contents are encrypted.
    pub const fn is_encrypted(self) -> bool {
        !matches!(self, Self::Signed)
    }

    /// Returns true if the archive is signed.
    pub const fn is_signed(self) -> bool {
        matches!(
            self,
            Self::Signed | Self::SymmetricSigned | Self::RecipientSigned
        )
    }

    /// Returns the length of the signature in bytes. An encrypted one has a MAC.
    pub(super) const fn signature_len(self) -> usize {
        match (self.is_signed(), self.is_encrypted()) {
            (false, _) => 0,
            (true, false) => SIGNATURE,
            (true, true) => SIGNATURE + MAC,
        }
    }

    /// Returns the length of the key in the prologue, in bytes: a random one, or the public key of
    /// the sender.
    pub(super) const fn key_len(self) -> usize {
        match self {
            Self::Signed => 32,
            Self::Recipient | Self::RecipientSigned => 65,
            Self::Symmetric | Self::SymmetricSigned | Self::Passphrase => 0,
        }
    }
}

/// Length of a signature with its padding in bytes.
pub(super) const SIGNATURE: usize = 128;

/// The parsed header of an archive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) profile: Profile,
    pub(super) scrypt_strength: u8,
    pub(super) metadata: u32,
}

impl Header {
    pub(super) fn parse(raw: &HeaderRaw) -> Result<Self> {
        let [low, middle, high] = raw.profile;
        let number = u32::from_le_bytes([low, middle, high, 0]);
        let known = usize::try_from(number)
            .ok()
            .and_then(|number| Profile::ALL.get(number));
        let profile = *known.ok_or_else(|| {
            Error::unsupported(LAYER, format!("unknown profile {number}: expected 0 to 5")).at(4)
        })?;
        let metadata = raw.metadata_length.get();
        if metadata > MAX_METADATA {
            let message =
                format!("{metadata} bytes of metadata: at most {MAX_METADATA} are supported");
            return Err(Error::limit(LAYER, message).at(8));
        }
        Ok(Self {
            profile,
            scrypt_strength: raw.scrypt_strength,
            metadata,
        })
    }

    /// Returns the file offset of the signature, in bytes.
    pub(super) fn signature_at(&self) -> usize {
        HEADER_SIZE + self.metadata as usize
    }

    /// Returns the length of everything before the first cluster, in bytes.
    pub(super) fn prologue_len(&self) -> usize {
        self.signature_at() + self.profile.signature_len() + self.profile.key_len() + TAIL_SIZE
    }
}

/// The compression of segments. One that would not be shorter is stored as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// None.
    None,
    /// LZ4, with or without Apple's frame.
    Lz4,
    /// LZBITMAP.
    Lzbitmap,
    /// LZFSE.
    Lzfse,
    /// LZVN.
    Lzvn,
    /// LZMA2 in an xz stream.
    Lzma,
    /// A zlib stream.
    Zlib,
}

impl Compression {
    /// The compressions that new archives may have.
    pub const WRITTEN: [Self; 5] = [Self::Lzfse, Self::Zlib, Self::Lz4, Self::Lzma, Self::None];

    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            b'-' => Self::None,
            b'4' => Self::Lz4,
            b'b' => Self::Lzbitmap,
            b'e' => Self::Lzfse,
            b'f' => Self::Lzvn,
            b'x' => Self::Lzma,
            b'z' => Self::Zlib,
            _ => return None,
        })
    }

    const fn byte(self) -> u8 {
        match self {
            Self::None => b'-',
            Self::Lz4 => b'4',
            Self::Lzbitmap => b'b',
            Self::Lzfse => b'e',
            Self::Lzvn => b'f',
            Self::Lzma => b'x',
            Self::Zlib => b'z',
        }
    }

    /// Returns the name for users and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Lzbitmap => "lzbitmap",
            Self::Lzfse => "lzfse",
            Self::Lzvn => "lzvn",
            Self::Lzma => "lzma",
            Self::Zlib => "zlib",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The checksum of the contents of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumKind {
    /// None.
    None,
    /// MurmurHash64A.
    Murmur,
    /// SHA-256.
    Sha256,
}

impl ChecksumKind {
    /// Returns the length in bytes.
    pub(super) const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Murmur => 8,
            Self::Sha256 => 32,
        }
    }

    /// Returns the name for users and programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Murmur => "murmur",
            Self::Sha256 => "sha256",
        }
    }
}

/// The parsed root header: the sizes and methods of the whole archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootHeader {
    /// Length of the contents in bytes.
    pub size: u64,
    /// Length of the archive in bytes.
    pub archive_size: u64,
    /// Size of a segment in bytes; the last one may be shorter.
    pub segment_size: u32,
    /// Number of segments in a cluster.
    pub segments_per_cluster: u32,
    /// The compression of segments.
    pub compression: Compression,
    /// The checksum of each segment.
    pub checksum: ChecksumKind,
}

impl RootHeader {
    /// Parses the decrypted header of an archive in a file of `file_len` bytes, in which the first
    /// cluster begins at `first`. Refuses what the file cannot hold.
    pub(super) fn parse(bytes: &[u8; ROOT_SIZE], first: u64, file_len: u64) -> Result<Self> {
        let invalid = |message: String| Error::new(crate::Kind::Corrupt, ROOT, message);
        let raw = RootRaw::read_from_bytes(bytes).map_err(|_| invalid("too short".into()))?;
        let compression = Compression::parse(raw.compression).ok_or_else(|| {
            let message = format!(
                "unknown compression `{}`",
                char::from(raw.compression).escape_default()
            );
            Error::unsupported(ROOT, message)
        })?;
        let checksum = match raw.checksum {
            0 => ChecksumKind::None,
            1 => ChecksumKind::Murmur,
            2 => ChecksumKind::Sha256,
            other => {
                let message = format!("unknown kind of checksum {other}");
                return Err(Error::unsupported(ROOT, message));
            }
        };
        let root = Self {
            size: raw.size.get(),
            archive_size: raw.archive_size.get(),
            segment_size: raw.segment_size.get(),
            segments_per_cluster: raw.segments.get(),
            compression,
            checksum,
        };
        if root.segment_size == 0 || root.segments_per_cluster == 0 {
            let message = format!(
                "segments of {} bytes, {} in each cluster",
                root.segment_size, root.segments_per_cluster
            );
            return Err(invalid(message));
        }
        if root.segment_size > MAX_SEGMENT || root.segments_per_cluster > MAX_SEGMENTS {
            let message = format!(
                "segments of {} bytes, {} in each cluster: at most {MAX_SEGMENT} bytes and \
                 {MAX_SEGMENTS} segments are supported",
                root.segment_size, root.segments_per_cluster
            );
            return Err(Error::limit(ROOT, message));
        }
        if u32::try_from(root.segments()).is_err() {
            let message = format!(
                "{} segments: at most 2^32 - 1 are supported",
                root.segments()
            );
            return Err(Error::limit(ROOT, message));
        }
        // The headers of all clusters, and a byte of each segment.
        let least = root
            .clusters()
            .saturating_mul(root.cluster_header_len() as u64)
            .saturating_add(root.segments());
        let end = first.saturating_add(least).max(root.archive_size);
        if end > file_len {
            let message = format!(
                "the file is truncated: it ends here, but the archive needs at least {end} bytes"
            );
            return Err(Error::corrupt(LAYER, file_len, message).because(crate::Reason::Truncated));
        }
        Ok(root)
    }

    /// Returns the header as it is stored, not encrypted.
    pub(super) fn encode(&self) -> [u8; ROOT_SIZE] {
        let raw = RootRaw {
            size: U64::new(self.size),
            archive_size: U64::new(self.archive_size),
            segment_size: U32::new(self.segment_size),
            segments: U32::new(self.segments_per_cluster),
            compression: self.compression.byte(),
            checksum: match self.checksum {
                ChecksumKind::None => 0,
                ChecksumKind::Murmur => 1,
                ChecksumKind::Sha256 => 2,
            },
            unused: [0; 22],
        };
        zerocopy::transmute!(raw)
    }

    /// Returns the number of segments with contents.
    pub fn segments(&self) -> u64 {
        self.size.div_ceil(u64::from(self.segment_size))
    }

    /// Returns the number of clusters.
    pub fn clusters(&self) -> u64 {
        self.segments()
            .div_ceil(u64::from(self.segments_per_cluster))
    }

    /// Returns the length of the contents of segment `number`, in bytes; 0 past the end.
    pub(super) fn segment_len(&self, number: u64) -> u32 {
        let size = u64::from(self.segment_size);
        let start = number.saturating_mul(size);
        let rest = self.size.saturating_sub(start).min(size);
        crate::size::narrow(rest)
    }

    /// Returns the length of the encrypted segment headers of a cluster, in bytes.
    pub(super) fn headers_len(&self) -> usize {
        self.segments_per_cluster as usize * (SEGMENT_SIZE + self.checksum.len())
    }

    /// Returns the length of the header of a cluster in bytes: the segment headers, the MAC of the
    /// next cluster, and the MACs of all segments.
    pub(super) fn cluster_header_len(&self) -> usize {
        self.headers_len() + MAC + self.segments_per_cluster as usize * MAC
    }
}

/// The layer name in errors about the root header.
const ROOT: &str = "root header of the encrypted archive";
