//! An HTML page about an image: its layers, its usage, and possible improvements. It needs no
//! network and runs no scripts but its own. `bandsaw report`.

pub mod html;

use std::fmt::Write as _;
use std::path::PathBuf;

use super::advise::{Place, advise};
use super::describe::layer_facts;
use super::space::{SpaceMap, UnitUsage};
use super::usage::{ImageUsage, VolumeSpace};
use crate::Result;
use crate::address::{redacted, shown};
use crate::open::Image;
use crate::progress::Progress;
use crate::size::{self, counted};
use html::escape;

/// Largest number of cells in the map; several units share one if there are more.
const MAX_CELLS: u64 = 1 << 16;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("map.js");

/// Returns the page about an open image, which is only read.
pub fn html(image: &Image, progress: &dyn Progress) -> Result<String> {
    let usage = ImageUsage::of(image, None, progress)?;
    let mut page = ReportPage(String::new());
    let path = PathBuf::from(redacted(&shown(image.path())).into_owned());
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    page.head(&name);
    page.sizes(image, &usage);
    page.layers(image);
    page.partitions(image);
    page.volumes(&usage);
    if let Some(map) = &usage.map {
        page.map(map);
        page.compaction(map);
        page.band_sizes(image, map, &usage);
    }
    page.foot(usage.map.as_ref());
    Ok(page.0)
}

/// A page being built.
struct ReportPage(String);

fn exact(bytes: u64) -> String {
    format!("{:#}", size::display(bytes))
}

impl ReportPage {
    fn add(&mut self, html: impl AsRef<str>) {
        self.0.push_str(html.as_ref());
        self.0.push('\n');
    }

