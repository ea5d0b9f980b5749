//! Resize of an image: volume, partition map and disk together.
//!
//! Parts grow from the outside in (disk, map, volume) and shrink from the inside out, each step
//! durable before the next. After a crash, every part of the image still fits in the one around it,
//! and repeating the resize completes it: each part is compared with its new size, and left
//! unchanged if it already has it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::address::VolumeSelector;
use crate::container::sparsebundle::Bundle;
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, CowDevice, ExtentKind, Slice};
use crate::fs::SizeLimits;
use crate::open::{Contents, Image, OpenOptions, Volume, VolumeFormat, leftovers};
use crate::ops::orphans;
use crate::partition::{Map, Resizable, Scheme, gpt};
use crate::progress::Progress;
use crate::{Error, Kind, Reason, Result, size};

const LAYER: &str = "resize";
/// Memory for the changes of opening a volume that is only examined, in bytes.
const TRIED: u64 = 1 << 30;
/// Type of free space in an Apple partition map.
const FREE: &str = "Apple_Free";

/// The new size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Length of the disk in bytes, a multiple of the sector size; with [`Parts::Partition`], of
    /// the partition.
    Bytes(u64),
    /// The minimum for its contents.
    Min,
}

/// The parts of an image to resize.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Parts {
    /// Disk, partition and volume.
    #[default]
    All,
    /// The disk alone, with the backup map at its end.
    Image,
    /// Partition and volume within the unchanged disk.
    Partition,
}

/// Options of a resize.
#[derive(Debug, Clone, Copy)]
pub struct ResizeOptions<'a> {
    /// The new size.
    pub size: Size,
    /// The parts to resize.
    pub parts: Parts,
    /// The volume, by partition or name. `None`: the only one, or the last.
    pub volume: Option<&'a VolumeSelector>,
    /// True to change nothing.
    pub dry_run: bool,
}

/// Result of a resize, or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resized {
    /// Length of the disk before, in bytes.
    pub from: u64,
    /// Length of the disk afterwards, in bytes.
    pub to: u64,
    /// The steps, in order.
    pub steps: Vec<ResizeStep>,
}

/// A step of a resize. Lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "lengths before and after")]
pub enum ResizeStep {
    /// The disk is extended.
    GrowDisk { from: u64, to: u64 },
    /// The end of the disk is removed.
    ShrinkDisk { from: u64, to: u64 },
    /// The backup of the partition map is moved to the new end of the disk.
    MoveBackupMap,
    /// The partition with this number is resized.
    ResizePartition { number: u32, from: u64, to: u64 },
    /// The volume is resized to at most `to`.
    ResizeVolume {
        format: VolumeFormat,
        from: u64,
        to: u64,
    },
}

impl fmt::Display for ResizeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = size::display;
        match *self {
            Self::GrowDisk { from, to } => {
                write!(
                    f,
                    "the disk grows from {:#} to {:#}",
                    shown(from),
                    shown(to)
                )
            }
            Self::ShrinkDisk { from, to } => {
                write!(
                    f,
                    "the disk is cut from {:#} to {:#}",
                    shown(from),
                    shown(to)
                )
            }
            Self::MoveBackupMap => f.write_str("the backup of the map moves to the end"),
            Self::ResizePartition { number, from, to } => {
                let (from, to) = (shown(from), shown(to));
                write!(f, "partition {number} is resized from {from:#} to {to:#}")
            }
            Self::ResizeVolume { format, from, to } => {
                let verb = if to < from { "shrinks" } else { "grows" };
                let (from, to) = (shown(from), shown(to));
                write!(
                    f,
                    "the {format} volume {verb} from {from:#} to at most {to:#}"
                )
            }
        }
    }
}

/// Returns the limits and the present length of the image's disk, in bytes.
pub fn limits(image: &Image, which: Option<&VolumeSelector>) -> Result<SizeLimits> {
    let found = volume_of(image, which).and_then(|volume| {
        let disk = &trial_disk(image)?;
        let parted = PartitionedDisk {
            disk,
            ..PartitionedDisk::of(image)
        };
        ResizePlan::new(parted, volume)?.limits()
    });
    found.map_err(|error| error.in_file(image.path()))
}

