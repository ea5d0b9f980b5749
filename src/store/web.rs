//! A file behind `https://` or `http://`, read by range requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
    RANGE,
};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use zeroize::Zeroizing;

use super::bucket::{Timeouts, prepare_tls, runtime};
use super::ranges::{Fetched, PIECE, Pieces, Ranges, SMALL_PIECE};
use crate::address::UrlPrefix;
use crate::device::BlockDevice;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

const LAYER: &str = "web";

/// Bytes of a file that are cached.
const MEMORY: u64 = 32 << 20;

/// Bytes that are cached for readers with a cache of their own.
const SMALL_MEMORY: u64 = 4 << 20;

/// Maximum number of bytes of a request.
const MAX_AT_ONCE: usize = 8 << 20;

/// Attempts of a request with transient failures, and the pause after the first; each is twice as
/// long as the previous one.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Maximum number of redirects of a request, as of reqwest itself.
const MAX_REDIRECTS: usize = 10;

/// A file of a web server as read-only devices of the same bytes, which differ in what they request.
#[derive(Debug)]
pub(crate) struct WebViews {
    /// For most readers: caches and prefetches large pieces.
    pub(crate) usual: Arc<dyn BlockDevice>,
    /// For readers that have a cache and a read-ahead of their own: requests little more than is read.
    pub(crate) frugal: Arc<dyn BlockDevice>,
}

/// Opens the file at `url`, read-only. Its length and version are those of the first
/// response: if the file changes, every later request fails ([`Kind::Conflict`]).
///
/// [`Kind::Unsupported`] for a server without range requests, [`Kind::Invalid`] for an address with
/// a password in it.
///
/// `timeout` is the maximum time without data from the server; `None`: a minute. The server may
/// redirect to `redirects` only; `None`: anywhere.
pub(crate) fn open(
    url: &str,
    timeout: Option<Duration>,
    redirects: Option<&[UrlPrefix]>,
) -> Result<WebViews> {
    let (_, rest) = url.split_once("://").unwrap_or_default();
    if rest
        .split(['/', '?', '#'])
        .next()
        .unwrap_or_default()
        .contains('@')
    {
        return Err(Error::invalid(
            LAYER,
            "the address has a user name or password, which would be shown: remove the part \
             before the @",
        ));
    }
    let mut file = WebFile::new(url, timeout, redirects)?;
    let head = file.first()?;
    let file = Arc::new(file);
    let usual = Fetched::new(Box::new(file.clone()), "", &Pieces::new(MEMORY, PIECE));
    usual.cache_piece(0, &head);
    let pieces = Pieces::new(SMALL_MEMORY, SMALL_PIECE);
    let frugal = Fetched::new(Box::new(file), "", &pieces).without_prefetch();
    for (piece, index) in head.chunks(to_usize(SMALL_PIECE)).zip(0..) {
        frugal.cache_piece(index, piece);
    }
    Ok(WebViews {
        usual: Arc::new(usual),
        frugal: Arc::new(frugal),
    })
}

/// Downloads all of the file at `url`, which has at most `most` bytes. The server may redirect to `redirects`
/// only. `timeout` is that of [`open`].
pub(crate) fn small_file(
    url: &str,
    most: usize,
    timeout: Option<Duration>,
    redirects: &[UrlPrefix],
) -> Result<Zeroizing<Vec<u8>>> {
    let file = WebFile::new(url, timeout, Some(redirects))?;
    file.with_retries(async || {
        let request = file.client.get(url).header(ACCEPT_ENCODING, "identity");
        let mut answer = file.send(request).await?;
        let refused = |message: String| Error::new(Kind::Io, LAYER, message);
        match answer.status() {
            StatusCode::OK => {}
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                let message = format!("the server answers {status}: try again later");
                return Err(ResponseError::InPassing(refused(message)));
            }
            status => {
                let message = format!("the server answers {status}");
                return Err(ResponseError::ForGood(refused(message)));
            }
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(most));
        loop {
            let piece = answer.chunk().await.map_err(|error| {
                let message = format!("the transfer failed: {}", reason(&error));
                ResponseError::InPassing(refused(message))
            })?;
            let Some(piece) = piece else {
                return Ok(bytes);
            };
            if piece.len() > most - bytes.len() {
                let message = format!("the file has more than {most} bytes");
                return Err(ResponseError::ForGood(Error::limit(LAYER, message)));
            }
            bytes.extend_from_slice(&piece);
        }
    })
}

