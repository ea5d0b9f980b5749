//! Creation of an empty volume in a partition of an image, or on the whole disk if it has no
//! partition map.

use std::sync::Arc;

use super::{LAYER, NewFormat, VolumeOptions};
use crate::address::VolumeSelector;
use crate::device::{BlockDevice, Slice};
use crate::fs::source::Tree;
use crate::fs::{NewVolumeInfo, Timestamp, VolumeEncryption};
use crate::open::{self, Image, Volume};
use crate::ops::create::NewIds;
use crate::partition::{EFI_SYSTEM, Map, Partition, Scheme, TypeId, gpt};
use crate::progress::Progress;
use crate::{Error, Kind, Result};

/// MBR types of FAT volumes, by size and by the way sectors are addressed.
const FAT_TYPES: [u8; 7] = [0x01, 0x04, 0x06, 0x0b, 0x0c, 0x0e, 0xef];

/// Options of a format operation.
#[derive(Debug, Clone)]
pub struct FormatOptions<'a> {
    /// The partition, by number or by volume. `None`: the only one that could hold a volume, or a
    /// disk without a partition map.
    pub place: Option<&'a VolumeSelector>,
    /// The file system.
    pub format: NewFormat,
    /// The volume name.
    pub name: String,
    /// Allocation block size in bytes. `None`: as chosen by Apple's formatter.
    pub block_size: Option<u32>,
    /// True to erase existing data.
    pub erase: bool,
    /// `SOURCE_DATE_EPOCH`, see [`CreateOptions::epoch`](crate::ops::create::CreateOptions::epoch).
    pub epoch: Option<Timestamp>,
    /// Encryption of the volume, for formats that support it. `None`: not encrypted.
    pub encryption: Option<VolumeEncryption>,
}

/// Result of a format operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formatted {
    /// Number of the partition; `None` if it is the whole disk.
    pub partition: Option<u32>,
    /// Display name of the partition.
    pub place: String,
    /// The new volume.
    pub volume: NewVolumeInfo,
}

/// Creates a volume in an image that is open for writing and not otherwise in use, durably. The
/// image must not be used afterwards: its partition map and list of volumes are out of date.
///
/// [`Kind::Conflict`] if the partition holds anything but zeros and [`erase`](FormatOptions::erase)
/// is not set. The old data is discarded, as far as the image can. Nothing is changed if the volume
/// cannot be planned. If writing fails, the partition holds no volume.
pub fn format(
    image: &Image,
    options: FormatOptions<'_>,
    progress: &dyn Progress,
) -> Result<Formatted> {
    Target::new(image, options.place)
        .and_then(|target| target.format(options, progress))
        .map_err(|error| error.in_file(image.path()))
}

/// The location of the new volume.
struct Target<'a> {
    disk: &'a Arc<dyn BlockDevice>,
    /// The partition, with its map. `None`: the whole disk.
    partition: Option<(&'a Map, &'a Partition)>,
    device: Arc<dyn BlockDevice>,
    /// The existing volume, if one is recognized.
    volume: Option<&'a Volume>,
}

