//! New archives, written in order. The header of a cluster holds the MAC of the next, so that the chain
//! of MACs is written last, from the end to the beginning. Source: docs/formats/aea.md.

use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U32;
use zeroize::{Zeroize, Zeroizing};

use super::LAYER;
use super::derive::{KeySchedule, derivation_key, hkdf};
use super::keys::{P256PublicKey, SymmetricKey};
use super::layout::{
    ChecksumKind, Compression, HEADER_SIZE, HeaderRaw, MAC, MAGIC, Mac, Profile, RootHeader,
    SIGNATURE, SegmentRaw, TAIL_SIZE, TailRaw,
};
use super::private_key::P256PrivateKey;
use super::prologue::ArchiveDescription;
use super::scrypt;
use super::segments::checksum;
use super::signature::SignatureState;
use crate::codec::{Codec, Encoder, Level, Lz4Encoder};
use crate::crypt::{Secret, random};
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, ZEROS};
use crate::parallel;
use crate::progress::Progress;
use crate::size::{narrow, to_usize};
use crate::{Error, Result};

/// Maximum number of threads that compress and encrypt.
const MAX_THREADS: usize = 16;
/// Maximum length of the segments that are held in memory, in bytes; one is held in any case.
const MAX_BATCH: usize = 32 << 20;
/// Size of new segments in bytes, and number of them in a cluster: those of macOS.
const SEGMENT: u32 = 1 << 20;
const SEGMENTS: u32 = 256;

/// The key of a new archive.
#[derive(Debug, Clone)]
pub enum NewArchiveKey {
    /// A symmetric key, for profiles 1 and 2.
    Symmetric(SymmetricKey),
    /// The public key of the recipient, for profiles 3 and 4.
    Recipient(P256PublicKey),
    /// A passphrase, for profile 5.
    Passphrase(Secret),
}

/// Options of a new archive.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// The key with which it is encrypted. `None`: it is only signed.
    pub key: Option<NewArchiveKey>,
    /// The private key with which it is signed.
    pub signer: Option<P256PrivateKey>,
    /// The compression of segments, one of [`Compression::WRITTEN`].
    pub compression: Compression,
}

impl NewArchive {
    /// Returns the profile. [`Kind::Invalid`](crate::Kind::Invalid) for an archive that is neither encrypted nor
    /// signed, and for a signed one with a passphrase, which the format does not have.
    pub fn profile(&self) -> Result<Profile> {
        Ok(match (&self.key, &self.signer) {
            (None, None) => {
                let message = "an archive is encrypted, signed or both: a key is required";
                return Err(Error::invalid(LAYER, message));
            }
            (None, Some(_)) => Profile::Signed,
            (Some(NewArchiveKey::Symmetric(_)), None) => Profile::Symmetric,
            (Some(NewArchiveKey::Symmetric(_)), Some(_)) => Profile::SymmetricSigned,
            (Some(NewArchiveKey::Recipient(_)), None) => Profile::Recipient,
            (Some(NewArchiveKey::Recipient(_)), Some(_)) => Profile::RecipientSigned,
            (Some(NewArchiveKey::Passphrase(_)), None) => Profile::Passphrase,
            (Some(NewArchiveKey::Passphrase(_)), Some(_)) => {
                let message = "an archive with a passphrase cannot be signed";
                return Err(Error::invalid(LAYER, message));
            }
        })
    }
}

/// Compresses segments one after the other.
enum Packer {
    None,
    Lz4(Box<Lz4Encoder>),
    Other(Box<Encoder>),
}

impl Packer {
    /// Creates a packer. One of a compression that is only read does not compress.
    fn new(compression: Compression) -> Self {
        let of = |codec| Self::Other(Encoder::new(codec, Level::default()).into());
        match compression {
            Compression::Lz4 => Self::Lz4(Box::default()),
            Compression::Lzfse => of(Codec::Lzfse),
            Compression::Lzma => of(Codec::Lzma),
            Compression::Zlib => of(Codec::Zlib),
            Compression::None | Compression::Lzbitmap | Compression::Lzvn => Self::None,
        }
    }

