//! Conversion of a file's contents in one atomic step: from plain to compressed or back
//! (`docs/formats/decmpfs.md` §7).
//!
//! The new contents are first written to a file without a name. The step exchanges the blocks of
//! the two files. The unnamed file is deleted afterwards, or by the next mount after a crash, which
//! frees the old blocks.

use std::sync::Arc;

use super::file::file_of;
use super::volume::Volume;
use super::{LAYER, Shared};
use crate::hfsplus::catalog::Object;
use crate::hfsplus::layout::{Cnid, FileRaw, ForkRaw, fork_type, max_inline_value, record_flags};
use crate::hfsplus::stat;
use crate::{FileKind, NodeId, Stored, UF_COMPRESSED};
use bandsaw_core::decmpfs::{self, Compression};
use bandsaw_core::device::Memory;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

impl Volume {
    /// Replaces the stored form of the contents of `node`. Fails if `is_open`.
    pub(super) fn store(
        &mut self,
        node: NodeId,
        stored: &Stored<'_>,
        is_open: &dyn Fn(Cnid) -> bool,
    ) -> Result<()> {
        self.change(|volume| {
            let id = volume.read.object(node)?.object.id();
            let refused = |kind, message: &'static str| {
                Err(Error::new(kind, LAYER, message).named(format!("object {id}")))
            };
            let (found, mut file) = file_of(volume, id)?;
            let compressed = volume.read.compression(&Object::File(file))?.is_some();
            if stat::file_kind(&file) != FileKind::File {
                return refused(Kind::Invalid, "not a regular file");
            }
            if is_open(id) {
                return refused(Kind::Conflict, "the file is open");
            }
            let fork = match stored {
                Stored::Packed { .. } if compressed => {
                    return refused(Kind::Conflict, "already compressed");
                }
                Stored::Packed { .. } if file.resource_fork.logical_size.get() > 0 => {
                    return refused(
                        Kind::Conflict,
                        "a file with a resource fork cannot be compressed",
                    );
                }
                Stored::Plain { .. } if !compressed => {
                    return refused(Kind::Conflict, "is not compressed");
                }
                Stored::Packed { contents, .. } | Stored::Plain { contents } => *contents,
            };
            let (fork_found, mut nameless) =
                file_of(volume, Cnid(u32::try_from(fork.0).unwrap_or(0)))?;
            match stored {
                Stored::Packed { attribute, .. } => {
                    volume.check_attribute(attribute)?;
                    volume.add_attribute(id, decmpfs::ATTRIBUTE, &Memory::read_only(*attribute))?;
                    volume.exchange(
                        (&mut file, fork_type::DATA, fork_type::RESOURCE),
                        &mut nameless,
                    )?;
                    file.bsd.owner_flags |= narrow::<u8>(UF_COMPRESSED);
                    file.flags = (file.flags.get() | record_flags::HAS_ATTRIBUTES).into();
                }
                Stored::Plain { .. } => {
                    volume.exchange(
                        (&mut file, fork_type::RESOURCE, fork_type::DATA),
                        &mut nameless,
                    )?;
                    volume.take_attribute(id, decmpfs::ATTRIBUTE)?;
                    file.bsd.owner_flags &= !narrow::<u8>(UF_COMPRESSED);
                    if volume.read.attributes.all_names(id)?.is_empty() {
                        file.flags = (file.flags.get() & !record_flags::HAS_ATTRIBUTES).into();
                    }
                }
            }
            volume.put(fork_found.parent, &fork_found.name, &Object::File(nameless))?;
            volume.put(found.parent, &found.name, &Object::File(file))
        })
    }

    /// Moves the fork `old` of `file` to `nameless`, and the data fork of that to the fork `new` of
    /// `file`, which must be empty.
    fn exchange(
        &mut self,
        (file, old, new): (&mut FileRaw, u8, u8),
        nameless: &mut FileRaw,
    ) -> Result<()> {
        let (id, other) = (Cnid(file.file_id.get()), Cnid(nameless.file_id.get()));
        let (old_raw, other_raw) = (*super::file::fork_of(file, old), nameless.data_fork);
        let mut gone = self.fork_map(&old_raw, id, old)?;
        let mut come = self.fork_map(&other_raw, other, fork_type::DATA)?;
        let mut emptied = super::forks::ForkMap {
            raw: ForkRaw::default(),
            extents: Vec::new(),
            ..gone.clone()
        };
        self.store_fork(&mut emptied, &old_raw)?;
        (gone.id, gone.kind) = (other, fork_type::DATA);
        self.store_fork(&mut gone, &other_raw)?;
        (come.id, come.kind) = (id, new);
        self.store_fork(&mut come, &ForkRaw::default())?;
        *super::file::fork_of(file, old) = emptied.raw;
        *super::file::fork_of(file, new) = come.raw;
        nameless.data_fork = gone.raw;
        Ok(())
    }

    /// Refuses a compression attribute that macOS would not accept or not find inline.
    fn check_attribute(&mut self, attribute: &[u8]) -> Result<()> {
        if Compression::parse(attribute).is_none() {
            return Err(Error::invalid(LAYER, "expected a compression attribute"));
        }
        let most = self
            .read
            .attributes
            .tree_mut()
            .map(|tree| max_inline_value(tree.node_size()));
        match most {
            Some(most) if attribute.len() > most.into() => {
                let message = format!(
                    "{} compressed bytes do not fit in an attribute of this volume: the maximum \
                     is {most}",
                    attribute.len()
                );
                Err(Error::limit(LAYER, message))
            }
            _ => Ok(()),
        }
    }
}

/// Calls `Volume::store` with the volume locked for writing.
pub(super) fn store(shared: &Arc<Shared>, node: NodeId, stored: &Stored<'_>) -> Result<()> {
    shared.write().store(node, stored, &|id| shared.is_open(id))
}
