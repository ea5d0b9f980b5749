//! Apple Data Compression: literal runs and two kinds of matches, byte by byte. Source: docs/formats/udif.md §6.

use super::{Fault, TOO_LONG, TOO_SHORT};

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), Fault> {
    let (mut from, mut to) = (0, 0);
    while to < plain.len() {
        let code = *packed.get(from).ok_or_else(|| Fault::new(TOO_SHORT))?;
        let byte = |n: usize| packed.get(from + n).copied().map(usize::from).ok_or_else(|| Fault::new(TOO_SHORT));
        if code & 0x80 != 0 {
            let length = usize::from(code & 0x7F) + 1;
            let literal = packed.get(from + 1..from + 1 + length).ok_or_else(|| Fault::new(TOO_SHORT))?;
            plain.get_mut(to..to + length).ok_or_else(|| Fault::new(TOO_LONG))?.copy_from_slice(literal);
            (from, to) = (from + 1 + length, to + length);
            continue;
        }
        let (length, distance, size) = if code & 0x40 != 0 {
            (usize::from(code & 0x3F) + 4, (byte(1)? << 8 | byte(2)?) + 1, 3)
        } else {
            (usize::from(code >> 2 & 0x0F) + 3, (usize::from(code & 3) << 8 | byte(1)?) + 1, 2)
        };
        if to + length > plain.len() {
            return Err(Fault::new(TOO_LONG));
        }
        let start = to.checked_sub(distance).ok_or_else(|| Fault::new("a match reaches back before the beginning"))?;
        // Byte by byte: a match may overlap what it makes.
        for n in 0..length {
            plain[to + n] = plain[start + n];
        }
        (from, to) = (from + size, to + length);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_both_matches() {
        // "abc", then three bytes from three back, then four from one back.
        let packed = [0x82, b'a', b'b', b'c', 0x00, 0x02, 0x40, 0x00, 0x00];
        let mut plain = [0; 10];
        decode(&packed, &mut plain).unwrap();
        assert_eq!(&plain, b"abcabccccc");
        assert_eq!(decode(&packed, &mut [0; 9]).unwrap_err().what, TOO_LONG);
        assert_eq!(decode(&packed, &mut [0; 11]).unwrap_err().what, TOO_SHORT);
        assert!(decode(&[0x00, 0x00], &mut [0; 3]).is_err(), "nothing to reach back to");
    }
}
