//! Entry points for fuzzing the parsers without a container.

use std::cmp::Ordering;

use uuid::Uuid;

use super::btree::{Node, TreeKind};
use super::der;
use super::fixture;
use super::layout::{
    CheckpointMapRaw, DirectoryEntryRaw, FileId, InodeRaw, KeybagEntry, Oid, Paddr, RecordKey,
    SiblingLinkRaw, SnapshotRaw, XattrValue, keybag_tag, put_keybag_entries,
};
use super::names::NameRules;
use super::object::{Object, Xattr};

pub use super::fixture::reseal;
pub use super::keys::read_keybag_bytes;

const KINDS: [TreeKind; 5] = [
    TreeKind::Omap,
    TreeKind::Files { hashed: true },
    TreeKind::Files { hashed: false },
    TreeKind::Snapshots,
    TreeKind::Fext,
];

/// Returns the largest number of a node's records that parse as records of one kind of tree; 0 if
/// the bytes are not a node. Panics if a record exceeds the node, or if the comparison of two keys
/// is not antisymmetric.
pub fn read_node(bytes: &[u8]) -> usize {
    let mut most = 0;
    for kind in KINDS {
        let Ok(node) = Node::parse(Oid(1), Paddr(1), bytes.into(), kind.sizes()) else {
            continue;
        };
        let records: Vec<_> = (0..node.count)
            .filter_map(|index| node.record(index))
            .collect();
        assert_eq!(records.len(), node.count, "a record exceeds its node");
        let keys: Vec<_> = records
            .iter()
            .filter_map(|(key, _)| kind.key(key))
            .collect();
        for pair in keys.windows(2) {
            assert_eq!(
                pair[0].cmp(&pair[1]),
                pair[1].cmp(&pair[0]).reverse(),
                "{kind:?}"
            );
            assert_eq!(pair[0].cmp(&pair[0]), Ordering::Equal);
        }
        most = most.max(keys.len());
        records
            .iter()
            .for_each(|(key, value)| read_record(&[*key, *value].concat()));
    }
    most
}

/// Parses bytes as the key and the value of a record of every kind. Panics if a key does not
/// survive a round trip.
pub fn read_record(bytes: &[u8]) {
    for hashed in [false, true] {
        if let Some(key) = RecordKey::parse(bytes, hashed) {
            let mut written = Vec::new();
            key.put(&mut written);
            assert_eq!(RecordKey::parse(&written, hashed), Some(key));
        }
    }
    if let Some((_, fields)) = InodeRaw::parse(bytes) {
        assert!(fields.iter().map(|(.., value)| value.len()).sum::<usize>() <= bytes.len());
    }
    if let Some(object) = Object::parse(FileId(2), bytes) {
        object.attributes(None);
    }
    if let Some(xattr) = Xattr::parse(b"com.apple.FinderInfo", bytes) {
        xattr.is_hidden();
    }
    let _ = (
        DirectoryEntryRaw::parse(bytes),
        SiblingLinkRaw::parse(bytes),
        SnapshotRaw::parse(bytes),
    );
    let _ = (
        XattrValue::parse(bytes),
        CheckpointMapRaw::parse(bytes),
        der::first(bytes),
    );
    let name = String::from_utf8_lossy(bytes);
    assert!(
        NameRules::CaseInsensitive.same(&name, &name)
            && NameRules::CaseInsensitive.hash(&name).is_some()
    );
}

/// Returns a small container.
pub fn sample() -> Vec<u8> {
    fixture::sample(NameRules::CaseInsensitive)
}

/// Returns keys and values of the records in the small container.
pub fn sample_records() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for bytes in sample().chunks(fixture::BLOCK) {
        let Ok(node) = Node::parse(Oid(1), Paddr(1), bytes.into(), None) else {
            continue;
        };
        all.extend(
            (0..node.count)
                .filter_map(|index| node.record(index))
                .flat_map(|(key, value)| [key.to_vec(), value.to_vec()]),
        );
    }
    all.truncate(60);
    all
}

/// Returns a decrypted keybag with a key that is wrapped with a passphrase.
pub fn sample_keybag() -> Vec<u8> {
    let inner = [
        &[0x81, 16][..],
        &[1; 16],
        &[0x82, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0x83, 40],
        &[7; 40],
        &[0x84, 2, 0x10, 0, 0x85, 16],
        &[2; 16],
    ]
    .concat();
    let blob = [
        &[0x30, inner.len() as u8 + 2, 0xA3, inner.len() as u8][..],
        &inner,
    ]
    .concat();
    let mut bytes = vec![0; 0x30];
    let entries = [
        KeybagEntry {
            uuid: Uuid::from_u128(5),
            tag: keybag_tag::UNLOCK_RECORDS,
            data: &blob,
        },
        KeybagEntry {
            uuid: Uuid::from_u128(5),
            tag: keybag_tag::PASSPHRASE_HINT,
            data: b"the usual",
        },
    ];
    put_keybag_entries(&entries, &mut bytes);
    let len = bytes.len() as u32 - 0x20;
    bytes[0x20] = 2;
    bytes[0x22] = entries.len() as u8;
    bytes[0x24..0x28].copy_from_slice(&len.to_le_bytes());
    bytes
}
