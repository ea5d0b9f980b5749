//! A server that other hosts reach: only with TLS and a password.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use bandsaw_web::{Bind, Limits, Options, Password, PublicAddress, Running};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::common::{Images, Reply, read_reply};
use crate::skip;

const PASSWORD: &str = "correct horse battery";

pub(crate) struct PublicSite {
    running: Running,
    certificate: PathBuf,
    host: String,
}

/// Starts a server with a certificate of its own. `None`: openssl is absent.
pub(crate) fn site(images: &Images) -> Option<PublicSite> {
    let (certificate, key) = (images.path("cert.pem"), images.path("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip::without_program("a server with TLS", "no openssl");
        return None;
    }
    let options = Options {
        roots: vec![images.root()],
        bind: Bind::Public(Box::new(PublicAddress {
            address: "127.0.0.1:0".parse().unwrap(),
            certificate: certificate.clone(),
            key,
            password: Password::hash(PASSWORD.as_bytes()).unwrap(),
            hosts: vec!["localhost".to_owned()],
        })),
        limits: Limits::default(),
        permissions: Default::default(),
        urls: Default::default(),
    };
    let running = bandsaw_web::start(&options).unwrap();
    let address = running.address();
    let host = address
        .strip_prefix("https://")
        .unwrap()
        .trim_end_matches('/');
    Some(PublicSite {
        host: host.to_owned(),
        running,
        certificate,
    })
}

impl PublicSite {
    /// The field with the cookie of a new session.
    pub(crate) fn sign_in(&self) -> String {
        let entered = self.send("POST", "login", &[], "password=correct+horse+battery");
        let cookie = entered.field("set-cookie").unwrap();
        format!("Cookie: {}", cookie.split(';').next().unwrap())
    }

    /// The token of a session.
    pub(crate) fn csrf(&self, cookie: &str) -> String {
        let page = self.send("GET", "", &[cookie], "").text();
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    pub(crate) fn send(&self, method: &str, page: &str, fields: &[&str], body: &str) -> Reply {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&self.certificate).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let port = self.host.rsplit(':').next().unwrap();
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let mut text = format!(
            "{method} /{page} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.host
        );
        for field in fields {
            text.push_str(&format!("{field}\r\n"));
        }
        if method == "POST" {
            text.push_str("Content-Type: application/x-www-form-urlencoded\r\n");
            text.push_str(&format!(
                "Origin: https://{}\r\nContent-Length: {}\r\n",
                self.host,
                body.len()
            ));
        }
        stream
            .write_all(format!("{text}\r\n{body}").as_bytes())
            .unwrap();
        read_reply(&mut stream)
    }
}

#[test]
fn other_hosts_need_encryption_and_the_password() {
    let images = Images::plain();
    let Some(site) = site(&images) else { return };
    // Without encryption, nothing is said.
    let port = site.host.rsplit(':').next().unwrap();
    let mut plain = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        site.host
    );
    plain.write_all(request.as_bytes()).unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("HTTP/1.1 200"));

    let first = site.send("GET", "", &[], "");
    assert_eq!(
        (first.status, first.field("location").unwrap()),
        (303, "/login".to_owned())
    );
    assert!(
        site.send("GET", "login", &[], "")
            .text()
            .contains("type=\"password\"")
    );
    assert_eq!(
        site.send("GET", "image?r=0&i=docs.dmg", &[], "").status,
        303
    );
    assert_eq!(
        site.send("POST", "login", &[], "password=wrong").status,
        403
    );
    let entered = site.send("POST", "login", &[], "password=correct+horse+battery");
    assert_eq!(entered.status, 303, "{}", entered.head);
    let cookie = entered.field("set-cookie").unwrap();
    for part in [
        "__Host-bandsaw=",
        "; Secure",
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/;",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    assert!(
        site.send("GET", "", &[&cookie], "")
            .text()
            .contains("docs.dmg")
    );
    assert!(site.running.url().starts_with("https://localhost:"));
}

#[test]
fn attempts_to_guess_the_password_are_limited() {
    let images = Images::plain();
    let Some(site) = site(&images) else { return };
    let statuses: Vec<_> = (0..8)
        .map(|_| site.send("POST", "login", &[], "password=wrong").status)
        .collect();
    assert_eq!(statuses, [403, 403, 403, 403, 403, 429, 429, 429]);
    let late = site.send("POST", "login", &[], "password=correct+horse+battery");
    assert_eq!(late.status, 429, "even the right one waits");
}

#[test]
fn a_public_server_is_not_started_by_half() {
    let images = Images::plain();
    let options = |address: &str, certificate: PathBuf| Options {
        roots: vec![images.root()],
        bind: Bind::Public(Box::new(PublicAddress {
            address: address.parse().unwrap(),
            certificate,
            key: images.path("key.pem"),
            password: Password::hash(PASSWORD.as_bytes()).unwrap(),
            hosts: Vec::new(),
        })),
        limits: Limits::default(),
        permissions: Default::default(),
        urls: Default::default(),
    };
    assert!(bandsaw_web::start(&options("127.0.0.1:0", images.path("missing.pem"))).is_err());
    fs::write(images.path("empty.pem"), "").unwrap();
    assert!(bandsaw_web::start(&options("127.0.0.1:0", images.path("empty.pem"))).is_err());
    let Some(site) = site(&images) else { return };
    // An address for all interfaces has no name.
    assert!(bandsaw_web::start(&options("0.0.0.0:0", site.certificate.clone())).is_err());
}
