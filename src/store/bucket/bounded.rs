//! HTTP responses with bounds on their length, and on the time without data from the server.
//!
//! The client of the store buffers most responses completely before parsing them (pages of
//! listings, error messages), and waits for the announced length. A broken or hostile server must
//! not control how much memory and time that takes.

use crate::size::to_usize;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_RANGE, HeaderMap, RANGE};
use tokio::time::{Instant, Sleep, sleep, timeout};

/// Maximum length in bytes of a response other than an object's contents: a page of a listing, the
/// result of a copy. A page has 1000 keys of 1024 bytes at most, which may be escaped.
const MAX_OF_AN_ANSWER: u64 = 8 << 20;

/// Maximum number of bytes of an error message that are read. The rest is ignored.
const MAX_OF_AN_ERROR: u64 = 64 << 10;

/// Requests with a longer body are limited by the timeout of the whole request only: the time to
/// send the body is not known.
const SHORT_BODY: usize = 64 << 10;

/// A factory of HTTP clients whose responses are bounded.
#[derive(Debug)]
pub(super) struct BoundedClients {
    /// Maximum time without data from the server.
    silence: Duration,
    /// The server has responded before. Requests to a server that never responded are not retried
    /// after a timeout.
    answered: Arc<AtomicBool>,
}

impl BoundedClients {
    /// Creates a factory; `answered` is set once the server has responded.
    pub(super) fn new(silence: Duration, answered: Arc<AtomicBool>) -> Self {
        Self { silence, answered }
    }
}

impl HttpConnector for BoundedClients {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service {
            inner,
            silence: self.silence,
            answered: self.answered.clone(),
        }))
    }
}

#[derive(Debug)]
struct Service {
    inner: HttpClient,
    silence: Duration,
    answered: Arc<AtomicBool>,
}

impl HttpService for Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.answer(request))
    }
}

impl Service {
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (asked, sends) = (asked(request.headers()), request.body().content_length());
        let answer = self.inner.execute(request);
        let answer = if sends > SHORT_BODY {
            answer.await?
        } else {
            let silent = AbortReason::Silent {
                answered: self.answered.load(Ordering::Relaxed),
            };
            timeout(self.silence, answer)
                .await
                .map_err(|_| silent.into_error())??
        };
        self.answered.store(true, Ordering::Relaxed);
        let (parts, body) = answer.into_parts();
        let end = match (asked, sent(&parts.headers)) {
            _ if parts.status.is_client_error() || parts.status.is_server_error() => {
                BodyBound::Cut(MAX_OF_AN_ERROR)
            }
            (Some(asked), Some(sent)) if parts.status == StatusCode::PARTIAL_CONTENT => {
                BodyBound::Exact(asked.min(sent))
            }
            _ => BodyBound::AtMost(MAX_OF_AN_ANSWER),
        };
        let alarm = Box::pin(sleep(self.silence));
        let body = BoundedBody {
            inner: body,
            end,
            seen: 0,
            silence: self.silence,
            alarm,
            waits: false,
        };
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// Returns the length of the range that a request asks for.
fn asked(headers: &HeaderMap) -> Option<u64> {
    length(headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?)
}

/// Returns the length of the range that a response announces.
fn sent(headers: &HeaderMap) -> Option<u64> {
    length(
        headers
            .get(CONTENT_RANGE)?
            .to_str()
            .ok()?
            .trim()
            .strip_prefix("bytes ")?
            .split_once('/')?
            .0,
    )
}

/// Returns the length of the range `first-last`.
fn length(range: &str) -> Option<u64> {
    let (first, last) = range.split_once('-')?;
    last.trim()
        .parse::<u64>()
        .ok()?
        .checked_sub(first.trim().parse().ok()?)?
        .checked_add(1)
}

/// The bound of a body.
#[derive(Debug, Clone, Copy)]
enum BodyBound {
    /// Exactly this many bytes; fewer, or more, are an error.
    Exact(u64),
    /// At most this many bytes; more are an error.
    AtMost(u64),
    /// This many bytes; the rest is discarded.
    Cut(u64),
}

/// A body with a bound.
struct BoundedBody {
    inner: HttpResponseBody,
    end: BodyBound,
    /// Bytes received.
    seen: u64,
    silence: Duration,
    /// Expires if no data arrived for too long.
    alarm: Pin<Box<Sleep>>,
    /// The timer is running. It is stopped while the caller processes received data.
    waits: bool,
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        if let BodyBound::Cut(most) = this.end
            && this.seen >= most
        {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) else {
            if !this.waits {
                this.waits = true;
                this.alarm.as_mut().reset(Instant::now() + this.silence);
            }
            return this
                .alarm
                .as_mut()
                .poll(context)
                .map(|()| Some(Err(AbortReason::Silent { answered: true }.into_error())));
        };
        this.waits = false;
        Poll::Ready(match frame {
            None => this.ended().map(Err),
            Some(Ok(frame)) => Some(this.came(frame)),
            Some(Err(error)) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        // A body that ended too early is polled once more, to return the error.
        !matches!(self.end, BodyBound::Exact(_)) && self.inner.is_end_stream()
    }

    /// Returns a hint capped at the bound, independent of the announced length: the caller
    /// allocates memory by it.
    fn size_hint(&self) -> SizeHint {
        let (BodyBound::Exact(most) | BodyBound::AtMost(most) | BodyBound::Cut(most)) = self.end;
        let promised = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(promised.lower().min(most));
        hint
    }
}

impl BoundedBody {
    fn came(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, HttpError> {
        let len = frame.data_ref().map_or(0, |data| data.len() as u64);
        let room = match self.end {
            BodyBound::Exact(most) | BodyBound::AtMost(most) | BodyBound::Cut(most) => {
                most.saturating_sub(self.seen)
            }
        };
        self.seen = self.seen.saturating_add(len);
        match self.end {
            _ if len <= room => Ok(frame),
            BodyBound::Cut(_) => frame
                .into_data()
                .map(|data| Frame::data(data.slice(..to_usize(room))))
                .or_else(Ok),
            BodyBound::Exact(_) => Err(AbortReason::LongerThanRange.into_error()),
            BodyBound::AtMost(most) => Err(AbortReason::TooLong(most).into_error()),
        }
    }

    fn ended(&self) -> Option<HttpError> {
        match self.end {
            BodyBound::Exact(len) if self.seen < len => Some(
                AbortReason::Short {
                    came: self.seen,
                    of: len,
                }
                .into_error(),
            ),
            _ => None,
        }
    }
}

/// The reason why a response was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbortReason {
    /// No data arrived for too long.
    Silent { answered: bool },
    /// More than the requested range.
    LongerThanRange,
    /// Less than the announced length.
    Short { came: u64, of: u64 },
    /// More bytes than the limit for a response of its kind.
    TooLong(u64),
}

impl AbortReason {
    fn into_error(self) -> HttpError {
        let kind = match self {
            Self::Silent { answered: true } => HttpErrorKind::Timeout,
            // Requests with this kind of error are not retried.
            Self::Silent { answered: false } => HttpErrorKind::Unknown,
            Self::Short { .. } => HttpErrorKind::Interrupted,
            Self::LongerThanRange | Self::TooLong(_) => HttpErrorKind::Decode,
        };
        HttpError::new(kind, self)
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { .. } => f.write_str("timeout: no data received"),
            Self::LongerThanRange => f.write_str("it sent more bytes than requested"),
            Self::Short { came, of } => write!(f, "it sent {came} of {of} bytes"),
            Self::TooLong(most) => write!(f, "it sent a response of more than {} MiB", most >> 20),
        }
    }
}

impl std::error::Error for AbortReason {}
