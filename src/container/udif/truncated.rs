//! Recognition of compressed images whose end, with the trailer, is missing.

use crate::Result;
use crate::codec::Codec;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::size::to_usize;

/// Bytes of a chunk, packed or plain; hdiutil's chunks are 512 KiB or 1 MiB.
const CHUNK: u64 = 2 << 20;

/// Returns true if `file` begins with a compressed chunk, as a UDZO or UDBZ image does: a stream of
/// whole sectors. A file without a trailer that does was truncated.
pub(crate) fn begins_with_chunk(file: &dyn BlockDevice) -> Result<bool> {
    let len = file.info().len;
    let codec = match file.read_vec(0, 3.min(to_usize(len)))?.as_slice() {
        [0x78, ..] => Codec::Zlib,
        b"BZh" => Codec::Bzip2,
        _ => return Ok(false),
    };
    let start = file.read_vec(0, to_usize(CHUNK.min(len)))?;
    let Some((plain, read)) = codec.decode_start(&start, CHUNK) else {
        return Ok(false);
    };
    let holds_sectors = !plain.is_empty() && plain.len().is_multiple_of(512);
    // A file that is compressed by `bzip2` as a whole has nothing after its one stream.
    Ok(holds_sectors && (codec == Codec::Zlib || read < len))
}
