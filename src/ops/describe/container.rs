//! Facts of each kind of container, of layers over an image, and of bundles in a bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::path::Path;

use serde::Serialize;

use super::error::Message;
use crate::address::shown;
use crate::container::asif::Asif;
use crate::container::mapped::MappedDisk;
use crate::container::sparsebundle::{Bundle, Survey};
use crate::container::sparseimage::SparseImage;
use crate::container::udif::{BLOCK_TABLE, CodeSignature, Udif};
use crate::device::BlockDevice;
use crate::open::overlays::LayerFile;
use crate::store::Status;
use crate::{Error, Result, platform};

/// The state of a bundle in a bucket.
#[derive(Debug, Serialize)]
pub struct BucketInfo {
    /// The number of times it was opened for writing; 0 if never by bandsaw.
    pub writers: u64,
    /// The current writer, or one that was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
    /// Files whose plain objects are outdated.
    pub lagging: u64,
    pub snapshots: u64,
}

/// The form in which the disk is stored.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StorageInfo {
    Raw,
    SparseBundle(BundleInfo),
    SparseImage(SparseImageInfo),
    Asif(AsifInfo),
    Udif(UdifInfo),
    ReadOnlyImage(ReadOnlyImageInfo),
}

/// A sparse bundle.
#[derive(Debug, Serialize)]
pub struct BundleInfo {
    pub version: u32,
    /// The size of a band, in bytes.
    pub band_size: u64,
    pub bands: u64,
    /// The number of bands that are stored.
    pub allocated_bands: u64,
    /// True if a change of the band size was interrupted: bands of both sizes are in use, and
    /// `band_size` is the old one.
    pub rebanding: bool,
    /// The length of the band files with their holes, in bytes.
    pub bands_size: u64,
}

/// A sparse image.
#[derive(Debug, Serialize)]
pub struct SparseImageInfo {
    /// The size of a band, in bytes.
    pub band_size: u64,
    pub bands: u64,
    /// The number of bands that are stored.
    pub allocated_bands: u64,
    /// Slots of the file without a band.
    pub unused_slots: u64,
    pub nodes: u64,
    /// The length of the file without its encryption, in bytes.
    pub file_size: u64,
}

/// An Apple sparse image.
#[derive(Debug, Serialize)]
pub struct AsifInfo {
    /// A UUID that changes with the contents.
    pub uuid: String,
    /// A UUID that stays for the life of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable_uuid: Option<String>,
    /// `disk`, `overlay` or `cache`.
    pub layer_role: &'static str,
    /// The image below a layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The block size of the disk, in bytes.
    pub sector_size: u32,
    /// The size of a chunk, in bytes.
    pub chunk_size: u64,
    /// Chunks of the file with data.
    pub data_chunks: u64,
    /// Chunks of the file with tables.
    pub table_chunks: u64,
    /// Chunks of the file with bitmaps.
    pub bitmap_chunks: u64,
    pub chunks: u64,
    /// The length of the file without its encryption, in bytes.
    pub file_size: u64,
    /// The reason why the header forbids changes: unknown flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_refused: Option<Message>,
    /// The reason why it forbids changes of the metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_changes_refused: Option<Message>,
    /// The names of the owner's metadata.
    pub user_metadata: Vec<String>,
}

/// A layer over an image.
#[derive(Debug, Serialize)]
pub struct LayerInfo {
    pub path: String,
    /// The size of the disk, in bytes.
    pub size: u64,
    /// The storage of the file, in bytes.
    pub allocated: u64,
    /// The facts that it shares with an image.
    #[serde(flatten)]
    pub asif: AsifInfo,
}

/// A UDIF image.
#[derive(Debug, Serialize)]
pub struct UdifInfo {
    pub chunks: u64,
    /// The size of the largest chunk, in bytes.
    pub max_chunk_size: u64,
    /// Bytes that the chunks take in the file.
    pub stored_size: u64,
    /// Bytes of the disk that the chunks contain.
    pub decoded_size: u64,
    pub tables: u64,
    /// The number of files of the image.
    pub segments: u32,
    pub signed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureInfo>,
    pub resource_types: BTreeSet<String>,
}

/// An image of another format that is only read.
#[derive(Debug, Serialize)]
pub struct ReadOnlyImageInfo {
    /// Facts for people, by name.
    pub facts: BTreeMap<&'static str, String>,
}

/// A code signature: its place, and what it says.
#[derive(Debug, Serialize)]
pub struct SignatureInfo {
    /// The position in the file, in bytes.
    pub offset: u64,
    /// Its size, in bytes.
    pub size: u64,
    /// The contents; absent in an unknown form.
    #[serde(flatten)]
    pub contents: Option<SignatureContents>,
}

