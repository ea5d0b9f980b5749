//! A connected socket, Unix or TCP.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;

/// Send buffer size in bytes.
const ON_THE_WAY: usize = 4 << 20;

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// A local connection.
    Unix(UnixStream),
    /// A network connection.
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
    /// Receives available data, at least a byte; returns 0 at the end of the stream.
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

    /// Receives available data without blocking; `None` if there is none.
    pub(crate) fn receive_now(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::net::recv(self, into, RecvFlags::DONTWAIT) {
            Ok((count, _)) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets the socket's options: no signal if the client is gone, a large send buffer, no delay, and
    /// keepalive to detect vanished hosts.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        // Without a flag for each send, as Linux has it.
        #[cfg(target_os = "macos")]
        rustix::net::sockopt::set_socket_nosigpipe(self, true)?;
        // Exceeding the host's maximum requires root.
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

    /// Sets the timeout of a single read; `None` for no timeout.
    pub(crate) fn limit_reads(&self, to: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_read_timeout(to),
            Self::Tcp(socket) => socket.set_read_timeout(to),
        }
    }

    /// Sets the timeout of a single write; `None` for no timeout.
    pub(crate) fn limit_writes(&self, to: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_write_timeout(to),
            Self::Tcp(socket) => socket.set_write_timeout(to),
        }
    }

    /// Shuts down the connection in these directions, also for other threads. Errors are ignored:
    /// it may have ended already.
    pub(crate) fn end(&self, how: Shutdown) {
        let _ = match self {
            Self::Unix(socket) => socket.shutdown(how),
            Self::Tcp(socket) => socket.shutdown(how),
        };
    }

    /// Returns a description of the peer.
    pub(crate) fn peer(&self) -> String {
        match self {
            Self::Unix(_) => "a local client".to_owned(),
            Self::Tcp(socket) => socket
                .peer_addr()
                .map_or_else(|_| "a client".to_owned(), |address| address.to_string()),
        }
    }
}
