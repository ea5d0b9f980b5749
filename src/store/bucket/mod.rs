//! A bucket of an S3-compatible store, by the `object_store` crate. The only async code of the
//! library, hidden behind a blocking interface.

mod bounded;
mod failure;
mod place;
mod profile;
mod rate_limit;
mod settings;
mod upload;

use std::fmt;
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, CopyOptions, GetOptions, GetRange, ObjectStore,
    ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};

use super::objects::{FillBuffer, ObjectMeta, Objects, SharedBytes};
use super::{Put, check_name};
use crate::error::redacted;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

use self::bounded::BoundedClients;
use self::rate_limit::RateLimiter;

pub use place::BucketPlace;
pub use profile::Credentials;
pub use settings::BucketOptions;

const LAYER: &str = "object store";

/// Retries of a request before the first response of the server: a wrong address is reported soon.
const HASTY_TRIES: usize = 2;

/// Retries after that, about half a minute in all: enough for a gateway to restart. The pauses are
/// random, each from the first to three times the previous one; a small number of them could be
/// over in a second or two.
const MAX_RETRIES: usize = 24;

/// Maximum number of successive pages of a listing without a new key that announce another page.
/// Stores return such pages for deleted keys.
const MAX_EMPTY_PAGES: usize = 1000;

/// Maximum number of keys of a listing. A bundle of 64 TiB in bands of 8 MiB has half as many
/// bands.
const MAX_KEYS: usize = 16 << 20;

/// Timeouts of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// For the connection, after which the attempt is retried.
    pub(super) connect: Duration,
    /// For the response, and for each further part of it.
    pub(super) silence: Duration,
    /// For a request as a whole. None is larger than a few megabytes, so slow lines suffice.
    pub(super) request: Duration,
    /// For all retries of a failing request.
    pub(super) retry: Duration,
}

impl Timeouts {
    /// Derives the timeouts from the maximum time without data from the server; `None`: a minute.
    pub(super) fn new(silence: Option<Duration>) -> Self {
        let silence = silence
            .unwrap_or(Duration::from_secs(60))
            .clamp(Duration::from_millis(1), Duration::from_secs(86_400));
        Self {
            connect: silence.min(Duration::from_secs(10)),
            silence,
            request: silence * 5 / 2,
            retry: silence * 3,
        }
    }
}

