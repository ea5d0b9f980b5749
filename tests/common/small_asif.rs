//! ASIF images with small chunks.

use bandsaw::Result;
use bandsaw::container::asif::Asif;
use bandsaw::device::Leave;
use bandsaw::store::{Open, Store};

/// Bytes of the smallest round chunk that a table fits in.
pub(crate) const SMALL: u64 = 36 * 512;

/// A blank image with small chunks, for tests that go over everything again and again. Nobody makes such, but the header
/// allows it. Three tables of 2048 chunks can be addressed, and there is no metadata.
pub(crate) fn with_small_chunks(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; SMALL as usize];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, b"shdw\0\0\0\x01\0\0\x02\0");
    put(0x10, &512_u64.to_be_bytes());
    put(0x18, &1024_u64.to_be_bytes());
    put(0x20, &[7; 16]);
    put(0x30, &(len / 512).to_be_bytes());
    put(0x38, &(3 * 2048 * 36_u64).to_be_bytes());
    put(0x40, &(SMALL as u32).to_be_bytes());
    put(0x44, &512_u16.to_be_bytes());
    bytes
}

pub(crate) fn small_image(store: &dyn Store, len: u64) -> Result<Asif> {
    let file = store.open("disk.asif", Open::CreateNew)?.expect("a new file");
    file.set_len(SMALL, Leave::Zeros)?;
    file.write_at(0, &with_small_chunks(len))?;
    file.flush()?;
    store.sync()?;
    Asif::open(file)
}
