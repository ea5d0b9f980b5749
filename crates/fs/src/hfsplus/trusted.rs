//! A quick plausibility check of a volume's allocation bitmap, before its free space is discarded:
//! contents in blocks that are wrongly marked free would be lost.

use std::ops::Range;

use super::extents::Owner;
use super::free::HfsPlusFree;
use super::header::{self, AlternateHeader};
use super::layout::{AllocBlock, Cnid, Extent, ForkRaw, JournalInfoBlockRaw};
use super::layout::{fork_type, journal_flags, reserved_blocks, volume_attributes};
use super::{HfsPlus, read_structure};
use crate::{FreeMap, FreeMapExt};
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "hfs+ free space";

impl HfsPlus {
    /// Returns the free map after a check that the volume was cleanly unmounted and that the map is
    /// plausible: both headers describe the same volume, the number of free blocks matches, and all
    /// blocks of the volume's own files and its journal are marked used. Fails with
    /// [`Kind::Conflict`] if the volume was not cleanly unmounted, with [`Kind::Corrupt`] if the
    /// map is wrong.
    pub fn trusted_free_map(&self) -> Result<HfsPlusFree> {
        let map = self.free_map()?;
        if let Some(problem) = self.problems.first() {
            let message =
                "the volume is damaged, so its free space is skipped: run `bandsaw repair` first";
            return Err(Error::new(
                Kind::Corrupt,
                LAYER,
                format!("{message}: {problem}"),
            ));
        }
        if !map.is_in_order() {
            let message = "the volume was not cleanly unmounted, or its journal is not empty, so \
                           its free space is skipped: attach and detach it where it was last used, \
                           or run `bandsaw repair`";
            return Err(Error::conflict(LAYER, message));
        }
        self.check_headers()?;
        self.check_count(&map)?;
        for (name, extent) in self.own_extents()? {
            check_used(&map, extent, name)?;
        }
        Ok(map)
    }

    /// Returns the extents of the volume's own files, its journal and its headers, in bytes of the
    /// device.
    pub fn own_ranges(&self) -> Result<Vec<Range<u64>>> {
        let map = self.free_map()?;
        let (head, tail) = reserved_blocks(self.header.block_size);
        let headers = [
            Extent {
                start: AllocBlock(0),
                count: head,
            },
            Extent {
                start: AllocBlock(self.header.total_blocks.saturating_sub(tail)),
                count: tail,
            },
        ];
        let files = self.own_extents()?.into_iter().map(|(_, extent)| extent);
        Ok(files
            .chain(headers)
            .map(|extent| map.bytes(extent))
            .collect())
    }

    fn own_extents(&self) -> Result<Vec<(&'static str, Extent)>> {
        let mut own = Vec::new();
        for (name, id, fork) in self.own_files() {
            let owner = Owner::Special(name);
            let extents = match id {
                // The overflow tree cannot contain its own extents.
                Cnid::EXTENTS => self.space.collect(fork, &owner, &mut |_| Ok(None))?,
                id => self.space.collect(fork, &owner, &mut |block| {
                    self.overflow.get(id, fork_type::DATA, block)
                })?,
            };
            own.extend(extents.into_iter().map(|extent| (name, extent)));
        }
        own.extend(self.journal_extents()?);
        Ok(own)
    }

