//! Writes: directly from the receive buffer if the device is fast, else in pieces by worker
//! threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::connection::{Connection, ErrorReply};
use crate::layout::{Request, simple_reply};
use crate::reply_queue::Reply;
use crate::requests::durable;
use crate::transmission::Session;
use crate::worker_pool::Job;
use bandsaw::size::to_usize;
use bandsaw::sync::Mutex;

/// Piece size in bytes of writes by the receiving thread: a piece stays in the processor's cache,
/// and is smaller than a socket buffer, so that the client continues to send. Pieces are aligned to
/// it, so that no layer has to read before it writes.
const PIECE: u64 = 128 << 10;
/// Piece size of writes by worker threads, in bytes.
const WORKER_PIECE: u64 = 1 << 20;

/// A write whose pieces worker threads perform.
#[derive(Debug)]
pub(crate) struct Pending {
    request: Request,
    left: AtomicUsize,
    refusal: Mutex<Option<ErrorReply>>,
}

/// Returns the end of the piece that starts at `at`.
fn piece_end(at: u64, end: u64, piece: u64) -> u64 {
    (at - at % piece).saturating_add(piece).min(end)
}

impl Session<'_> {
    pub(crate) fn write(&mut self, request: &Request) -> io::Result<()> {
        if self.connection.writes.is_slow() {
            return self.queue_write(request);
        }
        let (connection, range) = (self.connection, request.range());
        let device = connection.export.device();
        let mut done = Ok(());
        let mut at = range.start;
        while at < range.end {
            let end = piece_end(at, range.end, PIECE);
            self.flush_before(to_usize(end - at))?;
            let bytes = self
                .input
                .consume(&connection.channel, to_usize(end - at))?;
            // After a failure the rest of the data is still received: the next request follows it.
            if done.is_ok() {
                done = connection
                    .writes
                    .time(bytes.len(), || device.write_at(at, bytes));
            }
            at = end;
        }
        match done.and_then(|()| durable(&**device, request)) {
            Ok(()) => simple_reply(&mut self.out, request.cookie, 0),
            Err(error) => {
                connection.refuse(&mut self.out, request, &connection.failed("write", &error))
            }
        }
        Ok(())
    }

    fn queue_write(&mut self, request: &Request) -> io::Result<()> {
        let range = request.range();
        let pieces = (range.end - 1) / WORKER_PIECE - range.start / WORKER_PIECE + 1;
        let left = AtomicUsize::new(to_usize(pieces));
        let pending = Arc::new(Pending {
            request: *request,
            left,
            refusal: Mutex::default(),
        });
        let mut at = range.start;
        while at < range.end {
            let end = piece_end(at, range.end, WORKER_PIECE);
            self.flush_before(to_usize(end - at))?;
            let mut bytes = self.connection.buffers.acquire(to_usize(end - at));
            self.input.read(&self.connection.channel, &mut bytes)?;
            self.worker_pool.submit(
                self.connection,
                Job::Write {
                    pending: Arc::clone(&pending),
                    offset: at,
                    bytes,
                },
            );
            at = end;
        }
        Ok(())
    }
}

/// Writes a piece; the last one to finish posts the reply.
pub(crate) fn run_on_worker(connection: &Connection, pending: &Pending, offset: u64, bytes: &[u8]) {
    let device = connection.export.device();
    let refusal = || pending.refusal.lock();
    if let Err(error) = connection
        .writes
        .time(bytes.len(), || device.write_at(offset, bytes))
    {
        refusal().get_or_insert_with(|| connection.failed("write", &error));
    }
    if pending.left.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    let request = &pending.request;
    let failed = refusal().take();
    let done = match failed {
        Some(refusal) => Err(refusal),
        None => durable(&**device, request).map_err(|error| connection.failed("write", &error)),
    };
    let mut head = Vec::new();
    match done {
        Ok(()) => simple_reply(&mut head, request.cookie, 0),
        Err(refusal) => connection.refuse(&mut head, request, &refusal),
    }
    connection.replies.send(Reply { head, body: None });
}
