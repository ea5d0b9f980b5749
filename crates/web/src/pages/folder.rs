//! A folder of a volume, a page of entries at a time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bandsaw::Result as LibraryResult;
use bandsaw::fs::{Attributes, Entry, FileKind, FileSystem, FileSystemExt, UF_COMPRESSED};
use bandsaw::{Error, Kind};
use maud::{Markup, html};

use super::{layout, open_volume, refusal_in, restores, uploads, work};
use crate::app::{App, Target};
use crate::names::visible;
use crate::query::Fields;
use crate::reply::{Refusal, large_page};
use crate::request_checks::Visit;
use crate::text;

/// Most entries on a page.
pub(crate) const PER_PAGE: usize = 1000;
/// Entries of a folder up to which it is sorted by name if nothing is asked for: sorting reads all.
const SORTED: u64 = 20_000;
/// Bytes of memory of a page.
const MEMORY: usize = 3 << 20;

/// The order of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// That of the volume.
    Stored,
    Name,
    Size,
    Modified,
    Kind,
}

impl Order {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "stored" => Self::Stored,
            "name" => Self::Name,
            "size" => Self::Size,
            "modified" => Self::Modified,
            "kind" => Self::Kind,
            _ => return None,
        })
    }

    fn text(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
            Self::Kind => "kind",
        }
    }
}

/// The place of an entry in an order: two entries of a folder never have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    number: i128,
    folded: String,
    name: String,
}

impl SortKey {
    fn of(order: Order, at: u64, entry: &Entry) -> Self {
        let attributes = &entry.attributes;
        let number = match order {
            Order::Stored => i128::from(at),
            Order::Name => 0,
            Order::Size if attributes.kind == FileKind::Folder => -1,
            Order::Size => i128::from(attributes.size),
            Order::Modified => attributes.modified.map_or(i128::MIN, |time| {
                i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos)
            }),
            Order::Kind => match attributes.kind {
                FileKind::Folder => 0,
                FileKind::File => 1,
                FileKind::Symlink => 2,
                _ => 3,
            },
        };
        if order == Order::Stored {
            return Self {
                number,
                folded: String::new(),
                name: String::new(),
            };
        }
        Self {
            number,
            folded: entry.name.to_lowercase(),
            name: entry.name.clone(),
        }
    }

    /// Reads the place that a link holds.
    fn parse(query: &Fields) -> Option<Self> {
        let number = query.text("n")?.parse().ok()?;
        let name = std::str::from_utf8(query.bytes("after").unwrap_or_default()).ok()?;
        Some(Self {
            number,
            folded: name.to_lowercase(),
            name: name.to_owned(),
        })
    }
}

/// An entry with its place, which alone is compared.
struct Placed {
    place: SortKey,
    entry: Entry,
    is_reversed: bool,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.place.cmp(&other.place);
        if self.is_reversed {
            order.reverse()
        } else {
            order
        }
    }
}

/// The entries of one page.
struct Listing {
    entries: Vec<Placed>,
    order: Order,
    is_reversed: bool,
    /// True if entries follow.
    has_more: bool,
    /// True if there is a page before.
    is_later: bool,
    /// The number of entries of the folder, as the volume counts them.
    count: u64,
    /// True if the folder is large and nothing was asked for.
    is_unsorted: bool,
}

