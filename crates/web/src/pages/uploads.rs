//! Uploads: into a folder of the host, or into a folder of a volume.

use std::fs::File;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bandsaw::size;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use maud::{Markup, html};

use super::changes::{start_at, visitor};
use super::layout;
use super::work;
use crate::app::{App, Target};
use crate::change::{Change, NewFile};
use crate::job::JobKind;
use crate::reply::{Refusal, only};
use crate::request_checks::{Peer, UPLOAD, Visit};
use crate::session::Session;
use crate::{text, upload};

/// Bytes of an upload that are written at a time.
const PIECE: usize = 512 << 10;

/// The place of an uploaded file.
enum UploadTarget {
    Folder(usize),
    Volume(Target),
}

/// Takes a file. Answers with the address of the page that shows it.
pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    visit: Visit,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response, Refusal> {
    let query = &visit.query;
    let refused = |status, message: &str| Refusal::new(status, message);
    let name = query.text("name").unwrap_or_default().to_owned();
    if !upload::is_safe(&name) {
        return Err(refused(StatusCode::BAD_REQUEST, text::BAD_NAME));
    }
    let replaces = query.text("replace") == Some("1");
    let place = match query.number("into") {
        Some(number) => UploadTarget::Folder(usize::try_from(number).unwrap_or(usize::MAX)),
        None => UploadTarget::Volume(Target::parse(query)?),
    };
    let is_allowed = match &place {
        UploadTarget::Folder(number) => app.uploads.paths().nth(*number).is_some(),
        UploadTarget::Volume(_) => app.permissions.changes && app.uploads.paths().next().is_some(),
    };
    if !is_allowed {
        return Err(refused(StatusCode::FORBIDDEN, text::NO_UPLOADS));
    }
    let limit = app.permissions.upload_limit;
    let length = only(request.headers(), &header::CONTENT_LENGTH);
    if length.is_some_and(|length| length.parse().is_ok_and(|length: u64| length > limit)) {
        return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, text::LARGE_UPLOAD));
    }
    let turn = app.upload_turns.clone().try_acquire_owned();
    let _turn = turn.map_err(|_| Refusal::busy())?;
    let _memory = app
        .memory
        .reserve(2 * PIECE)
        .await
        .ok_or_else(Refusal::busy)?;
    let body = request.into_body();
    let next = match place {
        UploadTarget::Folder(number) => {
            into_folder(&app, visitor(&visit, peer), number, name, replaces, body).await?
        }
        UploadTarget::Volume(target) => {
            let file = NewFile {
                volume: target.volume()?.clone(),
                folder: target.path.clone(),
                name,
                replaces,
                contents: Arc::new(upload::nameless(&app.permissions.temporary)?),
                len: 0,
            };
            into_volume(&app, &visit, peer, &target, file, body).await?
        }
    };
    let mut response = Response::new(next.into());
    crate::reply::set(
        &mut response,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    Ok(response)
}

async fn into_folder(
    app: &Arc<App>,
    visitor: crate::change_log::Visitor,
    number: usize,
    name: String,
    replaces: bool,
    body: Body,
) -> Result<String, Refusal> {
    let shared = app.clone();
    let incoming = work(move || Ok(shared.uploads.begin(number, &name, replaces)?)).await?;
    let path = incoming.path().display().to_string();
    let entry = app.log.begin(visitor, "upload", &path);
    let arrived = receive(app, body, incoming.file().clone()).await;
    let finished = match arrived {
        Ok(length) => work(move || Ok(incoming.finish()?)).await.map(|()| length),
        Err(refusal) => Err(refusal),
    };
    match &finished {
        Ok(length) => {
            let undo = if replaces {
                "not possible if a file was replaced"
            } else {
                "remove the file"
            };
            app.log
                .end(entry, true, &size::display(*length).to_string(), undo);
        }
        Err(refusal) => app.log.end(entry, false, &refusal.message, ""),
    }
    finished.map(|_| "./".to_owned())
}

