//! Names of a volume that Windows refuses.
//!
//! Characters are replaced as macOS does it on shares (the private use area of Unicode): when a Mac
//! reads the folder over SMB, the names are the old ones again. A name of a device gets `_`, and a name
//! that differs from an earlier one by case only gets a number.
//!
//! Source: Linux, fs/smb/client/cifs_unicode.h, `SFM_DOUBLEQUOTE` to `SFM_PERIOD`; Microsoft, Naming
//! Files, Paths, and Namespaces.

use std::collections::HashSet;

/// Each refused character with its replacement.
const REPLACED: [(char, char); 8] = [
    ('"', '\u{F020}'),
    ('*', '\u{F021}'),
    (':', '\u{F022}'),
    ('<', '\u{F023}'),
    ('>', '\u{F024}'),
    ('?', '\u{F025}'),
    ('\\', '\u{F026}'),
    ('|', '\u{F027}'),
];
/// Replacements of a space and a period at the end.
const LAST: [(char, char); 2] = [(' ', '\u{F028}'), ('.', '\u{F029}')];

/// Names of devices in every folder, with any extension; `COM` and `LPT` with a digit.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
const NUMBERED: [&str; 2] = ["COM", "LPT"];

/// The names of one folder of the host.
#[derive(Debug, Default)]
pub(super) struct TakenNames(HashSet<String>);

impl TakenNames {
    /// Returns the name that an entry `name` of the volume gets, and takes it. `None`: the name is
    /// empty, `.` or `..`, or has a slash or a zero.
    pub(super) fn reserve(&mut self, name: &str) -> Option<String> {
        if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
            return None;
        }
        let fitting = fitting(name);
        if self.0.insert(folded(&fitting)) {
            return Some(fitting);
        }
        let (stem, extension) = match fitting.rfind('.') {
            Some(dot) if dot > 0 => fitting.split_at(dot),
            _ => (&*fitting, ""),
        };
        (2_u64..)
            .map(|number| format!("{stem} ({number}){extension}"))
            .find(|other| self.0.insert(folded(other)))
    }
}

/// Returns a name as it is compared without case.
fn folded(name: &str) -> String {
    name.to_uppercase()
}

/// Returns the name with what Windows refuses replaced.
fn fitting(name: &str) -> String {
    let replaced = |c: char, table: &[(char, char)]| {
        table
            .iter()
            .find(|(refused, _)| *refused == c)
            .map_or(c, |(_, replacement)| *replacement)
    };
    let mut fitting: String = name
        .chars()
        .map(|c| match c {
            '\u{1}'..='\u{1f}' => char::from_u32(0xF000 + u32::from(c)).unwrap_or(c),
            c => replaced(c, &REPLACED),
        })
        .collect();
    if let Some(last) = fitting.pop() {
        fitting.push(replaced(last, &LAST));
    }
    let stem = fitting.find('.').unwrap_or(fitting.len());
    if is_device(fitting[..stem].trim_end_matches(' ')) {
        fitting.insert(stem, '_');
    }
    fitting
}

fn is_device(stem: &str) -> bool {
    let stem = stem.to_uppercase();
    let is_numbered = |name: &str| {
        let mut rest = stem.strip_prefix(name).into_iter().flat_map(str::chars);
        matches!(
            (rest.next(), rest.next()),
            (Some('0'..='9' | '¹' | '²' | '³'), None)
        )
    };
    DEVICES.contains(&&*stem) || NUMBERED.into_iter().any(is_numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_names_are_replaced_and_others_kept() {
        for (name, expected) in [
            ("Grüße.txt", "Grüße.txt"),
            ("a:b\\c|d", "a\u{F022}b\u{F026}c\u{F027}d"),
            (
                "\"what?\" <*>",
                "\u{F020}what\u{F025}\u{F020} \u{F023}\u{F021}\u{F024}",
            ),
            ("Icon\r", "Icon\u{F00D}"),
            ("etc.", "etc\u{F029}"),
            (" space ", " space\u{F028}"),
            ("...", "..\u{F029}"),
            ("nul", "nul_"),
            ("Aux.h", "Aux_.h"),
            ("com1.tar.gz", "com1_.tar.gz"),
            ("LPT² .x", "LPT² _.x"),
            ("conout$", "conout$_"),
            ("COM10", "COM10"),
            ("console", "console"),
            (".nul", ".nul"),
        ] {
            assert_eq!(fitting(name), expected, "{name:?}");
            assert_eq!(
                TakenNames::default().reserve(name).as_deref(),
                Some(expected)
            );
        }
    }

    #[test]
    fn names_that_differ_by_case_are_numbered() {
        let mut taken = TakenNames::default();
        let mut take = |name| taken.reserve(name).unwrap();
        assert_eq!(take("Read me.txt"), "Read me.txt");
        assert_eq!(take("READ ME.TXT"), "READ ME (2).TXT");
        assert_eq!(take("read me (2).txt"), "read me (2) (2).txt");
        assert_eq!(take("read me.txt"), "read me (3).txt");
        assert_eq!(take(".profile"), ".profile");
        assert_eq!(take(".Profile"), ".Profile (2)");
        assert_eq!(take("nul"), "nul_");
        assert_eq!(take("NUL_"), "NUL_ (2)");
    }

    #[test]
    fn no_name_leads_elsewhere() {
        for name in ["", ".", "..", "a/b", "a\0b"] {
            assert_eq!(TakenNames::default().reserve(name), None, "{name:?}");
        }
        assert_eq!(fitting("..\\up"), "..\u{F026}up");
        assert_eq!(fitting("C:"), "C\u{F022}");
    }
}
