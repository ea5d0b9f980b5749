//! The server: its sockets, and the loop that accepts connections.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use bandsaw::{Error, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use crate::LAYER;
use crate::app::{App, Hosts};
use crate::connection::PacedStream;
use crate::options::{Bind, Limits, Options, PublicAddress};
use crate::request_checks::{OPEN, Peer};
use crate::roots::Roots;
use crate::{pages, tls};

/// Length of the queue of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Threads that answer requests; reading of images has its own.
const WORKERS: usize = 2;
/// Threads for reading besides one for each request.
const SPARE: usize = 8;
/// Bytes that are read from a connection at a time, and the longest head of a request.
const BUFFER: usize = 32 << 10;
/// Fields of the head of a request.
const FIELDS: usize = 64;
/// Time between looks for expired sessions and idle images.
const TIDY: Duration = Duration::from_secs(5);
/// Time that requests under way have at the end.
const END: Duration = Duration::from_millis(500);
/// Time that a change under way has at the end.
const CHANGE_END: Duration = Duration::from_secs(30);

/// A server that runs. It ends when this is dropped.
pub struct Running {
    runtime: Option<Runtime>,
    app: Arc<App>,
    address: String,
    token: String,
    /// The socket to be removed at the end.
    socket: Option<PathBuf>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the token.
        let mut shown = f.debug_struct("Running");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// Returns the address of the first page with the one-time token. On a Unix socket, the host is
    /// `localhost`.
    pub fn url(&self) -> String {
        let base = &self.app.site.base;
        format!("{}{base}{OPEN}?token={}", self.address, self.token)
    }

    /// Returns a function that is true if the server is unused: no session is open, and none can be
    /// opened with the one-time token. With a password one can always be opened.
    pub fn idle_check(&self) -> impl Fn() -> bool + Send + use<> {
        let app = Arc::downgrade(&self.app);
        move || {
            app.upgrade().is_none_or(|app| {
                app.login.is_none() && app.sessions.is_over_for_all(Instant::now())
            })
        }
    }

    /// Returns the address of the first page without the token: for visitors who have a password.
    pub fn address(&self) -> String {
        format!("{}{}", self.address, self.app.site.base)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.app.jobs.cancel_all();
        if let Some(runtime) = self.runtime.take() {
            // A change that was cancelled ends in order.
            let turn = self.app.jobs.permits();
            let end = async { tokio::time::timeout(CHANGE_END, turn.acquire_owned()).await };
            drop(runtime.block_on(end));
            runtime.shutdown_timeout(END);
        }
        if let Some(socket) = &self.socket {
            let _ = fs::remove_file(socket);
        }
    }
}

enum Socket {
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener),
}

/// Starts a server. It accepts connections when this returns.
pub fn start(options: &Options) -> Result<Running> {
    let failed = |source: io::Error| Error::io(LAYER, "listen", source);
    bandsaw::platform::forbid_core_dumps();
    // Before the socket is made, which a failure would leave.
    let roots = Roots::open(&options.roots, options.urls.clone())?;
    let (socket, address, hosts) = bind(&options.bind)?;
    let (app, token) = App::new(options, roots, hosts)?;
    let app = Arc::new(app);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(options.limits.requests.saturating_add(SPARE))
        .thread_name("bandsaw web")
        .enable_all()
        .build()
        .map_err(|source| Error::io(LAYER, "start threads", source))?;
    let router = pages::router(app.clone());
    let inside = runtime.enter();
    match socket {
        Socket::Tcp(listener, tls) => {
            listener.set_nonblocking(true).map_err(failed)?;
            let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
            let accept = Accept {
                router,
                limits: app.limits.clone(),
                tls,
            };
            runtime.spawn(accept.tcp(listener));
        }
        Socket::Unix(listener) => {
            listener.set_nonblocking(true).map_err(failed)?;
            let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
            let accept = Accept {
                router,
                limits: app.limits.clone(),
                tls: None,
            };
            runtime.spawn(accept.unix(listener));
        }
    }
    let tidied = app.clone();
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(TIDY).await;
            let app = tidied.clone();
            // Closing an image reads and writes files.
            let _ = tokio::task::spawn_blocking(move || app.tidy(Instant::now())).await;
        }
    });
    let socket = match &options.bind {
        Bind::Socket(path) => Some(path.clone()),
        _ => None,
    };
    drop(inside);
    Ok(Running {
        runtime: Some(runtime),
        app,
        address,
        token,
        socket,
    })
}

/// Returns the socket, the address for people, and the names of this server.
fn bind(bind: &Bind) -> Result<(Socket, String, Hosts)> {
    match bind {
        Bind::Loopback(port) => {
            let (listener, port) = tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port)))?;
            let hosts = [Ipv4Addr::LOCALHOST.to_string(), "localhost".to_owned()];
            let address = format!("http://{}", with_port("127.0.0.1", port, 80));
            let hosts = hosts
                .iter()
                .flat_map(|host| named(host, port, 80))
                .collect();
            Ok((Socket::Tcp(listener, None), address, Hosts::Exactly(hosts)))
        }
        Bind::Socket(path) => Ok((
            Socket::Unix(unix(path)?),
            "http://localhost".to_owned(),
            Hosts::AnyPort,
        )),
        Bind::Public(public) => self::public(public),
    }
}