    /// Returns a segment as it is stored: compressed, or as it is if that is not shorter.
    fn pack(&mut self, plain: &[u8]) -> Result<Vec<u8>> {
        let mut packed = Vec::new();
        let is_shorter = match self {
            Self::None => false,
            Self::Lz4(encoder) => encoder.encode(plain, &mut packed),
            Self::Other(encoder) => encoder.encode(plain, &mut packed)?,
        };
        Ok(match is_shorter {
            true => packed,
            false => plain.to_vec(),
        })
    }
}

/// The keys of a new archive, and the parts of its prologue that depend on them.
struct Prologue {
    keys: KeySchedule,
    /// The random key of profile 0, or the public key of the sender.
    key: Vec<u8>,
    salt: [u8; 32],
}

impl Prologue {
    fn new(options: &NewArchive, profile: Profile) -> Result<Self> {
        let mut salt = [0; 32];
        random(&mut salt)?;
        let (mut main_salt, mut key) = (salt, Vec::new());
        let (mut of_sender, mut of_recipient): (&[u8], &[u8]) = Default::default();
        let secret = match &options.key {
            None => {
                key = vec![0; 32];
                random(&mut key)?;
                Zeroizing::new(key.clone())
            }
            Some(NewArchiveKey::Symmetric(key)) => Zeroizing::new(key.bytes().to_vec()),
            Some(NewArchiveKey::Recipient(recipient)) => {
                let sender = P256PrivateKey::generate()?;
                key = sender.public().point().to_vec();
                of_recipient = recipient.point();
                Zeroizing::new(sender.agree(recipient.point())?.to_vec())
            }
            Some(NewArchiveKey::Passphrase(passphrase)) => {
                let mut salts = Zeroizing::new([0; 64]);
                hkdf(&[], &salt, &[b"AEA_SCRYPT"], &mut *salts);
                let (of_scrypt, of_main) = salts.split_at(32);
                main_salt.copy_from_slice(of_main);
                Zeroizing::new(scrypt::derive(passphrase, of_scrypt, 0)?.to_vec())
            }
        };
        if !of_recipient.is_empty() {
            of_sender = &key;
        }
        let signer = options.signer.as_ref().map(|key| key.public().point());
        let signer = signer.map_or(&[][..], |point| &point[..]);
        let start = [profile.number(), 0, 0, 0];
        let info = [&b"AEA_AMK"[..], &start, of_sender, of_recipient, signer];
        let main = derivation_key(&main_salt, &secret, &info);
        main_salt.zeroize();
        Ok(Self {
            keys: KeySchedule::new(main, profile.is_encrypted()),
            key,
            salt,
        })
    }

    fn len(&self, profile: Profile) -> usize {
        HEADER_SIZE + profile.signature_len() + self.key.len() + TAIL_SIZE
    }

    /// Returns the bytes before the first cluster.
    fn bytes(
        &self,
        profile: Profile,
        root: &RootHeader,
        first_mac: Mac,
        signer: Option<&P256PrivateKey>,
    ) -> Result<Vec<u8>> {
        let header = HeaderRaw {
            magic: MAGIC,
            profile: [profile.number(), 0, 0],
            scrypt_strength: 0,
            metadata_length: U32::new(0),
        };
        let key = self.keys.root();
        let mut raw = root.encode();
        key.apply(&mut raw);
        let tail = TailRaw {
            salt: self.salt,
            root_mac: key.mac(&[&first_mac], &raw),
            root: raw,
            first_mac,
        };
        let place = vec![0; profile.signature_len()];
        let mut bytes = [header.as_bytes(), &place, &self.key, tail.as_bytes()].concat();
        if let Some(signer) = signer {
            let signature = signer.sign(&bytes)?;
            let place = &mut bytes[HEADER_SIZE..HEADER_SIZE + place.len()];
            let (own, mac) = place.split_at_mut(SIGNATURE.min(place.len()));
            match own.get_mut(..signature.len()) {
                Some(start) => start.copy_from_slice(&signature),
                None => return Err(Error::invalid(LAYER, "the signature is too long")),
            }
            if !mac.is_empty() {
                let key = self.keys.signature();
                key.apply(own);
                mac.copy_from_slice(&key.mac(&[], own));
            }
        }
        Ok(bytes)
    }
}

