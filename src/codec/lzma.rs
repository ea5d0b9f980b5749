//! LZMA2 in xz streams, as ULMO images hold them.

use std::io::{ErrorKind, Read};

use lzma_rust2::XzReader;

use super::{BROKEN, Fault, TOO_LONG, TOO_SHORT};

/// What a stream may ask for: the largest preset's dictionary is 64 MiB, macOS uses 8.
const MOST_KIB: u32 = 96 << 10;

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    let mut stream = XzReader::new_mem_limit(packed, false, MOST_KIB);
    stream.read_exact(plain).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Fault::new(TOO_SHORT),
        _ => Fault::caused(BROKEN, error),
    })?;
    // Reading on checks the sums at the end of the stream, too.
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Fault::new(TOO_LONG)),
        Err(error) => Err(Fault::caused(BROKEN, error)),
    }
}
