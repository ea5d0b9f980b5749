//! Export of the contents of a volume to a folder of the host, or to a tar archive.
//!
//! An entry that cannot be read, or that the host cannot store, is a problem in the report and does
//! not stop the export. Only errors of the host that would affect all further entries stop it.

#[cfg(unix)]
mod batch;
#[cfg(unix)]
mod existing;
#[cfg_attr(windows, path = "windows.rs")]
mod folder;
#[cfg(unix)]
mod host_node;
mod tar;
#[cfg(unix)]
mod walk;
#[cfg(any(windows, test))]
mod windows_names;

use std::fs::File;

use crate::device::{BlockDevice, ExtentKind};
use crate::error::Place;
use crate::fs::NodeId;
use crate::platform::FileExt;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::{Error, Kind, Result};

pub use folder::to_folder;
pub use tar::to_tar;

const LAYER: &str = "extract";
/// Bytes read and written at a time.
const BUFFER: usize = 1 << 20;

/// Options of an export to a folder.
#[derive(Debug, Clone, Default)]
pub struct FolderOptions {
    /// True to replace existing files and links. Existing folders are never replaced but merged.
    pub overwrite: bool,
    /// Name to use for an entry that is not a folder, instead of its own.
    pub name: Option<String>,
    /// True to create device nodes, FIFOs and sockets. Otherwise they are skipped.
    pub special_files: bool,
    /// True to keep the set-user-ID and set-group-ID bits of files. Otherwise they are cleared.
    pub setuid: bool,
    /// True to resume an interrupted export with this option. A file gets its name when it is
    /// complete; a file or link that exists as it is in the volume, by size and modification time or
    /// by target, is kept. Existing folders, the target too, get the attributes of the volume's.
    pub resume: bool,
    /// With `resume`: true if no earlier run has made anything of this export. Nothing is looked for then,
    /// which saves a third of the time for small files.
    pub fresh: bool,
}

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
    fn add_problem(&mut self, error: Error) {
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

/// Refuses a folder that contains itself, as hard links to folders could cause on a damaged volume: the
/// folder `id` in the folder with the number `parent`. `above` returns the id of a numbered folder, and
/// the number of its parent. The top folder has the number 0.
fn check_ancestors(
    id: NodeId,
    mut parent: usize,
    above: impl Fn(usize) -> (NodeId, usize),
) -> Result<()> {
    loop {
        let (found, next) = above(parent);
        if found == id {
            let message = "the folder contains itself";
            return Err(Error::new(Kind::Corrupt, LAYER, message));
        }
        if parent == 0 {
            return Ok(());
        }
        parent = next;
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

/// Copies the contents of a file of the volume. `buffer` has [`BUFFER`] bytes.
fn copy(
    from: &dyn BlockDevice,
    to: &File,
    buffer: &mut [u8],
    progress: &dyn Progress,
) -> Result<()> {
    let write = |source| Error::io(LAYER, "write", source);
    let (len, mut at) = (from.info().len, 0);
    if len > BUFFER as u64 {
        to.set_len(len).map_err(write)?;
    }
    while at < len {
        let mut now = (len - at).min(BUFFER as u64);
        // Holes in a large file stay holes.
        let extent = if len > BUFFER as u64 {
            Some(from.extent_at(at..len)?)
        } else {
            None
        };
        match extent {
            Some(extent) if extent.kind != ExtentKind::Data => now = extent.len,
            _ => {
                let piece = &mut buffer[..to_usize(now)];
                from.read_at(at, piece)?;
                to.write_all_at(piece, at).map_err(write)?;
            }
        }
        at += now;
        progress.advance(now);
        if at < len {
            progress.check()?;
        }
    }
    Ok(())
}
