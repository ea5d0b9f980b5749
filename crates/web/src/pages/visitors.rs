//! Sessions: their beginning and end, and passphrases.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bandsaw::crypt::Secret;
use bandsaw::open;
use bandsaw::{Kind, Result as LibraryResult};
use maud::{Markup, html};
use zeroize::Zeroizing;

use super::{layout, refuse, work};
use crate::app::{App, Login, Target};
use crate::key_ring::ImageKeys;
use crate::query::Fields;
use crate::reply::{Refusal, page, see, set};
use crate::request_checks::{Form, Peer, Visit, cookie, welcome};
use crate::roots::Located;
use crate::session::Session;
use crate::text;

/// Exchanges the one-time token for a cookie, and leads to the first page: the token disappears
/// from the address.
pub(crate) async fn open(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    uri: axum::http::Uri,
) -> Result<Response, Refusal> {
    let purpose = ["sec-purpose", "purpose"].map(|name| headers.get(name));
    if purpose.iter().any(Option::is_some) {
        return Err(Refusal::new(
            StatusCode::SERVICE_UNAVAILABLE,
            text::PREFETCH,
        ));
    }
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let token = query.bytes("token").unwrap_or_default();
    match app.sessions.redeem(token, Instant::now())? {
        Some(session) => {
            let site = headers.get("sec-fetch-site").map(|site| site.as_bytes());
            Ok(welcome(&app, &session, site == Some(&b"cross-site"[..])))
        }
        None => Err(Refusal::new(StatusCode::FORBIDDEN, text::BAD_TOKEN)),
    }
}

/// Asks for the password.
pub(crate) async fn login_page(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    login_of(&app)?;
    Ok(page(StatusCode::OK, login_form(None)))
}

fn login_of(app: &App) -> Result<&Login, Refusal> {
    let missing = || Refusal::new(StatusCode::NOT_FOUND, text::MISSING);
    app.login.as_ref().ok_or_else(missing)
}

fn login_form(wrong: Option<&str>) -> Markup {
    layout::plain(
        "Password",
        &html! {
            h1 { "Bandsaw" }
            @if let Some(wrong) = wrong { p.bad role="alert" { (wrong) } }
            form method="post" action="login" {
                p {
                    label for="password" { "Password" } " "
                    input #password type="password" name="password" autocomplete="current-password" required autofocus;
                }
                button type="submit" { "Sign in" }
            }
        },
    )
}

/// Compares the password, and begins a session.
pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Extension(Peer(address)): Extension<Peer>,
    Extension(Form(form)): Extension<Form>,
) -> Result<Response, Refusal> {
    let login = login_of(&app)?;
    let given = Zeroizing::new(form.bytes("password").unwrap_or_default().to_vec());
    if !login.attempts.begin(address, Instant::now()) {
        return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, text::TRY_LATER));
    }
    let turn = tokio::time::timeout(app.limits.wait_time, login.turn.acquire()).await;
    let _turn = turn.ok().and_then(Result::ok).ok_or_else(Refusal::busy)?;
    let password = login.password.clone();
    if !work(move || Ok(password.is(&given))).await? {
        let form = login_form(Some(text::WRONG_PASSWORD));
        return Ok(page(StatusCode::FORBIDDEN, form));
    }
    login.attempts.succeeded(address);
    let session = app.sessions.begin(Instant::now())?;
    Ok(welcome(&app, &session, false))
}

/// Ends the session.
pub(crate) async fn end(State(app): State<Arc<App>>, visit: Visit) -> Response {
    app.lock(&visit.session, None);
    app.sessions.end(&visit.session);
    let main = html! { h1 { "Signed out" } p { "The session has ended." } };
    let mut response = page(StatusCode::OK, layout::plain("Signed out", &main));
    let gone = format!("{}; Max-Age=0", cookie(&app, ""));
    set(&mut response, header::SET_COOKIE, &gone);
    response
}

/// Forgets all passphrases of the session.
pub(crate) async fn lock(State(app): State<Arc<App>>, visit: Visit) -> Response {
    app.lock(&visit.session, None);
    see("./")
}

/// Returns the form that asks for a passphrase: of a volume, or of the image and volumes without
/// one of their own.
pub(crate) fn passphrase_form(session: &Session, target: &Target, volume: Option<&str>) -> Markup {
    // The path may not be text: it is the address of the form, like those of pages.
    let action = target.address("unlock", &[]);
    html! {
        form method="post" action=(action) {
            input type="hidden" name="csrf" value=(session.csrf().reveal());
            @if let Some(volume) = volume {
                input type="hidden" name="volume" value=(volume);
            }
            p {
                label for="passphrase" { "Passphrase" } " "
                input #passphrase type="password" name="passphrase" autocomplete="off" required autofocus;
            }
            button type="submit" { "Unlock" }
            p.dim { (text::NEEDS_KEY) }
        }
    }
}

/// Tries a passphrase, and keeps it if it opens the image or volume.
pub(crate) async fn unlock(State(app): State<Arc<App>>, visit: Visit) -> Result<Response, Refusal> {
    let target = Target::parse(&visit.query)?;
    let turn = tokio::time::timeout(app.limits.wait_time, app.unlock_turn.acquire()).await;
    let _turn = turn.ok().and_then(Result::ok).ok_or_else(Refusal::busy)?;
    let (shared, tried, of) = (app.clone(), visit.clone(), target.clone());
    work(move || try_passphrase(&shared, &tried, &of)).await?;
    let next = if target.volume.is_some() {
        "folder"
    } else {
        "image"
    };
    Ok(see(&target.address(next, &[])))
}

fn try_passphrase(app: &App, visit: &Visit, target: &Target) -> Result<(), Refusal> {
    let located = app.locate(&target.image)?;
    let secret = Secret::new(visit.form.bytes("passphrase").unwrap_or_default().to_vec());
    let volume = visit.form.text("volume").map(str::to_owned);
    let now = Instant::now();
    let ring = visit.session.keys();
    let keys = ring.of(&target.image, now).unwrap_or_default();
    let keys = keys.trial(volume.clone(), secret.clone());
    let opened = try_keys(&located, target, &keys);
    match opened {
        Ok(()) => {
            ring.add(target.image.clone(), volume, secret, now);
            // Opened again with the new passphrase.
            app.images
                .revoke(visit.session.number(), Some(&target.image));
            Ok(())
        }
        Err(error) => {
            let message = match error.kind() {
                Kind::WrongKey => text::LOCKED.to_owned(),
                _ => located.message(&error),
            };
            Err(refuse(visit, target, &error, message, volume))
        }
    }
}

fn try_keys(located: &Located, target: &Target, keys: &ImageKeys) -> LibraryResult<()> {
    let image = open::open(&located.path(), &located.options(Some(keys)))?;
    let Some(id) = &target.volume else {
        return Ok(());
    };
    let wanted = open::VolumeQuery {
        snapshot: id.snapshot.as_deref(),
        keys: Some(keys),
    };
    image.file_system_as(Some(&id.selector()), wanted).map(drop)
}
