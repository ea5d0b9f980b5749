//! Known conversions of names, and properties that hold for all names.

use std::cmp::Ordering;

use proptest::prelude::*;
use zerocopy::big_endian::U16;

use super::decompose::{combining_class, decomposition};
use super::*;
use crate::unicode::recorded::{IGNORABLE, LOOKUPS};
use bandsaw_core::Kind;

fn units(text: &str) -> Vec<U16> {
    text.encode_utf16().map(U16::new).collect()
}

fn encoded(name: &str) -> Vec<U16> {
    let mut out = Vec::new();
    encode_name(name, &mut out).unwrap();
    out
}

/// The decompositions are frozen: a table of a later Unicode must not change them. The sum is that of a
/// table of HFS+ alone.
#[test]
fn decompositions_never_change() {
    let (mut count, mut sum) = (0, 0xCBF2_9CE4_8422_2325_u64);
    for unit in 0..=u16::MAX {
        let Some(units) = decomposition(unit) else {
            continue;
        };
        count += 1;
        for number in [unit.into()].iter().chain(units) {
            sum = (sum ^ u64::from(*number)).wrapping_mul(0x100_0000_01B3);
        }
    }
    assert_eq!((count, sum), (970, 0x45B6_64AF_00C5_231B));
}

#[test]
fn names_decompose_as_macos_does() {
    let table = [
        ("plain.txt", "plain.txt"),
        ("Grüße", "Gru\u{308}ße"),
        ("\u{1EC7}", "e\u{323}\u{302}"), // two marks from one letter, in order
        ("e\u{302}\u{323}", "e\u{323}\u{302}"), // typed in the wrong order
        ("\u{212B}\u{2126}", "\u{212B}\u{2126}"), // kept: 2000..2FFF
        ("\u{F900}", "\u{F900}"),        // kept: F900..FAFF
        ("\u{1B06}", "\u{1B06}"),        // kept: Balinese
        ("\u{1D15E}", "\u{1D15E}"),      // kept: above FFFF
        ("각가", "\u{1100}\u{1161}\u{11A8}\u{1100}\u{1161}"),
        ("a:b", "a/b"),
        ("ä:\u{2400}", "a\u{308}/\0"),
        ("\u{344}\u{323}", "\u{323}\u{308}\u{301}"),
        ("a\u{35C}\u{323}", "a\u{35C}\u{323}"), // a mark of Unicode 4.0 ends the run
    ];
    for (name, disk) in table {
        assert_eq!(encoded(name), units(disk), "{name}");
        assert_eq!(
            encoded(&decode_name(&units(disk))),
            units(disk),
            "{name} again"
        );
    }
}

#[test]
fn names_are_compared_as_by_macos_27() {
    for (stored, other, found) in LOOKUPS.into_iter().chain(IGNORABLE) {
        for (order, volume) in [(NameOrder::Folding, 'h'), (NameOrder::Binary, 'H')] {
            let is_same = order.compare(&encoded(stored), &encoded(other)).is_eq();
            assert_eq!(is_same, found.contains(volume), "{other:?} {order:?}");
        }
    }
}

#[test]
fn names_compose_as_others_write_them() {
    let shown = |name: &str| composed(&decode_name(&encoded(name))).into_owned();
    for nfc in [
        "plain",
        "Gr\u{FC}ße",
        "\u{1EC7}",
        "각가 글 한",
        "\u{1ED}\u{1F80}\u{1E69}\u{3AC}",
        "\u{212B}\u{2260}\u{F900}",
        "\u{2f81a}\u{1D15E}",
        "क\u{93C}",
    ] {
        assert_eq!(shown(nfc), nfc);
    }
    assert_eq!(shown("e\u{301}\u{302}: A\u{30A}"), "\u{E9}\u{302}: \u{C5}");
    assert_eq!(
        shown("a\u{302}\u{323}"),
        "\u{1EAD}",
        "typed in the wrong order"
    );
    assert_eq!(
        shown("\u{1F71}\u{958}\u{1100}\u{1100}\u{1161}\u{1161}"),
        "\u{3AC}\u{915}\u{93C}\u{1100}가\u{1161}"
    );
    // Stored in a form that macOS never writes: found only by that spelling.
    for verbatim in ["\u{E9} e\u{301}", "e\u{302}\u{323}"] {
        assert_eq!(composed(verbatim), verbatim);
    }
}

