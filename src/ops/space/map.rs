//! How full each band of a disk is, and what of it is free.

use super::{FreeSpace, Storage, UnitKind, can_punch};
use crate::Result;
use crate::container::sparsebundle::{Bundle, StrayFile};
use crate::open::Image;
use crate::progress::Progress;

/// A band, chunk or piece of the disk that has storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Its place on the disk divided by the size of units.
    pub index: u64,
    /// Bytes of storage behind it.
    pub allocated: u64,
    /// Bytes of the disk in it that no volume uses.
    pub free: u64,
    /// Bytes of storage that a trim gives back.
    pub returns: u64,
}

/// How full a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// It has no storage.
    Absent,
    /// Nothing in it is free.
    Full,
    /// Some of it is free.
    PartlyFree,
    /// All of it is free.
    Free,
}

/// The units of a disk.
#[derive(Debug, Clone)]
pub struct SpaceMap {
    /// What they are.
    pub kind: UnitKind,
    /// Bytes of one. The last may be smaller.
    pub size: u64,
    /// Bytes of the disk.
    pub disk: u64,
    /// Those that have storage, in the order of the disk.
    pub units: Vec<Unit>,
    /// Files among those of the bands that are none of the disk's.
    pub stray: Vec<StrayFile>,
    /// Bytes that packing shortens the image's file by, because no unit has its place there. They
    /// take storage only where the host cannot punch holes.
    pub unused: u64,
    /// True if the host frees parts of files, as far as that is known without trying. Where it does
    /// not, compaction gives back whole bands and chunks.
    pub parts: bool,
}

impl SpaceMap {
    /// Measures the storage of an image against `free`. `None`: it is of a kind that cannot be
    /// changed, or its bands are of two sizes.
    pub fn of(image: &Image, free: &FreeSpace, progress: &dyn Progress) -> Result<Option<Self>> {
        if image.bundle().is_some_and(Bundle::is_between) {
            return Ok(None);
        }
        let Some(storage) = Storage::of(image, progress)? else {
            return Ok(None);
        };
        Self::measure(image, &storage, free, progress).map(Some)
    }

    pub(crate) fn measure(
        image: &Image,
        storage: &Storage<'_>,
        free: &FreeSpace,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let disk = image.disk().info().len;
        let (kind, size) = storage.units(disk);
        let units = storage.allocated_by_unit(size, disk)?;
        let units = units
            .into_iter()
            .map(|(index, allocated)| Unit {
                index,
                allocated,
                free: 0,
                returns: 0,
            })
            .collect();
        let stray = if let Storage::Bundle(_, stored) = storage {
            stored.stray.clone()
        } else {
            Vec::new()
        };
        let mut map = Self {
            kind,
            size,
            disk,
            units,
            stray,
            unused: unused(image),
            parts: can_punch(image, false),
        };
        progress.stage("measure", disk);
        let mut seen = 0;
        for run in free.runs() {
            progress.check()?;
            let run = run?;
            progress.advance(run.end.saturating_sub(seen));
            seen = seen.max(run.end);
            map.add_free(storage, run.start, run.end)?;
        }
        Ok(map)
    }

    fn add_free(&mut self, storage: &Storage<'_>, start: u64, end: u64) -> Result<()> {
        let first = self
            .units
            .partition_point(|unit| unit.index < start / self.size);
        for at in first..self.units.len() {
            let unit = self.units[at];
            let (from, to) = (unit.index * self.size, self.end_of(unit.index));
            if from >= end {
                break;
            }
            let (part_start, part_end) = (start.max(from), end.min(to));
            let is_whole = part_start == from && part_end == to;
            let returns = if is_whole {
                unit.allocated
            } else {
                storage.allocated_in(&(part_start..part_end))?
            };
            let unit = &mut self.units[at];
            unit.free += part_end - part_start;
            unit.returns = (unit.returns + returns).min(unit.allocated);
        }
        Ok(())
    }

    fn end_of(&self, index: u64) -> u64 {
        (index + 1).saturating_mul(self.size).min(self.disk)
    }

    /// Returns how many units the disk has when all of it is stored.
    pub fn count(&self) -> u64 {
        self.disk.div_ceil(self.size)
    }

    /// How full a unit is, by what is known of it.
    pub fn fill(&self, unit: &Unit) -> Fill {
        let bytes = self
            .end_of(unit.index)
            .saturating_sub(unit.index * self.size);
        match unit.free {
            0 => Fill::Full,
            free if free >= bytes => Fill::Free,
            _ => Fill::PartlyFree,
        }
    }

    /// Units with storage that are this full.
    pub fn count_of(&self, fill: Fill) -> u64 {
        match fill {
            Fill::Absent => self.count() - self.units.len() as u64,
            fill => self
                .units
                .iter()
                .filter(|unit| self.fill(unit) == fill)
                .count() as u64,
        }
    }

    /// Of [`free_storage`](Self::free_storage), what compaction gives back on this host.
    pub fn returns(&self) -> (u64, u64) {
        match (self.free_storage(), self.kind) {
            (both, _) if self.parts => both,
            // Not even its last piece is a file of its own.
            (_, UnitKind::Piece) => (0, 0),
            ((whole, _), UnitKind::Band | UnitKind::Chunk) => (whole, 0),
        }
    }

    /// Bytes of storage that no volume uses: units all of which is free, and parts of others.
    pub fn free_storage(&self) -> (u64, u64) {
        let (whole, parts): (Vec<&Unit>, Vec<&Unit>) = self
            .units
            .iter()
            .partition(|unit| self.fill(unit) == Fill::Free);
        let sum = |units: Vec<&Unit>| units.iter().map(|unit| unit.returns).sum();
        (sum(whole), sum(parts))
    }

    /// Bytes of storage behind the whole disk.
    pub fn allocated(&self) -> u64 {
        self.units.iter().map(|unit| unit.allocated).sum()
    }
}

/// Bytes that packing shortens the image's file by.
fn unused(image: &Image) -> u64 {
    if let Some(image) = image.sparse_image() {
        let usage = image.usage();
        return usage.unused * usage.band_size;
    }
    let top = image
        .overlays()
        .last()
        .map(|top| &*top.image)
        .or_else(|| image.asif());
    top.map_or(0, |image| image.usage().unused * image.usage().chunk_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_returns_depends_on_the_host() {
        let unit = |index, free, returns| Unit {
            index,
            allocated: 8,
            free,
            returns,
        };
        let units = vec![unit(0, 8, 8), unit(1, 3, 2), unit(2, 0, 0)];
        let map = |kind, parts| SpaceMap {
            kind,
            size: 8,
            disk: 24,
            units: units.clone(),
            stray: Vec::new(),
            unused: 0,
            parts,
        };
        assert_eq!(map(UnitKind::Band, true).returns(), (8, 2));
        assert_eq!(map(UnitKind::Piece, true).returns(), (8, 2));
        assert_eq!(map(UnitKind::Chunk, false).returns(), (8, 0));
        assert_eq!(map(UnitKind::Piece, false).returns(), (0, 0));
        assert_eq!(map(UnitKind::Piece, false).free_storage(), (8, 2));
    }
}
