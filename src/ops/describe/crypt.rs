//! Encryption, key slots and archives.

use serde::Serialize;

use crate::crypt::aea::{ArchiveDescription, MetadataEntry, RootHeader};
use crate::crypt::{Description, KeySlot};

/// The encryption of an image.
#[derive(Debug, Clone, Serialize)]
pub struct EncryptionInfo {
    pub version: u8,
    pub key_bits: u32,
    /// The size of a cipher block, in bytes.
    pub block_size: u32,
    pub uuid: String,
    /// The size of the encrypted data, in bytes.
    pub size: u64,
    /// The entries that open the image.
    pub key_slots: Vec<KeySlotInfo>,
    /// The number of key slots for which the header has space.
    pub max_key_slots: u64,
    /// True if the image has not been unlocked.
    pub locked: bool,
}

/// A key slot of an encrypted image.
#[derive(Debug, Clone, Serialize)]
pub struct KeySlotInfo {
    /// The number that `passwd` uses, from 1.
    pub number: usize,
    #[serde(flatten)]
    pub kind: KeySlotKind,
}

/// The kind of a key slot.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KeySlotKind {
    Passphrase {
        iterations: u32,
        /// The cipher around the image's keys.
        key_wrap: String,
    },
    PublicKey {
        /// The SHA-1 of the public key, in hexadecimal.
        id: String,
        bits: u32,
    },
    Unknown {
        kind_number: u32,
        /// The reason why it is unknown.
        message: String,
    },
}

/// An encrypted or signed archive, as far as it is known.
#[derive(Debug, Clone, Serialize)]
pub struct ArchiveInfo {
    pub profile: u8,
    /// The name of the profile in Apple's documentation.
    pub profile_name: &'static str,
    #[serde(skip)]
    pub description: &'static str,
    /// True if a key is needed to read it.
    pub encrypted: bool,
    /// `none`, `verified` or `unverified`.
    pub signature: &'static str,
    /// The names of the metadata; absent if it is no list of names and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Vec<String>>,
    /// The size of the metadata, in bytes.
    pub metadata_size: u32,
    /// True if the archive has not been unlocked.
    pub locked: bool,
    /// The contents; absent while it is locked.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    pub contents: Option<ArchiveContents>,
}

/// The contents of an archive that is unlocked.
#[derive(Debug, Clone, Serialize)]
pub struct ArchiveContents {
    /// The size of the contents, in bytes.
    pub contents_size: u64,
    pub compression: &'static str,
    pub checksum: &'static str,
    /// The size of a segment, in bytes.
    pub segment_size: u32,
    pub segments_per_cluster: u32,
    pub segments: u64,
}

impl EncryptionInfo {
    /// Returns the facts of a header, for an image that is locked.
    pub fn new(of: &Description) -> Self {
        Self {
            version: of.version,
            key_bits: of.key_bits,
            block_size: of.block,
            uuid: of.uuid.to_string(),
            size: of.data_size,
            key_slots: KeySlotInfo::all(&of.key_slots),
            max_key_slots: of.max_key_slots(),
            locked: true,
        }
    }
}

impl KeySlotInfo {
    /// Returns the facts of all key slots of an image.
    pub fn all(key_slots: &[KeySlot]) -> Vec<Self> {
        let kind = |slot: &KeySlot| match slot {
            KeySlot::Passphrase { iterations, wrap } => KeySlotKind::Passphrase {
                iterations: *iterations,
                key_wrap: wrap.to_string().to_lowercase(),
            },
            KeySlot::PublicKey { id, bits } => KeySlotKind::PublicKey {
                id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
                bits: *bits,
            },
            KeySlot::Unknown { kind, why, .. } => KeySlotKind::Unknown {
                kind_number: *kind,
                message: why.clone(),
            },
            _ => KeySlotKind::Unknown {
                kind_number: 0,
                message: String::new(),
            },
        };
        let all = (1..).zip(key_slots.iter().map(kind));
        all.map(|(number, kind)| Self { number, kind }).collect()
    }
}

impl ArchiveInfo {
    /// Returns the facts of an archive.
    pub fn new(of: &ArchiveDescription) -> Self {
        let names = |metadata: &Vec<MetadataEntry>| -> Vec<String> {
            metadata.iter().map(|entry| entry.name.clone()).collect()
        };
        let contents = |root: &RootHeader| ArchiveContents {
            contents_size: root.size,
            compression: root.compression.name(),
            checksum: root.checksum.name(),
            segment_size: root.segment_size,
            segments_per_cluster: root.segments_per_cluster,
            segments: root.segments(),
        };
        Self {
            profile: of.profile.number(),
            profile_name: of.profile.name(),
            description: of.profile.description(),
            encrypted: of.profile.is_encrypted(),
            signature: of.signature.name(),
            metadata: of.metadata.as_ref().map(names),
            metadata_size: of.metadata_len,
            locked: of.root.is_none(),
            contents: of.root.as_ref().map(contents),
        }
    }
}