proptest! {
    #[test]
    fn composed_names_are_the_same_names(name in "[a-eα-ωА-я\\u{300}-\\u{345}\\u{900}-\\u{9FF}\\u{1100}-\\u{11FF}가-갛Ḁ-ỿἀ-ῼ\\u{F40}-\\u{FBF}]{1,20}") {
        let stored = encoded(&name);
        let shown = decode_name(&stored);
        prop_assert_eq!(encoded(&composed(&shown)), stored);
    }
}

#[test]
fn bad_names_are_refused() {
    let mut out = units("kept");
    for name in ["", "a/b"] {
        assert_eq!(
            encode_name(name, &mut out).unwrap_err().kind(),
            Kind::Invalid,
            "{name}"
        );
    }
    let long = "x".repeat(255);
    encode_name(&long, &mut Vec::new()).unwrap();
    assert_eq!(
        encode_name(&format!("{long}x"), &mut out)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
    // 128 letters of two units each, when decomposed.
    assert_eq!(
        encode_name(&"ä".repeat(128), &mut out).unwrap_err().kind(),
        Kind::Limit
    );
    assert_eq!(
        encode_attribute_name(&"x".repeat(128), &mut out)
            .unwrap_err()
            .kind(),
        Kind::Limit
    );
    assert_eq!(out, units("kept"), "a refused name leaves nothing behind");
    encode_attribute_name("com.apple/x:ä", &mut out).unwrap();
    assert_eq!(
        out,
        units("keptcom.apple/x:ä"),
        "attribute names are not decomposed"
    );
}

#[test]
fn names_show_what_utf8_cannot_hold() {
    assert_eq!(
        decode_name(&[U16::new(0xD800), U16::new(0x41)]),
        "\u{FFFD}A"
    );
    assert_eq!(
        decode_name(&units("\0\0\0\0HFS+ a/b")),
        "\u{2400}\u{2400}\u{2400}\u{2400}HFS+ a:b"
    );
    assert_eq!(decode_attribute_name(&units("a/b")), "a/b");
}

#[test]
fn folding_knows_the_odd_ones() {
    let same = [
        ("README", "readme"),
        ("a\u{200D}b", "ab"),
        ("ΑΣ", "ασ"),
        ("Ⅷ", "ⅷ"),
        ("Ǆ", "ǆ"),
        ("Ⴀ", "ა"),
        ("Ѐ", "ѐ"),
    ];
    for (a, b) in same {
        let expected = if a == "Ѐ" {
            Ordering::Less
        } else {
            Ordering::Equal
        }; // U+0400 decomposes, so it never folds
        assert_eq!(
            NameOrder::Folding.compare(&units(a), &units(b)),
            expected,
            "{a} {b}"
        );
    }
    let before = [
        ("a", "B"),
        ("Z", "\0"),
        ("a", "ab"),
        ("ß", "ẞ"),
        ("Z", "["),
        ("_", "a"),
    ];
    for (a, b) in before {
        let expected = if a == "Z" && b == "[" {
            Ordering::Greater
        } else {
            Ordering::Less
        }; // Z counts as z
        assert_eq!(
            NameOrder::Folding.compare(&units(a), &units(b)),
            expected,
            "{a} {b}"
        );
    }
    assert_eq!(
        NameOrder::Binary.compare(&units("B"), &units("a")),
        Ordering::Less
    );
}

#[test]
fn folding_changes_313_units_and_ignores_16() {
    let folds: Vec<u16> = (0..=u16::MAX).map(fold::fold_unit).collect();
    assert_eq!(folds.iter().filter(|&&fold| fold == 0).count(), 16);
    assert_eq!(
        (0..=u16::MAX)
            .filter(
                |&unit| !matches!(folds[usize::from(unit)], 0) && folds[usize::from(unit)] != unit
            )
            .count(),
        313
    );
    // Folding is idempotent, so the case of two names does not affect their equality.
    assert!(
        (1..=u16::MAX).all(|unit| matches!(folds[usize::from(unit)], 0)
            || folds[usize::from(folds[usize::from(unit)])] == folds[usize::from(unit)])
    );
}

/// The rule of the specification, applied unit by unit.
fn naive_folding(a: &[U16], b: &[U16]) -> Ordering {
    let map = |name: &[U16]| {
        name.iter()
            .map(|unit| fold::fold_unit(unit.get()))
            .filter(|&unit| unit != 0)
            .collect::<Vec<_>>()
    };
    map(a).cmp(&map(b))
}

fn name_units() -> impl Strategy<Value = Vec<U16>> {
    let unit = prop_oneof![4 => 0x20_u16..0x7F, 1 => Just(0), 1 => 0x200A_u16..0x2012, 2 => 0x180_u16..0x4FF, 1 => any::<u16>()];
    prop::collection::vec(unit.prop_map(U16::new), 0..6)
}

fn letters() -> impl Strategy<Value = String> {
    let char = prop_oneof![
        3 => prop::char::range(' ', '~'),
        3 => prop::char::range('\u{C0}', '\u{24F}'),
        2 => prop::char::range('\u{300}', '\u{362}'),
        1 => prop::char::range('\u{AC00}', '\u{D7A3}'),
        1 => any::<char>(),
    ];
    prop::collection::vec(char, 1..12)
        .prop_map(|chars| chars.into_iter().filter(|&char| char != '/').collect())
}

proptest! {
    #[test]
    fn comparison_is_a_total_order_and_the_naive_one(a in name_units(), b in name_units(), c in name_units()) {
        for order in [NameOrder::Folding, NameOrder::Binary] {
            prop_assert_eq!(order.compare(&a, &b), order.compare(&b, &a).reverse());
            prop_assert_eq!(order.compare(&a, &a), Ordering::Equal);
            if order.compare(&a, &b).is_le() && order.compare(&b, &c).is_le() {
                prop_assert!(order.compare(&a, &c).is_le());
            }
            let key = |name: &[U16]| { let mut key = Vec::new(); order.sort_key(name, &mut key); key };
            prop_assert_eq!(order.compare(&a, &b), key(&a).cmp(&key(&b)));
        }
        prop_assert_eq!(NameOrder::Folding.compare(&a, &b), naive_folding(&a, &b));
        let plain = |name: &[U16]| name.iter().map(|unit| unit.get()).collect::<Vec<_>>();
        prop_assert_eq!(NameOrder::Binary.compare(&a, &b), plain(&a).cmp(&plain(&b)));
    }

    #[test]
    fn encoding_twice_is_encoding_once(name in letters()) {
        prop_assume!(!name.is_empty());
        let once = encoded(&name);
        let shown = decode_name(&once);
        prop_assert_eq!(&encoded(&shown), &once);
        // Canonical order: classes do not decrease within a run of marks.
        for pair in once.windows(2) {
            let (first, second) = (combining_class(pair[0].get()), combining_class(pair[1].get()));
            prop_assert!(second == 0 || first <= second);
        }
    }

    #[test]
    fn decoding_never_fails_and_keeps_what_is_unicode(disk in name_units()) {
        let shown = decode_name(&disk);
        let mut back = Vec::new();
        encode_verbatim(&shown, &mut back);
        let swapped = disk.iter().any(|unit| matches!(unit.get(), 0x3A | 0x2400 | 0xD800..=0xDFFF));
        prop_assert!(swapped || back == disk);
    }
}

#[test]
fn names_of_old_systems_are_decomposed_again() {
    let whole: Vec<U16> = [0x61, 0x022D, 0x0301].map(U16::new).into();
    let decomposed: Vec<U16> = [0x61, 0x6F, 0x0303, 0x0304, 0x0301].map(U16::new).into();
    assert_eq!(redecomposed(&whole), Some(decomposed.clone()));
    assert_eq!(redecomposed(&decomposed), None);
    // May remain composed: Apple's checker accepts characters that were always decomposed.
    assert_eq!(redecomposed(&[U16::new(0xE9)]), None);
    let long = vec![U16::new(0x022D); 200];
    assert_eq!(redecomposed(&long), None, "the name would be too long");
}
