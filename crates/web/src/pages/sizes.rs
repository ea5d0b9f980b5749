//! The sizes of the entries of a folder with all that is in them, as areas.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use bandsaw::fs::{Entry, FileKind, FileSystem, FileSystemExt, NodeId};
use bandsaw::{Result as LibraryResult, size};
use maud::{Markup, html};

use super::folder::breadcrumb;
use super::layout::{self, Frame};
use super::{open_volume, refusal_in, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::open_images::OpenImage;
use crate::reply::{Refusal, large_page};
use crate::request_checks::Visit;
use crate::text;
use crate::treemap::{Area, divide};

/// Entries that are shown by themselves; the smaller ones are shown together.
const MAX_SHOWN: usize = 200;
/// Entries of the folder, and objects below it, that are measured.
const MAX_ENTRIES: usize = 50_000;
const MAX_OBJECTS: usize = 500_000;
/// Time that the measurement may take.
const MAX_TIME: Duration = Duration::from_secs(60);
/// Bytes of memory of the measurement.
const MEMORY: usize = 32 << 20;
/// Size of the picture, in units of its own.
const WHOLE: Area = Area {
    x: 0.0,
    y: 0.0,
    width: 160.0,
    height: 90.0,
};

/// An entry with the storage of all that is in it.
struct Measured {
    name: String,
    is_folder: bool,
    allocated: u64,
}

/// The entries of a folder, the largest first.
#[derive(Default)]
struct Sizes {
    entries: Vec<Measured>,
    /// True if limits ended the measurement.
    is_cut: bool,
}

fn measure(fs: &dyn FileSystem, folder: NodeId, image: &OpenImage) -> LibraryResult<Sizes> {
    let end = Instant::now() + MAX_TIME;
    let mut sizes = Sizes::default();
    // A folder that contains itself, and further names of a file, count once.
    let mut seen = HashSet::from([folder]);
    let mut ahead: Vec<(usize, NodeId)> = Vec::new();
    fs.list(folder, &mut |Entry { name, attributes }| {
        if sizes.entries.len() >= MAX_ENTRIES {
            sizes.is_cut = true;
            return Ok(ControlFlow::Break(()));
        }
        if !seen.insert(attributes.id) {
            return Ok(ControlFlow::Continue(()));
        }
        let is_folder = attributes.kind == FileKind::Folder;
        if is_folder {
            ahead.push((sizes.entries.len(), attributes.id));
        }
        sizes.entries.push(Measured {
            name,
            is_folder,
            allocated: attributes.allocated,
        });
        Ok(ControlFlow::Continue(()))
    })?;
    while let Some((of, folder)) = ahead.pop() {
        image.check()?;
        let mut sum = 0_u64;
        fs.list(folder, &mut |entry| {
            if seen.len() >= MAX_OBJECTS || Instant::now() >= end {
                sizes.is_cut = true;
                return Ok(ControlFlow::Break(()));
            }
            if seen.insert(entry.attributes.id) {
                sum = sum.saturating_add(entry.attributes.allocated);
                if entry.attributes.kind == FileKind::Folder {
                    ahead.push((of, entry.attributes.id));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(entry) = sizes.entries.get_mut(of) {
            entry.allocated = entry.allocated.saturating_add(sum);
        }
        if sizes.is_cut {
            break;
        }
    }
    sizes.entries.sort_by(|a, b| {
        b.allocated
            .cmp(&a.allocated)
            .then_with(|| a.name.cmp(&b.name))
    });
    Ok(sizes)
}

/// Shows the sizes of the entries of a folder.
pub(crate) async fn sizes(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let main = work(move || {
        let (image, fs) = open_volume(&shared, &shown, &of)?;
        let measured = fs
            .resolve(&of.path)
            .and_then(|folder| measure(&*fs, folder.id, &image));
        let sizes = measured.map_err(|error| refusal_in(&image, &error))?;
        Ok(html! {
            (breadcrumb(&of, &fs.volume().name))
            (layout::links(&[(of.address("folder", &[]), "Entries")]))
            (drawn(&sizes, &of))
        })
    })
    .await?;
    let markup = layout::page(&visit.session, "Sizes", Frame::default(), &main);
    Ok(large_page(markup, memory))
}

fn drawn(sizes: &Sizes, target: &Target) -> Markup {
    let total = sizes
        .entries
        .iter()
        .map(|entry| entry.allocated)
        .fold(0, u64::saturating_add);
    let shown = sizes.entries.iter().take(MAX_SHOWN);
    let others = sizes
        .entries
        .iter()
        .skip(MAX_SHOWN)
        .map(|entry| entry.allocated);
    let others = others.fold(0, u64::saturating_add);
    let mut values: Vec<_> = shown.clone().map(|entry| entry.allocated).collect();
    values.push(others);
    let areas = divide(&values, WHOLE);
    html! {
        p { "Storage of the entries with all that is in them: " (layout::bytes(total)) "." }
        @if sizes.is_cut { p.note { (text::NOT_ALL_MEASURED) } }
        svg.map role="group" aria-label="Sizes" viewBox={ "0 0 " (WHOLE.width) " " (WHOLE.height) } xmlns="http://www.w3.org/2000/svg" {
            @for (number, area) in areas.iter().enumerate() {
                (drawn_area(sizes.entries.get(number).filter(|_| number < MAX_SHOWN), others, area, target))
            }
        }
        div.scroll tabindex="0" { table {
            thead { tr {
                th scope="col" { "Name" } th.number scope="col" { "Storage" } th.number scope="col" { "Share" }
            } }
            tbody {
                @for entry in shown {
                    tr {
                        td { a href=(address(entry, target)) { (layout::name(&entry.name)) } @if entry.is_folder { "/" } }
                        td.number { (layout::bytes(entry.allocated)) }
                        td.number { (size::percent(entry.allocated, total)) }
                    }
                }
                @if sizes.entries.len() > MAX_SHOWN {
                    tr {
                        td { (sizes.entries.len() - MAX_SHOWN) " smaller ones" }
                        td.number { (layout::bytes(others)) } td.number { (size::percent(others, total)) }
                    }
                }
            }
        } }
    }
}

/// Returns the address of a folder's sizes, or of a file.
fn address(entry: &Measured, target: &Target) -> String {
    let page = if entry.is_folder { "sizes" } else { "file" };
    target.child(&entry.name).address(page, &[])
}

fn drawn_area(entry: Option<&Measured>, others: u64, area: &Area, target: &Target) -> Markup {
    let (label, class) = match entry {
        Some(entry) => {
            let label = format!(
                "{}: {}",
                visible(&entry.name),
                size::display(entry.allocated)
            );
            (
                label,
                if entry.is_folder {
                    "cell-full"
                } else {
                    "cell-part"
                },
            )
        }
        None => (
            format!("smaller ones: {}", size::display(others)),
            "cell-none",
        ),
    };
    let number = |value: f64| format!("{value:.3}");
    // A line of the background separates the areas.
    let rect = html! {
        rect class=(class) x=(number(area.x)) y=(number(area.y))
            width=(number((area.width - 0.3).max(0.05))) height=(number((area.height - 0.3).max(0.05))) {
            title { (label) }
        }
    };
    match entry {
        Some(entry) => html! { a href=(address(entry, target)) aria-label=(label) { (rect) } },
        None => rect,
    }
}
