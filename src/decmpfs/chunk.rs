//! One chunk: compressed, or stored after a marker byte (§5).

use super::{LAYER, Method};
use crate::codec::{self, Codec};
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
