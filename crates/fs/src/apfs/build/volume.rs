//! The superblock of a new volume, its object map and its trees.

use zerocopy::FromZeros;

use super::XID;
use super::files::Sink;
use super::node::{TreeKind, put};
use super::places::{Nodes, VolumePlace};
use super::records::RecordStyle;
use super::tree::{Shape, TreePlace, Writer, empty_root};
use crate::apfs::layout::{
    BlockSize, Counts, FileId, MetaCryptoRaw, ModifiedByRaw, ObjectRaw, Oid, OmapKeyRaw, OmapRaw,
    OmapValueRaw, Paddr, VOLUME_MAGIC, VOLUME_NAME_LEN, VolumeRaw, object_type, omap_value,
    storage, store_checksum, volume_features, volume_flags, volume_incompatible,
};
use crate::build::output::Output;
use bandsaw_core::Result;
use bandsaw_core::device::BlockDevice;
use zerocopy::IntoBytes;

/// The software that made a volume, as recorded in its superblock.
pub(in crate::apfs) const MADE_BY: &[u8] =
    concat!("bandsaw ", env!("CARGO_PKG_VERSION")).as_bytes();

/// Object numbers of a volume and of the nodes of its file-system tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeOids {
    pub(super) superblock: Oid,
    pub(super) root: Oid,
    /// First number of the other nodes.
    pub(super) nodes: Oid,
}

/// The contents of a volume's superblock that do not follow from its location.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeFacts<'a> {
    pub(super) name: &'a str,
    pub(super) case_sensitive: bool,
    pub(super) uuid: [u8; 16],
    pub(super) style: RecordStyle,
    pub(super) counts: Counts,
    pub(super) next_id: FileId,
    /// Number of blocks of all contents.
    pub(super) content_blocks: u64,
}

/// A writer for a volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeWriter<'a> {
    pub(super) device: &'a dyn BlockDevice,
    pub(super) block_size: BlockSize,
    pub(super) index: u32,
    pub(super) place: VolumePlace,
    pub(super) oids: VolumeOids,
    pub(super) nodes: Nodes,
}

/// A function that passes all records of a tree, in order, to the given sink.
pub(super) type Emit<'a> = &'a dyn Fn(&mut Sink<'_>) -> Result<()>;

impl VolumeWriter<'_> {
    /// Writes all of the volume but its contents. Nodes of the file-system tree are written to
    /// `sealed`, which encrypts them if the volume is encrypted.
    pub(super) fn write(
        &self,
        facts: &VolumeFacts<'_>,
        sealed: &dyn BlockDevice,
        files: Emit<'_>,
        references: Emit<'_>,
    ) -> Result<()> {
        let size = self.block_size;
        let place = TreePlace {
            base: self.place.files,
            oids: Some((self.oids.root, self.oids.nodes)),
            xid: XID,
        };
        let encrypted = facts.style.encrypted;
        self.write_tree(sealed, TreeKind::files(size, encrypted), place, files)?;
        let physical = |base| TreePlace {
            base,
            oids: None,
            xid: XID,
        };
        let kind = TreeKind::physical(size, object_type::EXTENT_REF_TREE);
        let reference_root = self.write_tree(
            self.device,
            kind,
            physical(self.place.references),
            references,
        )?;
        let omap_root = self.write_tree(
            self.device,
            TreeKind::omap(size),
            physical(self.place.omap_tree),
            &|sink| self.emit_omap(encrypted, sink),
        )?;
        let snapshots = Oid(self.place.snapshots.0);
        let root = empty_root(
            TreeKind::physical(size, object_type::SNAP_META_TREE),
            snapshots,
            XID,
        );
        self.write_block(self.place.snapshots, &root)?;
        self.write_block(self.place.omap, &omap(size, self.place.omap, omap_root, 0))?;
        self.write_block(
            self.place.superblock,
            &self.superblock(facts, reference_root),
        )
    }

    /// Writes a tree and returns the number of its root.
    fn write_tree(
        &self,
        device: &dyn BlockDevice,
        kind: TreeKind,
        place: TreePlace,
        emit: Emit<'_>,
    ) -> Result<Oid> {
        let out = Output::new(device, self.offset(place.base));
        let mut writer = Writer::new(kind, place, out);
        emit(&mut |key, value| writer.add(key, value))?;
        Ok(writer.finish()?.0)
    }

    /// Emits the object-map records of the nodes of the file-system tree.
    fn emit_omap(&self, encrypted: bool, sink: &mut Sink<'_>) -> Result<()> {
        let flags = if encrypted { omap_value::ENCRYPTED } else { 0 };
        let others = self.nodes.files - 1;
        // The root is written last, but has the lowest number, and records are sorted by number.
        let root = (self.oids.root, Paddr(self.place.files.0 + others));
        let others = (0..others).map(|node| {
            (
                Oid(self.oids.nodes.0 + node),
                Paddr(self.place.files.0 + node),
            )
        });
        std::iter::once(root)
            .chain(others)
            .try_for_each(|(oid, place)| {
                let (key, value) = omap_record(self.block_size, oid, place, flags);
                sink(key.as_bytes(), value.as_bytes())
            })
    }

    fn superblock(&self, facts: &VolumeFacts<'_>, reference_root: Oid) -> Vec<u8> {
        let date = facts.style.volume_date();
        let mut made_by = ModifiedByRaw {
            time: date,
            last_xid: XID.into(),
            ..ModifiedByRaw::default()
        };
        made_by.id[..MADE_BY.len()].copy_from_slice(MADE_BY);
        let mut name = [0; VOLUME_NAME_LEN];
        name[..facts.name.len()].copy_from_slice(facts.name.as_bytes());
        let names = match facts.case_sensitive {
            true => volume_incompatible::NORMALIZATION_INSENSITIVE,
            false => volume_incompatible::CASE_INSENSITIVE,
        };
        let meta_crypto = MetaCryptoRaw {
            major_version: 5.into(),
            protection_class: 6.into(),
            key_revision: 1.into(),
            ..MetaCryptoRaw::default()
        };
        let root_type = object_type::BTREE_ROOT;
        let physical_root = root_type | storage::PHYSICAL;
        let raw = VolumeRaw {
            object: ObjectRaw::new(
                self.oids.superblock,
                XID,
                object_type::VOLUME | storage::VIRTUAL,
                0,
            ),
            magic: VOLUME_MAGIC,
            index: self.index.into(),
            features: volume_features::HARD_LINK_RECORDS.into(),
            incompatible_features: names.into(),
            allocated_blocks: (self.nodes.blocks() + facts.content_blocks).into(),
            meta_crypto,
            root_tree_type: root_type.into(),
            extent_ref_tree_type: physical_root.into(),
            snap_meta_tree_type: physical_root.into(),
            omap_oid: self.place.omap.0.into(),
            root_tree_oid: self.oids.root.into(),
            extent_ref_tree_oid: reference_root.into(),
            snap_meta_tree_oid: self.place.snapshots.0.into(),
            next_file_id: facts.next_id.into(),
            files: facts.counts.files.into(),
            folders: facts.counts.folders.into(),
            symlinks: facts.counts.symlinks.into(),
            other_objects: facts.counts.others.into(),
            total_blocks_allocated: facts.content_blocks.into(),
            uuid: facts.uuid,
            last_modified: date,
            flags: if facts.style.encrypted {
                volume_flags::ONE_KEY
            } else {
                volume_flags::UNENCRYPTED
            }
            .into(),
            formatted_by: made_by,
            name,
            next_document_id: 3.into(),
            fext_tree_type: physical_root.into(),
            reserved_type: physical_root.into(),
            document_index_xid: XID.into(),
            document_tree_type: root_type.into(),
            secondary_root_type: root_type.into(),
            ..VolumeRaw::new_zeroed()
        };
        let mut block = vec![0; self.block_size.bytes()];
        put(&mut block, 0, &raw);
        store_checksum(&mut block);
        block
    }

    fn write_block(&self, place: Paddr, block: &[u8]) -> Result<()> {
        self.device.write_at(self.offset(place), block)
    }

    /// Returns the offset of a block in bytes; all blocks are within the device.
    fn offset(&self, place: Paddr) -> u64 {
        place.0 * u64::from(self.block_size.get())
    }
}

