//! The facts about each kind of container.

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

/// The state of a bundle in a bucket.
#[derive(Debug, Serialize)]
pub(crate) struct BucketFacts {
    /// The number of times it was opened for writing; 0 if never by bandsaw.
    pub(crate) writers: u64,
    /// The current writer, or one that was killed.
    pub(crate) writer: Option<String>,
    /// Files whose plain objects are outdated.
    pub(crate) lagging: u64,
    pub(crate) snapshots: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct BundleFacts {
    pub(crate) version: u32,
    pub(crate) band_size: u64,
    pub(crate) bands: u64,
    pub(crate) bands_in_use: u64,
    /// True if a change of the band size was interrupted: bands of both sizes are in use, and
    /// `band_size` is the old one.
    pub(crate) rebanding: bool,
    /// The length of the band files with their holes, in bytes.
    pub(crate) bands_len: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct UdifFacts {
    pub(crate) chunks: u64,
    pub(crate) longest_chunk: u64,
    /// Bytes that the chunks take in the file, and bytes of the disk that they contain.
    pub(crate) stored: u64,
    pub(crate) held: u64,
    pub(crate) tables: u64,
    /// The number of files of the image.
    pub(crate) parts: u32,
    pub(crate) signed: bool,
    /// The kinds of resources.
    pub(crate) resources: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SparseImageFacts {
    pub(crate) band_size: u64,
    pub(crate) bands: u64,
    pub(crate) bands_in_use: u64,
    /// Slots of the file without a band.
    pub(crate) unused_places: u64,
    /// The number of index nodes.
    pub(crate) nodes: u64,
    /// The length of the file without its encryption, in bytes.
    pub(crate) file_len: u64,
}

/// A layer over an image.
#[derive(Debug, Serialize)]
pub(crate) struct LayerFacts {
    pub(crate) file: String,
    pub(crate) size: u64,
    pub(crate) size_on_disk: u64,
    #[serde(flatten)]
    pub(crate) asif: AsifFacts,
}

#[derive(Debug, Serialize)]
pub(crate) struct AsifFacts {
    /// A UUID that changes with the contents.
    pub(crate) uuid: String,
    /// A UUID that stays for the life of the image.
    pub(crate) stable_uuid: Option<String>,
    /// `disk`, `overlay` or `cache`.
    pub(crate) kind: &'static str,
    /// The image below a layer.
    pub(crate) parent: Option<String>,
    pub(crate) sector_size: u32,
    pub(crate) chunk_size: u64,
    /// Chunks of the file, by content.
    pub(crate) data_chunks: u64,
    pub(crate) table_chunks: u64,
    pub(crate) bitmap_chunks: u64,
    pub(crate) chunks: u64,
    /// The length of the file without its encryption, in bytes.
    pub(crate) file_len: u64,
    /// The reason why the header forbids changes: unknown flags.
    pub(crate) read_only: Option<String>,
    pub(crate) metadata_read_only: Option<String>,
    /// The names of the owner's metadata.
    pub(crate) user_metadata: Vec<String>,
}

impl BucketFacts {
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

impl BundleFacts {
    pub(super) fn new(bundle: &Bundle, survey: &Survey) -> Self {
        Self {
            version: bundle.version().number(),
            band_size: bundle.band_size(),
            bands: bundle.band_count(),
            bands_in_use: survey.bands,
            rebanding: bundle.is_between(),
            bands_len: survey.len,
        }
    }
}

impl SparseImageFacts {
    pub(super) fn new(image: &SparseImage) -> Self {
        let usage = image.usage();
        Self {
            band_size: usage.band_size,
            bands: image.info().len.div_ceil(usage.band_size),
            bands_in_use: usage.bands,
            unused_places: usage.unused,
            nodes: usage.nodes,
            file_len: usage.file_len,
        }
    }
}

impl LayerFacts {
    pub(crate) fn new(layer: &LayerFile) -> Result<Self> {
        let failed = |error| Error::io("image", "read metadata", error).in_file(&layer.path);
        Ok(Self {
            file: bandsaw::address::shown(&layer.path),
            size: layer.image.info().len,
            size_on_disk: fs::metadata(&layer.path).map_err(failed)?.blocks() * 512,
            asif: AsifFacts::new(&layer.image),
        })
    }
}

impl AsifFacts {
    pub(super) fn new(image: &Asif) -> Self {
        let (usage, layer, metadata) = (image.usage(), image.layer(), image.metadata());
        Self {
            uuid: image.uuid().to_string(),
            stable_uuid: metadata.stable_uuid.map(|uuid| uuid.to_string()),
            kind: match (layer.is_cache, layer.is_overlaid) {
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
            file_len: usage.file_len,
            read_only: image.read_only().map(str::to_owned),
            metadata_read_only: image.metadata_read_only(),
            user_metadata: metadata.user.keys().cloned().collect(),
        }
    }
}

impl UdifFacts {
    pub(super) fn new(udif: &Udif) -> Self {
        let usage = udif.usage();
        let beside = udif
            .resources()
            .iter()
            .filter(|resource| resource.kind != "blkx");
        Self {
            chunks: usage.chunks,
            longest_chunk: usage.longest,
            stored: usage.stored,
            held: usage.held,
            tables: usage.tables,
            parts: udif.segment().count.max(1),
            signed: usage.signed,
            resources: beside.map(|resource| resource.kind.clone()).collect(),
        }
    }
}