    fn head(&mut self, name: &str) {
        let name = escape(name);
        self.add("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
        self.add("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">");
        // The page loads nothing, whatever the image contains.
        self.add(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'\">",
        );
        self.add("<meta name=\"color-scheme\" content=\"light dark\">");
        self.add(format!("<title>{name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>"));
    }

    /// Adds a table of names and values.
    fn facts(&mut self, rows: &[(&str, String)]) {
        self.add("<dl>");
        for (name, value) in rows {
            self.add(format!(
                "<dt>{}</dt><dd>{}</dd>",
                escape(name),
                escape(value)
            ));
        }
        self.add("</dl>");
    }

    /// Adds a table that scrolls if it is too wide.
    fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) {
        let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
            cells
                .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)))
                .collect::<String>()
        };
        self.add(format!(
            "<div class=\"wide\" tabindex=\"0\"><table>\n<tr>{}</tr>",
            cells("th", &mut heading.iter().copied())
        ));
        for row in rows {
            self.add(format!(
                "<tr>{}</tr>",
                cells("td", &mut row.iter().map(String::as_str))
            ));
        }
        self.add("</table></div>");
    }

    fn sizes(&mut self, image: &Image, usage: &ImageUsage) {
        let percent = size::percent(usage.host.allocated, usage.disk);
        self.facts(&[
            (
                "Image",
                redacted(&image.path().display().to_string()).into_owned(),
            ),
            (
                "Format",
                format!("{}, {}", usage.format, usage.format.description()),
            ),
            ("Disk", exact(usage.disk)),
            (
                "On disk",
                format!("{}, {percent} of the disk", exact(usage.host.allocated)),
            ),
            (
                "Files",
                match (usage.host.files, usage.host.folders) {
                    (1, 0) => "one".to_owned(),
                    (files, folders) => format!(
                        "{} in {}",
                        counted(files, "file", "files"),
                        counted(folders, "folder", "folders")
                    ),
                },
            ),
            ("Compaction would free", exact(usage.returns())),
        ]);
    }

    fn layers(&mut self, image: &Image) {
        self.add("<h2>Layers</h2>\n<ol class=\"layers\">");
        let layers = image
            .layers()
            .iter()
            .filter(|layer| layer.volumes().is_none());
        for (name, facts) in layers.flat_map(layer_facts) {
            let text = format!("{name}: {facts}");
            self.add(format!("<li>{}</li>", escape(&text)));
        }
        self.add("</ol>");
    }

    fn partitions(&mut self, image: &Image) {
        let Some(map) = image.partitions() else {
            return;
        };
        self.add("<h2>Partitions</h2>");
        let row = |partition: &crate::partition::Partition| {
            vec![
                partition.number.to_string(),
                partition.kind.clone(),
                partition.name.clone(),
                partition.range.start.to_string(),
                exact(partition.range.end - partition.range.start),
            ]
        };
        let rows: Vec<_> = map.partitions.iter().map(row).collect();
        self.table(&["Number", "Type", "Name", "Offset", "Size"], &rows);
    }

    fn volumes(&mut self, usage: &ImageUsage) {
        self.add("<h2>Volumes</h2>");
        let row = |volume: &super::usage::VolumeUsage| {
            let name = volume
                .info
                .as_ref()
                .map_or_else(|error| error.message().to_owned(), |info| info.name.clone());
            let total = |bytes: fn(&VolumeSpace) -> u64| {
                volume
                    .space
                    .as_ref()
                    .map_or_else(String::new, |space| exact(bytes(space)))
            };
            let (used, pending, free) = (
                total(|space| space.used),
                total(|space| space.pending),
                total(|space| space.free),
            );
            let trimmed = volume
                .refused
                .as_ref()
                .map_or_else(|| "yes".to_owned(), |error| error.message().to_owned());
            vec![
                volume.place.clone(),
                volume.format.to_string(),
                name,
                used,
                pending,
                free,
                trimmed,
            ]
        };
        let rows: Vec<_> = usage.volumes.iter().map(row).collect();
        self.table(
            &[
                "Place",
                "Format",
                "Name",
                "Used",
                "Pending",
                "Free",
                "Free space can be returned",
            ],
            &rows,
        );
    }

    fn map(&mut self, map: &SpaceMap) {
        let (one, many) = map.kind.words();
        self.add(format!("<h2>Map of {many}</h2>"));
        let per_cell = per_cell(map);
        let shared = if per_cell > 1 {
            format!(" Each cell is {per_cell} {many}.")
        } else {
            String::new()
        };
        self.add(format!(
            "<p>{} of {} {many} of {} each are stored.{shared} Zoom with the wheel, two fingers or the buttons; drag to move. The \
             line below the map describes the cell under the pointer.</p>",
            map.units.len(),
            map.count(),
            exact(map.size)
        ));
        self.add(
            "<p class=\"buttons\"><button id=\"in\" type=\"button\">Zoom in</button> \
             <button id=\"out\" type=\"button\">Zoom out</button> <button id=\"all\" type=\"button\">Show all</button></p>",
        );
        self.add(format!(
            "<canvas id=\"map\" tabindex=\"0\" role=\"img\" aria-label=\"Map of the {many} of the disk\"></canvas>"
        ));
        self.add(format!(
            "<p id=\"told\" role=\"status\">Point at a {one}.</p>"
        ));
        let legend = [
            ("absent", "not stored", map.count_of(UnitUsage::Absent)),
            ("full", "in use", map.count_of(UnitUsage::Full)),
            ("partly", "partly free", map.count_of(UnitUsage::PartlyFree)),
            ("free", "completely free", map.count_of(UnitUsage::Free)),
            ("stray", "stray files", map.stray.len() as u64),
        ];
        self.add("<ul class=\"legend\">");
        for (class, what, count) in legend {
            self.add(format!(
                "<li><span class=\"{class}\"></span>{what}: {count}</li>"
            ));
        }
        self.add("</ul>");
        if !map.stray.is_empty() {
            let rows: Vec<_> = map
                .stray
                .iter()
                .take(100)
                .map(|file| vec![file.name.clone(), exact(file.allocated)])
                .collect();
            self.table(&["Stray file", "On disk"], &rows);
        }
    }

    fn compaction(&mut self, map: &SpaceMap) {
        let (_, many) = map.kind.words();
        let (whole, parts) = map.returns();
        let (free_whole, free_parts) = map.free_storage();
        let kept = (free_whole + free_parts).saturating_sub(whole + parts);
        self.add("<h2>What compaction would free</h2>");
        self.facts(&[
            ("Allocated now", exact(map.allocated())),
            (
                "In free units",
                format!("{} in {many} that are completely free", exact(whole)),
            ),
            (
                "In parts of others",
                format!("{} in {many} that are partly free", exact(parts)),
            ),
            (
                "Allocated afterwards",
                exact(map.allocated().saturating_sub(whole + parts)),
            ),
        ]);
        if kept > 0 {
            let kept = exact(kept);
            self.add(format!("<p>{kept} more are free but stay allocated: this host is not known to support holes in files.</p>"));
        }
    }

    fn band_sizes(&mut self, image: &Image, map: &SpaceMap, usage: &ImageUsage) {
        if image.bundle().is_none() {
            return;
        }
        self.add("<h2>What another band size would change</h2>");
        let used = map
            .units
            .iter()
            .map(|unit| map.size - unit.free.min(map.size))
            .sum();
        let mut rows = Vec::new();
        for place in Place::ALL {
            let advice = advise(usage.disk, Some(used), place);
            for choice in advice.choices {
                let best = if choice.band_size == advice.band_size {
                    "advised"
                } else {
                    ""
                };
                let now = if choice.band_size == map.size {
                    "now"
                } else {
                    ""
                };
                let notes = [best, now]
                    .into_iter()
                    .filter(|note| !note.is_empty())
                    .collect::<Vec<_>>()
                    .join(", ");
                rows.push(vec![
                    place.to_string(),
                    exact(choice.band_size),
                    choice.bands.to_string(),
                    files(map, choice.band_size).to_string(),
                    notes,
                ]);
            }
        }
        self.table(
            &["On", "Band size", "Files when full", "Files now", ""],
            &rows,
        );
    }

    fn foot(&mut self, map: Option<&SpaceMap>) {
        self.add("</main>");
        if let Some(map) = map {
            let cells = cells(map);
            self.add(format!(
                "<script type=\"application/json\" id=\"data\">{cells}</script>"
            ));
            self.add(format!("<script>\n{SCRIPT}</script>"));
        }
        self.add("</body>\n</html>");
    }
}

