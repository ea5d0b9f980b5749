//! Names by the rules of Unicode 16.0, as APFS compares them on macOS 27: canonical decomposition, and
//! full case folding.
//!
//! HFS+ froze older rules (`fs::hfsplus`): it shares the decompositions of the characters that decomposed then.

mod classes;
mod decompositions;
mod foldings;
#[cfg(test)]
pub(crate) mod recorded;

use self::classes::CLASSES;

const HANGUL: std::ops::RangeInclusive<u32> = 0xAC00..=0xD7A3;

/// The code points of `name` in the form in which names are equal: decomposed, in canonical order,
/// then folded if `fold`. The order of U+0345 is that of the mark, although it folds to a letter.
pub(crate) fn normalize(name: &str, fold: bool) -> Vec<u32> {
    if name.is_ascii() {
        return name
            .bytes()
            .map(|byte| {
                u32::from(if fold {
                    byte.to_ascii_lowercase()
                } else {
                    byte
                })
            })
            .collect();
    }
    let mut decomposed = Vec::with_capacity(name.len());
    for char in name.chars() {
        decompose(char.into(), &mut decomposed);
    }
    let mut out = decomposed;
    reorder(&mut out);
    if fold {
        let mut folded = Vec::with_capacity(out.len());
        for &code in &out {
            match mapping(&foldings::FOLDED, &foldings::POOL, code) {
                Some(folding) => folded.extend_from_slice(folding),
                None => folded.push(code),
            }
        }
        out = folded;
    }
    out
}

/// Appends the decomposition of a character, not yet in canonical order.
fn decompose(code: u32, out: &mut Vec<u32>) {
    if HANGUL.contains(&code) {
        return decompose_hangul(code, out);
    }
    match decomposition(code) {
        Some(decomposition) => out.extend_from_slice(decomposition),
        None => out.push(code),
    }
}

/// Returns the characters that have a decomposition, without Hangul syllables, ascending.
pub(crate) fn decomposing() -> impl Iterator<Item = u32> {
    decompositions::DECOMPOSED.iter().map(|(code, _)| *code)
}

/// Returns the complete canonical decomposition of a character that is no Hangul syllable. `None`: it has
/// none.
pub(crate) fn decomposition(code: u32) -> Option<&'static [u32]> {
    mapping(&decompositions::DECOMPOSED, &decompositions::POOL, code)
}

/// A Hangul syllable is arithmetic: leading consonant, vowel, and perhaps a trailing consonant.
fn decompose_hangul(syllable: u32, out: &mut Vec<u32>) {
    let index = syllable - HANGUL.start();
    out.extend([0x1100 + index / 588, 0x1161 + index % 588 / 28]);
    if !index.is_multiple_of(28) {
        out.push(0x11A7 + index % 28);
    }
}

/// The characters that a table of `xtask/unicode_names.py` gives for one.
fn mapping(table: &[(u32, u16)], pool: &'static [u32], code: u32) -> Option<&'static [u32]> {
    let found = table.binary_search_by_key(&code, |entry| entry.0).ok()?;
    let packed = usize::from(table[found].1);
    let start = packed >> 2;
    pool.get(start..=start + (packed & 3))
}

/// Sorts each run of combining characters by class; equal classes stay in order, class 0 stays put.
fn reorder(codes: &mut [u32]) {
    for run in codes.chunk_by_mut(|_, &next| combining_class(next) != 0) {
        // The first may be of class 0, and stays first then.
        run.sort_by_key(|&code| combining_class(code));
    }
}

fn combining_class(code: u32) -> u8 {
    if code < 0x300 {
        return 0;
    }
    let at = CLASSES.partition_point(|&(_, last, _)| last < code);
    CLASSES
        .get(at)
        .filter(|&&(first, ..)| first <= code)
        .map_or(0, |&(.., class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(name: &str, fold: bool) -> String {
        normalize(name, fold)
            .into_iter()
            .map(|code| char::from_u32(code).unwrap())
            .collect()
    }

    #[test]
    fn known_forms() {
        let table = [
            ("ünïcødé", "u\u{308}ni\u{308}cøde\u{301}"),
            ("\u{AC01}", "\u{1100}\u{1161}\u{11A8}"),
            ("\u{AC00}", "\u{1100}\u{1161}"),
            // By class: below (220) before above (230), cedilla (202) first.
            ("a\u{301}\u{323}\u{327}", "a\u{327}\u{323}\u{301}"),
            ("\u{301}\u{323}a", "\u{323}\u{301}a"),
            ("\u{212B}", "A\u{30A}"),
            ("\u{2F800}", "\u{4E3D}"),
            ("\u{11938}", "\u{11935}\u{11930}"), // Unicode 13
            // Compatibility forms stay.
            ("ﬁ", "ﬁ"),
        ];
        for (name, expected) in table {
            assert_eq!(text(name, false), expected);
        }
        let folded = [
            ("README", "readme"),
            ("Straße", "strasse"),
            ("ẞ", "ss"),
            ("ﬁ", "fi"),
            ("İ", "i\u{307}"),
            ("ΣΑΣς", "σασσ"),
            ("Ꭰ", "Ꭰ"),
            ("ꭰ", "Ꭰ"),
        ];
        for (name, expected) in folded {
            assert_eq!(text(name, true), expected);
        }
    }

    #[test]
    fn tables_are_sorted_and_stay_within_their_pools() {
        let check = |table: &[(u32, u16)], pool: &'static [u32]| {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
            assert!(
                table
                    .iter()
                    .all(|&(code, _)| mapping(table, pool, code).is_some())
            );
        };
        check(&decompositions::DECOMPOSED, &decompositions::POOL);
        check(&foldings::FOLDED, &foldings::POOL);
        assert!(CLASSES.is_sorted_by(|a, b| a.1 < b.0));
    }

    proptest! {
        #[test]
        fn normal_forms_stay_as_they_are(name in "\\PC{0,20}", fold in any::<bool>()) {
            let once = text(&name, fold);
            prop_assert_eq!(text(&once, fold), once);
        }
    }
}
