//! The comparison of a volume's own sources: its headers with each other, its length with its space.

use super::geometry::repairable;
use crate::open::Volume;
use crate::open::driver::Headers;
use crate::{Error, Kind, Result};

/// The result of the comparison of a volume's own sources.
pub(in crate::open) enum SourceComparison {
    /// They agree, or there is only one.
    Agrees,
    /// They differ, and the volume agrees with the one that readers use: a warning.
    Confirmed(String),
    /// The volume is longer than its space.
    TooLong(String),
}

pub(in crate::open) fn compare_volume(volume: &Volume) -> Result<SourceComparison> {
    let room = volume.range.end - volume.range.start;
    // Contents that cannot be read contradict nothing.
    let only_io = |error: Error| match error.kind() {
        Kind::Io | Kind::Undecided => Err(error),
        _ => Ok(SourceComparison::Agrees),
    };
    match volume.driver().stated_len(volume) {
        Ok(Some(stated)) if stated > room => {
            return Ok(SourceComparison::TooLong(format!(
                "{} on {} has {stated} bytes by its header, but space for {room}",
                volume.format,
                volume.place()
            )));
        }
        Ok(_) => {}
        Err(error) => return only_io(error),
    }
    match volume.driver().compare_headers(volume) {
        Ok(Headers::Agree) => Ok(SourceComparison::Agrees),
        Ok(Headers::Confirmed(warning)) => Ok(SourceComparison::Confirmed(warning)),
        Ok(Headers::Differ(what)) => Err(repairable(what)),
        Err(error) => only_io(error),
    }
}
