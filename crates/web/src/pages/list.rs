//! The list of images below the roots.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bandsaw::container::Format;
use bandsaw::device::Access;
use bandsaw::open::{KeyFile, Layer, NetworkOptions, trace};
use bandsaw::ops::usage::HostUsage;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind};
use bandsaw_registry::{Entry, Registry, Use};
use maud::{Markup, html};

use super::{layout, uploads, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::open_images::options;
use crate::query::address;
use crate::reply::{Refusal, page, see};
use crate::request_checks::Visit;
use crate::roots::{FoundImage, ImageId, Located};
use crate::text;

/// Images on a page: each is looked at.
const PER_PAGE: usize = 50;
/// Files of a bundle that are measured for the list.
const MAX_MEASURED: u64 = 20_000;

/// An image of the list.
struct Row {
    address: String,
    name: String,
    shown: String,
    kind: String,
    size: Option<u64>,
    allocated: Option<u64>,
    is_encrypted: Option<bool>,
    used_by: Option<String>,
    health: Markup,
}

/// Shows the images whose path contains the text of the query.
pub(crate) async fn list(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let wanted = visit.query.text("q").unwrap_or_default().to_owned();
    let at = visit.query.number("page").unwrap_or(1).max(1);
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let (searched, shared) = (wanted.clone(), app.clone());
    let (rows, search) = work(move || {
        let app = shared;
        let mut search = app.roots.search(&searched);
        let uses = Registry::of_user().and_then(|registry| registry.entries());
        let uses = uses.unwrap_or_default();
        let first = (at - 1).saturating_mul(PER_PAGE);
        let count = search.images.len();
        let shown = search.images.iter().skip(first).take(PER_PAGE);
        let rows: Vec<_> = shown.filter_map(|found| row(&app, found, &uses)).collect();
        search.images.truncate(0);
        Ok((rows, (count, search)))
    })
    .await?;
    let (count, search) = search;
    let pages = count.div_ceil(PER_PAGE);
    let main = html! {
        h1 { (text::IMAGES) }
        form role="search" method="get" action="./" {
            label for="q" { "Search by path" } " "
            input #q type="search" name="q" value=(wanted);
            " " button type="submit" { "Search" }
        }
        form method="get" action="go" {
            label for="a" { (open_label(&app)) } " "
            input #a type="text" name="a" required autocomplete="off" spellcheck="false";
            " " button type="submit" { "Open" }
        }
        @if search.is_cut { p.note role="status" { (text::CUT) } }
        @for folder in search.unreadable.iter().take(10) {
            p.note { "Cannot be read: " (layout::name(folder)) }
        }
        @if rows.is_empty() { p { (text::NO_IMAGES) } } @else { (table(&rows)) }
        @if pages > 1 {
            nav aria-label="Pages" { ul {
                @for number in 1..=pages {
                    li {
                        @if number == at { span aria-current="page" { (number) } }
                        @else {
                            a href=(address("./", &[("q", wanted.as_bytes()), ("page", number.to_string().as_bytes())])) { (number) }
                        }
                    }
                }
            } }
        }
        (uploads::folder_form(&app, &visit.session))
        @if app.permissions.changes || app.uploads.paths().next().is_some() {
            p { a href="log" { (text::LOG) } }
        }
    };
    let markup = layout::page(&visit.session, text::IMAGES, uploads::frame(&app), &main);
    Ok(page(StatusCode::OK, markup))
}

fn open_label(app: &App) -> &'static str {
    match app.roots.urls().prefixes.is_empty() {
        true => text::OPEN_PATH,
        false => text::OPEN_PATH_OR_URL,
    }
}

/// Leads to the image that a visitor names by a path or URL.
pub(crate) async fn go(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let named = visit.query.text("a").unwrap_or_default().to_owned();
    let id = work(move || Ok(app.roots.named(&named)?)).await?;
    Ok(see(&Target::of_image(id).address("image", &[])))
}

