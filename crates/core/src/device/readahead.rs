//! Read-ahead: chunks are decoded in other threads for a sequential reader, but not after the image
//! is closed.

use std::ops::Range;

use crate::sync::{Condvar, Mutex};

/// Bytes that are read in order before read-ahead starts: more than probing the contents of the
/// disk takes, which starts with consecutive chunks at the front.
const WALK: u64 = 256 << 10;

/// State of the read-ahead. Counts the running tasks, so that closing an image can wait for them:
/// they hold its file and the file's lock.
#[derive(Debug, Default)]
pub struct Readahead {
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    closed: bool,
    /// Number of requests in progress.
    readers: usize,
    /// The chunk after the one read last.
    next: Option<u32>,
    /// Bytes read sequentially since the last jump.
    walked: u64,
    /// Chunks before this one were scheduled already.
    begun: u32,
}

/// A request in progress.
#[derive(Debug)]
pub struct ActiveRequest<'a> {
    ahead: &'a Readahead,
    /// True if no other request was in progress at its start.
    alone: bool,
}

impl Drop for ActiveRequest<'_> {
    fn drop(&mut self) {
        self.ahead.state.lock().readers -= 1;
    }
}

impl ActiveRequest<'_> {
    /// Records a read of `bytes` from the chunks `first` to `last`. Returns the following chunks to
    /// decode ahead, at most `depth` of the bytes that were read sequentially. The range is empty unless the reads are sequential, long
    /// enough and from one thread: parallel readers use all cores themselves.
    pub fn passes(
        &self,
        first: u32,
        last: u32,
        bytes: u64,
        depth: impl FnOnce(u64) -> u32,
    ) -> Range<u32> {
        let mut state = self.ahead.state.lock();
        let next = last.saturating_add(1);
        if state.next == Some(next) {
            state.walked = state.walked.saturating_add(bytes);
            return next..next; // another part of the same chunk
        }
        let goes_on = state.next.is_some_and(|expected| {
            (first == expected || first + 1 == expected) && next > expected
        });
        state.next = Some(next);
        state.walked = if goes_on {
            state.walked.saturating_add(bytes)
        } else {
            bytes
        };
        if !goes_on || !self.alone || state.walked < WALK {
            state.begun = next;
            return next..next;
        }
        let begin =
            state.begun.max(next)..next.saturating_add(depth(state.walked)).max(state.begun);
        state.begun = begin.end;
        begin
    }
}

impl Readahead {
    /// Begins a request.
    pub fn reader(&self) -> ActiveRequest<'_> {
        let mut state = self.state.lock();
        state.readers += 1;
        ActiveRequest {
            ahead: self,
            alone: state.readers == 1,
        }
    }

    /// Runs `work` for chunk `index`, unless the image is closed or the reader has passed the
    /// chunk.
    pub fn run(&self, index: u32, work: impl FnOnce()) {
        let mut state = self.state.lock();
        if state.closed || state.next.is_some_and(|next| index < next) {
            return;
        }
        state.running += 1;
        drop(state);
        work();
        self.state.lock().running -= 1;
        self.idle.notify_all();
    }

    /// Prevents further tasks and waits for the running ones.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        while state.running > 0 {
            state = self.idle.wait(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn closing_waits_and_nothing_begins_after_it() {
        let ahead = Arc::new(Readahead::default());
        let ((begun, wait), (go, stay)) = (channel(), channel::<()>());
        let other = ahead.clone();
        let worker = std::thread::spawn(move || {
            let mut done = false;
            other.run(7, || {
                begun.send(()).unwrap();
                stay.recv().unwrap();
                done = true;
            });
            done
        });
        wait.recv().unwrap();
        go.send(()).unwrap();
        ahead.close();
        ahead.run(7, || unreachable!("it is closed"));
        assert!(worker.join().unwrap());
    }

    #[test]
    fn the_next_range_is_requested_once() {
        let ahead = Readahead::default();
        let read = |first, last| ahead.reader().passes(first, last, WALK, |_| 3);
        assert!(read(0, 0).is_empty(), "one read is no walk");
        assert_eq!(read(1, 1), 2..5);
        assert_eq!(read(2, 2), 5..6);
        assert!(read(2, 2).is_empty(), "the same chunk again");
        assert_eq!(read(2, 4), 6..8);
        assert!(read(40, 40).is_empty(), "elsewhere");
        assert_eq!(read(41, 41), 42..45);
        let other = ahead.reader();
        assert!(read(42, 42).is_empty(), "two at once");
        drop(other);
        ahead.run(42, || unreachable!("it is read already"));
        let mut ran = false;
        ahead.run(43, || ran = true);
        assert!(ran);
    }

    #[test]
    fn a_few_sectors_in_order_are_no_walk() {
        let ahead = Readahead::default();
        let read = |chunk, bytes| ahead.reader().passes(chunk, chunk, bytes, |_| 3);
        for chunk in 0..4 {
            let begun = ahead.reader().passes(chunk, chunk, 4096, |_| {
                unreachable!("nobody asks how many threads there are")
            });
            assert!(begun.is_empty());
        }
        assert!(read(4, WALK / 2).is_empty());
        assert!(
            read(4, WALK / 2).is_empty(),
            "the same chunk again, which counts"
        );
        assert_eq!(read(5, 512), 6..9);
        assert!(read(20, WALK).is_empty(), "elsewhere");
        assert!(read(0, 512).is_empty());
        assert!(
            read(1, 512).is_empty(),
            "what was read before the jump does not count"
        );
    }
}
