//! Multipart uploads of large objects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, PutPayload};

use super::{Bucket, LAYER};
use crate::store::objects::{FillBuffer, Objects};
use crate::sync::Mutex;
use crate::{Error, Kind, Result};

/// Maximum number of bytes uploaded in one request.
pub(super) const IN_ONE: usize = 16 << 20;

/// Minimum size of a part in bytes; S3 allows 10,000 parts of an object.
const PIECE: u64 = 8 << 20;
const MAX_PIECES: u64 = 10_000;

/// Number of concurrent parts, all of which are in memory.
const AT_A_TIME: u64 = 4;

/// Fills `into` with the bytes of `payload` from `offset`.
pub(super) fn gather(payload: &PutPayload, offset: usize, into: &mut [u8]) {
    let (mut skipped, mut filled) = (offset, 0);
    for piece in payload {
        let rest = &piece[skipped.min(piece.len())..];
        skipped -= piece.len() - rest.len();
        let n = rest.len().min(into.len() - filled);
        into[filled..filled + n].copy_from_slice(&rest[..n]);
        filled += n;
    }
}

impl Bucket {
    /// Uploads a large object. It becomes visible after its last part is stored and `go_on` agrees;
    /// an aborted upload leaves nothing.
    pub(super) fn upload(
        &self,
        key: &str,
        path: &Path,
        len: u64,
        fill: &FillBuffer<'_>,
        go_on: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let before = self.stat(key)?;
        let id = self.wait(key, self.s3().create_multipart(path))?;
        let done = self.pieces(key, path, &id, len, fill).and_then(|pieces| {
            go_on()?;
            match self.wait(key, self.s3().complete_multipart(path, &id, pieces)) {
                // An earlier attempt may have completed the upload, and its response been lost.
                Err(error) if error.kind() == Kind::NotFound => {
                    let now = self
                        .stat(key)?
                        .filter(|now| now.len == len && Some(now) != before.as_ref());
                    now.map(drop).ok_or(error)
                }
                done => done.map(drop),
            }
        });
        if done.is_err() {
            // Best effort: the store's lifecycle rules remove abandoned uploads.
            let _ = self.wait(key, self.s3().abort_multipart(path, &id));
        }
        done
    }

    /// Uploads all parts, in any order.
    fn pieces(
        &self,
        key: &str,
        path: &Path,
        id: &MultipartId,
        len: u64,
        fill: &FillBuffer<'_>,
    ) -> Result<Vec<PartId>> {
        let piece = PIECE.max(len.div_ceil(MAX_PIECES));
        let count = len.div_ceil(piece);
        let next = AtomicU64::new(0);
        let stored = Mutex::new(vec![None; count as usize]);
        let work = || -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let put = || {
                    let mut bytes = vec![0; piece.min(len - number * piece) as usize];
                    fill(number * piece, &mut bytes)?;
                    self.wait(key, async {
                        self.keep_pace(bytes.len()).await;
                        self.s3()
                            .put_part(path, id, number as usize, PutPayload::from(bytes))
                            .await
                    })
                };
                // After a failure, the other threads start no further parts.
                let put = put().inspect_err(|_| next.store(count, Ordering::Relaxed))?;
                stored.lock()[number as usize] = Some(put);
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_A_TIME.min(count))
                .map(|_| scope.spawn(work))
                .collect();
            let mut done = Ok(());
            for thread in threads {
                done = done.and(
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            done
        })?;
        let stored = stored.into_inner();
        let all: Option<Vec<PartId>> = stored.into_iter().collect();
        all.ok_or_else(|| {
            Error::new(Kind::Io, LAYER, "a part of the object was not stored").named(key)
        })
    }
}
