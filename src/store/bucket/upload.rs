//! Multipart uploads of large objects.

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, PutPayload};

use super::Bucket;
use crate::size::to_usize;
use crate::store::objects::{FillBuffer, Objects};
use crate::{Kind, Result, parallel};

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
    /// Uploads a large object. It becomes visible after its last part is stored and `confirm` agrees;
    /// an aborted upload leaves nothing.
    pub(super) fn upload(
        &self,
        key: &str,
        path: &Path,
        len: u64,
        fill: &FillBuffer<'_>,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let before = self.stat(key)?;
        let id = self.wait(key, self.s3().create_multipart(path))?;
        let done = self.pieces(key, path, &id, len, fill).and_then(|pieces| {
            confirm()?;
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
        let threads = to_usize(AT_A_TIME.min(count));
        let stored = parallel::each(threads, 0..count, Vec::new, |stored, number, _| {
            let mut bytes = vec![0; to_usize(piece.min(len - number * piece))];
            fill(number * piece, &mut bytes)?;
            let part = self.wait(key, async {
                self.keep_pace(bytes.len()).await;
                self.s3()
                    .put_part(path, id, to_usize(number), PutPayload::from(bytes))
                    .await
            })?;
            stored.push((number, part));
            Ok(())
        })?;
        let mut stored: Vec<(u64, PartId)> = stored.into_iter().flatten().collect();
        stored.sort_unstable_by_key(|(number, _)| *number);
        Ok(stored.into_iter().map(|(_, part)| part).collect())
    }
}
