//! Sets of EWF files for tests.

use md5::{Digest, Md5};
use sha1::Sha1;
use zerocopy::IntoBytes;

use super::adler32;
use super::layout::{DigestRaw, PACKED, SIGNATURE, SectionRaw, SegmentRaw, TableRaw, VolumeRaw};
use crate::codec::{Codec, Encoder, Level};
use crate::size::narrow;

/// Sectors of a chunk.
const CHUNK_SECTORS: usize = 64;

/// Returns the files of a set, each with so many chunks.
pub fn set(disk: &[u8], chunks: usize) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(Codec::Zlib, Level::default());
    let size = CHUNK_SECTORS * 512;
    let pieces: Vec<_> = disk.chunks(size * chunks).collect();
    let last = pieces.len() - 1;
    let part = |(number, piece): (usize, &&[u8])| {
        let header = SegmentRaw {
            signature: SIGNATURE,
            fields_start: 1,
            number: narrow::<u16>(number + 1).into(),
            fields_end: 0.into(),
        };
        let mut file = header.as_bytes().to_vec();
        if number == 0 {
            let volume = VolumeRaw {
                media: [1, 0, 0, 0],
                chunks: narrow::<u32>(disk.len().div_ceil(size)).into(),
                chunk_sectors: narrow::<u32>(CHUNK_SECTORS).into(),
                sector_size: 512.into(),
                sectors: (disk.len() as u64 / 512).into(),
            };
            let mut contents = volume.as_bytes().to_vec();
            contents.resize(1048, 0);
            contents.extend(adler32(&contents).to_le_bytes());
            section(&mut file, "volume", &contents);
        }
        let base = file.len() + size_of::<SectionRaw>();
        let (mut data, mut entries) = (Vec::new(), Vec::new());
        for plain in piece.chunks(size) {
            let at = narrow::<u32>(data.len());
            let is_packed = encoder.encode(plain, &mut data).unwrap_or(false);
            if !is_packed {
                data.extend(plain);
                data.extend(adler32(plain).to_le_bytes());
            }
            let flag = if is_packed { PACKED } else { 0 };
            entries.extend((at | flag).to_le_bytes());
        }
        section(&mut file, "sectors", &data);
        let mut table = TableRaw {
            entries: narrow::<u32>(entries.len() / 4).into(),
            padding_1: 0.into(),
            base: (base as u64).into(),
            padding_2: 0.into(),
            checksum: 0.into(),
        };
        table.checksum = adler32(&table.as_bytes()[..20]).into();
        let sum = adler32(&entries).to_le_bytes();
        section(
            &mut file,
            "table",
            &[table.as_bytes(), &entries, &sum].concat(),
        );
        if number == last {
            let mut digest = DigestRaw {
                md5: Md5::digest(disk).into(),
                sha1: Sha1::digest(disk).into(),
                padding: [0; 40],
                checksum: 0.into(),
            };
            digest.checksum = adler32(&digest.as_bytes()[..76]).into();
            section(&mut file, "digest", digest.as_bytes());
        }
        let end = if number == last { "done" } else { "next" };
        section(&mut file, end, &[]);
        file
    };
    pieces.iter().enumerate().map(part).collect()
}

fn section(file: &mut Vec<u8>, name: &str, contents: &[u8]) {
    let (mut kind, at) = ([0; 16], file.len() as u64);
    kind[..name.len()].copy_from_slice(name.as_bytes());
    let size = size_of::<SectionRaw>() as u64 + contents.len() as u64;
    let is_last = contents.is_empty();
    let mut raw = SectionRaw {
        kind,
        next: if is_last { at } else { at + size }.into(),
        size: size.into(),
        padding: [0; 40],
        checksum: 0.into(),
    };
    raw.checksum = adler32(&raw.as_bytes()[..72]).into();
    file.extend(raw.as_bytes());
    file.extend(contents);
}