/// Returns the disk with the map that a resize begins with: an interrupted one may have left only one
/// copy. Changes stay in memory.
fn trial_disk(image: &Image) -> Result<Arc<dyn BlockDevice>> {
    let tried = CowDevice::new(image.disk().clone(), TRIED);
    if let Some(map) = image.partitions().filter(|map| map.scheme == Scheme::Gpt)
        && !map.problems.is_empty()
    {
        gpt::repair(&tried)?;
    }
    Ok(Arc::new(tried))
}

/// Resizes the image, which is open for writing and not otherwise in use. It must not be used
/// afterwards: its partition map and list of volumes are out of date.
///
/// [`Kind::Unsupported`], with an alternative, if the image cannot be resized; [`Kind::Limit`] for
/// a size outside of its [limits]. Nothing is changed in both cases.
pub fn resize(
    image: &Image,
    options: &ResizeOptions<'_>,
    progress: &dyn Progress,
) -> Result<Resized> {
    let checked = check_kind(image).and_then(|()| match image.bundle() {
        Some(bundle) => {
            leftovers::check_leftovers(bundle, image.disk(), &OpenOptions::default(), progress)
        }
        None => Ok(()),
    });
    let checked = checked.and_then(|()| check_orphans(image, options, progress));
    let done = checked.and_then(|()| match options.parts {
        Parts::Image => PartitionedDisk::of(image).resize_disk(options, progress),
        Parts::All | Parts::Partition => {
            let disk = match options.dry_run {
                true => &trial_disk(image)?,
                false => image.disk(),
            };
            let parted = PartitionedDisk {
                disk,
                ..PartitionedDisk::of(image)
            };
            ResizePlan::new(parted, volume_of(image, options.volume)?)?.run(options, progress)
        }
    });
    done.map_err(|error| error.in_file(image.path()))
}

/// Refuses to shrink an image with stored data that may belong to a place in use: what seems to be
/// zeros there would be moved, and its own place be used again. [`Kind::Undecided`] then.
fn check_orphans(
    image: &Image,
    options: &ResizeOptions<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    if matches!((options.size, options.parts), (Size::Bytes(to), Parts::All | Parts::Image) if to >= image.disk().info().len)
    {
        return Ok(());
    }
    orphans::refuse_orphans(image, LAYER, progress)
}

/// A disk with its partition map and volumes.
#[derive(Debug, Clone, Copy)]
struct PartitionedDisk<'a> {
    disk: &'a Arc<dyn BlockDevice>,
    /// The sparse bundle that stores it.
    bundle: Option<&'a Bundle>,
    map: Option<&'a Map>,
    volumes: &'a [Volume],
}

impl<'a> PartitionedDisk<'a> {
    fn of(image: &'a Image) -> Self {
        Self {
            disk: image.disk(),
            bundle: image.bundle(),
            map: image.partitions(),
            volumes: image.volumes(),
        }
    }

