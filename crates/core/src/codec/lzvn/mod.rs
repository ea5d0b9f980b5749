//! LZVN without a frame, as in compressed files: a byte code of literals and matches. Source:
//! docs/formats/decmpfs.md §5.2.
//!
//! In LZFSE streams it has a frame, and is decoded by the LZFSE decoder; without one it has no
//! length, and often no proper end.

mod encode;
#[cfg(test)]
mod tests;

use super::{BROKEN, CodecError, TOO_LONG, TOO_SHORT};

pub(crate) use encode::LzvnEncoder;

/// Opcode of the end of a stream, followed by seven zeros. Other decoders need all eight bytes.
const END: u8 = 0x06;
/// Opcodes without effect.
const NOTHING: [u8; 2] = [0x0E, 0x16];
/// Minimum length of literals or a match that is stored in a separate byte.
const LONG: usize = 16;
const MIN_MATCH: usize = 3;

/// A decoded opcode.
struct Opcode {
    /// Length of the opcode in bytes.
    len: usize,
    literals: usize,
    matched: usize,
    /// `None`: that of the previous match.
    distance: Option<usize>,
}

impl Opcode {
    fn literals(len: usize, literals: usize) -> Self {
        Self {
            len,
            literals,
            matched: 0,
            distance: None,
        }
    }

    fn again(len: usize, matched: usize) -> Self {
        Self {
            len,
            literals: 0,
            matched,
            distance: None,
        }
    }

    /// Parses the opcode at the start of `code`, which must have an effect. Returns `None` if it is
    /// invalid or truncated.
    fn parse(code: &[u8]) -> Option<Self> {
        let first = *code.first()?;
        let at = |index: usize| code.get(index).map(|&byte| usize::from(byte));
        let (high, middle, low) = (
            usize::from(first >> 6),
            usize::from(first >> 3 & 7),
            first & 7,
        );
        Some(match first {
            0x1E | 0x26 | 0x2E | 0x36 | 0x3E | 0x70..=0x7F | 0xD0..=0xDF => return None,
            0xE0 => Self::literals(2, at(1)? + LONG),
            0xE1..=0xEF => Self::literals(1, usize::from(first & 0xF)),
            0xF0 => Self::again(2, at(1)? + LONG),
            0xF1.. => Self::again(1, usize::from(first & 0xF)),
            0xA0..=0xBF => {
                let (x, y) = (at(1)?, at(2)?);
                let matched = (usize::from(low) << 2 | x & 3) + MIN_MATCH;
                Self {
                    len: 3,
                    literals: middle & 3,
                    matched,
                    distance: Some((x | y << 8) >> 2),
                }
            }
            _ => {
                let (len, distance) = match low {
                    6 => (1, None),
                    7 => (3, Some(at(1)? | at(2)? << 8)),
                    _ => (2, Some(usize::from(low) << 8 | at(1)?)),
                };
                Self {
                    len,
                    literals: high,
                    matched: middle + MIN_MATCH,
                    distance,
                }
            }
        })
    }
}

/// Decodes into `plain`. Bytes after the end of the stream are ignored; an opcode that exceeds
/// `plain` is [`TOO_LONG`].
pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let (mut rest, mut at, mut distance) = (packed, 0, 0);
    while at < plain.len() {
        match rest.first() {
            None | Some(&END) => return Err(CodecError::new(TOO_SHORT)),
            Some(byte) if NOTHING.contains(byte) => {
                rest = &rest[1..];
                continue;
            }
            Some(_) => {}
        }
        let step = Opcode::parse(rest).ok_or(CodecError::new(BROKEN))?;
        let (literals, behind) = rest[step.len..]
            .split_at_checked(step.literals)
            .ok_or(CodecError::new(TOO_SHORT))?;
        let end = at + step.literals;
        plain
            .get_mut(at..end)
            .ok_or(CodecError::new(TOO_LONG))?
            .copy_from_slice(literals);
        (at, rest) = (end, behind);

        distance = step.distance.unwrap_or(distance);
        if step.matched > 0 {
            repeat(plain, at, distance, step.matched)?;
            at += step.matched;
        }
    }
    let next = rest
        .iter()
        .position(|byte| !NOTHING.contains(byte))
        .map_or(&[][..], |at| &rest[at..]);
    // Invalid opcodes are garbage after a stream without an end, which real files have.
    match next.first() {
        Some(&first) if first != END && Opcode::parse(next).is_some() => {
            Err(CodecError::new(TOO_LONG))
        }
        _ => Ok(()),
    }
}

/// Copies `len` bytes to `at` from `distance` before it; overlapping bytes are repeated.
fn repeat(plain: &mut [u8], at: usize, distance: usize, len: usize) -> Result<(), CodecError> {
    if distance == 0 || distance > at {
        return Err(CodecError::new(BROKEN));
    }
    if len > plain.len() - at {
        return Err(CodecError::new(TOO_LONG));
    }
    let from = at - distance;
    if distance >= len {
        plain.copy_within(from..from + len, at);
        return Ok(());
    }
    // Each copy doubles the repeated bytes.
    let mut done = 0;
    while done < len {
        let now = (distance + done).min(len - done);
        plain.copy_within(from..from + now, at + done);
        done += now;
    }
    Ok(())
}
