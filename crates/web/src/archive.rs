//! Folders as archives, streamed without a temporary file.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use bandsaw::fs::{
    Ancestors, Attributes, Entry, FileKind, FileSystem, FileSystemExt, Fork, NodeId,
};
use bandsaw::ops::export;
use bandsaw::progress::Progress;
use bandsaw::{Error, Kind, Result};
use zip::result::ZipError;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::stream::ArchiveSink;

const LAYER: &str = "archive";
/// Bytes that are read at a time.
const PIECE: usize = 128 << 10;
/// Depth of folders in an archive.
const MAX_DEPTH: usize = 512;
/// Entries of a zip archive: its directory, which is written at the end, is kept in memory.
pub(crate) const MAX_ENTRIES: usize = 65_535;

/// Ends the export when the client has closed the connection.
struct Watched<F>(F);

impl<F: Fn() -> bool + Send + Sync> Progress for Watched<F> {
    fn stage(&self, _name: &str, _total: u64) {}
    fn advance(&self, _n: u64) {}
    fn cancelled(&self) -> bool {
        (self.0)()
    }
}

/// Writes a folder as a tar archive with all attributes. Fails, before the end of the archive is
/// written, with the first entry that cannot be read.
pub(crate) fn tar(fs: &dyn FileSystem, path: &str, mut sink: ArchiveSink) -> Result<ArchiveSink> {
    let progress = Watched(sink.watch());
    let mut done = export::to_tar(fs, path, &mut sink, &progress)?;
    match done.problems.is_empty() {
        true => Ok(sink),
        false => Err(done.problems.swap_remove(0)),
    }
}

/// Writes a folder as a zip archive: the contents and permissions of files, folders and symbolic
/// links. Fails with the first entry that cannot be read or stored.
pub(crate) fn zip(fs: &dyn FileSystem, path: &str, sink: ArchiveSink) -> Result<ArchiveSink> {
    let breaker = sink.breaker();
    let is_over = sink.watch();
    let mut archive = ZipWriter::new_stream(sink);
    let written = fill(fs, path, &mut archive, &is_over);
    if let Err(error) = written {
        // Dropping the writer would end the archive as if it were whole.
        breaker.store(true, Ordering::Release);
        return Err(error);
    }
    let stream = archive.finish().map_err(failed)?;
    Ok(stream.into_inner())
}

struct PendingFolder {
    id: NodeId,
    /// The name in the archive, with a slash at its end unless it is empty.
    name: String,
    /// Number of folders that contain it.
    depth: usize,
}

fn fill(
    fs: &dyn FileSystem,
    path: &str,
    archive: &mut ZipWriter<StreamWriter<ArchiveSink>>,
    is_over: &dyn Fn() -> bool,
) -> Result<()> {
    let top = fs.resolve(path)?;
    let mut buffer = vec![0; PIECE];
    let mut entries = 0;
    if top.kind != FileKind::Folder {
        let name = path.rsplit('/').next().unwrap_or_default();
        return add(fs, archive, name, &top, &mut buffer, is_over);
    }
    let mut ahead = vec![PendingFolder {
        id: top.id,
        name: String::new(),
        depth: 0,
    }];
    let mut ancestors = Ancestors::default();
    while let Some(folder) = ahead.pop() {
        let first = ahead.len();
        ancestors.enter(folder.id, folder.depth)?;
        fs.list(folder.id, &mut |Entry { name, attributes }| {
            // An extracting program would leave its folder with such a name.
            if matches!(&*name, "" | "." | "..") || name.contains(['/', '\0']) {
                let error = Error::new(Kind::Corrupt, LAYER, "a name that no system allows");
                return Err(error.named(format!("{}{name}", folder.name)));
            }
            let full = format!("{}{name}", folder.name);
            entries += 1;
            if entries > MAX_ENTRIES {
                let message = "more than 65,535 entries: download it as tar, which has no limit";
                return Err(Error::limit(LAYER, message));
            }
            if attributes.kind != FileKind::Folder {
                add(fs, archive, &full, &attributes, &mut buffer, is_over)?;
                return Ok(ControlFlow::Continue(()));
            }
            let checked = ancestors.check(attributes.id);
            checked.map_err(|error| error.named(&*full))?;
            if folder.depth >= MAX_DEPTH {
                return Err(Error::limit(LAYER, "folders are too deep").named(full));
            }
            archive
                .add_directory(full.as_str(), options(&attributes, 0o755))
                .map_err(failed)?;
            ahead.push(PendingFolder {
                id: attributes.id,
                name: format!("{full}/"),
                depth: folder.depth + 1,
            });
            Ok(ControlFlow::Continue(()))
        })?;
        if let Some(added) = ahead.get_mut(first..) {
            added.reverse();
        }
    }
    Ok(())
}

fn add(
    fs: &dyn FileSystem,
    archive: &mut ZipWriter<StreamWriter<ArchiveSink>>,
    name: &str,
    attributes: &Attributes,
    buffer: &mut [u8],
    is_over: &dyn Fn() -> bool,
) -> Result<()> {
    match attributes.kind {
        FileKind::File => {}
        FileKind::Symlink => {
            let target = fs.read_link(attributes.id)?;
            let options = options(attributes, 0o777);
            return archive.add_symlink(name, target, options).map_err(failed);
        }
        _ => {
            let message = "zip archives store files, folders and symbolic links only";
            return Err(Error::unsupported(LAYER, message).named(name));
        }
    }
    let contents = fs.open(attributes.id, Fork::Data)?;
    let length = contents.info().len;
    archive
        .start_file(name, options(attributes, 0o644))
        .map_err(failed)?;
    let mut at = 0;
    while at < length {
        if is_over() {
            return Err(Error::new(
                Kind::Cancelled,
                LAYER,
                "the client has disconnected",
            ));
        }
        let now = usize::try_from(length - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let Some(piece) = buffer.get_mut(..now) else {
            break;
        };
        contents
            .read_at(at, piece)
            .map_err(|error| error.named(name))?;
        archive
            .write_all(piece)
            .map_err(|error| failed(error.into()))?;
        at += now as u64;
    }
    Ok(())
}

/// Returns the permissions and the date of an entry. Lengths of files are not known to fit in 32
/// bits when they begin.
fn options(attributes: &Attributes, least: u32) -> SimpleFileOptions {
    let mode = match attributes.mode & 0o777 {
        0 => least,
        mode => u32::from(mode),
    };
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .large_file(true)
        .unix_permissions(mode);
    let date = attributes.modified.and_then(|time| {
        let time = time.date_time();
        let year = u16::try_from(time.year).ok()?;
        DateTime::from_date_and_time(
            year,
            time.month,
            time.day,
            time.hour,
            time.minute,
            time.second,
        )
        .ok()
    });
    match date {
        Some(date) => options.last_modified_time(date),
        None => options,
    }
}

fn failed(error: ZipError) -> Error {
    match error {
        ZipError::Io(source) => Error::io(LAYER, "write", source),
        other => Error::io(LAYER, "write", io::Error::other(other)),
    }
}
