//! The physical volumes of a group: their headers and labels.

use std::fmt::Write;
use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt, is_zero};
use bandsaw_core::{Error, Result};
use uuid::Uuid;
use zerocopy::FromBytes;
use zeroize::Zeroizing;

use super::LAYER;
use super::layout::{
    BLOCK, BLOCK_HEADER, DescriptorRaw, HEADER, HeaderRaw, LabelRaw, kind, sound_block,
};
use super::property_list::Value;
use super::{MAX_SLOTS, corrupt};

/// Returns the group that the physical volume in `device` belongs to, by its header. `None`: it is
/// no physical volume.
pub fn group_of(device: &dyn BlockDevice) -> Result<Option<Uuid>> {
    Ok(marked(device, 0)?.map(|header| header.group()))
}

/// A physical volume that is present.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) header: HeaderRaw,
    pub(super) device: Arc<dyn BlockDevice>,
}

impl Member {
    /// Reads the header of a physical volume, or its copy if the first is damaged; the second value
    /// is then true.
    pub(super) fn open(device: Arc<dyn BlockDevice>) -> Result<(Self, bool)> {
        let len = device.info().len;
        let copies = [512, 4096, 8192].map(|from_end| len.saturating_sub(from_end));
        let mut damaged = false;
        for at in std::iter::once(0).chain(copies) {
            if let Some(header) = marked(&*device, at)? {
                if header.is_sound() {
                    let member = Self { header, device };
                    member.check()?;
                    return Ok((member, damaged));
                }
                damaged = true;
            }
        }
        let message = "the header of the physical volume is damaged, and has no intact copy";
        Err(Error::corrupt(LAYER, 0, message))
    }

    /// Refuses headers of unknown forms.
    fn check(&self) -> Result<()> {
        let header = &self.header;
        let block = header.block_size.get();
        if header.sums != 1 || header.cipher != 2 || header.key_size != 16 {
            let message = format!(
                "unsupported: checksums of type {}, cipher {} with keys of {} bytes",
                header.sums, header.cipher, header.key_size
            );
            return Err(Error::unsupported(LAYER, message));
        }
        if !(512..=1 << 20).contains(&block) || !block.is_power_of_two() {
            let message = format!("unsupported: blocks of {block} bytes");
            return Err(Error::unsupported(LAYER, message));
        }
        Ok(())
    }

    /// Returns the offset of a block in bytes.
    pub(super) fn offset(&self, block: u64) -> Result<u64> {
        block
            .checked_mul(self.header.block_size.get().into())
            .ok_or_else(|| corrupt(format!("block {block} is past every disk")))
    }

    /// Returns the key of the metadata.
    pub(super) fn key(&self) -> Zeroizing<[u8; 32]> {
        let mut key = Zeroizing::new([0; 32]);
        key[..16].copy_from_slice(&self.header.key);
        key[16..].copy_from_slice(&self.header.uuid);
        key
    }

    /// Returns the intact label with the highest transaction, and the number of labels that are
    /// damaged.
    fn label(&self) -> Result<(Option<Label>, usize)> {
        let named = usize::from(self.header.label_count.get()).min(self.header.labels.len());
        let (mut best, mut damaged) = (None::<Label>, 0);
        for block in &self.header.labels[..named] {
            let at = self.offset(block.get())?;
            if self.device.info().check(LAYER, at, BLOCK as u64).is_err() {
                damaged += 1;
                continue;
            }
            let bytes = self.device.read_vec(at, BLOCK)?;
            if is_zero(&bytes) {
                continue;
            }
            match self.read_label(at, &bytes)? {
                None => damaged += 1,
                Some(label)
                    if best
                        .as_ref()
                        .is_none_or(|best| best.transaction < label.transaction) =>
                {
                    best = Some(label);
                }
                Some(_) => {}
            }
        }
        Ok((best, damaged))
    }