    /// Resizes the disk alone.
    fn resize_disk(self, options: &ResizeOptions<'_>, progress: &dyn Progress) -> Result<Resized> {
        let Self {
            disk,
            bundle,
            map,
            volumes,
        } = self;
        let from = disk.info().len;
        let is_gpt = map.is_some_and(|map| map.scheme == Scheme::Gpt);
        let used = match map {
            Some(map) => map
                .partitions
                .iter()
                .map(|partition| partition.range.end)
                .max()
                .unwrap_or(0),
            None if !volumes.is_empty() => volumes
                .iter()
                .map(|volume| volume.range.end)
                .max()
                .unwrap_or(from),
            // The contents are unknown, but they end with the allocated space.
            None => stored_end(&**disk)?,
        };
        let min = if is_gpt {
            gpt::disk_len_for(&**disk, used)?
        } else {
            used
        };
        let to = match options.size {
            Size::Min => min,
            Size::Bytes(to) => whole_sectors(disk, to)?,
        };
        if to < min {
            let message = match (map, volumes.is_empty()) {
                (None, true) => {
                    format!("{to} bytes are too few: the stored data ends at {min}")
                }
                (None, false) => format!(
                    "{to} bytes are too few: the volume ends at {min}; resize the volume too"
                ),
                (Some(_), _) => format!(
                    "{to} bytes are too few: the last partition ends at {min}; resize the volume \
                     too"
                ),
            };
            return Err(Error::limit(LAYER, message));
        }
        if to < from && map.is_some() && Contents::of(disk, map, volumes)? == Contents::Unknown {
            let message = "the disk holds data outside of its volumes, in no known format: it is not \
                           made smaller";
            return Err(Error::conflict(LAYER, message));
        }
        check_excess(bundle, to, progress)?;
        let mut steps = Vec::new();
        if to > from {
            steps.push(ResizeStep::GrowDisk { from, to });
        }
        if is_gpt && to != from {
            steps.push(ResizeStep::MoveBackupMap);
        }
        if to < from {
            steps.push(ResizeStep::ShrinkDisk { from, to });
        }
        let change_map = |disk: &dyn BlockDevice| -> Result<()> {
            gpt::repair(disk)?;
            gpt::change(disk, to, &[])
        };
        if is_gpt {
            // Tried out first: a map that cannot be changed leaves the disk as it was.
            let tried = CowDevice::new(disk.clone(), TRIED);
            tried.set_len(to.max(from), AfterDiscard::Zeros)?;
            change_map(&tried)?;
        }
        if !options.dry_run {
            if to > from {
                grow_disk(disk, to)?;
            }
            if is_gpt {
                change_map(&**disk)?;
            }
            if to < from {
                disk.set_len(to, AfterDiscard::Zeros)?;
                disk.flush()?;
            }
        }
        Ok(Resized { from, to, steps })
    }
}

/// Returns the selected volume, or the default one.
fn volume_of<'a>(image: &'a Image, which: Option<&VolumeSelector>) -> Result<&'a Volume> {
    match which {
        Some(_) => image.volume(which),
        None => the_volume(image.volumes()),
    }
}

/// Refuses images whose length is fixed.
fn check_kind(image: &Image) -> Result<()> {
    if let Some(sparse) = image.sparse_image() {
        leftovers::check_past_end(image.disk(), &sparse.orphans()?, LAYER)?;
    }
    if let Some(asif) = image.asif() {
        leftovers::check_past_end(image.disk(), &asif.orphans()?, LAYER)?;
    }
    if let Some(bundle) = image.bundle() {
        bundle.check_lists()?;
    }
    if image.overlays().next().is_some() {
        let message = "cannot resize a stack of layers; flatten it first (`bandsaw stack flatten`)";
        return Err(Error::unsupported(LAYER, message));
    }
    let format = image.format();
    if format.is_udif() {
        let message =
            format!("{format} is read-only; convert the image to udrw, udsb, udsp or asif");
        return Err(Error::unsupported(LAYER, message));
    }
    Ok(())
}

/// Returns the end of the last allocated bytes, rounded up to a sector; at least one sector.
fn stored_end(disk: &dyn BlockDevice) -> Result<u64> {
    let mut end: u64 = 1;
    for extent in disk.extents(0..disk.info().len) {
        let (range, kind) = extent?;
        if kind == ExtentKind::Data {
            end = range.end;
        }
    }
    Ok(end.next_multiple_of(disk.info().block.into()))
}

fn whole_sectors(disk: &Arc<dyn BlockDevice>, len: u64) -> Result<u64> {
    let sector = u64::from(disk.info().block);
    if len == 0 || !len.is_multiple_of(sector) {
        return Err(Error::invalid(
            LAYER,
            format!("{len} bytes are not a multiple of the sector size {sector}"),
        ));
    }
    Ok(len)
}

/// Refuses a length of the disk that would remove what a file of the bundle stores past its band.
fn check_excess(bundle: Option<&Bundle>, to: u64, progress: &dyn Progress) -> Result<()> {
    bundle.map_or(Ok(()), |bundle| {
        leftovers::check_excess(bundle, to, progress)
    })
}

