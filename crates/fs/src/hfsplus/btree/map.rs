//! The map of free nodes of a tree (§6.3).

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::draft::Draft;
use super::{Tree, WriteOrder};
use crate::hfsplus::extents::ForkDevice;
use crate::hfsplus::layout::{
    FIRST_RECORD, HEADER_MAP_OFFSET, NodeDescriptorRaw, header_map_bits, map_node_bits, node_kind,
};
use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Kind, Result};

/// Reads the descriptor of the node at `offset`.
fn descriptor(file: &ForkDevice, offset: u64) -> Result<NodeDescriptorRaw> {
    let bytes = file.read_array::<{ size_of::<NodeDescriptorRaw>() }>(offset)?;
    Ok(zerocopy::transmute!(bytes))
}

/// Bytes of the map read at a time.
const PIECE: usize = 512;

/// The nodes that hold the map, and a hint for the search for a free node.
#[derive(Debug, Clone)]
pub(super) struct NodeMap {
    /// Node 0 and the map nodes, in the order of their chain.
    nodes: Vec<u32>,
    /// Lower bound of the first free node.
    first_free: u32,
}

impl Tree {
    /// Allocates the first free node.
    pub(super) fn take_node(&mut self) -> Result<u32> {
        let total = self.head.total_nodes.get();
        let Some(free) = self.head.free_nodes.get().checked_sub(1) else {
            return Err(Error::limit(
                self.kind.layer(),
                format!("all {total} nodes are in use"),
            ));
        };
        let from = self.map()?.first_free;
        let number = self.find_free(from)?.ok_or_else(|| {
            let message = format!(
                "the header records {} free nodes, but the map of nodes has none",
                self.head.free_nodes
            );
            Error::new(Kind::Corrupt, self.kind.layer(), message)
        })?;
        self.mark(number, true)?;
        self.map_mut()?.first_free = number + 1;
        self.head.free_nodes = free.into();
        self.ranks.insert(number, WriteOrder::New);
        Ok(number)
    }

    /// Frees node `number` and fills it with zeros.
    pub(super) fn free_node(&mut self, number: u32) -> Result<()> {
        self.file
            .overwrite(self.offset(number), &vec![0; self.node_size.into()])?;
        self.cache.invalidate(number);
        self.touched.push(number);
        self.ranks.insert(number, WriteOrder::Freed);
        self.mark(number, false)?;
        let map = self.map_mut()?;
        map.first_free = map.first_free.min(number);
        self.head.free_nodes = self.head.free_nodes.get().saturating_add(1).into();
        Ok(())
    }

    /// Switches to `file`, the same file with zeroed nodes appended.
    pub(in crate::hfsplus) fn grow(&mut self, file: ForkDevice) -> Result<()> {
        let before = self.head.total_nodes.get();
        let total = file.len() / u64::from(self.node_size);
        let total = u32::try_from(total).map_err(|_| {
            Error::limit(
                self.kind.layer(),
                "the B-tree has the maximum of 2^32 nodes",
            )
        })?;
        self.map()?;
        self.file = file;
        self.head.total_nodes = total.into();
        self.head.free_nodes = self
            .head
            .free_nodes
            .get()
            .saturating_add(total - before)
            .into();
        let mut next = before;
        let node_size = self.node_size;
        while self.map()?.bits(node_size) < u64::from(total) {
            self.add_map_node(next)?;
            next += 1;
        }
        Ok(())
    }

    /// Returns the file that holds the tree.
    pub(in crate::hfsplus) fn file(&self) -> &ForkDevice {
        &self.file
    }

    /// Switches to `file`, the same file at other offsets of the volume.
    pub(in crate::hfsplus) fn move_to(&mut self, file: ForkDevice) {
        self.file = file;
    }

    /// Appends the new node `number` to the chain of map nodes.
    fn add_map_node(&mut self, number: u32) -> Result<()> {
        let size = usize::from(self.node_size);
        let mut draft = Draft::new(number, node_kind::MAP, 0);
        draft.splice(0..0, &[vec![0; size - 20]]);
        self.file
            .overwrite(self.offset(number), &draft.finish(self.node_size))?;
        let last = self.map()?.nodes.last().copied().unwrap_or_default();
        self.file
            .overwrite(self.offset(last), U32::new(number).as_bytes())?;
        self.map_mut()?.nodes.push(number);
        self.head.free_nodes = self.head.free_nodes.get().saturating_sub(1).into();
        self.mark(number, true)
    }

    fn map(&mut self) -> Result<&NodeMap> {
        Ok(self.map_mut()?)
    }