/// The objects under a prefix of a bucket.
///
/// Requests with transient failures (broken connections, 5xx, "slow down") are retried with growing
/// pauses.
pub struct Bucket {
    hasty: AmazonS3,
    retrying: AmazonS3,
    /// The server has sent a valid response.
    answered: AtomicBool,
    place: BucketPlace,
    /// For messages.
    endpoint: String,
    pace: Option<RateLimiter>,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("place", &self.place)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Bucket {
    /// Creates a client for the objects at `place`, without a request.
    ///
    /// [`Kind::Invalid`] for invalid settings, [`Kind::NotFound`] if the named certificates are
    /// missing.
    pub fn new(place: BucketPlace, options: &BucketOptions) -> Result<Self> {
        prepare_tls();
        let connected = Arc::default();
        let client = |tries| client(&place, options, tries, Arc::clone(&connected));
        Ok(Self {
            hasty: client(HASTY_TRIES)?,
            retrying: client(MAX_RETRIES)?,
            answered: AtomicBool::new(false),
            endpoint: redacted(options.endpoint()).into_owned(),
            place,
            pace: options.bytes_per_second.map(RateLimiter::new),
        })
    }

    fn s3(&self) -> &AmazonS3 {
        if self.answered.load(Ordering::Relaxed) {
            &self.retrying
        } else {
            &self.hasty
        }
    }

    /// Returns the key in the bucket.
    fn path(&self, key: &str) -> Result<Path> {
        check_name(key)?;
        let key = self.place.key(key);
        Path::parse(&key).map_err(|_| {
            Error::invalid(LAYER, "invalid key: not every store supports it").named(key)
        })
    }

    /// Waits for requests, on the calling thread.
    fn wait<T>(
        &self,
        key: &str,
        requests: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        let done = runtime()?.block_on(requests);
        match &done {
            Ok(_)
            | Err(
                object_store::Error::NotFound { .. } | object_store::Error::AlreadyExists { .. },
            ) => {
                self.answered.store(true, Ordering::Relaxed);
            }
            Err(_) => {}
        }
        done.map_err(|error| failure::explain(&error, &self.place, &self.endpoint, key))
    }

    /// Returns `None` if the object, and not the bucket, does not exist.
    fn if_there<T>(
        &self,
        key: &str,
        requests: impl Future<Output = object_store::Result<T>>,
    ) -> Result<Option<T>> {
        self.wait(key, async {
            match requests.await {
                Err(error @ object_store::Error::NotFound { .. })
                    if failure::bucket_is_missing(&error) =>
                {
                    Err(error)
                }
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                done => done.map(Some),
            }
        })
    }

    /// Delays `bytes` to keep to the configured rate.
    async fn keep_pace(&self, bytes: usize) {
        if let Some(pace) = &self.pace {
            tokio::time::sleep(pace.reserve(bytes)).await;
        }
    }

    /// Fills buffers from `offset`; returns the number of bytes read and the tag of the version.
    async fn fetch(
        &self,
        path: &Path,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> object_store::Result<(usize, Option<String>)> {
        let len: usize = into.iter().map(|buffer| buffer.len()).sum();
        let range = GetRange::Bounded(offset..offset.saturating_add(len as u64));
        let found = self
            .s3()
            .get_opts(
                path,
                GetOptions {
                    range: Some(range),
                    ..GetOptions::default()
                },
            )
            .await;
        let mut found = match found {
            // The object ends before the range. Some servers answer a range of an empty object with
            // all of it.
            Err(error) if failure::past_the_end(&error) => return Ok((0, None)),
            Err(error) if failure::ignored_range(&error) => {
                let meta = self.s3().head(path).await?;
                return if meta.size <= offset {
                    Ok((0, None))
                } else {
                    Err(error)
                };
            }
            found => found?,
        };
        let tag = found.meta.e_tag.take();
        let mut pieces = found.into_stream();
        let mut free = into
            .iter_mut()
            .flat_map(|buffer| buffer.chunks_mut(usize::MAX));
        let (mut buffer, mut filled): (&mut [u8], usize) = (&mut [], 0);
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            self.keep_pace(piece.len()).await;
            let mut rest = &piece[..];
            while !rest.is_empty() {
                if buffer.is_empty() {
                    let Some(next) = free.next() else { break };
                    buffer = next;
                }
                let n = rest.len().min(buffer.len());
                let (now, later) = mem::take(&mut buffer).split_at_mut(n);
                now.copy_from_slice(&rest[..n]);
                (buffer, rest, filled) = (later, &rest[n..], filled + n);
            }
        }
        Ok((filled, tag))
    }
}

impl Objects for Bucket {
    fn read_scattered(
        &self,
        key: &str,
        offset: u64,
        into: &mut [&mut [u8]],
    ) -> Result<Option<(usize, String)>> {
        let path = self.path(key)?;
        if into.iter().all(|buffer| buffer.is_empty()) {
            return Ok(self.stat(key)?.map(|meta| (0, meta.tag)));
        }
        let read = self.if_there(key, self.fetch(&path, offset, into))?;
        Ok(read.map(|(n, tag)| (n, tag.as_deref().map(plain_tag).unwrap_or_default())))
    }

    fn put_gathered(&self, key: &str, pieces: Vec<SharedBytes>, cond: Put) -> Result<bool> {
        let path = self.path(key)?;
        let payload: PutPayload = pieces.into_iter().map(Bytes::from_owner).collect();
        let len = payload.content_length();
        if cond == Put::Replace && len > upload::IN_ONE {
            let fill = |offset: u64, into: &mut [u8]| {
                upload::gather(&payload, to_usize(offset), into);
                Ok(())
            };
            return self
                .put_large(key, len as u64, &fill, &mut || Ok(()))
                .map(|()| true);
        }
        self.wait(key, async {
            let mode = match cond {
                Put::Replace => PutMode::Overwrite,
                Put::IfAbsent => PutMode::Create,
            };
            self.keep_pace(len).await;
            match self.s3().put_opts(&path, payload, mode.into()).await {
                Err(object_store::Error::AlreadyExists { .. }) if cond == Put::IfAbsent => {
                    Ok(false)
                }
                put => put.map(|_| true),
            }
        })
    }

    fn put_large(
        &self,
        key: &str,
        len: u64,
        fill: &FillBuffer<'_>,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let path = self.path(key)?;
        self.upload(key, &path, len, fill, confirm)
    }

    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let (from_path, to_path) = (self.path(from)?, self.path(to)?);
        let copied = self.if_there(
            from,
            self.s3()
                .copy_opts(&from_path, &to_path, CopyOptions::default()),
        )?;
        copied.ok_or_else(|| Error::not_found(LAYER, from))
    }

    fn remove(&self, key: &str) -> Result<bool> {
        let path = self.path(key)?;
        Ok(self.if_there(key, self.s3().delete(&path))?.is_some())
    }

    fn stat(&self, key: &str) -> Result<Option<ObjectMeta>> {
        let path = self.path(key)?;
        Ok(self
            .if_there(key, self.s3().head(&path))?
            .as_ref()
            .map(known))
    }

