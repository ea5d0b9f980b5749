//! Reads: holes are sent as hole chunks, ranges of host files are sent without copying, everything
//! else is read and sent.

use std::io::{self, IoSlice};
use std::ops::Range;

use bandsaw::device::{ExtentKind, FileRange};
use bandsaw::size::{narrow, to_usize};

use crate::buffers::Buffer;
use crate::coalesce::TOGETHER;
use crate::connection::{Connection, ErrorReply};
use crate::layout::{DATA_HEAD, Request, data_chunk, end_chunk, flag, hole_chunk, simple_reply};
use crate::platform;
use crate::reply_queue::Reply;
use crate::transmission::{BATCH, Session};
use crate::worker_pool::Job;

/// Maximum length in bytes of a read that is copied: small replies are buffered and sent together.
pub(crate) const SMALL: u32 = 32 << 10;
/// Piece size in bytes of reads that are sent in parts because the connection cannot send files: a
/// piece stays in the processor's cache between reading and sending.
const PIECE: u64 = 256 << 10;
/// Maximum length in bytes of a file range whose header already marks it as the final chunk, which
/// saves the client another read from the socket. A failure after that closes the connection; it is
/// rare for short ranges whose last byte is in the page cache.
const FINAL_CHUNK_MAX: u64 = 128 << 10;
/// Piece size of reads by worker threads, in bytes.
const WORKER_PIECE: u32 = 1 << 20;

/// Returns true if the reply to a read may be split into several chunks.
fn may_fragment(connection: &Connection, request: &Request) -> bool {
    connection.structured && !request.has(flag::DF)
}

/// Adds the header of a reply with all of the data.
pub(crate) fn whole_head(connection: &Connection, request: &Request, out: &mut Vec<u8>) {
    match connection.structured {
        true => data_chunk(out, request.cookie, true, request.offset, request.len),
        false => simple_reply(out, request.cookie, 0),
    }
}

