//! Comparison of an image with a manifest.

use std::cmp::Ordering;
use std::io::{BufRead, Seek, SeekFrom};
use std::path::Path;

use bandsaw::open::{Image, Keys};
use bandsaw::progress::Progress;
use bandsaw::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::LAYER;
use crate::describe::Describer;
use crate::manifest::volume_name;
use crate::reader::ManifestReader;
use crate::record::{FileRecord, Line, VolumeRecord};
use crate::volumes::each_volume;
use crate::walk::walk;

/// The kind of a mismatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MismatchKind {
    /// In the image only.
    Added,
    /// In the manifest only.
    Removed,
    /// In both, with other values.
    Changed,
}

impl MismatchKind {
    /// Returns the name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
        }
    }
}

/// A difference between a manifest and an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Its kind.
    pub kind: MismatchKind,
    /// Name of the volume, with `@SNAPSHOT` for a snapshot; empty for the disk as a whole.
    pub volume: String,
    /// Path in the volume. `None`: the volume itself, or the disk.
    pub path: Option<String>,
    /// Members of the record that differ: `sha256`, `modified` and so on.
    pub fields: Vec<String>,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerifiedManifest {
    /// Number of volumes and snapshots of the manifest.
    pub volumes: u64,
    /// Number of files of the manifest.
    pub files: u64,
    /// Number of differences.
    pub mismatches: u64,
}

/// Compares an image with a manifest that [`write_manifest`](crate::write_manifest()) wrote, and calls
/// `each` for every difference. `name` is the manifest's in errors. The manifest is first read as a whole: nothing is compared with a damaged
/// one. What could not be read when it was written must be unreadable for the same reason.
///
/// [`Kind::Corrupt`](bandsaw::Kind::Corrupt) if the manifest is cut or damaged.
pub fn verify(
    manifest: &mut (impl BufRead + Seek),
    name: &Path,
    image: &Image,
    keys: Option<&dyn Keys>,
    each: &mut dyn FnMut(Mismatch) -> Result<()>,
    progress: &dyn Progress,
) -> Result<VerifiedManifest> {
    let counted = count(manifest, progress);
    let mut result = counted.map_err(|error| error.in_file(name))?;
    manifest
        .seek(SeekFrom::Start(0))
        .map_err(|error| Error::io(LAYER, "seek", error))?;
    let mut comparison = ManifestComparison {
        lines: ManifestReader::new(manifest),
        ahead: None,
        each,
        mismatches: 0,
    };
    if let Some(Line::Manifest(header)) = comparison.next_line()? {
        let len = image.disk().info().len;
        if header.disk_size != len {
            comparison.found(MismatchKind::Changed, "", None, vec!["disk_size".into()])?;
        }
    }
    each_volume(image, keys, &mut |volume, fs, _| {
        let known = comparison.volume(&volume)?;
        let Some(known) = known else {
            return Ok(());
        };
        if let Some(fs) = fs {
            let info = fs.volume();
            progress.stage("verify", info.total.saturating_sub(info.free));
            // Records of both sides have the number of the manifest.
            let volume = VolumeRecord {
                volume: known,
                ..volume.clone()
            };
            let mut describer = Describer::new(fs, &volume);
            let label = volume_name(&volume);
            let walked = walk(fs, progress, &mut |walked| {
                let (record, _) = describer.describe(walked, progress)?;
                comparison.file(&label, &record)
            });
            walked.map_err(|error| error.in_file(&label))?;
        }
        comparison.rest_of_volume(&volume_name(&volume))
    })?;
    comparison.rest()?;
    result.mismatches = comparison.mismatches;
    Ok(result)
}

/// Reads a manifest as a whole.
fn count(manifest: &mut impl BufRead, progress: &dyn Progress) -> Result<VerifiedManifest> {
    let mut result = VerifiedManifest::default();
    let mut lines = ManifestReader::new(manifest);
    while let Some((_, line)) = lines.next()? {
        progress.check()?;
        match line {
            Line::Volume(_) => result.volumes += 1,
            Line::File(_) => result.files += 1,
            Line::Manifest(_) | Line::End(_) => {}
        }
    }
    Ok(result)
}

struct ManifestComparison<'a, R> {
    lines: ManifestReader<R>,
    /// The next line, if it was looked at.
    ahead: Option<Line>,
    each: &'a mut dyn FnMut(Mismatch) -> Result<()>,
    mismatches: u64,
}

