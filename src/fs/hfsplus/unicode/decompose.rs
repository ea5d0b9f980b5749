//! Canonical decomposition as macOS froze it (§9.1).

use zerocopy::big_endian::U16;

use super::tables::{CLASSES, DECOMPOSED, POOL};

const HANGUL: std::ops::RangeInclusive<u16> = 0xAC00..=0xD7A3;

/// Appends the decomposition of `char`, not yet in canonical order.
pub(super) fn push(char: char, out: &mut Vec<U16>) {
    match u16::try_from(u32::from(char)) {
        Ok(unit) if unit < 0xC0 => out.push(unit.into()),
        Ok(unit) if HANGUL.contains(&unit) => push_hangul(unit, out),
        Ok(unit) => match DECOMPOSED.binary_search_by_key(&unit, |entry| entry.0) {
            Ok(found) => {
                let packed = usize::from(DECOMPOSED[found].1);
                let (start, len) = (packed >> 3, packed & 7);
                out.extend(POOL[start..start + len].iter().map(|&unit| U16::new(unit)));
            }
            Err(_) => out.push(unit.into()),
        },
        // Above U+FFFF nothing decomposes.
        Err(_) => super::push_units(char, out),
    }
}

/// A Hangul syllable is arithmetic: leading consonant, vowel, and perhaps a trailing consonant.
fn push_hangul(syllable: u16, out: &mut Vec<U16>) {
    let index = syllable - HANGUL.start();
    out.push((0x1100 + index / 588).into());
    out.push((0x1161 + index % 588 / 28).into());
    if !index.is_multiple_of(28) {
        out.push((0x11A7 + index % 28).into());
    }
}

/// Sorts each run of combining characters by class; equal classes stay in order, class 0 stays put.
pub(super) fn reorder(units: &mut [U16]) {
    let mut start = 0;
    while start < units.len() {
        let run = units[start..].iter().take_while(|unit| combining_class(unit.get()) != 0).count();
        if run > 1 {
            units[start..start + run].sort_by_key(|unit| combining_class(unit.get()));
        }
        start += run + 1;
    }
}

/// The canonical combining class of Unicode 3.2.
pub(super) fn combining_class(unit: u16) -> u8 {
    if unit < 0x300 {
        return 0;
    }
    let at = CLASSES.partition_point(|&(_, last, _)| last < unit);
    CLASSES.get(at).filter(|&&(first, ..)| first <= unit).map_or(0, |&(.., class)| class)
}
