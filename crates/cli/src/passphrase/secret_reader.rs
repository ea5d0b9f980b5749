//! Secrets read from a stream, of a bounded length.

use std::io::{self, Read};

use bandsaw::crypt::Secret;

/// The longest passphrase: a longer file is probably the wrong one.
pub(super) const MAX_SECRET_LEN: usize = 64 << 10;

/// Reads all of a file that holds a secret.
pub(super) fn read_secret(from: impl Read) -> io::Result<Secret> {
    // Growing the buffer would leave copies that are never wiped.
    let mut bytes = Vec::with_capacity(MAX_SECRET_LEN + 1);
    let read = from.take(MAX_SECRET_LEN as u64 + 1).read_to_end(&mut bytes);
    let secret = Secret::new(bytes);
    if secret.len() > MAX_SECRET_LEN {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        read.map(|_| secret)
    }
}
