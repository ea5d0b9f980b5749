//! An image, layer by layer.

use serde::Serialize;

use super::container::{
    AsifInfo, BucketInfo, BundleInfo, LayerInfo, ReadOnlyImageInfo, SparseImageInfo, StorageInfo,
    UdifInfo, metadata,
};
use super::crypt::{ArchiveInfo, EncryptionInfo};
use super::error::messages;
use super::volume::{FoundVolumes, VolumeInfo};
use crate::address::{redacted, shown};
use crate::container::sparsebundle::Bundle;
use crate::error::Place;
use crate::open::{Image, Layer};
use crate::partition::{Map, Partition};
use crate::progress::Progress;
use crate::store::Status;
use crate::{Error, Result, platform};

/// An image, as far as it opens.
#[derive(Debug, Default, Serialize)]
pub struct ImageInfo {
    /// The path or URL, without passwords.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'static str>,
    /// The size of the disk, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The storage of the image, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<ArchiveInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageInfo>,
    /// Layers over the image, from the bottom.
    pub layers: Vec<LayerInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_map: Option<PartitionMapInfo>,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk was not opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contents: Option<&'static str>,
    pub volumes: Vec<VolumeInfo>,
    #[serde(serialize_with = "messages")]
    pub warnings: Vec<String>,
    /// Those of them that contents are missing or damaged.
    #[serde(skip)]
    pub losses: Vec<String>,
    /// The first problem of an image that opened nevertheless.
    #[serde(skip)]
    pub damage: Option<Error>,
    /// The error of the first volume that should open but does not.
    #[serde(skip)]
    pub unopened: Option<Error>,
}

/// The partition map of a disk.
#[derive(Debug, Serialize)]
pub struct PartitionMapInfo {
    /// `gpt`, `apm` or `mbr`.
    pub scheme: String,
    /// The size of a block, in bytes.
    pub block_size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    pub partitions: Vec<PartitionInfo>,
}

/// A partition of a disk.
#[derive(Debug, Serialize)]
pub struct PartitionInfo {
    /// The number, from 1.
    pub number: u32,
    /// The type for people.
    pub partition_type: String,
    /// The type as the scheme states it.
    pub partition_type_id: String,
    pub name: String,
    /// The position in the disk, in bytes.
    pub offset: u64,
    /// The size, in bytes.
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The flags, as the scheme states them.
    pub flags: u64,
}

impl ImageInfo {
    /// Returns all facts about an open image.
    pub fn of(image: &Image, progress: &dyn Progress) -> Result<Self> {
        let mut info = Self::new(redacted(&shown(image.path())));
        info.add_image(image, progress)?;
        Ok(info)
    }

