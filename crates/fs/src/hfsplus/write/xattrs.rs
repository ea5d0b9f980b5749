//! Setting and removing extended attributes (§8), including the one that is part of the record
//! (§7.3).

use zerocopy::big_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::LAYER;
use super::block_counts::blocks_of;
use super::forks::ForkMap;
use super::volume::Volume;
use crate::hfsplus::attributes::{AttributeData, key, spellings};
use crate::hfsplus::catalog::Object;
use crate::hfsplus::extents::{ForkSpace, Owner};
use crate::hfsplus::layout::{
    Cnid, ExtendedInfoRaw, ExtentsAttributeRaw, FileInfoRaw, FolderInfoRaw, ForkAttributeRaw,
    ForkRaw, InlineAttributeHeadRaw, SECURITY, attribute_type, max_inline_value, record_flags,
};
use crate::hfsplus::stat;
use crate::hfsplus::unicode::encode_attribute_name;
use crate::{ExistingTarget, FINDER_INFO, FileKind, FileSystem, NodeId};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::{narrow, to_usize};
use bandsaw_core::{Error, Result};

/// Maximum length of a value on macOS, in bytes.
const MAX_VALUE: u64 = (1 << 31) - 1;
/// Bytes of a value copied at a time.
const PIECE: u64 = 1 << 20;
/// Length of the Finder information in bytes.
const FINDER_INFO_LEN: u64 = 32;

impl Volume {
    pub(super) fn set_xattr(
        &mut self,
        node: NodeId,
        name: &str,
        value: &dyn BlockDevice,
        existing: ExistingTarget,
    ) -> Result<()> {
        let len = value.info().len;
        if len > MAX_VALUE {
            return Err(Error::limit(
                LAYER,
                format!("the value has {len} bytes: the maximum is {MAX_VALUE}"),
            )
            .named(name));
        }
        self.change(|volume| {
            let mut found = volume.changeable(node)?;
            let id = found.object.id();
            let there = volume.read.xattr(node, name)?.is_some();
            if there && existing == ExistingTarget::Error {
                return Err(Error::conflict(LAYER, "already exists").named(name));
            }
            if name == FINDER_INFO {
                set_finder_info(&mut found.object, value)?;
            } else {
                let units = volume.remove_records(id, name)?;
                let units = match units {
                    Some(units) => units,
                    None => new_units(name)?,
                };
                volume.add_records(id, &units, name, value)?;
                let security = if name == SECURITY {
                    record_flags::HAS_SECURITY
                } else {
                    0
                };
                found
                    .object
                    .set_flags(record_flags::HAS_ATTRIBUTES | security, 0);
            }
            found.object.set_changed(volume);
            volume.put(found.parent, &found.name, &found.object)
        })
    }

    pub(super) fn remove_xattr(&mut self, node: NodeId, name: &str) -> Result<()> {
        self.change(|volume| {
            let mut found = volume.changeable(node)?;
            let id = found.object.id();
            if name == FINDER_INFO {
                if stat::finder_info(&found.object).is_none() {
                    return Err(Error::not_found(LAYER, name));
                }
                set_finder_info(
                    &mut found.object,
                    &bandsaw_core::device::Memory::zeros(to_usize(FINDER_INFO_LEN)),
                )?;
            } else {
                volume
                    .remove_records(id, name)?
                    .ok_or_else(|| Error::not_found(LAYER, name))?;
                let none_left = volume.read.attributes.all_names(id)?.is_empty();
                let gone = if none_left {
                    record_flags::HAS_ATTRIBUTES
                } else {
                    0
                };
                let security = if name == SECURITY {
                    record_flags::HAS_SECURITY
                } else {
                    0
                };
                found.object.set_flags(0, gone | security);
            }
            found.object.set_changed(volume);
            volume.put(found.parent, &found.name, &found.object)
        })
    }

    /// Adds an attribute that does not exist. The caller updates the catalog record.
    pub(super) fn add_attribute(
        &mut self,
        id: Cnid,
        name: &str,
        value: &dyn BlockDevice,
    ) -> Result<()> {
        // Remove remaining records of an attribute that the catalog record does not indicate.
        self.remove_records(id, name)?;
        self.add_records(id, &new_units(name)?, name, value)
    }

    /// Removes an attribute. The caller updates the catalog record.
    pub(super) fn take_attribute(&mut self, id: Cnid, name: &str) -> Result<()> {
        self.remove_records(id, name).map(drop)
    }

    /// Removes all attributes of an object that will be deleted.
    pub(super) fn drop_attributes(&mut self, id: Cnid) -> Result<()> {
        for units in self.read.attributes.all_names(id)? {
            self.remove_units(id, &units)?;
        }
        Ok(())
    }

    /// Removes an attribute; returns its on-disk name, `None` if there was none.
    fn remove_records(&mut self, id: Cnid, name: &str) -> Result<Option<Vec<U16>>> {
        for units in spellings(name) {
            if self.remove_units(id, &units)? {
                return Ok(Some(units));
            }
        }
        Ok(None)
    }

