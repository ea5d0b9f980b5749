//! Records of damaged leaves. Every record states its own length, so that records are found even
//! where the offsets at the end of the node, or its head, are wrong (§6.1).

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

use crate::fs::hfsplus::btree::{Node, TreeKind};
use crate::fs::hfsplus::layout::{
    AttributeKey, AttributeRecord, CatalogKey, CatalogRecord, EXTENTS_KEY_LENGTH, ExtentRecordRaw,
    ExtentsAttributeRaw, FIRST_RECORD, FileRaw, FolderRaw, ForkAttributeRaw,
    InlineAttributeHeadRaw, NodeDescriptorRaw, ThreadHeadRaw, node_kind,
};

/// The node, as far as it can be read.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Next leaf, 0 for none or if the head is damaged.
    pub(super) next: u32,
    /// Previous leaf, 0 for none or if the head is damaged.
    pub(super) previous: u32,
    /// Ranges of the records in the node.
    pub(super) records: Vec<Range<usize>>,
    /// True if each record was where the offsets say, and could be read.
    pub(super) is_whole: bool,
}

/// Returns the records of the node in `bytes` if it is a leaf, or was one before its head was
/// damaged.
pub(super) fn read(bytes: &[u8], kind: TreeKind) -> Option<Leaf> {
    let (head, _) = NodeDescriptorRaw::read_from_prefix(bytes).ok()?;
    let count = usize::from(head.record_count.get());
    let is_count_possible = count > 0 && bytes.len() / 2 > count + 1;
    let is_of_others = matches!(
        head.kind,
        node_kind::INDEX | node_kind::HEADER | node_kind::MAP
    );
    // Either the kind or the height of a leaf may be damaged. A head of zeros is that of no node.
    let is_other = is_count_possible && is_of_others && head.height != 1;
    let is_leaf = head.kind == node_kind::LEAF || (head.height == 1 && !is_of_others);
    let is_head_whole = is_leaf && is_count_possible;
    let link = |link: U32| if is_head_whole { link.get() } else { 0 };
    let sure = Leaf {
        next: link(head.forward_link),
        previous: link(head.backward_link),
        records: Vec::new(),
        is_whole: true,
    };
    if is_head_whole && let Ok(node) = Node::parse(0, bytes.into()) {
        let offset = |index: usize| offset_of(bytes, index).map(usize::from);
        let ranges = (0..usize::from(node.records))
            .filter_map(|index| Some(offset(index)?..offset(index + 1)?));
        let records: Vec<_> = ranges.collect();
        let is_exact = |range: &Range<usize>| {
            let record = bytes.get(range.clone()).unwrap_or_default();
            length(record, kind).is_some_and(|length| {
                length.next_multiple_of(2) == record.len() || is_thread(record, kind)
            })
        };
        if records.iter().all(is_exact) {
            return Some(Leaf { records, ..sure });
        }
    }
    if is_other {
        return None;
    }
    let offsets = Offsets::read(bytes, if is_head_whole { count } else { 0 });
    let most = if is_head_whole {
        count
    } else {
        offsets.all.len()
    };
    let records = offsets.records(bytes, kind, most, is_head_whole);
    (is_head_whole || !records.is_empty()).then_some(Leaf {
        records,
        is_whole: false,
        ..sure
    })
}

/// The offsets at the end of a node that could be those of records, in ascending order.
struct Offsets {
    all: Vec<usize>,
}

impl Offsets {
    /// Reads `count + 1` offsets, or as many as ascend if that are more.
    fn read(bytes: &[u8], count: usize) -> Self {
        let first = usize::from(FIRST_RECORD);
        let mut all = Vec::new();
        let mut last = 0;
        let mut ascends = true;
        for index in 0..bytes.len() / 2 {
            let Some(offset) = offset_of(bytes, index).map(usize::from) else {
                break;
            };
            ascends &= offset > last && offset + 2 * (index + 1) <= bytes.len();
            if !ascends && index > count {
                break;
            }
            last = offset;
            if offset >= first && offset + 2 * (index + 1) <= bytes.len() {
                all.push(offset);
            }
        }
        all.push(first);
        all.sort_unstable();
        all.dedup();
        Self { all }
    }

