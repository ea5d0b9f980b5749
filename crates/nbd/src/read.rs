//! Reads: holes are told, what a file of the host holds is sent from there without copying, the rest is read and sent.

use std::io::{self, IoSlice};
use std::ops::Range;

use bandsaw::device::{ExtentKind, Lent};

use crate::buffers::Buffer;
use crate::crew::{Crew, Job};
use crate::layout::{DATA_HEAD, Request, data_chunk, end_chunk, flag, hole_chunk, simple_reply};
use crate::link::{Link, Parcel, Refusal};
use crate::platform;
use crate::transmission::{BATCH, Session};

/// Up to here a copy costs less than what it saves: small replies are read behind each other and leave together.
const SMALL: u32 = 32 << 10;
/// Read and sent in one go where nothing is lent: it stays in the processor's cache in between.
const PIECE: u64 = 256 << 10;
/// What a thread of the crew reads in one go.
const CREW_PIECE: u32 = 1 << 20;

/// Whether a read may be answered in several chunks.
fn may_fragment(link: &Link, request: &Request) -> bool {
    link.structured && !request.has(flag::DF)
}

/// What stands before the data of a read that is answered as one.
fn whole_head(link: &Link, request: &Request, out: &mut Vec<u8>) {
    match link.structured {
        true => data_chunk(out, request.cookie, true, request.offset, request.len),
        false => simple_reply(out, request.cookie, 0),
    }
}

impl Session<'_> {
    pub(crate) fn read(&mut self, request: &Request) -> io::Result<()> {
        if self.link.reads.is_slow() {
            self.hand_over_read(request);
            return Ok(());
        }
        if request.len <= SMALL {
            return self.read_small(request);
        }
        if !may_fragment(self.link, request) {
            return self.read_whole(request);
        }
        self.read_in_chunks(request)
    }

    fn hand_over_read(&mut self, request: &Request) {
        let len = if may_fragment(self.link, request) { request.len.min(CREW_PIECE) } else { request.len };
        let buffer = self.link.buffers.take(len as usize);
        Crew::post(self.link, Job::Read(*request, buffer));
    }

    fn read_small(&mut self, request: &Request) -> io::Result<()> {
        let link = self.link;
        let begin = self.out.len();
        whole_head(link, request, &mut self.out);
        let at = self.out.len();
        self.out.resize(at + request.len as usize, 0);
        let into = &mut self.out[at..];
        if let Err(error) = link.reads.time(into.len(), || link.export.device().read_at(request.offset, into)) {
            self.out.truncate(begin);
            link.refuse(&mut self.out, request, &link.failed("read", &error));
        }
        if self.out.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    /// The answer is one piece: once its head is sent, there is no way to tell of a failure.
    fn read_whole(&mut self, request: &Request) -> io::Result<()> {
        let link = self.link;
        let range = request.range();
        if link.channel.sends_files()
            && let Ok(Some(lent)) = link.export.device().lend(range.clone())
            && lent.len == u64::from(request.len)
        {
            if platform::would_wait(&lent.file, &(lent.offset..lent.offset + lent.len)) {
                drop(lent);
                self.hand_over_read(request);
                return Ok(());
            }
            whole_head(link, request, &mut self.out);
            return match self.send_lent(range, lent)? {
                Ok(()) => Ok(()),
                Err(refusal) => Err(io::Error::other(refusal.why)),
            };
        }
        let mut buffer = link.buffers.take(request.len as usize);
        if let Err(error) = link.reads.time(buffer.len(), || link.export.device().read_at(range.start, &mut buffer)) {
            link.refuse(&mut self.out, request, &link.failed("read", &error));
            return Ok(());
        }
        whole_head(link, request, &mut self.out);
        self.send_with(&buffer)
    }

    fn read_in_chunks(&mut self, request: &Request) -> io::Result<()> {
        let link = self.link;
        let device = link.export.device();
        let range = request.range();
        let mut at = range.start;
        while at < range.end {
            let (kind, end) = match link.run_at(at..range.end) {
                Ok(run) => run,
                Err(error) => return self.refuse_read(request, &link.failed("read", &error)),
            };
            if kind != ExtentKind::Data {
                hole_chunk(&mut self.out, request.cookie, end == range.end, at, (end - at) as u32);
                if end == range.end {
                    return Ok(());
                }
                at = end;
                continue;
            }
            let lent = if link.channel.sends_files() { device.lend(at..end) } else { Ok(None) };
            match lent {
                Ok(Some(lent)) => {
                    let place = lent.offset..lent.offset + lent.len;
                    if at == range.start && platform::would_wait(&lent.file, &place) {
                        drop(lent);
                        self.hand_over_read(request);
                        return Ok(());
                    }
                    let run = at..at + lent.len;
                    data_chunk(&mut self.out, request.cookie, false, run.start, (run.end - run.start) as u32);
                    if let Err(refusal) = self.send_lent(run.clone(), lent)? {
                        return self.refuse_read(request, &refusal);
                    }
                    at = run.end;
                }
                Ok(None) => {
                    let len = (end - at).min(PIECE) as u32;
                    self.scratch.resize(PIECE as usize, 0);
                    let mut scratch = std::mem::take(&mut self.scratch);
                    let into = &mut scratch[..len as usize];
                    if let Err(error) = link.reads.time(into.len(), || device.read_at(at, into)) {
                        return self.refuse_read(request, &link.failed("read", &error));
                    }
                    at += u64::from(len);
                    data_chunk(&mut self.out, request.cookie, at == range.end, at - u64::from(len), len);
                    let sent = self.send_with(&scratch[..len as usize]);
                    self.scratch = scratch;
                    sent?;
                    if at == range.end {
                        return Ok(());
                    }
                }
                Err(error) => return self.refuse_read(request, &link.failed("read", &error)),
            }
        }
        // What was sent from a file could not be called the last before all of it was: it might have failed.
        end_chunk(&mut self.out, request.cookie);
        Ok(())
    }

    fn refuse_read(&mut self, request: &Request, refusal: &Refusal) -> io::Result<()> {
        self.link.refuse(&mut self.out, request, refusal);
        Ok(())
    }

    /// Sends what waits and `body` behind it.
    fn send_with(&mut self, body: &[u8]) -> io::Result<()> {
        let sent = self.link.transmit(&mut [IoSlice::new(&self.out), IoSlice::new(body)]);
        self.out.clear();
        sent
    }

    /// Sends what waits, which ends with the head of `range`, and `range` behind it. A refusal: the bytes that followed are
    /// not all right.
    fn send_lent(&mut self, range: Range<u64>, lent: Lent) -> io::Result<Result<(), Refusal>> {
        let link = self.link;
        let sent = {
            let _wire = link.wire();
            link.channel.send(&mut [IoSlice::new(&self.out)], true).and_then(|()| from_file(link, range, lent))
        };
        self.out.clear();
        link.drain();
        sent
    }
}

