//! A connected socket of either kind.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

/// Bytes of replies that the host may keep until the client takes them.
const ON_THE_WAY: usize = 4 << 20;

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// On this machine.
    Unix(UnixStream),
    /// From anywhere.
    Tcp(TcpStream),
}

impl From<UnixStream> for Socket {
    fn from(socket: UnixStream) -> Self {
        Self::Unix(socket)
    }
}

impl From<TcpStream> for Socket {
    fn from(socket: TcpStream) -> Self {
        Self::Tcp(socket)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Socket {
    /// What is there, at least a byte; 0 at the end.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let received = match self {
                Self::Unix(socket) => (&*socket).read(into),
                Self::Tcp(socket) => (&*socket).read(into),
            };
            match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }

    /// The same without waiting; `None`: nothing is there yet.
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(self, into, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Replies leave at once, and many fit on the way; a host that vanished is noticed, in time.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        // The host gives others than root as much of it as it likes.
        #[cfg(target_os = "linux")]
        let forced =
            rustix::net::sockopt::set_socket_send_buffer_size_force(self, ON_THE_WAY).is_ok();
        #[cfg(not(target_os = "linux"))]
        let forced = false;
        if !forced {
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(self, ON_THE_WAY);
        }
        match self {
            Self::Unix(socket) => socket.set_nonblocking(false),
            Self::Tcp(socket) => {
                socket.set_nonblocking(false)?;
                socket.set_nodelay(true)?;
                rustix::net::sockopt::set_socket_keepalive(socket, true).map_err(io::Error::from)
            }
        }
    }

    /// Returns how long a single read waits; `None`: for ever.
    pub(crate) fn limit_reads(&self, to: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_read_timeout(to),
            Self::Tcp(socket) => socket.set_read_timeout(to),
        }
    }

    /// Returns how long a single write waits; `None`: for ever.
    pub(crate) fn limit_writes(&self, to: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_write_timeout(to),
            Self::Tcp(socket) => socket.set_write_timeout(to),
        }
    }

    /// Ends it in these directions, whoever uses it. One that has ended already is fine.
    pub(crate) fn end(&self, how: Shutdown) {
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(how),
            Self::Tcp(socket) => socket.shutdown(how),
        };
    }

    /// Who is at the other end, for people.
    pub(crate) fn peer(&self) -> String {
        match self {
            Self::Unix(_) => "a local client".to_owned(),
            Self::Tcp(socket) => socket
                .peer_addr()
                .map_or_else(|_| "a client".to_owned(), |address| address.to_string()),
        }
    }
}
