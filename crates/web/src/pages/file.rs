//! A file: its details, and a preview of its contents.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use bandsaw::decmpfs::Place;
use bandsaw::device::ExtentKind;
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, RESOURCE_FORK};
use bandsaw::ops::compress::FileUsage;
use bandsaw::{Error, Result as LibraryResult};
use maud::{Markup, html};

use super::folder::{breadcrumb, kind};
use super::layout::{self, Frame};
use super::preview::Preview;
use super::{open_volume, refusal_in, restores, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::open_images::OpenImage;
use crate::reply::{FRAMING_POLICY, Refusal, large_page, set};
use crate::request_checks::Visit;

/// Attributes and extents that are listed.
const MAX_LISTED: usize = 200;
/// Bytes of memory of the details, most of them for the preview.
const MEMORY: usize = 8 << 20;

/// Shows the details of a file, and a preview of its contents.
pub(crate) async fn details(
    State(app): State<Arc<App>>,
    visit: Visit,
) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let (main, is_framed) = work(move || {
        let (image, fs) = open_volume(&shared, &shown, &of)?;
        let refused = |error: Error| refusal_in(&image, &error);
        let file = fs.resolve(&of.path).map_err(refused)?;
        let (preview, is_framed) = preview(&*fs, &of, &file, &image);
        let main = html! {
            (breadcrumb(&of, &fs.volume().name))
            (actions(&of, &file))
            (preview)
            h2 { "Details" }
            (facts(&*fs, &file).map_err(refused)?)
            (attributes(&*fs, &file).map_err(refused)?)
            (extents(&*fs, &file, &image))
            (restores::form(&shared, &shown.session, &of))
        };
        image.check().map_err(refused)?;
        Ok((main, is_framed))
    })
    .await?;
    let title = visible(target.name());
    let markup = layout::page(&visit.session, &title, Frame::default(), &main);
    let mut response = large_page(markup, memory);
    if is_framed {
        set(
            &mut response,
            header::CONTENT_SECURITY_POLICY,
            FRAMING_POLICY,
        );
    }
    Ok(response)
}

fn actions(target: &Target, file: &Attributes) -> Markup {
    if file.kind != FileKind::File {
        return html! {};
    }
    let mut links = vec![
        (target.address("raw", &[]), "Download"),
        (target.address("hex", &[]), "Hexadecimal"),
    ];
    if file.resource_size > 0 {
        links.push((
            target.address("raw", &[("fork", b"resource")]),
            "Download the resource fork",
        ));
        links.push((
            target.address("hex", &[("fork", b"resource")]),
            "Hexadecimal resource fork",
        ));
    }
    links.push((target.address("time", &[]), "Versions"));
    layout::links(&links)
}

/// Returns the preview of a file, and true if it is in a frame.
fn preview(
    fs: &dyn FileSystem,
    target: &Target,
    file: &Attributes,
    image: &OpenImage,
) -> (Markup, bool) {
    if file.kind != FileKind::File {
        return (html! {}, false);
    }
    match Preview::of(fs, file, target) {
        Ok(preview) => (preview.markup(), preview.is_framed()),
        Err(error) => {
            let message = visible(&image.located().message(&error));
            let markup = html! {
                p.bad role="alert" { "The contents cannot be read: " (message) }
            };
            (markup, false)
        }
    }
}

