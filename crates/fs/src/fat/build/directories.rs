//! The directories of a new volume.

use bandsaw_core::device::BlockDevice;
use bandsaw_core::size::narrow;
use bandsaw_core::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use super::super::layout::{
    MAX_DIRECTORY, NO_LABEL, ShortEntryRaw, UNITS_PER_PART, Width, attributes, first_byte,
};
use super::super::names::{encoded, long_entries};
use super::super::short_names::{ShortName, ShortNames};
use super::{LAYER, LaidOut};
use crate::build::output::Output;
use crate::build::tree::{by_parent, path};
use crate::clusters::FIRST;
use crate::clusters::build::{NamesByFolder, check_name};
use crate::source::{SourceKind, SourceNode, Tree};
use crate::{Timestamp, UF_HIDDEN, UF_IMMUTABLE};

/// Bytes of an entry.
const ENTRY: u64 = 32;

/// The names and lengths of all directories.
#[derive(Debug)]
pub(super) struct Directories {
    /// Nodes in the order of their parents, and the index of each parent's first child.
    children: (Vec<u32>, Vec<u32>),
    /// Short name of each node.
    names: Vec<ShortName>,
    /// Length of each folder in bytes; 0 for files.
    pub(super) lens: Vec<u64>,
}

/// Properties of all entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryStyle {
    pub(super) label: [u8; 11],
    pub(super) created: Timestamp,
    pub(super) latest: Option<Timestamp>,
}

impl EntryStyle {
    fn date(&self, date: Timestamp) -> Timestamp {
        self.latest.map_or(date, |latest| date.min(latest))
    }
}

/// Returns the label of a volume: its name in upper case.
pub(super) fn label_of(name: &str) -> Result<[u8; 11]> {
    let refused = |why: String| Err(Error::invalid(LAYER, why).named(name));
    let upper: Vec<char> = name.chars().flat_map(char::to_uppercase).collect();
    let mut label = [b' '; 11];
    if upper.len() > label.len() {
        return refused(format!(
            "the name of a FAT volume has at most 11 characters, not {}",
            upper.len()
        ));
    }
    for (place, &char) in label.iter_mut().zip(&upper) {
        let is_forbidden = char < ' ' || "\"*+,./:;<=>?[\\]|".contains(char);
        let Some(byte) = encoded(char).filter(|_| !is_forbidden) else {
            return refused(format!("the name of a FAT volume cannot have {char:?}"));
        };
        *place = byte;
    }
    if upper.first() == Some(&' ') {
        return refused("the name of a FAT volume cannot begin with a space".into());
    }
    if label[0] == first_byte::DELETED {
        label[0] = first_byte::KANJI;
    }
    Ok(if name.is_empty() { NO_LABEL } else { label })
}

/// Returns the number of entries that a name takes.
fn entries_of(name: &ShortName, units: usize) -> u64 {
    match name.is_exact {
        true => 1,
        false => 1 + units.div_ceil(UNITS_PER_PART) as u64,
    }
}

impl Directories {
    /// Names everything. Fails, naming the file, if a name cannot be stored.
    pub(super) fn new(tree: &Tree) -> Result<Self> {
        let mut seen = NamesByFolder::new();
        let mut units = vec![0; tree.nodes.len()];
        for (node, source) in (0..).zip(&tree.nodes).skip(1) {
            units[node as usize] = check_name(tree, node, LAYER, "FAT")?.len();
            seen.add(tree, node, source.name.to_uppercase())?;
        }
        drop(seen);
        let none = ShortName {
            bytes: [0; 11],
            is_exact: false,
        };
        let mut found = Self {
            children: by_parent(tree),
            names: vec![none; tree.nodes.len()],
            lens: vec![0; tree.nodes.len()],
        };
        for (folder, source) in (0..).zip(&tree.nodes) {
            if source.kind != SourceKind::Folder {
                continue;
            }
            // `.` and `..`, or the label.
            let mut entries = if folder == 0 { 1 } else { 2 };
            let mut short = ShortNames::default();
            let mut longer = Vec::new();
            let children = found.children(folder).to_vec();
            for &child in &children {
                match short.take_exact(&tree.nodes[child as usize].name) {
                    Some(name) => found.names[child as usize] = name,
                    None => longer.push(child),
                }
            }
            for child in longer {
                let name = short.derive(&tree.nodes[child as usize].name);
                found.names[child as usize] =
                    name.map_err(|error| error.named(path(tree, child)))?;
            }
            for child in children {
                let child = child as usize;
                entries += entries_of(&found.names[child], units[child]);
            }
            let len = entries * ENTRY;
            if len > MAX_DIRECTORY {
                let message = format!(
                    "the folder needs {entries} entries, FAT allows {}",
                    MAX_DIRECTORY / ENTRY
                );
                return Err(Error::limit(LAYER, message).named(path(tree, folder)));
            }
            found.lens[folder as usize] = len;
        }
        Ok(found)
    }