impl Session<'_> {
    pub(crate) fn read(&mut self, request: &Request) -> io::Result<()> {
        if self.connection.reads.is_slow() {
            self.queue_read(request);
            return Ok(());
        }
        if request.len <= SMALL {
            return self.read_small(request);
        }
        if !may_fragment(self.connection, request) {
            return self.read_whole(request);
        }
        self.read_in_chunks(request)
    }

    pub(crate) fn queue_read(&mut self, request: &Request) {
        let len = if may_fragment(self.connection, request) {
            request.len.min(WORKER_PIECE)
        } else {
            request.len
        };
        let buffer = self.connection.buffers.acquire(len as usize);
        self.worker_pool
            .submit(self.connection, Job::Read(*request, buffer));
    }

    fn read_small(&mut self, request: &Request) -> io::Result<()> {
        let connection = self.connection;
        let begin = self.out.len();
        whole_head(connection, request, &mut self.out);
        let at = self.out.len();
        self.out.resize(at + request.len as usize, 0);
        let into = &mut self.out[at..];
        if let Err(error) = connection.reads.time(into.len(), || {
            connection.export.device().read_at(request.offset, into)
        }) {
            self.out.truncate(begin);
            connection.refuse(&mut self.out, request, &connection.failed("read", &error));
        }
        if self.out.len() >= BATCH {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Reads with a single-part reply: after its header is sent, a failure can no longer be
    /// reported.
    fn read_whole(&mut self, request: &Request) -> io::Result<()> {
        let connection = self.connection;
        let range = request.range();
        if connection.channel.sends_files()
            && !connection.export.has_failed()
            && let Ok(Some(file_range)) = connection.export.device().file_range(range.clone())
            && file_range.len == u64::from(request.len)
        {
            if platform::would_wait(
                &file_range.file,
                &(file_range.offset..file_range.offset + file_range.len),
            ) {
                drop(file_range);
                self.queue_read(request);
                return Ok(());
            }
            whole_head(connection, request, &mut self.out);
            return self
                .send_file_range(range, file_range, true)?
                .map_err(|refusal| io::Error::other(refusal.why));
        }
        if u64::from(request.len) <= TOGETHER {
            return self.read_together(request);
        }
        let mut buffer = connection.buffers.acquire(request.len as usize);
        if let Err(error) = connection.reads.time(buffer.len(), || {
            connection.export.device().read_at(range.start, &mut buffer)
        }) {
            connection.refuse(&mut self.out, request, &connection.failed("read", &error));
            return Ok(());
        }
        whole_head(connection, request, &mut self.out);
        self.send_with(&buffer)
    }

    fn read_in_chunks(&mut self, request: &Request) -> io::Result<()> {
        let connection = self.connection;
        let device = connection.export.device();
        let range = request.range();
        let piece = if connection.channel.sends_files() {
            TOGETHER
        } else {
            PIECE
        };
        let mut at = range.start;
        while at < range.end {
            let (kind, end) = match connection.run_at(at..range.end) {
                Ok(run) => run,
                Err(error) => return self.refuse_read(request, &connection.failed("read", &error)),
            };
            // Holes are told as such, so that the client neither receives nor stores zeros.
            if kind != ExtentKind::Data {
                hole_chunk(
                    &mut self.out,
                    request.cookie,
                    end == range.end,
                    at,
                    narrow(end - at),
                );
                if end == range.end {
                    return Ok(());
                }
                at = end;
                continue;
            }
            let file_range = if connection.channel.sends_files() {
                device.file_range(at..end)
            } else {
                Ok(None)
            };
            match file_range {
                Ok(Some(file_range)) => {
                    let place = file_range.offset..file_range.offset + file_range.len;
                    // A page that is not in memory would keep this thread from the other requests of the connection, so
                    // the request is queued. That is possible only before its reply has begun.
                    if at == range.start && platform::would_wait(&file_range.file, &place) {
                        drop(file_range);
                        self.queue_read(request);
                        return Ok(());
                    }
                    let run = at..at + file_range.len;
                    // A chunk that is announced as the last cannot be followed by an error: only one that is sure to
                    // arrive is.
                    let is_all = run == range
                        && file_range.len <= FINAL_CHUNK_MAX
                        && !connection.export.has_failed();
                    data_chunk(
                        &mut self.out,
                        request.cookie,
                        is_all,
                        run.start,
                        narrow(run.end - run.start),
                    );
                    match self.send_file_range(run.clone(), file_range, is_all)? {
                        Ok(()) if is_all => return Ok(()),
                        Ok(()) => at = run.end,
                        Err(refusal) if is_all => return Err(io::Error::other(refusal.why)),
                        Err(refusal) => return self.refuse_read(request, &refusal),
                    }
                }
                // One short run needs no chunks: it is read behind the header and sent with it.
                Ok(None) if (at..end) == range && end - at <= piece => {
                    return self.read_together(request);
                }
                Ok(None) => {
                    let run = at..end.min(at + piece);
                    at = run.end;
                    if !self.send_piece(request, run)? || at == range.end {
                        return Ok(());
                    }
                }
                Err(error) => return self.refuse_read(request, &connection.failed("read", &error)),
            }
        }
        // The last part sent from a file could not be marked as final in advance, because it might
        // have failed.
        end_chunk(&mut self.out, request.cookie);
        Ok(())
    }

    /// Reads a part of a request, and sends it as a chunk. Returns `false` if that failed, and the request is refused.
    fn send_piece(&mut self, request: &Request, run: Range<u64>) -> io::Result<bool> {
        let connection = self.connection;
        let len: u32 = narrow(run.end - run.start);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(scratch.len().max(len as usize), 0);
        let into = &mut scratch[..len as usize];
        let read = connection.reads.time(into.len(), || {
            connection.export.device().read_at(run.start, into)
        });
        if let Err(error) = read {
            self.refuse_read(request, &connection.failed("read", &error))?;
            return Ok(false);
        }
        let is_last = run.end == request.range().end;
        data_chunk(&mut self.out, request.cookie, is_last, run.start, len);
        let sent = self.send_with(&scratch[..len as usize]);
        self.scratch = scratch;
        sent.map(|()| true)
    }

    fn refuse_read(&mut self, request: &Request, refusal: &ErrorReply) -> io::Result<()> {
        self.connection.refuse(&mut self.out, request, refusal);
        Ok(())
    }

    /// Sends the pending replies and `body`.
    fn send_with(&mut self, body: &[u8]) -> io::Result<()> {
        let sent = self
            .connection
            .replies
            .transmit(&mut [IoSlice::new(&self.out), IoSlice::new(body)]);
        self.out.clear();
        sent
    }

    /// Sends the pending replies, which end with the header of `range`, and then `range`. With
    /// `promised`, the header has reported success. Returns a refusal if some of the data is
    /// invalid; if it was promised, the connection is closed.
    fn send_file_range(
        &mut self,
        range: Range<u64>,
        file_range: FileRange,
        promised: bool,
    ) -> io::Result<Result<(), ErrorReply>> {
        let connection = self.connection;
        let sent = {
            let _wire = connection.replies.wire();
            connection
                .channel
                .send(&mut [IoSlice::new(&self.out)], true)
                .and_then(|()| from_file(connection, range, file_range, promised))
        };
        self.out.clear();
        connection.replies.drain();
        sent
    }
}

/// Sends `range`, which starts with `file_range`, from host files as long as that works, then by copying.
fn from_file(
    connection: &Connection,
    range: Range<u64>,
    file_range: FileRange,
    promised: bool,
) -> io::Result<Result<(), ErrorReply>> {
    let mut at = range.start;
    let mut file_range = Some(file_range);
    while let Some(from) = file_range.take() {
        let mut place = from.offset..from.offset + from.len;
        let sent = connection.channel.send_file(&from.file, &mut place);
        at += place.start - from.offset;
        drop(from);
        match sent {
            Ok(()) if at == range.end => return Ok(Ok(())),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connection.channel.wait_for_room()?
            }
            Err(error) if is_gone(&error) => return Err(error),
            Err(_) => break,
        }
        file_range = connection
            .export
            .device()
            .file_range(at..range.end)
            .unwrap_or(None);
    }
    by_copying(connection, at..range.end, promised)
}

