//! The search for the partition map and the volumes of a disk.

use std::sync::Arc;

use super::volume::{self, Volume};
use crate::Result;
use crate::device::BlockDevice;
use crate::partition::{self, Map, gpt::Search};

/// Returns the partition map and the volumes of a disk.
pub(crate) fn find(disk: &Arc<dyn BlockDevice>) -> Result<(Option<Map>, Vec<Volume>)> {
    find_with(disk, |search| partition::probe_with(&**disk, search))
}

/// Like [`find`], with the function that reads or checks the map. A GPT that block 0 does not
/// announce is looked for only if nothing else is found: file systems leave block 0 and the end of a
/// disk as they were, so that remains of a former map are common there.
pub(crate) fn find_with(
    disk: &Arc<dyn BlockDevice>,
    mut read_map: impl FnMut(Search) -> Result<Option<Map>>,
) -> Result<(Option<Map>, Vec<Volume>)> {
    for search in [Search::Announced, Search::Everywhere] {
        let map = read_map(search)?;
        let volumes = volume::find(disk, map.as_ref())?;
        if map.is_some() || !volumes.is_empty() {
            return Ok((map, volumes));
        }
    }
    Ok((None, Vec::new()))
}
