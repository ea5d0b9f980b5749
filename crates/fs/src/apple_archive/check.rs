//! The check of an archive: every entry and the contents of every file can be read, and are those of its
//! SHA-2, if it has one.

use std::sync::Arc;

use bandsaw_core::device::{BlockDevice, BlockDeviceExt};
use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::entry::{Blob, StoredHash};
use super::tree::{ArchiveNode, NodeContents, number_of};
use super::{AppleArchive, LAYER};

/// Maximum number of problems that are returned.
const MAX_PROBLEMS: usize = 1000;
/// Bytes of a read.
const PIECE: u64 = 1 << 20;

/// Returns the problems of an archive. An error is damage that prevents any check. Checksums are compared
/// if they are of SHA-2.
pub fn check(stream: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    let archive = AppleArchive::open(stream)?;
    progress.stage("files", archive.stream.info().len);
    let mut problems = Vec::new();
    // Without the objects whose names are hard links to others.
    for node in archive
        .tree
        .nodes
        .iter()
        .filter(|node| node.attributes.links > 0)
    {
        progress.check()?;
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
        let (severity, error) = match check_node(&archive, node, progress) {
            Ok(()) => continue,
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => return Err(error),
            Err(error) if error.kind() == Kind::Unsupported => (Severity::Note, error),
            Err(error) => (Severity::Damage, error),
        };
        let path = archive.tree.path(number_of(node));
        problems.push(Problem {
            severity,
            error: error.about(Subject::Path(path)),
        });
    }
    Ok(problems)
}

fn check_node(archive: &AppleArchive, node: &ArchiveNode, progress: &dyn Progress) -> Result<()> {
    let data = match node.contents {
        NodeContents::File(_) | NodeContents::Unreadable(_) => archive.data(node)?,
        _ => return Ok(()),
    };
    match node.hash {
        Some(hash) if hash.len == 32 => compare::<Sha256>(archive, &data, hash, progress),
        Some(hash) if hash.len == 48 => compare::<Sha384>(archive, &data, hash, progress),
        Some(hash) => compare::<Sha512>(archive, &data, hash, progress),
        None => read(archive, &data, progress, &mut |_| {}),
    }
}

fn compare<D: Digest>(
    archive: &AppleArchive,
    data: &Blob,
    stored: StoredHash,
    progress: &dyn Progress,
) -> Result<()> {
    let mut digest = D::new();
    read(archive, data, progress, &mut |piece| digest.update(piece))?;
    match digest.finalize().to_vec() == archive.stream.read_vec(stored.at, stored.len)? {
        true => Ok(()),
        false => Err(Error::corrupt(
            LAYER,
            data.start,
            "checksum mismatch of the contents",
        )),
    }
}

fn read(
    archive: &AppleArchive,
    data: &Blob,
    progress: &dyn Progress,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let mut at = data.start;
    while at < data.end {
        progress.check()?;
        let len = to_usize(PIECE.min(data.end - at));
        each(&archive.stream.read_vec(at, len)?);
        progress.advance(len as u64);
        at += len as u64;
    }
    Ok(())
}
