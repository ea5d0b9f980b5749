//! The directories of a new volume.

use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use super::super::layout::{
    EntryRaw, FileRaw, LabelRaw, MAX_DIRECTORY, NameRaw, StreamRaw, UNITS_PER_ENTRY, ZONE_IS_KNOWN,
    attributes, entry, name_hash, set_sum, stored_time, stream_flags,
};
use super::super::upcase::UpcaseTable;
use super::{LAYER, LaidOut};
use crate::build::output::Output;
use crate::build::tree::{by_parent, path};
use crate::clusters::build::{NamesByFolder, check_name};
use crate::source::{SourceKind, Tree};
use crate::{Timestamp, UF_HIDDEN, UF_IMMUTABLE};

/// Bytes of an entry.
const ENTRY: u64 = 32;

/// The names and lengths of all directories.
#[derive(Debug)]
pub(super) struct Directories {
    /// Nodes in the order of their parents, and the index of each parent's first child.
    children: (Vec<u32>, Vec<u32>),
    /// Hash of each node's name.
    hashes: Vec<u16>,
    /// Bytes of each folder's entries; `None` for files.
    used: Vec<Option<u64>>,
    label: LabelRaw,
}

/// Properties of all entries.
#[derive(Debug)]
pub(super) struct EntryStyle {
    /// The bitmap and the up-case table.
    pub(super) structures: [EntryRaw; 2],
    pub(super) latest: Option<Timestamp>,
}

impl EntryStyle {
    fn date(&self, date: Timestamp) -> Timestamp {
        self.latest.map_or(date, |latest| date.min(latest))
    }
}

fn label_of(name: &str) -> Result<LabelRaw> {
    let units: Vec<u16> = name.encode_utf16().collect();
    let mut raw = LabelRaw::new_zeroed();
    let count = u8::try_from(units.len()).unwrap_or(u8::MAX);
    if usize::from(count) > raw.units.len() {
        let message = format!(
            "the name of an exFAT volume has at most {} units of UTF-16, not {}",
            raw.units.len(),
            units.len()
        );
        return Err(Error::invalid(LAYER, message).named(name));
    }
    for (place, unit) in raw.units.iter_mut().zip(units) {
        place.set(unit);
    }
    (raw.kind, raw.count) = (entry::LABEL, count);
    if count == 0 {
        raw.kind &= !entry::IN_USE;
    }
    Ok(raw)
}

impl Directories {
    /// Measures everything. Fails, naming the file, if a name cannot be stored.
    pub(super) fn new(tree: &Tree, upcase: &UpcaseTable, volume: &str) -> Result<Self> {
        let mut seen = NamesByFolder::new();
        let mut found = Self {
            children: by_parent(tree),
            hashes: vec![0; tree.nodes.len()],
            used: tree
                .nodes
                .iter()
                .map(|node| (node.kind == SourceKind::Folder).then_some(0))
                .collect(),
            label: label_of(volume)?,
        };
        // The label and the volume's own structures.
        if let Some(Some(root)) = found.used.first_mut() {
            *root = 3 * ENTRY;
        }
        for (node, source) in (0..).zip(&tree.nodes).skip(1) {
            let units = check_name(tree, node, LAYER, "exFAT")?;
            let capitals: Vec<u16> = units.iter().map(|&unit| upcase.capital(unit)).collect();
            found.hashes[node as usize] = name_hash(capitals.iter().copied());
            seen.add(tree, node, capitals)?;
            let entries = 2 + units.len().div_ceil(UNITS_PER_ENTRY) as u64;
            let Some(used) = &mut found.used[source.parent as usize] else {
                continue;
            };
            *used += entries * ENTRY;
            if *used > MAX_DIRECTORY {
                let message = format!("the folder needs more than {MAX_DIRECTORY} bytes");
                return Err(Error::limit(LAYER, message).named(path(tree, source.parent)));
            }
        }
        Ok(found)
    }

