//! Records of damaged leaves. Every record states its own length, so that records are found even
//! where the offsets at the end of the node, or its head, are wrong (§6.1).

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

use crate::hfsplus::btree::{Node, TreeKind};
use crate::hfsplus::layout::{
    ATTRIBUTE_NAME_LENGTH_AT, ATTRIBUTES_MIN_KEY_LENGTH, AttributeKey, AttributeRecord,
    CATALOG_MIN_KEY_LENGTH, CATALOG_NAME_LENGTH_AT, CatalogKey, CatalogRecord, EXTENTS_KEY_LENGTH,
    ExtentRecordRaw, ExtentsAttributeRaw, FIRST_RECORD, FileRaw, FolderRaw, ForkAttributeRaw,
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
    /// Offsets from which on nothing can be read up to the next record, in ascending order.
    pub(super) gaps: Vec<usize>,
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
        gaps: Vec::new(),
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
    let (records, gaps) = offsets.records(bytes, kind, most, is_head_whole);
    (is_head_whole || !records.is_empty()).then_some(Leaf {
        records,
        gaps,
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
    /// that they state, and the offsets where records cannot be read. Where a record is damaged,
    /// the search goes on at the next offset. If the head is damaged, records both begin and end
    /// at an offset.
    fn records(
        &self,
        bytes: &[u8],
        kind: TreeKind,
        most: usize,
        is_head_whole: bool,
    ) -> (Vec<Range<usize>>, Vec<usize>) {
        let (mut found, mut gaps) = (Vec::new(), Vec::new());
        let mut at = usize::from(FIRST_RECORD);
        while found.len() < most {
            let stated = bytes
                .get(at..)
                .and_then(|rest| length(rest, kind))
                .map(|length| at + length.next_multiple_of(2))
                .filter(|&end| end <= bytes.len());
            let (begins, next) = (self.has(at), self.after(at));
            // A wrong type states a wrong length too.
            if let Some(next) = next.filter(|_| begins && is_head_whole)
                && stated.is_some_and(|end| end < next && length(&bytes[end..], kind).is_none())
                && is_mistyped(&bytes[at..next], kind)
            {
                found.push(at..next);
                at = next;
                continue;
            }
            // A wrong length must not hide the record that begins at the next offset.
            let is_next_whole = |next: usize| {
                length(&bytes[next..], kind)
                    .is_some_and(|length| self.has(next + length.next_multiple_of(2)))
            };
            let stated = stated.filter(|&end| {
                let inner = next.filter(|&next| is_head_whole && begins && next < end);
                self.has(end) || !inner.is_some_and(is_next_whole)
            });
            match stated {
                Some(end)
                    if (begins && self.has(end))
                        || (is_head_whole && (begins || self.has(end))) =>
                {
                    found.push(at..end);
                    at = end;
                }
                _ => {
                    let record = next.map_or(at..at, |next| at..next);
                    let is_record = is_head_whole && begins;
                    let is_repaired = is_record && repaired(&bytes[record.clone()], kind).is_some();
                    if !is_repaired {
                        gaps.push(at);
                    }
                    let Some(next) = next else { break };
                    // A record of no known type between two offsets; its key may be readable.
                    if is_repaired || (is_record && has_key(&bytes[record.clone()], kind)) {
                        found.push(record);
                    }
                    at = next;
                }
            }
        }
        (found, gaps)
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

/// Returns a copy of a record, between two offsets, with its lengths of the key and of the name
/// corrected by each other. `None` if they agree, or if the result is no record of this length.
pub(super) fn repaired(record: &[u8], kind: TreeKind) -> Option<Box<[u8]>> {
    let is_exact = |record: &[u8]| {
        length(record, kind).is_some_and(|length| length.next_multiple_of(2) == record.len())
    };
    let stated = |at: usize| Some(u16::from_be_bytes(*record.get(at..)?.first_chunk()?));
    let with = |at: usize, value: u16| {
        let mut copy: Box<[u8]> = record.into();
        copy.get_mut(at..at + 2)?
            .copy_from_slice(&value.to_be_bytes());
        Some(copy)
    };
    let (least, name_at) = match kind {
        TreeKind::Extents => (EXTENTS_KEY_LENGTH, None),
        TreeKind::Catalog(_) => (CATALOG_MIN_KEY_LENGTH, Some(CATALOG_NAME_LENGTH_AT)),
        TreeKind::Attributes => (ATTRIBUTES_MIN_KEY_LENGTH, Some(ATTRIBUTE_NAME_LENGTH_AT)),
    };
    // A name shorter than its key reads as another name.
    let do_lengths_agree = |record: &[u8]| {
        let length = |at: usize| {
            let bytes: &[u8; 2] = record.get(at..)?.first_chunk()?;
            Some(u32::from(u16::from_be_bytes(*bytes)))
        };
        name_at.is_none_or(|at| length(at).map(|units| u32::from(least) + 2 * units) == length(0))
    };
    let is_sound = |record: &[u8]| is_exact(record) && do_lengths_agree(record);
    if is_sound(record) || is_thread(record, kind) {
        return None;
    }
    let by_name = match name_at {
        Some(at) => stated(at)
            .and_then(|units| units.checked_mul(2))
            .and_then(|bytes| bytes.checked_add(least)),
        None => Some(least),
    };
    let by_key = name_at.and_then(|at| Some((at, stated(0)?.checked_sub(least)? / 2)));
    let candidates = [
        by_name.and_then(|length| with(0, length)),
        by_key.and_then(|(at, units)| with(at, units)),
    ];
    candidates.into_iter().flatten().find(|copy| is_sound(copy))
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
    use crate::hfsplus::check::sample::Sample;
    use crate::hfsplus::layout::{Cnid, Variant};

    const CATALOG: TreeKind = TreeKind::Catalog(Variant::HfsPlus);

    fn leaf() -> Vec<u8> {
        Sample::new(false).node(Cnid::CATALOG, 1).to_vec()
    }

    /// Returns a leaf of the extents tree with three records.
    fn extents_leaf() -> Vec<u8> {
        let record = size_of::<ExtentRecordRaw>();
        let mut bytes = vec![0; 1024];
        bytes[8..12].copy_from_slice(&[node_kind::LEAF as u8, 1, 0, 3]);
        for index in 0..4 {
            let at = usize::from(FIRST_RECORD) + index * record;
            let end = bytes.len() - 2 * index;
            bytes[end - 2..end].copy_from_slice(&(at as u16).to_be_bytes());
            if index < 3 {
                bytes[at..at + 2].copy_from_slice(&EXTENTS_KEY_LENGTH.to_be_bytes());
                bytes[at + 7] = 20 + index as u8;
                bytes[at + 15] = 100;
                bytes[at + 19] = 1;
            }
        }
        bytes
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
    fn lengths_of_keys_and_names_are_corrected_by_each_other() {
        let sound = leaf();
        let ranges = read(&sound, CATALOG).unwrap().records;
        for range in &ranges {
            let record = &sound[range.clone()];
            for at in [0, 6] {
                for bit in 0..16 {
                    let mut wrong = record.to_vec();
                    wrong[at + bit / 8] ^= 1 << (bit % 8);
                    let found = repaired(&wrong, CATALOG);
                    assert_eq!(found.as_deref(), Some(record), "byte {at}, bit {bit}");
                }
            }
            assert!(repaired(record, CATALOG).is_none());
        }
    }

    #[test]
    fn a_wrong_length_of_a_thread_hides_no_other_record() {
        let sound = leaf();
        let whole = read(&sound, CATALOG).unwrap().records;
        let is_followed =
            |at: &usize| is_thread(&sound[whole[*at].clone()], CATALOG) && *at + 1 < whole.len();
        let at = (0..whole.len()).find(is_followed).unwrap();
        let mut bytes = sound.clone();
        // The name's length is behind the key, the type, a reserved number and the parent.
        let name_length = whole[at].start + 8 + 8;
        bytes[name_length + 1] += 9;
        let found = read(&bytes, CATALOG).unwrap().records;
        for other in whole.iter().enumerate().filter(|(other, _)| *other != at) {
            assert!(found.contains(other.1), "record {}", other.0);
        }
    }

    #[test]
    fn a_wrong_length_of_a_key_costs_no_extents() {
        let sound = extents_leaf();
        let whole = read(&sound, TreeKind::Extents).unwrap().records;
        assert_eq!(whole.len(), 3);
        let first = whole[0].clone();
        for bit in 0..16 {
            let mut bytes = sound.clone();
            bytes[first.start + bit / 8] ^= 1 << (bit % 8);
            let found = read(&bytes, TreeKind::Extents).unwrap().records;
            assert_eq!(found, whole, "bit {bit}");
            let record = repaired(&bytes[first.clone()], TreeKind::Extents);
            assert_eq!(record.as_deref(), Some(&sound[first.clone()]), "bit {bit}");
        }
    }

    #[test]
    fn the_place_of_zeroed_records_is_known() {
        let sound = leaf();
        let whole = read(&sound, CATALOG).unwrap();
        assert!(whole.gaps.is_empty());
        let mut bytes = sound.clone();
        bytes[whole.records[2].start..whole.records[3].end].fill(0);
        let found = read(&bytes, CATALOG).unwrap();
        assert_eq!(found.records.len(), whole.records.len() - 2);
        assert_eq!(found.gaps.first(), Some(&whole.records[2].start));
    }

    #[test]
    fn one_record_is_lost_where_one_is_damaged() {
        let sound = leaf();
        let whole = records(&sound);
        let first = read(&sound, CATALOG).unwrap().records[3].clone();
        let mut bytes = sound.clone();
        // The length of the key, the parent and the length of the name.
        bytes[first.start..first.start + 8].fill(0xFF);
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
