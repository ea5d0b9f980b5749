//! Looking for the next request instead of sleeping until it comes.
//!
//! A client that waits for each answer, or for any of a few, sends the next request within
//! microseconds. To fall asleep and be woken for it costs both sides more than that, in virtual
//! machines several times more. So a thread that was not left alone for long the last time looks
//! for a while before it sleeps, and lets others run between two looks.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::socket::Socket;

/// How long it is looked: about what a sleep costs.
const LOOK: Duration = Duration::from_micros(50);
/// A wait up to this, its end by a wake included, was one that looking would have saved.
const BRIEF: Duration = Duration::from_micros(100);

/// On a single processor whoever looks keeps the client from running.
static WORTHWHILE: LazyLock<bool> =
    LazyLock::new(|| thread::available_parallelism().is_ok_and(|count| count.get() > 1));

/// Whether the last wait of a connection was brief.
#[derive(Debug, Default)]
pub(crate) struct BusyPoll {
    brief: AtomicBool,
}

impl BusyPoll {
    /// What is there, at least a byte, waited for; 0 at the end.
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
    fn what_comes_is_received_either_way() {
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
