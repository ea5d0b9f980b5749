//! The bands of a disk, drawn in the terminal.

use std::io::{self, Write};

use bandsaw::ops::space::{SpaceMap, UnitUsage};
use bandsaw::size;

use crate::output::{Output, Style};
use crate::text::{counted, grouped};

/// The number of cells in a line, and the largest number of lines.
const WIDTH: u64 = 64;
const LINES: u64 = 32;

/// The content of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Absent,
    Full,
    PartlyFree,
    Free,
}

impl Cell {
    fn of(fill: UnitUsage) -> Self {
        match fill {
            UnitUsage::Absent => Self::Absent,
            UnitUsage::Full => Self::Full,
            UnitUsage::PartlyFree => Self::PartlyFree,
            UnitUsage::Free => Self::Free,
        }
    }

    /// Returns the cell for both together, if several bands share a cell.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Absent, cell) | (cell, Self::Absent) => cell,
            (one, other) if one == other => one,
            _ => Self::PartlyFree,
        }
    }

    fn drawn(self) -> &'static str {
        match self {
            Self::Absent => "·",
            Self::Full => "█",
            Self::PartlyFree => "▒",
            Self::Free => "o",
        }
    }
}

/// Draws the map, with a legend.
pub(crate) fn write(map: &SpaceMap, output: &Output, out: &mut dyn Write) -> io::Result<()> {
    let (one, many) = map.kind.words();
    let per_cell = map.count().div_ceil(WIDTH * LINES).max(1);
    writeln!(out)?;
    let each = if per_cell == 1 {
        format!("one {one}")
    } else {
        format!("{} {many}", grouped(per_cell))
    };
    let stretch = size::display(map.size.saturating_mul(per_cell));
    writeln!(
        out,
        "{}",
        output.paint(
            Style::Bold,
            &format!("{many}, a cell for {each} ({stretch})")
        )
    )?;
    let cells = cells(map, per_cell);
    for (number, line) in cells.chunks(WIDTH as usize).enumerate() {
        let at = (number as u64 * WIDTH)
            .saturating_mul(per_cell)
            .saturating_mul(map.size);
        let drawn: String = line.iter().map(|cell| cell.drawn()).collect();
        let place = output.paint(
            Style::Dim,
            &format!("{:>10}", size::display(at).to_string()),
        );
        writeln!(out, "  {place}  {drawn}")?;
    }
    let legend = [
        (UnitUsage::Absent, "not allocated"),
        (UnitUsage::Full, "in use"),
        (UnitUsage::PartlyFree, "partly free"),
        (UnitUsage::Free, "completely free"),
    ];
    let legend = legend.map(|(fill, what)| {
        format!(
            "{} {what}: {}",
            Cell::of(fill).drawn(),
            grouped(map.count_of(fill))
        )
    });
    writeln!(out, "  {}", legend.join("   "))?;
    if !map.stray.is_empty() {
        writeln!(
            out,
            "  ! stray: {} not a band of the disk",
            counted(map.stray.len() as u64, "file is", "files are")
        )?;
        map.stray
            .iter()
            .take(10)
            .try_for_each(|file| writeln!(out, "    {}", output.name(&file.name)))?;
    }
    Ok(())
}

fn cells(map: &SpaceMap, per_cell: u64) -> Vec<Cell> {
    // At most as many cells as the lines can hold.
    let mut cells = vec![Cell::Absent; map.count().div_ceil(per_cell) as usize];
    for unit in &map.units {
        if let Some(cell) = cells.get_mut((unit.index / per_cell) as usize) {
            *cell = cell.and(Cell::of(map.fill(unit)));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use bandsaw::ops::space::{Unit, UnitKind};

    use super::*;

    #[test]
    fn cells_show_what_is_in_them() {
        let unit = |index, free| Unit {
            index,
            allocated: 8,
            free,
            returns: free,
            changed: None,
        };
        let units = vec![
            unit(0, 0),
            unit(1, 8),
            unit(2, 0),
            unit(3, 3),
            unit(6, 8),
            unit(7, 8),
        ];
        let map = SpaceMap {
            kind: UnitKind::Band,
            size: 8,
            disk: 80,
            units,
            stray: Vec::new(),
            unused: 0,
            can_punch: true,
        };
        let drawn = |per_cell| {
            cells(&map, per_cell)
                .into_iter()
                .map(Cell::drawn)
                .collect::<String>()
        };
        assert_eq!(drawn(1), "█o█▒··oo··");
        assert_eq!(drawn(2), "▒▒·o·");
    }
}
