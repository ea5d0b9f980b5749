//! LZFSE: blocks of LZFSE, LZVN and plain bytes.

use std::cell::RefCell;
use std::io::{Error, ErrorKind, Write};

use lzfse_rust::{LzfseEncoder, LzfseRingDecoder};

use super::{BROKEN, CodecError, TOO_LONG, TOO_SHORT};

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    thread_local! {
        static DECODER: RefCell<Option<LzfseRingDecoder>> = const { RefCell::new(None) };
    }
    let mut out = Bounded { plain, full: false };
    let decoded = DECODER.with_borrow_mut(|decoder| -> Result<_, CodecError> {
        let decoder = match decoder {
            Some(decoder) => decoder,
            none => none.insert(super::with_memory(MEMORY, LzfseRingDecoder::default)?),
        };
        Ok(decoder.decode(&mut &*packed, &mut out))
    })?;
    match decoded {
        Ok(_) if out.plain.is_empty() => Ok(()),
        Ok(_) => Err(CodecError::new(TOO_SHORT)),
        Err(_) if out.full => Err(CodecError::new(TOO_LONG)),
        Err(error) => Err(CodecError::caused(BROKEN, error)),
    }
}

/// A writer that fails when `plain` is full, so that a stream cannot exhaust memory.
struct Bounded<'a> {
    plain: &'a mut [u8],
    full: bool,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.plain.len() {
            self.full = true;
            return Err(Error::from(ErrorKind::WriteZero));
        }
        self.plain.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Memory of an encoder, and more than that of a decoder, in bytes.
pub(super) const MEMORY: usize = 4 << 20;

/// An encoder that reuses its tables, which are made for the first piece.
#[derive(Default)]
pub(super) struct LzfsePieces(Option<LzfseEncoder>);

impl LzfsePieces {
    /// Appends a stream of `plain`.
    pub(super) fn encode(
        &mut self,
        plain: &[u8],
        packed: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        // The encoder ends the process if its output gets no memory.
        packed
            .try_reserve(plain.len() + plain.len() / 8 + 4096)
            .map_err(|_| CodecError::no_memory())?;
        let encoder = match &mut self.0 {
            Some(encoder) => encoder,
            none => none.insert(super::with_memory(MEMORY, LzfseEncoder::default)?),
        };
        encoder
            .encode_bytes(plain, packed)
            .map(|_| true)
            .map_err(|error| CodecError::caused("compression failed", error))
    }
}
