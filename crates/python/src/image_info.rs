//! The properties of an image and its volumes, in the words of `bandsaw info --json` (`docs/schema/info.json`).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use bandsaw::container::asif::Asif;
use bandsaw::container::sparsebundle::{Bundle, USED_INSTEAD};
use bandsaw::container::sparseimage::SparseImage;
use bandsaw::container::udif::{CodeSignature, Udif};
use bandsaw::crypt::aea::ArchiveDescription;
use bandsaw::crypt::{Description, KeySlot};
use bandsaw::device::BlockDevice;
use bandsaw::error::{Place, redacted, shown};
use bandsaw::fs::VolumeInfo;
use bandsaw::fs::apfs::{Container, Locking, Summary};
use bandsaw::open::stack::LayerFile;
use bandsaw::open::{Image, Layer, Volume};
use bandsaw::partition::{Map, Partition};
use bandsaw::progress::Progress;
use bandsaw::store::Status;
use bandsaw::{Error, Kind, Result};

use crate::report::{brief, described};
use crate::value::{Value, map};

/// Information that is collected layer by layer.
#[derive(Default)]
struct ImageInfo {
    size: Option<u64>,
    allocated: Option<u64>,
    archive: Option<Value>,
    encryption: Option<Description>,
    bucket: Option<Value>,
    storage: Option<Value>,
    layers: Vec<Value>,
    partition_map: Option<Value>,
    volumes: Vec<Value>,
    warnings: Vec<String>,
}

/// Returns all properties of an open image. Volumes that do not open are listed with their problem.
pub(crate) fn of_image(image: &Image, progress: &dyn Progress) -> Result<Value> {
    let mut info = ImageInfo {
        warnings: image.warnings().to_vec(),
        ..ImageInfo::default()
    };
    for layer in image.layers() {
        info.add(layer, image, progress)?;
    }
    Ok(map! {
        "path": redacted(&shown(image.path())).into_owned(),
        "format": image.format().code(),
        "description": image.format().description(),
        "size": info.size,
        "allocated": info.allocated,
        "archive": info.archive,
        "encryption": info.encryption.as_ref().map(encryption),
        "bucket": info.bucket,
        "storage": info.storage,
        "layers": info.layers,
        "partition_map": info.partition_map,
        "contents": image.contents()?.name(),
        "volumes": info.volumes,
        "warnings": info.warnings.into_iter().map(Value::message).collect::<Vec<_>>(),
    })
}

impl ImageInfo {
    fn add(&mut self, layer: &Layer, image: &Image, progress: &dyn Progress) -> Result<()> {
        match layer {
            Layer::File(file) => {
                let allocated = allocated(file.path())?;
                self.allocated = Some(self.allocated.unwrap_or_default() + allocated);
            }
            Layer::Remote(file) => self.allocated = Some(file.info().len),
            Layer::Bucket(status) => self.add_bucket(status, image),
            Layer::Archive(found) => self.archive = Some(archive(&found.description)),
            Layer::Crypt(description) => self.encryption = Some(description.clone()),
            Layer::Raw(raw) => {
                self.size = Some(raw.info().len);
                self.storage = Some(map! { "kind": "raw" });
            }
            Layer::Bundle(bundle) => self.add_bundle(bundle, progress)?,
            Layer::SparseImage(image) => {
                self.size = Some(image.info().len);
                self.storage = Some(sparse_image(image));
            }
            Layer::Asif(image) => {
                self.size = Some(image.info().len);
                self.storage = Some(map! { "kind": "asif" }.with(asif(image)));
            }
            Layer::Udif(image) => {
                self.size = Some(image.info().len);
                self.storage = Some(udif(image));
            }
            Layer::Overlay(file) => self.layers.push(overlay(file)?),
            Layer::Stack(stack) => self.size = Some(stack.info().len),
            Layer::Partitions(found) => self.partition_map = Some(partition_map(found)),
            Layer::Volumes(volumes) => {
                for volume in volumes {
                    let (found, warnings) = of_volume(volume);
                    self.volumes.extend(found);
                    self.warnings.extend(warnings);
                }
            }
        }
        Ok(())
    }

