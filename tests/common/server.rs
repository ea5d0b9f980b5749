//! A small HTTP server of one file, with configurable behavior.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bandsaw::sync::Mutex;

/// Behavior of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conduct {
    /// Returns the requested range.
    Ranges,
    /// Returns the requested range, but truncates every second response.
    BreaksOff,
    /// Ignores ranges and always returns the whole file.
    Whole,
    /// Returns the requested range after a fifth of a second.
    Slow,
}

/// A server that runs until the test ends. Files whose names begin with `missing` do not exist, nor any
/// below `….ipsw/`.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    conduct: Conduct,
    /// The file, and the number of times it was replaced.
    bytes: Mutex<(Served, u32)>,
    requests: AtomicUsize,
    /// Bytes of files that were sent.
    sent: AtomicU64,
}

/// The contents of the file that is served.
#[derive(Clone)]
enum Served {
    Memory(Arc<Vec<u8>>),
    Disk(Arc<File>),
}

impl Served {
    fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Disk(file) => file.metadata().unwrap().len().try_into().unwrap(),
        }
    }

    fn part(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        match self {
            Self::Memory(bytes) => bytes[range].to_vec(),
            Self::Disk(file) => {
                let mut part = vec![0; range.len()];
                file.read_exact_at(&mut part, range.start as u64).unwrap();
                part
            }
        }
    }
}

impl Server {
    pub(crate) fn start(bytes: Vec<u8>, conduct: Conduct) -> Self {
        Self::serving(Served::Memory(Arc::new(bytes)), conduct)
    }

    /// Starts a server of a file on disk, which may be large.
    pub(crate) fn of_file(file: File) -> Self {
        Self::serving(Served::Disk(Arc::new(file)), Conduct::Ranges)
    }

    fn serving(served: Served, conduct: Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            conduct,
            bytes: Mutex::new((served, 0)),
            requests: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
        });
        let served = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = served.clone();
                thread::spawn(move || served.serve(&stream));
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Replaces the file served.
    pub(crate) fn replace(&self, bytes: Vec<u8>) {
        let mut served = self.state.bytes.lock();
        *served = (Served::Memory(Arc::new(bytes)), served.1 + 1);
    }

    /// Returns the number of bytes of the file that were sent, and forgets them.
    pub(crate) fn take_sent(&self) -> u64 {
        self.state.sent.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }
}

impl State {
    /// Serves the requests of a connection until either side closes it.
    fn serve(&self, stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines();
        loop {
            let mut head = Vec::new();
            while let Some(Ok(line)) = lines.next() {
                if line.is_empty() {
                    break;
                }
                head.push(line.to_lowercase());
            }
            if head.is_empty() || self.answer(&head, stream).is_err() {
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
        }
    }

    fn answer(&self, head: &[String], mut to: &TcpStream) -> std::io::Result<()> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if head[0].starts_with("get /missing") || head[0].contains(".ipsw/") {
            return write!(to, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        }
        if head[0].starts_with("get /circle") {
            return write!(
                to,
                "HTTP/1.1 302 Found\r\nLocation: /circle\r\nContent-Length: 0\r\n\r\n"
            );
        }
        // `/to?URL` leads to that address.
        if let Some(target) = head[0].strip_prefix("get /to?") {
            let target = target.split(' ').next().unwrap_or_default();
            return write!(
                to,
                "HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n"
            );
        }
        if self.conduct == Conduct::Slow {
            thread::sleep(Duration::from_millis(200));
        }
        let (bytes, tag) = self.bytes.lock().clone();
        let asked = head
            .iter()
            .find_map(|line| line.strip_prefix("range: bytes=")?.split_once('-'));
        let range = asked
            .filter(|_| self.conduct != Conduct::Whole)
            .map(|(start, end)| {
                (
                    start.parse::<usize>().unwrap(),
                    end.parse::<usize>()
                        .unwrap()
                        .saturating_add(1)
                        .min(bytes.len()),
                )
            });
        match range {
            None => {
                write!(
                    to,
                    "HTTP/1.1 200 OK\r\nETag: \"{tag}\"\r\nContent-Length: {}\r\n\r\n",
                    bytes.len()
                )?;
                self.send(to, &bytes.part(0..bytes.len()))
            }
            Some((start, _)) if start >= bytes.len() => {
                let len = bytes.len();
                write!(
                    to,
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{len}\r\nContent-Length: 0\r\n\r\n"
                )
            }
            Some((start, end)) => {
                let part = bytes.part(start..end);
                write!(
                    to,
                    "HTTP/1.1 206 Partial Content\r\nETag: \"{tag}\"\r\nContent-Length: {}\r\n",
                    part.len()
                )?;
                write!(
                    to,
                    "Content-Range: bytes {start}-{}/{}\r\n\r\n",
                    end - 1,
                    bytes.len()
                )?;
                if self.conduct == Conduct::BreaksOff && number % 2 == 1 {
                    self.send(to, &part[..part.len() / 2])?;
                    return Err(std::io::ErrorKind::BrokenPipe.into());
                }
                self.send(to, &part)
            }
        }
    }

    fn send(&self, mut to: &TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        to.write_all(bytes)
    }
}
