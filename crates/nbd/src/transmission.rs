//! The transmission phase: requests are received in batches, served in order if the device is fast,
//! and their replies are sent together.
//!
//! The receiving thread serves requests itself: waking another thread costs more than reading
//! cached data. Only if the device is slow (see [`LatencyMean`](crate::latency::LatencyMean)) are they handed to
//! the [`WorkerPool`](crate::worker_pool::WorkerPool), so that many are in flight.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bandsaw::size::to_usize;

use crate::channel::Channel;
use crate::connection::Connection;
use crate::handshake::protocol;
use crate::layout::{Command, Request, flag};
use crate::requests::perform;
use crate::worker_pool::{Job, WorkerPool};

/// Size of pending replies, in bytes, at which they are sent.
pub(crate) const BATCH: usize = 256 << 10;
/// Size of the receive buffer, in bytes.
const INPUT: usize = 512 << 10;
/// Length in bytes above which a change may be slow even if shorter ones are fast.
const LONG_CHANGE: u32 = 8 << 20;

/// State of the receiving thread.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) worker_pool: Arc<WorkerPool>,
    pub(crate) input: Input,
    /// Pending replies.
    pub(crate) out: Vec<u8>,
    /// Buffer for reads without a file range.
    pub(crate) scratch: Vec<u8>,
}

/// Serves a connection until its client disconnects.
pub(crate) fn serve(connection: &Arc<Connection>) -> io::Result<()> {
    let mut session = Session {
        connection,
        worker_pool: Arc::default(),
        input: Input::default(),
        out: Vec::new(),
        scratch: Vec::new(),
    };
    let ended = session.run();
    // Received requests are completed, even if the client has disconnected.
    session.worker_pool.finish();
    ended
}

impl Session<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            if self.input.waiting() < Request::SIZE {
                self.flush()?;
                if !self.input.fill(&self.connection.channel, Request::SIZE)? {
                    return Ok(());
                }
            }
            let head = self
                .input
                .consume(&self.connection.channel, Request::SIZE)?;
            let request = Request::parse(head).ok_or_else(|| protocol("invalid request header"))?;
            if request.command == Command::Disconnect {
                return self.flush();
            }
            self.serve(&request)?;
        }
    }

    fn serve(&mut self, request: &Request) -> io::Result<()> {
        if let Err(refusal) = self.connection.check(request) {
            self.connection.refuse(&mut self.out, request, &refusal);
            return match request.command {
                Command::Write => self
                    .input
                    .skip(&self.connection.channel, u64::from(request.len)),
                _ => Ok(()),
            };
        }
        match request.command {
            Command::Read => self.read(request),
            Command::Write => self.write(request),
            _ => {
                let connection = self.connection;
                let long = request.command == Command::Cache
                    || request.len > LONG_CHANGE && request.command != Command::BlockStatus
                    || request.has(flag::NO_HOLE) && request.len > LONG_CHANGE / 8;
                if long || connection.others.is_slow() {
                    self.worker_pool.submit(connection, Job::Other(*request));
                } else {
                    connection
                        .others
                        .time(0, || perform(connection, request, &mut self.out));
                }
                Ok(())
            }
        }
    }

    /// Sends the pending replies if receiving `count` bytes might block.
    pub(crate) fn flush_before(&mut self, count: usize) -> io::Result<()> {
        if self.input.waiting() < count {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends the pending replies.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = self
            .connection
            .replies
            .transmit(&mut [IoSlice::new(&self.out)]);
        self.out.clear();
        sent
    }
}

/// Receive buffer. It is allocated on first use.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn waiting(&self) -> usize {
        self.end - self.start
    }

    /// Receives until `need` bytes are buffered. Returns `false` if the client has disconnected and
    /// the buffer is empty.
    fn fill(&mut self, channel: &Channel, need: usize) -> io::Result<bool> {
        if self.bytes.is_empty() {
            self.bytes.resize(INPUT, 0);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.bytes.len() - self.start < need {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.waiting() < need {
            match channel.receive(&mut self.bytes[self.end..])? {
                0 if self.waiting() == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.end += count,
            }
        }
        Ok(true)
    }

    /// Takes the next `count` bytes, at most half of the buffer's size.
    pub(crate) fn consume(&mut self, channel: &Channel, count: usize) -> io::Result<&[u8]> {
        if self.waiting() < count && !self.fill(channel, count)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = &self.bytes[self.start..self.start + count];
        self.start += count;
        Ok(taken)
    }

    /// Returns the next `count` bytes without consuming them, if they are already buffered.
    pub(crate) fn peek(&self, count: usize) -> Option<&[u8]> {
        self.bytes[self.start..self.end].get(..count)
    }

    /// Consumes bytes that were peeked at.
    pub(crate) fn skip_peeked(&mut self, count: usize) {
        self.start += count;
    }

    /// Fills `into` with the next bytes.
    pub(crate) fn read(&mut self, channel: &Channel, mut into: &mut [u8]) -> io::Result<()> {
        let here = self.waiting().min(into.len());
        into[..here].copy_from_slice(&self.bytes[self.start..self.start + here]);
        self.start += here;
        into = &mut into[here..];
        while !into.is_empty() {
            match channel.receive(into)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => into = &mut into[count..],
            }
        }
        Ok(())
    }

    /// Discards the next bytes.
    fn skip(&mut self, channel: &Channel, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let piece = to_usize(count.min(INPUT as u64 / 2));
            self.consume(channel, piece)?;
            count -= piece as u64;
        }
        Ok(())
    }
}