/// The contents of a signature that could be read.
#[derive(Debug, Serialize)]
pub struct SignatureContents {
    /// The name that was signed.
    pub identifier: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    pub algorithms: Vec<&'static str>,
    /// True if certificates vouch for it.
    pub certified: bool,
    /// True if a notarization ticket is attached.
    pub ticket: bool,
}

impl BucketInfo {
    pub(super) fn new(status: &Status) -> Self {
        Self {
            writers: status.generation,
            writer: status.holder.as_ref().map(ToString::to_string),
            lagging: status.lagging,
            snapshots: status.snapshots,
        }
    }
}

impl BundleInfo {
    pub(super) fn new(bundle: &Bundle, survey: &Survey) -> Self {
        Self {
            version: bundle.version().number(),
            band_size: bundle.band_size(),
            bands: bundle.band_count(),
            allocated_bands: survey.bands,
            rebanding: bundle.is_between(),
            bands_size: survey.len,
        }
    }
}

impl SparseImageInfo {
    pub(super) fn new(image: &SparseImage) -> Self {
        let usage = image.usage();
        Self {
            band_size: usage.band_size,
            bands: image.info().len.div_ceil(usage.band_size),
            allocated_bands: usage.bands,
            unused_slots: usage.unused,
            nodes: usage.nodes,
            file_size: usage.file_len,
        }
    }
}

impl LayerInfo {
    /// Returns the facts of a layer over an image. Fails if its file has gone.
    pub fn new(layer: &LayerFile) -> Result<Self> {
        Ok(Self {
            path: shown(&layer.path),
            size: layer.image.info().len,
            allocated: platform::allocated(&metadata(&layer.path)?),
            asif: AsifInfo::new(&layer.image),
        })
    }
}

impl AsifInfo {
    pub(super) fn new(image: &Asif) -> Self {
        let (usage, layer, metadata) = (image.usage(), image.layer(), image.metadata());
        Self {
            uuid: image.uuid().to_string(),
            stable_uuid: metadata.stable_uuid.map(|uuid| uuid.to_string()),
            layer_role: match (layer.is_cache, layer.is_overlaid) {
                (true, _) => "cache",
                (false, true) => "overlay",
                (false, false) => "disk",
            },
            parent: Some(layer.parent)
                .filter(|parent| !parent.is_nil())
                .map(|parent| parent.to_string()),
            sector_size: image.block(),
            chunk_size: usage.chunk_size,
            data_chunks: usage.data,
            table_chunks: usage.tables,
            bitmap_chunks: usage.bitmaps,
            chunks: usage.chunks,
            file_size: usage.file_len,
            changes_refused: image.read_only().map(Message::new),
            metadata_changes_refused: image.metadata_read_only().map(Message::new),
            user_metadata: metadata.user.keys().cloned().collect(),
        }
    }
}

impl UdifInfo {
    pub(super) fn new(udif: &Udif) -> Self {
        let usage = udif.usage();
        let resources = udif.resources();
        let beside = resources
            .iter()
            .filter(|resource| resource.kind != BLOCK_TABLE);
        Self {
            chunks: usage.chunks,
            max_chunk_size: usage.longest,
            stored_size: usage.stored,
            decoded_size: usage.held,
            tables: usage.tables,
            segments: udif.segment().count.max(1),
            signed: usage.signed,
            signature: SignatureInfo::of(udif).map(|(info, _)| info),
            resource_types: beside.map(|resource| resource.kind.clone()).collect(),
        }
    }
}

impl ReadOnlyImageInfo {
    pub(super) fn new(disk: &MappedDisk) -> Self {
        Self {
            facts: disk.facts().into_iter().collect(),
        }
    }
}

impl SignatureInfo {
    /// Reads the signature of an image, with what can be compared. A form that is not known is no
    /// damage.
    pub fn of(udif: &Udif) -> Option<(Self, Option<CodeSignature>)> {
        let range = udif.signature()?;
        let known = udif.code_signature().ok().flatten();
        let contents = known.as_ref().map(|known| SignatureContents {
            identifier: known.identifier.clone(),
            team: known.team.clone(),
            algorithms: known.hashes.clone(),
            certified: known.certified,
            ticket: known.ticket,
        });
        let info = Self {
            offset: range.start,
            size: range.end - range.start,
            contents,
        };
        Some((info, known))
    }
}

/// Returns the metadata of a file of an image.
pub(super) fn metadata(path: &Path) -> Result<Metadata> {
    fs::metadata(path).map_err(|error| Error::io("image", "read metadata", error).in_file(path))
}
