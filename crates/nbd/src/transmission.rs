//! The transmission phase: requests are received many at a time, done one after another where that
//! is quickest, and their replies leave together.
//!
//! The thread that receives does the work itself: a wake of another thread costs more than a read
//! of what is in memory. Only where the device makes requests wait (see
//! [`Pace`](crate::dispatch::Pace)) are they handed to the [`WorkerPool`](crate::worker_pool::WorkerPool), so that many
//! wait side by side.

use std::io::{self, IoSlice};
use std::sync::Arc;

use crate::channel::Channel;
use crate::handshake::protocol;
use crate::layout::{Command, Request, flag};
use crate::link::Link;
use crate::perform::perform;
use crate::worker_pool::{Job, WorkerPool};

/// Replies that have come to this leave, whatever else is there to do.
pub(crate) const BATCH: usize = 256 << 10;
/// Received in one go.
const INPUT: usize = 512 << 10;
/// Changes of more than this may take long even where small ones do not.
const LONG: u32 = 8 << 20;

/// The thread that receives, and what is its own.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) link: &'a Arc<Link>,
    pub(crate) input: Input,
    /// Replies that have not left.
    pub(crate) out: Vec<u8>,
    /// What is read where nothing is lent.
    pub(crate) scratch: Vec<u8>,
}

/// Serves a connection until its client leaves.
pub(crate) fn run(link: &Arc<Link>) -> io::Result<()> {
    let mut session = Session {
        link,
        input: Input::default(),
        out: Vec::new(),
        scratch: Vec::new(),
    };
    let ended = session.run();
    // What was received is done, whether or not anybody waits for the answer.
    link.worker_pool.finish();
    ended
}

impl Session<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            if self.input.waiting() < Request::SIZE {
                self.flush()?;
                if !self.input.fill(&self.link.channel, Request::SIZE)? {
                    return Ok(());
                }
            }
            let head = self.input.take(&self.link.channel, Request::SIZE)?;
            let request =
                Request::parse(head).ok_or_else(|| protocol("what it sent is no request"))?;
            if request.command == Command::Disconnect {
                return self.flush();
            }
            self.serve(&request)?;
        }
    }

    fn serve(&mut self, request: &Request) -> io::Result<()> {
        if let Err(refusal) = self.link.check(request) {
            self.link.refuse(&mut self.out, request, &refusal);
            return match request.command {
                Command::Write => self.input.skip(&self.link.channel, u64::from(request.len)),
                _ => Ok(()),
            };
        }
        match request.command {
            Command::Read => self.read(request),
            Command::Write => self.write(request),
            _ => {
                let link = self.link;
                let long = request.command == Command::Cache
                    || request.len > LONG && request.command != Command::BlockStatus
                    || request.has(flag::NO_HOLE) && request.len > LONG / 8;
                if long || link.others.is_slow() {
                    WorkerPool::post(link, Job::Other(*request));
                } else {
                    link.others
                        .time(0, || perform(link, request, &mut self.out));
                }
                Ok(())
            }
        }
    }

    /// Sends the replies that wait, if receiving `count` bytes might take longer.
    pub(crate) fn flush_before(&mut self, count: usize) -> io::Result<()> {
        if self.input.waiting() < count {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Sends the replies that wait.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = self.link.transmit(&mut [IoSlice::new(&self.out)]);
        self.out.clear();
        sent
    }
}

/// What was received and not yet used. The memory is taken with the first byte.
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

    /// Receives until `need` bytes are here. `false`: the client is gone, and all that it sent is
    /// used.
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

    /// The next `count` bytes, at most half of what is received in one go.
    pub(crate) fn take(&mut self, channel: &Channel, count: usize) -> io::Result<&[u8]> {
        if self.waiting() < count && !self.fill(channel, count)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let taken = &self.bytes[self.start..self.start + count];
        self.start += count;
        Ok(taken)
    }

    /// The next `count` bytes, if they were received already. They stay.
    pub(crate) fn peek(&self, count: usize) -> Option<&[u8]> {
        self.bytes[self.start..self.end].get(..count)
    }

    /// Drops so many bytes that were peeked at.
    pub(crate) fn skip_peeked(&mut self, count: usize) {
        self.start += count;
    }

    /// Fills `into` with what comes next.
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

    /// Drops what comes next.
    fn skip(&mut self, channel: &Channel, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let piece = count.min(INPUT as u64 / 2) as usize;
            self.take(channel, piece)?;
            count -= piece as u64;
        }
        Ok(())
    }
}
