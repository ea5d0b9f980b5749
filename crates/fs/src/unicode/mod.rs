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
        decompose(char.into(), &mut |code| decomposed.push(code));
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

/// Calls `push` with the characters of a decomposition, not yet in canonical order. A Hangul syllable is
/// arithmetic: leading consonant, vowel, and perhaps a trailing consonant.
pub(crate) fn decompose(code: u32, push: &mut impl FnMut(u32)) {
    if HANGUL.contains(&code) {
        let index = code - HANGUL.start();
        push(0x1100 + index / 588);
        push(0x1161 + index % 588 / 28);
        if !index.is_multiple_of(28) {
            push(0x11A7 + index % 28);
        }
        return;
    }
    match decomposition(code) {
        Some(decomposition) => decomposition.iter().copied().for_each(push),
        None => push(code),
    }
}

/// Returns the characters that have a decomposition, without Hangul syllables, ascending.
pub(crate) fn decomposing() -> impl Iterator<Item = u32> {
    characters(&decompositions::DECOMPOSED)
}

/// Returns the complete canonical decomposition of a character that is no Hangul syllable. `None`: it has
/// none.
pub(crate) fn decomposition(code: u32) -> Option<&'static [u32]> {
    mapping(&decompositions::DECOMPOSED, &decompositions::POOL, code)
}

/// Characters at equal distances, with mappings of one length that follow each other in a pool: the first
/// and the last, the distance, the length, and where the mapping of the first begins.
type Run = (u32, u32, u8, u8, u16);

/// Returns the characters of a table, ascending.
fn characters(table: &[Run]) -> impl Iterator<Item = u32> {
    table
        .iter()
        .flat_map(|&(first, last, step, ..)| (first..=last).step_by(step.into()))
}

/// The characters that a table of `xtask/unicode_names.py` gives for one.
fn mapping(table: &[Run], pool: &'static [u32], code: u32) -> Option<&'static [u32]> {
    let at = table.partition_point(|&(_, last, ..)| last < code);
    let &(first, _, step, len, start) = table.get(at)?;
    let (distance, step) = (code.checked_sub(first)?, u32::from(step));
    let len = usize::from(len);
    let start = usize::from(start) + (distance / step) as usize * len;
    pool.get(start..start + len)
        .filter(|_| distance.is_multiple_of(step))
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

    /// The sums are those of plain lists of all mappings.
    #[test]
    fn tables_are_complete() {
        let check = |table: &[Run], pool: &'static [u32], expected: (usize, u64)| {
            assert!(table.is_sorted_by(|a, b| a.1 < b.0));
            let mut sum = 0xCBF2_9CE4_8422_2325_u64;
            for code in characters(table) {
                for number in [code].iter().chain(mapping(table, pool, code).unwrap()) {
                    sum = (sum ^ u64::from(*number)).wrapping_mul(0x100_0000_01B3);
                }
            }
            assert_eq!((characters(table).count(), sum), expected);
        };
        let sums = [(2081, 0x39AB_3FC8_9BEB_9ACB), (1116, 0x1AB0_121F_2C94_7227)];
        check(&decompositions::DECOMPOSED, &decompositions::POOL, sums[0]);
        check(&foldings::FOLDED, &foldings::POOL, sums[1]);
        assert!(CLASSES.is_sorted_by(|a, b| a.1 < b.0));
        // Between two characters of a run.
        assert_eq!(text("\u{100}\u{101}", true), "a\u{304}a\u{304}");
        assert_eq!(text("\u{180}\u{1C6}", true), "\u{180}\u{1C6}");
    }

    proptest! {
        #[test]
        fn normal_forms_stay_as_they_are(name in "\\PC{0,20}", fold in any::<bool>()) {
            let once = text(&name, fold);
            prop_assert_eq!(text(&once, fold), once);
        }
    }
}
