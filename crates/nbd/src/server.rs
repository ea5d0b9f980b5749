//! The server: accepting clients and shutdown.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use bandsaw::device::Info;
use bandsaw::sync::{Condvar, Mutex};
use bandsaw::{Error, Result};
use rustix::event::{PollFd, PollFlags};

use crate::LAYER;
use crate::channel::{Channel, Encryption};
use crate::connection::Connection;
use crate::events::{Event, EventReceiver, Throttle};
use crate::export::{Export, Exports};
use crate::handshake::{Handshake, NegotiatedOptions};
use crate::listener::Listener;
use crate::socket::Socket;
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::transmission;

/// Stack size in bytes; TLS and devices need some.
const STACK: usize = 1 << 20;
/// Maximum wait during shutdown for clients to receive their replies.
const GRACE: Duration = Duration::from_secs(10);
/// Pause after a failed accept, such as one without free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of clients that have chosen an export; further ones are refused.
    pub connections: usize,
    /// Maximum number of clients in the handshake. The oldest one is closed for a new one.
    pub handshakes: usize,
    /// Maximum duration of a handshake.
    pub handshake_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            handshakes: 64,
            handshake_time: Duration::from_secs(10),
        }
    }
}

/// Options of a server.
#[derive(Debug)]
pub struct Options {
    /// Certificates; if set, nothing is disclosed or served without TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// Limits of the server.
    pub limits: Limits,
    /// Receiver of events.
    pub events: Arc<dyn EventReceiver>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            #[cfg(feature = "tls")]
            tls: None,
            limits: Limits::default(),
            events: Arc::new(crate::IgnoreEvents),
        }
    }
}

/// A server of exports. Clones share one server.
#[derive(Debug, Clone)]
pub struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    exports: Exports,
    options: Options,
    throttle: Arc<Throttle>,
    stopping: AtomicBool,
    table: Mutex<Table>,
    /// Signaled when a connection ends.
    ended: Condvar,
    /// A socket pair that becomes readable permanently when the server stops.
    waker: (UnixStream, UnixStream),
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    socket: Arc<Socket>,
    /// True if it has chosen an export.
    admitted: bool,
}

impl Table {
    fn admitted(&self) -> usize {
        self.open.values().filter(|entry| entry.admitted).count()
    }

    fn oldest_handshake(&self) -> Option<&Entry> {
        let waiting = self.open.iter().filter(|(_, entry)| !entry.admitted);
        waiting
            .min_by_key(|(number, _)| **number)
            .map(|(_, entry)| entry)
    }
}

impl Server {
    /// Creates a server of `exports`, with distinct names; the first is listed first.
    pub fn new(exports: Vec<Export>, options: Options) -> Result<Self> {
        let waker = UnixStream::pair()
            .map_err(|source| Error::io(LAYER, "create a socket pair", source))?;
        Ok(Self(Arc::new(Shared {
            exports: Exports::new(exports)?,
            options,
            throttle: Arc::default(),
            stopping: AtomicBool::new(false),
            table: Mutex::default(),
            ended: Condvar::new(),
            waker,
        })))
    }

