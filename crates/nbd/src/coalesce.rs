//! Reads that were received one after the other and go on where the last one ends, done as one: a
//! device that decodes does parts of much on every core, and the replies leave together.

use std::io::{self, IoSlice};

use bandsaw::device::ExtentKind;

use crate::layout::{Command, DATA_HEAD, Request};
use crate::read::{SMALL, whole_head};
use crate::transmission::Session;

/// Read at once, at most.
pub(crate) const TOGETHER: u64 = 256 << 10;

impl Session<'_> {
    /// Answers `first`, of which nothing is lent and which is no longer than [`TOGETHER`], and the
    /// reads that go on behind it.
    pub(crate) fn read_together(&mut self, first: &Request) -> io::Result<()> {
        let link = self.link;
        let requests = self.take_adjacent(first);
        let mut scratch = std::mem::take(&mut self.scratch);
        let len = requests.iter().map(|request| request.len as usize).sum();
        scratch.resize(scratch.len().max(len), 0);
        let read = link.reads.time(len, || {
            link.export
                .device()
                .read_at(first.offset, &mut scratch[..len])
        });
        let done = match read {
            Ok(()) => self.send_together(&requests, &scratch[..len]),
            Err(error) if requests.len() == 1 => {
                link.refuse(&mut self.out, first, &link.failed("read", &error));
                Ok(())
            }
            // Not all of them need fail.
            Err(_) => {
                requests
                    .iter()
                    .for_each(|request| self.hand_over_read(request));
                Ok(())
            }
        };
        self.scratch = scratch;
        done
    }

    /// `first`, and those that were received behind it and go on reading where it ends. These are
    /// taken.
    fn take_adjacent(&mut self, first: &Request) -> Vec<Request> {
        let mut requests = vec![*first];
        let mut range = first.range();
        while let Some(next) = self.input.peek(Request::SIZE).and_then(Request::parse) {
            let goes_on = next.command == Command::Read
                && next.flags == first.flags
                && next.offset == range.end;
            let end = next.range().end;
            if !goes_on
                || next.len <= SMALL
                || end - range.start > TOGETHER
                || self.link.check(&next).is_err()
            {
                break;
            }
            // Holes are told as such.
            if self.link.structured
                && self.link.run_at(next.range()).ok() != Some((ExtentKind::Data, end))
            {
                break;
            }
            self.input.skip_peeked(Request::SIZE);
            requests.push(next);
            range.end = end;
        }
        requests
    }

    /// Sends what waits, and behind it a reply to each of `requests`, whose bytes follow each other
    /// in `bytes`.
    fn send_together(&mut self, requests: &[Request], mut bytes: &[u8]) -> io::Result<()> {
        let mut heads = Vec::with_capacity(requests.len() * DATA_HEAD);
        let ends: Vec<_> = requests
            .iter()
            .map(|request| {
                whole_head(self.link, request, &mut heads);
                heads.len()
            })
            .collect();
        let mut parts = vec![IoSlice::new(&self.out)];
        let mut at = 0;
        for (request, end) in requests.iter().zip(ends) {
            let (body, rest) = bytes.split_at(request.len as usize);
            parts.extend([IoSlice::new(&heads[at..end]), IoSlice::new(body)]);
            (at, bytes) = (end, rest);
        }
        let sent = self.link.transmit(&mut parts);
        self.out.clear();
        sent
    }
}
