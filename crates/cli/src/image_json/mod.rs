//! JSON of an image, for programs, in the words of `docs/json.md`.

mod archive;
mod container;
mod key_slots;
mod signature;
mod volume;

use std::fs;
use std::os::unix::fs::MetadataExt;

use bandsaw::address::{redacted, shown};
use bandsaw::container::Format;
use bandsaw::container::sparsebundle::{Bundle, USED_INSTEAD};
use bandsaw::crypt::Description;
use bandsaw::device::BlockDevice;
use bandsaw::error::Place;
use bandsaw::open::{Image, Layer};
use bandsaw::partition::{Map, Partition};
use bandsaw::progress::Progress;
use bandsaw::store::Status;
use bandsaw::{Error, Kind, Result};
use bandsaw_registry::Entry;
use serde::Serialize;

pub(crate) use self::archive::ArchiveJson;
pub(crate) use self::container::{
    AsifJson, BucketJson, BundleJson, LayerJson, SparseImageJson, Storage, UdifJson,
};
pub(crate) use self::key_slots::{KeySlotInfo, KeySlotKind};
pub(crate) use self::signature::SignatureJson;
pub(crate) use self::volume::{ApfsJson, ContentJson, Details, VolumeJson};
use crate::failure::Outcome;
use crate::in_use;
use crate::output::{Output, messages};
use crate::text::counted;

