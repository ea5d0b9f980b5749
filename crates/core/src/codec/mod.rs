//! Compression and decompression of slices, with a known output length and without I/O.
//!
//! Every decoder is given the exact output length: it never writes more, and fewer bytes are an
//! error. Lengths within a stream are not trusted.

mod adc;
mod bzip2;
mod encoder;
mod level;
mod lz4;
mod lz4_encode;
mod lzbitmap;
mod lzfse;
mod lzma;
mod lzvn;
mod zlib;

use std::io::Read;

use crate::sync::Mutex;
use crate::{Error, Result};

pub use encoder::Encoder;
pub use level::Level;
pub use lz4_encode::Lz4Encoder;
pub(crate) use lzvn::LzvnEncoder;

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Apple Data Compression, used in old disk images.
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
    /// Returns the name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adc => "ADC",
            Self::Zlib => "zlib",
            Self::Bzip2 => "bzip2",
            Self::Lzfse => "LZFSE",
            Self::Lzma => "LZMA",
        }
    }

    /// Decodes `packed` into `plain`. Bytes after the end of the stream are ignored, as in macOS.
    pub fn decode(self, packed: &[u8], plain: &mut [u8]) -> Result<()> {
        let decoded = match self {
            Self::Adc => adc::decode(packed, plain),
            Self::Zlib => zlib::decode(packed, plain),
            Self::Bzip2 => bzip2::decode(packed, plain),
            Self::Lzfse => lzfse::decode(packed, plain),
            Self::Lzma => lzma::decode(packed, plain),
        };
        decoded.map_err(|fault| fault.into_error(self.name(), packed, plain))
    }

    /// Decodes at most `most` bytes of the stream that `packed` begins with, whose plain length is
    /// unknown. Returns them, and how many bytes of `packed` were read for them. `None` if `packed` does
    /// not begin with a sound stream, or ends within it; only zlib and bzip2 are supported.
    pub fn decode_start(self, packed: &[u8], most: u64) -> Option<(Vec<u8>, u64)> {
        let mut plain = Vec::new();
        let read = match self {
            Self::Zlib => {
                let mut stream = flate2::read::ZlibDecoder::new(packed);
                stream.by_ref().take(most).read_to_end(&mut plain).ok()?;
                stream.total_in()
            }
            Self::Bzip2 => {
                let mut stream = ::bzip2::read::BzDecoder::new(packed);
                stream.by_ref().take(most).read_to_end(&mut plain).ok()?;
                stream.total_in()
            }
            Self::Adc | Self::Lzfse | Self::Lzma => return None,
        };
        Some((plain, read))
    }
}

/// Decodes raw deflate, without the frame of zlib, into `plain`. Bytes after the end are ignored.
pub fn decode_deflate(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    zlib::decode_raw(packed, plain).map_err(|fault| fault.into_error("deflate", packed, plain))
}

/// Decodes an LZVN stream without a frame into `plain`, as in compressed files. Bytes after the end
/// are ignored; a stream that decodes to more than `plain` is an error.
pub(crate) fn decode_lzvn(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    lzvn::decode(packed, plain).map_err(|fault| fault.into_error("LZVN", packed, plain))
}

/// Decodes an LZBITMAP stream into `plain`. Bytes after the end are ignored; a stream that decodes
/// to more than `plain` is an error.
pub fn decode_lzbitmap(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    lzbitmap::decode(packed, plain).map_err(|fault| fault.into_error("LZBITMAP", packed, plain))
}

/// Decodes LZ4 in Apple's frame into `plain`. Bytes after the end are ignored; a stream that decodes
/// to more than `plain` is an error.
pub(crate) fn decode_lz4(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    lz4::decode(packed, plain).map_err(|fault| fault.into_error("LZ4", packed, plain))
}

