//! The journal of an HFS+ volume.

use std::sync::{Arc, OnceLock};

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::hfsplus::{read_all, sample_with_room};
use crate::device::Memory;
use crate::fs::hfsplus::layout::{
    BLOCK_LIST_CHECKSUM, BLOCK_LIST_SUMMED, BlockInfoRaw, BlockListHeaderRaw, HEADER_OFFSET,
    JOURNAL_ENDIAN, JOURNAL_HEADER_CHECKSUM, JOURNAL_HEADER_SUMMED, JOURNAL_MAGIC, JournalChecksum,
    JournalHeaderRaw, JournalInfoBlockRaw, JournalOrder, VolumeHeaderRaw, block_list_flags,
    journal_flags, volume_attributes,
};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;
/// Bytes of the journal, and of a block list in the seeds.
const JOURNAL: usize = 16 << 10;
const LIST: usize = 512;

/// Takes an input whose rest is the journal of a valid volume, unchanged if its first byte is even;
/// otherwise the checksums of its header and lists are corrected, to reach the numbers behind them.
/// The volume is refused, or everything in it can be queried, including changes in the journal;
/// nothing is written.
pub fn journal(input: &[u8]) {
    let Some((flags, input)) = input.split_first() else {
        return;
    };
    let mut volume = volume().to_vec();
    let journal = &mut volume[journal_at()..][..JOURNAL];
    journal
        .iter_mut()
        .zip(input)
        .for_each(|(byte, new)| *byte = *new);
    if flags % 2 == 1 {
        store_checksum(journal);
    }
    read_all(Arc::new(Memory::read_only(volume)));
}

/// Returns the sample volume with the flag of a journal, which is all zeros.
fn volume() -> &'static [u8] {
    static VOLUME: OnceLock<Vec<u8>> = OnceLock::new();
    VOLUME.get_or_init(|| {
        let mut volume = sample_with_room(BLOCK as u32, JOURNAL + 4 * BLOCK);
        let info_block = volume.len() - JOURNAL - 3 * BLOCK;
        let info = JournalInfoBlockRaw {
            flags: journal_flags::IN_VOLUME.into(),
            offset: ((info_block + BLOCK) as u64).into(),
            size: (JOURNAL as u64).into(),
            ..JournalInfoBlockRaw::new_zeroed()
        };
        volume[info_block..][..size_of_val(&info)].copy_from_slice(info.as_bytes());
        if let Ok((header, _)) =
            VolumeHeaderRaw::mut_from_prefix(&mut volume[HEADER_OFFSET as usize..])
        {
            header.attributes = (header.attributes.get() | volume_attributes::JOURNALED).into();
            header.journal_info_block = ((info_block / BLOCK) as u32).into();
        }
        volume
    })
}

fn journal_at() -> usize {
    volume().len() - JOURNAL - 2 * BLOCK
}

/// Corrects the checksums of the header and of the consecutive lists from the start that it
/// records.
fn store_checksum(journal: &mut [u8]) {
    let Ok((header, _)) = JournalHeaderRaw::read_from_prefix(journal) else {
        return;
    };
    let Some(order) = JournalOrder::of(&header) else {
        return;
    };
    let put = |field: &mut [u8], sum: u32| {
        let sum = if order == JournalOrder::Little {
            sum.to_le_bytes()
        } else {
            sum.to_be_bytes()
        };
        field.copy_from_slice(&sum);
    };
    let sum =
        JournalChecksum::of_header(&journal[..JOURNAL_HEADER_SUMMED], JOURNAL_HEADER_CHECKSUM);
    put(&mut journal[JOURNAL_HEADER_CHECKSUM], sum);
    let mut at = usize::try_from(order.u64(header.start)).unwrap_or(usize::MAX);
    while let Some(list) = journal
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..BLOCK_LIST_SUMMED))
    {
        put(&mut list[BLOCK_LIST_CHECKSUM], 0);
        let sum = JournalChecksum::of_header(list, BLOCK_LIST_CHECKSUM);
        put(&mut list[BLOCK_LIST_CHECKSUM], sum);
        let used = BlockListHeaderRaw::read_from_prefix(list)
            .map_or(0, |(list, _)| order.u32(list.bytes_used));
        match at.checked_add(used as usize) {
            Some(next) if used > 0 => at = next,
            _ => return,
        }
    }
}

/// Returns journals whose one transaction writes a sector of zeros, and the unchanged volume
/// header, in either byte order.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    [JournalOrder::Little, JournalOrder::Big]
        .map(|order| [&[1][..], &seed(order)].concat())
        .into()
}

fn seed(order: JournalOrder) -> Vec<u8> {
    let little = order == JournalOrder::Little;
    let u16 = |value: u16| {
        if little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        }
    };
    let u32 = |value: u32| {
        if little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        }
    };
    let u64 = |value: u64| {
        if little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        }
    };
    let used = (LIST + 2 * SECTOR) as u32;
    let header = JournalHeaderRaw {
        magic: u32(JOURNAL_MAGIC),
        endian: u32(JOURNAL_ENDIAN),
        start: u64(SECTOR as u64),
        end: u64(SECTOR as u64 + u64::from(used)),
        size: u64(JOURNAL as u64),
        block_list_size: u32(LIST as u32),
        checksum: [0; 4],
        header_size: u32(SECTOR as u32),
        sequence: u32(1),
    };
    let list = BlockListHeaderRaw {
        max_blocks: u16(31),
        num_blocks: u16(3),
        bytes_used: u32(used),
        checksum: [0; 4],
        flags: u32(block_list_flags::FIRST),
    };
    let info = |number: u64, size: u32, checksum: u32| BlockInfoRaw {
        number: u64(number),
        size: u32(size),
        checksum: u32(checksum),
    };
    let last = (volume().len() / SECTOR) as u64 - 4;
    let infos = [
        info(0, 0, 1),
        info(last, SECTOR as u32, 0),
        info(HEADER_OFFSET / SECTOR as u64, SECTOR as u32, 0),
    ];
    let mut journal = vec![0; SECTOR + used as usize];
    journal[..size_of_val(&header)].copy_from_slice(header.as_bytes());
    journal[SECTOR..][..64].copy_from_slice(&[list.as_bytes(), infos.as_bytes()].concat());
    let changed = &mut journal[SECTOR + LIST + SECTOR..];
    changed.copy_from_slice(&volume()[HEADER_OFFSET as usize..][..SECTOR]);
    store_checksum(&mut journal);
    journal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::FileSystem;
    use crate::fs::hfsplus::HfsPlus;

    #[test]
    fn seeds_are_replayed() {
        for seed in seeds() {
            let mut volume = volume().to_vec();
            volume[journal_at()..][..seed.len() - 1].copy_from_slice(&seed[1..]);
            let volume = HfsPlus::open(Arc::new(Memory::read_only(volume))).unwrap();
            assert!(volume.problems().is_empty(), "{:?}", volume.problems());
            assert!(volume.volume().journaled && !volume.volume().clean);
        }
    }
}
