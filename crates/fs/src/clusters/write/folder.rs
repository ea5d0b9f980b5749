//! Folders: the places of their entries, and free ones.

use std::ops::{ControlFlow, Range};

use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

use super::format::{FoundSet, WriteFormat};
use super::volume::{ROOT, SECTOR, Volume, WriteStep};
use crate::NodeId;
use crate::clusters::{DirectoryPlace, ENTRY_LEN};

const ENTRY: u64 = ENTRY_LEN as u64;
/// Entries in a sector.
const PER_SECTOR: u64 = SECTOR / ENTRY;

/// A folder.
#[derive(Debug)]
pub(super) struct Folder<R> {
    pub(super) id: NodeId,
    /// `None`: the root.
    raw: Option<R>,
    pub(super) place: DirectoryPlace,
}

/// The space of a folder: bytes of the volume, and the number of the first entry of each range.
#[derive(Debug)]
pub(super) struct FolderSpace {
    pieces: Vec<(u64, Range<u64>)>,
    total: u64,
}

impl FolderSpace {
    fn add(&mut self, range: Range<u64>) {
        let count = (range.end - range.start) / ENTRY;
        self.pieces.push((self.total, range));
        self.total += count;
    }

    /// Returns the offset of an entry on the volume.
    fn offset(&self, slot: u64) -> Option<u64> {
        let after = self.pieces.partition_point(|(first, _)| *first <= slot);
        let (first, range) = self.pieces.get(after.checked_sub(1)?)?;
        let offset = range.start + (slot - first) * ENTRY;
        (offset < range.end).then_some(offset)
    }

    pub(super) fn offsets(&self, slots: Range<u64>) -> Result<Vec<u64>> {
        let offsets = slots.map(|slot| self.offset(slot)).collect::<Option<_>>();
        offsets.ok_or_else(|| Error::new(Kind::OutOfRange, "volume folder", "no such entry"))
    }
}

impl<F: WriteFormat> Volume<F> {
    /// Returns the folder with a number.
    pub(super) fn folder(&self, id: NodeId) -> Result<Folder<F::Raw>> {
        if id == ROOT {
            return Ok(Folder {
                id,
                raw: None,
                place: self.format.root(),
            });
        }
        let raw = self.raw(id.0)?;
        if !self.format.is_folder(&raw) {
            return Err(Error::invalid(F::LAYER, "expected a folder, found a file").at(id.0));
        }
        Ok(Folder {
            id,
            place: self.format.folder_place(&raw)?,
            raw: Some(raw),
        })
    }

    /// Returns the bytes of a folder.
    pub(super) fn space_of(&self, place: &DirectoryPlace) -> Result<FolderSpace> {
        let mut found = FolderSpace {
            pieces: Vec::new(),
            total: 0,
        };
        let space = self.space();
        let cluster_size = space.cluster_size;
        let runs = match *place {
            DirectoryPlace::Fixed(ref range) => {
                found.add(range.clone());
                return Ok(found);
            }
            DirectoryPlace::Chain { first, .. } => space.whole_chain(first)?.into_boxed_slice(),
            DirectoryPlace::ChainOf { first, len } => {
                space.chain(first, space.clusters_for(len))?
            }
            DirectoryPlace::Contiguous { first, len } => {
                space.contiguous(first, space.clusters_for(len))?
            }
        };
        for run in &runs {
            let start = space.offset(run.first.into());
            found.add(start..start + u64::from(run.count) * cluster_size);
        }
        Ok(found)
    }