    fn children(&self, folder: u32) -> &[u32] {
        let (children, first) = &self.children;
        let folder = folder as usize;
        &children[first[folder] as usize..first[folder + 1] as usize]
    }

    /// Writes all directories to a device that is zero.
    pub(super) fn write(
        &self,
        tree: &Tree,
        laid: &LaidOut,
        style: EntryStyle,
        device: &dyn BlockDevice,
    ) -> Result<()> {
        let geometry = &laid.geometry;
        let mut out = Output::new(device, geometry.root_at());
        for (folder, source) in (0..).zip(&tree.nodes) {
            if source.kind != SourceKind::Folder {
                continue;
            }
            let own = laid.allotment.first[folder as usize];
            let place = match own {
                0 => geometry.root_at(),
                own => geometry.clusters_at() + (u64::from(own) - FIRST) * geometry.cluster_size(),
            };
            out.seek(place)?;
            if folder == 0 {
                if style.label != NO_LABEL {
                    let mut raw = ShortEntryRaw {
                        name: style.label,
                        attributes: attributes::LABEL | attributes::ARCHIVE,
                        ..ShortEntryRaw::new_zeroed()
                    };
                    let date = style.date(style.created);
                    raw.set_times(date, date, date);
                    out.append(raw.as_bytes())?;
                }
            } else {
                let up = match source.parent {
                    0 => 0,
                    parent => laid.allotment.first[parent as usize],
                };
                for (name, first) in [(b".          ", own), (b"..         ", up)] {
                    let mut raw = entry(source, &style);
                    raw.name = *name;
                    raw.attributes = attributes::DIRECTORY;
                    raw.set_first(first);
                    out.append(raw.as_bytes())?;
                }
            }
            for &child in self.children(folder) {
                self.append(&mut out, tree, child, laid, &style)?;
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
        let name = &self.names[node as usize];
        let mut raw = entry(source, style);
        raw.name = name.bytes;
        raw.set_first(laid.allotment.first[node as usize]);
        debug_assert!(laid.geometry.width == Width::Fat32 || raw.first_high.get() == 0);
        if !name.is_exact {
            let checksum = raw.checksum();
            let units: Vec<u16> = source.name.encode_utf16().collect();
            for long in long_entries(&units, checksum) {
                out.append(long.as_bytes())?;
            }
        }
        out.append(raw.as_bytes())
    }
}

/// Returns an entry without a name and without clusters.
fn entry(source: &SourceNode, style: &EntryStyle) -> ShortEntryRaw {
    let flag = |flag: u32, bit: u8| match source.flags & flag {
        0 => 0,
        _ => bit,
    };
    let (kind, size) = match &source.kind {
        SourceKind::File(stream) => (attributes::ARCHIVE, stream.len()),
        _ => (attributes::DIRECTORY, 0),
    };
    let mut raw = ShortEntryRaw {
        attributes: kind
            | flag(UF_IMMUTABLE, attributes::READ_ONLY)
            | flag(UF_HIDDEN, attributes::HIDDEN),
        size: narrow::<u32>(size).into(),
        ..ShortEntryRaw::new_zeroed()
    };
    let modified = style.date(source.modified);
    raw.set_times(
        source.created.map_or(modified, |date| style.date(date)),
        modified,
        source.accessed.map_or(modified, |date| style.date(date)),
    );
    raw
}
