//! Export of the contents of a volume to a folder of the host, or to a tar archive.
//!
//! An entry that cannot be read, or that the host cannot store, is a problem in the report and does
//! not stop the export. Only errors of the host that would affect all further entries stop it.

mod folder;
mod host_node;
mod tar;
mod walk;

use crate::sync::Mutex;

use crate::Error;
use crate::error::Place;

pub use folder::{FolderOptions, to_folder};
pub use tar::to_tar;

const LAYER: &str = "extract";

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Number of files, counting each name of a hard-linked one.
    pub files: u64,
    /// Number of folders.
    pub folders: u64,
    /// Number of symbolic links.
    pub symlinks: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// Entries that could not be exported completely, each with its path in the volume. At most
    /// [`MAX_PROBLEMS`].
    pub problems: Vec<Error>,
    /// Number of all problems, including those not kept.
    pub problem_count: u64,
    /// Entries that were skipped or changed because the options did not request them: special
    /// files, and set-user-ID or set-group-ID bits. At most [`MAX_PROBLEMS`].
    pub notes: Vec<Error>,
    /// Number of all notes, including those not kept.
    pub note_count: u64,
}

/// Largest number of problems that are kept; more are only counted.
pub const MAX_PROBLEMS: usize = 1000;

impl Exported {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.folders += other.folders;
        self.symlinks += other.symlinks;
        self.bytes += other.bytes;
        self.problem_count += other.problem_count;
        self.note_count += other.note_count;
        let room = MAX_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(room));
        let room = MAX_PROBLEMS.saturating_sub(self.notes.len());
        self.notes.extend(other.notes.into_iter().take(room));
    }

    fn note(&mut self, error: Error) {
        self.note_count += 1;
        if self.notes.len() < MAX_PROBLEMS {
            self.notes.push(error);
        }
    }

    fn problem(&mut self, error: Error) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(error);
        }
    }
}

/// The report shared by several threads.
#[derive(Debug, Default)]
struct Exports(Mutex<Exported>);

impl Exports {
    fn add(&self, part: Exported) {
        self.0.lock().add(part);
    }

    fn into_inner(self) -> Exported {
        self.0.into_inner()
    }
}

/// Returns true if further entries would fail too, so that the export should stop.
fn is_fatal(error: &Error) -> bool {
    use std::io::ErrorKind as Io;
    let host = error.io_kind();
    error.kind() == crate::Kind::Cancelled
        || matches!(
            host,
            Some(Io::StorageFull | Io::QuotaExceeded | Io::ReadOnlyFilesystem | Io::OutOfMemory)
        )
}

/// Returns the error with the path of the entry `name` of a folder of the volume, or of the folder
/// itself if `name` is empty.
fn about(error: Error, folder: &str, name: &str) -> Error {
    let path = if name.is_empty() {
        folder.to_owned()
    } else {
        format!("{}/{name}", folder.trim_end_matches('/'))
    };
    match error.place() {
        Place::None => error.named(path),
        // Keep the location reported by a lower layer, as the cause.
        _ => Error::new(error.kind(), LAYER, "cannot be extracted")
            .named(path)
            .caused_by(error),
    }
}
