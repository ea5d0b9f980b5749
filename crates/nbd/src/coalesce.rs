//! Coalescing of adjacent reads: read requests that are already received and contiguous are served
//! by one device read, so that compressed devices decode on all cores and the replies are sent
//! together.

use std::io::{self, IoSlice};

use bandsaw::device::ExtentKind;

use crate::layout::{Command, DATA_HEAD, Request};
use crate::read::{SMALL, whole_head};
use crate::transmission::Session;

/// Maximum length of a coalesced read, in bytes.
pub(crate) const TOGETHER: u64 = 256 << 10;

impl Session<'_> {
    /// Serves `first`, which has no file range and is at most [`TOGETHER`] long, together with the
    /// contiguous reads after it.
    pub(crate) fn read_together(&mut self, first: &Request) -> io::Result<()> {
        let connection = self.connection;
        let requests = self.take_adjacent(first);
        let mut scratch = std::mem::take(&mut self.scratch);
        let len = requests.iter().map(|request| request.len as usize).sum();
        scratch.resize(scratch.len().max(len), 0);
        let read = connection.reads.time(len, || {
            connection
                .export
                .device()
                .read_at(first.offset, &mut scratch[..len])
        });
        let done = match read {
            Ok(()) => self.send_together(&requests, &scratch[..len]),
            Err(error) if requests.len() == 1 => {
                connection.refuse(&mut self.out, first, &connection.failed("read", &error));
                Ok(())
            }
            // Retried one by one: perhaps only some of them fail.
            Err(_) => {
                requests.iter().for_each(|request| self.queue_read(request));
                Ok(())
            }
        };
        self.scratch = scratch;
        done
    }

    /// Removes the reads that continue `first` from the input; returns all of them, `first`
    /// included.
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
                || self.connection.check(&next).is_err()
            {
                break;
            }
            // Holes are sent as hole chunks instead.
            if self.connection.structured
                && self.connection.run_at(next.range()).ok() != Some((ExtentKind::Data, end))
            {
                break;
            }
            self.input.skip_peeked(Request::SIZE);
            requests.push(next);
            range.end = end;
        }
        requests
    }

    /// Sends the pending replies, then a reply to each of `requests`, whose data is contiguous in
    /// `bytes`.
    fn send_together(&mut self, requests: &[Request], mut bytes: &[u8]) -> io::Result<()> {
        let mut heads = Vec::with_capacity(requests.len() * DATA_HEAD);
        let ends: Vec<_> = requests
            .iter()
            .map(|request| {
                whole_head(self.connection, request, &mut heads);
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
        let sent = self.connection.replies.transmit(&mut parts);
        self.out.clear();
        sent
    }
}
