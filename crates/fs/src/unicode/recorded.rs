//! Names that the kernel of macOS 27.0.1 looked up on four volumes, as the project go-apfs-v3 recorded
//! them (`acceptance/testdata/semantics/macos-27`: `*-files.json`).

/// The stored name, another spelling, and on which volumes that spelling finds it: `a` and `h` are
/// APFS and HFS+ that ignore case, `A` and `H` those that do not.
pub(crate) const LOOKUPS: [(&str, &str, &str); 21] = [
    ("ReadMe", "readme", "ah"),
    ("ReadMe", "README", "ah"),
    ("caf\u{E9}", "cafe\u{301}", "aAhH"),
    ("caf\u{E9}", "CAF\u{C9}", "ah"),
    ("a\u{301}\u{327}", "a\u{327}\u{301}", "aAhH"),
    ("\u{AC01}", "\u{1100}\u{1161}\u{11A8}", "aAhH"),
    ("Stra\u{DF}e", "STRASSE", "a"),
    ("Stra\u{DF}e", "Strasse", "a"),
    ("\u{3A3}", "\u{3C3}", "ah"),
    ("\u{3A3}", "\u{3C2}", "a"),
    ("\u{3B1}\u{345}\u{301}", "\u{3B1}\u{301}\u{3B9}", "a"),
    ("\u{3B1}\u{345}\u{301}", "\u{3B1}\u{301}\u{345}", "aAhH"),
    ("\u{212B}", "\u{C5}", "aA"),
    ("\u{212B}", "A\u{30A}", "aA"),
    ("\u{FB00}", "ff", "a"),
    ("\u{FB00}", "FF", "a"),
    ("\u{10400}", "\u{10428}", "a"),
    ("\u{1C90}", "\u{10D0}", "a"),   // Unicode 11
    ("\u{10570}", "\u{10597}", "a"), // Unicode 14
    ("\u{1C89}", "\u{1C8A}", "a"),   // Unicode 16
    ("a:b", "A:B", "ah"),
];

/// The same with characters that HFS+ ignores where it ignores case.
pub(crate) const IGNORABLE: [(&str, &str, &str); 2] =
    [("ab", "a\u{200C}b", "h"), ("ab", "a\u{FEFF}b", "h")];
