//! exFAT: bitmap, table for upper case and root directory in a cluster of 1024 bytes each, from 2
//! on.

use zerocopy::{FromZeros, IntoBytes};

use super::super::layout::exfat::{BootRaw, EntryRaw, SUMMED_SECTORS, boot_sum, entry};
use super::{LEN, put};
use crate::fs::bitmap::set_bits;

const SECTOR: usize = 512;
const HEAP: usize = 40;

/// A volume whose clusters of these numbers are in use, which should have 2, 3 and 4 among them.
pub(crate) fn exfat(used: std::ops::Range<usize>) -> Vec<u8> {
    let clusters = (LEN / SECTOR - HEAP) / 2;
    let mut raw = BootRaw::new_zeroed();
    (raw.jump, raw.name, raw.revision) = ([0xEB, 0x76, 0x90], *b"EXFAT   ", 0x100.into());
    (raw.sectors, raw.table, raw.table_len) = ((LEN as u64 / 512).into(), 24.into(), 16.into());
    (raw.heap, raw.clusters, raw.root) = ((HEAP as u32).into(), (clusters as u32).into(), 4.into());
    (raw.sector_shift, raw.cluster_shift, raw.tables) = (9, 1, 1);
    let mut bytes = vec![0; LEN];
    put(&mut bytes, 0, raw.as_bytes());
    seal_exfat(&mut bytes);
    put(&mut bytes, 24 * SECTOR + 8, &[0xFF; 12]);
    let mut bits = vec![0; clusters.div_ceil(8)];
    set_bits(&mut bits, used.start - 2..used.end - 2);
    put(&mut bytes, HEAP * SECTOR, &bits);
    for (number, (kind, len)) in [(entry::BITMAP, bits.len()), (entry::UPCASE, 60)]
        .into_iter()
        .enumerate()
    {
        let mut raw = EntryRaw::new_zeroed();
        (raw.kind, raw.first, raw.len) = (kind, (2 + number as u32).into(), (len as u64).into());
        put(
            &mut bytes,
            HEAP * SECTOR + 2 * 1024 + 32 * number,
            raw.as_bytes(),
        );
    }
    bytes
}

/// Gives the boot sectors their check sum, where there are any.
pub(crate) fn seal_exfat(bytes: &mut [u8]) {
    let Some((summed, rest)) = bytes.split_at_mut_checked(SUMMED_SECTORS * SECTOR) else {
        return;
    };
    let sum = boot_sum(summed).to_le_bytes();
    rest.chunks_exact_mut(4)
        .take(SECTOR / 4)
        .for_each(|place| place.copy_from_slice(&sum));
}