    fn read_label(&self, at: u64, bytes: &[u8]) -> Result<Option<Label>> {
        let header = bytes.first_chunk().and_then(sound_block);
        let Some(header) = header.filter(|header| header.kind == kind::LABEL) else {
            return Ok(None);
        };
        let (raw, _) = LabelRaw::read_from_prefix(&bytes[BLOCK_HEADER..])
            .map_err(|_| corrupt("a label is truncated"))?;
        let (place, list_place) = (raw.descriptor.get(), raw.list.get());
        let most = self.header.label_size.get().min(64 << 20);
        let list_len = raw.list_len.get().min(1 << 20);
        if place > most || list_place > most {
            return Ok(None);
        }
        let read = |start: u32, len: usize| {
            let at = at + u64::from(start);
            self.device.info().check(LAYER, at, len as u64).ok()?;
            Some(self.device.read_vec(at, len))
        };
        let list_len = usize::try_from(list_len).unwrap_or(usize::MAX);
        let (Some(descriptor), Some(list)) = (
            read(place, size_of::<DescriptorRaw>()),
            read(list_place, list_len),
        ) else {
            return Ok(None);
        };
        let descriptor = DescriptorRaw::read_from_bytes(&descriptor?)
            .map_err(|_| corrupt("a label is truncated"))?;
        let list = list?;
        // The test image of cryptsetup has zeros in place of the list.
        let list = match is_zero(&list) {
            true => None,
            false => Some(Value::parse(&list)?),
        };
        Ok(Some(Label {
            transaction: header.transaction.get(),
            index: raw.index.get(),
            descriptor,
            list,
        }))
    }
}

/// Reads a header with the marks of a physical volume.
fn marked(device: &dyn BlockDevice, at: u64) -> Result<Option<HeaderRaw>> {
    if device.info().check(LAYER, at, HEADER as u64).is_err() {
        return Ok(None);
    }
    let bytes = device.read_vec(at, HEADER)?;
    let header = HeaderRaw::read_from_bytes(&bytes).ok();
    Ok(header.filter(HeaderRaw::is_marked))
}

/// A label of a physical volume.
pub(super) struct Label {
    pub(super) transaction: u64,
    pub(super) index: u16,
    pub(super) descriptor: DescriptorRaw,
    pub(super) list: Option<Value>,
}

/// Returns the newest label of all, and the identifiers of the physical volumes in the order of
/// their numbers.
pub(super) fn label_of(members: &[Member], damage: &mut String) -> Result<(Label, Vec<Uuid>)> {
    let (mut best, mut damaged) = (None::<Label>, 0);
    let mut indices = Vec::new();
    for member in members {
        let (label, of_member) = member.label()?;
        damaged += of_member;
        let Some(label) = label else { continue };
        indices.push((member.header.uuid(), label.index));
        if best
            .as_ref()
            .is_none_or(|best| best.transaction < label.transaction)
        {
            best = Some(label);
        }
    }
    let label = best.ok_or_else(|| corrupt("no label of the physical volumes is intact"))?;
    if damaged > 0 {
        let _ = write!(
            damage,
            "{damaged} labels are damaged, that of transaction {} is used; ",
            label.transaction
        );
    }
    let listed = label.list.as_ref().and_then(|list| {
        list.get("com.apple.corestorage.lvg.physicalVolumes")?
            .array()
    });
    let order: Vec<Uuid> = match (listed, members) {
        (Some(listed), _) if listed.len() <= MAX_SLOTS => listed
            .iter()
            .map(|value| value.text().and_then(|text| Uuid::parse_str(text).ok()))
            .collect::<Option<_>>()
            .ok_or_else(|| corrupt("an entry of the list of physical volumes is not a UUID"))?,
        (Some(_), _) => return Err(Error::limit(LAYER, "too many physical volumes")),
        (None, [only]) => vec![only.header.uuid()],
        (None, _) => return Err(corrupt("the group has no list of its physical volumes")),
    };
    for (at, uuid) in order.iter().enumerate() {
        if order[..at].contains(uuid) {
            return Err(corrupt(format!("physical volume {uuid} is listed twice")));
        }
    }
    for member in members {
        let uuid = member.header.uuid();
        let Some(at) = order.iter().position(|listed| *listed == uuid) else {
            let message = format!("physical volume {uuid} is not in the list of its group");
            return Err(Error::conflict(LAYER, message));
        };
        let labeled = indices.iter().find(|(of, _)| *of == uuid);
        if labeled.is_some_and(|(_, index)| usize::from(*index) != at) {
            let message = format!(
                "physical volume {uuid} is number {at} in the list of its group, but not by its \
                 label"
            );
            return Err(Error::conflict(LAYER, message));
        }
    }
    Ok((label, order))
}
