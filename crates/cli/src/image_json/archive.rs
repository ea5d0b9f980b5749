//! JSON of the encrypted archive that contains an image.

use bandsaw::crypt::aea::{ArchiveDescription, MetadataEntry, RootHeader};
use serde::Serialize;

/// An encrypted or signed archive, as far as it is known.
#[derive(Debug, Serialize)]
pub(crate) struct ArchiveJson {
    /// The number of the profile.
    pub(crate) profile: u8,
    profile_name: &'static str,
    #[serde(skip)]
    pub(crate) description: &'static str,
    pub(crate) encrypted: bool,
    /// `none`, `verified` or `unverified`.
    pub(crate) signature: &'static str,
    /// The names of the metadata; absent if it is no list of names and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<Vec<String>>,
    /// The size of the metadata, in bytes.
    pub(crate) metadata_size: u32,
    /// True if the archive has not been unlocked.
    pub(crate) locked: bool,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    pub(crate) contents: Option<ArchiveContentsJson>,
}

/// The contents of an archive that is unlocked.
#[derive(Debug, Serialize)]
pub(crate) struct ArchiveContentsJson {
    /// The size of the contents, in bytes.
    pub(crate) contents_size: u64,
    pub(crate) compression: &'static str,
    pub(crate) checksum: &'static str,
    pub(crate) segment_size: u32,
    pub(crate) segments_per_cluster: u32,
    pub(crate) segments: u64,
}

impl ArchiveJson {
    pub(crate) fn new(of: &ArchiveDescription) -> Self {
        let names = |metadata: &Vec<MetadataEntry>| -> Vec<String> {
            metadata.iter().map(|entry| entry.name.clone()).collect()
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
            contents: of.root.as_ref().map(ArchiveContentsJson::new),
        }
    }
}

impl ArchiveContentsJson {
    fn new(of: &RootHeader) -> Self {
        Self {
            contents_size: of.size,
            compression: of.compression.name(),
            checksum: of.checksum.name(),
            segment_size: of.segment_size,
            segments_per_cluster: of.segments_per_cluster,
            segments: of.segments(),
        }
    }
}
