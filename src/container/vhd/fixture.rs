//! VHD images for tests.

use zerocopy::{FromZeros, IntoBytes};

use super::checksum;
use super::layout::{DYNAMIC, FIXED, FOOTER_COOKIE, FooterRaw, SPARSE_COOKIE, SparseRaw, UNUSED};
use crate::size::narrow;

/// Returns the image of a disk, fixed or in blocks of this size in bytes. Blocks of zeros are holes.
pub fn image(disk: &[u8], block: Option<usize>) -> Vec<u8> {
    let mut footer = FooterRaw::new_zeroed();
    footer.cookie = FOOTER_COOKIE;
    footer.features = 2.into();
    footer.version = 0x1_0000.into();
    footer.data_offset = match block {
        Some(_) => 512.into(),
        None => u64::MAX.into(),
    };
    footer.size = (disk.len() as u64).into();
    footer.original_size = footer.size;
    footer.kind = block.map_or(FIXED, |_| DYNAMIC).into();
    footer.checksum = checksum(footer.as_bytes()).into();
    let Some(size) = block else {
        return [disk, footer.as_bytes()].concat();
    };
    let blocks: Vec<_> = disk.chunks(size).collect();
    let mut header = SparseRaw::new_zeroed();
    header.cookie = SPARSE_COOKIE;
    header.data_offset = u64::MAX.into();
    header.table_offset = 1536.into();
    header.version = 0x1_0000.into();
    header.entries = narrow::<u32>(blocks.len()).into();
    header.block_size = narrow::<u32>(size).into();
    header.checksum = checksum(header.as_bytes()).into();
    let bitmap = (size / 512).div_ceil(8).next_multiple_of(512);
    let mut at = 1536 + (blocks.len() * 4).next_multiple_of(512);
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for plain in blocks {
        if plain.iter().all(|byte| *byte == 0) {
            table.extend(UNUSED.to_be_bytes());
            continue;
        }
        table.extend(narrow::<u32>(at / 512).to_be_bytes());
        data.extend(vec![0xFF; bitmap]);
        data.extend(plain);
        data.resize(data.len() + size - plain.len(), 0);
        at += bitmap + size;
    }
    table.resize(table.len().next_multiple_of(512), 0xFF);
    let parts = [
        footer.as_bytes(),
        header.as_bytes(),
        &table,
        &data,
        footer.as_bytes(),
    ];
    parts.concat()
}
