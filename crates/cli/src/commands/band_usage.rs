//! The use of the bands, chunks or pieces of an image: for `info`, `du` and `compact`.

use std::io::{self};

use bandsaw::ops::space::{SpaceMap, UnitUsage};
use serde::Serialize;

use crate::info_writer::{InfoWriter, exact};
use crate::text::{Table, counted, grouped};

/// The stored units of a container, as `--json` prints them.
#[derive(Serialize)]
pub(super) struct BandsJson {
    /// `band`, `chunk` or `piece`.
    unit: &'static str,
    unit_size: u64,
    /// Numbers of units: of the disk, allocated, and of the allocated ones by their free space.
    units: u64,
    allocated_units: u64,
    full_units: u64,
    partly_free_units: u64,
    free_units: u64,
    stray_files: Vec<String>,
    /// Bytes by which packing would shorten the file.
    packable: u64,
    /// Bytes that would be freed with completely free units, and with parts of others.
    pub(super) reclaimable_whole: u64,
    pub(super) reclaimable_parts: u64,
    /// True if the host is known to support holes in files.
    holes: bool,
    /// Bytes that are free but cannot be freed on the host without holes.
    unreclaimable: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    list: Vec<UnitJson>,
}

impl BandsJson {
    /// Summarizes a map; each unit has an entry of its own only if `each` is true.
    pub(super) fn new(map: &SpaceMap, each: bool) -> Self {
        let (returns_whole, returns_parts) = map.returns();
        let (free_whole, free_parts) = map.free_storage();
        let units = map.units.iter().filter(|_| each);
        Self {
            unit: map.kind.words().0,
            unit_size: map.size,
            units: map.count(),
            allocated_units: map.units.len() as u64,
            full_units: map.count_of(UnitUsage::Full),
            partly_free_units: map.count_of(UnitUsage::PartlyFree),
            free_units: map.count_of(UnitUsage::Free),
            stray_files: map.stray.iter().map(|file| file.name.clone()).collect(),
            packable: map.unused,
            reclaimable_whole: returns_whole,
            reclaimable_parts: returns_parts,
            holes: map.can_punch,
            unreclaimable: (free_whole + free_parts).saturating_sub(returns_whole + returns_parts),
            list: units
                .map(|unit| UnitJson {
                    index: unit.index,
                    allocated: unit.allocated,
                    free: unit.free,
                    reclaimable: unit.returns,
                })
                .collect(),
        }
    }

    /// Prints the totals for people.
    pub(super) fn write(&self, sheet: &mut InfoWriter<'_>) -> io::Result<()> {
        let kind = &format!("{}s", self.unit);
        let (stored, count) = (grouped(self.allocated_units), grouped(self.units));
        sheet.fact(
            kind,
            &format!("{stored} of {count} stored, {} each", exact(self.unit_size)),
        )?;
        let (full, partly, free) = (
            grouped(self.full_units),
            grouped(self.partly_free_units),
            grouped(self.free_units),
        );
        sheet.fact(
            "",
            &format!("{full} full, {partly} partly free, {free} completely free"),
        )?;
        if !self.stray_files.is_empty() {
            let stray = counted(self.stray_files.len() as u64, "file is", "files are");
            sheet.fact(
                "stray",
                &format!("{stray} not a band of the disk; run `bandsaw check` to list them"),
            )?;
        }
        if self.packable > 0 {
            sheet.fact(
                "unused",
                &format!("packing would shorten the file by {}", exact(self.packable)),
            )?;
        }
        Ok(())
    }

    /// Returns the name of the units in which the disk is stored.
    pub(super) fn kind(&self) -> &'static str {
        self.unit
    }

    /// Prints the free space that stays allocated because the host has no holes.
    pub(super) fn write_kept(&self, sheet: &mut InfoWriter<'_>) -> io::Result<()> {
        if self.unreclaimable == 0 {
            return Ok(());
        }
        let parts = if self.unit == "piece" {
            "in parts of the file"
        } else {
            &format!("in parts of {}s", self.unit)
        };
        sheet.fact(
            "kept",
            &format!(
                "{} {parts}: the host is not known to support holes in files",
                exact(self.unreclaimable)
            ),
        )
    }

    /// Prints a line for each band, if requested.
    pub(super) fn write_each(&self, sheet: &mut InfoWriter<'_>) -> io::Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        let mut table = Table::new([true, true, true, true]);
        table.row([self.unit, "on disk", "free", "returns"].map(str::to_owned));
        for unit in &self.list {
            table.row([
                format!("{:x}", unit.index),
                grouped(unit.allocated),
                grouped(unit.free),
                grouped(unit.reclaimable),
            ]);
        }
        sheet.lines(&table.lines("  "))
    }
}

#[derive(Serialize)]
struct UnitJson {
    index: u64,
    allocated: u64,
    free: u64,
    reclaimable: u64,
}