    /// Returns the object with a name. `None`: there is none.
    pub(super) fn find(
        &self,
        folder: &Folder<F::Raw>,
        name: &str,
    ) -> Result<Option<FoundSet<F::Raw>>> {
        let wanted = self.format.key(name);
        // A damaged folder may have names that differ in case only; then each is found by its exact name.
        let (mut exact, mut similar) = (None, None);
        self.format.scan(&folder.place, &mut |set| {
            if set.name == name {
                exact = Some(set);
                return Ok(ControlFlow::Break(()));
            }
            if similar.is_none() && self.format.key(&set.name) == wanted {
                similar = Some(set);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(exact.or(similar))
    }

    /// Returns for each entry before the end of a folder whether it is free.
    fn read_free(&self, space: &FolderSpace) -> Result<Vec<bool>> {
        const PIECE: u64 = 16 << 10;
        let mut free = Vec::new();
        for (_, range) in &space.pieces {
            for start in (range.start..range.end).step_by(to_usize(PIECE)) {
                let len = to_usize(PIECE.min(range.end - start));
                let bytes = self.space().device.read_vec(start, len)?;
                for entry in bytes.as_chunks::<ENTRY_LEN>().0 {
                    if entry[0] == 0 {
                        return Ok(free);
                    }
                    free.push(self.format.is_free(entry));
                }
            }
        }
        Ok(free)
    }

    /// Returns the offsets of free entries of a folder, which grows if there are none. True: they must be
    /// written after others.
    pub(super) fn free_entries(
        &mut self,
        folder: &mut Folder<F::Raw>,
        count: u64,
    ) -> Result<(Vec<u64>, bool)> {
        let mut space = self.space_of(&folder.place)?;
        let free = self.read_free(&space)?;
        let end = free.len() as u64;
        let FreeEntries { best, other } = FreeEntries::find(&free, space.total, count);
        let start = match best {
            Some(start) => start,
            None => {
                let start = space.total;
                let mut grown = Ok(());
                while grown.is_ok() && space.total < start + count {
                    grown = self.grow(folder, &mut space);
                }
                match (grown, other) {
                    (Ok(()), _) => start,
                    (Err(error), Some(other)) if error.kind() == Kind::Limit => other,
                    (Err(error), _) => return Err(error),
                }
            }
        };
        let offsets = space.offsets(start..start + count)?;
        let sector_of = |offset: Option<u64>| offset.map(|offset| offset / SECTOR);
        let own = sector_of(offsets.first().copied());
        // The end of the folder moves behind the new entries.
        for offset in space.offsets(end.min(start)..start)? {
            let entry = self.read_entry(offset)?;
            if sector_of(Some(offset)) != own {
                self.defer(offset, WriteStep::Second, entry);
            }
            self.write_entry(offset, &self.format.deleted([0; ENTRY_LEN]))?;
        }
        let mut is_later = false;
        if start + count > end
            && let Some(next) = space.offset(start + count)
        {
            let entry = self.read_entry(next)?;
            if entry[0] != 0 {
                self.write_entry(next, &[0; ENTRY_LEN])?;
                is_later = sector_of(Some(next)) != own;
            }
        }
        Ok((offsets, is_later))
    }

    /// Adds a cluster to a folder.
    fn grow(&mut self, folder: &mut Folder<F::Raw>, space: &mut FolderSpace) -> Result<()> {
        let contents = match (&folder.raw, &folder.place) {
            (Some(raw), _) => self.contents(raw)?,
            (None, &DirectoryPlace::Chain { first, .. }) => self.chain_contents(first)?,
            (None, _) => {
                let message = format!("the root folder is full: it has {} entries", space.total);
                return Err(Error::limit(F::LAYER, message));
            }
        };
        if contents.clusters() * self.space().cluster_size != space.total * ENTRY {
            let message = "the length of a folder differs from its clusters; check the volume";
            return Err(Error::new(Kind::Corrupt, F::LAYER, message));
        }
        if (contents.clusters() + 1) * self.space().cluster_size > F::MAX_FOLDER {
            let message = format!(
                "the folder is full: {} allows {} bytes",
                self.format.name(),
                F::MAX_FOLDER
            );
            return Err(Error::limit(F::LAYER, message));
        }
        let (grown, start) = self.grow_folder(&contents)?;
        space.add(start..start + self.space().cluster_size);
        if F::HAS_CONTIGUOUS
            && let Some(raw) = &mut folder.raw
        {
            self.format.set_stream(raw, grown.stream());
            folder.place = self.format.folder_place(raw)?;
            self.update(folder.id.0, &mut |format, raw| {
                format.set_stream(raw, grown.stream());
            })?;
        }
        Ok(())
    }

    /// Returns the first cluster of a folder, as entries for their parent have it.
    pub(super) fn parent_cluster(&self, folder: &Folder<F::Raw>) -> u32 {
        let raw = folder.raw.as_ref();
        raw.map_or(0, |raw| self.format.stream(raw).first)
    }

    /// Returns true for a folder without objects.
    pub(super) fn is_empty(&self, raw: &F::Raw) -> Result<bool> {
        let mut is_empty = true;
        let place = self.format.folder_place(raw)?;
        self.format.scan(&place, &mut |_| {
            is_empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(is_empty)
    }
}

/// Free entries of a folder.
struct FreeEntries {
    /// The first of them that are within a sector, or as many as do not fit in one.
    best: Option<u64>,
    /// The first of them.
    other: Option<u64>,
}

impl FreeEntries {
    /// Finds `count` entries among `total`. `free` has those before the end, behind which all are free.
    fn find(free: &[bool], total: u64, count: u64) -> Self {
        let mut found = Self {
            best: None,
            other: None,
        };
        let end = free.len() as u64;
        // The number of free entries before the current one.
        let mut before = 0;
        for slot in 0..total.min(end + PER_SECTOR + count) {
            match free.get(to_usize(slot)) {
                Some(false) => {
                    before = 0;
                    continue;
                }
                _ => before += 1,
            }
            if before < count {
                continue;
            }
            let start = slot + 1 - count;
            if count > PER_SECTOR || start / PER_SECTOR == slot / PER_SECTOR {
                found.best = Some(start);
                break;
            }
            found.other = found.other.or(Some(start));
        }
        found
    }
}
