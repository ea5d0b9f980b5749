//! Encoder of streams that are shorter than their input.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Codec, CodecError, Level, adc, bzip2, lzfse, lzma, zlib};
use crate::{Error, Kind, Result};

/// Compresses independent pieces one after the other, and reuses its memory. The output is
/// deterministic.
#[derive(Debug)]
pub struct Encoder {
    codec: Codec,
    inner: Payload,
    stop: Arc<AtomicBool>,
}

enum Payload {
    Adc(adc::AdcEncoder),
    Zlib(zlib::Encoder),
    Bzip2,
    Lzfse(Box<lzfse::LzfsePieces>),
    Lzma,
}

impl Encoder {
    /// Creates an encoder; `level` applies only to zlib.
    pub fn new(codec: Codec, level: Level) -> Self {
        let inner = match codec {
            Codec::Adc => Payload::Adc(adc::AdcEncoder::default()),
            Codec::Zlib => Payload::Zlib(zlib::Encoder::new(level)),
            Codec::Bzip2 => Payload::Bzip2,
            Codec::Lzfse => Payload::Lzfse(Box::default()),
            Codec::Lzma => Payload::Lzma,
        };
        Self {
            codec,
            inner,
            stop: Arc::default(),
        }
    }

    /// Makes the encoder fail soon after `stop` becomes true, also within a long piece.
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Returns the maximum memory in bytes of an encoder while it compresses `len` bytes.
    pub fn memory(codec: Codec, len: usize) -> usize {
        match codec {
            Codec::Adc => adc::MEMORY,
            Codec::Zlib => zlib::MEMORY,
            Codec::Bzip2 => bzip2::MEMORY,
            Codec::Lzfse => lzfse::MEMORY + len * 9 / 8,
            Codec::Lzma => lzma::memory(len),
        }
    }

    /// Appends a stream of `plain` to `packed`. Returns false if it would not be shorter than
    /// `plain`; `packed` is then unchanged.
    pub fn encode(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> Result<bool> {
        let before = packed.len();
        let encoded = match &mut self.inner {
            Payload::Adc(encoder) => Ok(encoder.encode(plain, packed)),
            Payload::Zlib(encoder) => encoder.encode(plain, packed),
            Payload::Bzip2 => bzip2::encode(plain, packed),
            Payload::Lzfse(encoder) => encoder.encode(plain, packed),
            Payload::Lzma => lzma::encode(plain, packed, &self.stop),
        };
        let shorter = encoded.map_err(|fault| self.failed(plain, fault))?
            && packed.len() - before < plain.len();
        if !shorter {
            packed.truncate(before);
        }
        Ok(shorter)
    }

    fn failed(&self, plain: &[u8], fault: CodecError) -> Error {
        let kind = if fault.no_memory {
            Kind::Limit
        } else {
            Kind::Unsupported
        };
        let message = format!("cannot compress {1} bytes: {0}", fault.what, plain.len());
        let error = Error::new(kind, self.codec.name(), message);
        match fault.cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("..")
    }
}
