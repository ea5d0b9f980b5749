//! Recognition of single structures of a volume in arbitrary bytes.

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use super::HfsPlus;
use super::layout::{
    FIRST_RECORD, HEADER_OFFSET, MAX_DEPTH, NODE_SIZES, NodeDescriptorRaw, TreeHeaderRaw,
    VolumeHeader, VolumeHeaderRaw, node_kind,
};

/// Returns the offsets of both headers of a volume of `len` bytes; fewer if it is too short.
pub(crate) fn header_places(len: u64) -> impl Iterator<Item = u64> {
    [Some(HEADER_OFFSET), len.checked_sub(HEADER_OFFSET)]
        .into_iter()
        .flatten()
}

/// Returns true if `bytes` are the header of a volume of `len` bytes.
pub(crate) fn is_volume_header(bytes: &[u8], len: u64) -> bool {
    VolumeHeaderRaw::read_from_bytes(bytes)
        .is_ok_and(|raw| VolumeHeader::parse(&raw, HEADER_OFFSET, len).is_ok())
}

/// Returns true if `bytes` are a node of a tree, or the beginning of a header node.
pub(crate) fn is_node(bytes: &[u8]) -> bool {
    let Ok((head, rest)) = NodeDescriptorRaw::read_from_prefix(bytes) else {
        return false;
    };
    if head.reserved.get() != 0 {
        return false;
    }
    if head.kind == node_kind::HEADER {
        let is_tree = |tree: TreeHeaderRaw| {
            let node_size = tree.node_size.get();
            node_size.is_power_of_two()
                && NODE_SIZES.contains(&node_size)
                && tree.reserved1.get() == 0
        };
        let is_first =
            head.height == 0 && head.record_count.get() == 3 && head.backward_link.get() == 0;
        return is_first
            && TreeHeaderRaw::read_from_prefix(rest).is_ok_and(|(tree, _)| is_tree(tree));
    }
    let is_level = match head.kind {
        node_kind::LEAF => head.height == 1,
        node_kind::INDEX => (2..=MAX_DEPTH).contains(&u16::from(head.height)),
        node_kind::MAP => head.height == 0,
        _ => false,
    };
    let first = U16::read_from_suffix(bytes).map(|(_, first)| first.get());
    is_level && head.record_count.get() > 0 && first == Ok(FIRST_RECORD)
}

impl HfsPlus {
    /// Reads up to `most` nodes of each tree, evenly spaced, for a caller that observes the reads.
    pub(crate) fn touch_nodes(&self, most: u32) {
        let trees = [
            Some(self.catalog.tree()),
            self.overflow.tree(),
            self.attributes.tree(),
        ];
        trees
            .into_iter()
            .flatten()
            .for_each(|tree| tree.touch(most));
    }
}
