//! The metadata of a consistent volume, located by the volume's own header.

use std::ops::Range;

use bandsaw::testing::Random;

use super::damage::Kind;

/// Byte ranges of a consistent volume, by structure.
#[derive(Debug, Default)]
pub(super) struct Places {
    by_target: Vec<(Kind, usize, usize)>,
    /// Offsets of the sectors of headers, bitmap and used nodes, without the maps of trees.
    pub(super) sectors: Vec<usize>,
    pub(super) nodes: Vec<Node>,
    /// Both headers, the bitmap, and each extent of each tree.
    pub(super) regions: Vec<Range<usize>>,
}

/// A node of a tree.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) tree: &'static str,
    pub(super) range: Range<usize>,
    /// The ranges of its records; empty for a free node.
    pub(super) records: Vec<Range<usize>>,
    pub(super) is_leaf: bool,
}

pub(super) fn be16(bytes: &[u8], at: usize) -> usize {
    bytes
        .get(at..at + 2)
        .map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> usize {
    bytes
        .get(at..at + 4)
        .map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
}

impl Places {
    pub(super) fn of(volume: &[u8]) -> Self {
        let mut places = Self::default();
        let block = be32(volume, 1024 + 40);
        places.add(Kind::Header, 1024, 112);
        places.add(Kind::HeaderForks, 1024 + 112, 400);
        places.add(Kind::Alternate, volume.len() - 1024, 512);
        places.add(Kind::BothHeaders, 1024, 512);
        places.sectors.extend([1024, volume.len() - 1024]);
        places.regions.push(1024..1536);
        places.regions.push(volume.len() - 1024..volume.len() - 512);
        let fork = |at: usize| -> Vec<(usize, usize)> {
            let extents =
                (0..8).map(|n| (be32(volume, at + 16 + 8 * n), be32(volume, at + 20 + 8 * n)));
            extents
                .filter(|(_, count)| *count > 0)
                .map(|(start, count)| (start * block, count * block))
                .collect()
        };
        let blocks = be32(volume, 1024 + 44);
        if let Some(&(at, len)) = fork(1024 + 112).first() {
            let len = len.min(blocks.div_ceil(8));
            places.add(Kind::Bitmap, at, len);
            places.sectors.extend((at..at + len).step_by(512));
            places.regions.push(at..at + len);
        }
        for (tree, at) in [("extents", 192), ("catalog", 272), ("attributes", 352)] {
            places.tree(volume, tree, &fork(1024 + at));
        }
        let info = be32(volume, 1024 + 12) * block;
        if info > 0 {
            places.add(Kind::Journal, info, 52);
            let offset = be32(volume, info + 40);
            places.add(Kind::Journal, offset, 44);
            places.add(Kind::Journal, offset + 512, 4096);
        }
        places.add(Kind::Anywhere, 1024, 512);
        places
    }

    fn add(&mut self, target: Kind, at: usize, len: usize) {
        if len > 0 {
            self.by_target.push((target, at, len));
        }
    }

    fn tree(&mut self, volume: &[u8], tree: &'static str, extents: &[(usize, usize)]) {
        let Some(&(start, _)) = extents.first() else {
            return;
        };
        let size = be16(volume, start + 14 + 18);
        if size < 512 {
            return;
        }
        self.add(Kind::TreeHeader, start + 14, 106);
        self.add(Kind::TreeHeader, start + 14, 44);
        self.add(Kind::TreeMap, start + 248, size - 256);
        let total = be32(volume, start + 14 + 22);
        self.add(Kind::TreeMap, start + 248, (total / 8 + 2).min(size - 256));
        for &(at, len) in extents {
            self.regions.push(at..at + len);
            for node in (at..at + len).step_by(size) {
                self.node(volume, tree, node, size);
            }
        }
    }

    fn node(&mut self, volume: &[u8], tree: &'static str, node: usize, size: usize) {
        let (kind, records) = (volume[node + 8] as i8, be16(volume, node + 10));
        let offset = |index: usize| be16(volume, node + size - 2 * (index + 1));
        self.nodes.push(Node {
            tree,
            range: node..node + size,
            records: (0..records)
                .map(|index| node + offset(index)..node + offset(index + 1))
                .filter(|range| range.start < range.end && range.end <= node + size)
                .collect(),
            is_leaf: kind == -1,
        });
        if records == 0 {
            self.add(Kind::FreeNode, node, size);
            return;
        }
        self.add(Kind::NodeDescriptor, node, 14);
        self.add(
            Kind::NodeOffsets,
            node + size - 2 * (records + 1),
            2 * (records + 1),
        );
        let sectors = match kind {
            // The rest of a header node is its map.
            1 => node..node + 512,
            _ => node..node + size,
        };
        self.sectors.extend(sectors.step_by(512));
        self.add(Kind::Anywhere, node, size);
        for index in 0..records {
            let (at, end) = (node + offset(index), node + offset(index + 1));
            if at >= end || end > node + size {
                continue;
            }
            match (kind, tree) {
                (0, _) => self.add(Kind::IndexRecord, at, end - at),
                (-1, "extents") => self.add(Kind::ExtentsRecord, at, end - at),
                (-1, "attributes") => self.add(Kind::AttributesRecord, at, end - at),
                (-1, _) => {
                    let key = 2 + be16(volume, at);
                    self.add(Kind::CatalogKey, at, key);
                    let data = at + key;
                    match be16(volume, data) {
                        1 => self.add(Kind::CatalogFolder, data, 88),
                        2 => {
                            self.add(Kind::CatalogFile, data, 88);
                            self.add(Kind::CatalogForks, data + 88, 160);
                        }
                        _ => self.add(Kind::CatalogThread, data, end - data),
                    }
                }
                _ => {}
            }
        }
    }

    /// Changes one field of `target` and returns a description; `None` if the volume has no such
    /// structure.
    pub(super) fn change_field(
        &self,
        target: Kind,
        volume: &mut [u8],
        random: &mut Random,
    ) -> Option<String> {
        let all: Vec<_> = self
            .by_target
            .iter()
            .filter(|(of, ..)| *of == target)
            .collect();
        if all.is_empty() {
            return None;
        }
        let &&(_, at, len) = all.get(random.within(0..all.len() as u64) as usize)?;
        if target == Kind::BothHeaders {
            let change = Change::random(random, at, len);
            change.apply(volume);
            let other = Change {
                at: volume.len() - 2048 + change.at,
                ..change.clone()
            };
            other.apply(volume);
            return Some(format!("{change:?} in both headers"));
        }
        let change = Change::random(random, at, len);
        change.apply(volume);
        Some(format!(
            "{target:?}: {change:?} ({} of {len})",
            change.at - at
        ))
    }
}

/// Bytes to write, or bits to flip.
#[derive(Debug, Clone)]
struct Change {
    at: usize,
    bytes: Vec<u8>,
    flip: bool,
}

impl Change {
    fn random(random: &mut Random, at: usize, len: usize) -> Self {
        let within = |random: &mut Random, unit: usize| {
            let places = (len / unit).max(1);
            at + unit * random.within(0..places as u64) as usize
        };
        match random.within(0..6) {
            0..=2 => Self {
                at: within(random, 1),
                bytes: vec![1 << random.within(0..8)],
                flip: true,
            },
            3 => Self {
                at: within(random, 1),
                bytes: vec![random.number() as u8],
                flip: false,
            },
            4 => {
                let value = [0, 1, 0xFFFF, random.number() as u16][random.within(0..4) as usize];
                Self {
                    at: within(random, 2),
                    bytes: value.to_be_bytes().to_vec(),
                    flip: false,
                }
            }
            _ => {
                let value = [0, 1, 2, 0xFFFF_FFFF, random.within(0..5000) as u32]
                    [random.within(0..5) as usize];
                Self {
                    at: within(random, 4),
                    bytes: value.to_be_bytes().to_vec(),
                    flip: false,
                }
            }
        }
    }

    fn apply(&self, volume: &mut [u8]) {
        for (place, byte) in volume.iter_mut().skip(self.at).zip(&self.bytes) {
            *place = if self.flip { *place ^ byte } else { *byte };
        }
    }
}
