//! A group of physical volumes, and the logical volumes on it.

use std::fmt::Write;
use std::sync::Arc;

use bandsaw_core::crypt::{Secret, Xts};
use bandsaw_core::device::BlockDevice;
use bandsaw_core::{Error, Kind, Result};
use uuid::Uuid;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::context::Context;
use super::device::{LogicalDevice, MappedExtent};
use super::layout::{DescriptorRaw, ExtentRaw, PlaceRaw, RegionRaw, kind};
use super::member::{Member, label_of};
use super::metadata::{Metadata, MetadataCopy};
use super::property_list::Value;
use super::{LAYER, MAX_SLOTS, corrupt};
use crate::{LockedVolume, VolumeKey};

/// A group of physical volumes, opened for reading.
#[derive(Debug)]
pub struct Group {
    /// Identifier of the group.
    pub uuid: Uuid,
    /// Name of the group, if it has one.
    pub name: Option<Arc<str>>,
    volumes: Vec<LogicalVolume>,
    order: Vec<Uuid>,
    members: Vec<Member>,
    damage: Option<String>,
}

/// A logical volume of a group.
#[derive(Debug, Clone)]
pub struct LogicalVolume {
    /// Identifier.
    pub uuid: Option<Arc<str>>,
    /// Name, which is not unique.
    pub name: Arc<str>,
    /// Length in bytes.
    pub len: u64,
    /// Identifier of its family, a part of its key.
    family: Uuid,
    /// `None`: the metadata has none, as that of a Mac's start volume.
    context: Option<Context>,
    /// Object with the map, and with the region that it refers to (0: none).
    map: u64,
    region: u64,
    metadata: Arc<Metadata>,
}

impl LogicalVolume {
    /// Returns true if the metadata says how it is encrypted. If it does not, the keys may be in a
    /// [file](super::KEY_FILES).
    pub fn has_context(&self) -> bool {
        self.context.is_some()
    }
}

impl Group {
    /// Opens the group of these physical volumes, all of which belong to it. Missing ones are
    /// reported when a volume that needs them is opened.
    ///
    /// [`Kind::Invalid`] if they belong to several groups, [`Kind::Conflict`] if one is given twice
    /// or if their labels disagree.
    pub fn open(devices: &[Arc<dyn BlockDevice>]) -> Result<Self> {
        if devices.len() > MAX_SLOTS {
            let message = format!("{} physical volumes, at most {MAX_SLOTS}", devices.len());
            return Err(Error::limit(LAYER, message));
        }
        let mut damage = String::new();
        let mut members: Vec<Member> = Vec::new();
        for device in devices {
            let (member, damaged) = Member::open(device.clone())?;
            if damaged {
                damage.push_str("a header of a physical volume is damaged, its copy is used; ");
            }
            if members
                .iter()
                .any(|other| other.header.uuid == member.header.uuid)
            {
                let message = format!(
                    "physical volume {} is given twice: a copy of it may be attached",
                    member.header.uuid()
                );
                return Err(Error::conflict(LAYER, message));
            }
            members.push(member);
        }
        let uuid = members
            .first()
            .map(|member| member.header.group())
            .ok_or_else(|| Error::invalid(LAYER, "a group needs at least one physical volume"))?;
        if members.iter().any(|member| member.header.group() != uuid) {
            return Err(Error::invalid(
                LAYER,
                "the physical volumes belong to several groups",
            ));
        }
        let (label, order) = label_of(&members, &mut damage)?;
        let mut group = Self {
            uuid,
            name: label
                .list
                .as_ref()
                .and_then(|list| list.get("com.apple.corestorage.lvg.name")?.text())
                .cloned(),
            volumes: Vec::new(),
            order,
            members,
            damage: None,
        };
        let metadata = group.metadata(&label.descriptor)?;
        if metadata.damaged > 0 {
            let _ = write!(
                damage,
                "{} blocks of the metadata are damaged, the newest valid transaction is {}; ",
                metadata.damaged, metadata.newest
            );
        }
        group.volumes = volumes(&Arc::new(metadata))?;
        let damage = damage.trim_end_matches("; ");
        group.damage = (!damage.is_empty())
            .then(|| format!("Core Storage: {damage}; newer changes may be missing"));
        Ok(group)
    }

    /// Returns its logical volumes.
    pub fn volumes(&self) -> &[LogicalVolume] {
        &self.volumes
    }

