//! Where clients come in.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Kind, Result};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use crate::LAYER;
use crate::socket::Socket;

/// How many may wait to be let in.
const BACKLOG: i32 = 128;

/// A socket that listens. A Unix one is removed when this is dropped.
#[derive(Debug)]
pub enum Listener {
    /// On this machine, for its owner alone.
    Unix(UnixListener, PathBuf),
    /// At an address.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens at a path. What a server that crashed left there is replaced; a server that answers
    /// is a [`Kind::Conflict`], and so is anything else that stands there.
    pub fn unix(path: &Path) -> Result<Self> {
        let failed =
            |doing: &'static str, source: io::Error| Error::io(LAYER, doing, source).in_file(path);
        if let Ok(meta) = fs::symlink_metadata(path) {
            if !meta.file_type().is_socket() {
                return Err(Error::new(
                    Kind::Conflict,
                    LAYER,
                    "is there already, and is no socket",
                )
                .in_file(path));
            }
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(|source| {
                        failed("remove a socket that nobody listens at", source)
                    })?;
                }
                _ => {
                    return Err(
                        Error::new(Kind::Conflict, LAYER, "another server listens there")
                            .in_file(path),
                    );
                }
            }
        }
        let address = SocketAddrUnix::new(path)
            .map_err(|errno| failed("use as a socket's name", errno.into()))?;
        let bound = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)
            .and_then(|socket| rustix::net::bind(&socket, &address).map(|()| socket));
        let socket = bound.map_err(|errno| failed("listen", errno.into()))?;
        // Until it listens nobody can connect: there is no moment at which others may.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
            .map_err(|source| failed("protect", source))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| failed("listen", errno.into()))?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|errno| failed("listen", errno.into()))?;
        Ok(Self::Unix(UnixListener::from(socket), path.to_owned()))
    }

    /// Listens at an address; port 0 is one that the host chooses.
    pub fn tcp(address: SocketAddr) -> Result<Self> {
        let bound = TcpListener::bind(address);
        bound
            .map(Self::Tcp)
            .map_err(|source| Error::io(LAYER, "listen", source).named(address.to_string()))
    }

    /// How clients name it: an NBD URI without an export, `nbd+unix:///?socket=/run/x` or
    /// `nbd://127.0.0.1:10809`; with `tls`, `nbds`.
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

/// Text as a part of a URI; `but` may stand there as well.
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
            // Whoever took the name meanwhile did so because nobody listened.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
