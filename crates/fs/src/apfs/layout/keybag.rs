//! Keybags: the wrapped keys of encrypted volumes (§11.2).

use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::ObjectRaw;
use bandsaw_core::size::narrow;

/// The head of a keybag; entries follow.
///
/// Source: Apple File System Reference (2020-06-22), kb_locker_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct KeybagRaw {
    /*00*/ pub(crate) object: ObjectRaw, // oid 0
    /*20*/ pub(crate) version: U16, // KEYBAG_VERSION
    /*22*/ pub(crate) count: U16,
    /*24*/ pub(crate) bytes: U32, // from `version` on
    /*28*/ pub(crate) padding: U64,
}
const _: () = assert!(size_of::<KeybagRaw>() == 0x30);

/// Supported value of [`KeybagRaw::version`].
pub(crate) const KEYBAG_VERSION: u16 = 2;
/// Alignment of entries in bytes.
pub(crate) const KEYBAG_ALIGNMENT: usize = 16;

/// The head of an entry; [`KeybagEntryRaw::len`] bytes follow.
///
/// Source: Apple File System Reference (2020-06-22), keybag_entry_t.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub(crate) struct KeybagEntryRaw {
    /*00*/ pub(crate) uuid: [u8; 16],
    /*10*/ pub(crate) tag: U16, // keybag_tag
    /*12*/ pub(crate) len: U16,
    /*14*/ pub(crate) padding: U32,
}
const _: () = assert!(size_of::<KeybagEntryRaw>() == 0x18);

/// Types of entries, in [`KeybagEntryRaw::tag`].
pub(crate) mod keybag_tag {
    /// In the container's keybag: a volume's wrapped key (VEK).
    pub(crate) const VOLUME_KEY: u16 = 2;
    /// In the container's keybag: the location of a volume's keybag. In a volume's keybag: a key
    /// that wraps the volume's (KEK), wrapped itself.
    pub(crate) const UNLOCK_RECORDS: u16 = 3;
    /// In a volume's keybag: the passphrase hint.
    pub(crate) const PASSPHRASE_HINT: u16 = 4;
    pub(crate) const WRAPPED_MEDIA_KEY: u16 = 5;
}

/// The unlock record of the personal recovery key.
pub(crate) const PERSONAL_RECOVERY_KEY: Uuid =
    Uuid::from_u128(0xEBC6_C064_0000_11AA_AA11_0030_6543_ECAC);

/// An entry of a keybag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeybagEntry<'a> {
    /// UUID of the volume, or of the owner of the record.
    pub(crate) uuid: Uuid,
    /// Type, of [`keybag_tag`].
    pub(crate) tag: u16,
    /// Contents.
    pub(crate) data: &'a [u8],
}

/// Parses the entries of a decrypted keybag, given all of its blocks; `None` if one exceeds its
/// end.
pub(crate) fn keybag_entries(keybag: &[u8]) -> Option<Vec<KeybagEntry<'_>>> {
    let (head, _) = KeybagRaw::ref_from_prefix(keybag).ok()?;
    let end = usize::try_from(head.bytes.get())
        .ok()?
        .checked_add(size_of::<ObjectRaw>())?;
    let mut rest = keybag.get(size_of::<KeybagRaw>()..end)?;
    let mut entries = Vec::new();
    for _ in 0..head.count.get() {
        let (entry, after) = KeybagEntryRaw::ref_from_prefix(rest).ok()?;
        let len = usize::from(entry.len.get());
        entries.push(KeybagEntry {
            uuid: Uuid::from_bytes(entry.uuid),
            tag: entry.tag.get(),
            data: after.get(..len)?,
        });
        let whole = (size_of::<KeybagEntryRaw>() + len).next_multiple_of(KEYBAG_ALIGNMENT);
        rest = rest.get(whole..).unwrap_or_default();
    }
    Some(entries)
}

/// Appends entries, each padded to [`KEYBAG_ALIGNMENT`]. Data must be shorter than 64 KiB.
pub(crate) fn put_keybag_entries(entries: &[KeybagEntry<'_>], out: &mut Vec<u8>) {
    for entry in entries {
        // No truncation, as documented above.
        let len = U16::new(narrow(entry.data.len()));
        let head = KeybagEntryRaw {
            uuid: entry.uuid.into_bytes(),
            tag: entry.tag.into(),
            len,
            padding: 0.into(),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(entry.data);
        out.resize(out.len().next_multiple_of(KEYBAG_ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keybag(entries: &[KeybagEntry<'_>]) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<KeybagRaw>()];
        put_keybag_entries(entries, &mut bytes);
        bytes[0x22] = entries.len() as u8;
        bytes[0x24] = (bytes.len() - 0x20) as u8;
        bytes
    }

    #[test]
    fn entries_survive_the_disk() {
        let entries = [
            KeybagEntry {
                uuid: Uuid::from_u128(1),
                tag: keybag_tag::VOLUME_KEY,
                data: b"wrapped",
            },
            KeybagEntry {
                uuid: PERSONAL_RECOVERY_KEY,
                tag: keybag_tag::PASSPHRASE_HINT,
                data: b"",
            },
        ];
        let bytes = keybag(&entries);
        assert_eq!(keybag_entries(&bytes).unwrap(), entries);
        for (at, value) in [(0x22, 3), (0x24, 0xFF), (0x30 + 0x13, 1)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert_eq!(keybag_entries(&bad), None, "{at}");
        }
        assert_eq!(keybag_entries(&bytes[..0x2F]), None);
    }
}
