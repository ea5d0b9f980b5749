//! Every check that a request passes before a page is made, and the fields of every answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use zeroize::Zeroizing;

use crate::app::App;
use crate::memory::Reservation;
use crate::query::Fields;
use crate::reply::{self, KeepingBody, Refusal};
use crate::session::Session;
use crate::text;

/// Maximum length of a form in bytes.
const MAX_FORM: usize = 16 << 10;
/// Bytes of memory that each request reserves.
const PER_REQUEST: usize = 256 << 10;
/// Pages that need no session.
pub(crate) const OPEN: &str = "open";
pub(crate) const LOGIN: &str = "login";
pub(crate) const STYLE: &str = "style.css";
pub(crate) const SCRIPT: &str = "progress.js";
pub(crate) const UPLOAD_SCRIPT: &str = "upload.js";
pub(crate) const ICON: &str = "icon.svg";
/// The page that takes files, whose requests are no forms: their token is in this field.
pub(crate) const UPLOAD: &str = "upload";
const CSRF: &str = "x-csrf";

/// The address of a client; `None` on a Unix socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<IpAddr>);

/// A request that has passed all checks.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) session: Arc<Session>,
    /// The fields of the query.
    pub(crate) query: Arc<Fields>,
    /// The fields of the form of a change, whose token is right.
    pub(crate) form: Arc<Fields>,
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // Only `check_request` lets a request pass without a session, to pages that do not ask for one.
        let visit = parts.extensions.get::<Self>().cloned();
        visit.ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, text::NO_SESSION))
    }
}

/// The form of a visitor without a session.
#[derive(Clone)]
pub(crate) struct Form(pub(crate) Arc<Fields>);

/// Checks a request, lets it pass, and completes the answer.
pub(crate) async fn check_request(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&app, request, next).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    };
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not `no-referrer`: browsers would then hide the origin of forms.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CONTENT_SECURITY_POLICY, reply::PAGE_POLICY),
    ] {
        if !response.headers().contains_key(&name) {
            reply::set(&mut response, name, value);
        }
    }
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        let name = header::HeaderName::from_static(name);
        reply::set(&mut response, name, "same-origin");
    }
    response
}

async fn admit(app: &App, mut request: Request, next: Next) -> Result<Response, Refusal> {
    check_source(app, &request)?;
    let page = request.uri().path().strip_prefix(&*app.site.base);
    let page = page.map(str::to_owned);
    let page = page.as_deref();
    let public = [OPEN, LOGIN, STYLE, SCRIPT, UPLOAD_SCRIPT, ICON];
    let is_public = page.is_some_and(|page| public.contains(&page));
    let now = Instant::now();
    let session = given_cookie(request.headers(), app)
        .and_then(|cookie| app.sessions.find(cookie.as_bytes(), now));
    if session.is_none() && !is_public {
        let status = StatusCode::UNAUTHORIZED;
        if page.is_some() && app.login.is_some() && request.method() == Method::GET {
            return Ok(reply::see(&format!("{}{LOGIN}", app.site.base)));
        }
        return Err(Refusal::new(status, text::NO_SESSION));
    }
    let own = match &session {
        Some(session) => {
            let permit = session.requests().clone().try_acquire_owned();
            let many = |_| Refusal::new(StatusCode::TOO_MANY_REQUESTS, text::TOO_MANY);
            Some(permit.map_err(many)?)
        }
        None => None,
    };
    let all = app.requests.clone().acquire_owned();
    let all = tokio::time::timeout(app.limits.wait_time, all).await;
    let all = all.ok().and_then(Result::ok).ok_or_else(Refusal::busy)?;
    let memory = app
        .memory
        .reserve(PER_REQUEST)
        .await
        .ok_or_else(Refusal::busy)?;

    let mut form = Fields::default();
    if request.method() == Method::POST && page == Some(UPLOAD) {
        let name = header::HeaderName::from_static(CSRF);
        let given = reply::only(request.headers(), &name).unwrap_or_default();
        let is_right = session
            .as_ref()
            .is_some_and(|session| session.csrf().is(given.as_bytes()));
        if !is_right {
            return Err(Refusal::new(StatusCode::FORBIDDEN, text::WRONG_TOKEN));
        }
    } else if request.method() == Method::POST {
        form = read_form(app, &mut request).await?;
        if let Some(session) = &session {
            let given = form.bytes("csrf").unwrap_or_default();
            // The page for the password is the only one that visitors without a session change.
            if page != Some(LOGIN) && !session.csrf().is(given) {
                return Err(Refusal::new(StatusCode::FORBIDDEN, text::WRONG_TOKEN));
            }
        }
    }
    let query = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let (query, form) = (Arc::new(query), Arc::new(form));
    request.extensions_mut().insert(Form(form.clone()));
    if let Some(session) = session {
        request.extensions_mut().insert(Visit {
            session,
            query,
            form,
        });
    }
    let mut response = next.run(request).await;
    let reserved = response.extensions_mut().remove::<Reservation>();
    Ok(KeepingBody::wrap(response, (own, all, memory, reserved)))
}