/// Returns the number of band files with bands of `size` bytes, estimated from the present ones.
fn files(map: &SpaceMap, size: u64) -> u64 {
    let (mut files, mut last) = (0, None);
    for unit in map
        .units
        .iter()
        .filter(|unit| map.fill(unit) != UnitUsage::Free)
    {
        let start = unit.index * map.size;
        let (first, end) = (
            start / size,
            (start + map.size.min(map.disk - start)).div_ceil(size),
        );
        let first = last.map_or(first, |last: u64| first.max(last));
        files += end.saturating_sub(first);
        last = Some(end.max(first));
    }
    files
}

fn per_cell(map: &SpaceMap) -> u64 {
    map.count().div_ceil(MAX_CELLS).max(1)
}

/// Returns the map as JSON: the word for a unit, the size of a cell in bytes, that of the disk,
/// units per cell, and the number of cells; then for each cell with storage its index, bytes of
/// storage, free bytes, bytes that compaction frees, and units with storage.
fn cells(map: &SpaceMap) -> String {
    let per_cell = per_cell(map);
    let mut cells: Vec<[u64; 5]> = Vec::new();
    for unit in &map.units {
        let at = unit.index / per_cell;
        if cells.last().is_none_or(|cell| cell[0] != at) {
            cells.push([at, 0, 0, 0, 0]);
        }
        if let Some(cell) = cells.last_mut() {
            for (sum, more) in
                cell[1..]
                    .iter_mut()
                    .zip([unit.allocated, unit.free, unit.returns, 1])
            {
                *sum += more;
            }
        }
    }
    let mut text = format!(
        "{{\"word\":\"{}\",\"cell\":{},\"disk\":{},\"units\":{per_cell},\"count\":{},\"cells\":[",
        map.kind.words().0,
        map.size.saturating_mul(per_cell),
        map.disk,
        map.count().div_ceil(per_cell)
    );
    for (number, [at, allocated, free, returns, stored]) in cells.into_iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let _ = write!(text, "{comma}[{at},{allocated},{free},{returns},{stored}]");
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::space::{Unit, UnitKind};

    fn map(size: u64, disk: u64, stored: &[(u64, u64)]) -> SpaceMap {
        let unit = |&(index, free): &(u64, u64)| Unit {
            index,
            allocated: size,
            free,
            returns: free,
            changed: None,
        };
        let units = stored.iter().map(unit).collect();
        SpaceMap {
            kind: UnitKind::Band,
            size,
            disk,
            units,
            stray: Vec::new(),
            unused: 0,
            can_punch: true,
        }
    }

    #[test]
    fn files_of_other_bands_are_counted() {
        let map = map(8, 100, &[(0, 0), (1, 0), (4, 8), (12, 0)]);
        assert_eq!(
            [4, 8, 16, 64, 128].map(|size| files(&map, size)),
            [5, 3, 2, 2, 1]
        );
    }

    #[test]
    fn many_bands_share_cells() {
        let map = map(
            1 << 20,
            (1 << 20) << 18,
            &[(0, 0), (3, 5), (4, 0), (200_000, 1)],
        );
        assert!(cells(&map).starts_with("{\"word\":\"band\",\"cell\":4194304,"));
        assert!(
            cells(&map).ends_with("[[0,2097152,5,5,2],[1,1048576,0,0,1],[50000,1048576,1,1,1]]}")
        );
    }
}