/// Decodes LZ4 into `plain`, in Apple's frame or one block without it.
pub fn decode_lz4_framed_or_raw(packed: &[u8], plain: &mut [u8]) -> Result<()> {
    lz4::decode_framed_or_raw(packed, plain).map_err(|fault| fault.into_error("LZ4", packed, plain))
}

/// Reason why a stream cannot be decoded or made.
#[derive(Debug)]
struct CodecError {
    what: &'static str,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// An encoder or decoder gets no memory.
    no_memory: bool,
}

/// Calls `make`, which allocates up to `len` bytes and ends the process if it gets none, if that much
/// memory is free. One thread at a time, so that none takes what another has found.
fn with_memory<T>(len: usize, make: impl FnOnce() -> T) -> Result<T, CodecError> {
    static ALLOCATING: Mutex<()> = Mutex::new(());
    let _alone = ALLOCATING.lock();
    if is_free(len) {
        Ok(make())
    } else {
        Err(CodecError::no_memory())
    }
}

/// Returns true if memory of `len` bytes can be reserved now.
fn is_free(len: usize) -> bool {
    let mut room = Vec::<u8>::new();
    let reserved = room.try_reserve_exact(len).is_ok();
    drop(std::hint::black_box(room)); // the compiler would leave an unused allocation out
    reserved
}

/// Appends `more` bytes of zeros, for the output of an encoder.
fn extend_with_room(packed: &mut Vec<u8>, more: usize) -> Result<(), CodecError> {
    packed
        .try_reserve(more)
        .map_err(|_| CodecError::no_memory())?;
    packed.resize(packed.len() + more, 0);
    Ok(())
}

