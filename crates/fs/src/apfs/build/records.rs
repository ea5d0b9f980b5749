//! Records of the file-system tree made from nodes of the source tree.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::objects::{Objects, is_device};
use super::streams::{NodeBlocks, Part};
use crate::Timestamp;
use crate::apfs::layout::{
    DEFAULT_CRYPTO_ID, DataStreamRaw, DirectoryEntryRaw, FileId, InodeRaw, XFields, field_flags,
    inode_field, inode_flags, mode_type, nanoseconds, xattr_name,
};
use crate::build::tree::{compression, flags as bsd_flags};
use crate::source::{SourceKind, SourceNode};
use bandsaw_core::size::narrow;

/// The properties that all records of a volume share.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordStyle {
    /// Creation time of the volume.
    pub(super) created: Timestamp,
    /// Upper limit for all timestamps.
    pub(super) latest: Option<Timestamp>,
    pub(super) encrypted: bool,
}

impl RecordStyle {
    fn date(&self, moment: Timestamp) -> U64 {
        nanoseconds(self.latest.map_or(moment, |latest| moment.min(latest)))
    }

    pub(super) fn volume_date(&self) -> U64 {
        self.date(self.created)
    }

    /// Returns the record of a stream of `size` bytes for which `allocated` bytes are allocated,
    /// holes included.
    pub(super) fn stream(&self, size: u64, allocated: u64) -> DataStreamRaw {
        let crypto_id = if self.encrypted { DEFAULT_CRYPTO_ID } else { 0 };
        DataStreamRaw {
            size: size.into(),
            allocated: allocated.into(),
            default_crypto_id: crypto_id.into(),
            bytes_written: size.into(),
            bytes_read: 0.into(),
        }
    }

    /// Appends the inode of a body to `out`.
    pub(super) fn inode(&self, body: &Body<'_>, out: &mut Vec<u8>) {
        let Body { source, id, .. } = *body;
        let compressed = compression(source);
        let has = |name: &str| source.xattrs.iter().any(|(found, _)| &**found == name);
        let mut flags = if has(xattr_name::RESOURCE_FORK) {
            inode_flags::HAS_RESOURCE_FORK
        } else {
            inode_flags::NO_RESOURCE_FORK
        };
        for (set, flag) in [
            (has(xattr_name::SECURITY), inode_flags::HAS_SECURITY),
            (has(xattr_name::FINDER_INFO), inode_flags::HAS_FINDER_INFO),
            (body.hole_bytes > 0, inode_flags::IS_SPARSE),
            (compressed.is_some(), inode_flags::HAS_UNCOMPRESSED_SIZE),
        ] {
            flags |= if set { flag } else { 0 };
        }
        let inode = InodeRaw {
            parent_id: body.parent.into(),
            private_id: id.into(),
            created: if id == FileId::ROOT {
                self.volume_date()
            } else {
                self.date(source.created.unwrap_or(source.modified))
            },
            modified: self.date(source.modified),
            changed: self.date(source.changed.unwrap_or(source.modified)),
            accessed: self.date(source.accessed.unwrap_or(source.modified)),
            internal_flags: flags.into(),
            children_or_links: body.children_or_links.into(),
            protection_class: 0.into(),
            write_generation: 1.into(),
            bsd_flags: bsd_flags(source).into(),
            owner: source.uid.into(),
            group: source.gid.into(),
            mode: mode_type::mode_of(source).into(),
            pad: 0.into(),
            uncompressed_size: compressed.map_or(0, |compression| compression.size).into(),
        };
        out.extend_from_slice(inode.as_bytes());
        let name = [body.name.as_bytes(), b"\0"].concat();
        let mut fields = vec![(inode_field::NAME, field_flags::DO_NOT_COPY, name.as_slice())];
        let stream = match &source.kind {
            SourceKind::File(stream) if !stream.is_empty() => {
                Some(self.stream(stream.len(), body.allocated))
            }
            _ => None,
        };
        if let Some(stream) = &stream {
            fields.push((
                inode_field::DATA_STREAM,
                field_flags::SYSTEM,
                stream.as_bytes(),
            ));
        }
        let device = match source.kind {
            SourceKind::Special(kind, device) if is_device(kind) => Some(U32::new(device)),
            _ => None,
        };
        if let Some(device) = &device {
            fields.push((inode_field::DEVICE, 0, device.as_bytes()));
        }
        let hole_bytes = U64::new(body.hole_bytes);
        if body.hole_bytes > 0 {
            let flags = field_flags::SYSTEM | field_flags::CHILDREN_INHERIT;
            fields.push((inode_field::SPARSE_BYTES, flags, hole_bytes.as_bytes()));
        }
        XFields::put(&fields, out);
    }

    /// Appends the inode of the private directory, next to the root, which holds files that are
    /// deleted while they are open.
    pub(super) fn private_dir(&self, out: &mut Vec<u8>) {
        let date = self.volume_date();
        let inode = InodeRaw {
            parent_id: FileId::ROOT_PARENT.into(),
            private_id: FileId::PRIVATE_DIR.into(),
            created: date,
            modified: date,
            changed: date,
            accessed: date,
            internal_flags: inode_flags::NO_RESOURCE_FORK.into(),
            children_or_links: 0.into(),
            protection_class: 0.into(),
            write_generation: 1.into(),
            bsd_flags: 0.into(),
            owner: 0.into(),
            group: 0.into(),
            mode: (mode_type::FOLDER | 0o644).into(),
            pad: 0.into(),
            uncompressed_size: 0.into(),
        };
        out.extend_from_slice(inode.as_bytes());
        XFields::put(
            &[(
                inode_field::NAME,
                field_flags::DO_NOT_COPY,
                b"private-dir\0",
            )],
            out,
        );
    }

    /// Appends the directory entry of `id`; `sibling` is the number of the name if the object has
    /// several.
    pub(super) fn entry(&self, id: FileId, mode: u16, sibling: Option<FileId>, out: &mut Vec<u8>) {
        let entry = DirectoryEntryRaw {
            file_id: id.into(),
            added: self.volume_date(),
            flags: (mode >> 12).into(),
        };
        entry.put(sibling, out);
    }
}

/// The input from which an inode is made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a> {
    pub(super) source: &'a SourceNode,
    pub(super) id: FileId,
    pub(super) parent: FileId,
    pub(super) name: &'a str,
    pub(super) children_or_links: u32,
    /// Length of the data stream's blocks in bytes, holes included.
    pub(super) allocated: u64,
    pub(super) hole_bytes: u64,
}

impl<'a> Body<'a> {
    /// Returns the body of `node`, which may be an additional name whose content is copied.
    pub(super) fn new(
        source: &'a SourceNode,
        node: u32,
        name: &'a SourceNode,
        objects: &Objects,
        blocks: &NodeBlocks<'_>,
    ) -> Self {
        let bytes = u64::from(blocks.block_size().get());
        let len = match &source.kind {
            SourceKind::File(stream) => stream.len(),
            _ => 0,
        };
        let links = objects.names(node).count().max(1);
        let children_or_links = if source.kind == SourceKind::Folder {
            objects.children(node).len()
        } else {
            links
        };
        Self {
            source,
            id: objects.id(node),
            parent: if node == 0 {
                FileId::ROOT_PARENT
            } else {
                objects.id(name.parent)
            },
            name: if node == 0 { "root" } else { &name.name },
            // Nodes are counted in 32 bits.
            children_or_links: narrow(children_or_links),
            allocated: blocks.block_size().blocks_for(len) * bytes,
            hole_bytes: blocks.holes(node, Part::Data, len) * bytes,
        }
    }
}
