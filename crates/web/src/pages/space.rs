//! The space of an image: outside and inside, and a map of its bands.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use bandsaw::fs::Timestamp;
use bandsaw::ops::space::{SpaceMap, Unit, UnitUsage};
use bandsaw::ops::usage::ImageUsage;
use bandsaw::progress::Progress;
use bandsaw::size;
use maud::{Markup, html};

use super::layout::{self, Frame};
use super::{open_image, refusal_in, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::reply::{Refusal, large_page};
use crate::request_checks::Visit;

/// Cells of a row of the map, and most rows.
const WIDTH: u64 = 64;
const ROWS: u64 = 16;
/// Time that a measurement may take.
const MAX_TIME: Duration = Duration::from_secs(120);
/// Bytes of memory of the page.
const MEMORY: usize = 3 << 20;

/// Ends a measurement after a time.
struct Deadline(Instant);

impl Progress for Deadline {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Shows the space of an image. `from` and `count` select bands for the map.
pub(crate) async fn space(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let from = visit.query.number("from").unwrap_or(0);
    let count = visit.query.number("count").unwrap_or(u64::MAX);
    let (shared, of, shown) = (app.clone(), target.clone(), visit.clone());
    let main = work(move || {
        let image = open_image(&shared, &shown, &of)?;
        let progress = Deadline(Instant::now() + MAX_TIME);
        let usage = ImageUsage::of(image.image(), image.keys(), &progress);
        let usage = usage.map_err(|error| refusal_in(&image, &error))?;
        let heading = visible(&image.located().shown().display().to_string());
        Ok(html! {
            h1 { "Space of " bdi { (heading) } }
            (layout::links(&[(of.address("image", &[]), "Image")]))
            (sizes(&usage))
            @if let Some(map) = &usage.map {
                (drawn(map, from, count, &of))
            } @else {
                p { "The format has no bands that could be freed." }
            }
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Space", Frame::default(), &main);
    Ok(large_page(markup, memory))
}

fn sizes(usage: &ImageUsage) -> Markup {
    html! {
        h2 { "Outside" }
        dl {
            (layout::fact("Files", &html! { (usage.host.files) }))
            (layout::fact("Length", &layout::bytes(usage.host.len)))
            (layout::fact("Allocated", &layout::bytes(usage.host.allocated)))
            (layout::fact("Compaction would free", &layout::bytes(usage.returns())))
        }
        h2 { "Inside" }
        dl { (layout::fact("Size of the disk", &layout::bytes(usage.disk))) }
        div.scroll tabindex="0" { table {
            thead { tr {
                th scope="col" { "Volume" } th scope="col" { "File system" }
                th.number scope="col" { "Used" } th.number scope="col" { "Pending" } th.number scope="col" { "Free" }
                th scope="col" { "Remarks" }
            } }
            tbody { @for volume in usage.volumes.iter().take(256) {
                tr {
                    td {
                        @if let Ok(info) = &volume.info { (layout::name(&info.name)) " " }
                        span.dim { (volume.place) }
                    }
                    td { (volume.format) }
                    @match &volume.space {
                        Some(space) => {
                            td.number { (layout::bytes(space.used)) }
                            td.number { (layout::bytes(space.pending)) }
                            td.number { (layout::bytes(space.free)) }
                        }
                        None => { td.number { "–" } td.number { "–" } td.number { "–" } }
                    }
                    td { @if let Some(why) = &volume.refused { (visible(why.message())) } }
                }
            } }
        } }
    }
}

/// A cell of the map: the bands in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cell {
    stored: u64,
    allocated: u64,
    free: u64,
    returns: u64,
    /// Bands of which all, a part or nothing is free.
    fills: [u64; 3],
    /// Seconds of Unix time of the latest change, if it is known.
    changed: Option<u64>,
}

impl Cell {
    fn add(&mut self, unit: &Unit, fill: UnitUsage) {
        self.stored += 1;
        self.allocated = self.allocated.saturating_add(unit.allocated);
        self.free = self.free.saturating_add(unit.free);
        self.returns = self.returns.saturating_add(unit.returns);
        self.changed = self.changed.max(unit.changed);
        match fill {
            UnitUsage::Free => self.fills[0] += 1,
            UnitUsage::PartlyFree => self.fills[1] += 1,
            UnitUsage::Full | UnitUsage::Absent => self.fills[2] += 1,
        }
    }

    fn class(&self) -> &'static str {
        match self.fills {
            [0, 0, 0] => "cell-none",
            [0, 0, _] => "cell-full",
            [_, 0, 0] => "cell-free",
            _ => "cell-part",
        }
    }
}

/// Returns the cells for a range of bands, each for `per_cell` of them.
fn cells(map: &SpaceMap, range: &Range<u64>, per_cell: u64) -> Vec<Cell> {
    let count = (range.end - range.start).div_ceil(per_cell);
    let mut cells = vec![Cell::default(); usize::try_from(count).unwrap_or(0)];
    for unit in map.units.iter().filter(|unit| range.contains(&unit.index)) {
        let at = usize::try_from((unit.index - range.start) / per_cell);
        if let Some(cell) = at.ok().and_then(|at| cells.get_mut(at)) {
            cell.add(unit, map.fill(unit));
        }
    }
    cells
}

fn drawn(map: &SpaceMap, from: u64, count: u64, target: &Target) -> Markup {
    let (one, many) = map.kind.words();
    let all = map.count();
    let start = from.min(all.saturating_sub(1));
    let range = start..start.saturating_add(count.max(1)).min(all);
    let per_cell = (range.end - range.start).div_ceil(WIDTH * ROWS).max(1);
    let cells = cells(map, &range, per_cell);
    let rows = (cells.len() as u64).div_ceil(WIDTH).max(1);
    html! {
        h2 { "Map of " (many) }
        p {
            "A cell stands for " (per_cell) " " (if per_cell == 1 { one } else { many }) " ("
            (size::display(map.size.saturating_mul(per_cell))) "). "
            "Shown: " (range.start) " to " (range.end.saturating_sub(1)) " of " (all) "."
            @if range != (0..all) { " " a href=(target.address("space", &[])) { "Show all" } }
        }
        p.legend {
            span.full {} "in use: " (map.count_of(UnitUsage::Full)) " "
            span.part {} "partly free: " (map.count_of(UnitUsage::PartlyFree)) " "
            span.free {} "completely free: " (map.count_of(UnitUsage::Free)) " "
            span.none {} "not allocated: " (map.count_of(UnitUsage::Absent))
        }
        svg.map role="group" aria-label={ "Map of " (many) } viewBox={ "0 0 " (WIDTH) " " (rows) } xmlns="http://www.w3.org/2000/svg" {
            @for (number, cell) in (0_u64..).zip(&cells) {
                (drawn_cell(cell, number, &range, per_cell, (one, many), target))
            }
        }
        @if !map.stray.is_empty() {
            p.bad { (map.stray.len()) " files do not belong to the disk:" }
            ul { @for file in map.stray.iter().take(20) { li { (layout::name(&file.name)) } } }
        }
    }
}

fn drawn_cell(
    cell: &Cell,
    number: u64,
    range: &Range<u64>,
    per_cell: u64,
    (one, many): (&str, &str),
    target: &Target,
) -> Markup {
    let first = range.start.saturating_add(number.saturating_mul(per_cell));
    let last = first
        .saturating_add(per_cell)
        .min(range.end)
        .saturating_sub(1);
    let label = if first == last {
        format!("{one} {first}")
    } else {
        format!("{many} {first} to {last}")
    };
    let changed = cell.changed.and_then(|seconds| i64::try_from(seconds).ok());
    let changed = changed.map_or_else(String::new, |seconds| {
        format!(", last change {} UTC", Timestamp::from_seconds(seconds))
    });
    let what = format!(
        "{label}: {} stored, {} allocated, {} free inside, compaction frees {}{changed}",
        cell.stored,
        size::display(cell.allocated),
        size::display(cell.free),
        size::display(cell.returns)
    );
    let (x, y) = (number % WIDTH, number / WIDTH);
    let rect = html! {
        rect class=(cell.class()) x=(x) y=(y) width="0.92" height="0.92" { title { (what) } }
    };
    if per_cell == 1 || cell.stored == 0 {
        return rect;
    }
    let (from, count) = (first.to_string(), (last - first + 1).to_string());
    let address = target.address(
        "space",
        &[("from", from.as_bytes()), ("count", count.as_bytes())],
    );
    html! { a href=(address) aria-label=(what) { (rect) } }
}

#[cfg(test)]
mod tests {
    use bandsaw::ops::space::UnitKind;

    use super::*;
    use crate::roots::ImageId;

    fn map(units: u64) -> SpaceMap {
        SpaceMap {
            kind: UnitKind::Band,
            size: 8,
            disk: 8 * units,
            units: (0..units)
                .step_by(3)
                .map(|index| Unit {
                    index,
                    allocated: 8,
                    free: index % 9,
                    returns: 0,
                    changed: (index > 3).then_some(1_700_000_000 + index),
                })
                .collect(),
            stray: Vec::new(),
            unused: 0,
            can_punch: true,
        }
    }

    #[test]
    fn maps_are_bounded_and_every_range_is_drawn() {
        let target = Target {
            image: ImageId {
                root: Some(0),
                snapshot: None,
                path: Vec::new(),
            },
            volume: None,
            path: "/".to_owned(),
        };
        for units in [0, 1, 5, 1024, 1025, 1_000_000] {
            let map = map(units);
            for (from, count) in [(0, u64::MAX), (3, 0), (u64::MAX, u64::MAX), (1000, 70)] {
                let text = drawn(&map, from, count, &target).into_string();
                let cells = text.matches("<rect").count() as u64;
                assert!(cells <= WIDTH * ROWS, "{units} {from} {count}");
            }
        }
        let cells = cells(&map(6), &(0..6), 2);
        assert_eq!(
            cells.iter().map(|cell| cell.stored).collect::<Vec<_>>(),
            [1, 1, 0]
        );
        assert_eq!(
            (cells[0].class(), cells[2].class()),
            ("cell-full", "cell-none")
        );
        let text = drawn(&map(7), 0, 7, &target).into_string();
        assert!(
            text.contains("band 6: 1 stored")
                && text.matches("last change 2023-11-14").count() == 1
        );
    }
}
