//! Bytes to and from one client, encrypted or not.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::busy_poll::BusyPoll;
use crate::platform;
use crate::socket::Socket;
use crate::tls::{Session, Tls};

/// A connection with a client.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Arc<Socket>,
    tls: OnceLock<Session>,
    poll: BusyPoll,
    /// True if the client may take its time.
    patient: AtomicBool,
}

impl Socket {
    pub(crate) fn send(
        &self,
        parts: &mut [IoSlice<'_>],
        more: bool,
        patient: bool,
    ) -> io::Result<()> {
        platform::send(self.as_fd(), parts, more, patient)
    }
}

/// How long a lent place is held for a client that does not read: whoever wants to cut the file
/// waits for it.
const HOLD: Duration = Duration::from_secs(1);

impl Channel {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            tls: OnceLock::new(),
            poll: BusyPoll::default(),
            patient: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Encrypts from here on, once the client has shown a certificate. `deadline` is when it must
    /// have.
    pub(crate) fn start_tls(&self, tls: &Tls, deadline: Instant) -> io::Result<()> {
        let session = Session::new(tls)?;
        session.greet(&self.socket, &mut |into| {
            self.receive_raw(into, Some(deadline))
        })?;
        self.tls
            .set(session)
            .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// What is there, at least a byte; 0 at the end.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        self.receive_until(into, None)
    }

    /// The same, but fails once `deadline` is over. The limit stays on the socket: see
    /// [`without_deadline`](Self::without_deadline).
    pub(crate) fn receive_until(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        match self.tls.get() {
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

    /// From here on the client may take its time.
    pub(crate) fn without_deadline(&self) -> io::Result<()> {
        self.patient.store(true, Ordering::Relaxed);
        self.socket.limit_reads(None)?;
        self.socket.limit_writes(Some(HOLD))
    }

    /// Sends all of `parts`. `more`: something follows at once. One thread at a time, so that
    /// replies stay whole.
    pub(crate) fn send(&self, parts: &mut [IoSlice<'_>], more: bool) -> io::Result<()> {
        match self.tls.get() {
            Some(session) => session.send(&self.socket, parts),
            None => self
                .socket
                .send(parts, more, self.patient.load(Ordering::Relaxed)),
        }
    }

    /// Returns whether [`send_file`](Self::send_file) may be used.
    pub(crate) fn sends_files(&self) -> bool {
        platform::SENDS_FILES && !self.is_encrypted()
    }

    /// Waits until the client has taken something.
    pub(crate) fn wait_for_room(&self) -> io::Result<()> {
        platform::wait_for_room(self.socket.as_fd())
    }

    /// Sends `range` of a file; `range.start` tells how far it came, also on failure:
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) if the client takes nothing for a while.
    pub(crate) fn send_file(&self, file: &File, range: &mut Range<u64>) -> io::Result<()> {
        platform::send_file(self.socket.as_fd(), file, range)
    }

    /// Says good-bye where that is usual.
    pub(crate) fn end(&self) {
        if let Some(session) = self.tls.get() {
            session.end(&self.socket);
        }
        self.socket.end(std::net::Shutdown::Both);
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }
}