impl<'a> Target<'a> {
    fn new(image: &'a Image, place: Option<&VolumeSelector>) -> Result<Self> {
        let disk = image.disk();
        disk.info().check_writable(LAYER)?;
        let number = wanted(image, place)?;
        let Some(map) = image.partitions() else {
            return match number {
                None | Some(1) => Ok(Self {
                    disk,
                    partition: None,
                    device: disk.clone(),
                    volume: image.volumes().first(),
                }),
                Some(number) => {
                    let message = format!("partition {number} does not exist: the disk has no map");
                    Err(Error::new(Kind::NotFound, LAYER, message))
                }
            };
        };
        if let Some(problem) = map.problems.first() {
            let message =
                format!("the partition map is damaged and must be repaired first: {problem}");
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        let partition = match number {
            Some(number) => candidates(map).find(|partition| partition.number == number),
            None => Some(only(map)?),
        };
        let partition = partition
            .ok_or_else(|| Error::not_found(LAYER, format!("partition {}", number.unwrap_or(1))))?;
        let device = Arc::new(Slice::new(disk.clone(), partition.range.clone())?);
        let volume = image
            .volumes()
            .iter()
            .find(|volume| volume.partition == Some(partition.number));
        Ok(Self {
            disk,
            partition: Some((map, partition)),
            device,
            volume,
        })
    }

    fn format(&self, options: FormatOptions<'_>, progress: &dyn Progress) -> Result<Formatted> {
        let FormatOptions {
            format,
            name,
            block_size,
            erase,
            epoch,
            encryption,
            place: _,
        } = options;
        let retyped = self.retyped(format)?;
        let created = epoch.unwrap_or_else(Timestamp::now_in_seconds);
        let tree = Tree::empty(created);
        let id = NewIds::new(epoch, &name, &tree).volume;
        let more_volumes = Vec::new();
        let options = VolumeOptions {
            name,
            block_size,
            created,
            latest: epoch,
            opens: false,
            id,
            more_volumes,
            encryption,
        };
        let plan = format.plan(tree, options)?;
        if !erase {
            self.check_blank()?;
        }
        let volume = plan.build(&*self.device, progress)?;
        // Only now: if the volume cannot be built, the map stays unchanged. After a crash before
        // this point, formatting again completes it.
        if let Some(change) = retyped {
            change.apply()?;
        }
        Ok(Formatted {
            partition: self.partition.map(|(_, partition)| partition.number),
            place: self.place(),
            volume,
        })
    }

    /// Returns the change of the partition type that the new volume requires, if any. Refuses
    /// partition maps in which the type cannot be changed.
    fn retyped(&self, format: NewFormat) -> Result<Option<gpt::PlannedChange<'_>>> {
        let Some((map, partition)) = self.partition else {
            return Ok(None);
        };
        let fits = match &partition.type_id {
            TypeId::Guid(guid) => {
                *guid == format.partition_type() || format.is_fat() && *guid == EFI_SYSTEM
            }
            TypeId::Name(name) if format.is_hfs() => {
                matches!(name.as_str(), "Apple_HFS" | "Apple_HFSX")
            }
            TypeId::Name(name) => format.holds_several() && name == "Apple_APFS",
            TypeId::Byte(byte) => {
                let len = partition.range.end - partition.range.start;
                let types = format.mbr_type().map(|of_len| of_len(len));
                types == Some(*byte) || format.is_fat() && FAT_TYPES.contains(byte)
            }
        };
        if fits {
            return Ok(None);
        }
        if map.scheme != Scheme::Gpt {
            let message = format!(
                "{} is not for {format}, and partition types of an {} cannot be changed",
                in_words(partition),
                map.scheme
            );
            return Err(Error::unsupported(LAYER, message));
        }
        let disk_len = gpt::recorded_len(&**self.disk)?.unwrap_or(self.disk.info().len);
        let change = gpt::Change {
            number: partition.number,
            range: None,
            type_guid: Some(format.partition_type()),
        };
        gpt::plan_change(&**self.disk, disk_len, &[change]).map(Some)
    }

    fn check_blank(&self) -> Result<()> {
        let there = match self.volume {
            Some(volume) => in_words_of(volume),
            None if open::is_blank(&*self.device)? => return Ok(()),
            None => "data".to_owned(),
        };
        let message = format!("{} is not empty: it has {there}", self.place());
        Err(Error::conflict(LAYER, message))
    }

    fn place(&self) -> String {
        self.partition.map_or_else(
            || "the whole disk".to_owned(),
            |(_, partition)| format!("partition {}", partition.number),
        )
    }
}

/// Returns the number of the selected partition.
fn wanted(image: &Image, place: Option<&VolumeSelector>) -> Result<Option<u32>> {
    const CONTAINER: &str = "one volume of an APFS container; name the container as `#N` to \
                             replace all of its volumes";
    match place {
        None => Ok(None),
        Some(VolumeSelector::Number {
            partition,
            volume: None,
        }) => Ok(Some(*partition)),
        Some(selector) => match image.volume(Some(selector))? {
            volume if volume.format.is_container() => {
                Err(Error::invalid(LAYER, CONTAINER).named(selector.to_string()))
            }
            volume => Ok(Some(volume.partition.unwrap_or(1))),
        },
    }
}

/// Returns the only partition that can hold a volume.
fn only(map: &Map) -> Result<&Partition> {
    let mut found =
        candidates(map).filter(|partition| partition.type_id != TypeId::Guid(EFI_SYSTEM));
    match (found.next(), found.next()) {
        (Some(partition), None) => Ok(partition),
        (None, _) => Err(Error::not_found(LAYER, "a partition for a volume")),
        _ => {
            let there = candidates(map).map(in_words).collect::<Vec<_>>().join(", ");
            let message =
                format!("several partitions; choose one with `#N` after the image: {there}");
            Err(Error::invalid(LAYER, message))
        }
    }
}

fn candidates(map: &Map) -> impl Iterator<Item = &Partition> {
    map.partitions
        .iter()
        .filter(|partition| partition.type_id.may_hold_volume())
}

fn in_words(partition: &Partition) -> String {
    format!("partition {} ({})", partition.number, partition.kind)
}

/// Returns a description of a volume that would be erased.
fn in_words_of(volume: &Volume) -> String {
    match volume.open() {
        Ok(opened) => format!("the {} volume \"{}\"", volume.format, opened.volume().name),
        Err(_) => format!("a volume of {}", volume.format),
    }
}
