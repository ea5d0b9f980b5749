//! zlib streams, with libdeflate if it is available, otherwise with zlib-rs.

use super::{BROKEN, CodecError, Level, TOO_LONG, TOO_SHORT};

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    decode_framed(packed, plain, true)
}

/// Decodes a stream without header and checksum.
pub(super) fn decode_raw(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    decode_framed(packed, plain, false)
}

#[cfg(feature = "libdeflate")]
fn decode_framed(packed: &[u8], plain: &mut [u8], has_frame: bool) -> Result<(), CodecError> {
    use libdeflater::{DecompressionError, Decompressor};
    use std::cell::RefCell;
    /// Memory of a decoder in bytes.
    const DECODER_MEMORY: usize = 64 << 10;
    thread_local! {
        static DECODER: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
    }
    let decoded = DECODER.with_borrow_mut(|decoder| -> Result<_, CodecError> {
        let decoder = match decoder {
            Some(decoder) => decoder,
            none => none.insert(super::with_memory(DECODER_MEMORY, Decompressor::new)?),
        };
        Ok(match has_frame {
            true => decoder.zlib_decompress(packed, plain),
            false => decoder.deflate_decompress(packed, plain),
        })
    })?;
    match decoded {
        Ok(length) if length == plain.len() => Ok(()),
        Ok(_) => Err(CodecError::new(TOO_SHORT)),
        Err(DecompressionError::InsufficientSpace) => Err(CodecError::new(TOO_LONG)),
        Err(DecompressionError::BadData) => Err(CodecError::new(BROKEN)),
    }
}

#[cfg(not(feature = "libdeflate"))]
fn decode_framed(packed: &[u8], plain: &mut [u8], has_frame: bool) -> Result<(), CodecError> {
    use flate2::{Decompress, FlushDecompress, Status};
    let mut stream = Decompress::new(has_frame);
    match stream.decompress(packed, plain, FlushDecompress::Finish) {
        Ok(Status::StreamEnd) if stream.total_out() == plain.len() as u64 => Ok(()),
        Ok(Status::StreamEnd) => Err(CodecError::new(TOO_SHORT)),
        Ok(_) if stream.total_out() == plain.len() as u64 => Err(CodecError::new(TOO_LONG)),
        Ok(_) => Err(CodecError::new(TOO_SHORT)),
        Err(error) => Err(CodecError::caused(BROKEN, error)),
    }
}

/// Memory of an encoder in bytes.
pub(super) const MEMORY: usize = 2 << 20;

/// An encoder that reuses its tables, which are made for the first piece.
pub(super) struct Encoder {
    level: Level,
    tables: Option<Tables>,
}

#[cfg(feature = "libdeflate")]
struct Tables(libdeflater::Compressor);

#[cfg(feature = "libdeflate")]
impl Tables {
    fn new(level: Level) -> Self {
        // The levels up to 9 cost about as much as zlib's and compress slightly better; all of 1 to
        // 9 are valid.
        let level = libdeflater::CompressionLvl::new(level.get().into()).unwrap_or_default();
        Self(libdeflater::Compressor::new(level))
    }

    /// Fills `room` from its start and returns the length; `None` if it is too small.
    fn fill(&mut self, plain: &[u8], room: &mut [u8]) -> Result<Option<usize>, CodecError> {
        let libdeflater::CompressionError::InsufficientSpace =
            match self.0.zlib_compress(plain, room) {
                Ok(len) => return Ok(Some(len)),
                Err(error) => error,
            };
        Ok(None)
    }
}

#[cfg(not(feature = "libdeflate"))]
struct Tables(flate2::Compress);

#[cfg(not(feature = "libdeflate"))]
impl Tables {
    fn new(level: Level) -> Self {
        Self(flate2::Compress::new(
            flate2::Compression::new(level.get().into()),
            true,
        ))
    }

    fn fill(&mut self, plain: &[u8], room: &mut [u8]) -> Result<Option<usize>, CodecError> {
        self.0.reset();
        match self.0.compress(plain, room, flate2::FlushCompress::Finish) {
            Ok(flate2::Status::StreamEnd) => Ok(Some(self.0.total_out() as usize)),
            Ok(_) => Ok(None),
            Err(error) => Err(CodecError::caused("compression failed", error)),
        }
    }
}

impl Encoder {
    pub(super) fn new(level: Level) -> Self {
        Self {
            level,
            tables: None,
        }
    }

    /// Appends a stream of `plain`. Returns false if it would not be shorter.
    pub(super) fn encode(
        &mut self,
        plain: &[u8],
        packed: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        let before = packed.len();
        super::extend_with_room(packed, plain.len())?;
        let tables = match &mut self.tables {
            Some(tables) => tables,
            none => none.insert(super::with_memory(MEMORY, || Tables::new(self.level))?),
        };
        let filled = tables.fill(plain, &mut packed[before..])?;
        packed.truncate(before + filled.unwrap_or(0));
        Ok(filled.is_some())
    }
}