    pub(super) fn remove_units(&mut self, id: Cnid, units: &[U16]) -> Result<bool> {
        let records = self.read.attributes.records(id, units)?;
        for (start, stored) in &records {
            let extents = match stored {
                AttributeData::Inline => Default::default(),
                AttributeData::Fork(fork) => fork.extents,
                AttributeData::Extents(extents) => *extents,
            };
            for extent in extents
                .into_iter()
                .map(crate::hfsplus::layout::Extent::from)
                .filter(|extent| extent.count > 0)
            {
                self.free_extent(extent)?;
            }
            if let Some(tree) = self.read.attributes.tree_mut() {
                tree.remove(&key(id, units, *start))?;
            }
        }
        Ok(!records.is_empty())
    }

    /// Adds the records of a new attribute: the inline value, or its extents.
    fn add_records(
        &mut self,
        id: Cnid,
        units: &[U16],
        name: &str,
        value: &dyn BlockDevice,
    ) -> Result<()> {
        if self.read.attributes.tree_mut().is_none() {
            self.make_attributes_tree()?;
        }
        let Some(tree) = self.read.attributes.tree_mut() else {
            return Ok(());
        };
        let len = value.info().len;
        if len <= max_inline_value(tree.node_size()).into() {
            let bytes = value.read_vec(0, to_usize(len))?;
            let size = narrow::<u32>(len).into();
            let head = InlineAttributeHeadRaw {
                record_type: attribute_type::INLINE.into(),
                reserved: Default::default(),
                size,
            };
            return tree.insert(&key(id, units, 0), &[head.as_bytes(), &bytes].concat());
        }
        let mut fork = ForkMap {
            id,
            kind: 0,
            raw: ForkRaw::default(),
            extents: Vec::new(),
        };
        for extent in self.allocate(blocks_of(len, self.read.header.block_size)?, 1, None)? {
            fork.push(extent);
        }
        fork.raw.logical_size = len.into();
        let (first, more) = fork.records();
        fork.raw.extents = first;
        let space = ForkSpace {
            device: self.device.clone(),
            ..self.read.space.clone()
        };
        let blocks = space.fork(
            &fork.raw,
            &Owner::Attribute(id, name.to_owned()),
            &mut |block| {
                Ok(more
                    .iter()
                    .find(|(start, _)| *start == block)
                    .map(|(_, extents)| *extents))
            },
        )?;
        let mut at = 0;
        while at < len {
            let piece = value.read_vec(at, to_usize(PIECE.min(len - at)))?;
            blocks.overwrite(at, &piece)?;
            at += piece.len() as u64;
        }
        let Some(tree) = self.read.attributes.tree_mut() else {
            return Ok(());
        };
        let head = ForkAttributeRaw {
            record_type: attribute_type::FORK.into(),
            reserved: 0.into(),
            fork: fork.raw,
        };
        tree.insert(&key(id, units, 0), head.as_bytes())?;
        for (start, extents) in more {
            let record = ExtentsAttributeRaw {
                record_type: attribute_type::EXTENTS.into(),
                reserved: 0.into(),
                extents,
            };
            tree.insert(&key(id, units, start), record.as_bytes())?;
        }
        Ok(())
    }
}

fn new_units(name: &str) -> Result<Vec<U16>> {
    let mut units = Vec::new();
    encode_attribute_name(name, &mut units)?;
    Ok(units)
}

/// Sets the Finder information in a record, except for the fields reserved by the system.
fn set_finder_info(object: &mut Object, value: &dyn BlockDevice) -> Result<()> {
    let len = value.info().len;
    if len != FINDER_INFO_LEN {
        let message = format!("invalid Finder info of {len} bytes: expected {FINDER_INFO_LEN}");
        return Err(Error::invalid(LAYER, message).named(FINDER_INFO));
    }
    let bytes: [u8; to_usize(FINDER_INFO_LEN)] = value.read_array(0)?;
    let (user, extended) = bytes.split_at(16);
    let (Ok(new), Ok(file), Ok(folder)) = (
        ExtendedInfoRaw::read_from_bytes(extended),
        FileInfoRaw::read_from_bytes(user),
        FolderInfoRaw::read_from_bytes(user),
    ) else {
        return Ok(()); // sixteen bytes are always one of each
    };
    let own = |old: ExtendedInfoRaw| ExtendedInfoRaw {
        extended_flags: new.extended_flags,
        reserved: new.reserved,
        ..old
    };
    match object {
        Object::Folder(record) => {
            (record.user_info, record.finder_info) = (folder, own(record.finder_info))
        }
        Object::File(record) if stat::file_kind(record) == FileKind::Symlink => {
            let FileInfoRaw {
                file_type, creator, ..
            } = record.user_info;
            record.user_info = FileInfoRaw {
                file_type,
                creator,
                ..file
            };
            record.finder_info = own(record.finder_info);
        }
        Object::File(record) => {
            (record.user_info, record.finder_info) = (file, own(record.finder_info))
        }
    }
    Ok(())
}
