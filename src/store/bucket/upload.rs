//! Objects that go up in several pieces at a time.

use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use super::Bucket;

/// Bytes that go up in one request.
pub(super) const IN_ONE: usize = 16 << 20;

/// Bytes of a piece, at least; S3 takes 10,000 pieces of an object.
const PIECE: usize = 8 << 20;
const MOST_PIECES: usize = 10_000;

/// Pieces under way at a time: that many copies of a piece are in memory.
const AT_A_TIME: usize = 4;

impl Bucket {
    /// Puts a large object. It is there when its last piece is; an upload that is broken off leaves nothing.
    pub(super) async fn upload(&self, path: &Path, bytes: &[u8]) -> object_store::Result<()> {
        let mut upload = self.s3().put_multipart(path).await?;
        match self.pieces(&mut *upload, bytes).await {
            Ok(()) => upload.complete().await.map(drop),
            Err(error) => {
                // Best effort: the store's own rules clear away what is left of uploads.
                let _ = upload.abort().await;
                Err(error)
            }
        }
    }

    async fn pieces(&self, upload: &mut dyn MultipartUpload, bytes: &[u8]) -> object_store::Result<()> {
        let mut under_way = JoinSet::new();
        for piece in bytes.chunks(PIECE.max(bytes.len().div_ceil(MOST_PIECES))) {
            if under_way.len() == AT_A_TIME {
                settle(under_way.join_next().await)?;
            }
            self.keep_pace(piece.len()).await;
            under_way.spawn(upload.put_part(PutPayload::from(piece.to_vec())));
        }
        while let Some(done) = under_way.join_next().await {
            settle(Some(done))?;
        }
        Ok(())
    }
}

type Joined = Result<object_store::Result<()>, tokio::task::JoinError>;

fn settle(done: Option<Joined>) -> object_store::Result<()> {
    done.map_or(Ok(()), |joined| joined.map_err(|source| object_store::Error::JoinError { source })?)
}