    fn own_files(&self) -> [(&'static str, Cnid, &ForkRaw); 5] {
        let raw = &self.header.raw;
        [
            ("allocation file", Cnid::ALLOCATION, &raw.allocation_file),
            ("extents tree", Cnid::EXTENTS, &raw.extents_file),
            ("catalog", Cnid::CATALOG, &raw.catalog_file),
            ("attributes tree", Cnid::ATTRIBUTES, &raw.attributes_file),
            ("startup file", Cnid::STARTUP, &raw.startup_file),
        ]
    }

    fn check_headers(&self) -> Result<()> {
        let header = &self.header;
        let AlternateHeader {
            offset: at,
            header: alternate,
            ..
        } = header::alternate(&*self.space.device, header)?;
        let alternate = alternate?;
        if (alternate.block_size, alternate.total_blocks)
            == (header.block_size, header.total_blocks)
        {
            return Ok(());
        }
        let message = format!(
            "the alternate volume header records {} blocks of {} bytes, the primary {} of {}",
            alternate.total_blocks, alternate.block_size, header.total_blocks, header.block_size
        );
        Err(Error::corrupt(LAYER, at, message))
    }

    fn check_count(&self, map: &HfsPlusFree) -> Result<()> {
        let mut free = 0;
        for run in map.free_runs(0..u64::MAX) {
            let run = run?;
            free += (run.end - run.start) / u64::from(self.header.block_size);
        }
        let recorded = u64::from(self.header.free_blocks);
        // Blocks of the headers are never treated as free, regardless of the map.
        if recorded >= free && recorded - free <= map.left_out() {
            return Ok(());
        }
        let message = format!(
            "the bitmap has {free} free blocks, but the volume header records {recorded}: run \
             `bandsaw repair`"
        );
        Err(Error::new(Kind::Corrupt, LAYER, message))
    }

    /// Returns the journal and the block that describes it.
    fn journal_extents(&self) -> Result<Vec<(&'static str, Extent)>> {
        if !self.header.has(volume_attributes::JOURNALED) {
            return Ok(Vec::new());
        }
        let (block, size) = (
            AllocBlock(self.header.raw.journal_info_block.get()),
            self.header.block_size,
        );
        let described = Extent {
            start: block,
            count: 1,
        };
        let mut extents = vec![("journal info block", described)];
        let info: JournalInfoBlockRaw = read_structure(&*self.space.device, block.offset(size))?;
        if info.flags.get() & journal_flags::IN_VOLUME == 0 {
            return Ok(extents);
        }
        let (start, end) = (
            info.offset.get(),
            info.offset.get().saturating_add(info.size.get()),
        );
        let (first, last) = (start / u64::from(size), end.div_ceil(u64::from(size)));
        match (
            u32::try_from(first),
            u32::try_from(last.saturating_sub(first)),
        ) {
            (Ok(first), Ok(count)) => {
                let start = AllocBlock(first);
                extents.push(("journal", Extent { start, count }));
                Ok(extents)
            }
            _ => Err(Error::new(
                Kind::Corrupt,
                LAYER,
                "the journal is past the end of the volume",
            )),
        }
    }
}

/// Fails if a block of `extent`, which is part of `what`, is free in the map.
fn check_used(map: &HfsPlusFree, extent: Extent, what: &str) -> Result<()> {
    let bytes = map.bytes(extent);
    match map.free_from(bytes.start)? {
        Some(free) if free.start < bytes.end => {
            let message = format!("a part of the {what} is marked as free: run `bandsaw repair`");
            Err(Error::corrupt(LAYER, free.start, message))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use zerocopy::IntoBytes;

    use super::*;
    use crate::hfsplus::build::{Options, Plan};
    use crate::hfsplus::layout::HEADER_OFFSET;
    use crate::hfsplus::{HfsPlusMut, WriteOptions};
    use crate::source::Tree;
    use crate::{FileSystem, FileSystemMut, NewKind, NewNode, Timestamp};
    use bandsaw_core::device::{BlockDevice, BlockDeviceExt, Memory};
    use bandsaw_core::progress::Silent;

    fn volume() -> Arc<Memory> {
        let created = Timestamp::from_seconds(1_700_000_000);
        let (name, block_size) = ("Free".into(), Some(4096));
        let options = Options {
            name,
            case_sensitive: false,
            journaled: false,
            block_size,
            created,
            latest: None,
            opens: false,
            identifier: 9,
        };
        let device = Arc::new(Memory::zeros(8 << 20));
        Plan::new(Tree::empty(created), options)
            .unwrap()
            .build(&*device, &Silent)
            .unwrap();
        HfsPlusMut::open(device.clone(), WriteOptions::default())
            .unwrap()
            .enable_journal(None)
            .unwrap();
        device
    }

    fn refused(device: Arc<Memory>) -> Error {
        HfsPlus::open(device)
            .unwrap()
            .trusted_free_map()
            .unwrap_err()
    }

    fn put_header(
        device: &Memory,
        change: impl FnOnce(&mut super::super::layout::VolumeHeaderRaw),
    ) {
        let mut header = HfsPlus::open(Arc::new(Memory::from(device.to_vec())))
            .unwrap()
            .header
            .raw;
        change(&mut header);
        device.write_at(HEADER_OFFSET, header.as_bytes()).unwrap();
    }

    #[test]
    fn a_sound_volume_is_trusted() {
        let volume = HfsPlus::open(volume()).unwrap();
        let map = volume.trusted_free_map().unwrap();
        let free: u64 = map
            .free_runs(0..u64::MAX)
            .map(|run| run.unwrap())
            .map(|run| run.end - run.start)
            .sum();
        assert_eq!(free, volume.volume().free);
    }

    #[test]
    fn a_volume_in_use_is_not() {
        let device = volume();
        let mounted = HfsPlusMut::open(device.clone(), WriteOptions::default()).unwrap();
        mounted
            .create(mounted.root(), "file", &NewNode::new(NewKind::File))
            .unwrap();
        mounted.sync().unwrap();
        assert_eq!(
            refused(Arc::new(Memory::from(device.to_vec()))).kind(),
            Kind::Conflict
        );
    }

    #[test]
    fn a_wrong_count_is_met() {
        let device = volume();
        put_header(&device, |header| {
            header.free_blocks = (header.free_blocks.get() - 1).into()
        });
        assert!(refused(device).to_string().contains("header records"));
    }

    #[test]
    fn blocks_of_the_volume_must_be_used() {
        let sound = volume();
        let header = HfsPlus::open(sound.clone()).unwrap().header.raw;
        let info_at = u64::from(header.journal_info_block.get()) * 4096;
        let journal: JournalInfoBlockRaw = read_structure(&*sound, info_at).unwrap();
        let own = [
            &header.allocation_file,
            &header.extents_file,
            &header.catalog_file,
        ]
        .map(|fork| fork.extents[0].start_block.get());
        let journal_block = (journal.offset.get() / 4096) as u32 + 3;
        for block in own
            .into_iter()
            .chain([header.journal_info_block.get(), journal_block])
        {
            let device = Arc::new(Memory::from(sound.to_vec()));
            let at = u64::from(header.allocation_file.extents[0].start_block.get()) * 4096
                + u64::from(block / 8);
            let byte = device.read_vec(at, 1).unwrap()[0];
            device
                .write_at(at, &[byte & !(0x80 >> (block % 8))])
                .unwrap();
            put_header(&device, |header| {
                header.free_blocks = (header.free_blocks.get() + 1).into()
            });
            let error = refused(device);
            assert!(
                error.kind() == Kind::Corrupt && error.to_string().contains("is marked as free"),
                "block {block}: {error}"
            );
        }
    }

    #[test]
    fn headers_that_differ_are_met() {
        let device = volume();
        let at = (8 << 20) - HEADER_OFFSET;
        let mut alternate = HfsPlus::open(device.clone()).unwrap().header.raw;
        alternate.total_blocks = (alternate.total_blocks.get() - 8).into();
        alternate.free_blocks = 1.into();
        device.write_at(at, alternate.as_bytes()).unwrap();
        assert!(refused(device).to_string().contains("alternate"));
    }
}
