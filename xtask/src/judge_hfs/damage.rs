//! Kinds of damage, as disks, cables, drivers and power cuts do it.

use std::ops::Range;

use bandsaw::testing::Random;
use clap::ValueEnum;

use super::places::{Node, Places, be16, be32};
use super::volumes::Sample;

/// A kind of damage: bits, bytes or numbers somewhere in a structure, or one of those from
/// [`RecordField`](Self::RecordField) on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "verbatim")]
pub(super) enum Kind {
    Header,
    HeaderForks,
    Alternate,
    BothHeaders,
    TreeHeader,
    TreeMap,
    NodeDescriptor,
    NodeOffsets,
    FreeNode,
    IndexRecord,
    CatalogFolder,
    CatalogFile,
    CatalogForks,
    CatalogThread,
    CatalogKey,
    ExtentsRecord,
    AttributesRecord,
    Bitmap,
    Journal,
    Anywhere,
    /// A declared field of a record gets another value that it could have.
    RecordField,
    /// A record is moved to another place or another leaf, whose structure stays valid.
    RecordMove,
    /// A few bytes in a row.
    Run,
    ZeroSector,
    OnesSector,
    RandomSector,
    SwappedSectors,
    SwappedNodes,
    CopiedNode,
    /// The contents of a node are shifted by some bytes.
    ShiftedNode,
    /// Sectors of a file or of other metadata are written to metadata.
    MisdirectedWrite,
    /// Sectors of an older state of the volume.
    StaleSector,
    /// A node of an older state of the volume.
    StaleNode,
    /// A whole structure, or several nodes in a row, zeroed.
    ZeroRegion,
}

impl Kind {
    /// Returns a kind at random: fields of structures in two of five cases.
    pub(super) fn random(random: &mut Random) -> Self {
        let (fields, others) = Self::value_variants().split_at(Self::RecordField as usize);
        let kinds = if random.within(0..5) < 2 {
            fields
        } else {
            others
        };
        kinds[random.within(0..kinds.len() as u64) as usize]
    }

    /// Returns true if it takes contents from an older state of the volume.
    pub(super) fn is_stale(self) -> bool {
        matches!(self, Self::StaleSector | Self::StaleNode)
    }

    /// Damages `volume`, which has the structures of `sample`, and returns a description; `None` if
    /// the volume has nothing that can be damaged in this manner.
    pub(super) fn damage(
        self,
        sample: &Sample,
        places: &Places,
        volume: &mut [u8],
        random: &mut Random,
    ) -> Option<String> {
        let sectors = &places.sectors;
        match self {
            field if (field as usize) < Self::RecordField as usize => {
                return places.change_field(field, volume, random);
            }
            Self::RecordField => return record_field(places, volume, random),
            Self::RecordMove => return record_move(places, volume, random),
            _ => {}
        }
        let range = match self {
            Self::Run => run(places, volume, random)?,
            Self::ZeroSector | Self::OnesSector | Self::RandomSector => {
                let at = pick(random, sectors)?;
                let bytes = match self {
                    Self::ZeroSector => vec![0; 512],
                    Self::OnesSector => vec![0xFF; 512],
                    _ => random.bytes(512),
                };
                put(volume, at, &bytes)
            }
            Self::SwappedSectors => {
                let (a, b) = (pick(random, sectors)?, pick(random, sectors)?);
                swap(volume, a..a + 512, b..b + 512)
            }
            Self::SwappedNodes | Self::CopiedNode => {
                let a = pick_node(random, used(places))?;
                // Most nodes of a tree are free.
                let is_free = random.one_in(5);
                let others = places.nodes.iter().filter(|b| {
                    b.tree == a.tree && b.range != a.range && b.records.is_empty() == is_free
                });
                let b = pick_node(random, others)?;
                if self == Self::SwappedNodes {
                    swap(volume, a.range.clone(), b.range.clone())
                } else {
                    let copy = volume[a.range.clone()].to_vec();
                    put(volume, b.range.start, &copy)
                }
            }
            Self::ShiftedNode => {
                let node = pick_node(random, used(places))?;
                let by = random.within(1..65) as usize;
                let from = random.within(0..(node.range.len() / 2) as u64) as usize;
                let bytes = &mut volume[node.range.start + from..node.range.end];
                if random.one_in(2) {
                    bytes.rotate_right(by);
                } else {
                    bytes.rotate_left(by);
                }
                node.range.start + from..node.range.end
            }
            Self::MisdirectedWrite => {
                let at = pick(random, sectors)?;
                let count = [1, 1, 2, 4, 8][random.within(0..5) as usize];
                // Only metadata are overwritten: which contents a file had, nothing tells.
                let count = (1..=count).rfind(|count| {
                    (0..*count).all(|sector| sectors.contains(&(at + sector * 512)))
                })?;
                let from = volume
                    .chunks_exact(512)
                    .enumerate()
                    .filter(|(_, sector)| sector.iter().any(|byte| *byte != 0))
                    .map(|(number, _)| number * 512)
                    .collect::<Vec<_>>();
                let from = pick(random, &from)?.min(volume.len() - count * 512);
                let bytes = volume[from..from + count * 512].to_vec();
                put(volume, at, &bytes)
            }
            Self::StaleSector => {
                let ranges = sectors.iter().map(|at| *at..at + 512);
                stale(sample, volume, random, ranges)?
            }
            Self::StaleNode => {
                let ranges = places.nodes.iter().map(|node| node.range.clone());
                stale(sample, volume, random, ranges)?
            }
            _ => {
                let mut region = pick(random, &places.regions)?;
                if random.one_in(2) {
                    // From a node in use to the end of its tree's extent.
                    let node = pick_node(random, used(places))?;
                    region = places
                        .regions
                        .iter()
                        .find(|region| region.contains(&node.range.start))?
                        .clone();
                    if random.one_in(2) {
                        region.start = node.range.start;
                    }
                }
                let len = if random.one_in(4) {
                    region.len()
                } else {
                    (random.within(1..9) as usize * 4096).min(region.len())
                };
                put(volume, region.start, &vec![0; len])
            }
        };
        Some(format!("{self:?}: {range:?}"))
    }
}

