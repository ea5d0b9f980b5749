//! Connections with time limits.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Bytes that a client has to take within the time limit.
const LEAST: usize = 16 << 10;

/// A connection that fails if the client takes answers too slowly.
pub(crate) struct PacedStream<S> {
    inner: S,
    limit: Duration,
    /// Set while bytes wait for the client.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
    /// Bytes that were taken since the deadline was set.
    taken: usize,
}

impl<S> PacedStream<S> {
    /// Wraps the stream to a client, which has to take bytes within `limit`.
    pub(crate) fn new(inner: S, limit: Duration) -> Self {
        Self {
            inner,
            limit,
            deadline: Box::pin(tokio::time::sleep(limit)),
            waits: false,
            taken: 0,
        }
    }

    /// Notes that the client has to take bytes, and fails after the time limit.
    fn wait<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if !self.waits {
            self.waits = true;
            self.taken = 0;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn count(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => self.wait(cx),
            Poll::Ready(Ok(count)) => {
                self.taken = self.taken.saturating_add(count);
                if self.taken >= LEAST {
                    self.waits = false;
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.count(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.count(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_flush(cx) {
            Poll::Pending => self.wait(cx),
            flushed => {
                // Everything was taken.
                self.waits = false;
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_shutdown(cx) {
            Poll::Pending => self.wait(cx),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up() {
        runtime().block_on(async {
            let (ours, _theirs) = tokio::io::duplex(1024);
            let mut paced = PacedStream::new(ours, Duration::from_millis(1));
            let error = paced.write_all(&[0; 4096]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_client_that_takes_everything_is_served() {
        runtime().block_on(async {
            let (ours, mut theirs) = tokio::io::duplex(1024);
            let mut paced = PacedStream::new(ours, Duration::from_secs(600));
            let sent = async {
                paced.write_all(&[7; 100_000]).await?;
                paced.shutdown().await
            };
            let mut all = Vec::new();
            let taken = theirs.read_to_end(&mut all);
            let (sent, taken) = futures_util::future::join(sent, taken).await;
            sent.unwrap();
            assert_eq!((taken.unwrap(), all.len()), (100_000, 100_000));
        });
    }
}
