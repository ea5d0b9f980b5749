//! Case-insensitive comparison of names as frozen by Apple (§9.2).

use std::cmp::Ordering;

use zerocopy::big_endian::U16;

/// A folding rule: every `step`-th unit of `first..=last` folds to itself plus `add`.
struct Rule {
    first: u16,
    last: u16,
    step: u16,
    add: u16,
}

const fn rule(first: u16, last: u16, step: u16, add: u16) -> Rule {
    Rule {
        first,
        last,
        step,
        add,
    }
}

const fn one(unit: u16, add: u16) -> Rule {
    rule(unit, unit, 1, add)
}

/// All units that change, except U+0000 and the ignored ones: 312 units.
#[rustfmt::skip]
const RULES: [Rule; 74] = [
    rule(0x0041, 0x005A, 1, 32), one(0x00C6, 32), one(0x00D0, 32), one(0x00D8, 32), one(0x00DE, 32),
    rule(0x0391, 0x03A1, 1, 32), rule(0x03A3, 0x03A9, 1, 32), rule(0x0410, 0x0418, 1, 32), rule(0x041A, 0x042F, 1, 32),
    rule(0xFF21, 0xFF3A, 1, 32),
    one(0x0110, 1), one(0x0126, 1), one(0x0132, 1), one(0x013F, 1), one(0x0141, 1), one(0x014A, 1), one(0x0152, 1),
    one(0x0166, 1), one(0x0182, 1), one(0x0184, 1), one(0x0187, 1), one(0x018B, 1), one(0x0191, 1), one(0x0198, 1),
    one(0x01A2, 1), one(0x01A4, 1), one(0x01A7, 1), one(0x01AC, 1), one(0x01B3, 1), one(0x01B5, 1), one(0x01B8, 1),
    one(0x01BC, 1), one(0x01C5, 1), one(0x01C8, 1), one(0x01CB, 1), one(0x01E4, 1), one(0x01F2, 1),
    rule(0x03E2, 0x03EE, 2, 1), rule(0x0460, 0x0474, 2, 1), rule(0x0478, 0x0480, 2, 1), rule(0x0490, 0x04BE, 2, 1),
    one(0x04C3, 1), one(0x04C7, 1), one(0x04CB, 1),
    one(0x01C4, 2), one(0x01C7, 2), one(0x01CA, 2), one(0x01F1, 2),
    rule(0x2160, 0x216F, 1, 16), rule(0x0531, 0x0556, 1, 48), rule(0x10A0, 0x10C5, 1, 48), one(0x018E, 79),
    one(0x0402, 80), rule(0x0404, 0x0406, 1, 80), rule(0x0408, 0x040B, 1, 80), one(0x040F, 80),
    one(0x018F, 202), one(0x0190, 203), one(0x0189, 205), one(0x018A, 205), one(0x0193, 205), one(0x0186, 206),
    one(0x0194, 207), one(0x0197, 209), one(0x0181, 210), one(0x0196, 211), one(0x019C, 211), one(0x019D, 213),
    one(0x019F, 214), one(0x01B1, 217), one(0x01B2, 217), one(0x01A9, 218), one(0x01AE, 218), one(0x01B7, 219),
];

/// Units that are ignored by comparison.
const IGNORED: [(u16, u16); 4] = [
    (0x200C, 0x200F),
    (0x202A, 0x202E),
    (0x206A, 0x206F),
    (0xFEFF, 0xFEFF),
];

/// The high bytes of all units that change or are ignored, ascending.
const HIGH: [u8; 10] = [0x00, 0x01, 0x03, 0x04, 0x05, 0x10, 0x20, 0x21, 0xFE, 0xFF];

type FoldPage = [u16; 256];

/// One page for each of [`HIGH`]; an ignored unit folds to 0, which no other does.
static PAGES: [FoldPage; HIGH.len()] = build_pages();

/// The page of each high byte, 255 if no unit changes.
static PAGE_OF: [u8; 256] = {
    let mut page_of = [u8::MAX; 256];
    let mut at = 0_u8;
    while (at as usize) < HIGH.len() {
        page_of[HIGH[at as usize] as usize] = at;
        at += 1;
    }
    page_of
};

const fn build_pages() -> [FoldPage; HIGH.len()] {
    let mut pages = [[0; 256]; HIGH.len()];
    let mut page = 0;
    while page < HIGH.len() {
        let mut low = 0_u16;
        while low < 256 {
            pages[page][low as usize] = fold_by_rules((HIGH[page] as u16) << 8 | low);
            low += 1;
        }
        page += 1;
    }
    pages
}

const fn fold_by_rules(unit: u16) -> u16 {
    let mut at = 0;
    while at < IGNORED.len() {
        if IGNORED[at].0 <= unit && unit <= IGNORED[at].1 {
            return 0;
        }
        at += 1;
    }
    let mut at = 0;
    while at < RULES.len() {
        let rule = &RULES[at];
        if rule.first <= unit && unit <= rule.last && (unit - rule.first).is_multiple_of(rule.step)
        {
            return unit + rule.add;
        }
        at += 1;
    }
    // U+0000 sorts last: the private folder, whose name begins with it, comes after everything else
    // in the root.
    if unit == 0 { 0xFFFF } else { unit }
}

/// Returns the folded form of a unit; 0 if comparison ignores it.
#[inline]
pub(crate) fn fold_unit(unit: u16) -> u16 {
    match PAGES.get(usize::from(PAGE_OF[usize::from(unit >> 8)])) {
        Some(page) => page[usize::from(unit & 0xFF)],
        None => unit,
    }
}

/// Compares two names without regard to case.
pub(super) fn compare(a: &[U16], b: &[U16]) -> Ordering {
    // Equal beginnings, which are common within a folder, need no folding.
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    folded(&a[same..]).cmp(folded(&b[same..]))
}

/// Returns the units by which a name is compared.
pub(super) fn folded(name: &[U16]) -> impl Iterator<Item = u16> {
    name.iter()
        .map(|unit| fold_unit(unit.get()))
        .filter(|&unit| unit != 0)
}
