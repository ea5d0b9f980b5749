//! Downloads: the contents of files, and folders as archives.

use std::ops::Range;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bandsaw::fs::{FileSystem, FileSystemExt};
use bandsaw::{Error, Kind, Result as LibraryResult};

use super::open_file::{OpenFile, contents};
use super::preview::Media;
use super::{open_volume, refusal_in, work};
use crate::app::{App, Target};
use crate::archive;
use crate::names::{disposition, visible};
use crate::open_images::OpenImage;
use crate::range::RequestedRange;
use crate::reply::{CONTENT_POLICY, DOCUMENT_POLICY, Refusal, set};
use crate::request_checks::Visit;
use crate::session::Session;
use crate::stream::{self, ArchiveSink};
use crate::text;

/// Bytes of memory for an entry in the directory of a zip archive.
const DIRECTORY_ENTRY: usize = 400;

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
