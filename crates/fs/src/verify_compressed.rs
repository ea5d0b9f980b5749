//! Verification of all compressed files of a volume by decompressing them.

use std::collections::HashSet;
use std::ops::ControlFlow;

use rayon::prelude::*;

use crate::{Attributes, FileKind, FileSystem, Fork, NodeId, UF_COMPRESSED};
use bandsaw_core::decmpfs::{self, Compression, Place};
use bandsaw_core::device::BlockDeviceExt;
use bandsaw_core::problem::{Problems, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::size::to_usize;
use bandsaw_core::{Error, Kind, Result};

const LAYER: &str = "compressed files";
/// Number of bytes decompressed per step.
const PIECE: u64 = 4 << 20;
/// Number of files decompressed in parallel.
const BATCH: usize = 64;

/// Decompresses every compressed file of the volume at `place` (a name for messages), and adds
/// those with problems. Errors of the volume itself, and cancellation, are returned.
pub fn check(
    fs: &dyn FileSystem,
    place: &str,
    problems: &mut Problems,
    progress: &dyn Progress,
) -> Result<()> {
    progress.stage("decode", 0);
    let (mut seen, mut batch) = (HashSet::from([fs.root()]), Vec::new());
    let mut ahead = vec![(String::new(), fs.root())];
    let mut decode = |batch: &mut Vec<(String, Attributes)>| -> Result<()> {
        let judged: Vec<_> = batch
            .par_iter()
            .map(|(_, file)| judge(fs, file, progress))
            .collect();
        for ((path, _), judged) in batch.drain(..).zip(judged) {
            match judged {
                Ok(None) => {}
                Ok(Some(note)) => problems.add(
                    Severity::Note,
                    Error::new(Kind::Unsupported, LAYER, note)
                        .named(path)
                        .in_file(place),
                ),
                Err(error) if error.kind() == Kind::Cancelled => return Err(error),
                Err(error) => {
                    let message = format!("cannot decompress the contents: {error}");
                    let found = Error::new(error.kind(), LAYER, message)
                        .named(path)
                        .in_file(place);
                    // A file with an unknown compression type may be intact; all other errors mean
                    // lost contents.
                    let severity = if error.kind() == Kind::Unsupported {
                        Severity::Warning
                    } else {
                        Severity::Damage
                    };
                    problems.add(severity, found);
                }
            }
        }
        Ok(())
    };
    while let Some((path, folder)) = ahead.pop() {
        fs.list(folder, &mut |entry| {
            progress.check()?;
            let (path, found) = (format!("{path}/{}", entry.name), entry.attributes);
            match found.kind {
                // A cycle of folders is reported by the volume's own check; here no folder is
                // visited twice.
                FileKind::Folder if seen.insert(found.id) => ahead.push((path, found.id)),
                FileKind::File
                    if found.flags & UF_COMPRESSED != 0
                        && (found.links < 2 || seen.insert(found.id)) =>
                {
                    batch.push((path, found));
                    if batch.len() >= BATCH {
                        decode(&mut batch)?;
                    }
                }
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    decode(&mut batch)
}

/// Returns a message about a file that is not corrupt, but unusual.
fn judge(
    fs: &dyn FileSystem,
    file: &Attributes,
    progress: &dyn Progress,
) -> Result<Option<String>> {
    let Some(value) = attribute(fs, file.id)? else {
        return Ok(Some(
            "has the flag of a compressed file, but no compression attribute; read as \
                        uncompressed"
                .to_owned(),
        ));
    };
    let Some(compression) = Compression::parse(&value) else {
        let message = "the compression attribute has no valid header; macOS shows the file as \
                       empty";
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    };
    match compression.method() {
        Some((_, Place::Server)) => {
            return Ok(Some(
                "dataless file: its contents are on a server".to_owned(),
            ));
        }
        Some((_, Place::Nowhere)) => {
            let message = format!(
                "compression type {}: no contents are stored; reads as zeros",
                compression.number
            );
            return Ok(Some(message));
        }
        _ => {}
    }
    let contents = fs.open(file.id, Fork::Data)?;
    let mut at = 0;
    while at < compression.size {
        progress.check()?;
        let now = PIECE.min(compression.size - at);
        contents.read_vec(at, to_usize(now))?;
        progress.advance(now);
        at += now;
    }
    Ok(None)
}

/// Returns the compression attribute of a file.
fn attribute(fs: &dyn FileSystem, node: NodeId) -> Result<Option<Vec<u8>>> {
    let Some(value) = fs.xattr(node, decmpfs::ATTRIBUTE)? else {
        return Ok(None);
    };
    let len = value
        .info()
        .len
        .min(decmpfs::layout::MAX_ATTRIBUTE as u64 + 1);
    value.read_vec(0, to_usize(len)).map(Some)
}
