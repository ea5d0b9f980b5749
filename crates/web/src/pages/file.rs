//! A file: its details, its contents, and folders as archives.

use std::ops::Range;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bandsaw::decmpfs::Place;
use bandsaw::device::{BlockDevice, ExtentKind};
use bandsaw::fs::{Attributes, FileKind, FileSystem, FileSystemExt, Fork, RESOURCE_FORK};
use bandsaw::ops::compress::FileUsage;
use bandsaw::{Error, Kind, Result as LibraryResult};
use maud::{Markup, html};

use super::folder::{breadcrumb, kind};
use super::layout::{self, Frame};
use super::preview::{Media, Preview};
use super::{open_volume, refusal_in, restores, work};
use crate::app::{App, Target};
use crate::archive;
use crate::names::{disposition, visible};
use crate::open_images::OpenImage;
use crate::range::RequestedRange;
use crate::reply::{CONTENT_POLICY, DOCUMENT_POLICY, FRAMING_POLICY, Refusal, large_page, set};
use crate::request_checks::Visit;
use crate::session::Session;
use crate::stream::{self, ArchiveSink};
use crate::text;

/// Attributes and extents that are listed.
const MAX_LISTED: usize = 200;
/// Bytes of memory for an entry in the directory of a zip archive.
const DIRECTORY_ENTRY: usize = 400;
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

/// Returns the fork that a query names.
pub(crate) fn fork(visit: &Visit) -> Fork {
    match visit.query.text("fork") {
        Some("resource") => Fork::Resource,
        _ => Fork::Data,
    }
}

/// A fork of a file, in an image that is kept open.
pub(crate) struct OpenFile {
    pub(crate) image: Arc<OpenImage>,
    pub(crate) attributes: Attributes,
    pub(crate) contents: Arc<dyn BlockDevice>,
}

/// Opens the fork of a file that a query names.
pub(crate) fn contents(app: &App, visit: &Visit, target: &Target) -> Result<OpenFile, Refusal> {
    let (image, fs) = open_volume(app, visit, target)?;
    let opened = fs.resolve(&target.path).and_then(|file| {
        if file.kind != FileKind::File {
            let error = Error::new(Kind::NotFound, "path", "not a file");
            return Err(error.named(&*target.path));
        }
        let contents = fs.open(file.id, fork(visit))?;
        Ok((file, contents))
    });
    match opened {
        Ok((attributes, contents)) => Ok(OpenFile {
            image,
            attributes,
            contents,
        }),
        Err(error) => Err(refusal_in(&image, &error)),
    }
}

