//! JSON of each kind of container.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use bandsaw::container::asif::Asif;
use bandsaw::container::sparsebundle::{Bundle, Survey};
use bandsaw::container::sparseimage::SparseImage;
use bandsaw::container::udif::Udif;
use bandsaw::device::BlockDevice;
use bandsaw::open::stack::LayerFile;
use bandsaw::store::Status;
use bandsaw::{Error, Result};
use serde::Serialize;

use super::signature::SignatureJson;
use crate::output::Remark;

/// The state of a bundle in a bucket.
#[derive(Debug, Serialize)]
pub(crate) struct BucketJson {
    /// The number of times it was opened for writing; 0 if never by bandsaw.
    pub(crate) writers: u64,
    /// The current writer, or one that was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) writer: Option<String>,
    /// Files whose plain objects are outdated.
    pub(crate) lagging: u64,
    pub(crate) snapshots: u64,
}

/// The form in which the disk is stored.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Storage {
    Raw,
    SparseBundle(BundleJson),
    SparseImage(SparseImageJson),
    Asif(AsifJson),
    Udif(UdifJson),
}

#[derive(Debug, Serialize)]
pub(crate) struct BundleJson {
    pub(crate) version: u32,
    pub(crate) band_size: u64,
    pub(crate) bands: u64,
    pub(crate) allocated_bands: u64,
    /// True if a change of the band size was interrupted: bands of both sizes are in use, and
    /// `band_size` is the old one.
    pub(crate) rebanding: bool,
    /// The length of the band files with their holes, in bytes.
    pub(crate) bands_size: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct UdifJson {
    pub(crate) chunks: u64,
    pub(crate) max_chunk_size: u64,
    /// Bytes that the chunks take in the file, and bytes of the disk that they contain.
    pub(crate) stored_size: u64,
    pub(crate) decoded_size: u64,
    pub(crate) tables: u64,
    /// The number of files of the image.
    pub(crate) segments: u32,
    pub(crate) signed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<SignatureJson>,
    /// The kinds of resources.
    pub(crate) resource_types: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SparseImageJson {
    pub(crate) band_size: u64,
    pub(crate) bands: u64,
    pub(crate) allocated_bands: u64,
    /// Slots of the file without a band.
    pub(crate) unused_slots: u64,
    /// The number of index nodes.
    pub(crate) nodes: u64,
    /// The length of the file without its encryption, in bytes.
    pub(crate) file_size: u64,
}

/// A layer over an image.
#[derive(Debug, Serialize)]
pub(crate) struct LayerJson {
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) allocated: u64,
    #[serde(flatten)]
    pub(crate) asif: AsifJson,
}

#[derive(Debug, Serialize)]
pub(crate) struct AsifJson {
    /// A UUID that changes with the contents.
    pub(crate) uuid: String,
    /// A UUID that stays for the life of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stable_uuid: Option<String>,
    /// `disk`, `overlay` or `cache`.
    pub(crate) layer_role: &'static str,
    /// The image below a layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    pub(crate) sector_size: u32,
    pub(crate) chunk_size: u64,
    /// Chunks of the file, by content.
    pub(crate) data_chunks: u64,
    pub(crate) table_chunks: u64,
    pub(crate) bitmap_chunks: u64,
    pub(crate) chunks: u64,
    /// The length of the file without its encryption, in bytes.
    pub(crate) file_size: u64,
    /// The reason why the header forbids changes: unknown flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changes_refused: Option<Remark>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata_changes_refused: Option<Remark>,
    /// The names of the owner's metadata.
    pub(crate) user_metadata: Vec<String>,
}

impl BucketJson {
    pub(super) fn new(status: &Status) -> Self {
        let writer = status.holder.as_ref().map(ToString::to_string);
        Self {
            writers: status.generation,
            writer,
            lagging: status.lagging,
            snapshots: status.snapshots,
        }
    }
}

impl BundleJson {
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

impl SparseImageJson {
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

impl LayerJson {
    pub(crate) fn new(layer: &LayerFile) -> Result<Self> {
        let failed = |error| Error::io("image", "read metadata", error).in_file(&layer.path);
        Ok(Self {
            path: bandsaw::address::shown(&layer.path),
            size: layer.image.info().len,
            allocated: fs::metadata(&layer.path).map_err(failed)?.blocks() * 512,
            asif: AsifJson::new(&layer.image),
        })
    }
}

impl AsifJson {
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
            changes_refused: image.read_only().map(Remark::new),
            metadata_changes_refused: image.metadata_read_only().map(Remark::new),
            user_metadata: metadata.user.keys().cloned().collect(),
        }
    }
}

impl UdifJson {
    pub(super) fn new(udif: &Udif) -> Self {
        let usage = udif.usage();
        let beside = udif
            .resources()
            .iter()
            .filter(|resource| resource.kind != "blkx");
        Self {
            chunks: usage.chunks,
            max_chunk_size: usage.longest,
            stored_size: usage.stored,
            decoded_size: usage.held,
            tables: usage.tables,
            segments: udif.segment().count.max(1),
            signed: usage.signed,
            signature: SignatureJson::of(udif).map(|(json, _)| json),
            resource_types: beside.map(|resource| resource.kind.clone()).collect(),
        }
    }
}
