//! Sockets that accept clients.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::LAYER;
use crate::socket::Socket;

/// Length of the queue of pending connections.
const BACKLOG: i32 = 128;

/// A listening socket. A Unix socket is removed on drop.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket, accessible to its owner only.
    Unix(UnixListener, PathBuf),
    /// A TCP socket.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a Unix socket. A stale socket of a crashed server is replaced; fails with
    /// [`Kind::Conflict`](bandsaw::Kind) if a server answers there or the path exists as anything else.
    pub fn unix(path: &Path) -> Result<Self> {
        let failed =
            |doing: &'static str, source: io::Error| Error::io(LAYER, doing, source).in_file(path);
        if let Ok(meta) = fs::symlink_metadata(path) {
            if !meta.file_type().is_socket() {
                return Err(
                    Error::conflict(LAYER, "already exists and is not a socket").in_file(path)
                );
            }
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)
                        .map_err(|source| failed("remove a stale socket", source))?;
                }
                _ => {
                    return Err(Error::conflict(LAYER, "in use by another server").in_file(path));
                }
            }
        }
        let address = SocketAddrUnix::new(path)
            .map_err(|errno| failed("use the name of the socket", errno.into()))?;
        let bound = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)
            .and_then(|socket| rustix::net::bind(&socket, &address).map(|()| socket));
        let socket = bound.map_err(|errno| failed("listen", errno.into()))?;
        // Before `listen` nobody can connect, so the permissions are never too wide.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|source| failed("protect", source))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| failed("listen", errno.into()))?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|errno| failed("listen", errno.into()))?;
        Ok(Self::Unix(UnixListener::from(socket), path.to_owned()))
    }

    /// Listens on a TCP address; with port 0 the host chooses a port.
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        let bound = TcpListener::bind(address);
        bound
            .map(Self::Tcp)
            .map_err(|source| Error::io(LAYER, "listen", source).named(address.to_string()))
    }

    /// Returns the NBD URI for clients: `nbd+unix:///?socket=/run/x` or `nbd://127.0.0.1:10809`
    /// without an export; with `tls`, the scheme is `nbds`.
    pub fn uri(&self, export: &str, tls: bool) -> String {
        let scheme = if tls { "nbds" } else { "nbd" };
        let export = escaped(export, "");
        match self {
            Self::Unix(_, path) => {
                format!(
                    "{scheme}+unix:///{export}?socket={}",
                    escaped(&path.to_string_lossy(), "/")
                )
            }
            Self::Tcp(listener) => {
                let address = listener
                    .local_addr()
                    .map_or_else(|_| "?".to_owned(), |address| address.to_string());
                format!("{scheme}://{address}/{export}")
            }
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener, _) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Unix(listener, _) => listener.accept().map(|(socket, _)| socket.into()),
            Self::Tcp(listener) => listener.accept().map(|(socket, _)| socket.into()),
        }
    }
}

/// Percent-encodes text for a URI; the characters of `but` are kept.
fn escaped(text: &str, but: &str) -> String {
    let plain = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || but.as_bytes().contains(&byte)
    };
    let one = |byte: u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(one).collect()
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // The socket is removed even if another process has replaced it: by then nothing
            // listened here.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandsaw::Kind;

    #[test]
    fn leftovers_are_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b.sock");
        let listener = Listener::unix(&path).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(
            listener
                .uri("Büro", false)
                .starts_with("nbd+unix:///B%C3%BCro?socket=/")
        );
        assert!(listener.uri("", true).ends_with("a%20b.sock"));
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), Kind::Conflict);
        drop(listener);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path).unwrap());
        fs::write(&path, "mine").unwrap();
        assert_eq!(Listener::unix(&path).unwrap_err().kind(), Kind::Conflict);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
