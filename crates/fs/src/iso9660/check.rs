//! The check of a volume: every directory can be read, and every file is within the volume.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use bandsaw_core::device::BlockDevice;
use bandsaw_core::error::Subject;
use bandsaw_core::problem::{Problem, Severity};
use bandsaw_core::progress::Progress;
use bandsaw_core::{Error, Kind, Result};

use super::contents::join_sections;
use super::{IsoVolume, LAYER, stated_len};

/// Maximum number of problems that are returned.
const MAX_PROBLEMS: usize = 1000;

/// Returns the problems of a volume. An error is damage that prevents any check.
///
/// Memory grows with the number of folders. Contents have no checksums and are not read.
pub fn check(device: Arc<dyn BlockDevice>, progress: &dyn Progress) -> Result<Vec<Problem>> {
    progress.stage("folders", 0);
    let len = device.info().len;
    let mut problems = Vec::new();
    if let Some(stated) = stated_len(&*device)?.filter(|stated| *stated > len) {
        let message =
            format!("the volume has {stated} bytes by its descriptor, but space for {len}");
        problems.push(problem(
            Severity::Warning,
            Error::new(Kind::OutOfRange, LAYER, message),
        ));
    }
    let volume = IsoVolume::open(device)?;
    let (mut seen, mut ahead) = (
        HashSet::from([volume.root]),
        vec![("/".to_owned(), volume.root)],
    );
    // Directories share no bytes, so that together they are not longer than the volume.
    let mut room = len;
    while let Some((path, start)) = ahead.pop() {
        progress.check()?;
        progress.advance(1);
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
        let mut found = Vec::new();
        let checked = volume.directory(start).and_then(|directory| {
            room = room.checked_sub(directory.len).ok_or_else(|| {
                Error::corrupt(LAYER, start, "directories are longer than the volume")
            })?;
            volume.walk(&directory, &mut |name, entry| {
                let path = format!("{}/{name}", path.trim_end_matches('/'));
                if let Some(start) = entry.folder {
                    match seen.insert(start) {
                        true => ahead.push((path, start)),
                        false => found.push(twice(start).about(Subject::Path(path))),
                    }
                } else if let Err(error) = check_sections(&volume, &entry.records) {
                    found.push(error.about(Subject::Path(path)));
                }
                Ok(match found.len() < MAX_PROBLEMS {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                })
            })
        });
        match checked {
            Err(error) if matches!(error.kind(), Kind::Io | Kind::Cancelled) => return Err(error),
            Err(error) => found.push(error.about(Subject::Path(path))),
            Ok(()) => {}
        }
        problems.extend(found.into_iter().map(|error| match error.kind() {
            Kind::Unsupported => problem(Severity::Note, error),
            _ => problem(Severity::Damage, error),
        }));
    }
    Ok(problems)
}

fn check_sections(volume: &IsoVolume, records: &super::directory::EntryRecords) -> Result<()> {
    for sections in [&records.data, &records.resource] {
        join_sections(&volume.space, sections)?.check_places()?;
    }
    Ok(())
}

fn twice(start: u64) -> Error {
    Error::corrupt(LAYER, start, "the folder contains itself, or has two names")
}

fn problem(severity: Severity, error: Error) -> Problem {
    Problem { severity, error }
}
