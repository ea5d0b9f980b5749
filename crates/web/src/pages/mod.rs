//! The pages, and the addresses at which they are.

mod benchmarks;
mod changes;
mod checks;
mod compare;
mod downloads;
mod file;
mod find;
mod folder;
mod image;
pub(crate) mod layout;
mod limits;
mod list;
mod open_file;
mod preview;
mod restores;
mod sizes;
mod space;
mod time;
mod uploads;
mod visitors;
mod volume_state;

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use bandsaw::fs::FileSystem;
use bandsaw::{Error, Kind, Reason};
use maud::html;

use crate::app::{App, Target};
use crate::open_images::OpenImage;
use crate::reply::{Refusal, set};
use crate::request_checks::{
    ICON, LOGIN, OPEN, SCRIPT, STYLE, UPLOAD, UPLOAD_SCRIPT, Visit, check_request,
};
use crate::text;

/// Returns the routes of all pages, behind the checks of requests.
pub(crate) fn router(app: Arc<App>) -> Router {
    let base = app.site.base.clone();
    let at = |page: &str| format!("{base}{page}");
    Router::new()
        .route(&at(""), get(list::list))
        .route(&at(OPEN), get(visitors::open))
        .route(&at(LOGIN), get(visitors::login_page).post(visitors::login))
        .route(&at("go"), get(list::go))
        .route(&at("end"), post(visitors::end))
        .route(&at("lock"), post(visitors::lock))
        .route(&at("unlock"), post(visitors::unlock))
        .route(&at("image"), get(image::image))
        .route(&at("space"), get(space::space))
        .route(&at("check"), post(checks::start))
        .route(&at("time"), get(time::time))
        .route(&at("compare"), get(compare::compare))
        .route(&at("changes"), get(changes::changes))
        .route(&at("plan"), post(changes::plan))
        .route(&at("change"), post(changes::change))
        .route(&at("restore"), post(restores::start))
        .route(&at("log"), get(changes::log))
        .route(&at("benchmarks"), get(benchmarks::list))
        .route(&at("benchmark"), get(benchmarks::show))
        .route(&at("plot.svg"), get(benchmarks::plot))
        .route(&at(UPLOAD), post(uploads::upload))
        .route(&at("job"), get(checks::show))
        .route(&at("events"), get(checks::events))
        .route(&at("folder"), get(folder::folder))
        .route(&at("sizes"), get(sizes::sizes))
        .route(&at("find"), get(find::find))
        .route(&at("archive.tar"), get(downloads::tar))
        .route(&at("archive.zip"), get(downloads::zip))
        .route(&at("file"), get(file::details))
        .route(&at("raw"), get(downloads::raw))
        .route(&at("hex"), get(preview::hex))
        .route(&at(STYLE), get(style))
        .route(&at(SCRIPT), get(script))
        .route(&at(UPLOAD_SCRIPT), get(upload_script))
        .route(&at(ICON), get(icon))
        .fallback(missing)
        .layer(from_fn_with_state(app.clone(), check_request))
        .with_state(app)
}

async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("style.css"))
}

async fn script() -> Response {
    asset(
        "text/javascript; charset=utf-8",
        include_str!("progress.js"),
    )
}

async fn upload_script() -> Response {
    asset("text/javascript; charset=utf-8", include_str!("upload.js"))
}

async fn icon() -> Response {
    asset("image/svg+xml", include_str!("icon.svg"))
}

fn asset(kind: &str, contents: &'static str) -> Response {
    let mut response = Response::new(contents.into());
    set(&mut response, header::CONTENT_TYPE, kind);
    response
}

async fn missing() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, text::MISSING)
}

/// Runs blocking work: the library is synchronous.
async fn work<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(task).await;
    done.unwrap_or_else(|_| {
        Err(Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            text::FAILED,
        ))
    })
}

/// Opens the image that a query names. Where a passphrase is missing, the refusal asks for it.
fn open_image(app: &App, visit: &Visit, target: &Target) -> Result<Arc<OpenImage>, Refusal> {
    let located = app.locate(&target.image)?;
    let opened = app.open(&visit.session, target);
    opened.map_err(|error| {
        let message = located.message(&error);
        refuse(visit, target, &error, message, None)
    })
}

/// Opens the volume that a query names.
fn open_volume(
    app: &App,
    visit: &Visit,
    target: &Target,
) -> Result<(Arc<OpenImage>, Arc<dyn FileSystem>), Refusal> {
    let image = open_image(app, visit, target)?;
    let id = target.volume()?;
    match image.volume(id) {
        Ok(fs) => Ok((image, fs)),
        Err(error) => {
            let message = image.located().message(&error);
            let name = image::volume_name(image.image(), id);
            Err(refuse(visit, target, &error, message, name))
        }
    }
}

/// Returns the refusal for an error in an open image.
fn refusal_in(image: &OpenImage, error: &Error) -> Refusal {
    Refusal::of(error, image.located().message(error))
}

/// Returns the refusal for an error, which asks for a passphrase if that is missing or wrong.
fn refuse(
    visit: &Visit,
    target: &Target,
    error: &Error,
    message: String,
    volume: Option<String>,
) -> Refusal {
    let refusal = Refusal::of(error, message);
    // Keys in files are not taken from a page.
    let takes_file = matches!(
        error.reason(),
        Some(
            Reason::PrivateKeyNeeded
                | Reason::ArchiveKeyNeeded
                | Reason::ArchivePrivateKeyNeeded
                | Reason::SignerKeyNeeded
                | Reason::WrongArchiveKey
        )
    );
    if error.kind() != Kind::WrongKey || takes_file {
        return refusal;
    }
    let wrong = visit.session.keys().knows(&target.image);
    let form = visitors::passphrase_form(&visit.session, target, volume.as_deref());
    let main = html! {
        h1 { "Passphrase" }
        p { (refusal.message) }
        @if wrong { p.bad role="alert" { (text::LOCKED) } }
        (form)
    };
    let page = layout::page(
        &visit.session,
        "Passphrase",
        layout::Frame::default(),
        &main,
    );
    refusal.with_page(page)
}