/// Returns a client with these timeouts that follows redirects to these places only.
fn client(patience: &Timeouts, redirects: Option<&[UrlPrefix]>) -> Result<Client> {
    prepare_tls();
    Client::builder()
        .user_agent(concat!("bandsaw/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(patience.connect)
        .read_timeout(patience.silence)
        .timeout(patience.request)
        .redirect(policy(redirects))
        .build()
        .map_err(|error| {
            Error::new(
                Kind::Io,
                LAYER,
                format!("cannot create a request: {}", reason(&error)),
            )
        })
}

/// Returns the policy that follows redirects to these places only.
fn policy(redirects: Option<&[UrlPrefix]>) -> Policy {
    let Some(allowed) = redirects.map(<[UrlPrefix]>::to_vec) else {
        return Policy::default();
    };
    Policy::custom(move |attempt| {
        let is_allowed = |prefix: &UrlPrefix| prefix.contains(attempt.url().as_str());
        if !allowed.iter().any(is_allowed) {
            return attempt.error("the server redirects to an address that is not allowed");
        }
        match attempt.previous().len() > MAX_REDIRECTS {
            true => attempt.error("too many redirects"),
            false => attempt.follow(),
        }
    })
}

#[derive(Debug)]
struct WebFile {
    client: Client,
    patience: Timeouts,
    url: String,
    len: u64,
    /// The entity tag, or without one the modification time.
    version: Option<String>,
    /// The server has responded before. Requests to a server that never responded are not retried
    /// after a timeout.
    answered: AtomicBool,
}

/// The reason why a response is unusable, and if a retry may succeed.
enum ResponseError {
    InPassing(Error),
    ForGood(Error),
}

impl WebFile {
    fn new(url: &str, timeout: Option<Duration>, redirects: Option<&[UrlPrefix]>) -> Result<Self> {
        let patience = Timeouts::new(timeout);
        Ok(Self {
            client: client(&patience, redirects)?,
            patience,
            url: url.to_owned(),
            len: 0,
            version: None,
            answered: AtomicBool::new(false),
        })
    }

    /// Requests the first piece, and determines the length of the file from the response.
    fn first(&mut self) -> Result<Vec<u8>> {
        let (len, version, head) = self.with_retries(async || {
            let mut answer = self.request_range(0..PIECE).await?;
            if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE
                && total(answer.headers()) == Some(0)
            {
                return Ok((0, None, Vec::new()));
            }
            let len = self.check(&answer)?;
            let mut head = vec![0; to_usize(PIECE.min(len))];
            fill(&mut answer, &mut head, &mut 0).await?;
            Ok((len, version(answer.headers()), head))
        })?;
        (self.len, self.version) = (len, version);
        Ok(head)
    }

    async fn request_range(&self, range: std::ops::Range<u64>) -> Result<Response, ResponseError> {
        let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
        let request = self
            .client
            .get(&self.url)
            .header(RANGE, range)
            .header(ACCEPT_ENCODING, "identity");
        self.send(request).await
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ResponseError> {
        let answer = request.send().await.map_err(|error| {
            let message = format!("download failed: {}", reason(&error));
            let error_of = Error::new(Kind::Io, LAYER, message);
            let is_silent =
                error.is_timeout() && !error.is_connect() && !self.answered.load(Ordering::Relaxed);
            let is_final = is_silent || error.is_builder() || error.is_redirect();
            if is_final {
                ResponseError::ForGood(error_of)
            } else {
                ResponseError::InPassing(error_of)
            }
        });
        self.answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
        answer
    }

    /// Returns the length of the file, after validating a partial response.
    fn check(&self, answer: &Response) -> Result<u64, ResponseError> {
        let refused =
            |kind, message: String| Err(ResponseError::ForGood(Error::new(kind, LAYER, message)));
        let host = answer.url().host_str().unwrap_or("the server").to_owned();
        match answer.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => {
                let message = format!(
                    "{host} does not support range requests, which are required to read an image \
                     in place: download it"
                );
                return refused(Kind::Unsupported, message);
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                return refused(Kind::NotFound, format!("does not exist on {host}"));
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return refused(
                    Kind::Io,
                    format!(
                        "{host} requires a login ({}), which is not supported: download it",
                        answer.status()
                    ),
                );
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(ResponseError::InPassing(Error::new(
                    Kind::Io,
                    LAYER,
                    format!("{host} answers {status}: try again later"),
                )));
            }
            status => return refused(Kind::Io, format!("{host} answers {status}")),
        }
        if answer
            .headers()
            .get(CONTENT_ENCODING)
            .is_some_and(|how| how != "identity")
        {
            return refused(
                Kind::Unsupported,
                format!(
                    "{host} compresses its responses, so that ranges of the file cannot be read: \
                     download it"
                ),
            );
        }
        match total(answer.headers()) {
            Some(len) => Ok(len),
            None => refused(
                Kind::Unsupported,
                format!("{host} does not send the length of the file (Content-Range): download it"),
            ),
        }
    }

    /// Fills `into`, of which `filled` bytes are already valid.
    async fn part(
        &self,
        offset: u64,
        into: &mut [u8],
        filled: &mut usize,
    ) -> Result<(), ResponseError> {
        let (offset, into) = (offset + *filled as u64, &mut into[*filled..]);
        let end = offset + into.len() as u64;
        let mut answer = self.request_range(offset..end).await?;
        let changed = || {
            ResponseError::ForGood(Error::conflict(
                LAYER,
                "changed on the server: open it again",
            ))
        };
        // The file has become shorter.
        if answer.status() == StatusCode::RANGE_NOT_SATISFIABLE {
            return Err(changed());
        }
        let len = self.check(&answer)?;
        if len != self.len || version(answer.headers()) != self.version {
            return Err(changed());
        }
        if start(answer.headers()) != Some(offset) {
            let message = "the server sent another range than requested";
            return Err(ResponseError::InPassing(
                Error::new(Kind::Io, LAYER, message).at(offset),
            ));
        }
        fill(&mut answer, into, filled).await
    }

    /// Retries transient failures.
    fn with_retries<T>(&self, mut run: impl AsyncFnMut() -> Result<T, ResponseError>) -> Result<T> {
        runtime()?.block_on(async {
            let (mut tries, began) = (1, Instant::now());
            loop {
                match run().await {
                    Ok(done) => return Ok(done),
                    Err(ResponseError::InPassing(_))
                        if tries < TRIES && began.elapsed() < self.patience.retry =>
                    {
                        tokio::time::sleep(PAUSE * 2_u32.pow(tries - 1)).await
                    }
                    Err(ResponseError::InPassing(error) | ResponseError::ForGood(error)) => {
                        return Err(error);
                    }
                }
                tries += 1;
            }
        })
    }
}

impl Ranges for WebFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        for (at, piece) in (offset..)
            .step_by(MAX_AT_ONCE)
            .zip(into.chunks_mut(MAX_AT_ONCE))
        {
            // An interrupted transfer is resumed where it stopped.
            let mut filled = 0;
            self.with_retries(async || self.part(at, piece, &mut filled).await)?;
        }
        Ok(())
    }
}

