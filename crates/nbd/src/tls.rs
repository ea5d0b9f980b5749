//! TLS: the server's certificate and the verification of clients.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bandsaw::sync::{Mutex, MutexGuard};
use bandsaw::{Error, Kind, Result};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::channel::{self, Encryption, Receive};
use crate::platform::SendOptions;
use crate::socket::Socket;

/// TLS configuration of a server. Clients must present a certificate signed by a configured
/// authority.
#[derive(Debug, Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads a folder of PEM files with the names that other NBD programs use: `ca-cert.pem`
    /// (authorities for clients), `server-cert.pem`, `server-key.pem`, and the optional
    /// `ca-crl.pem` (revoked certificates).
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let mut authorities = RootCertStore::empty();
        let path = folder.join("ca-cert.pem");
        for certificate in certificates(&path)? {
            authorities
                .add(certificate)
                .map_err(|error| refused(&path, error))?;
        }
        let revoked = revoked(&folder.join("ca-crl.pem"))?;
        let clients = WebPkiClientVerifier::builder_with_provider(
            Arc::new(authorities),
            Arc::new(default_provider()),
        )
        .with_crls(revoked)
        .build()
        .map_err(|error| refused(&path, error))?;
        let path = folder.join("server-key.pem");
        let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| unreadable(&path, error))?;
        let path = folder.join("server-cert.pem");
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&path, error))?
            .with_client_cert_verifier(clients)
            .with_single_cert(certificates(&path)?, key)
            .map_err(|error| refused(&path, error))?;
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| unreadable(path, error))?;
    match all.is_empty() {
        true => Err(refused(path, "no certificate in the file")),
        false => Ok(all),
    }
}

fn revoked(path: &PathBuf) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let all = CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>);
    all.map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(source) if source.kind() == io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, LAYER, "required for TLS").in_file(path)
        }
        pem::Error::Io(source) => Error::io(LAYER, "read", source).in_file(path),
        error => refused(path, error),
    }
}

fn refused(path: &Path, why: impl ToString) -> Error {
    Error::invalid(LAYER, why.to_string()).in_file(path)
}

const LAYER: &str = "certificates";
/// Size of a read from the socket in bytes: as much as the TLS library buffers.
const PIECE: usize = 64 << 10;

/// A connection encrypted by TLS.
#[derive(Debug)]
struct Session {
    connection: Mutex<ServerConnection>,
    /// Encrypted data to be sent; locked from encryption to the socket, so that records stay in
    /// order.
    leaving: Mutex<Vec<u8>>,
    /// Encrypted data received; used by the receiving thread only.
    arriving: Mutex<ReceivedRecords>,
}

#[derive(Debug)]
struct ReceivedRecords {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Encryption for Tls {
    fn session(&self) -> io::Result<Box<dyn channel::Session>> {
        let connection = ServerConnection::new(Arc::clone(&self.0)).map_err(io::Error::other)?;
        Ok(Box::new(Session {
            connection: Mutex::new(connection),
            leaving: Mutex::default(),
            arriving: Mutex::new(ReceivedRecords {
                bytes: vec![0; PIECE],
                start: 0,
                end: 0,
            }),
        }))
    }
}

impl channel::Session for Session {
    fn greet(&self, socket: &Socket, receive: &mut Receive<'_>) -> io::Result<()> {
        while lock(&self.connection).is_handshaking() {
            self.flush_output(socket)?;
            if lock(&self.connection).is_handshaking() && !self.arrive(socket, receive)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush_output(socket)
    }

    fn receive(
        &self,
        socket: &Socket,
        into: &mut [u8],
        receive: &mut Receive<'_>,
    ) -> io::Result<usize> {
        loop {
            let got = lock(&self.connection).reader().read(into);
            match got {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                got => return got,
            }
            if !self.arrive(socket, receive)? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn send(&self, socket: &Socket, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
        let mut leaving = lock(&self.leaving);
        for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                let mut connection = lock(&self.connection);
                let taken = connection.writer().write(rest)?;
                drop(connection);
                rest = &rest[taken..];
                self.write_out(socket, &mut leaving)?;
            }
        }
        Ok(())
    }

    fn end(&self, socket: &Socket) {
        lock(&self.connection).send_close_notify();
        // The client may have disconnected already.
        let _ = self.flush_output(socket);
    }
}

impl Session {
    /// Receives encrypted data; returns `false` at its end.
    fn arrive(&self, socket: &Socket, receive: &mut Receive<'_>) -> io::Result<bool> {
        let mut arriving = lock(&self.arriving);
        let ReceivedRecords { bytes, start, end } = &mut *arriving;
        if start == end {
            (*start, *end) = (0, receive(bytes)?);
            if *end == 0 {
                return Ok(false);
            }
        }
        let mut connection = lock(&self.connection);
        *start += connection.read_tls(&mut &bytes[*start..*end])?;
        let processed = connection.process_new_packets().map(drop);
        let answers = connection.wants_write();
        drop(connection);
        // If another thread is sending, it sends the TLS response, too.
        if answers && let Some(mut leaving) = self.leaving.try_lock() {
            self.write_out(socket, &mut leaving)?;
        }
        processed
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            .map(|()| true)
    }

    fn flush_output(&self, socket: &Socket) -> io::Result<()> {
        self.write_out(socket, &mut lock(&self.leaving))
    }

    fn write_out(&self, socket: &Socket, leaving: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = lock(&self.connection);
        while connection.wants_write() {
            connection.write_tls(leaving)?;
        }
        drop(connection);
        let options = SendOptions {
            more: false,
            is_patient: true,
        };
        let sent = socket.send(&mut [io::IoSlice::new(leaving)], options);
        leaving.clear();
        sent
    }
}
