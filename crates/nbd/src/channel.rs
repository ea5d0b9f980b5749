//! Byte stream of a client, encrypted or plain.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::busy_poll::BusyPoll;
use crate::platform::{self, SendOptions};
use crate::socket::Socket;

/// Encryption of connections.
pub(crate) trait Encryption {
    /// Returns a session for one connection, before its handshake.
    fn session(&self) -> io::Result<Box<dyn Session>>;
}

/// An encrypted connection. One thread receives and decrypts while others encrypt and send.
/// `receive` reads encrypted data from the socket.
pub(crate) trait Session: std::fmt::Debug + Send + Sync {
    /// Performs the handshake, including the client's certificate.
    fn greet(&self, socket: &Socket, receive: &mut Receive<'_>) -> io::Result<()>;
    /// Receives decrypted data, at least a byte; returns 0 at the end of the stream.
    fn receive(
        &self,
        socket: &Socket,
        into: &mut [u8],
        receive: &mut Receive<'_>,
    ) -> io::Result<usize>;
    /// Encrypts and sends all of `parts`.
    fn send(&self, socket: &Socket, parts: &[IoSlice<'_>]) -> io::Result<()>;
    /// Sends a close notification.
    fn end(&self, socket: &Socket);
}

pub(crate) type Receive<'a> = dyn FnMut(&mut [u8]) -> io::Result<usize> + 'a;

/// A connection with a client.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Arc<Socket>,
    session: OnceLock<Box<dyn Session>>,
    poll: BusyPoll,
    /// True after the handshake: the client may be idle for any time.
    patient: AtomicBool,
}

impl Socket {
    pub(crate) fn send(&self, parts: &mut [IoSlice<'_>], options: SendOptions) -> io::Result<()> {
        platform::send(self.as_fd(), parts, options)
    }
}

/// Send timeout of a client that does not read: a file range is pinned meanwhile, and truncating
/// the file waits for it.
const HOLD: Duration = Duration::from_secs(1);

impl Channel {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            session: OnceLock::new(),
            poll: BusyPoll::default(),
            patient: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.session.get().is_some()
    }

    /// Performs the TLS handshake, including the client's certificate, and encrypts from then on.
    /// Fails after `deadline`.
    pub(crate) fn start_tls(&self, tls: &dyn Encryption, deadline: Instant) -> io::Result<()> {
        let session = tls.session()?;
        session.greet(&self.socket, &mut |into| {
            self.receive_raw(into, Some(deadline))
        })?;
        self.session
            .set(session)
            .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// Receives available data, at least a byte; returns 0 at the end of the stream.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        self.receive_until(into, None)
    }

    /// Receives available data, at least a byte, or fails after `deadline`. The timeout stays set
    /// on the socket: see [`without_deadline`](Self::without_deadline).
    pub(crate) fn receive_until(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        match self.session.get() {
            Some(session) => session.receive(&self.socket, into, &mut |raw| {
                self.receive_raw(raw, deadline)
            }),
            None => self.receive_raw(into, deadline),
        }
    }

    fn receive_raw(&self, into: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        if let Some(deadline) = deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.socket.limit_reads(Some(left))?;
        }
        match self.patient.load(Ordering::Relaxed) {
            true => self.poll.receive(&self.socket, into),
            false => self.socket.receive(into),
        }
    }

    /// Removes the read timeout at the end of the handshake.
    pub(crate) fn without_deadline(&self) -> io::Result<()> {
        self.patient.store(true, Ordering::Relaxed);
        self.socket.limit_reads(None)?;
        self.socket.limit_writes(Some(HOLD))
    }

    /// Sends all of `parts`. With `more`, further data follows immediately. Only one thread at a
    /// time may send, so that replies are not interleaved.
    pub(crate) fn send(&self, parts: &mut [IoSlice<'_>], more: bool) -> io::Result<()> {
        match self.session.get() {
            Some(session) => session.send(&self.socket, parts),
            None => {
                let is_patient = self.patient.load(Ordering::Relaxed);
                self.socket.send(parts, SendOptions { more, is_patient })
            }
        }
    }

    /// Returns true if [`send_file`](Self::send_file) is available.
    pub(crate) fn sends_files(&self) -> bool {
        platform::SENDS_FILES && !self.is_encrypted()
    }

    /// Waits until the socket is writable.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        platform::wait_for_room(self.socket.as_fd())
    }

    /// Sends `range` of a file; `range.start` is advanced by the bytes sent, also on failure:
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) after the send timeout.
    pub(crate) fn send_file(&self, file: &File, range: &mut Range<u64>) -> io::Result<()> {
        platform::send_file(self.socket.as_fd(), file, range)
    }

    /// Closes the connection, with TLS after a close notification.
    pub(crate) fn end(&self) {
        if let Some(session) = self.session.get() {
            session.end(&self.socket);
        }
        self.socket.end(std::net::Shutdown::Both);
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}
