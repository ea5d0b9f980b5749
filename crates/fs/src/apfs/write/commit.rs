//! Commit of a transaction: every changed node is written to a new block, then the object maps, the
//! volume superblock, and last the container superblock in the checkpoint descriptor area, which
//! makes the change effective (§5.3).

use std::sync::Arc;

use zerocopy::IntoBytes;

use super::LAYER;
use super::checkpoint::Rings;
use super::space::{AllocationUse, Block};
use super::tree::{ChangingTree, FIRST_NEW, Written};
use super::volume::Volume;
use crate::apfs::btree::Addressing;
use crate::apfs::build::volume::MADE_BY;
use crate::apfs::layout::{
    MODIFIED_BY_ENTRIES, ModifiedByRaw, ObjectRaw, Oid, OmapKeyRaw, OmapRaw, OmapValueRaw, Paddr,
    Xid, object_type, omap_value, storage, store_checksum,
};
use crate::apfs::omap::{Omap, View};
use bandsaw_core::Result;

impl Volume {
    /// Makes all changes durable.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.failed.check(LAYER)?;
        if !self.is_changed() {
            return Ok(());
        }
        self.commit_always()
    }

    /// Writes a checkpoint even if nothing has changed.
    pub(super) fn commit_always(&mut self) -> Result<()> {
        let done = self.write_checkpoint();
        self.failed.record(done)
    }

    /// Updates the superblock in block 0, for readers that look only there.
    pub(super) fn write_anchor(&mut self) -> Result<()> {
        if !self.anchor_is_old {
            return Ok(());
        }
        let written = Rings {
            store: &self.store,
            raw: &mut self.container,
        }
        .write_anchor();
        self.failed.record(written)?;
        self.anchor_is_old = false;
        Ok(())
    }

    fn write_checkpoint(&mut self) -> Result<()> {
        let xid = self.xid();
        let mut blocks: Vec<Block> = Vec::new();
        let nodes = relocate(&mut self.files, &mut self.space, xid)?;
        self.place_nodes(xid, &nodes)?;
        blocks.extend(nodes.into_iter().map(|node| self.sealed(node)));
        let change = relocate_physical(&mut self.references, &mut self.space, xid, &mut blocks)?;
        self.read.raw.extent_ref_tree_oid = self.references.root().into();
        self.count_blocks(change);
        let change = relocate_physical(&mut self.omap.1, &mut self.space, xid, &mut blocks)?;
        self.count_blocks(change);
        let omap = move_omap(
            &mut self.omap,
            self.read.raw.omap_oid.into(),
            &mut self.space,
            xid,
        )?;
        self.read.raw.omap_oid = omap.0.0.into();
        blocks.push(self.filled(omap));
        self.sign(xid);
        self.move_superblock(xid, &mut blocks)?;
        blocks.extend(self.space.write_bitmaps()?);
        let objects = self
            .ephemeral
            .of_next(&mut self.space, &self.next_oid, xid)?;
        for (place, bytes) in &blocks {
            self.store
                .device
                .write_at(self.store.offset(*place), bytes)?;
        }
        self.container.next_oid = self.next_oid.next().into();
        Rings {
            store: &self.store,
            raw: &mut self.container,
        }
        .write(xid, &objects)?;
        self.mark_committed(xid)
    }

    /// Pads an object to a block and updates its checksum.
    pub(super) fn filled(&self, (place, mut bytes): Block) -> Block {
        bytes.resize(self.store.block_size.bytes(), 0);
        store_checksum(&mut bytes);
        (place, bytes)
    }

    pub(super) fn count_blocks(&mut self, change: i64) {
        let counted = self.read.raw.allocated_blocks.get();
        self.read.raw.allocated_blocks = counted.saturating_add_signed(change).into();
    }

    /// Returns the block of a node of the file-system tree, encrypted if the volume is; the block
    /// number is the tweak.
    fn sealed(&self, node: Written) -> Block {
        let mut bytes = node.bytes.into_vec();
        if let Some(cipher) = &self.read.cipher {
            cipher.encrypt_blocks(node.place.0, &mut bytes);
        }
        (node.place, bytes)
    }

    /// Records the new blocks of nodes of the file-system tree in the object map.
    fn place_nodes(&mut self, xid: Xid, nodes: &[Written]) -> Result<()> {
        let flags = if self.read.cipher.is_some() {
            omap_value::ENCRYPTED
        } else {
            0
        };
        for node in nodes {
            if !self.forget_node(node.oid)? {
                self.count_blocks(1);
            }
            let key = OmapKeyRaw {
                oid: node.oid.into(),
                xid: xid.into(),
            };
            let value = OmapValueRaw {
                flags: flags.into(),
                size: self.store.block_size.get().into(),
                paddr: node.place.into(),
            };
            self.omap.1.put(key.as_bytes(), value.as_bytes())?;
        }
        for oid in self.files.take_dropped() {
            if self.forget_node(oid)? {
                self.count_blocks(-1);
            }
            // A snapshot still has the node, so a record of this transaction must mark it as
            // deleted.
            let omap = Omap {
                raw: self.omap.0,
                tree: self.omap.1.reader()?,
            };
            if omap.lookup(oid, Xid(u64::MAX))?.is_some() {
                let flags = flags | omap_value::DELETED;
                let value = OmapValueRaw {
                    flags: flags.into(),
                    size: self.store.block_size.get().into(),
                    paddr: 0.into(),
                };
                let key = OmapKeyRaw {
                    oid: oid.into(),
                    xid: xid.into(),
                };
                self.omap.1.put(key.as_bytes(), value.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Removes the current record of a node from the object map and frees its block, unless a
    /// snapshot has it. Returns true if that was done.
    fn forget_node(&mut self, oid: Oid) -> Result<bool> {
        let omap = Omap {
            raw: self.omap.0,
            tree: self.omap.1.reader()?,
        };
        let Some(located) = omap.lookup(oid, Xid(u64::MAX))? else {
            return Ok(false);
        };
        if located.xid.0 <= self.omap.0.most_recent_snapshot.get() {
            return Ok(false);
        }
        let key = OmapKeyRaw {
            oid: oid.into(),
            xid: located.xid.into(),
        };
        self.omap.1.remove(key.as_bytes())?;
        self.space.free_run(located.paddr.0..located.paddr.0 + 1)?;
        Ok(true)
    }

    /// Records the time and the software of this change in the volume's superblock.
    fn sign(&mut self, xid: Xid) {
        let date = self.date();
        let raw = &mut self.read.raw;
        (raw.last_modified, raw.unmount_time) = (date, date);
        let mut entry = ModifiedByRaw {
            time: date,
            last_xid: xid.into(),
            ..ModifiedByRaw::default()
        };
        entry.id[..MADE_BY.len()].copy_from_slice(MADE_BY);
        // One entry covers all changes since the volume was opened.
        if !self.signed {
            raw.modified_by.copy_within(0..MODIFIED_BY_ENTRIES - 1, 1);
        }
        raw.modified_by[0] = entry;
        self.signed = true;
    }

    /// Writes the volume superblock to a new block and updates the container's object map.
    fn move_superblock(&mut self, xid: Xid, blocks: &mut Vec<Block>) -> Result<()> {
        let map = &mut self.container_omap;
        let omap = Omap {
            raw: map.0,
            tree: map.1.reader()?,
        };
        if let Some(located) = omap.lookup(self.oid, Xid(u64::MAX))? {
            let key = OmapKeyRaw {
                oid: self.oid.into(),
                xid: located.xid.into(),
            };
            map.1.remove(key.as_bytes())?;
            self.space.free_run(located.paddr.0..located.paddr.0 + 1)?;
        }
        let place = Paddr(self.space.allocate(1, AllocationUse::Metadata)?.start);
        let key = OmapKeyRaw {
            oid: self.oid.into(),
            xid: xid.into(),
        };
        let value = OmapValueRaw {
            flags: 0.into(),
            size: self.store.block_size.get().into(),
            paddr: place.into(),
        };
        map.1.put(key.as_bytes(), value.as_bytes())?;
        relocate_physical(&mut map.1, &mut self.space, xid, blocks)?;
        let moved = move_omap(
            &mut self.container_omap,
            self.container.omap_oid.into(),
            &mut self.space,
            xid,
        )?;
        self.container.omap_oid = moved.0.0.into();
        blocks.push(self.filled(moved));
        self.read.raw.object =
            ObjectRaw::new(self.oid, xid, object_type::VOLUME | storage::VIRTUAL, 0);
        let block = self.filled((place, self.read.raw.as_bytes().to_vec()));
        blocks.push(block);
        Ok(())
    }

    /// Switches to reading the committed state from the disk.
    fn mark_committed(&mut self, xid: Xid) -> Result<()> {
        let view = View {
            omap: Arc::new(Omap {
                raw: self.omap.0,
                tree: self.omap.1.reader()?,
            }),
            xid,
        };
        self.files
            .find_by(Addressing::Virtual(view, self.read.cipher.clone()));
        self.read.files = self.files.reader()?;
        self.committed();
        Ok(())
    }
}

fn relocate(
    tree: &mut ChangingTree,
    space: &mut super::space::Space,
    xid: Xid,
) -> Result<Vec<Written>> {
    tree.relocate(xid, &mut || {
        Ok(Paddr(space.allocate(1, AllocationUse::Metadata)?.start))
    })
}

/// Writes the changed nodes of a physical tree to new blocks. Returns the number of blocks by which
/// it has grown.
pub(super) fn relocate_physical(
    tree: &mut ChangingTree,
    space: &mut super::space::Space,
    xid: Xid,
    blocks: &mut Vec<Block>,
) -> Result<i64> {
    let mut grown = 0;
    for node in relocate(tree, space, xid)? {
        if node.was.0 < FIRST_NEW {
            space.free_run(node.was.0..node.was.0 + 1)?;
        } else {
            grown += 1;
        }
        blocks.push((node.place, node.bytes.into_vec()));
    }
    for oid in tree.take_dropped() {
        if oid.0 < FIRST_NEW {
            space.free_run(oid.0..oid.0 + 1)?;
            grown -= 1;
        }
    }
    Ok(grown)
}

/// Writes an object map to a new block, because its tree has moved.
fn move_omap(
    map: &mut (OmapRaw, ChangingTree),
    was: Oid,
    space: &mut super::space::Space,
    xid: Xid,
) -> Result<Block> {
    space.free_run(was.0..was.0 + 1)?;
    let place = Paddr(space.allocate(1, AllocationUse::Metadata)?.start);
    map.0.object = ObjectRaw::new(Oid(place.0), xid, object_type::OMAP | storage::PHYSICAL, 0);
    map.0.tree_oid = map.1.root().into();
    Ok((place, map.0.as_bytes().to_vec()))
}
