//! The fingerprint of an image at the end of a repair, by which an undo detects later changes.
//!
//! As text, a line for each file and each range:
//!
//! ```text
//! image DEVICE INODE
//! file LENGTH NAME
//! range START END CRC NAME
//! freed START END CRC NAME
//! ```
//!
//! The ranges are those that the repair does not write: it is recorded before the first write, and
//! holds before, during and after the repair. The log has checksums of the others.
//!
//! A `range` is read in order to open the repaired image: its lists, headers and map, and the
//! headers and newest checkpoints of its volumes. Whatever writes to a volume changes one of them.
//! What is `freed` by the repair (`freed.rs`) is used again after an undo, and a trim may have
//! discarded it. All are recorded as stored, so that an undo needs no passphrase. Times do not
//! count: a copy of the image and its undo data can be undone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::LAYER;
use super::freed::read_freed;
use super::log::{Log, escaped, unescaped};
use super::ranges::without;
use super::target::Target;
use super::undo_store::checksum;
use crate::container::sparsebundle;
use crate::device::{Access, BlockDeviceExt};
use crate::open::interrupted::{self, IMAGE, STATE};
use crate::open::{self, OpenOptions};
use crate::partition;
use crate::size::to_usize;
use crate::store::{Entry, Open, Staged, Store};
use crate::{Error, Kind, Result};

/// Maximum length of a list of a bundle, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// The fingerprint of an image.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Device and inode of the image. They differ in a copy.
    identity: Option<(u64, u64)>,
    /// Length of each file.
    files: BTreeMap<String, u64>,
    ranges: Vec<CheckedRange>,
}

/// A range of a file and its CRC-32.
#[derive(Debug, PartialEq, Eq)]
struct CheckedRange {
    needed: RangeUse,
    name: String,
    range: Range<u64>,
    sum: u32,
}

/// The purpose of the bytes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeUse {
    /// To open the image.
    Open,
    /// The image as it was before the repair, which freed them.
    Old,
}

impl RangeUse {
    const fn word(self) -> &'static str {
        match self {
            Self::Open => "range",
            Self::Old => "freed",
        }
    }
}

impl Fingerprint {
    /// Reads the fingerprint of an image with the `staged` changes of `log`.
    pub(super) fn of(
        target: &Target,
        staged: &Staged,
        log: &Log,
        options: &OpenOptions<'_>,
        temporary: &Path,
    ) -> Result<Self> {
        let view = || Staged::traced(Arc::new(staged.clone()), temporary.to_owned());
        let (generation, freed) = (view(), view());
        // What cannot be opened or read, such as a bad sector that the repair did not need, is
        // recorded as far as it was read: the repair itself is complete.
        let _ = read_generation(target, &generation, options);
        let _ = read_freed(target, staged, &freed, options);
        let mut ranges = Vec::new();
        for (needed, view) in [(RangeUse::Open, generation), (RangeUse::Old, freed)] {
            for (name, reads) in view.reads() {
                let Some(file) = staged.open(&name, Open::Read)? else {
                    continue;
                };
                for range in without(reads, &log.written(&name)) {
                    if let Ok(Some(sum)) = checksum(&*file, range.clone()) {
                        let name = name.clone();
                        ranges.push(CheckedRange {
                            needed,
                            name,
                            range,
                            sum,
                        });
                    }
                }
            }
        }
        Ok(Self {
            identity: target.identity,
            files: files_of(staged)?,
            ranges,
        })
    }

    /// Reads the fingerprint in the state of a repair. [`Kind::Corrupt`] if it is malformed.
    pub(super) fn read(undo: &dyn Store, number: u64) -> Result<Self> {
        let name = format!("{number}/{STATE}");
        Self::parse(&interrupted::read(undo, &name)?).ok_or_else(|| {
            let message = "the undo data is damaged: malformed record of the repaired image";
            Error::new(Kind::Corrupt, LAYER, message).named(name)
        })
    }

    /// Returns true if the image of `target` is known to be another file than the repaired one: a
    /// copy, or a replacement.
    pub(super) fn is_of_another(&self, target: &Target) -> bool {
        self.identity.is_some() && self.identity != target.identity
    }

