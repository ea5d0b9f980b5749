//! Comparison of the map of used nodes with the nodes reached by a walk (`docs/formats/hfsplus.md` §6.3).

use zerocopy::FromBytes;

use super::{TreeFormat, TreeWalk, WalkedNode};
use crate::btree_node::{FIRST_RECORD, HEADER_MAP_OFFSET, NodeDescriptorRaw, node_kind};
use crate::check_report::Report;
use bandsaw_core::Result;
use bandsaw_core::device::{BlockDevice, BlockDeviceExt, ExtentKind, is_zero};
use bandsaw_core::size::to_usize;

impl<F: TreeFormat> TreeWalk<'_, F> {
    /// Compares the map of used nodes with the nodes that were reached.
    pub(super) fn map(&mut self, report: &mut Report) -> Result<()> {
        let maps = self.map_nodes(report)?;
        self.reached.insert(0);
        let mut map = MapReader {
            walk: self,
            maps: &maps,
            piece: None,
        };
        let (mut free, mut first_leaked, mut leaked) = (0_u64, 0, 0_u64);
        for number in 0..u32::try_from(map.walk.nodes()).unwrap_or(u32::MAX) {
            let Some(used) = map.bit(number)? else {
                report.damage(
                    map.walk
                        .wrong(0, format!("the map of nodes ends before node {number}")),
                );
                return Ok(());
            };
            free += u64::from(!used);
            match (used, map.walk.reached.contains(number)) {
                (false, true) => report.damage(
                    map.walk
                        .wrong(number, "is in use, but marked as free in the map of nodes"),
                ),
                (true, false) if !map.walk.incomplete => {
                    first_leaked = if leaked == 0 { number } else { first_leaked };
                    leaked += 1;
                }
                _ => {}
            }
        }
        if leaked > 0 {
            report.warning(self.wrong(
                first_leaked,
                format!(
                    "is marked as used in the map of nodes, but the tree does not contain it (and {} more nodes)",
                    leaked - 1
                ),
            ));
        }
        self.map_end(&maps, report)?;
        let claimed = u64::from(self.header.free_nodes.get());
        if claimed != free {
            report.damage(self.wrong(
                0,
                format!("the header records {claimed} free nodes, but the map of nodes has {free}"),
            ));
        }
        self.zeroed(report)
    }

    /// Checks the map past the last node: its bits must be clear, and no map node may be
    /// superfluous (`docs/formats/hfsplus.md` §6.3).
    fn map_end(&self, maps: &[MapPart], report: &mut Report) -> Result<()> {
        let size = usize::from(self.header.node_size.get());
        let head = (
            self.at(0) + u64::from(HEADER_MAP_OFFSET),
            size.saturating_sub(usize::from(HEADER_MAP_OFFSET) + 8),
        );
        let rest = maps
            .iter()
            .map(|map| (self.at(map.number) + u64::from(FIRST_RECORD), map.len));
        let mut first = 0_u64;
        for (at, len) in std::iter::once(head).chain(rest) {
            let bits = len as u64 * 8;
            if first > 0 && first >= self.nodes() {
                report.warning(self.wrong(
                    0,
                    format!(
                        "the map of nodes continues past the last of {} nodes",
                        self.nodes()
                    ),
                ));
                return Ok(());
            }
            let used = self.nodes().saturating_sub(first).min(bits);
            let bytes = self
                .file
                .read_vec(at + used / 8, len - (used / 8) as usize)?;
            let partial = bytes
                .first()
                .is_some_and(|byte| byte & (0xFF >> (used % 8)) != 0);
            if partial || !is_zero(bytes.get(1..).unwrap_or_default()) {
                report.warning(self.wrong(
                    0,
                    format!(
                        "the map of nodes has bits set past the last of {} nodes",
                        self.nodes()
                    ),
                ));
            }
            first += bits;
        }
        Ok(())
    }

    /// Returns the map nodes in the order of their chain.
    fn map_nodes(&mut self, report: &mut Report) -> Result<Vec<MapPart>> {
        let mut maps = Vec::new();
        let head = self.file.read_vec(0, size_of::<NodeDescriptorRaw>())?;
        let mut next = NodeDescriptorRaw::read_from_prefix(&head)
            .map_or(0, |(head, _)| head.forward_link.get());
        while next != 0 {
            self.progress.check()?;
            if u64::from(next) >= self.nodes() || !self.reached.insert(next) {
                report.damage(self.wrong(next, "invalid map node: it does not exist or is in use"));
                break;
            }
            let size = usize::from(self.header.node_size.get());
            let bytes = self.file.read_vec(self.at(next), size)?;
            let Ok((head, _)) = NodeDescriptorRaw::read_from_prefix(&bytes) else {
                break;
            };
            if (head.kind, head.record_count.get()) != (node_kind::MAP, 1) {
                report.damage(self.wrong(
                    next,
                    format!(
                        "expected a map node with one record, found kind {}",
                        head.kind
                    ),
                ));
                break;
            }
            // The record of machfs has 2 bytes more than that of others.
            let len = WalkedNode::parse(next, bytes)
                .ok()
                .and_then(|node| Some(node.record(0)?.len()))
                .unwrap_or(size - usize::from(FIRST_RECORD) - 6);
            maps.push(MapPart { number: next, len });
            next = head.forward_link.get();
        }
        Ok(maps)
    }

    /// Checks that unused nodes are zero. Holes are not read.
    fn zeroed(&self, report: &mut Report) -> Result<()> {
        if !self.rules.zeroed || self.incomplete {
            return Ok(());
        }
        let size = u64::from(self.header.node_size.get());
        let mut buf = vec![0; to_usize(size)];
        for extent in self.file.extents(0..self.file.len()) {
            let (range, kind) = extent?;
            if kind != ExtentKind::Data {
                continue;
            }
            for number in range.start / size..range.end.div_ceil(size) {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                if self.reached.contains(number) || self.at(number) + size > self.file.len() {
                    continue;
                }
                self.progress.check()?;
                self.file.read_at(self.at(number), &mut buf)?;
                if !is_zero(&buf) {
                    report.warning(self.wrong(number, "is free, but not filled with zeros"));
                }
            }
        }
        Ok(())
    }
}

