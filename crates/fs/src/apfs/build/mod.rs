//! New APFS containers, whose first volume is made from a tree of files in one pass.
//!
//! The layout is planned before the first byte is written: object numbers and order of all files
//! ([`objects`]), the blocks of their contents ([`streams`]), the sizes of the trees
//! ([`volume::measure`]), and the location of every structure ([`places`], with the sizes of
//! `geometry.rs`). Then several threads write contents to their final blocks, the
//! trees are written bottom up from sorted records ([`files`], [`tree`], [`node`]), then the space
//! manager ([`space`]), and, once all of that is durable, the superblock in block 0. It is one
//! transaction and one checkpoint. The used blocks are the container's first ones, except for one
//! gap.

mod container;
mod encryption;
mod files;
mod keys;
pub(super) mod node;
mod objects;
mod places;
mod records;
pub(super) mod space;
mod streams;
pub(super) mod tree;
pub(super) mod volume;

use std::ops::Range;

use uuid::Uuid;

use container::{ContainerOids, ContainerWriter};
use encryption::EncryptingContainer;
use files::Files;
use keys::VolumeKeys;
use objects::Objects;
use places::{Nodes, Places};
use records::RecordStyle;
use space::Queues;
use streams::{Holes, NodeBlocks};
use volume::{VolumeFacts, VolumeOids, VolumeWriter};

use super::geometry::{Geometry, MIN_CONTAINER_LEN};
use super::layout::{BlockSize, Oid, Paddr, VOLUME_NAME_LEN, Xid};
use super::names::NameRules;
use crate::build::filling::Places as _;
use crate::build::tree::check_source_tree;
use crate::build::{blank, filling};
use crate::source::Tree;
use crate::{NewVolumeInfo, PlacedContents, Timestamp, VolumeEncryption, VolumePlan};
use bandsaw_core::device::{BlockDevice, Extent};
use bandsaw_core::progress::{Progress, Silent};
use bandsaw_core::{Error, Result};

pub(super) const LAYER: &str = "apfs builder";
/// Transaction number of a new container.
const XID: Xid = Xid(1);

/// Properties of a new container.
#[derive(Debug, Clone)]
pub struct Options {
    /// Volumes. The first one receives the files, the others are empty.
    pub volumes: Vec<NewVolume>,
    /// Creation time.
    pub created: Timestamp,
    /// Upper limit for all timestamps in the container, for reproducible output.
    pub latest: Option<Timestamp>,
    /// UUID of the container.
    pub uuid: Uuid,
}

/// Properties of a new volume.
#[derive(Debug, Clone)]
pub struct NewVolume {
    /// Volume name: 1 to 255 bytes.
    pub name: String,
    /// True if names are case-sensitive.
    pub case_sensitive: bool,
    /// UUID of the volume.
    pub uuid: Uuid,
}

/// The plan of a new container.
#[derive(Debug)]
pub struct Plan {
    options: Options,
    volumes: Vec<PlannedVolume>,
}

/// The plan of a volume.
#[derive(Debug)]
struct PlannedVolume {
    tree: Tree,
    objects: Objects,
    holes: Holes,
    rules: NameRules,
    style: RecordStyle,
    keys: Option<VolumeKeys>,
    nodes: Nodes,
    content_blocks: u64,
}

impl Plan {
    /// Plans a container whose first volume holds `tree`.
    ///
    /// # Errors
    ///
    /// Fails, naming the file, if the volume cannot represent it.
    pub fn new(tree: Tree, options: Options) -> Result<Self> {
        Self::encrypted(tree, options, None)
    }

    /// Plans a container whose first volume holds `tree`. With `encryption`, all volumes are
    /// encrypted, each with keys of its own under the same passphrase.
    pub fn encrypted(
        tree: Tree,
        options: Options,
        encryption: Option<&VolumeEncryption>,
    ) -> Result<Self> {
        if options.volumes.is_empty() {
            return Err(Error::invalid(
                LAYER,
                "cannot create a container without a volume",
            ));
        }
        let mut trees = vec![tree];
        trees.resize_with(options.volumes.len(), || Tree::empty(options.created));
        if encryption.is_some() && options.volumes.len() > keys::MAX_VOLUMES {
            let message = format!(
                "too many encrypted volumes: {}, the keybag has room for {}",
                options.volumes.len(),
                keys::MAX_VOLUMES
            );
            return Err(Error::limit(LAYER, message));
        }
        let style = RecordStyle {
            created: options.created,
            latest: options.latest,
            encrypted: encryption.is_some(),
        };
        let volumes = options.volumes.iter().zip(trees).map(|(volume, tree)| {
            let keys = encryption
                .map(|encryption| VolumeKeys::new(volume.uuid, encryption))
                .transpose()?;
            PlannedVolume::new(tree, volume, style, keys)
        });
        let volumes = volumes.collect::<Result<_>>()?;
        Ok(Self { options, volumes })
    }