impl<R: BufRead> ManifestComparison<'_, R> {
    fn next_line(&mut self) -> Result<Option<Line>> {
        match self.ahead.take() {
            Some(line) => Ok(Some(line)),
            None => Ok(self.lines.next()?.map(|(_, line)| line)),
        }
    }

    fn found(
        &mut self,
        kind: MismatchKind,
        volume: &str,
        path: Option<&str>,
        fields: Vec<String>,
    ) -> Result<()> {
        self.mismatches += 1;
        (self.each)(Mismatch {
            kind,
            volume: volume.to_owned(),
            path: path.map(str::to_owned),
            fields,
        })
    }

    /// Finds the volume in the manifest and returns its number there. Volumes of the manifest before it are
    /// missing in the image; if it is not in the manifest, nothing is skipped.
    fn volume(&mut self, of: &VolumeRecord) -> Result<Option<u32>> {
        loop {
            match self.next_line()? {
                Some(Line::Volume(known)) => match identity(&known).cmp(&identity(of)) {
                    Ordering::Equal => {
                        let fields = differing(
                            &VolumeRecord {
                                volume: known.volume,
                                ..of.clone()
                            },
                            &known,
                        )?;
                        if !fields.is_empty() {
                            self.found(MismatchKind::Changed, &volume_name(of), None, fields)?;
                        }
                        return Ok(Some(known.volume));
                    }
                    Ordering::Less => {
                        let name = volume_name(&known);
                        self.found(MismatchKind::Removed, &name, None, Vec::new())?;
                        self.skip_files()?;
                    }
                    Ordering::Greater => {
                        self.ahead = Some(Line::Volume(known));
                        self.found(MismatchKind::Added, &volume_name(of), None, Vec::new())?;
                        return Ok(None);
                    }
                },
                Some(Line::File(_)) => {}
                other => {
                    self.ahead = other;
                    self.found(MismatchKind::Added, &volume_name(of), None, Vec::new())?;
                    return Ok(None);
                }
            }
        }
    }

    /// Skips the files of a volume that is missing as a whole.
    fn skip_files(&mut self) -> Result<()> {
        loop {
            match self.next_line()? {
                Some(Line::File(_)) => {}
                other => {
                    self.ahead = other;
                    return Ok(());
                }
            }
        }
    }

    fn file(&mut self, volume: &str, of: &FileRecord) -> Result<()> {
        loop {
            match self.next_line()? {
                Some(Line::File(known)) => match in_walk_order(&known.path, &of.path) {
                    Ordering::Equal => {
                        let fields = differing(of, &*known)?;
                        return match fields.is_empty() {
                            true => Ok(()),
                            false => {
                                self.found(MismatchKind::Changed, volume, Some(&of.path), fields)
                            }
                        };
                    }
                    Ordering::Less => {
                        self.found(MismatchKind::Removed, volume, Some(&known.path), Vec::new())?;
                    }
                    Ordering::Greater => {
                        self.ahead = Some(Line::File(known));
                        return self.found(MismatchKind::Added, volume, Some(&of.path), Vec::new());
                    }
                },
                other => {
                    self.ahead = other;
                    return self.found(MismatchKind::Added, volume, Some(&of.path), Vec::new());
                }
            }
        }
    }

    /// Names the remaining files of a volume, which the image lacks.
    fn rest_of_volume(&mut self, volume: &str) -> Result<()> {
        loop {
            match self.next_line()? {
                Some(Line::File(known)) => {
                    self.found(MismatchKind::Removed, volume, Some(&known.path), Vec::new())?;
                }
                other => {
                    self.ahead = other;
                    return Ok(());
                }
            }
        }
    }

    /// Names the remaining volumes, which the image lacks.
    fn rest(&mut self) -> Result<()> {
        while let Some(line) = self.next_line()? {
            if let Line::Volume(known) = line {
                self.found(
                    MismatchKind::Removed,
                    &volume_name(&known),
                    None,
                    Vec::new(),
                )?;
            }
        }
        Ok(())
    }
}

/// Returns the place of a volume in the order of [`each_volume`]: that of the disk, in a container that of the
/// numbers, then snapshots by their transactions.
fn identity(of: &VolumeRecord) -> (u64, u32, u64, &str) {
    (
        of.disk_offset,
        of.number.unwrap_or(0),
        of.transaction.unwrap_or(0),
        of.snapshot.as_deref().unwrap_or_default(),
    )
}

/// Compares paths as [`walk`] visits them: name by name, a folder before its contents.
fn in_walk_order(a: &str, b: &str) -> Ordering {
    parts(a).cmp(parts(b))
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// Returns the names of the members that differ.
fn differing<T: Serialize>(a: &T, b: &T) -> Result<Vec<String>> {
    let (a, b) = (members(a)?, members(b)?);
    let mut names: Vec<_> = a
        .iter()
        .filter(|(name, value)| b.get(*name) != Some(value))
        .map(|(name, _)| name.clone())
        .collect();
    names.extend(b.keys().filter(|name| !a.contains_key(*name)).cloned());
    names.sort_unstable();
    Ok(names)
}

fn members<T: Serialize>(of: &T) -> Result<Map<String, Value>> {
    match serde_json::to_value(of) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(Error::io(LAYER, "compare", error)),
    }
}