/// A map node.
#[derive(Debug, Clone, Copy)]
struct MapPart {
    number: u32,
    /// Length of its record in bytes.
    len: usize,
}

/// Reads the bits of the map, record by record.
struct MapReader<'w, 'a, F: TreeFormat> {
    walk: &'w TreeWalk<'a, F>,
    maps: &'w [MapPart],
    /// The record read last: its first bit and its bytes.
    piece: Option<(u32, Vec<u8>)>,
}

impl<F: TreeFormat> MapReader<'_, '_, F> {
    /// Returns the bit of node `number`, `None` past the map. Must be called with ascending
    /// numbers.
    fn bit(&mut self, number: u32) -> Result<Option<bool>> {
        loop {
            if let Some((first, bytes)) = &self.piece {
                let within = number - first;
                if let Some(byte) = bytes.get(within as usize / 8) {
                    return Ok(Some(byte & (0x80 >> (within % 8)) != 0));
                }
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }

    fn advance(&mut self) -> Result<bool> {
        let size = usize::from(self.walk.header.node_size.get());
        let (first, at, len) = match &self.piece {
            None => (
                0,
                u64::from(HEADER_MAP_OFFSET),
                size - usize::from(HEADER_MAP_OFFSET) - 8,
            ),
            Some((first, bytes)) => {
                let Some((map, rest)) = self.maps.split_first() else {
                    return Ok(false);
                };
                self.maps = rest;
                let first =
                    first.saturating_add(u32::try_from(bytes.len() * 8).unwrap_or(u32::MAX));
                (
                    first,
                    self.walk.at(map.number) + u64::from(FIRST_RECORD),
                    map.len,
                )
            }
        };
        self.piece = Some((first, self.walk.file.read_vec(at, len)?));
        Ok(true)
    }
}
