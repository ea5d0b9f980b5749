//! zlib streams, by libdeflate where it may be built, else by zlib-rs.

use super::{BROKEN, Fault, TOO_LONG, TOO_SHORT};

#[cfg(feature = "libdeflate")]
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    use libdeflater::{DecompressionError, Decompressor};
    thread_local! {
        static DECODER: std::cell::RefCell<Decompressor> = std::cell::RefCell::new(Decompressor::new());
    }
    match DECODER.with_borrow_mut(|decoder| decoder.zlib_decompress(packed, plain)) {
        Ok(length) if length == plain.len() => Ok(()),
        Ok(_) => Err(Fault::new(TOO_SHORT)),
        Err(DecompressionError::InsufficientSpace) => Err(Fault::new(TOO_LONG)),
        Err(DecompressionError::BadData) => Err(Fault::new(BROKEN)),
    }
}

#[cfg(not(feature = "libdeflate"))]
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    use flate2::{Decompress, FlushDecompress, Status};
    let mut stream = Decompress::new(true);
    match stream.decompress(packed, plain, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) if stream.total_out() == plain.len() as u64 => Ok(()),
        Ok(Status::StreamEnd) => Err(Fault::new(TOO_SHORT)),
        Ok(_) if stream.total_out() == plain.len() as u64 => Err(Fault::new(TOO_LONG)),
        Ok(_) => Err(Fault::new(TOO_SHORT)),
        Err(error) => Err(Fault::caused(BROKEN, error)),
    }
}
