//! Extended attributes in the attributes tree (§8).

use std::sync::Arc;

use super::btree::Tree;
use super::extents::{ForkSpace, Owner};
use super::layout::{AttributeKey, AttributeRecord, Cnid, ExtentsRaw, ForkRaw, extents_of};
use super::unicode::{decode_attribute_name, encode_attribute_name, encode_name};
use bandsaw_core::device::{BlockDevice, Memory};
use bandsaw_core::{Error, Result};
use zerocopy::big_endian::U16;

/// Attribute that macOS reserves for itself: the first of a folder's hard links.
const FIRST_LINK: &str = "com.apple.system.hfs.firstlink";

/// The value of an attribute.
enum Value {
    Inline(Vec<u8>),
    Fork(ForkRaw),
}

/// The contents of a record of the attributes tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum AttributeData {
    Inline,
    Fork(ForkRaw),
    Extents(ExtentsRaw),
}

/// The attributes tree. A volume without one has no attributes.
#[derive(Debug)]
pub(super) struct AttributesTree {
    tree: Option<Tree>,
}

impl AttributesTree {
    pub(super) fn new(tree: Option<Tree>) -> Self {
        Self { tree }
    }

    /// Replaces the tree, for example after the volume got its first one.
    pub(super) fn set_tree(&mut self, tree: Option<Tree>) {
        self.tree = tree;
    }

    /// Returns the tree, if the volume has one.
    pub(super) fn tree(&self) -> Option<&Tree> {
        self.tree.as_ref()
    }

    /// Returns the tree for modification.
    pub(super) fn tree_mut(&mut self) -> Option<&mut Tree> {
        self.tree.as_mut()
    }

    /// Returns the records of attribute `name` of `file`, with `name` as it is on disk: start
    /// blocks and contents.
    pub(super) fn records(&self, file: Cnid, name: &[U16]) -> Result<Vec<(u32, AttributeData)>> {
        let mut found = Vec::new();
        let Some(tree) = &self.tree else {
            return Ok(found);
        };
        let mut cursor = tree.seek(&key(file, name, 0))?;
        while let Some(record) = cursor.next()? {
            let Some((key, data)) = AttributeKey::split(record) else {
                return Err(tree.corrupt(cursor.node_number(), "malformed key of a record"));
            };
            if key.file != file || key.name != name {
                break;
            }
            let stored = match AttributeRecord::parse(data) {
                Some(AttributeRecord::Inline(_)) => AttributeData::Inline,
                Some(AttributeRecord::Fork(fork)) => AttributeData::Fork(*fork),
                Some(AttributeRecord::Extents(extents)) => AttributeData::Extents(*extents),
                None => return Err(bad_record(file, &decode_attribute_name(name))),
            };
            found.push((key.start_block, stored));
        }
        Ok(found)
    }

    /// Returns at most `most` attributes after `after` that have an extent at or past block `end`.
    pub(super) fn reaching(
        &self,
        after: Option<&(Cnid, Vec<U16>)>,
        end: u32,
        most: usize,
    ) -> Result<Vec<(Cnid, Vec<U16>)>> {
        let mut found: Vec<(Cnid, Vec<U16>)> = Vec::new();
        let Some(tree) = &self.tree else {
            return Ok(found);
        };
        let mut cursor = match after {
            Some((file, name)) => tree.seek(&key(*file, name, 0))?,
            None => tree.first()?,
        };
        while let Some(record) = cursor.next()? {
            let Some((key, data)) = AttributeKey::split(record) else {
                return Err(tree.corrupt(cursor.node_number(), "malformed key of a record"));
            };
            let extents = match AttributeRecord::parse(data) {
                Some(AttributeRecord::Fork(fork)) => fork.extents,
                Some(AttributeRecord::Extents(extents)) => *extents,
                _ => continue,
            };
            let is = |(file, name): &(Cnid, Vec<U16>)| *file == key.file && *name == key.name;
            if after.is_some_and(is) || found.last().is_some_and(is) {
                continue;
            }
            if extents_of(&extents).any(|extent| extent.end() > end.into()) {
                if found.len() == most {
                    break;
                }
                found.push((key.file, key.name.to_vec()));
            }
        }
        Ok(found)
    }

    /// Returns the names of all attributes of `file` as they are on disk, including those reserved
    /// by macOS.
    pub(super) fn all_names(&self, file: Cnid) -> Result<Vec<Vec<U16>>> {
        let mut names: Vec<Vec<U16>> = Vec::new();
        self.each_key(file, &mut |key| {
            if names.last().is_none_or(|last| last != key.name) {
                names.push(key.name.to_vec());
            }
        })?;
        Ok(names)
    }