/// Refuses requests that do not name this server, or that pages of others have caused.
fn check_source(app: &App, request: &Request) -> Result<(), Refusal> {
    let refuse = |status, message: &str| Err(Refusal::new(status, message));
    let headers = request.headers();
    let Some(host) = reply::only(headers, &header::HOST) else {
        return refuse(StatusCode::BAD_REQUEST, text::NO_HOST);
    };
    if !app.site.hosts.contains(host) {
        return refuse(StatusCode::MISDIRECTED_REQUEST, text::OTHER_HOST);
    }
    let other = request
        .uri()
        .authority()
        .filter(|named| named.as_str() != host);
    if other.is_some() {
        return refuse(StatusCode::BAD_REQUEST, text::OTHER_HOST);
    }
    let is_change = match *request.method() {
        Method::GET | Method::HEAD => false,
        Method::POST => true,
        _ => return refuse(StatusCode::METHOD_NOT_ALLOWED, text::METHOD),
    };
    let scheme = if app.site.is_encrypted {
        "https"
    } else {
        "http"
    };
    let own = format!("{scheme}://{host}");
    let is_own = |origin: &str| origin.eq_ignore_ascii_case(&own);
    match (
        headers.contains_key(header::ORIGIN),
        reply::only(headers, &header::ORIGIN),
    ) {
        (true, Some(origin)) if is_own(origin) => {}
        (true, _) => return refuse(StatusCode::FORBIDDEN, text::OTHER_ORIGIN),
        // Browsers name the origin of every change.
        (false, _) if is_change => return refuse(StatusCode::FORBIDDEN, text::OTHER_ORIGIN),
        (false, _) => {}
    }
    let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    match site {
        None | Some(b"same-origin" | b"none") => Ok(()),
        // A page of the user's own disk leads here (`--open`): who has the token may come from
        // anywhere.
        Some(b"cross-site") if !is_change && is_page(app, request, OPEN) => Ok(()),
        Some(_) => refuse(StatusCode::FORBIDDEN, text::OTHER_ORIGIN),
    }
}

fn is_page(app: &App, request: &Request, page: &str) -> bool {
    request.uri().path().strip_prefix(&*app.site.base) == Some(page)
}

/// Returns the name of the cookie. Its prefix makes browsers insist on encryption.
fn cookie_name(app: &App) -> &'static str {
    match app.site.is_encrypted {
        true => "__Host-bandsaw",
        false => "bandsaw",
    }
}

fn given_cookie<'a>(headers: &'a HeaderMap, app: &App) -> Option<&'a str> {
    let name = cookie_name(app);
    let fields = headers.get_all(header::COOKIE).iter();
    let mut pairs = fields
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(known, value)| (known == name).then_some(value))
}

/// Returns the field that sets the cookie.
pub(crate) fn cookie(app: &App, value: &str) -> String {
    let (name, base) = (cookie_name(app), &app.site.base);
    let secure = if app.site.is_encrypted {
        "; Secure"
    } else {
        ""
    };
    format!("{name}={value}; Path={base}; HttpOnly; SameSite=Strict{secure}")
}

/// Returns an answer that begins a session and leads to the first page. After a page of elsewhere,
/// browsers would not send the cookie after a redirection: then a page leads on.
pub(crate) fn welcome(app: &App, session: &Session, is_elsewhere: bool) -> Response {
    let mut response = match is_elsewhere {
        true => reply::page(StatusCode::OK, crate::pages::layout::onward(&app.site.base)),
        false => reply::see(&app.site.base),
    };
    let value = cookie(app, session.cookie());
    reply::set(&mut response, header::SET_COOKIE, &value);
    response
}

async fn read_form(app: &App, request: &mut Request) -> Result<Fields, Refusal> {
    let kind = reply::only(request.headers(), &header::CONTENT_TYPE).unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            text::NO_FORM,
        ));
    }
    let mut body = std::mem::replace(request.body_mut(), Body::empty());
    // With its full capacity: growing would leave copies of a passphrase behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FORM));
    let read = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Refusal::new(StatusCode::BAD_REQUEST, text::NO_FORM))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > MAX_FORM {
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text::LONG_FORM));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    match tokio::time::timeout(app.limits.read_time, read).await {
        Ok(read) => read?,
        Err(_) => return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, text::SLOW)),
    }
    Ok(Fields::parse(&bytes))
}