    /// Returns the space that all contents take without holes, in bytes.
    pub fn content_len(&self) -> u64 {
        self.content_blocks()
            .saturating_mul(BLOCK_SIZE.get().into())
    }

    fn content_blocks(&self) -> u64 {
        self.volumes
            .first()
            .map_or(0, |volume| volume.content_blocks)
    }

    /// Returns the needed length plus as much as `room` adds to it. Structures grow with the
    /// container, so the length is computed iteratively.
    fn len_with(&self, room: impl Fn(u64) -> u64) -> Result<u64> {
        // A container may have one volume for each started 512 MiB.
        let others = self.volumes.len() as u64 - 1;
        let mut len = MIN_CONTAINER_LEN
            .max((others * (512 << 20) + 1).next_multiple_of(BLOCK_SIZE.get().into()));
        if others == 0 {
            len = MIN_CONTAINER_LEN;
        }
        loop {
            let geometry = Geometry::new(len, BLOCK_SIZE)?;
            let needed = Places::needed(&geometry, &self.nodes(), self.content_blocks());
            let needed = needed.saturating_mul(BLOCK_SIZE.get().into());
            if needed <= len {
                break;
            }
            len = needed;
        }
        let wanted = (len + room(len)).next_multiple_of(BLOCK_SIZE.get().into());
        let geometry = Geometry::new(wanted, BLOCK_SIZE)?;
        let needed = Places::needed(&geometry, &self.nodes(), self.content_blocks())
            * u64::from(BLOCK_SIZE.get());
        Ok(wanted.max(needed))
    }

    fn nodes(&self) -> Vec<Nodes> {
        self.volumes.iter().map(|volume| volume.nodes).collect()
    }

    fn write_metadata(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        places: &Places,
        first: &NodeBlocks<'_>,
    ) -> Result<Vec<u8>> {
        let (volumes, container) = self.number();
        for (index, (volume, oids)) in (0..).zip(self.volumes.iter().zip(&volumes)) {
            let nothing = volume.allot(Paddr(places.end))?;
            let blocks = if index == 0 { first } else { &nothing };
            let place = places.volumes[index as usize];
            let writer = VolumeWriter {
                device,
                block_size: BLOCK_SIZE,
                index,
                place,
                oids: *oids,
                nodes: volume.nodes,
            };
            let options = &self.options.volumes[index as usize];
            let facts = VolumeFacts {
                name: &options.name,
                case_sensitive: options.case_sensitive,
                uuid: options.uuid.into_bytes(),
                style: volume.style,
                counts: volume.objects.counts,
                next_id: volume.objects.next_id,
                content_blocks: volume.content_blocks,
            };
            let files = volume.files(blocks);
            let encrypting = volume
                .keys
                .as_ref()
                .map(|keys| EncryptingContainer::new(device, &keys.key));
            let encrypted = encrypting
                .as_ref()
                .map_or(device, |encrypting| encrypting as &dyn BlockDevice);
            writer.write(&facts, encrypted, &|sink| files.emit(sink), &|sink| {
                files.emit_references(sink)
            })?;
        }
        self.write_keybags(device, places)?;
        let volumes: Vec<Oid> = volumes.iter().map(|oids| oids.superblock).collect();
        let uuid = self.options.uuid.into_bytes();
        ContainerWriter {
            device,
            geometry,
            places,
            oids: container,
            uuid,
            volumes: &volumes,
        }
        .write()
    }