/// Returns true if the error means that the client has disconnected.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | TimedOut
    )
}

/// Sends `range`, whose length was already announced: unreadable data is replaced by zeros and
/// refused. If success was promised, the connection is closed instead, so that the client cannot
/// take the zeros for data.
fn by_copying(
    connection: &Connection,
    range: Range<u64>,
    promised: bool,
) -> io::Result<Result<(), ErrorReply>> {
    let mut at = range.start;
    let mut piece = vec![0; to_usize(PIECE.min(range.end - range.start))];
    let mut done = Ok(());
    while at < range.end {
        let len = to_usize((range.end - at).min(piece.len() as u64));
        let bytes = &mut piece[..len];
        if done.is_ok() {
            done = connection
                .export
                .device()
                .read_at(at, bytes)
                .map_err(|error| connection.failed("read", &error));
        }
        if done.is_err() {
            connection.export.note_failure();
            if promised {
                connection.channel.socket().end(std::net::Shutdown::Both);
                return Ok(done);
            }
            bytes.fill(0);
        }
        connection.channel.send(&mut [IoSlice::new(bytes)], true)?;
        at += len as u64;
    }
    Ok(done)
}

/// Serves a read on a worker thread, using its buffer.
pub(crate) fn run_on_worker(connection: &Connection, request: &Request, mut buffer: Buffer) {
    let mut head = Vec::with_capacity(DATA_HEAD);
    let device = connection.export.device();
    let range = request.range();
    let chunks = may_fragment(connection, request) && request.len > SMALL;
    let mut at = range.start;
    while at < range.end {
        let run = if chunks {
            connection.run_at(at..range.end)
        } else {
            Ok((ExtentKind::Data, range.end))
        };
        let (kind, end) = match run {
            Ok((kind, end)) => (
                kind,
                end.min(if kind == ExtentKind::Data {
                    at + buffer.len() as u64
                } else {
                    end
                }),
            ),
            Err(error) => {
                return refuse(
                    connection,
                    request,
                    head,
                    &connection.failed("read", &error),
                );
            }
        };
        let last = end == range.end;
        let len: u32 = narrow(end - at);
        if kind != ExtentKind::Data {
            hole_chunk(&mut head, request.cookie, last, at, len);
            at = end;
            continue;
        }
        let into = &mut buffer[..len as usize];
        if let Err(error) = connection
            .reads
            .time(into.len(), || device.read_at(at, into))
        {
            return refuse(
                connection,
                request,
                head,
                &connection.failed("read", &error),
            );
        }
        match chunks {
            true => data_chunk(&mut head, request.cookie, last, at, len),
            false => whole_head(connection, request, &mut head),
        }
        if last && len as usize == buffer.len() {
            return connection.replies.send(Reply {
                head,
                body: Some(buffer),
            });
        }
        // The buffer is reused for the next piece, or is longer than the data, so it is sent now.
        if connection
            .replies
            .transmit(&mut [IoSlice::new(&head), IoSlice::new(&buffer[..len as usize])])
            .is_err()
        {
            return connection.channel.socket().end(std::net::Shutdown::Both);
        }
        head.clear();
        at = end;
    }
    if !head.is_empty() {
        connection.replies.send(Reply { head, body: None });
    }
}

fn refuse(connection: &Connection, request: &Request, mut head: Vec<u8>, refusal: &ErrorReply) {
    connection.refuse(&mut head, request, refusal);
    connection.replies.send(Reply { head, body: None });
}