/// Sends the contents of a file, or a range of them: as a download, or for media that a page shows.
pub(crate) async fn raw(
    State(app): State<Arc<App>>,
    visit: Visit,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    // Memory is reserved before the image is opened, so that many requests wait instead of using it all.
    let memory = app
        .memory
        .reserve(stream::STREAM_MEMORY)
        .await
        .ok_or_else(Refusal::busy)?;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let is_shown = visit.query.text("show").is_some();
    let (open, media) = work(move || {
        let open = contents(&shared, &shown, &of)?;
        let media = match is_shown {
            true => Media::of(&*open.contents).map_err(|error| refusal_in(&open.image, &error))?,
            false => None,
        };
        Ok((open, media))
    })
    .await?;
    let OpenFile {
        image,
        attributes: file,
        contents: device,
    } = open;
    let length = device.info().len;
    // A resumed download must be of the same contents: the tag changes with the image, the file and its
    // length. The version of a file behind a URL is unknown here.
    let tag = (!image.located().is_url()).then(|| {
        let identity = image.located().identity().text();
        format!("\"{identity}-{:x}-{length:x}\"", file.id.0)
    });
    let condition = headers.get(header::IF_RANGE).map(|value| value.as_bytes());
    let is_current = |condition: &[u8]| tag.as_ref().is_some_and(|tag| tag.as_bytes() == condition);
    let range = headers.get(header::RANGE).map(|value| value.as_bytes());
    // RFC 9110, section 13.1.5: if the condition fails, the range is ignored and all is sent.
    let range = range.filter(|_| condition.is_none_or(is_current));
    let (status, part) = match RequestedRange::parse(range, length) {
        RequestedRange::All => (StatusCode::OK, 0..length),
        RequestedRange::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        RequestedRange::Unsatisfiable => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            set(
                &mut response,
                header::CONTENT_RANGE,
                &format!("bytes */{length}"),
            );
            return Ok(response);
        }
    };
    let body = match method {
        Method::HEAD => axum::body::Body::empty(),
        _ => {
            let (session, name, reader) = (
                visit.session.clone(),
                target.name().to_owned(),
                image.clone(),
            );
            stream::device(image, device, part.clone(), move |error| {
                note_failure(&session, &name, &reader, error);
            })
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    // Held as long as the response: its body is sent after this function.
    response.extensions_mut().insert(memory);
    set_part(&mut response, &part, length);
    if let Some(tag) = &tag {
        set(&mut response, header::ETAG, tag);
    }
    set_type(&mut response, media, target.name());
    Ok(response)
}

/// Sets the headers about the range `part` of contents of `length` bytes.
fn set_part(response: &mut Response, part: &Range<u64>, length: u64) {
    let sent = part.end.saturating_sub(part.start);
    set(response, header::CONTENT_LENGTH, &sent.to_string());
    if response.status() == StatusCode::PARTIAL_CONTENT {
        let last = part.end.saturating_sub(1);
        let value = format!("bytes {}-{last}/{length}", part.start);
        set(response, header::CONTENT_RANGE, &value);
    }
    set(response, header::ACCEPT_RANGES, "bytes");
}

/// Sets the headers about the use of the contents: shown as media, or saved as a file of this name.
fn set_type(response: &mut Response, media: Option<Media>, name: &str) {
    set(response, header::CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    if media == Some(Media::Document) {
        // In a frame of its page.
        set(response, header::CONTENT_SECURITY_POLICY, DOCUMENT_POLICY);
        set(response, header::X_FRAME_OPTIONS, "SAMEORIGIN");
    }
    match media {
        Some(media) => set(response, header::CONTENT_TYPE, media.content_type()),
        None => {
            set(response, header::CONTENT_TYPE, "application/octet-stream");
            set(response, header::CONTENT_DISPOSITION, &disposition(name));
        }
    }
}

/// Tells the visitor, on the next page, why a download is incomplete.
fn note_failure(session: &Session, name: &str, image: &OpenImage, error: &Error) {
    if error.kind() == Kind::Cancelled {
        return;
    }
    let message = visible(&image.located().message(error));
    session.add_note(format!(
        "{} ({}): {message}",
        text::INCOMPLETE,
        visible(name)
    ));
}

/// A format of archives.
struct ArchiveFormat {
    extension: &'static str,
    content_type: &'static str,
    /// Bytes of memory that writing one holds.
    memory: usize,
    write: fn(&dyn FileSystem, &str, ArchiveSink) -> LibraryResult<ArchiveSink>,
}

/// Sends a folder as a tar archive.
pub(crate) async fn tar(
    State(app): State<Arc<App>>,
    visit: Visit,
    method: Method,
) -> Result<Response, Refusal> {
    let format = ArchiveFormat {
        extension: "tar",
        content_type: "application/x-tar",
        memory: stream::ARCHIVE_MEMORY,
        write: archive::tar,
    };
    archive_of(&app, &visit, &method, format).await
}

/// Sends a folder as a zip archive.
pub(crate) async fn zip(
    State(app): State<Arc<App>>,
    visit: Visit,
    method: Method,
) -> Result<Response, Refusal> {
    let format = ArchiveFormat {
        extension: "zip",
        content_type: "application/zip",
        memory: stream::ARCHIVE_MEMORY + archive::MAX_ENTRIES * DIRECTORY_ENTRY,
        write: archive::zip,
    };
    archive_of(&app, &visit, &method, format).await
}

async fn archive_of(
    app: &Arc<App>,
    visit: &Visit,
    method: &Method,
    format: ArchiveFormat,
) -> Result<Response, Refusal> {
    let ArchiveFormat {
        extension,
        content_type,
        memory,
        write,
    } = format;
    let target = Target::parse(&visit.query)?;
    let memory = app.memory.reserve(memory).await.ok_or_else(Refusal::busy)?;
    let (shared, shown, of) = (app.clone(), visit.clone(), target.clone());
    let (image, fs, volume) = work(move || {
        let (image, fs) = open_volume(&shared, &shown, &of)?;
        let found = fs.resolve(&of.path);
        found.map_err(|error| refusal_in(&image, &error))?;
        let volume = fs.volume().name;
        Ok((image, fs, volume))
    })
    .await?;
    let name = match target.name() {
        "" => format!("{volume}.{extension}"),
        name => format!("{name}.{extension}"),
    };
    let body = if *method == Method::HEAD {
        axum::body::Body::empty()
    } else {
        let (session, reader, called) = (visit.session.clone(), image.clone(), name.clone());
        let path = target.path.clone();
        stream::written(
            image,
            stream::TAIL,
            move |sink| write(&*fs, &path, sink),
            move |error| note_failure(&session, &called, &reader, error),
        )
    };
    let mut response = Response::new(body);
    response.extensions_mut().insert(memory);
    set(&mut response, header::CONTENT_TYPE, content_type);
    set(
        &mut response,
        header::CONTENT_DISPOSITION,
        &disposition(&name),
    );
    set(
        &mut response,
        header::CONTENT_SECURITY_POLICY,
        CONTENT_POLICY,
    );
    Ok(response)
}