    /// Returns an empty set of facts about the image of this name.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            path: image.into(),
            ..Self::default()
        }
    }

    /// Adds all facts about an open image, and those that were found before an error.
    pub fn add_image(&mut self, image: &Image, progress: &dyn Progress) -> Result<()> {
        self.format = Some(image.format().code());
        self.description = Some(image.format().description());
        self.warnings.extend_from_slice(image.warnings());
        let losses = image.warnings().iter();
        self.losses
            .extend(losses.filter(|warning| image.is_of_loss(warning)).cloned());
        self.contents = Some(image.contents()?.name());
        self.add_layers(image.layers(), progress)
    }

    /// Adds all facts about some layers, and those that were found before an error.
    pub fn add_layers(&mut self, layers: &[Layer], progress: &dyn Progress) -> Result<()> {
        for layer in layers {
            if let Some(disk) = layer.disk() {
                self.size = Some(disk.info().len);
                // The disk is accessible only once its encryption is unlocked.
                if let Some(encryption) = &mut self.encryption {
                    encryption.locked = false;
                }
            }
            match layer {
                Layer::File(file) => {
                    let allocated = platform::allocated(&metadata(file.path())?);
                    self.allocated = Some(self.allocated.unwrap_or_default() + allocated);
                }
                Layer::Remote(file) => self.allocated = Some(file.info().len),
                Layer::Bucket(status) => self.add_bucket(status),
                Layer::Archive(archive) => {
                    self.archive = Some(ArchiveInfo::new(&archive.description));
                }
                Layer::Crypt(of) => self.encryption = Some(EncryptionInfo::new(of)),
                Layer::Raw(_) => self.storage = Some(StorageInfo::Raw),
                Layer::Bundle(bundle) => self.add_bundle(bundle, progress)?,
                Layer::SparseImage(image) => {
                    self.storage = Some(StorageInfo::SparseImage(SparseImageInfo::new(image)));
                }
                Layer::Asif(image) => {
                    self.storage = Some(StorageInfo::Asif(AsifInfo::new(image)));
                }
                Layer::Udif(udif) => self.storage = Some(StorageInfo::Udif(UdifInfo::new(udif))),
                Layer::Mapped(disk) => {
                    self.storage = Some(StorageInfo::ReadOnlyImage(ReadOnlyImageInfo::new(disk)));
                }
                Layer::Overlay(file) => self.layers.push(LayerInfo::new(file)?),
                Layer::Stack(_) => {}
                Layer::Partitions(map) => self.partition_map = Some(PartitionMapInfo::new(map)),
                Layer::Volumes(volumes) => {
                    for found in volumes.iter().map(FoundVolumes::of) {
                        self.volumes.extend(found.volumes);
                        self.warnings.extend(found.warnings);
                        self.unopened = self.unopened.take().or(found.failed);
                    }
                }
            }
        }
        Ok(())
    }

    fn add_bucket(&mut self, status: &Status) {
        self.bucket = Some(BucketInfo::new(status));
        if status.lagging > 0 {
            let files = match status.lagging {
                1 => "1 file".to_owned(),
                n => format!("{n} files"),
            };
            self.warnings.push(format!(
                "the plain objects are older than the commits in {files}, so other programs read an \
                 older state; run `bandsaw checkpoint {}` to update them",
                self.path
            ));
        }
    }

    fn add_bundle(&mut self, bundle: &Bundle, progress: &dyn Progress) -> Result<()> {
        let survey = bundle.survey(progress)?;
        self.allocated = Some(survey.allocated);
        self.storage = Some(StorageInfo::SparseBundle(BundleInfo::new(bundle, &survey)));
        self.warnings
            .extend(survey.too_long.iter().map(ToString::to_string));
        // A bundle opens by either of its lists, so damage to the other is not a failure.
        let is_list = |name: &str| name.starts_with("Info.");
        let of_a_list = |error: &Error| {
            matches!(error.place(), Place::Name(name) if is_list(name))
                || error.part().is_some_and(is_list)
        };
        let (lists, problems): (Vec<_>, Vec<_>) = survey.problems.into_iter().partition(of_a_list);
        // Those of an image that does not open were not added before.
        let said = bundle
            .damaged_list()
            .is_some_and(|warning| self.warnings.iter().any(|said| said == warning));
        self.warnings
            .extend(lists.iter().filter(|_| !said).map(ToString::to_string));
        let mut problems = problems.into_iter();
        self.damage = problems.next();
        self.warnings
            .extend(problems.map(|problem| problem.to_string()));
        if survey.further_problems > 0 {
            self.warnings.push(format!(
                "{} more problems like these",
                survey.further_problems
            ));
        }
        Ok(())
    }
}

impl PartitionMapInfo {
    fn new(map: &Map) -> Self {
        Self {
            scheme: map.scheme.to_string().to_lowercase(),
            block_size: map.block,
            uuid: map.disk_guid.map(|guid| guid.to_string()),
            partitions: map.partitions.iter().map(PartitionInfo::new).collect(),
        }
    }
}

impl PartitionInfo {
    fn new(partition: &Partition) -> Self {
        Self {
            number: partition.number,
            partition_type: partition.kind.clone(),
            partition_type_id: partition.type_id.to_string(),
            name: partition.name.clone(),
            offset: partition.range.start,
            size: partition.range.end - partition.range.start,
            uuid: partition.guid.map(|guid| guid.to_string()),
            flags: partition.flags,
        }
    }
}