    /// Returns the lengths of folders in bytes, whole clusters, at least one; 0 for files.
    pub(super) fn lens(&self, cluster_size: u64) -> Vec<u64> {
        let len =
            |used: &Option<u64>| used.map_or(0, |used| used.max(1).next_multiple_of(cluster_size));
        self.used.iter().map(len).collect()
    }

    /// Writes all directories to a device that is zero.
    pub(super) fn write(
        &self,
        tree: &Tree,
        laid: &LaidOut,
        style: &EntryStyle,
        device: &dyn BlockDevice,
    ) -> Result<()> {
        let (children, first) = &self.children;
        let mut out = Output::new(device, 0);
        for (folder, source) in tree.nodes.iter().enumerate() {
            if source.kind != SourceKind::Folder {
                continue;
            }
            let own = laid.allotment.first[folder];
            out.seek(laid.geometry.offset(own.into()))?;
            if folder == 0 {
                out.append(self.label.as_bytes())?;
                for structure in &style.structures {
                    out.append(structure.as_bytes())?;
                }
            }
            for &child in &children[first[folder] as usize..first[folder + 1] as usize] {
                self.append(&mut out, tree, child, laid, style)?;
            }
        }
        out.flush()
    }

    /// Appends the entries of a node.
    fn append(
        &self,
        out: &mut Output<'_>,
        tree: &Tree,
        node: u32,
        laid: &LaidOut,
        style: &EntryStyle,
    ) -> Result<()> {
        let source = &tree.nodes[node as usize];
        let units: Vec<u16> = source.name.encode_utf16().collect();
        let flag = |flag: u32, bit: u16| match source.flags & flag {
            0 => 0,
            _ => bit,
        };
        let (kind, len) = match &source.kind {
            SourceKind::File(stream) => (attributes::ARCHIVE, stream.len()),
            _ => (attributes::DIRECTORY, laid.lens[node as usize]),
        };
        let modified = style.date(source.modified);
        let created = source.created.map_or(modified, |date| style.date(date));
        let accessed = source.accessed.map_or(modified, |date| style.date(date));
        let ((created, created_hundredths), (modified, modified_hundredths), (accessed, _)) = (
            stored_time(created),
            stored_time(modified),
            stored_time(accessed),
        );
        let names = units.chunks(UNITS_PER_ENTRY);
        let mut file = FileRaw {
            kind: entry::FILE,
            others: narrow(1 + names.len()),
            attributes: (kind
                | flag(UF_IMMUTABLE, attributes::READ_ONLY)
                | flag(UF_HIDDEN, attributes::HIDDEN))
            .into(),
            created,
            modified,
            accessed,
            created_hundredths,
            modified_hundredths,
            created_zone: ZONE_IS_KNOWN,
            modified_zone: ZONE_IS_KNOWN,
            accessed_zone: ZONE_IS_KNOWN,
            ..FileRaw::new_zeroed()
        };
        let contiguous = match len {
            0 => 0,
            _ => stream_flags::CONTIGUOUS,
        };
        let stream = StreamRaw {
            kind: entry::STREAM,
            flags: stream_flags::ALLOCATABLE | contiguous,
            name_len: narrow(units.len()),
            name_hash: self.hashes[node as usize].into(),
            valid_len: len.into(),
            first: laid.allotment.first[node as usize].into(),
            len: len.into(),
            ..StreamRaw::new_zeroed()
        };
        let names: Vec<_> = names
            .map(|part| {
                let mut raw = NameRaw::new_zeroed();
                raw.kind = entry::NAME;
                for (place, unit) in raw.units.iter_mut().zip(part) {
                    place.set(*unit);
                }
                raw
            })
            .collect();
        let mut sum = set_sum(0, file.as_bytes(), true);
        sum = set_sum(sum, stream.as_bytes(), false);
        for name in &names {
            sum = set_sum(sum, name.as_bytes(), false);
        }
        file.sum = sum.into();
        out.append(file.as_bytes())?;
        out.append(stream.as_bytes())?;
        names
            .iter()
            .try_for_each(|name| out.append(name.as_bytes()))
    }
}