/// Fills all of `into` from the response, and reads no further. The number of bytes received is
/// added to `filled`.
async fn fill(
    answer: &mut Response,
    mut into: &mut [u8],
    filled: &mut usize,
) -> Result<(), ResponseError> {
    while !into.is_empty() {
        let broken =
            |message: String| ResponseError::InPassing(Error::new(Kind::Io, LAYER, message));
        let piece = answer
            .chunk()
            .await
            .map_err(|error| broken(format!("the transfer failed: {}", reason(&error))))?;
        let Some(piece) = piece else {
            return Err(broken(format!(
                "the transfer ended {} bytes too early",
                into.len()
            )));
        };
        let n = piece.len().min(into.len());
        let (now, rest) = into.split_at_mut(n);
        now.copy_from_slice(&piece[..n]);
        into = rest;
        *filled += n;
    }
    Ok(())
}

/// Parses `7` and `100` of `bytes 7-9/100`: the offset of the part, and the length of the file.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, u64)> {
    let text = headers
        .get(CONTENT_RANGE)?
        .to_str()
        .ok()?
        .strip_prefix("bytes ")?;
    let (part, total) = text.split_once('/')?;
    Some((
        part.split_once('-')
            .and_then(|(start, _)| start.trim().parse().ok()),
        total.trim().parse().ok()?,
    ))
}

fn total(headers: &HeaderMap) -> Option<u64> {
    Some(content_range(headers)?.1)
}

fn start(headers: &HeaderMap) -> Option<u64> {
    content_range(headers)?.0
}

fn version(headers: &HeaderMap) -> Option<String> {
    let of = |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
    of(ETAG).or_else(|| of(LAST_MODIFIED))
}

/// Returns the innermost cause, without the address, which the error names anyway.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "timeout: no response: check the address and the network, or increase --timeout"
            .to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}