    fn map_mut(&mut self) -> Result<&mut NodeMap> {
        if self.map.is_none() {
            self.map = Some(self.load_map()?);
        }
        // Filled just above.
        self.map.as_mut().ok_or_else(|| {
            let message = "the header node has no map";
            Error::new(Kind::Corrupt, self.kind.layer(), message)
        })
    }

    fn load_map(&self) -> Result<NodeMap> {
        let total = self.head.total_nodes.get();
        let mut map = NodeMap {
            nodes: vec![0],
            first_free: 1,
        };
        let mut next = descriptor(&self.file, 0)?.forward_link.get();
        while next != 0 {
            // Each map node adds bits, so a cycle in the chain is soon longer than the tree.
            if next >= total
                || map.bits(self.node_size)
                    > u64::from(total) + u64::from(map_node_bits(self.node_size))
            {
                return Err(self.corrupt(
                    next,
                    "the list of map nodes refers to a node that does not exist",
                ));
            }
            let head = descriptor(&self.file, self.offset(next))?;
            if head.kind != node_kind::MAP {
                return Err(self.corrupt(next, "expected a map node (kind 2)"));
            }
            map.nodes.push(next);
            next = head.forward_link.get();
        }
        match map.bits(self.node_size) < u64::from(total) {
            true => Err(self.corrupt(
                0,
                format!("the map of nodes has fewer bits than the tree has nodes ({total})"),
            )),
            false => Ok(map),
        }
    }

    /// Sets or clears the bit of a node.
    fn mark(&mut self, number: u32, used: bool) -> Result<()> {
        let node_size = self.node_size;
        let Some((node, byte)) = self.map()?.place(number, node_size) else {
            return Err(self.corrupt(number, "the node is past the end of the map of nodes"));
        };
        let offset = self.offset(node) + byte;
        let [bits] = self.file.read_array(offset)?;
        let bit = 0x80 >> (number % 8);
        if (bits & bit != 0) == used {
            let (is, expected) = if used {
                ("used", "free")
            } else {
                ("free", "used")
            };
            return Err(self.corrupt(
                number,
                format!(
                    "the node is {is} in the map of nodes, expected {expected}: run `bandsaw \
                     repair`"
                ),
            ));
        }
        self.file.overwrite(offset, &[bits ^ bit])
    }

    /// Returns the first free node at or after `from`.
    fn find_free(&mut self, from: u32) -> Result<Option<u32>> {
        let (node_size, total) = (self.node_size, self.head.total_nodes.get());
        let mut at = from - from % 8;
        while at < total {
            let map = self.map()?;
            let Some((node, byte)) = map.place(at, node_size) else {
                break;
            };
            let room = NodeMap::end(node, node_size).saturating_sub(byte);
            let mut piece = [0; PIECE];
            let piece = &mut piece[..PIECE.min(usize::try_from(room).unwrap_or(PIECE))];
            let offset = self.offset(node) + byte;
            self.file.read_at(offset, piece)?;
            if let Some(index) = piece.iter().position(|byte| *byte != 0xFF) {
                let number = at + 8 * narrow::<u32>(index) + piece[index].leading_ones();
                return Ok((number < total).then_some(number));
            }
            at += 8 * narrow::<u32>(piece.len());
        }
        Ok(None)
    }

    /// Returns the offset of node `number` in the file, in bytes.
    pub(super) fn offset(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.node_size)
    }
}

impl NodeMap {
    /// Returns the number of nodes that the map covers.
    fn bits(&self, node_size: u16) -> u64 {
        let more = self.nodes.len() as u64 - 1;
        u64::from(header_map_bits(node_size)) + more * u64::from(map_node_bits(node_size))
    }

    /// Returns the map node, and the byte offset in it, that holds the bit of node `number`.
    fn place(&self, number: u32, node_size: u16) -> Option<(u32, u64)> {
        let in_header = header_map_bits(node_size);
        if number < in_header {
            return Some((0, u64::from(HEADER_MAP_OFFSET) + u64::from(number / 8)));
        }
        let behind = number - in_header;
        let index = 1 + behind / map_node_bits(node_size);
        let node = self.nodes.get(usize::try_from(index).ok()?)?;
        Some((
            *node,
            u64::from(FIRST_RECORD) + u64::from(behind % map_node_bits(node_size) / 8),
        ))
    }

    /// Returns the end of the map record of a node, as a byte offset in the node.
    fn end(node: u32, node_size: u16) -> u64 {
        u64::from(node_size) - if node == 0 { 8 } else { 6 }
    }
}