    /// Writes the keybags of the encrypted volumes.
    fn write_keybags(&self, device: &dyn BlockDevice, places: &Places) -> Result<()> {
        let mut wrapped = Vec::new();
        for (volume, place) in self.volumes.iter().zip(&places.volumes) {
            let (Some(keys), Some(place)) = (&volume.keys, place.keybag) else {
                continue;
            };
            device.write_at(place.0 * u64::from(BLOCK_SIZE.get()), &keys.keybag(place))?;
            wrapped.push((keys, place));
        }
        let Some(place) = places.keybag else {
            return Ok(());
        };
        let bag = keys::container_keybag(self.options.uuid, place, &wrapped);
        device.write_at(place.0 * u64::from(BLOCK_SIZE.get()), &bag)
    }

    /// Assigns the numbers of all virtual and ephemeral objects; with one volume they are those
    /// that macOS assigns.
    fn number(&self) -> (Vec<VolumeOids>, ContainerOids) {
        let mut next = Oid::FIRST_USER.0;
        let mut take = |count: u64| {
            let first = Oid(next);
            next += count;
            first
        };
        let (spaceman, reaper, first) = (take(1), take(1), take(1));
        let (pool, root, main) = (take(1), take(1), take(1));
        let mut volumes = vec![VolumeOids {
            superblock: first,
            root,
            nodes: Oid::NONE,
        }];
        volumes.extend((1..self.volumes.len()).map(|_| VolumeOids {
            superblock: take(1),
            root: take(1),
            nodes: Oid::NONE,
        }));
        for (oids, volume) in volumes.iter_mut().zip(&self.volumes) {
            oids.nodes = take(volume.nodes.files - 1);
        }
        (
            volumes,
            ContainerOids {
                spaceman,
                reaper,
                queues: Queues { pool, main },
                next: take(0),
            },
        )
    }
}

impl VolumePlan for Plan {
    fn minimum_len(&self) -> Result<u64> {
        self.len_with(|_| 0)
    }

    /// Returns the needed length plus a sixteenth, at least 4 MiB.
    fn comfortable_len(&self) -> Result<u64> {
        self.len_with(|least| (least / 16).max(4 << 20))
    }

    fn build(&self, device: &dyn BlockDevice, progress: &dyn Progress) -> Result<NewVolumeInfo> {
        let (geometry, places, contents) = self.lay_out(device)?;
        blank(device, &[0])?;
        progress.stage("write", self.content_len());
        let mut superblock = Vec::new();
        contents.encrypted(device, |encrypted| {
            // Other threads write contents while the calling thread writes the metadata.
            filling::fill(
                &contents.volume.tree,
                &contents.blocks,
                encrypted,
                progress,
                || {
                    superblock =
                        self.write_metadata(device, &geometry, &places, &contents.blocks)?;
                    Ok(())
                },
            )
        })?;
        progress.check()?;
        self.write_superblock(device, &geometry, &places, &superblock)
    }

    fn build_metadata<'a>(
        &'a self,
        device: &dyn BlockDevice,
    ) -> Result<(NewVolumeInfo, Box<dyn PlacedContents + 'a>)> {
        let (geometry, places, contents) = self.lay_out(device)?;
        let superblock = self.write_metadata(device, &geometry, &places, &contents.blocks)?;
        let built = self.write_superblock(device, &geometry, &places, &superblock)?;
        Ok((built, Box::new(contents)))
    }
}

impl Plan {
    /// Assigns places on `device`, which is not changed.
    fn lay_out(&self, device: &dyn BlockDevice) -> Result<(Geometry, Places, FirstContents<'_>)> {
        let info = device.info();
        info.check_writable(LAYER)?;
        let geometry = Geometry::new(info.len, BLOCK_SIZE)?;
        if self.volumes.len() as u64 > u64::from(geometry.max_volumes) {
            let message = format!(
                "too many volumes: a container of {} bytes has room for {} (one per 512 MiB), \
                 requested {}",
                info.len,
                geometry.max_volumes,
                self.volumes.len()
            );
            return Err(Error::limit(LAYER, message));
        }
        let places = Places::new(&geometry, &self.nodes(), self.content_blocks())?;
        let volume = &self.volumes[0];
        let blocks = volume.allot(Paddr(places.contents.start))?;
        Ok((geometry, places, FirstContents { volume, blocks }))
    }