    /// Returns the fingerprint with the identity of `target`.
    pub(super) fn claimed_by(self, target: &Target) -> Self {
        Self {
            identity: target.identity,
            ..self
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        if let Some((device, inode)) = self.identity {
            let _ = writeln!(text, "{IMAGE} {device} {inode}");
        }
        for (name, len) in &self.files {
            let _ = writeln!(text, "file {len} {}", escaped(name));
        }
        for CheckedRange {
            needed,
            name,
            range,
            sum,
        } in &self.ranges
        {
            let (Range { start, end }, name) = (range, escaped(name));
            let _ = writeln!(text, "{} {start} {end} {sum:08x} {name}", needed.word());
        }
        text
    }

    /// Parses the text of [`to_text`](Self::to_text). `None`: it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parsed = Self::default();
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                [IMAGE, device, inode] => {
                    parsed.identity = Some((device.parse().ok()?, inode.parse().ok()?));
                }
                ["file", len, name] => {
                    let (name, len) = (unescaped(name), len.parse().ok()?);
                    if !is_empty_token(&name, len) {
                        parsed.files.insert(name, len);
                    }
                }
                [word, start, end, sum, name] => {
                    let range = start.parse().ok()?..end.parse().ok()?;
                    let uses = [RangeUse::Open, RangeUse::Old];
                    parsed.ranges.push(CheckedRange {
                        needed: uses.into_iter().find(|needed| needed.word() == word)?,
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

    /// Compares an image after the repair with the fingerprint, and returns a description of the
    /// first difference.
    pub(super) fn difference(&self, image: &dyn Store) -> Result<Option<String>> {
        let files = files_of(image)?;
        for (name, len) in &self.files {
            match files.get(name) {
                None => return Ok(Some(format!("{name} is missing"))),
                Some(now) if now != len => {
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
        self.changed_range(image, &|_| true)
    }

    /// Compares an image during the repair or its undo with the fingerprint: the files that the
    /// repair does not replace, move or remove, and the bytes that it does not write.
    pub(super) fn outside_difference(
        &self,
        image: &dyn Store,
        log: &Log,
    ) -> Result<Option<String>> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let (files, names, edited) = (files_of(image)?, log.names(), log.edited());
        for (name, len) in &self.files {
            let is_edited = edited.contains(name.as_str());
            match files.get(name) {
                _ if names.contains(name.as_str()) => {}
                None => return Ok(Some(format!("{name} is missing"))),
                Some(now) if now != len && !is_edited => {
                    let what = format!("the length of {name} is {now} bytes; it was {len}");
                    return Ok(Some(what));
                }
                Some(_) => {}
            }
        }
        let is_new =
            |name: &&String| !self.files.contains_key(*name) && !names.contains(name.as_str());
        if let Some(name) = files.keys().find(is_new) {
            return Ok(Some(format!("{name} is new")));
        }
        self.changed_range(image, &|name| !names.contains(name))
    }

    /// Returns a description of the first recorded range that has other bytes, in the files that
    /// `is_meant` chooses.
    fn changed_range(
        &self,
        image: &dyn Store,
        is_meant: &dyn Fn(&str) -> bool,
    ) -> Result<Option<String>> {
        for CheckedRange {
            needed,
            name,
            range,
            sum,
        } in &self.ranges
        {
            if !is_meant(name) {
                continue;
            }
            let file = image.open(name, Open::Read)?;
            let now = match &file {
                Some(file) => checksum(&**file, range.clone())?,
                None => None,
            };
            if now != Some(*sum) {
                let Range { start, end } = range;
                let why = match needed {
                    RangeUse::Open => "required to open the image or a volume",
                    RangeUse::Old => "which the repair freed and a trim may have discarded",
                };
                return Ok(Some(format!("bytes {start} to {end} of {name}, {why}")));
            }
        }
        Ok(None)
    }
}

/// Returns the length of each file of an image that is part of the disk.
fn files_of(image: &dyn Store) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    image.list("", &mut |entry| {
        if is_part_of_disk(&entry)
            && let Some(meta) = entry.meta()?
            && !is_empty_token(entry.name, meta.len)
        {
            files.insert(entry.name.to_owned(), meta.len);
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

/// Returns true for the token of a bundle that is not encrypted. Readers lock it and create it if
/// it is missing.
fn is_empty_token(name: &str, len: u64) -> bool {
    name == sparsebundle::TOKEN && len == 0
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
            file.read_vec(0, to_usize(file.info().len.min(MAX_LIST)))?;
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
        let range = |needed, name: &str, range| CheckedRange {
            needed,
            name: name.into(),
            range,
            sum: 0xfedc_ba98,
        };
        let fingerprint = Fingerprint {
            identity: Some((u64::MAX, 7)),
            files: [("a b%20".to_owned(), u64::MAX), ("c".to_owned(), 0)].into(),
            ranges: vec![
                range(RangeUse::Open, "a b%20", 0..5),
                range(RangeUse::Old, "c", 7..7),
            ],
        };
        let text = fingerprint.to_text();
        assert_eq!(Fingerprint::parse(&text), Some(fingerprint));
        assert_eq!(Fingerprint::parse("file 1"), None);
        assert_eq!(Fingerprint::parse("range 0 x 1 a"), None);
    }
}
