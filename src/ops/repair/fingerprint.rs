//! The fingerprint of an image at the end of a repair, by which an undo detects later changes.
//!
//! As text, a line for each file and each range:
//!
//! ```text
//! file LENGTH VERSION NAME
//! range START END CRC NAME
//! ```
//!
//! If length and version of every file are the same, nothing has changed. A copied, renamed or
//! touched image has other versions; then the ranges decide. They are those that are read in order
//! to open the image: its lists, headers and map, and the headers and newest checkpoints of its
//! volumes. Whatever writes to a volume changes one of them. They are recorded as stored, so that
//! an undo needs no passphrase.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::log::{escaped, unescaped};
use super::target::Target;
use super::undo_store::checksum;
use crate::Result;
use crate::device::{Access, BlockDeviceExt};
use crate::open::{self, OpenOptions};
use crate::partition;
use crate::store::{Entry, Open, Staged, Store};

/// Maximum length of a list of a bundle, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Length and version of a file.
type FileVersion = (u64, u64);

/// The fingerprint of an image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    files: BTreeMap<String, FileVersion>,
    ranges: Vec<CheckedRange>,
}

/// A range of a file and its CRC-32.
#[derive(Debug, PartialEq, Eq)]
struct CheckedRange {
    name: String,
    range: Range<u64>,
    sum: u32,
}

impl Fingerprint {
    /// Reads the fingerprint of an image.
    pub(super) fn of(target: &Target, options: &OpenOptions<'_>, temporary: &Path) -> Result<Self> {
        let view = Staged::traced(target.store.clone(), temporary.to_owned());
        // What cannot be opened or read, such as a bad sector that the repair did not need, is
        // recorded as far as it was read: the repair itself is complete.
        let _ = read_generation(target, &view, options);
        let mut ranges = Vec::new();
        for (name, reads) in view.reads() {
            let Some(file) = target.store.open(&name, Open::Read)? else {
                continue;
            };
            for range in reads {
                if let Ok(Some(sum)) = checksum(&*file, range.clone()) {
                    let name = name.clone();
                    ranges.push(CheckedRange { name, range, sum });
                }
            }
        }
        Ok(Self {
            files: files_of(target)?,
            ranges,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, (len, version)) in &self.files {
            let _ = writeln!(text, "file {len} {version:x} {}", escaped(name));
        }
        for CheckedRange { name, range, sum } in &self.ranges {
            let (Range { start, end }, name) = (range, escaped(name));
            let _ = writeln!(text, "range {start} {end} {sum:08x} {name}");
        }
        text
    }

    /// Parses the text of [`to_text`](Self::to_text). `None`: it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["file", len, version, name] => {
                    let version = u64::from_str_radix(version, 16).ok()?;
                    let known = (len.parse().ok()?, version);
                    parsed.files.insert(unescaped(name), known);
                }
                ["range", start, end, sum, name] => {
                    let range = start.parse().ok()?..end.parse().ok()?;
                    parsed.ranges.push(CheckedRange {
                        name: unescaped(name),
                        range,
                        sum: u32::from_str_radix(sum, 16).ok()?,
                    });
                }
                _ => return None,
            }
        }
        Some(parsed)
    }

    /// Compares the image with the fingerprint, and returns a description of the first difference.
    pub(super) fn difference(&self, target: &Target) -> Result<Option<String>> {
        let files = files_of(target)?;
        for (name, (len, _)) in &self.files {
            match files.get(name) {
                None => return Ok(Some(format!("{name} is missing"))),
                Some((now, _)) if now != len => {
                    let what = format!(
                        "the length of {name} is {now} bytes; after the repair it was {len}"
                    );
                    return Ok(Some(what));
                }
                Some(_) => {}
            }
        }
        if let Some(name) = files.keys().find(|name| !self.files.contains_key(*name)) {
            return Ok(Some(format!("{name} is new")));
        }
        // The version 0 stands for an unknown one.
        if files == self.files && files.values().all(|(_, version)| *version != 0) {
            return Ok(None);
        }
        for CheckedRange { name, range, sum } in &self.ranges {
            let file = target.store.open(name, Open::Read)?;
            let now = match &file {
                Some(file) => checksum(&**file, range.clone())?,
                None => None,
            };
            if now != Some(*sum) {
                let Range { start, end } = range;
                let what = format!(
                    "bytes {start} to {end} of {name}, required to open the image or a volume"
                );
                return Ok(Some(what));
            }
        }
        Ok(None)
    }
}

/// Returns length and version of each file of an image that is part of the disk.
fn files_of(target: &Target) -> Result<BTreeMap<String, FileVersion>> {
    let mut files = BTreeMap::new();
    target.store.list("", &mut |entry| {
        if is_part_of_disk(&entry)
            && let Some(meta) = entry.meta()?
        {
            files.insert(entry.name.to_owned(), (meta.len, meta.version));
        }
        Ok(())
    })?;
    Ok(files)
}

/// Returns false for locks, snapshots and files of the Finder.
fn is_part_of_disk(entry: &Entry<'_>) -> bool {
    let last = entry.name.rsplit('/').next().unwrap_or_default();
    entry.name != "lock"
        && last != ".DS_Store"
        && !last.starts_with("._")
        && !entry.name.starts_with(".bandsaw")
}

/// Reads what every user of an image changes.
fn read_generation(target: &Target, view: &Staged, options: &OpenOptions<'_>) -> Result<()> {
    let mut lists = Vec::new();
    view.list("", &mut |entry| {
        let is_list = target.file.is_none() && !entry.name.contains('/');
        if is_list && is_part_of_disk(&entry) {
            lists.push(entry.name.to_owned());
        }
        Ok(())
    })?;
    for name in &lists {
        if let Some(file) = view.open(name, Open::Read)? {
            file.read_vec(0, file.info().len.min(MAX_LIST) as usize)?;
        }
    }
    let options = OpenOptions {
        access: Access::ReadOnly,
        checkpoint: None,
        ..*options
    };
    let stored = super::stored(target, Arc::new(view.clone()), Open::Read)?;
    let disk = open::disk_of(&target.path, stored, &options)?;
    let map = partition::probe(&*disk)?;
    for volume in open::find_volumes(&disk, map.as_ref())? {
        // One volume that does not open does not keep the others from being read.
        let _ = match volume.format {
            format if format.is_container() => volume.container().map(drop),
            format if format.is_supported() => volume.open().map(drop),
            _ => Ok(()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_was_written() {
        let range = |name: &str, range| CheckedRange {
            name: name.into(),
            range,
            sum: 0xfedc_ba98,
        };
        let fingerprint = Fingerprint {
            files: [
                ("a b%20".to_owned(), (5, u64::MAX)),
                ("c".to_owned(), (0, 0)),
            ]
            .into(),
            ranges: vec![range("a b%20", 0..5), range("c", 7..7)],
        };
        let text = fingerprint.to_text();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        assert_eq!(Fingerprint::parse("file 1 2"), None);
        assert_eq!(Fingerprint::parse("range 0 x 1 a"), None);
    }
}
