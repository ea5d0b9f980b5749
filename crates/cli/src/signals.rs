//! SIGINT, SIGTERM and whatever else ends a server, as bytes to be read.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use bandsaw::Error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
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
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            pipe::register(signal, write.try_clone().map_err(failed)?).map_err(failed)?;
        }
        Ok(Self { read, write })
    }

    /// For others who may end the server: they write a byte.
    pub(crate) fn sender(&self) -> bandsaw::Result<UnixStream> {
        self.write.try_clone().map_err(|source| Error::io("signals", "catch", source))
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

/// Ends the server that waits at the other end.
pub(crate) fn end(mut sender: &UnixStream) {
    // One that has gone needs no telling.
    let _ = sender.write_all(&[1]);
}