fn public(public: &PublicAddress) -> Result<(Socket, String, Hosts)> {
    let acceptor = tls::acceptor(&public.certificate, &public.key)?;
    let mut names = public.hosts.clone();
    let ip = public.address.ip();
    if !ip.is_unspecified() {
        names.push(match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
    }
    let Some(first) = names.first().cloned() else {
        let message = "an address for all interfaces has no name by which visitors find it: \
                       name this host, as with --host";
        return Err(Error::invalid(LAYER, message));
    };
    let (listener, port) = tcp(public.address)?;
    let address = format!("https://{}", with_port(&first, port, 443));
    let hosts = names
        .iter()
        .flat_map(|host| named(host, port, 443))
        .collect();
    Ok((
        Socket::Tcp(listener, Some(acceptor)),
        address,
        Hosts::Exactly(hosts),
    ))
}

/// Returns the values of `Host` for a name: browsers leave out the usual port.
fn named(host: &str, port: u16, usual: u16) -> Vec<String> {
    let mut hosts = vec![format!("{host}:{port}")];
    if port == usual {
        hosts.push(host.to_owned());
    }
    hosts
}

fn with_port(host: &str, port: u16, usual: u16) -> String {
    match port == usual {
        true => host.to_owned(),
        false => format!("{host}:{port}"),
    }
}

fn tcp(address: SocketAddr) -> Result<(TcpListener, u16)> {
    let failed = |source| Error::io(LAYER, "listen", source).named(address.to_string());
    let listener = TcpListener::bind(address).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    Ok((listener, port))
}

/// Listens on a Unix socket that only its owner may use.
fn unix(path: &Path) -> Result<UnixListener> {
    let failed =
        |doing: &'static str, source: io::Error| Error::io(LAYER, doing, source).in_file(path);
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(Error::conflict(LAYER, "already exists and is not a socket").in_file(path));
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|source| failed("remove a stale socket", source))?;
            }
            _ => return Err(Error::conflict(LAYER, "in use by another server").in_file(path)),
        }
    }
    let listen = |errno: rustix::io::Errno| failed("listen", errno.into());
    let address = SocketAddrUnix::new(path).map_err(listen)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(listen)?;
    rustix::net::bind(&socket, &address).map_err(listen)?;
    // Nobody can connect before `listen`, so the permissions are never too wide.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .map_err(|source| failed("protect", source))?;
    rustix::net::listen(&socket, BACKLOG).map_err(listen)?;
    Ok(UnixListener::from(socket))
}

struct Accept {
    router: Router,
    limits: Limits,
    tls: Option<TlsAcceptor>,
}

impl Accept {
    async fn tcp(self, listener: tokio::net::TcpListener) {
        let turns = Arc::new(Semaphore::new(self.limits.connections.max(1)));
        while let Ok(turn) = turns.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let _ = stream.set_nodelay(true);
                    let peer = Peer(Some(peer.ip()));
                    match self.tls.clone() {
                        None => self.serve(stream, peer, turn),
                        Some(tls) => self.serve_encrypted(tls, stream, peer, turn),
                    }
                }
                Err(_) => pause().await,
            }
        }
    }

    async fn unix(self, listener: tokio::net::UnixListener) {
        let turns = Arc::new(Semaphore::new(self.limits.connections.max(1)));
        while let Ok(turn) = turns.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => self.serve(stream, Peer(None), turn),
                Err(_) => pause().await,
            }
        }
    }

    fn serve<S>(&self, stream: S, peer: Peer, turn: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (router, limits) = (self.router.clone(), self.limits.clone());
        tokio::spawn(async move {
            let stream = PacedStream::new(stream, limits.write_time);
            connection(stream, router, &limits, peer).await;
            drop(turn);
        });
    }

    fn serve_encrypted<S>(
        &self,
        tls: TlsAcceptor,
        stream: S,
        peer: Peer,
        turn: OwnedSemaphorePermit,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (router, limits) = (self.router.clone(), self.limits.clone());
        tokio::spawn(async move {
            let stream = PacedStream::new(stream, limits.write_time);
            let agreed = tokio::time::timeout(limits.read_time, tls.accept(stream)).await;
            if let Ok(Ok(stream)) = agreed {
                connection(stream, router, &limits, peer).await;
            }
            drop(turn);
        });
    }
}

/// Waits after a failure to accept, as of too many open files.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn connection<S>(stream: S, router: Router, limits: &Limits, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(Body::new))
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read_time)
        .max_buf_size(BUFFER)
        .max_headers(FIELDS);
    // A connection that breaks concerns its client alone.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
