//! Images of Disk Copy 4.2 for tests.

use zerocopy::IntoBytes;

use super::disk_copy_sum;
use super::layout::{DISKS, DiskCopyRaw, MAGIC};
use crate::size::narrow;

/// Returns the image of a disk with its tags, which may be none.
pub fn image(disk: &[u8], tags: &[u8]) -> Vec<u8> {
    let mut name = [0; 63];
    name[..4].copy_from_slice(b"Disk");
    let len = narrow::<u32>(disk.len());
    let code = DISKS.iter().find(|(_, size, _)| *size == len);
    let header = DiskCopyRaw {
        name_length: 4,
        name,
        data_size: len.into(),
        tag_size: narrow::<u32>(tags.len()).into(),
        data_checksum: disk_copy_sum(0, disk).into(),
        tag_checksum: disk_copy_sum(0, tags.get(12..).unwrap_or_default()).into(),
        disk_format: code.map_or(1, |(code, ..)| *code),
        format: 0x22,
        magic: MAGIC,
    };
    [header.as_bytes(), disk, tags].concat()
}
