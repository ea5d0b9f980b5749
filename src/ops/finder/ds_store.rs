//! The Finder settings of a folder: records by the name of the entry they describe, in a B-tree.
//!
//! Source: docs/formats/ds_store.md §2, §3.

use zerocopy::IntoBytes;

use super::LAYER;
use super::buddy::BuddyFile;
use super::layout::{NODE, NodeHeadRaw, TREE_NAME, TreeRaw};
use crate::size::narrow;
use crate::{Error, Result};

/// Size of the head of a node, in bytes.
const HEAD: usize = size_of::<NodeHeadRaw>();
/// Size of the number of a child, in bytes.
const CHILD: usize = size_of::<u32>();
/// Largest record, in bytes, such that any two fit in a node together with their child numbers.
const MAX_RECORD: usize = (NODE - HEAD) / 2 - CHILD;

/// A typed value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A 32-bit integer (record type `long`).
    Long(u32),
    /// Four characters (record type `type`).
    Type([u8; 4]),
    /// Bytes (record type `blob`).
    Blob(Vec<u8>),
}

/// The records of one folder.
#[derive(Debug, Default)]
pub(super) struct DsStore {
    records: Vec<Record>,
}

#[derive(Debug)]
struct Record {
    /// The sort key of the tree: the name in lower case, then the code.
    key: (String, [u8; 4]),
    bytes: Vec<u8>,
}

impl DsStore {
    /// Adds a record about `name`, which is `.` for the folder itself. `code` selects the property.
    pub(super) fn add(&mut self, name: &str, code: &[u8; 4], value: &Value) -> Result<()> {
        let units: Vec<u16> = name.encode_utf16().collect();
        let mut bytes = narrow::<u32>(units.len()).to_be_bytes().to_vec();
        units
            .iter()
            .for_each(|unit| bytes.extend(unit.to_be_bytes()));
        bytes.extend(code);
        match value {
            Value::Long(number) => {
                bytes.extend(b"long");
                bytes.extend(number.to_be_bytes());
            }
            Value::Type(word) => {
                bytes.extend(b"type");
                bytes.extend(word);
            }
            Value::Blob(blob) => {
                bytes.extend(b"blob");
                bytes.extend(narrow::<u32>(blob.len()).to_be_bytes());
                bytes.extend(blob);
            }
        }
        if bytes.len() > MAX_RECORD {
            let message = format!(
                "Finder record of {} bytes is too large: the maximum is {MAX_RECORD}; shorten \
                 the names",
                bytes.len()
            );
            return Err(Error::limit(LAYER, message).named(name));
        }
        self.records.push(Record {
            key: (name.to_lowercase(), *code),
            bytes,
        });
        Ok(())
    }

    /// Returns the encoded file.
    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        self.records.sort_by(|a, b| a.key.cmp(&b.key));
        let mut blocks = BuddyFile::new();
        let count = narrow::<u32>(self.records.len());
        let mut tree = StoreTree {
            blocks: &mut blocks,
            nodes: 0,
        };
        let mut level = tree.level(
            None,
            self.records
                .into_iter()
                .map(|record| record.bytes)
                .collect(),
        )?;
        let mut levels = 0;
        while level.children.len() > 1 {
            level = tree.level(Some(level.children), level.separators)?;
            levels += 1;
        }
        let root = level.children[0];
        let tree = TreeRaw {
            root: root.into(),
            levels: levels.into(),
            records: count.into(),
            nodes: tree.nodes.into(),
            node_size: narrow::<u32>(NODE).into(),
        };
        let number = blocks.add(tree.as_bytes(), size_of_val(&tree))?;
        blocks.finish(TREE_NAME, number)
    }
}

struct StoreTree<'a> {
    blocks: &'a mut BuddyFile,
    nodes: u32,
}

/// The nodes of a level, and the records that separate them in the level above.
struct Level {
    children: Vec<u32>,
    separators: Vec<Vec<u8>>,
}

