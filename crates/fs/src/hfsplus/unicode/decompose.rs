//! Canonical decomposition as frozen by macOS (§9.1).

use zerocopy::big_endian::U16;

use super::tables::CLASSES;
use crate::hfsplus::layout::MAX_NAME_UNITS;
use crate::unicode;
use bandsaw_core::size::narrow;

/// Units that HFS+ does not decompose. All others decompose as in Unicode 16.0; a test holds them frozen.
const KEPT: [std::ops::RangeInclusive<u16>; 3] =
    [0x1B00..=0x1B7F, 0x2000..=0x2FFF, 0xF900..=0xFAFF];

fn is_kept(unit: u16) -> bool {
    KEPT.iter().any(|range| range.contains(&unit))
}

/// Returns the units that `unit`, no Hangul syllable, decomposes into. `None`: it does not.
pub(super) fn decomposition(unit: u16) -> Option<&'static [u32]> {
    unicode::decomposition(unit.into()).filter(|_| !is_kept(unit))
}

/// Appends the decomposition of `char`, not yet in canonical order.
pub(super) fn push(char: char, out: &mut Vec<U16>) {
    match u16::try_from(u32::from(char)) {
        Ok(unit) if unit < 0xC0 || is_kept(unit) => out.push(unit.into()),
        Ok(unit) => {
            unicode::decompose(unit.into(), &mut |code| out.push(U16::new(narrow(code))));
        }
        // No character above U+FFFF decomposes.
        Err(_) => super::push_units(char, out),
    }
}

/// Characters that are decomposed since Mac OS X 10.2. Earlier systems stored them composed, which
/// Apple's checker rejects.
const DECOMPOSED_LATER: [std::ops::RangeInclusive<u16>; 19] = [
    0x01F8..=0x01F9,
    0x0218..=0x021B,
    0x021E..=0x021F,
    0x0226..=0x0233,
    0x0400..=0x0400,
    0x040D..=0x040D,
    0x0450..=0x0450,
    0x045D..=0x045D,
    0x04EC..=0x04ED,
    0x0622..=0x0626,
    0x06C0..=0x06C0,
    0x06C2..=0x06C2,
    0x06D3..=0x06D3,
    0x0A33..=0x0A33,
    0x0A36..=0x0A36,
    0x0DDA..=0x0DDA,
    0x0DDC..=0x0DDE,
    0x1026..=0x1026,
    0xFB1D..=0xFB1D,
];

/// Returns `name` with the decompositions of Mac OS X 10.2 and later; `None` if it already has
/// them, or would become too long.
pub(crate) fn redecomposed(name: &[U16]) -> Option<Vec<U16>> {
    let is_later = |unit: &U16| {
        DECOMPOSED_LATER
            .iter()
            .any(|range| range.contains(&unit.get()))
    };
    if !name.iter().any(is_later) {
        return None;
    }
    let mut out = Vec::with_capacity(name.len() + 8);
    for unit in name {
        match char::from_u32(u32::from(unit.get())).filter(|_| is_later(unit)) {
            Some(char) => push(char, &mut out),
            None => out.push(*unit),
        }
    }
    reorder(&mut out);
    (out.len() <= MAX_NAME_UNITS).then_some(out)
}

/// Sorts each run of combining characters by class. Equal classes keep their order, characters of
/// class 0 their position.
pub(super) fn reorder(units: &mut [U16]) {
    let mut start = 0;
    while start < units.len() {
        let run = units[start..]
            .iter()
            .take_while(|unit| combining_class(unit.get()) != 0)
            .count();
        if run > 1 {
            units[start..start + run].sort_by_key(|unit| combining_class(unit.get()));
        }
        start += run + 1;
    }
}

/// Returns the canonical combining class of Unicode 3.2.
pub(super) fn combining_class(unit: u16) -> u8 {
    if unit < 0x300 {
        return 0;
    }
    let at = CLASSES.partition_point(|&(_, last, _)| last < unit);
    CLASSES
        .get(at)
        .filter(|&&(first, ..)| first <= unit)
        .map_or(0, |&(.., class)| class)
}
