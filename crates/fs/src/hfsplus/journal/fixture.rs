//! Volumes with pending transactions, for tests and fuzzing.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::hfsplus::layout::{
    BLOCK_LIST_CHECKSUM, BLOCK_LIST_SUMMED, BlockInfoRaw, BlockListHeaderRaw, HEADER_OFFSET,
    JOURNAL_ENDIAN, JOURNAL_HEADER_CHECKSUM, JOURNAL_HEADER_SUMMED, JOURNAL_MAGIC, JournalChecksum,
    JournalHeaderRaw, JournalInfoBlockRaw, JournalOrder, VolumeHeaderRaw, block_list_flags,
    journal_flags, volume_attributes,
};

const SECTOR: usize = 512;
/// Size of a block list in bytes.
const LIST: usize = 512;

/// Gives a volume a journal of `len` bytes of zeros, near its end, where it must have free space for three more
/// blocks. `block` is its block size in bytes. Returns the offset of the journal in bytes.
pub fn add_journal(volume: &mut [u8], block: usize, len: usize) -> usize {
    let info_block = volume.len() - len - 3 * block;
    let info = JournalInfoBlockRaw {
        flags: journal_flags::IN_VOLUME.into(),
        offset: ((info_block + block) as u64).into(),
        size: (len as u64).into(),
        ..JournalInfoBlockRaw::new_zeroed()
    };
    volume[info_block..][..size_of_val(&info)].copy_from_slice(info.as_bytes());
    if let Ok((header, _)) = VolumeHeaderRaw::mut_from_prefix(&mut volume[HEADER_OFFSET as usize..])
    {
        header.attributes = (header.attributes.get() | volume_attributes::JOURNALED).into();
        header.journal_info_block = ((info_block / block) as u32).into();
    }
    info_block + block
}

/// Corrects the checksums of the header of a journal, and of the consecutive lists from the start that the
/// header records.
pub fn reseal_journal(journal: &mut [u8]) {
    let Ok((header, _)) = JournalHeaderRaw::read_from_prefix(journal) else {
        return;
    };
    let Some(order) = JournalOrder::of(&header) else {
        return;
    };
    let sum =
        JournalChecksum::of_header(&journal[..JOURNAL_HEADER_SUMMED], JOURNAL_HEADER_CHECKSUM);
    journal[JOURNAL_HEADER_CHECKSUM].copy_from_slice(&order.put_u32(sum));
    let mut at = usize::try_from(order.u64(header.start)).unwrap_or(usize::MAX);
    while let Some(list) = journal
        .get_mut(at..)
        .and_then(|rest| rest.get_mut(..BLOCK_LIST_SUMMED))
    {
        list[BLOCK_LIST_CHECKSUM].fill(0);
        let sum = JournalChecksum::of_header(list, BLOCK_LIST_CHECKSUM);
        list[BLOCK_LIST_CHECKSUM].copy_from_slice(&order.put_u32(sum));
        let used = BlockListHeaderRaw::read_from_prefix(list)
            .map_or(0, |(list, _)| order.u32(list.bytes_used));
        match at.checked_add(used as usize) {
            Some(next) if used > 0 => at = next,
            _ => return,
        }
    }
}

/// Returns the beginnings of journals of `len` bytes, one in each byte order, whose one transaction writes a
/// sector of zeros, and the unchanged volume header.
pub fn sample_journals(volume: &[u8], len: usize) -> Vec<Vec<u8>> {
    [JournalOrder::Little, JournalOrder::Big]
        .map(|order| sample(order, volume, len))
        .into()
}

fn sample(order: JournalOrder, volume: &[u8], len: usize) -> Vec<u8> {
    let used = LIST + 2 * SECTOR;
    let header = JournalHeaderRaw {
        magic: order.put_u32(JOURNAL_MAGIC),
        endian: order.put_u32(JOURNAL_ENDIAN),
        start: order.put_u64(SECTOR as u64),
        end: order.put_u64((SECTOR + used) as u64),
        size: order.put_u64(len as u64),
        block_list_size: order.put_u32(LIST as u32),
        checksum: [0; 4],
        header_size: order.put_u32(SECTOR as u32),
        sequence: order.put_u32(1),
    };
    let list = BlockListHeaderRaw {
        max_blocks: order.put_u16(31),
        num_blocks: order.put_u16(3),
        bytes_used: order.put_u32(used as u32),
        checksum: [0; 4],
        flags: order.put_u32(block_list_flags::FIRST),
    };
    let info = |number: u64, size: u32, checksum: u32| BlockInfoRaw {
        number: order.put_u64(number),
        size: order.put_u32(size),
        checksum: order.put_u32(checksum),
    };
    let last = (volume.len() / SECTOR) as u64 - 4;
    let infos = [
        info(0, 0, 1),
        info(last, SECTOR as u32, 0),
        info(HEADER_OFFSET / SECTOR as u64, SECTOR as u32, 0),
    ];
    let mut journal = vec![0; SECTOR + used];
    journal[..size_of_val(&header)].copy_from_slice(header.as_bytes());
    let list = [list.as_bytes(), infos.as_bytes()].concat();
    journal[SECTOR..][..list.len()].copy_from_slice(&list);
    let changed = &mut journal[SECTOR + LIST + SECTOR..];
    changed.copy_from_slice(&volume[HEADER_OFFSET as usize..][..SECTOR]);
    reseal_journal(&mut journal);
    journal
}
