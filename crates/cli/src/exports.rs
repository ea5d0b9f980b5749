//! The parts of an image that can be served on their own: the disk, its partitions, its volumes by
//! name.

use std::sync::Arc;

use bandsaw::device::{BlockDevice, Slice};
use bandsaw::open::{Image, Volume};
use bandsaw::size;

use crate::failure::Outcome;

/// A part of an image.
pub(crate) struct Part {
    /// Empty for the disk, a number for a partition, a name for a volume.
    pub(crate) name: String,
    /// The description.
    pub(crate) what: String,
    pub(crate) device: Arc<dyn BlockDevice>,
}

/// Returns the disk, then partitions by number, then volumes with names.
pub(crate) fn of(image: &Image) -> Outcome<Vec<Part>> {
    let disk = image.disk();
    let described = |what: &str, len: u64| format!("{what}, {}", size::display(len));
    let mut parts = vec![Part {
        name: String::new(),
        what: described("the disk", disk.info().len),
        device: Arc::clone(disk),
    }];
    for partition in image
        .partitions()
        .into_iter()
        .flat_map(|map| &map.partitions)
    {
        let range = partition.range.clone();
        let label = if partition.name.is_empty() {
            String::new()
        } else {
            format!(" ({})", partition.name)
        };
        parts.push(Part {
            name: partition.number.to_string(),
            what: described(
                &format!("{}{label}", partition.kind),
                range.end - range.start,
            ),
            device: Arc::new(Slice::new(Arc::clone(disk), range)?),
        });
    }
    for volume in image
        .volumes()
        .iter()
        .filter(|volume| volume.format.is_supported())
    {
        // The volumes of an APFS container share its bytes, so each name stands for the container.
        for name in names(volume) {
            if !name.is_empty() && parts.iter().all(|part| part.name != name) {
                let what = described(volume.format.name(), volume.range.end - volume.range.start);
                parts.push(Part {
                    name,
                    what,
                    device: Arc::clone(volume.device()),
                });
            }
        }
    }
    Ok(parts)
}

/// Returns the names of the volumes of a partition. A partition that does not open has only a
/// number.
fn names(volume: &Volume) -> Vec<String> {
    let members = volume.members();
    if !members.is_empty() {
        return members.into_iter().map(|member| member.name).collect();
    }
    let opened = volume.open();
    opened
        .map(|opened| opened.volume().name.clone())
        .into_iter()
        .collect()
}