    fn has(&self, offset: usize) -> bool {
        self.all.binary_search(&offset).is_ok()
    }

    fn after(&self, offset: usize) -> Option<usize> {
        let at = self.all.partition_point(|&other| other <= offset);
        self.all.get(at).copied()
    }

    /// Returns at most `most` records, each of which begins or ends at an offset, by the lengths
    /// that they state. Where a record is damaged, the search goes on at the next offset. If the
    /// head is damaged, records both begin and end at an offset.
    fn records(
        &self,
        bytes: &[u8],
        kind: TreeKind,
        most: usize,
        is_head_whole: bool,
    ) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = usize::from(FIRST_RECORD);
        while found.len() < most {
            let stated = bytes
                .get(at..)
                .and_then(|rest| length(rest, kind))
                .map(|length| at + length.next_multiple_of(2))
                .filter(|&end| end <= bytes.len());
            let (begins, next) = (self.has(at), self.after(at));
            // Where the type is wrong, the length that it states is wrong too.
            if let Some(next) = next.filter(|_| begins && is_head_whole)
                && stated.is_some_and(|end| end < next && length(&bytes[end..], kind).is_none())
                && is_mistyped(&bytes[at..next], kind)
            {
                found.push(at..next);
                at = next;
                continue;
            }
            match stated {
                Some(end)
                    if (begins && self.has(end))
                        || (is_head_whole && (begins || self.has(end))) =>
                {
                    found.push(at..end);
                    at = end;
                }
                _ => {
                    let Some(next) = next else { break };
                    // A record of no known type between two offsets; its key may be readable.
                    if is_head_whole && begins && has_key(&bytes[at..next], kind) {
                        found.push(at..next);
                    }
                    at = next;
                }
            }
        }
        found
    }
}

