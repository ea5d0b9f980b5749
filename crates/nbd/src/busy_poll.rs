//! Busy polling for the next request instead of sleeping.
//!
//! A client with a small queue depth sends the next request within microseconds of a reply.
//! Sleeping and waking up costs both sides more than that, in virtual machines several times more.
//! So if the previous wait was short, the thread polls for a while before it sleeps, and yields
//! between polls.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::socket::Socket;

/// Polling time: about the cost of a sleep.
const LOOK: Duration = Duration::from_micros(50);
/// Maximum duration of a wait, including the wake-up, that polling would have avoided.
const BRIEF: Duration = Duration::from_micros(100);

/// On a single processor polling would keep the client from running.
static WORTHWHILE: LazyLock<bool> =
    LazyLock::new(|| thread::available_parallelism().is_ok_and(|count| count.get() > 1));

/// Polling state of a connection: true if its last wait was brief.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    brief: AtomicBool,
}

impl BusyPoll {
    /// Waits for data and receives it, at least a byte; returns 0 at the end of the stream.
    pub(crate) fn receive(&self, socket: &Socket, into: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        while self.brief.load(Ordering::Relaxed) && began.elapsed() < LOOK {
            if let Some(count) = socket.receive_now(into)? {
                return Ok(count);
            }
            thread::yield_now();
        }
        let received = socket.receive(into);
        self.brief
            .store(*WORTHWHILE && began.elapsed() < BRIEF, Ordering::Relaxed);
        received
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn messages_arrive_either_way() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (server, poll) = (Socket::from(server), BusyPoll::default());
        for brief in [false, true] {
            for pause in [Duration::ZERO, LOOK * 40] {
                poll.brief.store(brief, Ordering::Relaxed);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(pause);
                        client.write_all(b"abc").unwrap();
                    });
                    let mut into = [0; 8];
                    assert_eq!(poll.receive(&server, &mut into).unwrap(), 3);
                    assert_eq!(&into[..3], b"abc");
                });
            }
        }
        drop(client);
        poll.brief.store(true, Ordering::Relaxed);
        assert_eq!(poll.receive(&server, &mut [0; 8]).unwrap(), 0);
    }
}