fn facts(fs: &dyn FileSystem, file: &Attributes) -> LibraryResult<Markup> {
    let times = [
        ("Modified", file.modified),
        ("Created", file.created),
        ("Attributes changed", file.changed),
        ("Last access", file.accessed),
        ("Last backup", file.backed_up),
    ];
    Ok(html! {
        dl {
            (layout::fact("Kind", &html! { (kind(file.kind)) }))
            @if file.kind == FileKind::Symlink {
                (layout::fact("Target", &layout::name(&fs.read_link(file.id)?)))
            }
            (layout::fact("Data fork", &layout::bytes(file.size)))
            (layout::fact("Resource fork", &layout::bytes(file.resource_size)))
            (layout::fact("Allocated", &layout::bytes(file.allocated)))
            (layout::fact("Permissions", &html! { (format!("{:04o}", file.mode)) }))
            (layout::fact("Owner and group", &html! { (file.uid) ", " (file.gid) }))
            (layout::fact("Names", &html! { (file.links) }))
            (layout::fact("Flags", &html! { (format!("{:#x}", file.flags)) }))
            (layout::fact("Number", &html! { (file.id.0) }))
            @for (name, time) in times {
                @if let Some(time) = time { (layout::fact(name, &html! { (time) })) }
            }
            (compression(fs, file)?)
        }
    })
}

fn compression(fs: &dyn FileSystem, file: &Attributes) -> LibraryResult<Markup> {
    if file.kind != FileKind::File {
        return Ok(html! {});
    }
    let usage = FileUsage::of(fs, file)?;
    let Some(compression) = usage.compression else {
        return Ok(layout::fact("Compression", &html! { "none" }));
    };
    let method = compression.method().map(|(method, place)| {
        let place = match place {
            Place::Attribute => "in an attribute",
            Place::Fork => "in the resource fork",
            Place::Nowhere => "not stored: all zeros",
            Place::Server => "on a server",
        };
        format!("{method}, {place}")
    });
    let method = method.unwrap_or_else(|| format!("unknown type {}", compression.number));
    Ok(html! {
        (layout::fact("Compression", &html! { (method) }))
        (layout::fact("Stored", &layout::bytes(usage.stored)))
        (layout::fact("Saved", &html! { (format!("{:.1} %", usage.saving_percent())) }))
    })
}

fn attributes(fs: &dyn FileSystem, file: &Attributes) -> LibraryResult<Markup> {
    let names = fs.xattrs(file.id)?;
    let mut rows = Vec::new();
    for name in names
        .iter()
        .filter(|name| *name != RESOURCE_FORK)
        .take(MAX_LISTED)
    {
        let length = fs.xattr(file.id, name)?.map(|value| value.info().len);
        rows.push((name, length));
    }
    Ok(html! {
        @if !rows.is_empty() {
            h2 { "Extended attributes (" (names.len()) ")" }
            div.scroll tabindex="0" { table {
                thead { tr { th scope="col" { "Name" } th.number scope="col" { "Length" } } }
                tbody { @for (name, length) in rows {
                    tr {
                        td { (layout::name(name)) }
                        td.number { @if let Some(length) = length { (layout::bytes(length)) } @else { "–" } }
                    }
                } }
            } }
        }
    })
}

fn extents(fs: &dyn FileSystem, file: &Attributes, image: &OpenImage) -> Markup {
    if file.kind != FileKind::File || file.size == 0 {
        return html! {};
    }
    let (mut runs, mut at) = (Vec::new(), 0);
    let walked = fs.open(file.id, Fork::Data).and_then(|contents| {
        let length = contents.info().len;
        while at < length && runs.len() < MAX_LISTED {
            let extent = contents.extent_at(at..length)?;
            let kind = match extent.kind {
                ExtentKind::Hole => "hole",
                ExtentKind::Zero => "zeros",
                ExtentKind::Data => "data",
            };
            runs.push((at, extent.len, kind));
            at = at.saturating_add(extent.len.max(1));
        }
        Ok(at < length)
    });
    html! {
        h2 { "Extents" }
        div.scroll tabindex="0" { table {
            thead { tr { th.number scope="col" { "Offset" } th.number scope="col" { "Length" } th scope="col" { "Kind" } } }
            tbody { @for (at, length, kind) in &runs {
                tr { td.number { (at) } td.number { (layout::bytes(*length)) } td { (kind) } }
            } }
        } }
        @match walked {
            Ok(true) => p.dim { "The first " (MAX_LISTED) " are listed." },
            Ok(false) => "",
            Err(error) => p.bad role="alert" { (visible(&image.located().message(&error))) },
        }
    }
}
