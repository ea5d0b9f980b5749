//! Short names for names that are longer, or in lower case.

use std::collections::{HashMap, HashSet};

use bandsaw_core::{Error, Result};

use super::LAYER;
use super::names::encoded;

/// Maximum number of short names that are derived from one beginning.
const MAX_NUMBER: u32 = 999_999;

/// The short name of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShortName {
    pub(super) bytes: [u8; 11],
    /// True if it is the whole name, so that no long one is needed.
    pub(super) is_exact: bool,
}

/// The short names of a folder.
#[derive(Debug, Default)]
pub(super) struct ShortNames {
    used: HashSet<[u8; 11]>,
    /// The number to try next, by name without a number.
    next: HashMap<[u8; 11], u32>,
}

impl ShortNames {
    /// Returns the short names of a folder.
    pub(super) fn of_folder(used: HashSet<[u8; 11]>) -> Self {
        Self {
            used,
            next: HashMap::new(),
        }
    }

    /// Returns true if a name is the short name of an object, by which that is found too.
    pub(super) fn has(&self, name: &str) -> bool {
        exact(&name.to_ascii_uppercase()).is_some_and(|bytes| self.used.contains(&bytes))
    }

    /// Takes the short name that is the name itself, if there is one. To be called for all names of the
    /// folder before [`derive`](Self::derive).
    pub(super) fn take_exact(&mut self, name: &str) -> Option<ShortName> {
        let bytes = exact(name).filter(|bytes| self.used.insert(*bytes))?;
        Some(ShortName {
            bytes,
            is_exact: true,
        })
    }

    /// Makes a short name for a name: its first characters and a number.
    pub(super) fn derive(&mut self, name: &str) -> Result<ShortName> {
        let basis = basis(name);
        let next = self.next.entry(basis).or_insert(1);
        while *next <= MAX_NUMBER {
            let bytes = numbered(basis, *next);
            *next += 1;
            if self.used.insert(bytes) {
                return Ok(ShortName {
                    bytes,
                    is_exact: false,
                });
            }
        }
        let message = "too many names of the folder begin alike";
        Err(Error::limit(LAYER, message).named(name))
    }
}

/// Returns true for a byte that a short name can have.
fn is_allowed(byte: u8) -> bool {
    match byte {
        b'A'..=b'Z' | b'0'..=b'9' | 0x80.. => true,
        _ => b"!#$%&'()-@^_`{}~".contains(&byte),
    }
}

/// Returns the short name that is shown as just this name.
fn exact(name: &str) -> Option<[u8; 11]> {
    let (base, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let has_point = name.contains('.');
    if base.is_empty() || has_point && extension.is_empty() {
        return None;
    }
    let mut bytes = [b' '; 11];
    for (place, text) in [(0..8, base), (8..11, extension)] {
        let place = bytes.get_mut(place)?;
        if text.chars().count() > place.len() {
            return None;
        }
        for (byte, char) in place.iter_mut().zip(text.chars()) {
            // Only ASCII: the code page of readers is not known.
            *byte = u8::try_from(char)
                .ok()
                .filter(|byte| byte.is_ascii() && is_allowed(*byte))?;
        }
    }
    Some(bytes)
}

/// Returns the characters of a name that its short name has, in upper case.
fn basis(name: &str) -> [u8; 11] {
    let trimmed = name.trim_start_matches(['.', ' ']);
    let (base, extension) = trimmed.rsplit_once('.').unwrap_or((trimmed, ""));
    let mut bytes = [b' '; 11];
    for (place, text) in [(0..8, base), (8..11, extension)] {
        let kept = text
            .chars()
            .filter(|char| !matches!(char, ' ' | '.'))
            .map(|char| {
                let upper = char.to_uppercase().next().unwrap_or(char);
                encoded(upper)
                    .filter(|byte| byte.is_ascii() && is_allowed(*byte))
                    .unwrap_or(b'_')
            });
        if let Some(place) = bytes.get_mut(place) {
            place
                .iter_mut()
                .zip(kept)
                .for_each(|(byte, kept)| *byte = kept);
        }
    }
    bytes
}

/// Returns a short name with a number after as much of its base as fits.
fn numbered(basis: [u8; 11], number: u32) -> [u8; 11] {
    let tail = format!("~{number}");
    let base = basis[..8].iter().take_while(|byte| **byte != b' ').count();
    let kept = base.min(8 - tail.len());
    let mut bytes = basis;
    bytes[..8].fill(b' ');
    bytes[..kept].copy_from_slice(&basis[..kept]);
    bytes[kept..kept + tail.len()].copy_from_slice(tail.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_short_stay_and_others_get_numbers() {
        let mut names = ShortNames::default();
        for (name, expected) in [
            ("README.TXT", Some(b"README  TXT")),
            ("A", Some(b"A          ")),
            ("LONGNA~1.TXT", Some(b"LONGNA~1TXT")),
            ("readme.txt", None),
            ("NO.SHORT", None),
            (".PROFILE", None),
            ("A B", None),
            ("\u{dc}BER", None),
        ] {
            let found = names.take_exact(name).map(|name| name.bytes);
            assert_eq!(found, expected.copied(), "{name}");
        }
        for (name, expected) in [
            ("long name.txt", b"LONGNA~2TXT"),
            ("long name two.txt", b"LONGNA~3TXT"),
            ("readme.txt", b"README~1TXT"),
            (".profile", b"PROFIL~1   "),
            ("...", b"~1         "),
            ("a+b.c", b"A_B~1   C  "),
            ("\u{1F600}.tar.gz", b"_TAR~1  GZ "),
        ] {
            let found = names.derive(name).unwrap();
            assert_eq!(found.bytes, *expected, "{name}");
            assert!(!found.is_exact);
        }
        for number in 0..1100 {
            names.derive(&format!("many files {number}")).unwrap();
        }
        assert_eq!(&names.derive("many files").unwrap().bytes, b"MAN~1101   ");
    }
}
