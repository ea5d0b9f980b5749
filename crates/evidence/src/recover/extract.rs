//! Recovered files, written to a folder in batches, so that memory is bounded.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use bandsaw::Result;
use bandsaw::fs::{Attributes, Certainty, FileKind, RecoveredFile};
use bandsaw::ops::export::{Exported, FolderOptions, MAX_PROBLEMS, to_folder};
use bandsaw::progress::Progress;

use super::batch::{BatchFileSystem, folder_attributes};

/// Number of files and folders of a batch.
const BATCH: usize = 4096;

/// The result of an extraction.
pub type Recovered = Exported;

/// Writes recovered files to a folder of the host.
pub struct Extractor<'a> {
    target: &'a Path,
    options: FolderOptions,
    /// True to write files of which bytes are lost.
    partial: bool,
    batch: BatchFileSystem,
    /// Hashes of all paths, folded by case.
    paths: HashSet<u64>,
    done: Exported,
    progress: &'a dyn Progress,
}

impl fmt::Debug for Extractor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extractor")
            .field("target", &self.target)
            .field("options", &self.options)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl<'a> Extractor<'a> {
    /// Creates an extractor. Existing files are kept; one with the same size and modification time counts
    /// as extracted before. With `overwrite` they are replaced. With `partial`, files of which bytes are
    /// lost are written, too: lost bytes are zeros, and the names end in `.partial`.
    pub fn new(
        target: &'a Path,
        overwrite: bool,
        partial: bool,
        progress: &'a dyn Progress,
    ) -> Self {
        Self {
            target,
            options: FolderOptions {
                overwrite,
                resume: !overwrite,
                ..FolderOptions::default()
            },
            partial,
            batch: BatchFileSystem::new(root(target)),
            paths: HashSet::new(),
            done: Exported::default(),
            progress,
        }
    }

    /// Writes a file below `folder` of the target, or the target itself if that is empty, now or with a
    /// later one. Returns its place, `None` if it is not written because bytes are lost.
    pub fn add(&mut self, folder: &str, file: RecoveredFile) -> Result<Option<PathBuf>> {
        let is_wanted = match file.certainty {
            Certainty::Whole | Certainty::Existing => true,
            Certainty::Partial => self.partial,
            Certainty::NameOnly => false,
        };
        let is_kept = matches!(file.attributes.kind, FileKind::File | FileKind::Symlink);
        if !is_wanted || !is_kept {
            return Ok(None);
        }
        let id = file.attributes.id.0;
        let end = match file.certainty {
            Certainty::Partial => ".partial",
            _ => "",
        };
        let mut path = format!("{folder}{}{end}", file.path);
        // Two files may have had one name.
        let mut number = 1;
        while !self.paths.insert(hash(&path)) {
            path = match number {
                1 => format!("{folder}{} ({id}){end}", file.path),
                number => format!("{folder}{} ({id}, {number}){end}", file.path),
            };
            number += 1;
        }
        let place = self.target.join(path.trim_start_matches('/'));
        if !self.batch.add(&path, file) {
            return Ok(None);
        }
        if self.batch.count() >= BATCH {
            self.write()?;
        }
        Ok(Some(place))
    }

    /// Writes what is left, and returns the result.
    pub fn finish(mut self) -> Result<Recovered> {
        if self.batch.count() > 1 {
            self.write()?;
        }
        Ok(self.done)
    }

    fn write(&mut self) -> Result<()> {
        let next = BatchFileSystem::new(root(self.target));
        let batch = std::mem::replace(&mut self.batch, next);
        let part = to_folder(&batch, "/", self.target, &self.options, self.progress);
        let part = part.map_err(|error| match error.io_kind() {
            Some(_) => error.in_file(self.target),
            None => error,
        })?;
        let done = &mut self.done;
        done.files += part.files;
        done.folders += part.folders;
        done.symlinks += part.symlinks;
        done.bytes += part.bytes;
        done.problem_count += part.problem_count;
        done.note_count += part.note_count;
        let room = MAX_PROBLEMS.saturating_sub(done.problems.len());
        done.problems.extend(part.problems.into_iter().take(room));
        let room = MAX_PROBLEMS.saturating_sub(done.notes.len());
        done.notes.extend(part.notes.into_iter().take(room));
        Ok(())
    }
}

/// Returns the attributes of the root: those of the target if it exists, so that they are not changed.
fn root(target: &Path) -> Attributes {
    let mut attributes = folder_attributes(0);
    #[cfg(unix)]
    if let Ok(found) = std::fs::metadata(target) {
        use std::os::unix::fs::MetadataExt;
        attributes.mode = u16::try_from(found.mode() & 0o7777).unwrap_or(0o755);
        (attributes.uid, attributes.gid) = (found.uid(), found.gid());
    }
    attributes
}

fn hash(path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.to_lowercase().hash(&mut hasher);
    hasher.finish()
}