fn pick<T: Clone>(random: &mut Random, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| from[random.within(0..from.len() as u64) as usize].clone())
}

fn pick_node<'a>(
    random: &mut Random,
    from: impl Iterator<Item = &'a Node> + Clone,
) -> Option<&'a Node> {
    let count = from.clone().count() as u64;
    (count > 0)
        .then(|| from.clone().nth(random.within(0..count) as usize))
        .flatten()
}

/// Returns the used nodes.
fn used(places: &Places) -> impl Iterator<Item = &Node> + Clone {
    places.nodes.iter().filter(|node| !node.records.is_empty())
}

/// Returns the leaves.
fn leaves(places: &Places) -> impl Iterator<Item = &Node> + Clone {
    used(places).filter(|node| node.is_leaf)
}

fn put(volume: &mut [u8], at: usize, bytes: &[u8]) -> Range<usize> {
    volume[at..at + bytes.len()].copy_from_slice(bytes);
    at..at + bytes.len()
}

fn swap(volume: &mut [u8], a: Range<usize>, b: Range<usize>) -> Range<usize> {
    let (old_a, old_b) = (volume[a.clone()].to_vec(), volume[b.clone()].to_vec());
    put(volume, a.start, &old_b);
    put(volume, b.start, &old_a);
    a.start..b.end
}

/// Restores one of `ranges` to the older state, one that has changed since.
fn stale(
    sample: &Sample,
    volume: &mut [u8],
    random: &mut Random,
    ranges: impl Iterator<Item = Range<usize>>,
) -> Option<Range<usize>> {
    let changed: Vec<_> = ranges
        .filter(|range| sample.older[range.clone()] != volume[range.clone()])
        .collect();
    let range = pick(random, &changed)?;
    let old = sample.older[range.clone()].to_vec();
    Some(put(volume, range.start, &old))
}

fn run(places: &Places, volume: &mut [u8], random: &mut Random) -> Option<Range<usize>> {
    let region = if random.one_in(4) {
        pick(random, &places.regions)?
    } else {
        pick_node(random, used(places))?.range.clone()
    };
    let len = (random.within(2..257) as usize).min(region.len());
    let at = region.start + random.within(0..(region.len() - len + 1) as u64) as usize;
    let bytes = match random.within(0..4) {
        0 => vec![0; len],
        1 => vec![0xFF; len],
        2 => b"all work and no play "
            .iter()
            .copied()
            .cycle()
            .take(len)
            .collect(),
        _ => random.bytes(len),
    };
    Some(put(volume, at, &bytes))
}

/// Fields of records: name, offset in the data after the key, size.
const FOLDER_FIELDS: [(&str, usize, usize); 6] = [
    ("kind", 0, 2),
    ("flags", 2, 2),
    ("valence", 4, 4),
    ("CNID", 8, 4),
    ("create date", 12, 4),
    ("mode", 42, 2),
];
const FILE_FIELDS: [(&str, usize, usize); 16] = [
    ("kind", 0, 2),
    ("flags", 2, 2),
    ("CNID", 8, 4),
    ("modify date", 16, 4),
    ("owner flags", 41, 1),
    ("mode", 42, 2),
    ("link reference", 44, 4),
    ("type", 48, 4),
    ("data fork, size", 88, 8),
    ("data fork, blocks", 100, 4),
    ("data fork, first start", 104, 4),
    ("data fork, first count", 108, 4),
    ("data fork, second start", 112, 4),
    ("resource fork, size", 168, 8),
    ("resource fork, blocks", 180, 4),
    ("resource fork, first start", 184, 4),
];
const THREAD_FIELDS: [(&str, usize, usize); 3] = [
    ("kind", 0, 2),
    ("parent", 4, 4),
    ("length of the name", 8, 2),
];
const EXTENT_FIELDS: [(&str, usize, usize); 3] = [
    ("first start", 0, 4),
    ("first count", 4, 4),
    ("second start", 8, 4),
];
const ATTRIBUTE_FIELDS: [(&str, usize, usize); 4] = [
    ("kind", 0, 4),
    ("size", 12, 4),
    ("first byte", 16, 1),
    ("fork, first start", 24, 4),
];
/// Fields of the keys of the catalog.
const KEY_FIELDS: [(&str, usize, usize); 3] = [
    ("length of the key", 0, 2),
    ("parent of the key", 2, 4),
    ("length of the key's name", 6, 2),
];

