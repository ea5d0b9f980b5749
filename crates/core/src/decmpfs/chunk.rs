//! One chunk: compressed, or stored after a marker (§5).

use std::cell::RefCell;

use super::pack_options::PackOptions;
use super::{LAYER, Method};
use crate::codec::{self, Codec, Encoder, LzvnEncoder};
use crate::size::narrow;
use crate::{Error, Kind, Result};

/// Returns true if a chunk that starts with `first` is stored uncompressed after that byte.
fn is_stored(method: Method, first: u8) -> bool {
    match method {
        Method::Stored => true,
        // The low half of the first byte of a zlib stream is 8.
        Method::Zlib | Method::Lzbitmap => first & 0xF == 0xF,
        // The opcode of the end of a stream, which cannot be the first.
        Method::Lzvn => first == 0x06,
        // Every block of a stream starts with `bvx`. macOS writes 0xFF and refuses 0; other programs
        // are known to write other bytes.
        Method::Lzfse => first != b'b' && first != 0,
        Method::Lz4 => first == 0xFF,
    }
}

/// Decodes a chunk into `plain`, whose length it must match: the size in the attribute and the
/// payload must agree. Bytes after the end of the stream are ignored, because real files have them.
pub(super) fn decode(method: Method, packed: &[u8], plain: &mut [u8]) -> Result<()> {
    let Some((&first, rest)) = packed.split_first() else {
        return Err(Error::new(Kind::Corrupt, LAYER, "empty chunk"));
    };
    if is_stored(method, first) {
        if rest.len() != plain.len() {
            let message = format!(
                "raw chunk has {} bytes; expected {} by the size in the attribute",
                rest.len(),
                plain.len()
            );
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        plain.copy_from_slice(rest);
        return Ok(());
    }
    match method {
        Method::Stored => Ok(()), // never: all are stored
        Method::Zlib => Codec::Zlib.decode(packed, plain),
        Method::Lzvn => codec::decode_lzvn(packed, plain),
        Method::Lzfse => Codec::Lzfse.decode(packed, plain),
        Method::Lzbitmap => codec::decode_lzbitmap(packed, plain),
        Method::Lz4 => codec::decode_lz4(packed, plain),
    }
}

/// Compresses `plain`, of 1 to 65,536 bytes.
pub(super) fn encode(packing: PackOptions, plain: &[u8]) -> Result<Vec<u8>> {
    thread_local! {
        // The state of an encoder is larger than most files, so it is reused by the thread.
        static LAST: RefCell<Option<(PackOptions, ChunkEncoder)>> = const { RefCell::new(None) };
    }
    LAST.with_borrow_mut(|last| match last {
        Some((made_for, encoder)) if *made_for == packing => encoder.encode(plain),
        _ => last
            .insert((packing, ChunkEncoder::new(packing)))
            .1
            .encode(plain),
    })
}

enum ChunkEncoder {
    Zlib(Encoder),
    Lzfse(Encoder),
    Lzvn(Box<LzvnEncoder>),
}

impl ChunkEncoder {
    fn new(packing: PackOptions) -> Self {
        match packing.method {
            Method::Lzvn => Self::Lzvn(Box::default()),
            Method::Lzfse => Self::Lzfse(Encoder::new(Codec::Lzfse, packing.level)),
            _ => Self::Zlib(Encoder::new(Codec::Zlib, packing.level)),
        }
    }

    fn encode(&mut self, plain: &[u8]) -> Result<Vec<u8>> {
        let mut packed = Vec::with_capacity(plain.len() + 16);
        let shorter = match self {
            Self::Zlib(encoder) | Self::Lzfse(encoder) => encoder.encode(plain, &mut packed)?,
            Self::Lzvn(encoder) => encoder.encode(plain, &mut packed),
        };
        if shorter {
            return Ok(packed);
        }
        match self {
            Self::Zlib(_) => packed.push(0xFF),
            Self::Lzvn(_) => packed.push(0x06),
            // Readers disagree about a marker for LZFSE, but not about a stream with a block of
            // plain bytes.
            Self::Lzfse(_) => {
                packed.extend(b"bvx-");
                packed.extend(narrow::<u32>(plain.len()).to_le_bytes());
            }
        }
        packed.extend_from_slice(plain);
        if let Self::Lzfse(_) = self {
            packed.extend(b"bvx$");
        }
        Ok(packed)
    }
}