/// An image, as far as it opens.
#[derive(Debug, Serialize)]
pub(crate) struct ImageInfo {
    pub(crate) path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allocated: Option<u64>,
    /// The archive that contains the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) archive: Option<ArchiveJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) encryption: Option<CryptJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bucket: Option<BucketJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) storage: Option<Storage>,
    /// Layers over the image, from the bottom.
    pub(crate) layers: Vec<LayerJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partition_map: Option<MapJson>,
    /// `volumes`, `blank`, `foreign` or `unknown`; absent if the disk was not opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) contents: Option<&'static str>,
    pub(crate) volumes: Vec<VolumeJson>,
    #[serde(serialize_with = "messages")]
    pub(crate) warnings: Vec<String>,
    /// Those of them that contents are missing or damaged.
    #[serde(skip)]
    losses: Vec<String>,
    /// The first problem of an image that opened nevertheless.
    #[serde(skip)]
    pub(crate) damage: Option<Error>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CryptJson {
    pub(crate) version: u8,
    pub(crate) key_bits: u32,
    /// The size of a cipher block, in bytes.
    pub(crate) block_size: u32,
    pub(crate) uuid: String,
    /// The size of the encrypted data, in bytes.
    pub(crate) size: u64,
    pub(crate) key_slots: Vec<KeySlotInfo>,
    /// The number of key slots for which the header has space.
    pub(crate) max_key_slots: u64,
    /// True if the image has not been unlocked.
    pub(crate) locked: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct MapJson {
    pub(crate) scheme: String,
    pub(crate) block_size: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    pub(crate) partitions: Vec<PartitionJson>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PartitionJson {
    pub(crate) number: u32,
    pub(crate) partition_type: String,
    partition_type_id: String,
    pub(crate) name: String,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    flags: u64,
}

impl ImageInfo {
    /// Returns the JSON of a new image, whose volumes open.
    pub(crate) fn of(image: &Image, progress: &dyn Progress) -> Outcome<Self> {
        let mut report = Self::new(&redacted(&shown(image.path())));
        report.add_image(image, progress)?;
        Ok(report)
    }

    /// Returns all facts about a copy, with a warning if a volume does not open: the copy is
    /// complete, but the source may be damaged.
    pub(crate) fn of_copy(image: &Image, progress: &dyn Progress) -> Outcome<Self> {
        let mut report = Self::new(&shown(image.path()));
        match report.add_image(image, progress) {
            Err(failure)
                if matches!(
                    failure.kind(),
                    Kind::Corrupt | Kind::Unsupported | Kind::NotFound | Kind::Limit
                ) =>
            {
                let damaged = format!(
                    "the copy is complete, but a volume in it is damaged, like the source: {}",
                    failure.message()
                );
                report.losses.push(damaged.clone());
                report.warnings.push(damaged);
            }
            done => done?,
        }
        Ok(report)
    }

    /// Returns an empty set of facts about the image of this name.
    pub(crate) fn new(image: &dyn std::fmt::Display) -> Self {
        Self {
            path: image.to_string(),
            format: None,
            description: None,
            size: None,
            allocated: None,
            archive: None,
            encryption: None,
            bucket: None,
            storage: None,
            layers: Vec::new(),
            partition_map: None,
            contents: None,
            volumes: Vec::new(),
            warnings: Vec::new(),
            losses: Vec::new(),
            damage: None,
        }
    }

    /// Prints the warnings for people; programs find them in the JSON output.
    pub(crate) fn warn(&self, output: &Output) {
        if !output.json() {
            for warning in &self.warnings {
                match self.losses.contains(warning) {
                    true => output.warn_of_loss(warning),
                    false => output.warn(warning),
                }
            }
        }
    }

    /// Adds all facts about an open image. Fails at the end with the first volume that should open
    /// but does not.
    pub(crate) fn add_image(&mut self, image: &Image, progress: &dyn Progress) -> Outcome {
        self.format = Some(image.format().code());
        self.description = Some(image.format().description());
        self.warnings.extend_from_slice(image.warnings());
        let losses = image.warnings().iter();
        self.losses
            .extend(losses.filter(|warning| image.is_of_loss(warning)).cloned());
        self.contents = Some(image.contents()?.name());
        self.add_layers(image.layers(), progress)
    }

    /// Adds all facts about some layers.
    pub(crate) fn add_layers(&mut self, layers: &[Layer], progress: &dyn Progress) -> Outcome {
        let mut failed = None;
        for layer in layers {
            match layer {
                Layer::File(file) => {
                    let meta = fs::metadata(file.path())
                        .map_err(|error| Error::io("image", "read metadata", error))?;
                    self.allocated = Some(self.allocated.unwrap_or_default() + meta.blocks() * 512);
                }
                Layer::Remote(file) => self.allocated = Some(file.info().len),
                Layer::Bucket(status) => self.add_bucket(status),
                Layer::Archive(archive) => {
                    self.archive = Some(ArchiveJson::new(&archive.description));
                }
                Layer::Crypt(description) => self.encryption = Some(CryptJson::new(description)),
                Layer::Raw(raw) => {
                    self.add_disk(&**raw);
                    self.storage = Some(Storage::Raw);
                }
                Layer::Bundle(bundle) => self.add_bundle(bundle, progress)?,
                Layer::SparseImage(image) => {
                    self.add_disk(&**image);
                    self.storage = Some(Storage::SparseImage(SparseImageJson::new(image)));
                }
                Layer::Asif(image) => {
                    self.add_disk(&**image);
                    self.storage = Some(Storage::Asif(AsifJson::new(image)));
                }
                Layer::Udif(udif) => {
                    self.add_disk(&**udif);
                    self.storage = Some(Storage::Udif(UdifJson::new(udif)));
                }
                Layer::Overlay(file) => self.layers.push(LayerJson::new(file)?),
                Layer::Stack(stack) => self.add_disk(&**stack),
                Layer::Partitions(map) => self.partition_map = Some(MapJson::new(map)),
                Layer::Volumes(volumes) => {
                    for found in volumes.iter().map(VolumeJson::all) {
                        self.volumes.extend(found.volumes);
                        self.warnings.extend(found.warnings);
                        failed = failed.or(found.failed);
                    }
                }
            }
        }
        failed.map_or(Ok(()), |error| Err(error.in_file(&self.path).into()))
    }

    /// Adds the disk, which is accessible only once its encryption is unlocked.
    /// Adds what is recorded of an image that this program has in use.
    pub(crate) fn add_use(&mut self, entry: &Entry) {
        let format: Option<Format> = entry.format.parse().ok();
        self.format = format.map(Format::code);
        self.description = format.map(Format::description);
        self.size = Some(entry.size);
        let encrypted = if entry.encrypted { "encrypted, " } else { "" };
        let mounts = entry.mounts.iter().map(|mount| {
            format!(
                "; {} volume {} is mounted on {}",
                mount.format,
                mount.name,
                mount.folder.display()
            )
        });
        self.warnings.push(format!(
            "{encrypted}in use by {}, so only its format and size are shown{}; {}",
            in_use::user(entry),
            mounts.collect::<String>(),
            in_use::way_out(entry)
        ));
    }

    fn add_disk(&mut self, disk: &dyn BlockDevice) {
        self.size = Some(disk.info().len);
        if let Some(encryption) = &mut self.encryption {
            encryption.locked = false;
        }
    }

    fn add_bucket(&mut self, status: &Status) {
        self.bucket = Some(BucketJson::new(status));
        if status.lagging > 0 {
            self.warnings.push(format!(
                "the plain objects are older than the commits in {}, so other programs read an \
                 older state; run `bandsaw checkpoint {}` to update them",
                counted(status.lagging, "file", "files"),
                self.path
            ));
        }
    }

    fn add_bundle(&mut self, bundle: &Bundle, progress: &dyn Progress) -> Result<()> {
        self.add_disk(bundle);
        let survey = bundle.survey(progress)?;
        self.allocated = Some(survey.allocated);
        self.storage = Some(Storage::SparseBundle(BundleJson::new(bundle, &survey)));
        self.warnings
            .extend(survey.too_long.iter().map(ToString::to_string));
        // A bundle opens by either of its lists, so damage to the other is not a failure.
        let of_a_list = |error: &Error| {
            let is_list = |name: &str| name.starts_with("Info.");
            matches!(error.place(), Place::Name(name) if is_list(name))
                || error
                    .file()
                    .and_then(|file| file.rsplit('/').next())
                    .is_some_and(is_list)
        };
        let (lists, problems): (Vec<_>, Vec<_>) = survey.problems.into_iter().partition(of_a_list);
        let said = self
            .warnings
            .iter()
            .any(|warning| warning.contains(USED_INSTEAD));
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

impl CryptJson {
    pub(crate) fn new(of: &Description) -> Self {
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

impl MapJson {
    fn new(map: &Map) -> Self {
        Self {
            scheme: map.scheme.to_string().to_lowercase(),
            block_size: map.block,
            uuid: map.disk_guid.map(|guid| guid.to_string()),
            partitions: map.partitions.iter().map(PartitionJson::new).collect(),
        }
    }
}

impl PartitionJson {
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
