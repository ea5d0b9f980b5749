//! Composition: the inverse of the decomposition of names, within the limits of Unicode's NFC
//! (§9.1).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use super::decompose::{combining_class, decomposition};
use super::{encode_name, encode_verbatim};
use crate::unicode;
use bandsaw_core::size::narrow;

/// Pairs of units, and the unit that decomposes into them.
static PAIRS: LazyLock<HashMap<(u16, u16), u16>> = LazyLock::new(pairs);

/// Ranges of units that decompose but are never composed again: Unicode's composition exclusions,
/// which are frozen.
#[rustfmt::skip]
const APART: [(u16, u16); 33] = [
    (0x344, 0x344), (0x958, 0x95F), (0x9DC, 0x9DD), (0x9DF, 0x9DF), (0xA33, 0xA33), (0xA36, 0xA36), (0xA59, 0xA5B), (0xA5E, 0xA5E),
    (0xB5C, 0xB5D), (0xF43, 0xF43), (0xF4D, 0xF4D), (0xF52, 0xF52), (0xF57, 0xF57), (0xF5C, 0xF5C), (0xF69, 0xF69), (0xF73, 0xF73),
    (0xF75, 0xF76), (0xF78, 0xF78), (0xF81, 0xF81), (0xF93, 0xF93), (0xF9D, 0xF9D), (0xFA2, 0xFA2), (0xFA7, 0xFA7), (0xFAC, 0xFAC),
    (0xFB9, 0xFB9), (0xFB1D, 0xFB1D), (0xFB1F, 0xFB1F), (0xFB2A, 0xFB36), (0xFB38, 0xFB3C), (0xFB3E, 0xFB3E), (0xFB40, 0xFB41),
    (0xFB43, 0xFB44), (0xFB46, 0xFB4E),
];

/// Returns the name of a file on an HFS+ volume in composed form (NFC), as programs on systems
/// other than macOS write it. The volume itself stores names decomposed, and treats both spellings
/// as the same name. A name that the volume would not find by its composed form is returned
/// unchanged.
pub fn composed(name: &str) -> Cow<'_, str> {
    // There are no combining marks or parts of Hangul syllables below U+0300.
    if name.chars().all(|char| char < '\u{300}') {
        return Cow::Borrowed(name);
    }
    // A name written by another system may not be decomposed; it is found only by its exact
    // spelling.
    let (mut stored, mut given) = (Vec::new(), Vec::new());
    encode_verbatim(name, &mut given);
    if encode_name(name, &mut stored).is_err() || stored != given {
        return Cow::Borrowed(name);
    }
    match String::from_utf16(&compose(name.encode_utf16())) {
        Ok(composed) => Cow::Owned(composed),
        Err(_) => Cow::Borrowed(name),
    }
}

/// Composes units that are in canonical order.
fn compose(units: impl Iterator<Item = u16>) -> Vec<u16> {
    let mut out: Vec<u16> = Vec::new();
    // Position of the last unit of class 0, and the class of the last unit after it, if any.
    let (mut starter, mut class_behind) = (None, None);
    for unit in units {
        let class = combining_class(unit);
        let reaches = class_behind.is_none_or(|behind| behind < class);
        if let Some(at) = starter.filter(|_| reaches)
            && let Some(composed) = pair(out[at], unit)
        {
            out[at] = composed;
            continue;
        }
        (starter, class_behind) = if class == 0 {
            (Some(out.len()), None)
        } else {
            (starter, Some(class))
        };
        out.push(unit);
    }
    out
}

/// Returns the composition of two units.
fn pair(first: u16, second: u16) -> Option<u16> {
    match (first, second) {
        // Hangul is computed: leading consonant and vowel, then a trailing consonant.
        (0x1100..=0x1112, 0x1161..=0x1175) => {
            Some(0xAC00 + (first - 0x1100) * 588 + (second - 0x1161) * 28)
        }
        (0xAC00..=0xD7A3, 0x11A8..=0x11C2) if (first - 0xAC00).is_multiple_of(28) => {
            Some(first + (second - 0x11A7))
        }
        both => PAIRS.get(&both).copied(),
    }
}

fn pairs() -> HashMap<(u16, u16), u16> {
    let apart = |unit: u16| {
        APART
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&unit))
    };
    let composed = unicode::decomposing()
        .filter_map(|code| u16::try_from(code).ok())
        .filter(|unit| !apart(*unit))
        .filter_map(|unit| Some((decomposition(unit)?, unit)));
    let mut whole: HashMap<&[u32], u16> = HashMap::new();
    for (decomposed, unit) in composed.filter(|(decomposed, _)| decomposed.len() > 1) {
        // If several units have the same decomposition, the first one is used.
        whole.entry(decomposed).or_insert(unit);
    }
    let last = |(&decomposed, &unit): (&&[u32], &u16)| {
        let (&last, front) = decomposed.split_last()?;
        let front = if let [only] = front {
            narrow(*only)
        } else {
            *whole.get(front)?
        };
        Some(((front, narrow(last)), unit))
    };
    whole.iter().filter_map(last).collect()
}
