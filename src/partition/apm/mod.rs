//! The Apple partition map: one block for each entry, from block 1 on.

mod change;

use super::layout::{APM_SIGNATURE, ApmEntryRaw, DRIVER_DESCRIPTOR_SIGNATURE, DriverDescriptorRaw};
use super::{Map, Partition, Scheme, TypeId, block_range, read, text};
use crate::device::BlockDevice;
use crate::{Error, Result};

pub(super) use self::change::{change, disk_len_for, last_end};

const LAYER: &str = "apple partition map";

/// Maximum number of entries that are read. macOS reserves 63 blocks and a CD has a handful. A
/// larger number is not from a real map, and each entry costs a read.
const MAX_ENTRIES: u32 = 1024;

/// Reads the map, if there is one.
pub(super) fn probe(disk: &dyn BlockDevice) -> Result<Option<Map>> {
    for block in block_sizes(disk)? {
        if let Some(first) = entry(disk, block, 1)? {
            return read_map(disk, block, &first).map(Some);
        }
    }
    Ok(None)
}

/// Returns the possible block sizes of the map in the order to try: that in block 0, that of the
/// disk, 512, and 2048 as on a CD.
fn block_sizes(disk: &dyn BlockDevice) -> Result<Vec<u32>> {
    let descriptor = read::<DriverDescriptorRaw>(disk, 0)?;
    let mut sizes = Vec::new();
    if descriptor.signature == DRIVER_DESCRIPTOR_SIGNATURE {
        sizes.push(u32::from(descriptor.block_size.get()));
    }
    sizes.extend([disk.info().block, 512, 2048]);
    sizes.retain(|size| matches!(size, 512 | 1024 | 2048 | 4096));
    Ok(sizes)
}

/// Reads entry `number`; `None` if it is past the end of the disk or not an entry.
fn entry(disk: &dyn BlockDevice, block: u32, number: u32) -> Result<Option<ApmEntryRaw>> {
    let offset = u64::from(block) * u64::from(number);
    if offset + u64::from(block) > disk.info().len {
        return Ok(None);
    }
    let entry = read::<ApmEntryRaw>(disk, offset)?;
    // The signature has only two letters, so the first entry must also describe the map or another
    // structure of Apple's.
    let fits =
        entry.signature == APM_SIGNATURE && (number > 1 || entry.kind.starts_with(b"Apple_"));
    Ok(fits.then_some(entry))
}

fn read_map(disk: &dyn BlockDevice, block: u32, first: &ApmEntryRaw) -> Result<Map> {
    let info = disk.info();
    let count = first.entries.get();
    let fits = info.len / u64::from(block) - 1;
    if count == 0 || u64::from(count) > fits {
        let what = format!("invalid number of entries {count}: expected 1 to {fits}");
        return Err(Error::corrupt(LAYER, u64::from(block), what));
    }
    if count > MAX_ENTRIES {
        let what = format!("too many entries: {count} (limit {MAX_ENTRIES})");
        return Err(Error::limit(LAYER, what).at(u64::from(block)));
    }
    let mut map = Map {
        scheme: Scheme::Apm,
        block,
        disk_guid: None,
        partitions: Vec::new(),
        problems: Vec::new(),
    };
    for number in 1..=count {
        let offset = u64::from(block) * u64::from(number);
        let Some(raw) = entry(disk, block, number)? else {
            let what =
                format!("entry {number} of {count} has no signature PM; the map ends before it");
            map.problems.push(Error::corrupt(LAYER, offset, what));
            break;
        };
        match block_range(
            LAYER,
            number,
            raw.first.get().into(),
            raw.blocks.get().into(),
            block,
            info.len,
        ) {
            Ok(range) => {
                let mut partition = Partition::new(
                    number,
                    range,
                    text(&raw.name),
                    TypeId::Name(text(&raw.kind)),
                );
                partition.flags = raw.status.get().into();
                map.partitions.push(partition);
            }
            Err(problem) => map.problems.push(problem.at(offset)),
        }
    }
    Ok(map)
}
