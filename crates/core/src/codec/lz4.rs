//! LZ4 in the frame of Apple's compression library (`COMPRESSION_LZ4`), which files of macOS 27 use.
//! Decoder; blocks are encoded in `lz4_encode`. Source: docs/formats/decmpfs.md §5.5.
//!
//! A stream is a sequence of blocks: compressed (`bv41`) or plain (`bv4-`), and an end mark
//! (`bv4$`). A match may reach into the contents of earlier blocks.

use super::{BROKEN, CodecError, TOO_LONG, TOO_SHORT};

const PACKED: &[u8; 4] = b"bv41";
const PLAIN: &[u8; 4] = b"bv4-";
const END: &[u8; 4] = b"bv4$";
/// Shortest match; a token stores the length beyond it.
const MIN_MATCH: usize = 4;
/// Nibble of a token after which more bytes of the length follow.
const LONG: u8 = 15;

/// Decodes into `plain`. Bytes after the end of the stream are ignored; a further block is
/// [`TOO_LONG`].
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let (mut rest, mut done) = (packed, 0);
    loop {
        let magic = split_prefix(&mut rest, 4)?;
        if magic == END {
            return match done == plain.len() {
                true => Ok(()),
                false => Err(CodecError::new(TOO_SHORT)),
            };
        }
        if magic != PACKED && magic != PLAIN {
            return Err(CodecError::new(BROKEN));
        }
        let made = u32(&mut rest)?;
        let end = done
            .checked_add(made)
            .filter(|end| *end <= plain.len())
            .ok_or(CodecError::new(TOO_LONG))?;
        if magic == PLAIN {
            plain[done..end].copy_from_slice(split_prefix(&mut rest, made)?);
        } else {
            let len = u32(&mut rest)?;
            block(split_prefix(&mut rest, len)?, &mut plain[..end], done)?;
        }
        done = end;
    }
}

/// Decodes like [`decode`], or one block without a frame, which is then all of `packed`.
pub(super) fn decode_framed_or_raw(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let framed = match packed.starts_with(PACKED) || packed.starts_with(PLAIN) {
        true => decode(packed, plain),
        false => Err(CodecError::new(BROKEN)),
    };
    // A block may begin like a frame.
    framed.or_else(|_| block(packed, plain, 0))
}

/// Decodes one compressed block into `plain` from `at`, which it must fill. Matches begin anywhere
/// before their place.
fn block(packed: &[u8], plain: &mut [u8], mut at: usize) -> Result<(), CodecError> {
    let mut rest = packed;
    while !rest.is_empty() {
        let token = split_prefix(&mut rest, 1)?[0];
        let literals = length(token >> 4, &mut rest)?;
        let end = at
            .checked_add(literals)
            .filter(|end| *end <= plain.len())
            .ok_or(CodecError::new(TOO_LONG))?;
        plain[at..end].copy_from_slice(split_prefix(&mut rest, literals)?);
        at = end;
        // The last sequence has literals alone.
        if rest.is_empty() {
            break;
        }
        let distance = split_prefix(&mut rest, 2)?;
        let distance = usize::from(u16::from_le_bytes([distance[0], distance[1]]));
        let len = length(token & LONG, &mut rest)?
            .checked_add(MIN_MATCH)
            .ok_or(CodecError::new(BROKEN))?;
        if distance == 0 || distance > at {
            return Err(CodecError::new(BROKEN));
        }
        if len > plain.len() - at {
            return Err(CodecError::new(TOO_LONG));
        }
        // Byte by byte, because a match may overlap its own place.
        for to in at..at + len {
            plain[to] = plain[to - distance];
        }
        at += len;
    }
    match at == plain.len() {
        true => Ok(()),
        false => Err(CodecError::new(TOO_SHORT)),
    }
}

