//! Usage and free space of each band of a disk.

use super::{FreeSpace, Storage, UnitKind, can_punch};
use crate::Result;
use crate::container::sparsebundle::{Bundle, StrayFile};
use crate::open::Image;
use crate::progress::Progress;

/// A band, chunk or piece of the disk that has storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Its disk offset divided by the unit size.
    pub index: u64,
    /// Bytes of storage that it takes.
    pub allocated: u64,
    /// Bytes in it that no volume uses.
    pub free: u64,
    /// Bytes of storage that a trim frees.
    pub returns: u64,
    /// Seconds of Unix time of the last change of its file, if it has one of its own and its store
    /// records the time.
    pub changed: Option<u64>,
}

/// The usage of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitUsage {
    /// Not stored.
    Absent,
    /// No part is free.
    Full,
    /// Some parts are free.
    PartlyFree,
    /// All of it is free.
    Free,
}

/// The usage of the units of a disk.
#[derive(Debug, Clone)]
pub struct SpaceMap {
    /// Kind of the units.
    pub kind: UnitKind,
    /// Size of a unit in bytes. The last unit may be smaller.
    pub size: u64,
    /// Length of the disk, in bytes.
    pub disk: u64,
    /// The units that have storage, in the order of the disk.
    pub units: Vec<Unit>,
    /// Files among the band files that do not belong to the disk.
    pub stray: Vec<StrayFile>,
    /// Bytes by which packing shortens the image's file, because they are not assigned to a unit.
    /// They take storage only if the host cannot punch holes.
    pub unused: u64,
    /// True if the host can free parts of files, as far as is known without a test. Otherwise
    /// compaction frees only whole bands and chunks.
    pub can_punch: bool,
}

impl SpaceMap {
    /// Measures the storage of an image against `free`. `None` if the image is of a format that
    /// cannot be changed, or its bands are of two sizes.
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
        let mut units: Vec<_> = units
            .into_iter()
            .map(|(index, allocated)| Unit {
                index,
                allocated,
                free: 0,
                returns: 0,
                changed: None,
            })
            .collect();
        let stray = if let Storage::Bundle(_, stored) = storage {
            for (unit, band) in units.iter_mut().zip(&stored.bands) {
                unit.changed = band.changed;
            }
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
            can_punch: can_punch(image, false),
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

    /// Returns the number of units of a fully stored disk.
    pub fn count(&self) -> u64 {
        self.disk.div_ceil(self.size)
    }

    /// Returns the usage of a unit.
    pub fn fill(&self, unit: &Unit) -> UnitUsage {
        let bytes = self
            .end_of(unit.index)
            .saturating_sub(unit.index * self.size);
        match unit.free {
            0 => UnitUsage::Full,
            free if free >= bytes => UnitUsage::Free,
            _ => UnitUsage::PartlyFree,
        }
    }

    /// Returns the number of units with this usage.
    pub fn count_of(&self, fill: UnitUsage) -> u64 {
        match fill {
            UnitUsage::Absent => self.count() - self.units.len() as u64,
            fill => self
                .units
                .iter()
                .filter(|unit| self.fill(unit) == fill)
                .count() as u64,
        }
    }

    /// Returns the part of [`free_storage`](Self::free_storage) that compaction frees on this host.
    pub fn returns(&self) -> (u64, u64) {
        match (self.free_storage(), self.kind) {
            (both, _) if self.can_punch => both,
            // Not even the last piece is a file of its own.
            (_, UnitKind::Piece) => (0, 0),
            ((whole, _), UnitKind::Band | UnitKind::Chunk) => (whole, 0),
        }
    }

    /// Returns the bytes of storage that no volume uses: of entirely free units, and of free parts
    /// of others.
    pub fn free_storage(&self) -> (u64, u64) {
        let (whole, parts): (Vec<&Unit>, Vec<&Unit>) = self
            .units
            .iter()
            .partition(|unit| self.fill(unit) == UnitUsage::Free);
        let sum = |units: Vec<&Unit>| units.iter().map(|unit| unit.returns).sum();
        (sum(whole), sum(parts))
    }

    /// Returns the bytes of storage of the whole disk.
    pub fn allocated(&self) -> u64 {
        self.units.iter().map(|unit| unit.allocated).sum()
    }
}

/// Returns the bytes by which packing shortens the image's file.
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
    fn returned_space_depends_on_the_host() {
        let unit = |index, free, returns| Unit {
            index,
            allocated: 8,
            free,
            returns,
            changed: None,
        };
        let units = vec![unit(0, 8, 8), unit(1, 3, 2), unit(2, 0, 0)];
        let map = |kind, can_punch| SpaceMap {
            kind,
            size: 8,
            disk: 24,
            units: units.clone(),
            stray: Vec::new(),
            unused: 0,
            can_punch,
        };
        assert_eq!(map(UnitKind::Band, true).returns(), (8, 2));
        assert_eq!(map(UnitKind::Piece, true).returns(), (8, 2));
        assert_eq!(map(UnitKind::Chunk, false).returns(), (8, 0));
        assert_eq!(map(UnitKind::Piece, false).returns(), (0, 0));
        assert_eq!(map(UnitKind::Piece, false).free_storage(), (8, 2));
    }
}