fn record_field(places: &Places, volume: &mut [u8], random: &mut Random) -> Option<String> {
    let node = pick_node(random, leaves(places))?;
    let record = pick(random, &node.records)?;
    let data = record.start + 2 + be16(volume, record.start);
    let (fields, base): (&[(&str, usize, usize)], usize) = match node.tree {
        "catalog" if random.one_in(5) => (&KEY_FIELDS, record.start),
        "extents" => (&EXTENT_FIELDS, data),
        "attributes" => (&ATTRIBUTE_FIELDS, data),
        _ => match be16(volume, data) {
            1 => (&FOLDER_FIELDS, data),
            2 => (&FILE_FIELDS, data),
            _ => (&THREAD_FIELDS, data),
        },
    };
    let (name, offset, size) = fields[random.within(0..fields.len() as u64) as usize];
    let at = base + offset;
    if at + size > record.end {
        return None;
    }
    let bytes = |value: u64| value.to_be_bytes()[8 - size..].to_vec();
    let mut wide = [0; 8];
    wide[8 - size..].copy_from_slice(&volume[at..at + size]);
    let old = u64::from_be_bytes(wide);
    let new = match random.within(0..9) {
        0 => 0,
        1 => 1,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        4 => old << 1,
        5 => old >> 1,
        6 => old ^ 1 << random.within(0..8 * size as u64),
        // The number of another file or folder.
        7 => random.within(16..(be32(volume, 1024 + 64) as u64).max(17)),
        _ => random.within(0..be32(volume, 1024 + 44) as u64),
    };
    let range = put(volume, at, &bytes(new));
    Some(format!(
        "RecordField: {name} of a record of the {} at {range:?}: {old:#x} -> {new:#x}",
        node.tree
    ))
}

/// Moves a record to another place of its node, or to another leaf of the tree, or exchanges it
/// with a record of another leaf.
fn record_move(places: &Places, volume: &mut [u8], random: &mut Random) -> Option<String> {
    let from = pick_node(random, leaves(places))?;
    let others = leaves(places).filter(|to| to.tree == from.tree && to.range != from.range);
    let to = match random.one_in(3) {
        true => None,
        false => pick_node(random, others),
    };
    let mut records = read_records(volume, from)?;
    let at = random.within(0..records.len() as u64) as usize;
    let Some(to) = to else {
        let record = records.remove(at);
        let place = random.within(0..records.len() as u64 + 1) as usize;
        records.insert(place, record);
        write_records(volume, from, &records)?;
        return Some(format!(
            "RecordMove: {at} of the {} node at {} to {place}",
            from.tree, from.range.start
        ));
    };
    let mut theirs = read_records(volume, to)?;
    let place = random.within(0..theirs.len() as u64) as usize;
    if random.one_in(2) {
        std::mem::swap(&mut records[at], &mut theirs[place]);
    } else {
        theirs.insert(place, records.remove(at));
    }
    let before = volume[to.range.clone()].to_vec();
    write_records(volume, to, &theirs)?;
    if write_records(volume, from, &records).is_none() {
        put(volume, to.range.start, &before);
        return None;
    }
    Some(format!(
        "RecordMove: {at} of the {} node at {} to {place} of that at {}",
        from.tree, from.range.start, to.range.start
    ))
}

/// Reads the records of a node as it is now; `None` if an earlier damage broke its structure.
fn read_records(volume: &[u8], node: &Node) -> Option<Vec<Vec<u8>>> {
    let bytes = &volume[node.range.clone()];
    let offset = |index: usize| be16(bytes, bytes.len().saturating_sub(2 * (index + 1)));
    let records: Option<Vec<_>> = (0..be16(bytes, 10))
        .map(|index| Some(bytes.get(offset(index)..offset(index + 1))?.to_vec()))
        .collect();
    records.filter(|records| !records.is_empty())
}

/// Writes `records` to a node; `None` if they do not fit.
fn write_records(volume: &mut [u8], node: &Node, records: &[Vec<u8>]) -> Option<()> {
    let size = node.range.len();
    let used = 14 + records.iter().map(Vec::len).sum::<usize>() + 2 * (records.len() + 1);
    if records.is_empty() || used > size {
        return None;
    }
    let bytes = &mut volume[node.range.clone()];
    bytes[14..].fill(0);
    bytes[10..12].copy_from_slice(&(records.len() as u16).to_be_bytes());
    let mut at = 14;
    for (index, record) in records.iter().enumerate() {
        let place = size - 2 * (index + 1);
        bytes[place..place + 2].copy_from_slice(&(at as u16).to_be_bytes());
        bytes[at..at + record.len()].copy_from_slice(record);
        at += record.len();
    }
    let place = size - 2 * (records.len() + 1);
    bytes[place..place + 2].copy_from_slice(&(at as u16).to_be_bytes());
    Some(())
}
