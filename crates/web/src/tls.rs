//! The certificate of a server that other hosts reach.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bandsaw::{Error, Kind, Result};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

const LAYER: &str = "certificates";

/// Reads the certificate and its key, both in PEM.
pub(crate) fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(certificate, error))?;
    if certificates.is_empty() {
        return Err(Error::invalid(LAYER, "no certificate in the file").in_file(certificate));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
    let refused =
        |error: rustls::Error| Error::invalid(LAYER, error.to_string()).in_file(certificate);
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(refused)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unreadable(path: &Path, error: pem::Error) -> Error {
    match error {
        pem::Error::Io(source) if source.kind() == io::ErrorKind::NotFound => {
            Error::new(Kind::NotFound, LAYER, "does not exist").in_file(path)
        }
        pem::Error::Io(source) => Error::io(LAYER, "read", source).in_file(path),
        error => Error::invalid(LAYER, error.to_string()).in_file(path),
    }
}