fn offset_of(bytes: &[u8], index: usize) -> Option<u16> {
    let at = bytes.len().checked_sub(2 * (index + 1))?;
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn has_key(record: &[u8], kind: TreeKind) -> bool {
    match kind {
        TreeKind::Extents => false,
        TreeKind::Catalog(_) => CatalogKey::split(record).is_some(),
        TreeKind::Attributes => AttributeKey::split(record).is_some(),
    }
}

/// Returns true for a record of the catalog that is as long as that of a file or folder, and states
/// another type.
fn is_mistyped(record: &[u8], kind: TreeKind) -> bool {
    matches!(kind, TreeKind::Catalog(_))
        && CatalogKey::split(record).is_some_and(|(_, data)| {
            let is_of = match CatalogRecord::parse(data) {
                Some(CatalogRecord::File(_)) => size_of::<FileRaw>(),
                Some(CatalogRecord::Folder(_)) => size_of::<FolderRaw>(),
                Some(CatalogRecord::Thread(_)) | None => 0,
            };
            let lengths = [size_of::<FileRaw>(), size_of::<FolderRaw>()];
            lengths.contains(&data.len()) && data.len() != is_of
        })
}

/// Returns true for a thread, which some writers make longer than its name needs.
fn is_thread(record: &[u8], kind: TreeKind) -> bool {
    matches!(kind, TreeKind::Catalog(_))
        && CatalogKey::split(record).is_some_and(|(_, data)| {
            matches!(CatalogRecord::parse(data), Some(CatalogRecord::Thread(_)))
        })
}

/// Returns the length of the record at the beginning of `bytes` by its key and type. `None` if it
/// is no record.
fn length(bytes: &[u8], kind: TreeKind) -> Option<usize> {
    let (key, length) = match kind {
        TreeKind::Extents => {
            let (record, _) = ExtentRecordRaw::read_from_prefix(bytes).ok()?;
            let is_key = record.key.key_length.get() == EXTENTS_KEY_LENGTH;
            return is_key.then_some(size_of::<ExtentRecordRaw>());
        }
        TreeKind::Catalog(_) => {
            let (key, data) = CatalogKey::split(bytes)?;
            // Under the empty name stand threads.
            let is_named = !key.name.is_empty();
            let length = match CatalogRecord::parse(data)? {
                CatalogRecord::Folder(_) if is_named => size_of::<FolderRaw>(),
                CatalogRecord::File(_) if is_named => size_of::<FileRaw>(),
                CatalogRecord::Folder(_) | CatalogRecord::File(_) => return None,
                CatalogRecord::Thread(thread) => {
                    size_of::<ThreadHeadRaw>() + size_of_val(thread.name)
                }
            };
            (bytes.len() - data.len(), length)
        }
        TreeKind::Attributes => {
            let (_, data) = AttributeKey::split(bytes)?;
            let length = match AttributeRecord::parse(data)? {
                AttributeRecord::Inline(value) => size_of::<InlineAttributeHeadRaw>() + value.len(),
                AttributeRecord::Fork(_) => size_of::<ForkAttributeRaw>(),
                AttributeRecord::Extents(_) => size_of::<ExtentsAttributeRaw>(),
            };
            (bytes.len() - data.len(), length)
        }
    };
    Some(key + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::hfsplus::check::sample::Sample;
    use crate::fs::hfsplus::layout::{Cnid, Variant};

    const CATALOG: TreeKind = TreeKind::Catalog(Variant::HfsPlus);

    fn leaf() -> Vec<u8> {
        Sample::new(false).node(Cnid::CATALOG, 1).to_vec()
    }

    fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
        let leaf = read(bytes, CATALOG).unwrap();
        let slices = leaf.records.into_iter().map(|range| bytes[range].to_vec());
        slices.collect()
    }

    #[test]
    fn a_wrong_offset_costs_no_record() {
        let sound = leaf();
        let whole = records(&sound);
        assert!(whole.len() > 6 && read(&sound, CATALOG).unwrap().is_whole);
        for index in 0..=whole.len() {
            for bit in 0..16 {
                let mut bytes = sound.clone();
                let at = bytes.len() - 2 * (index + 1) + bit / 8;
                bytes[at] ^= 1 << (bit % 8);
                assert!(records(&bytes) == whole, "offset {index}, bit {bit}");
            }
        }
    }

    #[test]
    fn offsets_that_were_swapped_or_repeated_cost_no_record() {
        let sound = leaf();
        let whole = records(&sound);
        let size = sound.len();
        let place = |index: usize| size - 2 * (index + 1)..size - 2 * index;
        for index in 0..whole.len() {
            let mut swapped = sound.clone();
            swapped[place(index)].copy_from_slice(&sound[place(index + 1)]);
            let repeated = swapped.clone();
            swapped[place(index + 1)].copy_from_slice(&sound[place(index)]);
            assert!(records(&swapped) == whole, "offset {index} swapped");
            assert!(records(&repeated) == whole, "offset {index} repeated");
        }
    }

    #[test]
    fn one_record_is_lost_where_one_is_damaged() {
        let sound = leaf();
        let whole = records(&sound);
        let first = read(&sound, CATALOG).unwrap().records[3].clone();
        let mut bytes = sound.clone();
        bytes[first.start..first.start + 2].fill(0xFF);
        let found = records(&bytes);
        assert_eq!(found.len(), whole.len() - 1);
        assert!(found.iter().all(|record| whole.contains(record)));
    }

    #[test]
    fn a_leaf_with_a_lost_head_keeps_the_records_behind_it() {
        let sound = leaf();
        let leaf = read(&sound, CATALOG).unwrap();
        for fill in [0x00, 0xFF, 0x5A] {
            let mut bytes = sound.clone();
            bytes[..512].fill(fill);
            let behind = leaf.records.iter().filter(|range| range.start >= 512);
            let expected: Vec<_> = behind.map(|range| sound[range.clone()].to_vec()).collect();
            assert!(!expected.is_empty());
            assert!(records(&bytes) == expected, "{fill:#x}");
        }
    }

    #[test]
    fn nothing_is_found_in_other_nodes() {
        assert!(read(Sample::new(false).node(Cnid::CATALOG, 0), CATALOG).is_none());
        assert!(read(&[0; 4096], CATALOG).is_none());
        assert!(read(&[0xFF; 4096], CATALOG).is_none());
        assert!(read(&[], CATALOG).is_none());
    }
}
