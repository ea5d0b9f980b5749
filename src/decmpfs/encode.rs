//! Encoding of one chunk: compressed, or stored after a marker (§5).

use std::cell::RefCell;

use super::Method;
use super::pack::PackOptions;
use crate::Result;
use crate::codec::{Codec, Encoder, LzvnEncoder};

/// Compresses `plain`, of 1 to 65,536 bytes.
pub(super) fn chunk(packing: PackOptions, plain: &[u8]) -> Result<Vec<u8>> {
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
                packed.extend((plain.len() as u32).to_le_bytes());
            }
        }
        packed.extend_from_slice(plain);
        if let Self::Lzfse(_) = self {
            packed.extend(b"bvx$");
        }
        Ok(packed)
    }
}