    fn list(
        &self,
        prefix: &str,
        each: &mut dyn FnMut(&str, &ObjectMeta) -> Result<()>,
    ) -> Result<()> {
        let root = self.place.key("");
        let prefix = format!("{root}{prefix}");
        let endless = |why: &str| {
            Err(
                Error::limit(LAYER, format!("the listing of {} {why}", self.endpoint))
                    .named(&prefix),
            )
        };
        let mut page_token: Option<String> = None;
        // Bounds the loop: the server alone decides when a listing ends, so new keys must keep
        // arriving.
        let (mut last, mut keys, mut empty) = (String::new(), 0, 0);
        loop {
            let options = PaginatedListOptions {
                page_token: page_token.clone(),
                ..PaginatedListOptions::default()
            };
            let page = self.wait(&prefix, self.s3().list_paginated(Some(&prefix), options))?;
            let end = page
                .result
                .objects
                .iter()
                .map(|object| object.location.as_ref())
                .max()
                .unwrap_or_default();
            if end > last.as_str() {
                (last, empty) = (end.to_owned(), 0);
            } else {
                empty += 1;
            }
            keys += page.result.objects.len();
            if empty > MAX_EMPTY_PAGES || page.page_token.is_some() && page.page_token == page_token
            {
                return endless("repeats a key: is it an S3 service?");
            }
            if keys > MAX_KEYS {
                return endless(&format!("has too many keys (limit {MAX_KEYS})"));
            }
            for object in &page.result.objects {
                // Placeholder objects of graphical tools for folders have keys that end with `/`,
                // and are skipped.
                let Some(key) = object
                    .location
                    .as_ref()
                    .strip_prefix(&root)
                    .filter(|_| object.location.as_ref().starts_with(&prefix))
                else {
                    continue;
                };
                each(key, &known(object))?;
            }
            match page.page_token {
                Some(token) => page_token = Some(token),
                None => return Ok(()),
            }
        }
    }
}

fn known(object: &object_store::ObjectMeta) -> ObjectMeta {
    let tag = object.e_tag.as_deref().map(plain_tag).unwrap_or_default();
    ObjectMeta {
        len: object.size,
        tag,
        modified: object.last_modified.into(),
    }
}

/// Servers differ on quotes around a tag.
fn plain_tag(tag: &str) -> String {
    tag.trim_matches('"').to_owned()
}

fn client(
    place: &BucketPlace,
    options: &BucketOptions,
    tries: usize,
    answered: Arc<AtomicBool>,
) -> Result<AmazonS3> {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_millis(2500),
        base: 3.,
    };
    let patience = Timeouts::new(options.timeout);
    let retry = RetryConfig {
        backoff,
        max_retries: tries,
        retry_timeout: patience.retry,
    };
    let mut http = ClientOptions::new()
        .with_allow_http(options.allows_plain_http()?)
        .with_connect_timeout(patience.connect)
        .with_timeout(patience.request);
    for certificate in options.certificates()? {
        http = http.with_root_certificate(certificate);
    }
    let mut builder = AmazonS3Builder::new()
        .with_http_connector(BoundedClients::new(patience.silence, answered))
        .with_bucket_name(&place.bucket)
        .with_region(options.region())
        .with_skip_signature(options.anonymous)
        .with_retry(retry);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    if let Some(credentials) = &options.credentials {
        builder = builder
            .with_access_key_id(&credentials.key_id)
            .with_secret_access_key(credentials.secret.as_str());
        if let Some(token) = &credentials.token {
            builder = builder.with_token(token.as_str());
        }
    }
    for (name, value) in &options.elsewhere {
        let key: AmazonS3ConfigKey = name.parse().map_err(|_| {
            Error::invalid(LAYER, "unknown setting of the object store").named(name)
        })?;
        builder = builder.with_config(key, value);
    }
    let built = builder.with_client_options(http).build();
    built.map_err(|error| failure::explain(&error, place, &redacted(options.endpoint()), ""))
}

/// Parses all certificates of a PEM file.
fn certificates(pem: &[u8]) -> Option<Vec<Certificate>> {
    Certificate::from_pem_bundle(pem)
        .ok()
        .filter(|found| !found.is_empty())
}

/// Selects the TLS implementation, once.
pub(super) fn prepare_tls() {
    // Fails if the program has already selected one, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Returns the threads that run requests, started on first use.
pub(super) fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("network")
            .enable_all()
            .build()
            .ok()
    });
    made.as_ref()
        .ok_or_else(|| Error::new(Kind::Io, LAYER, "cannot start network threads"))
}