/// Sends `range`, of which `lent` is the beginning, from files as long as that works, else by copying.
fn from_file(link: &Link, range: Range<u64>, lent: Lent) -> io::Result<Result<(), Refusal>> {
    let mut at = range.start;
    let mut lent = Some(lent);
    while let Some(from) = lent.take() {
        let mut place = from.offset..from.offset + from.len;
        let sent = link.channel.send_file(&from.file, &mut place);
        at += place.start - from.offset;
        drop(from);
        match sent {
            Ok(()) if at == range.end => return Ok(Ok(())),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => link.channel.wait_for_room()?,
            Err(error) if is_gone(&error) => return Err(error),
            Err(_) => break,
        }
        lent = link.export.device().lend(at..range.end).unwrap_or(None);
    }
    by_copying(link, at..range.end)
}

/// Whether an error is the client's absence.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | TimedOut)
}

/// Sends `range`, whose length the client has been told: what cannot be read is made up for by zeros, and refused.
fn by_copying(link: &Link, range: Range<u64>) -> io::Result<Result<(), Refusal>> {
    let mut at = range.start;
    let mut piece = vec![0; PIECE.min(range.end - range.start) as usize];
    let mut done = Ok(());
    while at < range.end {
        let len = (range.end - at).min(piece.len() as u64) as usize;
        let bytes = &mut piece[..len];
        if done.is_ok() {
            done = link.export.device().read_at(at, bytes).map_err(|error| link.failed("read", &error));
        }
        if done.is_err() {
            bytes.fill(0);
        }
        link.channel.send(&mut [IoSlice::new(bytes)], true)?;
        at += len as u64;
    }
    Ok(done)
}

/// Does a read by a thread of the crew, into the memory that belongs to it.
pub(crate) fn patiently(link: &Link, request: &Request, mut buffer: Buffer) {
    let mut head = Vec::with_capacity(DATA_HEAD);
    let device = link.export.device();
    let range = request.range();
    let chunks = may_fragment(link, request) && request.len > SMALL;
    let mut at = range.start;
    while at < range.end {
        let run = if chunks { link.run_at(at..range.end) } else { Ok((ExtentKind::Data, range.end)) };
        let (kind, end) = match run {
            Ok((kind, end)) => (kind, end.min(if kind == ExtentKind::Data { at + buffer.len() as u64 } else { end })),
            Err(error) => return refuse(link, request, head, &link.failed("read", &error)),
        };
        let last = end == range.end;
        let len = (end - at) as u32;
        if kind != ExtentKind::Data {
            hole_chunk(&mut head, request.cookie, last, at, len);
            at = end;
            continue;
        }
        let into = &mut buffer[..len as usize];
        if let Err(error) = link.reads.time(into.len(), || device.read_at(at, into)) {
            return refuse(link, request, head, &link.failed("read", &error));
        }
        match chunks {
            true => data_chunk(&mut head, request.cookie, last, at, len),
            false => whole_head(link, request, &mut head),
        }
        if last && len as usize == buffer.len() {
            return link.post(Parcel { head, body: Some(buffer) });
        }
        // The memory is needed again, or is longer than what was read: it is sent from here.
        if link.transmit(&mut [IoSlice::new(&head), IoSlice::new(&buffer[..len as usize])]).is_err() {
            return link.channel.socket().end(std::net::Shutdown::Both);
        }
        head.clear();
        at = end;
    }
    if !head.is_empty() {
        link.post(Parcel { head, body: None });
    }
}

fn refuse(link: &Link, request: &Request, mut head: Vec<u8>, refusal: &Refusal) {
    link.refuse(&mut head, request, refusal);
    link.post(Parcel { head, body: None });
}
