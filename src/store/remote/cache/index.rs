//! The map from ranges of objects in the store to blocks.
//!
//! ```text
//! 0   8   "bsCache1"
//! 8   4   number of entries
//! 12  40  each entry, in the order in which they were last used:
//!         0   16  first half of the SHA-256 of `.bandsaw/objects/...`, or of NAME, SIZE and TAG of a plain object with line feeds between
//!         16  8   where in the object the bytes begin
//!         24  4   how many there are, 1 to 65,536; zeros follow in the block
//!         28  4   number of the block
//!         32  4   CRC-32 of the block
//!         36  4   0
//!     4   CRC-32 of everything before
//! ```
//!
//! Numbers are big-endian. The file exists only while the cache is closed: once it is opened,
//! blocks are overwritten.

use std::collections::HashSet;

use super::super::buffers::PAGE;
use super::{Entry, INDEX, Key, odd};
use crate::device::BlockDeviceExt;
use crate::store::{Open, Put, Store};
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"bsCache1";
const HEAD: usize = 12;
const ENTRY: usize = 40;
/// Maximum length of an index in bytes: that of a cache of 256 GiB.
const LARGEST: u64 = (4 << 20) * ENTRY as u64 + 16;

/// An entry in its stored form.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) len: u32,
    pub(super) block: u32,
    pub(super) sum: u32,
}

pub(super) fn put(store: &dyn Store, entries: &[(Key, Entry)]) -> Result<()> {
    // If there are too many entries, the most recently used ones are kept.
    let most = (LARGEST as usize - HEAD) / ENTRY;
    let entries = &entries[entries.len().saturating_sub(most)..];
    let mut bytes = Vec::with_capacity(HEAD + entries.len() * ENTRY + 4);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    for (key, entry) in entries {
        bytes.extend_from_slice(&key.object);
        bytes.extend_from_slice(&key.offset.to_be_bytes());
        for number in [entry.len, entry.block.number(), entry.block.sum(), 0] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    store.put(INDEX, &bytes, Put::Replace)?;
    store.sync()
}

/// Reads the index and removes it, durably. An invalid one is ignored: the store has all data.
pub(super) fn take(store: &dyn Store) -> Result<Vec<Stored>> {
    let Some(file) = store.open(INDEX, Open::Read)? else {
        return Ok(Vec::new());
    };
    let len = file.info().len;
    let entries = if len > LARGEST {
        Vec::new()
    } else {
        parse(&file.read_vec(0, len as usize)?).unwrap_or_default()
    };
    drop(file);
    store.remove(INDEX)?;
    store.sync()?;
    Ok(entries)
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn parse(bytes: &[u8]) -> Result<Vec<Stored>> {
    let (body, sum) = bytes
        .split_last_chunk::<4>()
        .map_or((bytes, 0), |(body, sum)| (body, u32::from_be_bytes(*sum)));
    if body.len() < HEAD || !body.starts_with(MAGIC) {
        return Err(odd(INDEX, 0, "expected the index of a cache"));
    }
    if crc32fast::hash(body) != sum {
        return Err(odd(INDEX, body.len(), "expected a checksum"));
    }
    let (entries, rest) = body[HEAD..].as_chunks::<ENTRY>();
    if !rest.is_empty() || entries.len() as u64 != u64::from(number(&body[8..])) {
        return Err(odd(INDEX, 8, "wrong number of entries"));
    }
    let mut blocks = HashSet::new();
    let parsed = entries.iter().enumerate().map(|(n, entry)| {
        let mut key = Key {
            object: [0; 16],
            offset: 0,
        };
        key.object.copy_from_slice(&entry[..16]);
        key.offset = entry[16..24]
            .iter()
            .fold(0, |offset, byte| offset << 8 | u64::from(*byte));
        let [len, block, sum] = [24, 28, 32].map(|at| number(&entry[at..]));
        if len == 0 || u64::from(len) > PAGE || !blocks.insert(block) {
            return Err(odd(
                INDEX,
                HEAD + n * ENTRY,
                "invalid block: expected an unused one of at most 64 KiB",
            ));
        }
        Ok(Stored {
            key,
            len,
            block,
            sum,
        })
    });
    parsed.collect::<Result<_, Error>>()
}