    fn add_bucket(&mut self, status: &Status, image: &Image) {
        self.bucket = Some(map! {
            "writers": status.generation,
            "writer": status.holder.as_ref().map(ToString::to_string),
            "lagging": status.lagging,
            "snapshots": status.snapshots,
        });
        if status.lagging > 0 {
            let files = match status.lagging {
                1 => "1 file".to_owned(),
                n => format!("{n} files"),
            };
            self.warnings.push(format!(
                "the plain objects are older than the commits in {files}, so other programs read an older state; run \
                 `bandsaw checkpoint {}` to update them",
                redacted(&shown(image.path()))
            ));
        }
    }

    fn add_bundle(&mut self, bundle: &Bundle, progress: &dyn Progress) -> Result<()> {
        let survey = bundle.survey(progress)?;
        self.size = Some(bundle.info().len);
        self.allocated = Some(survey.allocated);
        self.storage = Some(map! {
            "kind": "sparse_bundle",
            "version": bundle.version().number(),
            "band_size": bundle.band_size(),
            "bands": bundle.band_count(),
            "allocated_bands": survey.bands,
            "rebanding": bundle.is_between(),
            "bands_size": survey.len,
        });
        self.warnings
            .extend(survey.too_long.iter().map(ToString::to_string));
        // A bundle opens by either of its lists, so damage to the other is not a failure.
        let is_list = |name: &str| name.starts_with("Info.");
        let of_a_list = |error: &Error| {
            matches!(error.place(), Place::Name(name) if is_list(name))
                || error
                    .file()
                    .and_then(|file| file.rsplit('/').next())
                    .is_some_and(is_list)
        };
        let said = self
            .warnings
            .iter()
            .any(|warning| warning.contains(USED_INSTEAD));
        let problems = survey.problems.iter();
        let shown = problems.filter(|problem| !(said && of_a_list(problem)));
        self.warnings.extend(shown.map(ToString::to_string));
        if survey.further_problems > 0 {
            let more = format!("{} more problems like these", survey.further_problems);
            self.warnings.push(more);
        }
        Ok(())
    }
}

fn allocated(path: &std::path::Path) -> Result<u64> {
    let meta = fs::metadata(path)
        .map_err(|error| Error::io("image", "read metadata", error).in_file(path))?;
    Ok(meta.blocks() * 512)
}

fn archive(of: &ArchiveDescription) -> Value {
    let names = of.metadata.as_ref().map(|metadata| {
        let names = metadata.iter().map(|entry| entry.name.clone());
        names.collect::<Vec<_>>()
    });
    let root = of.root.as_ref();
    map! {
        "profile": of.profile.number(),
        "profile_name": of.profile.name(),
        "encrypted": of.profile.is_encrypted(),
        "signature": of.signature.name(),
        "metadata": names,
        "metadata_size": of.metadata_len,
        "locked": root.is_none(),
        "contents_size": root.map(|root| root.size),
        "compression": root.map(|root| root.compression.name()),
        "checksum": root.map(|root| root.checksum.name()),
        "segment_size": root.map(|root| root.segment_size),
        "segments_per_cluster": root.map(|root| root.segments_per_cluster),
        "segments": root.map(|root| root.segments()),
    }
}

fn encryption(of: &Description) -> Value {
    let slots = (1_usize..).zip(&of.key_slots).map(|(number, slot)| {
        map! { "number": number }.with(match slot {
            KeySlot::Passphrase { iterations, wrap } => map! {
                "kind": "passphrase",
                "iterations": *iterations,
                "key_wrap": wrap.to_string().to_lowercase(),
            },
            KeySlot::PublicKey { id, bits } => map! {
                "kind": "public_key",
                "id": id.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
                "bits": *bits,
            },
            KeySlot::Unknown { kind, why, .. } => map! {
                "kind": "unknown",
                "kind_number": *kind,
                "message": why.clone(),
            },
            _ => map! { "kind": "unknown", "kind_number": 0_u32, "message": "" },
        })
    });
    map! {
        "version": of.version,
        "key_bits": of.key_bits,
        "block_size": of.block,
        "uuid": of.uuid.to_string(),
        "size": of.data_size,
        "key_slots": slots.collect::<Vec<_>>(),
        "max_key_slots": of.max_key_slots(),
        "locked": false,
    }
}