    /// Returns the description of damage that was passed over, because other copies or older states
    /// are intact.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns the logical volume with this name or identifier; without one, the only one.
    ///
    /// [`Kind::NotFound`] if there is none, [`Kind::Undecided`] with a list if there are several.
    pub fn select(&self, wanted: Option<&str>) -> Result<&LogicalVolume> {
        let fits = |volume: &&LogicalVolume| match wanted {
            None => true,
            Some(wanted) => {
                *volume.name == *wanted
                    || volume
                        .uuid
                        .as_ref()
                        .is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted))
            }
        };
        let mut found = self.volumes.iter().filter(fits);
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (None, _) if self.volumes.is_empty() => Err(Error::new(
                Kind::NotFound,
                LAYER,
                "the group has no logical volume",
            )),
            (one, _) => {
                let (kind, what) = match one {
                    Some(_) => (Kind::Undecided, "several logical volumes fit; name one of"),
                    None => (Kind::NotFound, "no such logical volume; the group has"),
                };
                Err(Error::new(kind, LAYER, format!("{what} {}", self.list())))
            }
        }
    }

    /// Lists the logical volumes, for messages.
    fn list(&self) -> String {
        let mut list = String::new();
        for volume in self.volumes.iter().take(16) {
            let uuid = volume.uuid.as_deref().unwrap_or("no UUID");
            let separator = if list.is_empty() { "" } else { ", " };
            let _ = write!(list, "{separator}{:?} ({uuid})", volume.name);
        }
        if self.volumes.len() > 16 {
            let _ = write!(list, " and {} more", self.volumes.len() - 16);
        }
        list
    }

    /// Opens the contents of a logical volume of this group. `files` are candidates for the file
    /// `EncryptedRoot.plist.wipekey`, which has the keys of a Mac's start volume; `key` is called if
    /// it is encrypted.
    ///
    /// [`Kind::WrongKey`] if the key opens nothing, [`Kind::NotFound`] if a physical volume is
    /// missing, [`Kind::Unsupported`] if a conversion is in progress.
    pub fn open_volume(
        &self,
        volume: &LogicalVolume,
        files: &[Vec<u8>],
        key: &dyn Fn(&LockedVolume) -> Result<VolumeKey>,
    ) -> Result<LogicalDevice> {
        let extents = self.extents(volume)?;
        let cipher = match self.context(volume, files)? {
            None => None,
            Some(context) if !context.is_encrypted()? => None,
            Some(context) => {
                let locked = LockedVolume {
                    name: volume.name.to_string(),
                    hint: context.hint().map(ToOwned::to_owned),
                };
                let secret: Secret = match key(&locked)? {
                    VolumeKey::Passphrase(secret) | VolumeKey::Recovery(secret) => secret,
                };
                let unlocked = context
                    .unlock(volume.family, &secret)
                    .map_err(|error| error.named(&*volume.name))?;
                Some(Xts::new(&unlocked))
            }
        };
        LogicalDevice::new(extents, volume.len, cipher)
    }

    /// Returns the encryption of a volume: that in the metadata, or that in one of `files`. `None`:
    /// there is none, and the volume is not encrypted.
    fn context(&self, volume: &LogicalVolume, files: &[Vec<u8>]) -> Result<Option<Context>> {
        if let Some(context) = &volume.context {
            return Ok(Some(context.clone()));
        }
        let mut failed = None;
        for file in files {
            for member in &self.members {
                match Context::parse_file(file, &member.header.key, member.header.uuid()) {
                    Ok(context) => return Ok(Some(context)),
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Returns the present physical volume with this number.
    fn member(&self, index: u16) -> Result<&Member> {
        let uuid = self.order.get(usize::from(index)).ok_or_else(|| {
            corrupt(format!(
                "physical volume {index} is not in the list of the group"
            ))
        })?;
        let found = self
            .members
            .iter()
            .find(|member| member.header.uuid() == *uuid);
        found.ok_or_else(|| {
            let message = format!(
                "physical volume {} of {}, {uuid}, is missing: give the disk that holds it, too",
                index + 1,
                self.order.len()
            );
            Error::new(Kind::NotFound, LAYER, message)
        })
    }

    /// Reads the encrypted metadata.
    fn metadata(&self, descriptor: &DescriptorRaw) -> Result<Metadata> {
        let places = [descriptor.primary, descriptor.secondary];
        let (mut copies, mut missing) = (Vec::new(), None);
        for place in places.iter().filter(|place| place.block() != 0) {
            match self.member(place.index.get()) {
                Ok(member) => copies.push(MetadataCopy {
                    start: member.offset(place.block())?,
                    device: member.device.clone(),
                    key: member.key(),
                }),
                Err(error) => missing = missing.or(Some(error)),
            }
        }
        match (copies.is_empty(), missing) {
            (true, Some(error)) => Err(error),
            (true, None) => Err(corrupt("the label names no metadata")),
            (false, _) => Metadata::read(&copies, descriptor.count.get()),
        }
    }

    /// Returns the stored ranges of a volume.
    fn extents(&self, volume: &LogicalVolume) -> Result<Vec<MappedExtent>> {
        let metadata = &volume.metadata;
        let base = match volume.region {
            0 => None,
            region => Some(only_region(metadata, region)?),
        };
        let map = metadata
            .object(kind::MAP, volume.map)
            .ok_or_else(|| corrupt("the map of a logical volume is missing"))?;
        let mut extents = Vec::new();
        for extent in entries::<ExtentRaw>(map)? {
            let member = self.member(extent.place.index.get())?;
            let start = match base {
                Some(base) if base.index != extent.place.index => {
                    return Err(corrupt(
                        "a map and its region name different physical volumes",
                    ));
                }
                Some(base) => base.block(),
                None => 0,
            };
            // Both numbers have 48 bits.
            let block = start + extent.place.block();
            extents.push(MappedExtent {
                logical: member.offset(extent.logical.get())?,
                len: member.offset(extent.count.get().into())?,
                physical: member.offset(block)?,
                device: member.device.clone(),
            });
        }
        Ok(extents)
    }
}

/// Returns all logical volumes.
fn volumes(metadata: &Arc<Metadata>) -> Result<Vec<LogicalVolume>> {
    let mut volumes = Vec::new();
    for object in metadata.numbers(kind::VOLUME) {
        let Some((raw, list)) = metadata.volume(object)? else {
            continue;
        };
        if volumes.len() == MAX_SLOTS {
            return Err(Error::limit(LAYER, "too many logical volumes"));
        }
        let field = |name: &str| list.get(&format!("com.apple.corestorage.lv.{name}"));
        let family = field("familyUUID")
            .and_then(Value::text)
            .and_then(|text| Uuid::parse_str(text).ok())
            .ok_or_else(|| corrupt("a logical volume names no family"))?;
        let context = match metadata.family(raw.family.get())? {
            None => None,
            Some(family) => {
                let default = family
                    .get("DefaultEncryptionContext")
                    .and_then(Value::integer);
                family
                    .get("com.apple.corestorage.lvf.encryption.context")
                    .map(|context| Context::parse(context, default))
                    .transpose()?
            }
        };
        volumes.push(LogicalVolume {
            uuid: field("uuid").and_then(Value::text).cloned(),
            name: field("name")
                .and_then(Value::text)
                .cloned()
                .unwrap_or_else(|| "".into()),
            len: field("size")
                .and_then(Value::integer)
                .ok_or_else(|| corrupt("a logical volume has no size"))?,
            family,
            context,
            map: raw.map.get(),
            region: raw.region.get(),
            metadata: metadata.clone(),
        });
    }
    Ok(volumes)
}

/// Returns the place of a region, of which there must be one.
fn only_region(metadata: &Metadata, object: u64) -> Result<PlaceRaw> {
    let bytes = metadata
        .object(kind::REGION, object)
        .ok_or_else(|| corrupt("the region of a logical volume is missing"))?;
    match entries::<RegionRaw>(bytes)?.as_slice() {
        [only] => Ok(only.place),
        several => Err(Error::unsupported(
            LAYER,
            format!("unsupported: a logical volume in {} regions", several.len()),
        )),
    }
}

/// Returns the entries of an object that begins with their number.
fn entries<T: FromBytes + Immutable + KnownLayout>(bytes: &[u8]) -> Result<Vec<T>> {
    let count = bytes.first_chunk().map(|count| u32::from_le_bytes(*count));
    let entries = bytes
        .get(8..)
        .unwrap_or_default()
        .chunks_exact(size_of::<T>());
    let count = usize::try_from(count.unwrap_or_default()).unwrap_or(usize::MAX);
    if count > entries.len() {
        return Err(corrupt(
            "an object has more entries than its block can hold",
        ));
    }
    let read = |bytes| T::read_from_bytes(bytes).ok();
    Ok(entries.take(count).filter_map(read).collect())
}
