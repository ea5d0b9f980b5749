//! Descriptions of images: the layers in a sentence each, for people, and with the feature `serde` everything that
//! is known of an image as plain values, in the words of `docs/json.md`. The command prints them, the module for
//! Python returns them.
//!
//! * `image`: an image, its encryption and its partitions.
//! * `container`: facts of each kind of container.
//! * `crypt`: encryption, key slots, archives.
//! * `volume`: volumes and APFS containers.
//! * `error`: errors.
//! * `check`: the result of a check.
//! * `operations`, `repair`: results of operations.
//! * `layers`: sentences.

#![cfg_attr(
    feature = "serde",
    expect(
        missing_docs,
        reason = "fields are described where docs/schema and their names do not"
    )
)]

#[cfg(feature = "serde")]
mod check;
#[cfg(feature = "serde")]
mod container;
#[cfg(feature = "serde")]
mod crypt;
#[cfg(feature = "serde")]
mod error;
#[cfg(feature = "serde")]
mod image;
mod layers;
#[cfg(feature = "serde")]
mod operations;
#[cfg(feature = "serde")]
mod repair;
#[cfg(all(test, feature = "serde"))]
mod tests;
#[cfg(feature = "serde")]
mod volume;

pub use self::layers::layer_facts;

#[cfg(feature = "serde")]
pub use self::{
    check::{CheckInfo, CheckedLayerInfo, ProblemInfo},
    container::{
        AsifInfo, BucketInfo, BundleInfo, LayerInfo, SignatureContents, SignatureInfo,
        SparseImageInfo, StorageInfo, UdifInfo,
    },
    crypt::{ArchiveContents, ArchiveInfo, EncryptionInfo, KeySlotInfo, KeySlotKind},
    error::{ErrorInfo, Message, code, layer_code, messages},
    image::{ImageInfo, PartitionInfo, PartitionMapInfo},
    operations::{ChecksumInfo, OrphanInfo, ResizeStepInfo, SkippedVolumeInfo},
    repair::{AlternativeInfo, LossInfo, RepairInfo, RepairStepInfo},
    volume::{ApfsContainer, ApfsInfo, ApfsSnapshot, VolumeContents, VolumeDetails, VolumeInfo},
};