fn sparse_image(image: &SparseImage) -> Value {
    let usage = image.usage();
    map! {
        "kind": "sparse_image",
        "band_size": usage.band_size,
        "bands": image.info().len.div_ceil(usage.band_size),
        "allocated_bands": usage.bands,
        "unused_slots": usage.unused,
        "nodes": usage.nodes,
        "file_size": usage.file_len,
    }
}

fn overlay(layer: &LayerFile) -> Result<Value> {
    let own = map! {
        "path": shown(&layer.path),
        "size": layer.image.info().len,
        "allocated": allocated(&layer.path)?,
    };
    Ok(own.with(asif(&layer.image)))
}

fn asif(image: &Asif) -> Value {
    let (usage, layer, metadata) = (image.usage(), image.layer(), image.metadata());
    map! {
        "uuid": image.uuid().to_string(),
        "stable_uuid": metadata.stable_uuid.map(|uuid| uuid.to_string()),
        "layer_role": match (layer.is_cache, layer.is_overlaid) {
            (true, _) => "cache",
            (false, true) => "overlay",
            (false, false) => "disk",
        },
        "parent": Some(layer.parent).filter(|parent| !parent.is_nil()).map(|parent| parent.to_string()),
        "sector_size": image.block(),
        "chunk_size": usage.chunk_size,
        "data_chunks": usage.data,
        "table_chunks": usage.tables,
        "bitmap_chunks": usage.bitmaps,
        "chunks": usage.chunks,
        "file_size": usage.file_len,
        "changes_refused": image.read_only().map(Value::message),
        "metadata_changes_refused": image.metadata_read_only().map(Value::message),
        "user_metadata": metadata.user.keys().cloned().collect::<Vec<_>>(),
    }
}

/// Returns the code signature of an image, and what can be compared. A form that is not known is no
/// damage.
pub(crate) fn signature(image: &Udif) -> Option<(Value, Option<CodeSignature>)> {
    let range = image.signature()?;
    let known = image.code_signature().ok().flatten();
    let place = map! { "offset": range.start, "size": range.end - range.start };
    let value = match &known {
        None => place,
        Some(known) => place.with(map! {
            "identifier": known.identifier.clone(),
            "team": known.team.clone(),
            "algorithms": known.hashes.clone(),
            "certified": known.certified,
            "ticket": known.ticket,
        }),
    };
    Some((value, known))
}

fn udif(image: &Udif) -> Value {
    let usage = image.usage();
    let resources = image.resources();
    let beside = resources
        .iter()
        .filter(|resource| resource.kind != "blkx")
        .map(|resource| resource.kind.clone());
    map! {
        "kind": "udif",
        "chunks": usage.chunks,
        "max_chunk_size": usage.longest,
        "stored_size": usage.stored,
        "decoded_size": usage.held,
        "tables": usage.tables,
        "segments": image.segment().count.max(1),
        "signed": usage.signed,
        "signature": signature(image).map(|(value, _)| value),
        "resource_types": beside.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(),
    }
}

fn partition_map(of: &Map) -> Value {
    map! {
        "scheme": of.scheme.to_string().to_lowercase(),
        "block_size": of.block,
        "uuid": of.disk_guid.map(|guid| guid.to_string()),
        "partitions": of.partitions.iter().map(partition).collect::<Vec<_>>(),
    }
}

fn partition(of: &Partition) -> Value {
    map! {
        "number": of.number,
        "partition_type": of.kind.clone(),
        "partition_type_id": of.type_id.to_string(),
        "name": of.name.clone(),
        "offset": of.range.start,
        "size": of.range.end - of.range.start,
        "uuid": of.guid.map(|guid| guid.to_string()),
        "flags": of.flags,
    }
}

