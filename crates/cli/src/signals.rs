//! SIGINT, SIGTERM and other requests to end a server, as bytes to read.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use bandsaw::{Error, Kind, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// The last signal that requested an interruption; 0 for none.
pub(crate) static STOPPED_BY: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Returns the signal that requested an interruption, if any.
pub(crate) fn signal_seen() -> Option<u8> {
    u8::try_from(STOPPED_BY.load(Ordering::Relaxed))
        .ok()
        .filter(|&signal| signal > 0)
}

/// The requests to end a server.
pub(crate) struct Signals {
    read: UnixStream,
    write: UnixStream,
}

impl Signals {
    /// Catches the signals that end a server, from now on until the process ends.
    pub(crate) fn catch() -> Result<Self> {
        let failed = |source: io::Error| Error::io("signals", "catch", source);
        let (read, write) = UnixStream::pair().map_err(failed)?;
        for signal in ending() {
            pipe::register(signal, write.try_clone().map_err(failed)?).map_err(failed)?;
        }
        Ok(Self { read, write })
    }

    /// Returns a socket for other requests: a byte written to it ends the server.
    pub(crate) fn sender(&self) -> Result<UnixStream> {
        self.write
            .try_clone()
            .map_err(|source| Error::io("signals", "catch", source))
    }

    /// Fails if there was a request, also one that only interrupted earlier work.
    #[cfg_attr(
        not(target_os = "linux"),
        allow(dead_code, reason = "images are attached on Linux alone")
    )]
    pub(crate) fn check(&mut self) -> Result<()> {
        let failed = |source: io::Error| Error::io("signals", "catch", source);
        self.read.set_nonblocking(true).map_err(failed)?;
        let read = self.read.read(&mut [0]);
        self.read.set_nonblocking(false).map_err(failed)?;
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && signal_seen().is_none() => {
                Ok(())
            }
            _ => Err(Error::new(Kind::Cancelled, "signals", "interrupted")),
        }
    }

    /// Waits for a request.
    pub(crate) fn wait(&mut self) {
        while let Err(error) = self.read.read_exact(&mut [0]) {
            if error.kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }
}

/// Returns the signals that end a server: SIGINT, SIGTERM, and SIGHUP unless it is ignored
/// (`nohup`).
pub(crate) fn ending() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM]
        .into_iter()
        .chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Returns true if a signal was ignored when this process was started, as far as the system can
/// tell.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Makes a write beyond the file size limit (`ulimit -f`) an ordinary error instead of a deadly
/// signal.
pub(crate) fn survive_limits() {
    // The flag is not read: catching the signal is enough. If that fails, the signal still kills.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Ends the server that waits at the other end.
pub(crate) fn end(mut sender: &UnixStream) {
    // The server may already have exited.
    let _ = sender.write_all(&[1]);
}