/// Keeps the contents in a file without a name first: the image is opened for changes only when all
/// of them have arrived.
async fn into_volume(
    app: &Arc<App>,
    visit: &Visit,
    peer: Peer,
    target: &Target,
    mut file: NewFile,
    body: Body,
) -> Result<String, Refusal> {
    let (shared, id) = (app.clone(), target.image.clone());
    let place = work(move || Ok(shared.roots.locate_for_change(&id)?)).await?;
    file.len = receive(app, body, file.contents.clone()).await?;
    let kind = JobKind::Change(Change::Put(file));
    start_at(app, visit, peer, target, place, kind)
}

/// Writes a body to a file, and returns its length.
async fn receive(app: &App, mut body: Body, file: Arc<File>) -> Result<u64, Refusal> {
    let limit = app.permissions.upload_limit;
    let (mut length, mut held) = (0_u64, BytesMut::new());
    let write = |bytes: Bytes| {
        let file = file.clone();
        work(move || Ok(upload::append(&file, &bytes)?))
    };
    loop {
        let frame = tokio::time::timeout(app.limits.read_time, body.frame()).await;
        let slow = |_| Refusal::new(StatusCode::REQUEST_TIMEOUT, text::SLOW);
        let Some(frame) = frame.map_err(slow)? else {
            break;
        };
        let cut = |_| Refusal::new(StatusCode::BAD_REQUEST, text::UPLOAD_CUT);
        let Ok(data) = frame.map_err(cut)?.into_data() else {
            continue;
        };
        length = length.saturating_add(data.len() as u64);
        if length > limit {
            return Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                text::LARGE_UPLOAD,
            ));
        }
        held.extend_from_slice(&data);
        if held.len() >= PIECE {
            write(held.split().freeze()).await?;
        }
    }
    write(held.freeze()).await?;
    Ok(length)
}

/// Returns the form for uploads into one of the folders; empty if there is none.
pub(crate) fn folder_form(app: &App, session: &Session) -> Markup {
    let folders: Vec<_> = app.uploads.paths().collect();
    if folders.is_empty() {
        return html! {};
    }
    let choice = html! {
        p {
            label for="upload-place" { "Folder" } " "
            select #upload-place {
                @for (number, folder) in folders.iter().enumerate() {
                    option value=(number) { (crate::names::visible(&folder.display().to_string())) }
                }
            }
        }
    };
    form(session, UPLOAD, &choice)
}

/// Returns the form for uploads into a folder of a volume; empty if they are not allowed.
pub(crate) fn volume_form(app: &App, session: &Session, target: &Target) -> Markup {
    let is_snapshot = target
        .volume
        .as_ref()
        .is_some_and(|volume| volume.snapshot.is_some());
    let is_allowed = app.permissions.changes && app.uploads.paths().next().is_some();
    match is_allowed && !is_snapshot && target.image.is_changeable() {
        true => form(session, &target.address(UPLOAD, &[]), &html! {}),
        false => html! {},
    }
}

fn form(session: &Session, action: &str, place: &Markup) -> Markup {
    html! {
        noscript { p.dim { (text::UPLOAD_SCRIPT) } }
        section #upload.drop aria-labelledby="upload-title" hidden data-action=(action)
            data-csrf=(session.csrf().reveal()) data-failed=(text::UPLOAD_CUT) {
            h2 #upload-title { "Upload a file" }
            p { "Drop a file here, or choose one." }
            (place)
            p { label for="upload-file" { "File" } " " input #upload-file type="file"; }
            p {
                input #upload-replace type="checkbox"; " "
                label for="upload-replace" { "Replace an existing file" }
            }
            p { button #upload-send type="button" { "Upload" } }
            progress #upload-progress max="100" value="0" hidden aria-label="Progress of the upload" {}
            p #upload-status role="status" {}
        }
    }
}

/// Returns the options of a page with a form.
pub(crate) fn frame(app: &App) -> layout::Frame {
    layout::Frame {
        upload: app.uploads.paths().next().is_some(),
        ..layout::Frame::default()
    }
}
