//! Compressed files.

use std::sync::Arc;

use crate::codec::{Codec, Encoder, Level};
use crate::decmpfs::{Bounds, Method, PackOptions, PlainContents, contents, pack};
use crate::device::{BlockDeviceExt, Memory};
use crate::progress::Silent;

/// Maximum number of bytes of the contents that are read.
const MAX_LEN: u64 = 300_000;

/// Takes an input of a type (8 bits), a size (24 bits), the length of the attribute (16 bits), its
/// contents, and a resource fork. The file is refused, or it has contents of that size, in which a
/// partial read matches the whole.
pub fn decmpfs(input: &[u8]) {
    let Some((&[number, size @ .., low, high], rest)) = input.split_first_chunk::<6>() else {
        return;
    };
    let size = size
        .into_iter()
        .rev()
        .fold(0, |size, byte| size << 8 | u64::from(byte));
    let (inside, fork) =
        rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([low, high]))));
    let value = [
        &b"fpmc"[..],
        &u32::from(number).to_le_bytes(),
        &size.to_le_bytes(),
        inside,
    ]
    .concat();
    let Ok(device) = contents(&value, || Ok(Arc::new(Memory::read_only(fork)))) else {
        return;
    };
    assert_eq!(device.info().len, size);
    let len = size.min(MAX_LEN);
    let Ok(all) = device.read_vec(0, len as usize) else {
        return;
    };
    for at in (0..len).step_by(50_021) {
        let piece = device
            .read_vec(at, (len - at).min(70_001) as usize)
            .expect("all of it was read");
        assert!(all[at as usize..].starts_with(&piece), "at {at}");
    }
}

/// Takes an input of a compression method (8 bits), the maximum length of the fork (16 bits), the
/// number of repetitions of the rest (8 bits), and the rest. The compressed data is within its
/// bounds and decompresses to the original.
pub fn decmpfs_pack(input: &[u8]) {
    const METHODS: [Method; 3] = [Method::Zlib, Method::Lzvn, Method::Lzfse];
    let Some((&[method, low, high, times], rest)) = input.split_first_chunk::<4>() else {
        return;
    };
    let plain = rest.repeat(usize::from(times) + 1);
    let plain = &plain[..plain.len().min(MAX_LEN as usize)];
    let level = Level::new(method / 3 % 9 + 1).expect("from 1 to 9");
    let packing =
        PackOptions::new(METHODS[usize::from(method) % 3], level).expect("these are written");
    let bounds = Bounds {
        attribute: 3802,
        fork: u64::from(u16::from_le_bytes([low, high])) * 8,
    };
    let mut fork = Vec::new();
    let mut write = |at: u64, bytes: &[u8]| {
        let end = at as usize + bytes.len();
        fork.resize(fork.len().max(end), 0);
        fork[at as usize..end].copy_from_slice(bytes);
        Ok(())
    };
    let mut read = |at: u64, buf: &mut [u8]| {
        buf.copy_from_slice(&plain[at as usize..at as usize + buf.len()]);
        Ok(())
    };
    let source = PlainContents {
        len: plain.len() as u64,
        read: &mut read,
    };
    let Ok(Some(packed)) = pack(source, packing, bounds, &Silent, &mut write) else {
        return;
    };
    assert!(
        packed.attribute.len() <= 3802
            && packed.fork_len <= bounds.fork
            && packed.fork_len == fork.len() as u64
    );
    let device = contents(&packed.attribute, || Ok(Arc::new(Memory::read_only(fork))))
        .expect("what was packed opens");
    assert!(
        device
            .read_vec(0, device.info().len as usize)
            .expect("what was packed unpacks")
            == plain
    );
}

pub(super) fn pack_seeds() -> Vec<Vec<u8>> {
    let text: Vec<u8> = (0_u32..)
        .flat_map(|n| format!("{n}, ").into_bytes())
        .take(900)
        .collect();
    let seed = |method: u8, times: u8| [&[method, 255, 255, times], &text[..]].concat();
    (0..3)
        .flat_map(|method| [seed(method, 0), seed(method, 80), seed(method + 12, 200)])
        .collect()
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain: Vec<u8> = (0_u32..)
        .flat_map(|n| format!("{n}, ").into_bytes())
        .take(70_000)
        .collect();
    let packed = |codec, plain: &[u8]| {
        let mut packed = Vec::new();
        Encoder::new(codec, Level::default())
            .encode(plain, &mut packed)
            .expect("anything can be compressed");
        packed
    };
    let seed = |number: u8, size: usize, inside: &[u8], fork: &[u8]| {
        let [low, middle, high, ..] = (size as u32).to_le_bytes();
        let [short, long] = (inside.len() as u16).to_le_bytes();
        [&[number, low, middle, high, short, long], inside, fork].concat()
    };
    let (first, last) = plain.split_at(65_536);
    let offsets = |first: &[u8], last: &[u8]| {
        let ends = [
            12,
            12 + first.len() as u32,
            (12 + first.len() + last.len()) as u32,
        ];
        [&ends.map(u32::to_le_bytes).concat(), first, last].concat()
    };
    let lzvn = [
        0xE5, b'h', b'e', b'l', b'l', b'o', 0x46, b'!', 0x38, 5, 0x06, 0, 0, 0, 0, 0, 0, 0,
    ];
    vec![
        seed(1, 5, b"hello", &[]),
        seed(3, 900, &packed(Codec::Zlib, &plain[..900]), &[]),
        seed(5, 9_000_000, &[], &[]),
        seed(7, 13, &lzvn, &[]),
        seed(9, 5, b"\xCChello", &[]),
        seed(11, 900, &packed(Codec::Lzfse, &plain[..900]), &[]),
        seed(
            12,
            plain.len(),
            &[],
            &offsets(&packed(Codec::Lzfse, first), &packed(Codec::Lzfse, last)),
        ),
        seed(13, 5, b"ZBM\x09\x0b\0\0\x05\0\0hello\x06\0\0\0\0\0", &[]),
        seed(
            10,
            plain.len(),
            &[],
            &offsets(&[b"\xCC", first].concat(), &[b"\xCC", last].concat()),
        ),
    ]
}
