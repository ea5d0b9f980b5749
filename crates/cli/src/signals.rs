//! SIGINT, SIGTERM and whatever else ends a server, as bytes to be read.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bandsaw::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;

use crate::failure::Outcome;

/// What a server waits for.
pub(crate) struct Signals {
    read: UnixStream,
    write: UnixStream,
}

impl Signals {
    pub(crate) fn catch() -> Outcome<Self> {
        let failed = |source: io::Error| Error::io("signals", "catch", source);
        let (read, write) = UnixStream::pair().map_err(failed)?;
        for signal in ending() {
            pipe::register(signal, write.try_clone().map_err(failed)?).map_err(failed)?;
        }
        Ok(Self { read, write })
    }

    /// For others who may end the server: they write a byte.
    pub(crate) fn sender(&self) -> bandsaw::Result<UnixStream> {
        self.write
            .try_clone()
            .map_err(|source| Error::io("signals", "catch", source))
    }

    /// Waits for one.
    pub(crate) fn wait(&mut self) {
        while let Err(error) = self.read.read_exact(&mut [0]) {
            if error.kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }
}

/// Signals that ask to end: SIGINT, SIGTERM, and SIGHUP unless whoever started this process has it
/// ignored (`nohup`).
pub(crate) fn ending() -> impl Iterator<Item = i32> {
    [SIGINT, SIGTERM]
        .into_iter()
        .chain((!is_ignored(SIGHUP)).then_some(SIGHUP))
}

/// Returns whether a signal was ignored when this process was started, as far as the system tells.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// From here on a write past a limit of the size of files (`ulimit -f`) is an error like any other,
/// and does not kill the process.
pub(crate) fn survive_limits() {
    // The flag is not looked at: that the signal is caught is enough. Where it cannot be, it kills
    // as before.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Ends the server that waits at the other end.
pub(crate) fn end(mut sender: &UnixStream) {
    // One that has gone needs no telling.
    let _ = sender.write_all(&[1]);
}
