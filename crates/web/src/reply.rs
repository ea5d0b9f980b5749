//! Answers, and the refusals of requests.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bandsaw::{Error, Kind};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use maud::Markup;

use crate::memory::Reservation;
use crate::pages::layout;
use crate::text;

/// The policy of pages: their own style, script and contents. Nothing inline, nothing of others.
pub(crate) const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    img-src 'self'; media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";
/// The policy of pages with a document in a frame. `concat!` takes no constants.
pub(crate) const FRAMING_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; \
    img-src 'self'; media-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'; frame-src 'self'";
/// The policy of documents that are shown in a frame of a page: they may do nothing else.
pub(crate) const DOCUMENT_POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'self'";
/// The policy of contents of files: they may do nothing, and are of another origin than the pages.
pub(crate) const CONTENT_POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

/// A refusal, shown as a page.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The whole page, if it is another one than that of all refusals.
    page: Option<Markup>,
}

impl Refusal {
    /// Refuses with a page that shows the message, which must be fit for any visitor.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            page: None,
        }
    }

    /// Returns the refusal for an error of the library, whose text is `message`.
    pub(crate) fn of(error: &Error, message: String) -> Self {
        let status = match error.kind() {
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::WrongKey => StatusCode::FORBIDDEN,
            Kind::Invalid | Kind::OutOfRange => StatusCode::BAD_REQUEST,
            Kind::Conflict | Kind::ReadOnly => StatusCode::CONFLICT,
            Kind::Corrupt | Kind::Unsupported | Kind::Limit | Kind::Undecided => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Kind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, message)
    }

    /// Shows this page instead.
    pub(crate) fn with_page(self, page: Markup) -> Self {
        Self {
            page: Some(page),
            ..self
        }
    }

    /// Refuses because of a limit of the server: the same request can succeed later.
    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text::BUSY)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::of(&error, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let usual = || layout::refusal(self.status.as_u16(), &self.message);
        let mut response = page(self.status, self.page.unwrap_or_else(usual));
        if self.status == StatusCode::SERVICE_UNAVAILABLE
            || self.status == StatusCode::TOO_MANY_REQUESTS
        {
            set(&mut response, header::RETRY_AFTER, "10");
        }
        response
    }
}

/// Returns a page.
pub(crate) fn page(status: StatusCode, markup: Markup) -> Response {
    let mut response = (status, markup.into_string()).into_response();
    set(
        &mut response,
        header::CONTENT_TYPE,
        "text/html; charset=utf-8",
    );
    response
}

/// Returns a page that holds reserved memory until it is sent.
pub(crate) fn large_page(markup: Markup, reservation: Reservation) -> Response {
    let mut response = page(StatusCode::OK, markup);
    response.extensions_mut().insert(reservation);
    response
}

/// Returns a redirection to an address relative to the page, which the browser gets with GET.
pub(crate) fn see(address: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    set(&mut response, header::LOCATION, address);
    response
}

/// Sets a field, unless its value is impossible.
pub(crate) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Returns the only value of a field. `None` if it is missing, repeated or not text.
pub(crate) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    match values.next() {
        None => first.to_str().ok(),
        Some(_) => None,
    }
}

/// A body that keeps something until it was sent, or given up.
pub(crate) struct KeepingBody<T> {
    inner: Body,
    _kept: T,
}

impl<T: Send + Unpin + 'static> KeepingBody<T> {
    /// Returns the answer with a body that keeps `kept`.
    pub(crate) fn wrap(response: Response, kept: T) -> Response {
        response.map(|inner| Body::new(Self { inner, _kept: kept }))
    }
}

impl<T: Unpin> HttpBody for KeepingBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
