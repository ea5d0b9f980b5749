//! bzip2 streams.

use bzip2::{Decompress, Status};

use super::{BROKEN, Fault, TOO_LONG, TOO_SHORT};

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    let mut stream = Decompress::new(false);
    loop {
        let (taken, given) = (stream.total_in() as usize, stream.total_out() as usize);
        let status = stream.decompress(&packed[taken..], &mut plain[given..]).map_err(|error| Fault::caused(BROKEN, error))?;
        let full = stream.total_out() as usize == plain.len();
        match status {
            Status::StreamEnd if full => return Ok(()),
            Status::StreamEnd => return Err(Fault::new(TOO_SHORT)),
            // No step forward: it waits for input that is not there, or for room that it must not have.
            _ if (stream.total_in() as usize, stream.total_out() as usize) == (taken, given) => {
                return Err(Fault::new(if full { TOO_LONG } else { TOO_SHORT }));
            }
            _ => {}
        }
    }
}