/// Returns the length that begins with this nibble.
fn length(nibble: u8, rest: &mut &[u8]) -> Result<usize, CodecError> {
    let mut len = usize::from(nibble);
    let mut reads_on = nibble == LONG;
    while reads_on {
        let more = split_prefix(rest, 1)?[0];
        len = len
            .checked_add(usize::from(more))
            .ok_or(CodecError::new(BROKEN))?;
        reads_on = more == u8::MAX;
    }
    Ok(len)
}

fn u32(rest: &mut &[u8]) -> Result<usize, CodecError> {
    let bytes = split_prefix(rest, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
}

fn split_prefix<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8], CodecError> {
    let (taken, behind) = rest
        .split_at_checked(len)
        .ok_or(CodecError::new(TOO_SHORT))?;
    *rest = behind;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(magic: &[u8; 4], made: u32, len: Option<u32>, bytes: &[u8]) -> Vec<u8> {
        let mut all = [&magic[..], &made.to_le_bytes()].concat();
        all.extend(len.into_iter().flat_map(u32::to_le_bytes));
        all.extend_from_slice(bytes);
        all
    }

    fn decoded(len: usize, stream: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut plain = vec![0; len];
        decode(stream, &mut plain)
            .map(|()| plain)
            .map_err(|fault| fault.what)
    }

    /// `abcd`, then a match of 20 bytes 4 back (a long length), then `xy`.
    const BLOCK: [u8; 11] = [0x4F, b'a', b'b', b'c', b'd', 4, 0, 1, 0x20, b'x', b'y'];

    #[test]
    fn blocks_share_their_history() {
        let first = frame(PACKED, 26, Some(11), &BLOCK);
        assert_eq!(
            decoded(26, &[&first[..], END].concat()).unwrap(),
            b"abcdabcdabcdabcdabcdabcdxy"
        );
        // A plain block, and a match that reaches back over it into the first.
        let plain = frame(PLAIN, 3, None, b"123");
        let last = frame(PACKED, 6, Some(4), &[0x02, 5, 0, 0x00]);
        let all = [&first[..], &plain, &last, END, b"ignored"].concat();
        assert_eq!(
            decoded(35, &all).unwrap(),
            b"abcdabcdabcdabcdabcdabcdxy123xy123x"
        );
        for (len, stream, why) in [
            (25, &all[..], TOO_LONG),
            (36, &all[..], TOO_SHORT),
            (26, &first[..], TOO_SHORT),
            (26, &[b"bvx2", &first[4..]].concat(), BROKEN),
            (6, &[&last[..], END].concat(), BROKEN),
            (1 << 20, &frame(PLAIN, u32::MAX, None, b"1"), TOO_LONG),
        ] {
            assert_eq!(decoded(len, stream).unwrap_err(), why, "{len}");
        }
    }

    #[test]
    fn a_block_needs_no_frame() {
        let first = [&frame(PACKED, 26, Some(11), &BLOCK)[..], END].concat();
        for stream in [&BLOCK[..], &first] {
            let mut plain = vec![0; 26];
            decode_framed_or_raw(stream, &mut plain).unwrap();
            assert_eq!(plain, b"abcdabcdabcdabcdabcdabcdxy");
            assert!(decode_framed_or_raw(stream, &mut plain[1..]).is_err());
        }
        // Six literals, a match of six, and a literal: the block begins like the magic of a frame.
        let odd = b"bv41-ab\x01\0\x10c";
        let mut plain = vec![0; 13];
        decode_framed_or_raw(odd, &mut plain).unwrap();
        assert_eq!(plain, b"v41-abbbbbbbc");
    }

    proptest! {
        #[test]
        fn nonsense_is_survived(block in prop::collection::vec(any::<u8>(), 0..300), made in 0u32..600) {
            let stream = [frame(PACKED, made, Some(block.len() as u32), &block), END.to_vec()].concat();
            let _ = decoded(made as usize, &stream);
            let _ = decoded(500, &stream);
            let _ = decoded(500, &block);
            let _ = decode_framed_or_raw(&block, &mut vec![0; made as usize]);
        }
    }
}