    /// Returns the names of the attributes of `file` in the order of the tree, except the one that
    /// macOS reserves.
    pub(super) fn names(&self, file: Cnid) -> Result<Vec<String>> {
        let mut names = Vec::new();
        self.each_key(file, &mut |key| {
            if key.start_block == 0 {
                names.push(decode_attribute_name(key.name));
            }
        })?;
        names.retain(|name| name != FIRST_LINK);
        Ok(names)
    }

    /// Calls `each` for the keys of all records of `file`, in their order.
    fn each_key(&self, file: Cnid, each: &mut dyn FnMut(AttributeKey<'_>)) -> Result<()> {
        let Some(tree) = &self.tree else {
            return Ok(());
        };
        let mut cursor = tree.seek(&key(file, &[], 0))?;
        while let Some(record) = cursor.next()? {
            match AttributeKey::split(record) {
                Some((key, _)) if key.file == file => each(key),
                Some(_) => break,
                None => {
                    return Err(tree.corrupt(cursor.node_number(), "malformed key of a record"));
                }
            }
        }
        Ok(())
    }

    /// Returns the value of attribute `name` of `file` as a device.
    pub(super) fn open(
        &self,
        space: &ForkSpace,
        file: Cnid,
        name: &str,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let Some((tree, units, value)) = self.find(file, name)? else {
            return Ok(None);
        };
        let fork = match value {
            Value::Inline(bytes) => return Ok(Some(Arc::new(Memory::read_only(bytes)))),
            Value::Fork(fork) => fork,
        };
        let owner = Owner::Attribute(file, name.to_owned());
        let device = space.fork(&fork, &owner, &mut |block| {
            more_extents(tree, file, &units, block)
        })?;
        Ok(Some(Arc::new(device)))
    }

    /// Returns the value of attribute `name` of `file` if it is stored inline in the tree.
    pub(super) fn inline(&self, file: Cnid, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.find(file, name)?.and_then(|(.., value)| match value {
            Value::Inline(bytes) => Some(bytes),
            Value::Fork(_) => None,
        }))
    }

    fn find(&self, file: Cnid, name: &str) -> Result<Option<(&Tree, Vec<U16>, Value)>> {
        let Some(tree) = &self.tree else {
            return Ok(None);
        };
        for units in spellings(name) {
            let value = tree.get(&key(file, &units, 0), |record| {
                let (_, data) = AttributeKey::split(record)?;
                match AttributeRecord::parse(data)? {
                    AttributeRecord::Inline(bytes) => Some(Value::Inline(bytes.to_vec())),
                    AttributeRecord::Fork(fork) => Some(Value::Fork(*fork)),
                    AttributeRecord::Extents(_) => None,
                }
            })?;
            match value {
                Some(Some(value)) => return Ok(Some((tree, units, value))),
                Some(None) => return Err(bad_record(file, name)),
                None => {}
            }
        }
        Ok(None)
    }
}

/// Returns the possible on-disk forms of `name`: as macOS writes it, and decomposed as Linux does.
pub(super) fn spellings(name: &str) -> Vec<Vec<U16>> {
    let (mut given, mut decomposed) = (Vec::new(), Vec::new());
    let mut spellings = Vec::new();
    // A name that cannot be encoded cannot be on disk either.
    if encode_attribute_name(name, &mut given).is_ok() {
        spellings.push(given);
    }
    if !name.is_ascii() && encode_name(name, &mut decomposed).is_ok() {
        spellings.push(decomposed);
    }
    spellings
}

fn more_extents(tree: &Tree, file: Cnid, name: &[U16], block: u32) -> Result<Option<ExtentsRaw>> {
    let extents = tree.get(
        &key(file, name, block),
        |record| match AttributeRecord::parse(AttributeKey::split(record)?.1)? {
            AttributeRecord::Extents(extents) => Some(*extents),
            AttributeRecord::Inline(_) | AttributeRecord::Fork(_) => None,
        },
    )?;
    match extents {
        Some(None) => Err(bad_record(file, &decode_attribute_name(name))),
        Some(extents) => Ok(extents),
        None => Ok(None),
    }
}

fn bad_record(file: Cnid, name: &str) -> Error {
    let message = format!("unexpected record of {name} of file {file}");
    Error::new(bandsaw_core::Kind::Corrupt, "hfs+ attributes tree", message)
}

pub(super) fn key(file: Cnid, name: &[U16], start_block: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(14 + 2 * name.len());
    AttributeKey {
        file,
        name,
        start_block,
    }
    .put(&mut bytes);
    bytes
}
