//! Sending of replies, by one thread of a connection at a time.

use std::io::{self, IoSlice};
use std::sync::Arc;

use bandsaw::sync::{Mutex, MutexGuard};

use crate::buffers::Buffer;
use crate::channel::Channel;

/// Maximum number of parts in one system call.
const MAX_PARTS: usize = 512;

/// The sending side of a connection.
#[derive(Debug)]
pub(crate) struct ReplyQueue {
    channel: Arc<Channel>,
    /// Held while sending.
    wire: Mutex<()>,
    /// Replies of worker threads, to be sent by the thread that holds `wire`.
    outbox: Mutex<Vec<Reply>>,
}

/// A reply: its header and the data read.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Option<Buffer>,
}

impl ReplyQueue {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self {
            channel,
            wire: Mutex::default(),
            outbox: Mutex::default(),
        }
    }

    /// Locks the connection for sending. The caller must call [`drain`](Self::drain) after
    /// releasing it.
    pub(crate) fn wire(&self) -> MutexGuard<'_, ()> {
        self.wire.lock()
    }

    /// Sends `parts` without interleaving other replies.
    pub(crate) fn transmit(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let sent = {
            let _wire = self.wire();
            self.channel.send(parts, false)
        };
        self.drain();
        sent
    }

    /// Queues a reply, which this thread or the one that is sending sends.
    pub(crate) fn send(&self, reply: Reply) {
        self.outbox.lock().push(reply);
        self.drain();
    }

    /// Sends the queued replies, unless another thread is sending: that one sends them when it is
    /// done.
    pub(crate) fn drain(&self) {
        while !self.outbox.lock().is_empty() {
            let Some(_wire) = self.wire.try_lock() else {
                return;
            };
            loop {
                let replies = std::mem::take(&mut *self.outbox.lock());
                if replies.is_empty() {
                    break;
                }
                let mut parts = Vec::with_capacity(replies.len() * 2);
                for Reply { head, body } in &replies {
                    parts.push(IoSlice::new(head));
                    parts.extend(body.as_deref().map(IoSlice::new));
                }
                if parts
                    .chunks_mut(MAX_PARTS)
                    .any(|parts| self.channel.send(parts, false).is_err())
                {
                    // The receiving thread sees the closed socket, and ends.
                    self.channel.socket().end(std::net::Shutdown::Both);
                }
            }
        }
    }
}
