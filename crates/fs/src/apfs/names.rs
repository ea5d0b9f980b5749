//! Comparison of names on a volume, and the hash by which its directories sort them (§8.3).

use super::btree::{Key, Tree};
use super::layout::{FileId, KeyRest, RecordKey, VolumeRaw, record_type, volume_incompatible};
use crate::unicode::normalize;
use bandsaw_core::Result;
use bandsaw_core::crc32c::crc32c_word;

/// A volume's rules for comparing names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameRules {
    /// Names are bytes, sorted as such. Very old volumes.
    Bytes,
    /// Composed and decomposed names are equal.
    CaseSensitive,
    /// Composed and decomposed names, and names that differ in case only, are equal.
    CaseInsensitive,
}

impl NameRules {
    /// Returns the rules of the volume with this superblock.
    pub(crate) fn of(volume: &VolumeRaw) -> Self {
        match (
            volume.has(volume_incompatible::CASE_INSENSITIVE),
            volume.hashes_names(),
        ) {
            (true, _) => Self::CaseInsensitive,
            (false, true) => Self::CaseSensitive,
            (false, false) => Self::Bytes,
        }
    }

    /// Returns true if keys of directory entries contain hashes.
    pub(crate) fn hashed(self) -> bool {
        self != Self::Bytes
    }

    /// Returns the hash of a name, `None` if directories are not hashed.
    pub(crate) fn hash(self, name: &str) -> Option<u32> {
        self.hashed().then(|| hash(&self.form(name)))
    }

    /// Returns a key that is equal for names that are equal by these rules.
    pub(crate) fn key(self, name: &str) -> Vec<u8> {
        match self.hashed() {
            true => self
                .form(name)
                .into_iter()
                .flat_map(u32::to_le_bytes)
                .collect(),
            false => name.as_bytes().to_vec(),
        }
    }

    /// Returns true if two names are equal by these rules.
    pub(crate) fn same(self, a: &str, b: &str) -> bool {
        a == b || self.hashed() && self.form(a) == self.form(b)
    }

    /// Finds the entry of `name`, whose hash is `hash`, in folder `dir` of a tree of files, and returns
    /// what `read` makes of its name as stored and its value.
    pub(super) fn find<T>(
        self,
        files: &Tree,
        dir: FileId,
        (name, hash): (&str, u32),
        read: impl FnOnce(&str, &[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut cursor = files.seek(&Key::Record(RecordKey::entry(dir, b"", Some(hash))))?;
        while let Some(record) = cursor.next()? {
            let Key::Record(RecordKey {
                id,
                kind: record_type::DIRECTORY_ENTRY,
                rest: KeyRest::Hashed(found, there),
            }) = record.key
            else {
                break;
            };
            if (id, found) != (dir, hash) {
                break;
            }
            if let Ok(there) = str::from_utf8(there)
                && self.same(there, name)
            {
                return read(there, record.value).map(Some);
            }
        }
        Ok(None)
    }

    fn form(self, name: &str) -> Vec<u32> {
        normalize(name, self == Self::CaseInsensitive)
    }
}

/// Returns the low 22 bits of the CRC-32C, not complemented, of the code points as 32-bit numbers,
/// little-endian.
fn hash(form: &[u32]) -> u32 {
    let crc = form
        .iter()
        .fold(u32::MAX, |crc, &code| crc32c_word(crc, code));
    crc & 0x3F_FFFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unicode::recorded::{IGNORABLE, LOOKUPS};

    #[test]
    fn names_are_compared_as_by_macos_27() {
        for (stored, other, found) in LOOKUPS.into_iter().chain(IGNORABLE) {
            for (rules, volume) in [
                (NameRules::CaseInsensitive, 'a'),
                (NameRules::CaseSensitive, 'A'),
            ] {
                let expected = found.contains(volume);
                assert_eq!(rules.same(stored, other), expected, "{other:?} {rules:?}");
                let is_hashed_alike = rules.hash(stored) == rules.hash(other);
                assert_eq!(is_hashed_alike, expected, "{other:?} {rules:?}");
            }
        }
    }

    /// The vectors of §8.3, from containers made by macOS.
    #[test]
    fn known_hashes() {
        let insensitive = [
            ("private-dir", 0x2B_29A3),
            ("root", 0x2D_9C79),
            ("Dir1", 0x32_BB08),
            ("Beth.txt", 0x13_D9BA),
            ("hardlink-to-hello", 0x3F_5470),
            ("ünïcødé", 0x07_9EB6),
            ("файл.txt", 0x0C_82AD),
        ];
        for (name, expected) in insensitive {
            assert_eq!(
                NameRules::CaseInsensitive.hash(name),
                Some(expected),
                "{name}"
            );
        }
        for (name, expected) in [("Dir1", 0x3E_EA76), ("Beth.txt", 0x0C_800D)] {
            assert_eq!(
                NameRules::CaseSensitive.hash(name),
                Some(expected),
                "{name}"
            );
        }
        assert_eq!(NameRules::Bytes.hash("Dir1"), None);
    }

    #[test]
    fn names_are_the_same_by_the_volumes_rules() {
        let (composed, decomposed, upper) = ("é", "e\u{301}", "É");
        assert!(
            NameRules::CaseInsensitive.same(composed, upper)
                && NameRules::CaseInsensitive.same(composed, decomposed)
        );
        assert!(
            !NameRules::CaseSensitive.same(composed, upper)
                && NameRules::CaseSensitive.same(composed, decomposed)
        );
        assert!(
            !NameRules::Bytes.same(composed, decomposed)
                && NameRules::Bytes.same(composed, composed)
        );
    }
}