fn table(rows: &[Row]) -> Markup {
    html! {
        div.scroll tabindex="0" { table {
            thead { tr {
                th scope="col" { "Name" } th scope="col" { "Kind" }
                th.number scope="col" { "Size" } th.number scope="col" { "Allocated" }
                th scope="col" { "Encrypted" } th scope="col" { "In use" } th scope="col" { "Health" }
            } }
            tbody { @for row in rows {
                tr {
                    td { a href=(row.address) { (layout::name(&row.name)) } br; span.dim { (layout::name(&row.shown)) } }
                    td { (row.kind) }
                    td.number { @if let Some(size) = row.size { (layout::bytes(size)) } @else { "–" } }
                    td.number { @if let Some(size) = row.allocated { (layout::bytes(size)) } @else { "–" } }
                    td { (match row.is_encrypted { Some(true) => "yes", Some(false) => "no", None => "unknown" }) }
                    td { @if let Some(user) = &row.used_by { (user) } @else { "no" } }
                    td { (row.health) }
                }
            } }
        } }
    }
}

fn row(app: &App, found: &FoundImage, uses: &[Entry]) -> Option<Row> {
    // It may have gone since it was found.
    let located = app.locate(&found.id).ok()?;
    let path = located.path();
    let header = KeyFile::open(&path, Access::ReadOnly, NetworkOptions::default());
    let is_encrypted = header.as_ref().ok().map(Option::is_some);
    let (kind, size, stopped) = kind(&located);
    let target = Target::of_image(found.id.clone());
    Some(Row {
        address: target.address("image", &[]),
        name: found.name.clone(),
        shown: found.shown.clone(),
        kind,
        size,
        allocated: allocated(&located),
        is_encrypted,
        used_by: user(&located, uses),
        health: health(app, &found.id, &located, stopped.as_ref()),
    })
}

/// Returns the result of the last check of an image, or what opening it has shown.
pub(crate) fn health(
    app: &App,
    id: &ImageId,
    located: &Located,
    stopped: Option<&Error>,
) -> Markup {
    if let Some(health) = app.health.of(id, located) {
        let class = if health.is_sound { "good" } else { "bad" };
        return html! { span class=(class) { (health.conclusion) } " " span.dim { "(" (health.at) ")" } };
    }
    match stopped.map(Error::kind) {
        None => html! { (text::UNKNOWN_HEALTH) },
        Some(Kind::WrongKey) => html! { (text::LOCKED_HEALTH) },
        Some(Kind::Corrupt | Kind::Undecided) => html! { span.bad { (text::DAMAGED) } },
        Some(_) => html! { (text::UNREADABLE) },
    }
}

/// Returns the format and the length of the disk, as far as they are known without a key, and the
/// error that stopped the opening.
fn kind(located: &Located) -> (String, Option<u64>, Option<Error>) {
    let (layers, stopped) = trace(&located.path(), &options(None));
    let format = layers.iter().find_map(Layer::format);
    let disk = layers.iter().rev().find_map(Layer::disk);
    let size = disk.map(|disk| disk.info().len);
    let kind = match (format, &stopped) {
        (Some(format), _) => described(format),
        (None, Some(_)) if layers.iter().any(Layer::is_secret) => "encrypted image".to_owned(),
        (None, Some(error)) => visible(error.message()),
        (None, None) => "unknown".to_owned(),
    };
    (kind, size, stopped)
}

/// Returns the name of a format.
pub(crate) fn described(format: Format) -> String {
    format!("{} ({format})", format.description())
}

/// Ends a measurement after a number of files.
struct Bounded(std::sync::atomic::AtomicU64);

impl Progress for Bounded {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, n: u64) {
        self.0.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
    }
    fn cancelled(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed) > MAX_MEASURED
    }
}

fn allocated(located: &Located) -> Option<u64> {
    located.allocated().or_else(|| {
        let progress = Bounded(std::sync::atomic::AtomicU64::new(0));
        let usage = HostUsage::of(&located.path(), &progress).ok()?;
        Some(usage.allocated)
    })
}

/// Returns the program that has an image in use, if it is one of Bandsaw.
pub(crate) fn user(located: &Located, uses: &[Entry]) -> Option<String> {
    let shown = bandsaw::address::shown(located.shown());
    let real = |path: &std::path::Path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        bandsaw::address::shown(real)
    };
    let uses_it = |entry: &&Entry| {
        std::iter::once(&entry.image)
            .chain(&entry.layers)
            .any(|path| real(path) == shown)
    };
    let entry = uses.iter().find(uses_it)?;
    let how = match entry.used {
        Use::Served => "served",
        Use::Mounted => "mounted",
        Use::Attached => "attached",
    };
    let access = if entry.read_only { ", read-only" } else { "" };
    Some(format!("{how} by process {}{access}", entry.process))
}