/// Extends the disk, durably, before the map or a volume refers to the new space.
fn grow_disk(disk: &Arc<dyn BlockDevice>, to: u64) -> Result<()> {
    disk.set_len(to, AfterDiscard::Zeros)?;
    disk.flush()
}

/// A volume with its surroundings.
struct ResizePlan<'a> {
    disk: &'a Arc<dyn BlockDevice>,
    bundle: Option<&'a Bundle>,
    volume: &'a Volume,
    /// The range of the disk that the volume can use: from its beginning to the next partition.
    room: Range<u64>,
    /// The partition that contains it.
    partition: Option<Resizable<'a>>,
}

impl<'a> ResizePlan<'a> {
    fn new(parted: PartitionedDisk<'a>, volume: &'a Volume) -> Result<Self> {
        let PartitionedDisk {
            disk, bundle, map, ..
        } = parted;
        let partition = map.zip(volume.partition);
        let partition = partition.map(|(map, number)| Resizable {
            disk: &**disk,
            scheme: map.scheme,
            number,
        });
        // Some maps have entries for free space.
        let behind = map
            .filter(|_| partition.is_some())
            .into_iter()
            .flat_map(|map| &map.partitions);
        let behind =
            behind.filter(|other| other.kind != FREE && other.range.start > volume.range.start);
        let room = volume.range.start
            ..behind
                .map(|other| other.range.start)
                .min()
                .unwrap_or(u64::MAX);
        Ok(Self {
            disk,
            bundle,
            volume,
            room,
            partition,
        })
    }

    /// Returns true if no partition follows the volume, so that the end of the disk can move with
    /// it.
    fn is_last(&self) -> bool {
        self.room.end == u64::MAX
    }

    fn check_last(&self) -> Result<()> {
        if self.is_last() {
            return Ok(());
        }
        let message = format!(
            "{} is not the last on the disk, so the disk cannot be resized with it; use \
             `--partition-only` to resize it within the disk",
            self.volume.place()
        );
        Err(Error::unsupported(LAYER, message))
    }

    /// Returns the possible lengths of the volume.
    fn volume_limits(&self) -> Result<SizeLimits> {
        self.volume
            .open_resizable(Arc::new(CowDevice::new(
                self.volume.device().clone(),
                TRIED,
            )))?
            .limits()
    }

    /// Returns the length of a disk for a volume of `len` bytes.
    fn disk_len_for(&self, len: u64) -> Result<u64> {
        let end = self.room.start.saturating_add(len);
        match self.partition {
            Some(partition) => partition.disk_len_for(end),
            None => Ok(end.next_multiple_of(self.disk.info().block.into())),
        }
    }

    /// Returns the length of the volume on a disk of `len` bytes.
    fn volume_len_on(&self, len: u64) -> Result<u64> {
        Ok(self.last_end(len)?.saturating_sub(self.room.start))
    }

    /// Returns the largest end offset of the volume on a disk of `len` bytes.
    fn last_end(&self, len: u64) -> Result<u64> {
        self.partition
            .map_or(Ok(len), |partition| partition.last_end(len))
    }

    fn limits(&self) -> Result<SizeLimits> {
        self.check_last()?;
        let volume = self.volume_limits()?;
        let current = self.disk.info().len;
        let min = self.disk_len_for(volume.min)?.min(current);
        let max = self.disk_len_for(volume.max).unwrap_or(u64::MAX);
        Ok(SizeLimits { min, current, max })
    }

