//! Maps that are created by tests only.

use std::ops::Range;

use zerocopy::{FromZeros, IntoBytes};

use super::layout::{
    APM_SIGNATURE, ApmEntryRaw, DRIVER_DESCRIPTOR_SIGNATURE, DriverDescriptorRaw, MBR_SIGNATURE,
    MbrEntryRaw, MbrRaw,
};
use crate::device::BlockDevice;

/// Bytes of the map's own partition and the descriptor before it.
const MAP: u64 = 64 * 512;

/// Writes an Apple partition map like Apple's tools, with entries for itself and these partitions.
pub(crate) fn apple_map(disk: &dyn BlockDevice, partitions: &[(Range<u64>, &str)]) {
    let own = [(512..MAP, "Apple_partition_map")];
    let all: Vec<_> = own.iter().chain(partitions).collect();
    for (at, (range, kind)) in (512..).step_by(512).zip(&all) {
        let blocks = ((range.end - range.start) / 512) as u32;
        let mut raw = ApmEntryRaw {
            signature: APM_SIGNATURE,
            entries: (all.len() as u32).into(),
            first: ((range.start / 512) as u32).into(),
            blocks: blocks.into(),
            data_blocks: blocks.into(),
            status: 0x33.into(),
            ..ApmEntryRaw::new_zeroed()
        };
        raw.kind[..kind.len()].copy_from_slice(kind.as_bytes());
        disk.write_at(at, raw.as_bytes()).unwrap();
    }
    let block_count = (disk.info().len / 512) as u32;
    let signature = DRIVER_DESCRIPTOR_SIGNATURE;
    let descriptor = DriverDescriptorRaw {
        signature,
        block_size: 512.into(),
        block_count: block_count.into(),
    };
    disk.write_at(0, descriptor.as_bytes()).unwrap();
}

/// Writes an MBR with these partitions.
pub(crate) fn mbr(disk: &dyn BlockDevice, partitions: &[(Range<u64>, u8)]) {
    let mut raw = MbrRaw {
        signature: MBR_SIGNATURE,
        ..MbrRaw::new_zeroed()
    };
    for (entry, (range, kind)) in raw.entries.iter_mut().zip(partitions) {
        let (first, blocks) = (
            (range.start / 512) as u32,
            ((range.end - range.start) / 512) as u32,
        );
        *entry = MbrEntryRaw {
            kind: *kind,
            first: first.into(),
            blocks: blocks.into(),
            ..MbrEntryRaw::default()
        };
    }
    disk.write_at(0, raw.as_bytes()).unwrap();
}