impl StoreTree<'_> {
    /// Packs `records` into nodes. For an inner level, `children` are the nodes below: one before
    /// each record, and the last.
    fn level(&mut self, children: Option<Vec<u32>>, records: Vec<Vec<u8>>) -> Result<Level> {
        let mut made = Level {
            children: Vec::new(),
            separators: Vec::new(),
        };
        let cost = |record: &Vec<u8>| record.len() + if children.is_some() { CHILD } else { 0 };
        let mut start = 0;
        loop {
            let mut room = NODE - HEAD;
            let fits = records[start..].iter().take_while(|record| {
                let fits = cost(record) <= room;
                room = room.saturating_sub(cost(record));
                fits
            });
            let mut end = start + fits.count();
            // The record that separates two nodes is in neither, and the last node must not be
            // empty.
            if end + 1 == records.len() {
                end -= 1;
            }
            let node = self.node(
                children.as_deref().map(|children| &children[start..=end]),
                &records[start..end],
            )?;
            made.children.push(node);
            let Some(separator) = records.get(end) else {
                return Ok(made);
            };
            made.separators.push(separator.clone());
            start = end + 1;
        }
    }

    fn node(&mut self, children: Option<&[u32]>, records: &[Vec<u8>]) -> Result<u32> {
        let last = children
            .and_then(|children| children.last())
            .copied()
            .unwrap_or(0);
        let head = NodeHeadRaw {
            last_child: last.into(),
            count: narrow::<u32>(records.len()).into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for (number, record) in records.iter().enumerate() {
            if let Some(child) = children.and_then(|children| children.get(number)) {
                bytes.extend(child.to_be_bytes());
            }
            bytes.extend(record);
        }
        self.nodes += 1;
        self.blocks.add(&bytes, NODE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// Reads the tree below block `number` in order.
    fn walk(file: &[u8], number: u32, depth: u32, out: &mut Vec<String>) {
        let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        let list = word(8) as usize + 4;
        let address = word(list + 8 + 4 * number as usize);
        let at = (address & !0x1F) as usize + 4;
        let (last, count) = (word(at), word(at + 4));
        assert_eq!(last == 0, depth == 0, "all leaves are at the same depth");
        let mut here = at + HEAD;
        for _ in 0..count {
            if last != 0 {
                walk(file, word(here), depth - 1, out);
                here += 4;
            }
            let units = word(here) as usize;
            let name = file[here + 4..here + 4 + 2 * units]
                .chunks(2)
                .map(|unit| u16::from_be_bytes([unit[0], unit[1]]));
            out.push(String::from_utf16(&name.collect::<Vec<_>>()).unwrap());
            here += 4 + 2 * units + 8;
            assert_eq!(&file[here - 4..here], b"blob");
            here += 4 + word(here) as usize;
        }
        assert!(here <= at + NODE);
        if last != 0 {
            walk(file, last, depth - 1, out);
        }
    }

    #[test]
    fn every_record_is_found_in_order_whatever_their_number() {
        for (count, len) in [
            (0, 0),
            (1, 16),
            (2, 2000),
            (3, 2000),
            (100, 16),
            (101, 2000),
            (3000, 16),
            (1000, 400),
        ] {
            let mut store = DsStore::default();
            for number in (0..count).rev() {
                store
                    .add(
                        &format!("File {number:05}"),
                        b"Iloc",
                        &Value::Blob(vec![7; len]),
                    )
                    .unwrap();
            }
            let file = store.finish().unwrap();
            let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
            let list = word(8) as usize + 4;
            let toc = list + 8 + 4 * (word(list) as usize).next_multiple_of(256);
            assert_eq!(&file[toc + 4..toc + 9], b"\x04DSDB");
            let own = (word(list + 8 + 4 * word(toc + 9) as usize) & !0x1F) as usize + 4;
            let mut found = Vec::new();
            walk(&file, word(own), word(own + 4), &mut found);
            let expected: Vec<_> = (0..count)
                .map(|number| format!("File {number:05}"))
                .collect();
            assert_eq!(
                (found, word(own + 8)),
                (expected, count),
                "{count} records of {len}"
            );
        }
    }

    #[test]
    fn records_larger_than_a_node_are_refused() {
        let error = DsStore::default()
            .add("x", b"icvp", &Value::Blob(vec![0; NODE]))
            .unwrap_err();
        assert_eq!(error.kind(), Kind::Limit);
    }
}
