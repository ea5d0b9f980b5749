//! Options of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bandsaw::address::UrlPrefix;
use bandsaw::open::NetworkOptions;

use crate::password::Password;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Images, and folders in which images are looked for. Nothing outside of them is opened.
    pub roots: Vec<PathBuf>,
    /// The place at which the server listens.
    pub bind: Bind,
    /// Limits of time and memory.
    pub limits: Limits,
    /// The abilities of visitors beyond reading.
    pub permissions: Permissions,
    /// The URLs that visitors may open.
    pub urls: AllowedUrls,
}

/// The URLs that visitors may open, besides the roots. The default allows none.
#[derive(Debug, Clone)]
pub struct AllowedUrls {
    /// URLs below these are opened; servers may redirect to such URLs only.
    pub prefixes: Vec<UrlPrefix>,
    /// Looks up the variables that name a store of buckets and its credentials.
    pub variables: fn(&str) -> Option<String>,
    /// Time without a response after which a request fails.
    pub timeout: Duration,
}

impl Default for AllowedUrls {
    fn default() -> Self {
        Self {
            prefixes: Vec::new(),
            variables: |_| None,
            timeout: Duration::from_secs(20),
        }
    }
}

impl AllowedUrls {
    /// Returns true if visitors may open the URL.
    pub(crate) fn contains(&self, url: &str) -> bool {
        self.prefixes.iter().any(|prefix| prefix.contains(url))
    }

    /// Returns the options for opening one of the URLs.
    pub(crate) fn network(&self) -> NetworkOptions<'_> {
        NetworkOptions {
            variables: self.variables,
            timeout: Some(self.timeout),
            redirects: Some(&self.prefixes),
            ..NetworkOptions::default()
        }
    }
}

/// The abilities of visitors beyond reading. The default allows none.
#[derive(Debug, Clone)]
pub struct Permissions {
    /// True to let visitors compact and repair images, and create, restore and delete snapshots.
    pub changes: bool,
    /// Folders into which visitors may upload files. With `changes`, files may also be uploaded into
    /// volumes, if there is a folder.
    pub upload_folders: Vec<PathBuf>,
    /// Folders into which visitors may restore files of images.
    pub restore_folders: Vec<PathBuf>,
    /// Maximum length of an uploaded file, in bytes.
    pub upload_limit: u64,
    /// Folder of unlinked temporary files.
    pub temporary: PathBuf,
    /// Receives a line for the begin and one for the end of each change.
    pub log: Option<LogSink>,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            changes: false,
            upload_folders: Vec::new(),
            restore_folders: Vec::new(),
            upload_limit: 16 << 30,
            temporary: PathBuf::from("/tmp"),
            log: None,
        }
    }
}

/// A callback that receives lines of the log of changes.
#[derive(Clone)]
pub struct LogSink(pub Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSink(..)")
    }
}

/// The place at which a server listens.
#[derive(Debug, Clone)]
pub enum Bind {
    /// A port of 127.0.0.1; 0 for one that the system chooses.
    Loopback(u16),
    /// A Unix socket at this path, accessible to its owner only. A socket that no server listens
    /// at is replaced.
    Socket(PathBuf),
    /// An address that other hosts reach.
    Public(Box<PublicAddress>),
}

/// An address that other hosts reach, with what protects it.
#[derive(Debug, Clone)]
pub struct PublicAddress {
    /// The address and the port; port 0 for one that the system chooses.
    pub address: SocketAddr,
    /// File with the certificate of the server and those of its authorities, in PEM.
    pub certificate: PathBuf,
    /// File with the private key of the certificate, in PEM.
    pub key: PathBuf,
    /// The password that visitors give.
    pub password: Password,
    /// Names of this host that visitors may use in addresses, without a port, besides the address
    /// itself.
    pub hosts: Vec<String>,
}

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time; further ones wait.
    pub connections: usize,
    /// Requests at a time, of all visitors.
    pub requests: usize,
    /// Requests at a time of one session.
    pub session_requests: usize,
    /// Bytes that the answers to all requests may hold in memory at a time.
    pub memory: usize,
    /// Images that are kept open at a time.
    pub images: usize,
    /// Time in which a client has to send the head of a request, or its body.
    pub read_time: Duration,
    /// Time in which a client has to take the next 16 KiB of an answer.
    pub write_time: Duration,
    /// Time that a request waits for its turn.
    pub wait_time: Duration,
    /// Time after which the address with the one-time token expires.
    pub invitation_time: Duration,
    /// Time without a request after which a session ends.
    pub idle_time: Duration,
    /// Time after which a session ends even if it is in use.
    pub session_time: Duration,
    /// Time without use after which a passphrase is forgotten.
    pub key_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            requests: 64,
            session_requests: 16,
            memory: 96 << 20,
            images: 8,
            read_time: Duration::from_secs(15),
            write_time: Duration::from_secs(30),
            wait_time: Duration::from_secs(20),
            invitation_time: Duration::from_secs(10 * 60),
            idle_time: Duration::from_secs(60 * 60),
            session_time: Duration::from_secs(12 * 60 * 60),
            key_time: Duration::from_secs(15 * 60),
        }
    }
}