pub(super) fn omap(block_size: BlockSize, place: Paddr, tree: Oid, flags: u32) -> Vec<u8> {
    let tree_type = object_type::BTREE_ROOT | storage::PHYSICAL;
    let raw = OmapRaw {
        object: ObjectRaw::new(Oid(place.0), XID, object_type::OMAP | storage::PHYSICAL, 0),
        flags: flags.into(),
        tree_type: tree_type.into(),
        snapshot_tree_type: tree_type.into(),
        tree_oid: tree.into(),
        ..OmapRaw::new_zeroed()
    };
    let mut block = vec![0; block_size.bytes()];
    put(&mut block, 0, &raw);
    store_checksum(&mut block);
    block
}

/// Returns the record that maps an object to a block.
pub(super) fn omap_record(
    block_size: BlockSize,
    oid: Oid,
    place: Paddr,
    flags: u32,
) -> (OmapKeyRaw, OmapValueRaw) {
    let key = OmapKeyRaw {
        oid: oid.into(),
        xid: XID.into(),
    };
    (
        key,
        OmapValueRaw {
            flags: flags.into(),
            size: block_size.get().into(),
            paddr: place.into(),
        },
    )
}

/// Counts the nodes of the trees of a volume with these records.
pub(super) fn measure(
    block_size: BlockSize,
    encrypted: bool,
    files: Emit<'_>,
    references: Emit<'_>,
) -> Result<Nodes> {
    let count = |kind: TreeKind, emit: Emit<'_>| -> Result<u64> {
        let mut shape = Shape::new(kind);
        emit(&mut |key, value| {
            shape.add(key, value);
            Ok(())
        })?;
        Ok(shape.nodes())
    };
    let files = count(TreeKind::files(block_size, encrypted), files)?;
    let references = count(
        TreeKind::physical(block_size, object_type::EXTENT_REF_TREE),
        references,
    )?;
    let omap = count(TreeKind::omap(block_size), &|sink| {
        (0..files).try_for_each(|_| sink(&[0; 16], &[0; 16]))
    })?;
    Ok(Nodes {
        omap,
        files,
        references,
        encrypted,
    })
}
