//! Plausibility checks of a container's free map: the structures whose loss would be the most
//! severe must be marked as used. A trim of the container discards everything that the map calls
//! free.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::checkpoint;
use super::container::Container;
use super::free::ApfsFree;
use super::layout::{Oid, OmapRaw, Paddr, SpacemanRaw, storage};
use super::omap::{Omap, View};
use super::volume::check_features;
use crate::FreeMap;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "apfs free space";

impl Container {
    /// Returns the free map after checking that the newest checkpoint is valid, no shrink is in
    /// progress, no feature is unknown, and all blocks of the container's own structures and of the
    /// roots of its volumes are marked as used.
    ///
    /// # Errors
    ///
    /// [`Kind::Conflict`] for a container that was not cleanly unmounted, [`Kind::Unsupported`] for
    /// unknown features, [`Kind::Corrupt`] for a map that is wrong.
    pub fn trusted_free_map(&self) -> Result<ApfsFree> {
        if let Some(problem) = self.problems().first() {
            let message = "the container is damaged, so its free space is skipped";
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                format!("{message}: {problem}"),
            ));
        }
        let unknown = self.superblock.readonly_compatible_features.get();
        if unknown != 0 {
            let message = format!("unsupported features {unknown:#x}; free space is skipped");
            return Err(Error::unsupported(LAYER, message));
        }
        let map = self.free_map()?;
        if !map.is_in_order() {
            let message = "the container is not at its newest checkpoint, or is being shrunk, so \
                           its free space is skipped";
            return Err(Error::conflict(LAYER, message));
        }
        self.check_own(&map)?;
        self.volume_oids()
            .try_for_each(|oid| self.check_volume(&map, oid))?;
        Ok(map)
    }

    /// Checks the container's own areas and its object map.
    fn check_own(&self, map: &ApfsFree) -> Result<()> {
        for (first, count, what) in self.own_areas()? {
            self.check_used(map, first, count, what)?;
        }
        Ok(())
    }

    /// Returns the container's own areas, in bytes of the device.
    pub fn own_ranges(&self) -> Result<Vec<Range<u64>>> {
        let bytes = |(first, count, _): (Paddr, u64, _)| {
            let end = Paddr(first.0.saturating_add(count));
            self.store.offset(first)..self.store.offset(end)
        };
        Ok(self.own_areas()?.into_iter().map(bytes).collect())
    }

    fn own_areas(&self) -> Result<[(Paddr, u64, &'static str); 7]> {
        let (raw, blocks) = (&self.superblock, self.store.blocks);
        let spaceman = self.spaceman()?;
        let (spaceman, _) = SpacemanRaw::ref_from_prefix(&spaceman)
            .map_err(|_| Error::new(Kind::Corrupt, LAYER, "truncated space manager"))?;
        let (desc, data) = (
            checkpoint::descriptor_area(raw, blocks)?,
            checkpoint::data_area(raw, blocks)?,
        );
        let omap = Paddr(raw.omap_oid.get());
        let tree = Paddr(self.view.omap.raw.tree_oid.get());
        Ok([
            (Paddr(0), 1, "superblock"),
            (Paddr(desc.start), desc.end - desc.start, "descriptor area"),
            (Paddr(data.start), data.end - data.start, "data area"),
            (
                spaceman.ring_base.into(),
                spaceman.ring_blocks.get().into(),
                "ring of pool bitmaps",
            ),
            (
                spaceman.pool_base.into(),
                spaceman.pool_blocks.get(),
                "pool of the space manager",
            ),
            (omap, 1, "object map"),
            (tree, 1, "object map's tree"),
        ])
    }

    /// Checks a volume's superblock and the roots of its trees.
    fn check_volume(&self, map: &ApfsFree, oid: Oid) -> Result<()> {
        let (raw, place) = self.volume_superblock(oid)?;
        check_features(&raw)?;
        let omap = Omap::open(&self.store, Oid::from(raw.omap_oid).into_paddr())?;
        let OmapRaw { tree_oid, .. } = omap.raw;
        let root = match raw.root_tree_type.get() & storage::MASK {
            storage::PHYSICAL => Paddr(raw.root_tree_oid.get()),
            _ => {
                View {
                    omap: Arc::new(omap),
                    xid: self.view.xid,
                }
                .locate(raw.root_tree_oid.into())?
                .paddr
            }
        };
        for (place, what) in [
            (place, "superblock of a volume"),
            (Paddr(raw.omap_oid.get()), "object map of a volume"),
            (Paddr(tree_oid.get()), "tree of a volume's object map"),
            (root, "root of a volume's files"),
            (
                Paddr(raw.extent_ref_tree_oid.get()),
                "root of a volume's extents",
            ),
            (
                Paddr(raw.snap_meta_tree_oid.get()),
                "root of a volume's snapshots",
            ),
        ] {
            self.check_used(map, place, 1, what)?;
        }
        Ok(())
    }

    /// Fails if the map has one of these blocks as free.
    fn check_used(&self, map: &ApfsFree, first: Paddr, count: u64, what: &str) -> Result<()> {
        let (start, end) = (
            self.store.offset(first),
            self.store.offset(Paddr(first.0.saturating_add(count))),
        );
        match map.free_from(start)? {
            Some(free) if free.start < end => {
                let message =
                    format!("a part of the {what} is marked as free by the space manager");
                Err(Error::corrupt(LAYER, free.start, message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FreeMapExt;
    use crate::apfs::check::sample::empty_container;
    use crate::apfs::layout::store_checksum;
    use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};

    fn sound() -> Arc<Memory> {
        empty_container(4 << 20).0
    }

    fn map(device: &Arc<Memory>) -> Result<ApfsFree> {
        Container::open(device.clone(), None)?.trusted_free_map()
    }

    /// Modifies both superblocks and updates their checksums.
    fn change(device: &Memory, change: impl Fn(&mut [u8])) {
        for block in [0, 2] {
            let mut bytes = device.read_vec(block * 4096, 4096).unwrap();
            assert_eq!(&bytes[0x20..0x24], b"NXSB");
            change(&mut bytes);
            store_checksum(&mut bytes);
            device.write_at(block * 4096, &bytes).unwrap();
        }
    }

    #[test]
    fn a_sound_container_is_trusted() {
        let device = sound();
        let free: u64 = map(&device)
            .unwrap()
            .free_runs(0..u64::MAX)
            .map(|run| run.unwrap())
            .map(|run| run.end - run.start)
            .sum();
        assert_eq!(free, Container::open(device, None).unwrap().free());
    }

    #[test]
    fn maps_that_cannot_be_trusted_are_refused() {
        for (at, kind) in [(0x38, Kind::Unsupported), (0x4E0, Kind::Conflict)] {
            let device = sound();
            change(&device, |bytes| bytes[at] = 1);
            assert_eq!(map(&device).unwrap_err().kind(), kind, "{at:#x}");
        }
        // A corrupt newer checkpoint may be the current one.
        let device = sound();
        let mut newer = device.read_vec(2 * 4096, 4096).unwrap();
        (newer[0x10], newer[0x88], newer[0x80]) = (9, 2, 4);
        store_checksum(&mut newer);
        device.write_at(4 * 4096, &[0; 4096]).unwrap();
        newer[0x88] = 3;
        store_checksum(&mut newer);
        device.write_at(5 * 4096, &newer).unwrap();
        assert_eq!(map(&device).unwrap_err().kind(), Kind::Corrupt);
    }

    /// A map in which one of these blocks is free is wrong, even if its counts are consistent.
    #[test]
    fn blocks_of_the_container_must_be_used() {
        let found = Container::open(sound(), None).unwrap();
        let manager = found.spaceman().unwrap();
        let (head, _) = SpacemanRaw::ref_from_prefix(&manager).unwrap();
        let oid = found.volume_oids().next().unwrap();
        let (volume, superblock) = found.volume_superblock(oid).unwrap();
        let own = [
            0,
            3,
            head.ring_base.get(),
            head.pool_base.get() + 1,
            found.superblock.omap_oid.get(),
        ];
        let volumes = [
            superblock.0,
            volume.omap_oid.get(),
            volume.extent_ref_tree_oid.get(),
            volume.snap_meta_tree_oid.get(),
        ];
        for block in own.into_iter().chain(volumes) {
            let device = sound();
            free_block(&device, &manager, block);
            let error = map(&device).unwrap_err();
            assert!(
                error.kind() == Kind::Corrupt && error.to_string().contains("is marked as free"),
                "{block}: {error}"
            );
        }
    }

    /// Clears a bit of the map and increments all counts of free blocks.
    fn free_block(device: &Memory, manager: &[u8], block: u64) {
        let address =
            |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let cib_at = address(manager, 0xA08) * 4096;
        let mut cib = device.read_vec(cib_at, 4096).unwrap();
        let byte_at = address(&cib, 0x40) * 4096 + block / 8;
        let byte = device.read_vec(byte_at, 1).unwrap()[0];
        device
            .write_at(byte_at, &[byte & !(1 << (block % 8))])
            .unwrap();
        let free = u32::from_le_bytes(cib[0x3C..0x40].try_into().unwrap());
        cib[0x3C..0x40].copy_from_slice(&(free + 1).to_le_bytes());
        store_checksum(&mut cib);
        device.write_at(cib_at, &cib).unwrap();
        let mut manager = manager.to_vec();
        let free = address(&manager, 0x48);
        manager[0x48..0x50].copy_from_slice(&(free + 1).to_le_bytes());
        store_checksum(&mut manager);
        let data = device
            .read_array::<8>(0x78)
            .map(u64::from_le_bytes)
            .unwrap();
        device.write_at(data * 4096, &manager).unwrap();
    }
}
