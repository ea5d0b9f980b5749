//! Compressed bytes in, plain bytes of a known length out. Slices only, no I/O.
//!
//! Every decoder is given the exact length that must come out: it writes no byte more, and fewer are an error. What a stream
//! claims of itself is never trusted.

mod adc;
mod bzip2;
mod lzfse;
mod lzma;
mod zlib;

use crate::{Error, Result};

/// A way of compressing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Apple Data Compression, of old disk images.
    Adc,
    /// A zlib stream.
    Zlib,
    /// A bzip2 stream.
    Bzip2,
    /// LZFSE blocks.
    Lzfse,
    /// LZMA2 in an xz stream.
    Lzma,
}

impl Codec {
    /// What people call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adc => "ADC",
            Self::Zlib => "zlib",
            Self::Bzip2 => "bzip2",
            Self::Lzfse => "LZFSE",
            Self::Lzma => "LZMA",
        }
    }

    /// Fills `plain` from `packed`. Bytes after the end of the stream are ignored, as macOS ignores them.
    pub fn decode(self, packed: &[u8], plain: &mut [u8]) -> Result<()> {
        let decoded = match self {
            Self::Adc => adc::decode(packed, plain),
            Self::Zlib => zlib::decode(packed, plain),
            Self::Bzip2 => bzip2::decode(packed, plain),
            Self::Lzfse => lzfse::decode(packed, plain),
            Self::Lzma => lzma::decode(packed, plain),
        };
        decoded.map_err(|fault| {
            let message = format!("{}; {} bytes were to come out of {}", fault.what, plain.len(), packed.len());
            let error = Error::corrupt(self.name(), 0, message);
            match fault.cause {
                Some(cause) => error.caused_by(cause),
                None => error,
            }
        })
    }
}

/// Why a stream does not decode.
#[derive(Debug)]
struct Fault {
    what: &'static str,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Fault {
    fn new(what: &'static str) -> Self {
        Self { what, cause: None }
    }

    fn caused(what: &'static str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { what, cause: Some(cause.into()) }
    }
}

const TOO_SHORT: &str = "the stream ends early";
const TOO_LONG: &str = "the stream holds more";
const BROKEN: &str = "the stream is damaged";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Codec; 5] = [Codec::Adc, Codec::Zlib, Codec::Bzip2, Codec::Lzfse, Codec::Lzma];

    proptest! {
        /// Nonsense is an error or some bytes, never a panic, and never more bytes than asked for.
        #[test]
        fn nonsense_is_survived(packed in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..2000) {
            for codec in ALL {
                let _ = codec.decode(&packed, &mut vec![0; len]);
            }
        }
    }

    #[test]
    fn empty_streams_are_short() {
        for codec in ALL {
            assert!(codec.decode(&[], &mut [0; 512]).is_err(), "{}", codec.name());
        }
    }
}
