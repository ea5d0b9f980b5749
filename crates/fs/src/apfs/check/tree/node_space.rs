//! The space in a node: keys and values are disjoint, and free bytes are listed or counted (§5.1).

use super::head;
use crate::apfs::btree::Node;
use crate::apfs::layout::{NO_OFFSET, NODE_HEADER, SpanRaw, TREE_INFO, node_flags};

/// Minimum size of an element of a free list: offset and length of the next one.
const LINK: usize = 4;

/// The use of a byte of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteUse {
    Unknown,
    Used,
    Free,
}

/// Returns a message if the space of a node is inconsistent.
pub(super) fn check(node: &Node) -> Result<(), String> {
    let Some(head) = head(&node.bytes) else {
        return Ok(());
    };
    let end = node.bytes.len()
        - if node.flags & node_flags::ROOT != 0 {
            TREE_INFO
        } else {
            0
        };
    let keys =
        NODE_HEADER + usize::from(head.table.offset.get()) + usize::from(head.table.len.get());
    let free = keys + usize::from(head.free.offset.get());
    let values = free + usize::from(head.free.len.get());
    if keys > end || values > end {
        return Err(format!(
            "the free space from byte {free} to {values} reaches past the end of the node"
        ));
    }
    let mut bytes = vec![ByteUse::Unknown; end];
    for index in 0..node.count {
        let Some((key, value)) = node.entry(index) else {
            continue;
        };
        for (range, area, what) in [(key, keys..free, "key"), (value, values..end, "value")] {
            if !range.is_empty() && (range.start < area.start || range.end > area.end) {
                return Err(format!("{what} {index} is not in the area of {what}s"));
            }
            let Some(range) = bytes.get_mut(range) else {
                continue;
            };
            if range.contains(&ByteUse::Used) {
                return Err(format!("{what} {index} shares bytes with another"));
            }
            range.fill(ByteUse::Used);
        }
    }
    let at_key = |offset: usize, len: usize| Some(keys + offset..(keys + offset).checked_add(len)?);
    let at_value =
        |offset: usize, len: usize| end.checked_sub(offset).map(|start| start..start + len);
    let key_area = keys..free;
    let value_area = values..end;
    list(
        &mut bytes,
        node,
        head.key_free_list,
        key_area,
        "key",
        &at_key,
    )?;
    list(
        &mut bytes,
        node,
        head.value_free_list,
        value_area,
        "value",
        &at_value,
    )
}

/// Checks a list of free pieces: it links free bytes, and its length counts all of them.
fn list(
    bytes: &mut [ByteUse],
    node: &Node,
    list: SpanRaw,
    area: std::ops::Range<usize>,
    what: &str,
    place: &dyn Fn(usize, usize) -> Option<std::ops::Range<usize>>,
) -> Result<(), String> {
    let unused = bytes
        .get(area.clone())
        .unwrap_or_default()
        .iter()
        .filter(|byte| **byte != ByteUse::Used)
        .count();
    if unused != usize::from(list.len.get()) {
        return Err(format!(
            "the node records {} free bytes among the {what}s, but has {unused}",
            list.len
        ));
    }
    let mut next = list.offset.get();
    while next != NO_OFFSET {
        let wrong = || format!("the list of free {what}s points to {next}, which is not free");
        let link = place(next.into(), LINK)
            .filter(|link| area.start <= link.start && link.end <= area.end)
            .ok_or_else(wrong)?;
        let (Some(first), Some(second)) = (
            word(&node.bytes, link.start),
            word(&node.bytes, link.start + 2),
        ) else {
            return Err(wrong());
        };
        let piece = place(next.into(), second.into())
            .filter(|piece| piece.end <= area.end)
            .ok_or_else(wrong)?;
        // Each byte can be freed only once, so the loop ends.
        let piece = bytes
            .get_mut(piece)
            .filter(|piece| piece.len() >= LINK)
            .ok_or_else(wrong)?;
        if piece.iter().any(|byte| *byte != ByteUse::Unknown) {
            return Err(format!(
                "the list of free {what}s has bytes that are used or listed twice"
            ));
        }
        piece.fill(ByteUse::Free);
        next = first;
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|word| u16::from_le_bytes(*word))
}