/// A segment ready to be written.
#[derive(Default)]
struct Encoded {
    header: Vec<u8>,
    mac: Mac,
    stored: Vec<u8>,
}

/// A new archive, whose contents are written in order. It is no archive before [`finish`](Self::finish).
/// Memory: 32 MiB of contents, their stored segments, and 8 bytes for each cluster.
pub struct ArchiveWriter<'a> {
    file: &'a dyn BlockDevice,
    options: &'a NewArchive,
    profile: Profile,
    prologue: Prologue,
    /// The sizes and methods; `size` grows with the contents.
    root: RootHeader,
    threads: usize,
    /// Contents that were not encoded yet, less than `batch` bytes.
    pending: Vec<u8>,
    /// Length at which they are encoded, in bytes: whole segments.
    batch: usize,
    /// File offset of the next segment, in bytes.
    at: u64,
    /// File offsets of the clusters, in bytes.
    starts: Vec<u64>,
    /// The headers and MACs of the segments of the last cluster, while it is not full.
    headers: Vec<u8>,
    macs: Vec<u8>,
}

impl std::fmt::Debug for ArchiveWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveWriter")
            .field("profile", &self.profile)
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl<'a> ArchiveWriter<'a> {
    /// Begins an archive in `file`, which is empty.
    pub fn new(file: &'a dyn BlockDevice, options: &'a NewArchive) -> Result<Self> {
        Self::with_segments(file, options, SEGMENT, SEGMENTS)
    }

    /// Begins an archive with segments of this size, and this many in a cluster.
    pub(super) fn with_segments(
        file: &'a dyn BlockDevice,
        options: &'a NewArchive,
        segment_size: u32,
        segments_per_cluster: u32,
    ) -> Result<Self> {
        let profile = options.profile()?;
        if !Compression::WRITTEN.contains(&options.compression) {
            let message = format!("segments cannot be compressed with {}", options.compression);
            return Err(Error::unsupported(LAYER, message));
        }
        let prologue = Prologue::new(options, profile)?;
        let at = prologue.len(profile) as u64;
        let threads = parallel::cores(MAX_THREADS);
        let segment = segment_size as usize;
        let batch = (4 * threads * segment)
            .min(MAX_BATCH / segment * segment)
            .max(segment);
        Ok(Self {
            file,
            options,
            profile,
            prologue,
            root: RootHeader {
                size: 0,
                archive_size: 0,
                segment_size,
                segments_per_cluster,
                compression: options.compression,
                checksum: ChecksumKind::Sha256,
            },
            threads,
            pending: Vec::with_capacity(batch),
            batch,
            at,
            starts: Vec::new(),
            headers: Vec::new(),
            macs: Vec::new(),
        })
    }

    /// Appends contents.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(self.batch - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = rest;
            if self.pending.len() == self.batch {
                self.encode()?;
            }
        }
        Ok(())
    }

    /// Appends zeros.
    pub fn write_zeros(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            let piece = count.min(ZEROS.len() as u64);
            self.write(&ZEROS[..to_usize(piece)])?;
            count -= piece;
        }
        Ok(())
    }

    /// Completes the archive, and returns its properties. It is not flushed.
    pub fn finish(mut self, progress: &dyn Progress) -> Result<ArchiveDescription> {
        self.encode()?;
        if !self.headers.is_empty() {
            self.end_cluster()?;
        }
        let mut next = [0; MAC];
        random(&mut next)?;
        let (headers_len, len) = (self.root.headers_len(), self.root.cluster_header_len());
        for (number, start) in self.starts.iter().enumerate().rev() {
            progress.check()?;
            let mut header = self.file.read_vec(*start, len)?;
            let (headers, macs) = header.split_at_mut(headers_len);
            macs[..MAC].copy_from_slice(&next);
            self.file.write_at(start + headers_len as u64, &next)?;
            let keys = &self.prologue.keys;
            let key = keys.cluster_header(&keys.cluster(narrow(number)));
            next = key.mac(&[&*macs], headers);
        }
        self.root.archive_size = self.at;
        let signer = self.options.signer.as_ref();
        let bytes = (self.prologue).bytes(self.profile, &self.root, next, signer)?;
        self.put(0, &bytes)?;
        Ok(ArchiveDescription {
            profile: self.profile,
            metadata_len: 0,
            metadata: Some(Vec::new()),
            has_wrapped_key: false,
            key_url: None,
            signature: match signer {
                Some(_) => SignatureState::Verified,
                None => SignatureState::None,
            },
            root: Some(self.root),
        })
    }

    /// Encodes the pending contents on all cores, and writes them.
    fn encode(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let (size, in_each) = (self.root.segment_size, self.root.segments_per_cluster);
        let first = self.root.size / u64::from(size);
        let segments = first + pending.len().div_ceil(size as usize) as u64;
        if u32::try_from(segments).is_err() {
            return Err(Error::limit(LAYER, "more than 2^32 - 1 segments"));
        }
        let mut encoded: Vec<Encoded> = Vec::new();
        encoded.resize_with(pending.len().div_ceil(size as usize), Encoded::default);
        let jobs = (first..)
            .zip(pending.chunks(size as usize))
            .zip(&mut encoded);
        let keys = &self.prologue.keys;
        let (compression, kind) = (self.root.compression, self.root.checksum);
        parallel::each(
            self.threads,
            jobs,
            || Packer::new(compression),
            |packer, ((number, plain), out), _| {
                let (cluster, place) = (number / u64::from(in_each), number % u64::from(in_each));
                out.stored = packer.pack(plain)?;
                let header = SegmentRaw {
                    size: U32::new(narrow(plain.len())),
                    stored: U32::new(narrow(out.stored.len())),
                };
                out.header = [header.as_bytes(), &checksum(kind, plain)].concat();
                let key = keys.segment(&keys.cluster(narrow(cluster)), narrow(place));
                key.apply(&mut out.stored);
                out.mac = key.mac(&[], &out.stored);
                Ok(())
            },
        )?;
        self.root.size += pending.len() as u64;
        for segment in encoded {
            self.append(&segment)?;
        }
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    fn append(&mut self, segment: &Encoded) -> Result<()> {
        if self.headers.is_empty() {
            self.starts.push(self.at);
            self.at += self.root.cluster_header_len() as u64;
        }
        self.put(self.at, &segment.stored)?;
        self.at += segment.stored.len() as u64;
        self.headers.extend_from_slice(&segment.header);
        self.macs.extend_from_slice(&segment.mac);
        if self.headers.len() == self.root.headers_len() {
            self.end_cluster()?;
        }
        Ok(())
    }

    /// Writes the headers of the last cluster, encrypted, and the MACs of its segments. The MAC of the next
    /// cluster is not known yet.
    fn end_cluster(&mut self) -> Result<()> {
        let Some(start) = self.starts.last().copied() else {
            return Ok(());
        };
        let keys = &self.prologue.keys;
        let number = narrow::<u32>(self.starts.len() - 1);
        self.headers.resize(self.root.headers_len(), 0);
        keys.cluster_header(&keys.cluster(number))
            .apply(&mut self.headers);
        // Those of absent segments are random.
        let known = self.macs.len();
        self.macs
            .resize(self.root.segments_per_cluster as usize * MAC, 0);
        random(&mut self.macs[known..])?;
        let bytes = [&self.headers[..], &[0; MAC], &self.macs].concat();
        self.headers.clear();
        self.macs.clear();
        self.put(start, &bytes)
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at + bytes.len() as u64;
        if self.file.info().len < end {
            self.file.set_len(end, AfterDiscard::Zeros)?;
        }
        self.file.write_at(at, bytes)
    }
}
