//! Names of entries and volumes, in each of the three trees that a volume may have.

use super::layout::Record;
use super::rock_ridge::RockRidge;

/// The tree of directories that is read, by the form of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// Names of POSIX in entries of the system use field.
    RockRidge,
    /// UCS-2, big-endian.
    Joliet,
    /// Identifiers of ISO 9660.
    Plain,
}

impl Naming {
    /// Returns the name of an entry.
    pub(super) fn name(self, record: &Record, extra: &RockRidge) -> String {
        let name = match (self, extra.name()) {
            (Self::RockRidge, Some(name)) => String::from_utf8_lossy(name).into_owned(),
            (Self::RockRidge | Self::Plain, _) => {
                without_version(&String::from_utf8_lossy(record.name())).to_owned()
            }
            (Self::Joliet, _) => without_version(&from_ucs2(record.name())).to_owned(),
        };
        shown(name)
    }

    /// Returns true if lookups tell upper case from lower case.
    pub(super) fn is_case_sensitive(self) -> bool {
        self == Self::RockRidge
    }

    /// Returns the name of a volume by its descriptor.
    pub(super) fn volume_name(self, bytes: &[u8]) -> String {
        let name = match self {
            Self::Joliet => from_ucs2(bytes),
            Self::RockRidge | Self::Plain => String::from_utf8_lossy(bytes).into_owned(),
        };
        name.trim_end_matches([' ', '\0']).to_owned()
    }
}

/// Returns a name without the version `;1`, and then without a point at its end.
fn without_version(name: &str) -> &str {
    let name = name.strip_suffix(";1").unwrap_or(name);
    match name.strip_suffix('.') {
        Some("") | None => name,
        Some(name) => name,
    }
}

/// Decodes UCS-2, in which programs also write pairs of surrogates.
fn from_ucs2(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|pair| {
        pair.iter()
            .fold(0, |unit, &byte| unit << 8 | u16::from(byte))
    });
    char::decode_utf16(units)
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

/// Returns a name as macOS shows it. One that would mean another place gets a line in front.
fn shown(name: String) -> String {
    match name.as_str() {
        "" | "." | ".." => format!("_{name}"),
        _ if name.contains(['/', '\0']) => name.replace('/', ":").replace('\0', "\u{FFFD}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_points_are_removed() {
        for (name, expected) in [
            ("A.TXT;1", "A.TXT"),
            ("A.;1", "A"),
            ("A.TXT;2", "A.TXT;2"),
            ("A", "A"),
            (".;1", "."),
            ("A..;1", "A."),
        ] {
            assert_eq!(without_version(name), expected);
        }
    }

    #[test]
    fn names_stay_in_their_folder() {
        for (name, expected) in [
            ("..", "_.."),
            ("", "_"),
            ("a/b", "a:b"),
            ("a\0", "a\u{FFFD}"),
            ("...", "..."),
        ] {
            assert_eq!(shown(name.to_owned()), expected);
        }
        let bytes = [0x00, 0x61, 0xD8, 0x3D, 0xDE, 0x00, 0xDC, 0x00, 0x62];
        assert_eq!(from_ucs2(&bytes), "a\u{1F600}\u{FFFD}");
        assert_eq!(Naming::Plain.volume_name(b"DOCS    "), "DOCS");
    }
}
