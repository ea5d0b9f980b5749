//! What is in a volume, out again: into a folder of the host, or as a tar archive.
//!
//! One object that cannot be read, or that the host cannot hold, does not stop the others: it is a
//! problem in the report. What stops everything is a host that can take no more.

mod folder;
mod host_node;
mod tar;
mod walk;

use std::sync::{Mutex, PoisonError};

use crate::Error;
use crate::error::Place;

pub use folder::{FolderOptions, to_folder};
pub use tar::to_tar;

const LAYER: &str = "extract";

/// What was brought out, and what was not.
#[derive(Debug, Default)]
pub struct Exported {
    /// Files, each name of a hard-linked one counted.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// What could not be brought out, or not with everything it has, each with its path in the
    /// volume. At most [`MOST_PROBLEMS`].
    pub problems: Vec<Error>,
    /// How many problems there were in all.
    pub problem_count: u64,
    /// What was left out, or cleared, because nobody asked for it: special files, and bits that
    /// give a program rights. At most [`MOST_PROBLEMS`].
    pub notes: Vec<Error>,
    /// How many of these there were in all.
    pub note_count: u64,
}

/// The problems that are kept; more are only counted.
pub const MOST_PROBLEMS: usize = 1000;

impl Exported {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.folders += other.folders;
        self.symlinks += other.symlinks;
        self.bytes += other.bytes;
        self.problem_count += other.problem_count;
        self.note_count += other.note_count;
        let room = MOST_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(room));
        let room = MOST_PROBLEMS.saturating_sub(self.notes.len());
        self.notes.extend(other.notes.into_iter().take(room));
    }

    fn note(&mut self, error: Error) {
        self.note_count += 1;
        if self.notes.len() < MOST_PROBLEMS {
            self.notes.push(error);
        }
    }

    fn problem(&mut self, error: Error) {
        self.problem_count += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(error);
        }
    }
}

/// The report of several threads.
#[derive(Debug, Default)]
struct Exports(Mutex<Exported>);

impl Exports {
    fn add(&self, part: Exported) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(part);
    }

    fn into_inner(self) -> Exported {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the next object would fail too, so that it is better to stop.
fn is_fatal(error: &Error) -> bool {
    use std::io::ErrorKind as Io;
    let host = error.io_kind();
    error.kind() == crate::Kind::Cancelled
        || matches!(
            host,
            Some(Io::StorageFull | Io::QuotaExceeded | Io::ReadOnlyFilesystem | Io::OutOfMemory)
        )
}

/// The error as one about the entry `name` of a folder of the volume, or about the folder itself if
/// `name` is empty.
fn about(error: Error, folder: &str, name: &str) -> Error {
    let path = if name.is_empty() {
        folder.to_owned()
    } else {
        format!("{}/{name}", folder.trim_end_matches('/'))
    };
    match error.place() {
        Place::None => error.named(path),
        // Where a lower layer met it is worth more than to be replaced.
        _ => Error::new(error.kind(), LAYER, "cannot be brought out")
            .named(path)
            .caused_by(error),
    }
}