    /// Writes block 0 when everything else is durable.
    fn write_superblock(
        &self,
        device: &dyn BlockDevice,
        geometry: &Geometry,
        places: &Places,
        superblock: &[u8],
    ) -> Result<NewVolumeInfo> {
        device.flush()?;
        device.write_at(0, superblock)?;
        device.flush()?;
        let counts = self.volumes[0].objects.counts;
        Ok(NewVolumeInfo {
            len: device.info().len,
            block_size: BLOCK_SIZE.get(),
            files: counts.files + counts.symlinks + counts.others,
            folders: counts.folders,
            free: (geometry.blocks - places.used_of(0..geometry.blocks))
                * u64::from(BLOCK_SIZE.get()),
        })
    }
}

/// The contents of the first volume, the only one with files.
#[derive(Debug)]
struct FirstContents<'a> {
    volume: &'a PlannedVolume,
    blocks: NodeBlocks<'a>,
}

impl FirstContents<'_> {
    /// Passes `device` to `write`, which then encrypts what is written if the volume is encrypted.
    fn encrypted(
        &self,
        device: &dyn BlockDevice,
        write: impl FnOnce(&dyn BlockDevice) -> Result<()>,
    ) -> Result<()> {
        match &self.volume.keys {
            Some(keys) => write(&EncryptingContainer::new(device, &keys.key)),
            None => write(device),
        }
    }
}

impl PlacedContents for FirstContents<'_> {
    fn range(&self) -> Range<u64> {
        self.blocks.range()
    }

    fn write(&self, range: Range<u64>, device: &dyn BlockDevice) -> Result<()> {
        self.encrypted(device, |encrypted| {
            filling::fill_range(&self.volume.tree, &self.blocks, encrypted, range)
        })
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        filling::extent_at(&self.volume.tree, &self.blocks, range)
    }
}

/// Block size of new containers; other sizes have not been observed on a disk.
const BLOCK_SIZE: BlockSize = BlockSize::DEFAULT;
/// Block size of a new container in bytes.
pub const BLOCK_BYTES: u32 = 4096;
/// Minimum length of a container in bytes.
pub const MIN_LEN: u64 = MIN_CONTAINER_LEN;

impl PlannedVolume {
    fn new(
        mut tree: Tree,
        options: &NewVolume,
        style: RecordStyle,
        keys: Option<VolumeKeys>,
    ) -> Result<Self> {
        if options.name.is_empty()
            || options.name.len() >= VOLUME_NAME_LEN
            || options.name.contains(['/', '\0'])
        {
            let message = format!(
                "invalid volume name: expected 1 to {} bytes, without slash and NUL",
                VOLUME_NAME_LEN - 1
            );
            return Err(Error::invalid(LAYER, message).named(options.name.clone()));
        }
        let rules = if options.case_sensitive {
            NameRules::CaseSensitive
        } else {
            NameRules::CaseInsensitive
        };
        check_source_tree(&tree, LAYER)?;
        streams::prepare(&mut tree)?;
        let objects = Objects::new(&tree, rules)?;
        let holes = Holes::find(&tree, BLOCK_SIZE, &Silent)?;
        let nodes = Nodes {
            omap: 0,
            files: 0,
            references: 0,
            encrypted: style.encrypted,
        };
        let mut plan = Self {
            tree,
            objects,
            holes,
            rules,
            style,
            keys,
            nodes,
            content_blocks: 0,
        };
        plan.measure()?;
        Ok(plan)
    }

    /// Counts blocks and nodes, with provisional block numbers: the lengths of records do not
    /// depend on them.
    fn measure(&mut self) -> Result<()> {
        let blocks = self.allot(Paddr(0))?;
        let files = self.files(&blocks);
        let encrypted = self.style.encrypted;
        let nodes = volume::measure(BLOCK_SIZE, encrypted, &|sink| files.emit(sink), &|sink| {
            files.emit_references(sink)
        })?;
        (self.nodes, self.content_blocks) = (nodes, blocks.count());
        Ok(())
    }

    /// Assigns blocks to its contents, beginning with `start`.
    fn allot(&self, start: Paddr) -> Result<NodeBlocks<'_>> {
        NodeBlocks::allot(
            &self.tree,
            &self.holes,
            BLOCK_SIZE,
            self.style.encrypted,
            start,
        )
    }

    fn files<'a>(&'a self, blocks: &'a NodeBlocks<'a>) -> Files<'a> {
        Files {
            tree: &self.tree,
            objects: &self.objects,
            blocks,
            rules: self.rules,
            style: self.style,
        }
    }
}

#[cfg(test)]
mod tests;