/// Returns the properties of a volume, or of each in a container, and warnings.
pub(crate) fn of_volume(volume: &Volume) -> (Vec<Value>, Vec<String>) {
    if volume.format.is_container() {
        return match volume.container() {
            Ok(container) => in_container(volume, &container),
            Err(error) => (vec![unread(volume, &error)], Vec::new()),
        };
    }
    let properties = match volume.open() {
        Ok(fs) => {
            let info = fs.volume();
            let details = map! {
                "kind": "hfs_plus",
                "journaled": info.journaled,
                "clean": info.clean,
            };
            place(volume, true)
                .with(contents(info))
                .with(map! { "details": details })
        }
        Err(error) => unread(volume, &error),
    };
    (vec![properties], Vec::new())
}

fn place(volume: &Volume, readable: bool) -> Value {
    map! {
        "partition": volume.partition,
        "file_system": volume.format.name(),
        "offset": volume.range.start,
        "size": volume.range.end - volume.range.start,
        "readable": readable,
    }
}

fn unread(volume: &Volume, error: &Error) -> Value {
    let problem = match error.kind() {
        Kind::Unsupported => brief(error),
        _ => described(error),
    };
    place(volume, false).with(map! { "problem": problem })
}

fn contents(volume: VolumeInfo) -> Value {
    map! {
        "name": volume.name,
        "uuid": volume.uuid.map(|uuid| uuid.to_string()),
        "used": volume.total.saturating_sub(volume.free).saturating_sub(volume.pending),
        "free": volume.free,
        "pending": volume.pending,
        "block_size": volume.block_size,
        "files": volume.files,
        "folders": volume.folders,
        "case_sensitive": volume.case_sensitive,
        "created": volume.created.map(|time| time.to_string()),
        "modified": volume.modified.map(|time| time.to_string()),
    }
}

fn in_container(volume: &Volume, container: &Container) -> (Vec<Value>, Vec<String>) {
    let warnings = container.problems().iter().map(Error::to_string).collect();
    let found = container
        .volumes()
        .into_iter()
        .map(|summary| match summary {
            Ok(summary) => apfs(volume, container, &summary),
            Err(error) => unread(volume, &error),
        });
    let mut found: Vec<_> = found.collect();
    if found.is_empty() {
        let empty = Error::new(Kind::NotFound, "apfs", "a container without volumes");
        found.push(place(volume, false).with(map! { "problem": brief(&empty) }));
    }
    (found, warnings)
}

fn apfs(volume: &Volume, container: &Container, of: &Summary) -> Value {
    let used = container
        .size()
        .saturating_sub(container.free())
        .saturating_sub(container.pending());
    let of_container = map! {
        "uuid": container.uuid().to_string(),
        "used": used,
        "pending": container.pending(),
        "free": container.free(),
        "checkpoint": container.checkpoint(),
        "checkpoints": container.checkpoints().to_vec(),
    };
    let snapshots = of.snapshots.iter().map(|snapshot| {
        map! {
            "name": snapshot.name.clone(),
            "xid": snapshot.xid,
            "created": snapshot.created.map(|time| time.to_string()),
        }
    });
    let details = map! {
        "kind": "apfs",
        "number": of.label.number,
        "role": of.label.role,
        "encrypted": of.locking != Locking::Plain,
        "hardware_key": of.locking == Locking::Hardware,
        "sealed": of.sealed,
        "quota": of.quota,
        "reserve": of.reserve,
        "formatted_by": of.formatted_by.clone(),
        "snapshots": snapshots.collect::<Vec<_>>(),
        "container": of_container,
    };
    let contents = map! {
        "name": of.label.name.clone(),
        "uuid": of.uuid.to_string(),
        "used": of.used,
        "free": container.free(),
        "pending": container.pending(),
        "block_size": container.block_size(),
        "files": of.files,
        "folders": of.folders,
        "case_sensitive": of.case_sensitive,
        "created": of.created.map(|time| time.to_string()),
        "modified": of.modified.map(|time| time.to_string()),
    };
    place(volume, of.locking != Locking::Hardware)
        .with(contents)
        .with(map! { "details": details })
}