    fn run(&self, options: &ResizeOptions<'_>, progress: &dyn Progress) -> Result<Resized> {
        let from = self.disk.info().len;
        if !options.dry_run {
            self.volume.check_before_change()?;
        }
        if let Some(partition) = self.partition.filter(|_| !options.dry_run) {
            self.disk.info().check_writable(LAYER)?;
            partition.repair()?;
        }
        let limits = self.volume_limits()?;
        let (to, len) = match (options.parts, options.size) {
            (Parts::Partition, size) => {
                let room = self
                    .last_end(from)?
                    .min(self.room.end)
                    .saturating_sub(self.room.start);
                let len = if let Size::Bytes(len) = size {
                    whole_sectors(self.disk, len)?
                } else {
                    limits.min
                };
                if len > room {
                    let message = format!(
                        "the disk has room for {:#}, not {:#}",
                        size::display(room),
                        size::display(len)
                    );
                    return Err(Error::limit(LAYER, message));
                }
                (from, len)
            }
            (_, size) => {
                self.check_last()?;
                let to = match size {
                    Size::Bytes(to) => whole_sectors(self.disk, to)?,
                    Size::Min => self.disk_len_for(limits.min)?.min(from),
                };
                (to, self.volume_len_on(to)?)
            }
        };
        if len < limits.min && len < limits.current || len > limits.max {
            let range = format!(
                "invalid volume size {:#}: expected {:#} to {:#}",
                size::display(len),
                size::display(limits.min),
                size::display(limits.max)
            );
            let message = match options.parts {
                Parts::Partition => range,
                _ => format!(
                    "{range}; the image needs at least {:#}",
                    size::display(self.disk_len_for(limits.min)?)
                ),
            };
            return Err(Error::limit(LAYER, message));
        }
        check_excess(self.bundle, to, progress)?;
        let steps = self.steps(from, to, len, limits.current);
        if !options.dry_run {
            self.apply(from, to, len, progress)?;
        }
        Ok(Resized { from, to, steps })
    }

    fn steps(&self, from: u64, to: u64, len: u64, has: u64) -> Vec<ResizeStep> {
        let now = self.volume.range.end - self.volume.range.start;
        let partition = self
            .volume
            .partition
            .map(|number| ResizeStep::ResizePartition {
                number,
                from: now,
                to: len,
            });
        let mut steps = Vec::new();
        if to > from {
            steps.push(ResizeStep::GrowDisk { from, to });
        }
        if len >= now && (len != now || to != from) {
            steps.extend(partition);
        }
        if len != has {
            steps.push(ResizeStep::ResizeVolume {
                format: self.volume.format,
                from: has,
                to: len,
            });
        }
        if len < now {
            steps.extend(partition);
        }
        if to < from {
            steps.push(ResizeStep::ShrinkDisk { from, to });
        }
        steps
    }

    fn apply(&self, from: u64, to: u64, len: u64, progress: &dyn Progress) -> Result<()> {
        self.disk.info().check_writable(LAYER)?;
        let start = self.room.start;
        let now = self.volume.range.end - start;
        if to > from {
            grow_disk(self.disk, to)?;
        }
        if len >= now {
            self.put_partition(to.max(from), start..start + len)?;
        }
        // The length recorded in the volume decides, not that of the partition: an interrupted run
        // may have left the volume shorter.
        let device = Arc::new(Slice::new(self.disk.clone(), start..start + len.max(now))?);
        self.volume.open_resizable(device)?.resize(len, progress)?;
        if len < now || to < from {
            self.put_partition(to, start..start + len)?;
        }
        if to < from {
            self.disk.set_len(to, AfterDiscard::Zeros)?;
            self.disk.flush()?;
        }
        Ok(())
    }

    fn put_partition(&self, disk_len: u64, range: Range<u64>) -> Result<()> {
        self.partition
            .map_or(Ok(()), |partition| partition.put(disk_len, range))
    }
}

/// Returns the only volume of an image, or the last supported one.
fn the_volume(volumes: &[Volume]) -> Result<&Volume> {
    let known = volumes.iter().filter(|volume| !volume.format.is_foreign());
    match known.max_by_key(|volume| volume.range.start) {
        Some(volume) => Ok(volume),
        // To name the existing volume in the error.
        None => match volumes.iter().max_by_key(|volume| volume.range.start) {
            Some(volume) => Err(Error::unsupported(
                LAYER,
                format!("resizing {} is not supported", volume.format),
            )
            .named(volume.place())),
            None => Err(Error::new(Kind::NotFound, LAYER, "the image has no volume")
                .because(Reason::NoVolumes)),
        },
    }
}

#[cfg(test)]
mod tests;