impl CodecError {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            cause: None,
            no_memory: false,
        }
    }

    fn no_memory() -> Self {
        Self {
            no_memory: true,
            ..Self::new("too little memory")
        }
    }

    fn caused(
        what: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            cause: Some(cause.into()),
            ..Self::new(what)
        }
    }

    /// Converts it to an error about a stream of `codec`.
    fn into_error(self, codec: &'static str, packed: &[u8], plain: &[u8]) -> Error {
        let message = format!(
            "cannot decompress {2} bytes to {1}: {0}",
            self.what,
            plain.len(),
            packed.len()
        );
        let error = match self.no_memory {
            true => Error::limit(codec, message),
            false => Error::corrupt(codec, 0, message),
        };
        match self.cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

const TOO_SHORT: &str = "the stream is truncated";
const TOO_LONG: &str = "the stream has more data than expected";
const BROKEN: &str = "the stream is corrupt";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Codec; 5] = [
        Codec::Adc,
        Codec::Zlib,
        Codec::Bzip2,
        Codec::Lzfse,
        Codec::Lzma,
    ];

    proptest! {
        /// Asserts that arbitrary input gives an error or some bytes, but no panic and not too many
        /// bytes.
        #[test]
        fn nonsense_is_survived(packed in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..2000) {
            for codec in ALL {
                let _ = codec.decode(&packed, &mut vec![0; len]);
            }
        }
    }

    #[test]
    fn the_start_of_a_stream_is_decoded() {
        let plain: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
        for (codec, mut encoder) in encoders() {
            let mut packed = Vec::new();
            encoder.encode(&plain, &mut packed).unwrap();
            let len = packed.len() as u64;
            let followed = [&packed[..], b"more"].concat();
            let whole = codec.decode_start(&followed, 1 << 20);
            if !matches!(codec, Codec::Zlib | Codec::Bzip2) {
                assert_eq!(whole, None);
                continue;
            }
            assert!(whole == Some((plain.clone(), len)), "{codec:?}");
            let (start, read) = codec.decode_start(&followed, 1000).unwrap();
            assert!(start == plain[..1000] && read <= followed.len() as u64);
            let half = &packed[..packed.len() / 2];
            assert_eq!(codec.decode_start(half, 1 << 20), None, "{codec:?}");
            assert_eq!(codec.decode_start(b"no stream of any kind", 1 << 20), None);
        }
    }

    /// Generates pieces with near and far repeats, runs of one byte, and noise.
    fn pieces() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            (any::<u8>(), 1usize..3000).prop_map(|(byte, len)| vec![byte; len]),
            prop::collection::vec(any::<u8>(), 1..600),
            (prop::collection::vec(any::<u8>(), 1..40), 1usize..60)
                .prop_map(|(word, times)| word.repeat(times)),
        ];
        prop::collection::vec(part, 1..12).prop_map(|parts| {
            let mut piece = parts.concat();
            piece.extend(parts.concat());
            piece
        })
    }

    /// Returns encoders that are reused, as in a conversion.
    fn encoders() -> Vec<(Codec, Encoder)> {
        let levels = [(Codec::Zlib, 1), (Codec::Zlib, 6), (Codec::Zlib, 9)];
        let others = [Codec::Adc, Codec::Bzip2, Codec::Lzfse, Codec::Lzma].map(|codec| (codec, 1));
        let level = |level| Level::new(level).unwrap();
        levels
            .into_iter()
            .chain(others)
            .map(|(codec, n)| (codec, Encoder::new(codec, level(n))))
            .collect()
    }

    #[test]
    fn chunks_decode_to_their_source() {
        let mut encoders = encoders();
        let config = ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let check = |piece: Vec<u8>, encoders: &mut [(Codec, Encoder)]| {
            for (codec, encoder) in encoders {
                let mut packed = b"before".to_vec();
                if !encoder.encode(&piece, &mut packed).unwrap() {
                    assert_eq!(packed, b"before", "{codec:?}");
                    continue;
                }
                let stream = packed.strip_prefix(b"before").unwrap();
                assert!(stream.len() < piece.len(), "{codec:?}");
                let mut back = vec![0xAA; piece.len()];
                codec.decode(stream, &mut back).unwrap();
                assert!(back == piece, "{codec:?}");
                let (mut again, mut new) = (Vec::new(), Encoder::new(*codec, Level::default()));
                if *codec != Codec::Zlib {
                    new.encode(&piece, &mut again).unwrap();
                    assert!(again == stream, "{codec:?} remembers");
                }
            }
        };
        let shared = std::cell::RefCell::new(&mut encoders);
        runner
            .run(&pieces(), |piece| {
                check(piece, &mut shared.borrow_mut());
                Ok(())
            })
            .unwrap();
    }

    #[test]
    fn everything_shrinks_but_noise() {
        let text: Vec<u8> = (0..20_000u32)
            .flat_map(|n| format!("line {n} of {}; ", n * 7919 % 97).into_bytes())
            .take(1 << 18)
            .collect();
        let mut state = 1u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let noise: Vec<u8> = (0..1 << 16).flat_map(|_| noise().to_le_bytes()).collect();
        for (codec, mut encoder) in encoders() {
            let mut packed = Vec::new();
            assert!(
                encoder.encode(&text, &mut packed).unwrap() && packed.len() < text.len() / 2,
                "{codec:?}: {}",
                packed.len()
            );
            let mut back = vec![0; text.len()];
            codec.decode(&packed, &mut back).unwrap();
            assert!(back == text, "{codec:?}");
            packed.clear();
            assert!(
                !encoder.encode(&noise, &mut packed).unwrap() && packed.is_empty(),
                "{codec:?}"
            );
            assert!(
                !encoder.encode(&[], &mut packed).unwrap(),
                "nothing cannot shrink"
            );
        }
    }

    #[test]
    fn levels_are_one_to_nine() {
        assert!(Level::new(0).is_err() && Level::new(10).is_err());
        assert_eq!(Level::new(1).unwrap(), Level::FASTEST);
        assert_eq!(Level::new(6).unwrap(), Level::default());
    }

    #[test]
    fn empty_streams_are_short() {
        for codec in ALL {
            assert!(
                codec.decode(&[], &mut [0; 512]).is_err(),
                "{}",
                codec.name()
            );
        }
    }
}