/// Reads the page of a folder that comes after a place. Only the entries of the page are held in
/// memory, however many the folder has.
fn read(
    fs: &dyn FileSystem,
    folder: &Attributes,
    asked: Option<Order>,
    is_reversed: bool,
    after: Option<&SortKey>,
) -> LibraryResult<Listing> {
    let is_unsorted = asked.is_none() && folder.size > SORTED;
    let order = asked.unwrap_or(if is_unsorted {
        Order::Stored
    } else {
        Order::Name
    });
    // The volume's own order cannot be reversed without reading all of it.
    let is_reversed = is_reversed && order != Order::Stored;
    let mut best: BinaryHeap<Placed> = BinaryHeap::with_capacity(PER_PAGE + 2);
    let (mut at, mut has_more) = (0_u64, false);
    fs.list(folder.id, &mut |entry| {
        at += 1;
        let is_before = |place: &SortKey| match after {
            None => false,
            Some(after) if is_reversed => place >= after,
            Some(after) => place <= after,
        };
        if order == Order::Stored {
            let place = SortKey::of(order, at, &entry);
            if is_before(&place) {
                return Ok(ControlFlow::Continue(()));
            }
            if best.len() == PER_PAGE {
                has_more = true;
                return Ok(ControlFlow::Break(()));
            }
            best.push(Placed {
                place,
                entry,
                is_reversed,
            });
            return Ok(ControlFlow::Continue(()));
        }
        let placed = Placed {
            place: SortKey::of(order, at, &entry),
            entry,
            is_reversed,
        };
        if is_before(&placed.place) {
            return Ok(ControlFlow::Continue(()));
        }
        if best.len() < PER_PAGE {
            best.push(placed);
        } else {
            has_more = true;
            if best.peek().is_some_and(|last| placed < *last) {
                best.pop();
                best.push(placed);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(Listing {
        entries: best.into_sorted_vec(),
        order,
        is_reversed,
        has_more,
        is_later: after.is_some(),
        count: folder.size,
        is_unsorted,
    })
}

/// Shows a folder.
pub(crate) async fn folder(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(MEMORY).await.ok_or_else(Refusal::busy)?;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let main = work(move || {
        let (image, fs) = open_volume(&shared, &shown, &of)?;
        let refused = |error: Error| refusal_in(&image, &error);
        let folder = fs.resolve(&of.path).map_err(refused)?;
        if folder.kind != FileKind::Folder {
            let error = Error::new(Kind::NotFound, "path", "not a folder").named(&*of.path);
            return Err(refused(error));
        }
        let asked = shown.query.text("sort").and_then(Order::parse);
        let is_reversed = shown.query.text("down").is_some();
        let after = SortKey::parse(&shown.query);
        let listing = read(&*fs, &folder, asked, is_reversed, after.as_ref()).map_err(refused)?;
        image.check().map_err(refused)?;
        Ok(html! {
            (breadcrumb(&of, &fs.volume().name))
            (tools(&of))
            (drawn(&listing, &of))
            (restores::form(&shared, &shown.session, &of))
            (uploads::volume_form(&shared, &shown.session, &of))
        })
    })
    .await?;
    let title = match target.name() {
        "" => "Volume".to_owned(),
        name => visible(name),
    };
    let markup = layout::page(&visit.session, &title, uploads::frame(&app), &main);
    Ok(large_page(markup, memory))
}

/// Returns the way from the image to the entry, with the name of the entry as the heading.
pub(crate) fn breadcrumb(target: &Target, volume: &str) -> Markup {
    let volume = if volume.is_empty() { "Volume" } else { volume };
    let mut parts = Vec::new();
    let mut path = String::new();
    for part in target.path.split('/').filter(|part| !part.is_empty()) {
        path.push('/');
        path.push_str(part);
        parts.push((part, target.at(&path)));
    }
    let last = parts.pop();
    let snapshot = target
        .volume
        .as_ref()
        .and_then(|volume| volume.snapshot.as_deref());
    html! {
        nav.crumbs aria-label="Path" { ul {
            li { a href=(target.address("image", &[])) { "Image" } }
            @if last.is_some() {
                li { a href=(target.at("/").address("folder", &[])) { (layout::name(volume)) } }
            }
            @for (part, above) in &parts {
                li { a href=(above.address("folder", &[])) { (layout::name(part)) } }
            }
        } }
        h1 { (layout::name(last.map_or(volume, |(part, _)| part))) }
        @if let Some(snapshot) = snapshot {
            p.note { "As of the snapshot " (layout::name(snapshot)) "." }
        }
    }
}

fn tools(target: &Target) -> Markup {
    html! {
        @if let Some(fields) = layout::hidden(target, &target.path) {
            form role="search" method="get" action="find" {
                (fields)
                label for="q" { "Search by name below this folder" } " "
                input #q type="search" name="q" required;
                " " button type="submit" { "Search" }
            }
        }
        (layout::links(&[
            (target.address("sizes", &[]), "Sizes"),
            (target.address("time", &[]), "Timeline"),
            (target.address("archive.zip", &[]), "Download as zip"),
            (target.address("archive.tar", &[]), "Download as tar"),
        ]))
        p.dim { (text::ZIP_NOTE) }
    }
}

fn drawn(listing: &Listing, target: &Target) -> Markup {
    let sort = listing.order.text();
    let link = |place: Option<&SortKey>| {
        let mut more: Vec<(&str, &[u8])> = vec![("sort", sort.as_bytes())];
        if listing.is_reversed {
            more.push(("down", b"1"));
        }
        let number = place.map(|place| place.number.to_string());
        if let (Some(place), Some(number)) = (place, &number) {
            more.push(("n", number.as_bytes()));
            more.push(("after", place.name.as_bytes()));
        }
        target.address("folder", &more)
    };
    let last = listing.entries.last().map(|placed| &placed.place);
    let pages = html! {
        @if listing.is_later || listing.has_more {
            nav aria-label="Pages" { ul {
                @if listing.is_later { li { a href=(link(None)) rel="first" { "First page" } } }
                @if listing.has_more { li { a href=(link(last)) rel="next" { "Next page" } } }
            } }
        }
    };
    html! {
        p.dim { (listing.count) " entries" @if listing.has_more || listing.is_later { ", " (listing.entries.len()) " on this page" } }
        @if listing.is_unsorted { p.note { (text::ONLY_ORDER) } }
        (pages)
        div.scroll tabindex="0" { table {
            thead { tr {
                (heading(listing, target, Order::Name, "Name", ""))
                (heading(listing, target, Order::Kind, "Kind", "wide"))
                (heading(listing, target, Order::Size, "Size", "number"))
                (heading(listing, target, Order::Modified, "Modified (UTC)", "wide"))
            } }
            tbody { @for placed in &listing.entries { (row(&placed.entry, target)) } }
        } }
        @if listing.entries.is_empty() { p { "The folder is empty." } }
        (pages)
    }
}

fn heading(listing: &Listing, target: &Target, order: Order, label: &str, class: &str) -> Markup {
    let is_current = listing.order == order;
    let mut more: Vec<(&str, &[u8])> = vec![("sort", order.text().as_bytes())];
    if is_current && !listing.is_reversed {
        more.push(("down", b"1"));
    }
    let sorted = match (is_current, listing.is_reversed) {
        (false, _) => None,
        (true, false) => Some("ascending"),
        (true, true) => Some("descending"),
    };
    html! {
        th class=(class) scope="col" aria-sort=[sorted] {
            a href=(target.address("folder", &more)) { (label) }
        }
    }
}

fn row(entry: &Entry, target: &Target) -> Markup {
    let attributes = &entry.attributes;
    let is_folder = attributes.kind == FileKind::Folder;
    let page = if is_folder { "folder" } else { "file" };
    let compressed = attributes.flags & UF_COMPRESSED != 0;
    html! {
        tr {
            td { a href=(target.child(&entry.name).address(page, &[])) { (layout::name(&entry.name)) } @if is_folder { "/" } }
            td.wide { (kind(attributes.kind)) @if compressed { ", compressed" } }
            td.number { @if is_folder { (attributes.size) " entries" } @else { (layout::bytes(attributes.size)) } }
            td.wide { @if let Some(time) = attributes.modified { (bandsaw::fs::Timestamp::from_seconds(time.seconds)) } }
        }
    }
}

/// Returns the word for a kind of object.
pub(crate) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Folder => "folder",
        FileKind::Symlink => "symbolic link",
        FileKind::Fifo => "FIFO",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}