    /// Accepts clients, each in a thread of its own, until [`stop`](Self::stop).
    pub fn listen(&self, listener: &Listener) -> Result<()> {
        let failed = |doing: &'static str, source: io::Error| Error::io(LAYER, doing, source);
        listener
            .set_nonblocking()
            .map_err(|source| failed("listen", source))?;
        while !self.is_stopping() {
            let (waker, door) = (self.0.waker.0.as_fd(), listener.as_fd());
            let mut polled = [
                PollFd::new(&door, PollFlags::IN),
                PollFd::new(&waker, PollFlags::IN),
            ];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(failed("wait for clients", errno.into())),
            }
            match listener.accept() {
                Ok(socket) => self.welcome(socket),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted
                    ) => {}
                // Out of file descriptors: wait until clients disconnect.
                Err(_) => thread::sleep(PAUSE),
            }
        }
        Ok(())
    }

    /// Serves a connected client, and returns when it has disconnected.
    pub fn serve(&self, socket: impl Into<Socket>) {
        let socket = Arc::new(socket.into());
        let number = self.register(&socket);
        self.attend(number, socket);
    }

    /// Serves the first export to the kernel, without a handshake; returns when it has
    /// disconnected.
    #[cfg(target_os = "linux")]
    pub(crate) fn serve_kernel(&self, socket: UnixStream) {
        let socket = Arc::new(Socket::from(socket));
        let number = self.register(&socket);
        let channel = Arc::new(Channel::new(socket));
        let begun = channel
            .socket()
            .prepare()
            .and_then(|()| channel.without_deadline());
        if self.admit(number).is_ok() && begun.is_ok() {
            let export = Arc::clone(self.0.exports.first());
            self.transmit(
                &channel,
                "the kernel".into(),
                NegotiatedOptions {
                    export,
                    structured: false,
                    contexts: false,
                },
            );
        }
        channel.end();
        self.unregister(number);
    }

    /// Returns the parameters that a handshake would negotiate for the kernel: the first export's
    /// device information and transmission flags.
    #[cfg(target_os = "linux")]
    pub(crate) fn for_kernel(&self) -> (Info, u16) {
        let export = self.0.exports.first();
        (export.device().info(), export.flags(false))
    }

    fn welcome(&self, socket: Socket) {
        let socket = Arc::new(socket);
        let number = self.register(&socket);
        let server = self.clone();
        let begun = thread::Builder::new()
            .name("nbd".into())
            .stack_size(STACK)
            .spawn(move || server.attend(number, socket));
        if begun.is_err() {
            self.unregister(number);
            thread::sleep(PAUSE);
        }
    }

    /// Registers a client in the handshake; closes the oldest such client if there are too many.
    fn register(&self, socket: &Arc<Socket>) -> u64 {
        let most = self.0.options.limits.handshakes;
        let mut table = self.0.table.lock();
        while table.open.len() - table.admitted() >= most {
            let Some(oldest) = table.oldest_handshake() else {
                break;
            };
            oldest.socket.end(Shutdown::Both);
            table = self.0.ended.wait_timeout(table, PAUSE).0;
        }
        table.next += 1;
        let number = table.next;
        table.open.insert(
            number,
            Entry {
                socket: Arc::clone(socket),
                admitted: false,
            },
        );
        number
    }

    /// Admits a client that has chosen an export, or returns the reason for a refusal.
    fn admit(&self, number: u64) -> std::result::Result<(), &'static str> {
        let mut table = self.0.table.lock();
        if self.is_stopping() {
            return Err("the server is shutting down");
        }
        if table.admitted() >= self.0.options.limits.connections {
            return Err("the server has its maximum number of connections");
        }
        if let Some(entry) = table.open.get_mut(&number) {
            entry.admitted = true;
        }
        Ok(())
    }

    fn unregister(&self, number: u64) {
        self.0.table.lock().open.remove(&number);
        self.0.ended.notify_all();
    }

    fn attend(&self, number: u64, socket: Arc<Socket>) {
        let client = socket.peer();
        let channel = Arc::new(Channel::new(socket));
        let (events, throttle) = (&self.0.options.events, &self.0.throttle);
        match self.shake_hands(number, &channel) {
            Ok(Some(agreement)) => self.transmit(&channel, client, agreement),
            Ok(None) => {}
            Err(error) => {
                // Clients that connect and leave are not reported, and the others are throttled
                // against floods.
                if error.kind() != io::ErrorKind::UnexpectedEof && throttle.admit().is_some() {
                    events.on_event(&Event::Refused {
                        client,
                        reason: error.to_string(),
                    });
                }
            }
        }
        channel.end();
        self.unregister(number);
    }

    fn transmit(&self, channel: &Arc<Channel>, client: String, agreement: NegotiatedOptions) {
        let (events, throttle) = (&self.0.options.events, &self.0.throttle);
        events.on_event(&Event::Connected {
            client: client.clone(),
            export: agreement.export.name().to_owned(),
        });
        let connection = Connection::new(
            Arc::clone(channel),
            agreement,
            Arc::clone(events),
            Arc::clone(throttle),
        );
        let ended = transmission::serve(&Arc::new(connection));
        events.on_event(&Event::Disconnected {
            client,
            error: ended.err().map(|error| error.to_string()),
        });
    }

    fn shake_hands(&self, number: u64, channel: &Channel) -> io::Result<Option<NegotiatedOptions>> {
        let limits = &self.0.options.limits;
        channel.socket().prepare()?;
        channel.socket().limit_writes(Some(limits.handshake_time))?;
        let deadline = Instant::now() + limits.handshake_time;
        let admit = || self.admit(number);
        #[cfg(feature = "tls")]
        let tls = self
            .0
            .options
            .tls
            .as_ref()
            .map(|tls| tls as &dyn Encryption);
        #[cfg(not(feature = "tls"))]
        let tls: Option<&dyn Encryption> = None;
        let agreement = Handshake::new(channel, &self.0.exports, tls, deadline, &admit).run()?;
        if agreement.is_some() {
            channel.without_deadline()?;
        }
        Ok(agreement)
    }

    fn is_stopping(&self) -> bool {
        self.0.stopping.load(Ordering::SeqCst)
    }

    /// Stops the server: no client is accepted any more, received requests are completed and
    /// answered, and everything is flushed. Returns after that; clients that do not receive their
    /// replies are dropped after ten seconds.
    pub fn stop(&self) -> Result<()> {
        self.0.stopping.store(true, Ordering::SeqCst);
        let _ = self.0.waker.1.shutdown(Shutdown::Both);
        for (how, patience) in [(Shutdown::Read, GRACE), (Shutdown::Both, GRACE / 2)] {
            let table = self.0.table.lock();
            table.open.values().for_each(|entry| entry.socket.end(how));
            let open = |table: &mut Table| !table.open.is_empty();
            drop(self.0.ended.wait_timeout_while(table, patience, open));
        }
        // All exports are flushed, even if one fails.
        let flushed: Vec<_> = self
            .0
            .exports
            .iter()
            .map(|export| export.device().flush())
            .collect();
        flushed.into_iter().collect()
    }

    /// Returns the number of connected clients that have chosen an export.
    pub fn clients(&self) -> usize {
        self.0.table.lock().admitted()
    }
}
