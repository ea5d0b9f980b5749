//! The map from ranges of objects in the store to blocks.
//!
//! It has a [`HeadRaw`], an [`EntryRaw`] for each entry in the order in which they were last used, and the
//! CRC-32 of both. Numbers are big-endian. The file exists only while the cache is closed: once it is
//! opened, blocks are overwritten.

use std::collections::HashSet;

use zerocopy::{FromBytes, IntoBytes};

use super::super::buffers::PAGE;
use super::layout::{EntryRaw, HeadRaw, INDEX_MAGIC};
use super::{Entry, INDEX, Key, odd};
use crate::device::BlockDeviceExt;
use crate::size::{narrow, to_usize};
use crate::store::{Open, Put, Store};
use crate::{Error, Result};

const HEAD: usize = size_of::<HeadRaw>();
const ENTRY: usize = size_of::<EntryRaw>();
/// Maximum length of an index in bytes: that of a cache of 256 GiB.
const LARGEST: u64 = (4 << 20) * ENTRY as u64 + 16;

/// An entry that was read.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) len: u32,
    pub(super) block: u32,
    pub(super) sum: u32,
}

pub(super) fn put(store: &dyn Store, entries: &[(Key, Entry)]) -> Result<()> {
    // If there are too many entries, the most recently used ones are kept.
    let most = (to_usize(LARGEST) - HEAD) / ENTRY;
    let entries = &entries[entries.len().saturating_sub(most)..];
    let mut bytes = Vec::with_capacity(HEAD + entries.len() * ENTRY + 4);
    let head = HeadRaw {
        magic: INDEX_MAGIC,
        count: narrow::<u32>(entries.len()).into(),
    };
    bytes.extend_from_slice(head.as_bytes());
    for (key, entry) in entries {
        let raw = EntryRaw {
            object: key.object,
            offset: key.offset.into(),
            len: entry.len.into(),
            block: entry.block.number().into(),
            sum: entry.block.sum().into(),
            reserved: 0.into(),
        };
        bytes.extend_from_slice(raw.as_bytes());
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
    store.put(INDEX, &bytes, Put::Replace)?;
    store.sync()
}

/// Reads the index and removes it, durably. An invalid one is ignored: the store has all data.
pub(super) fn read_and_remove(store: &dyn Store) -> Result<Vec<Stored>> {
    let Some(file) = store.open(INDEX, Open::Read)? else {
        return Ok(Vec::new());
    };
    let len = file.info().len;
    let entries = if len > LARGEST {
        Vec::new()
    } else {
        parse(&file.read_vec(0, to_usize(len))?).unwrap_or_default()
    };
    drop(file);
    store.remove(INDEX)?;
    store.sync()?;
    Ok(entries)
}

fn parse(bytes: &[u8]) -> Result<Vec<Stored>> {
    let (body, sum) = bytes
        .split_last_chunk::<4>()
        .map_or((bytes, 0), |(body, sum)| (body, u32::from_be_bytes(*sum)));
    let head = HeadRaw::read_from_prefix(body).ok();
    let Some((head, entries)) = head.filter(|(head, _)| head.magic == INDEX_MAGIC) else {
        return Err(odd(INDEX, 0, "expected the index of a cache"));
    };
    if crc32fast::hash(body) != sum {
        return Err(odd(INDEX, body.len(), "expected a checksum"));
    }
    let entries = <[EntryRaw]>::ref_from_bytes(entries).ok();
    let Some(entries) =
        entries.filter(|entries| entries.len() as u64 == u64::from(head.count.get()))
    else {
        return Err(odd(INDEX, 8, "wrong number of entries"));
    };
    let mut blocks = HashSet::new();
    let parsed = entries.iter().enumerate().map(|(n, entry)| {
        let (len, block) = (entry.len.get(), entry.block.get());
        if len == 0 || u64::from(len) > PAGE || !blocks.insert(block) {
            return Err(odd(
                INDEX,
                HEAD + n * ENTRY,
                "invalid block: expected an unused one of at most 64 KiB",
            ));
        }
        Ok(Stored {
            key: Key {
                object: entry.object,
                offset: entry.offset.get(),
            },
            len,
            block,
            sum: entry.sum.get(),
        })
    });
    parsed.collect::<Result<_, Error>>()
}
