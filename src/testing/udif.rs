//! UDIF images constructed byte by byte, for tests of readers and editors, without any encoder of
//! the library.
//!
//! Source: docs/formats/udif.md.

use std::io::Write;

use sha2::{Digest, Sha256};

use crate::codec::Codec;
use crate::container::udif::{Resource, image_list, read_list};
use crate::device::Memory;

const SECTOR: usize = 512;
/// Sectors of a chunk.
const CHUNK: usize = 64;

/// Creates an image of `disk`, a number of whole sectors, in two areas. Chunks are compressed by
/// `codec`, or stored raw; zero chunks are marked as such. All checksums are present.
pub fn image(disk: &[u8], codec: Option<Codec>) -> Vec<u8> {
    assert!(disk.len().is_multiple_of(SECTOR));
    let middle = disk.len() / SECTOR / 2 * SECTOR;
    let (mut fork, mut resources, mut master) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (start, area)) in [(0, &disk[..middle]), (middle, &disk[middle..])]
        .into_iter()
        .enumerate()
    {
        let sum = crc32fast::hash(area);
        master.extend(sum.to_be_bytes());
        let data = table(start, number as u32, area, sum, codec, &mut fork);
        resources.push(resource(
            "blkx",
            &(number as i32 - 1).to_string(),
            &format!("area (test : {number})"),
            data,
        ));
    }
    resources.push(resource("plst", "0", "", vec![0; 1032]));
    let list = image_list(&resources).expect("names are plain");
    let list_at = fork.len() as u64;
    let mut trailer = vec![0; 512];
    trailer[..16].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0\0\0\0\x01");
    trailer[0x20..0x28].copy_from_slice(&list_at.to_be_bytes());
    trailer[0x50..0x5c].copy_from_slice(&words([2, 32, crc32fast::hash(&fork)]));
    trailer[0xd8..0xe8]
        .copy_from_slice(&[list_at.to_be_bytes(), (list.len() as u64).to_be_bytes()].concat());
    trailer[0x160..0x16c].copy_from_slice(&words([2, 32, crc32fast::hash(&master)]));
    trailer[0x1e8..0x1ec].copy_from_slice(&words([1]));
    trailer[0x1ec..0x1f4].copy_from_slice(&((disk.len() / SECTOR) as u64).to_be_bytes());
    [fork, list, trailer].concat()
}

/// Returns `image` with placeholder data for a code signature.
pub fn signed(image: &[u8]) -> Vec<u8> {
    let at = image.len() - 512;
    let blob = [&b"\xfa\xde\x0c\xc0\0\0\0\x64"[..], &[0x33; 92]].concat();
    let mut trailer = image[at..].to_vec();
    trailer[0x128..0x138]
        .copy_from_slice(&[(at as u64).to_be_bytes(), (blob.len() as u64).to_be_bytes()].concat());
    [&image[..at], &blob, &trailer].concat()
}

/// Returns `image` with a code signature without certificates: SHA-256 hashes of pages of 2^`log`
/// bytes, or of the whole file if `log` is 0, and of the trailer.
pub fn with_signature(image: &[u8], log: u8) -> Vec<u8> {
    let at = image.len() - SECTOR;
    let page = if log == 0 { at } else { 1 << log };
    let hash = |bytes: &[u8]| Sha256::digest(bytes).to_vec();
    let pages: Vec<_> = image[..at].chunks(page).map(hash).collect();
    let names = b"org.example.disk\0TEAM\0";
    let (special, header) = (6, 64);
    let hashes_at = header + names.len() + special * 32;
    let len = hashes_at + pages.len() * 32;
    let mut blob = words([0xFADE_0CC0, (20 + len) as u32, 1, 0, 20]);
    blob.extend(words([0xFADE_0C02, len as u32, 0x2_0300, 2]));
    blob.extend(words([hashes_at as u32, header as u32, special as u32]));
    blob.extend(words([pages.len() as u32, at as u32]));
    blob.extend([32, 2, 0, log]);
    blob.extend(words([0, 0, header as u32 + 17, 0, 0, 0]));
    blob.extend(names);
    let mut trailer = image[at..].to_vec();
    trailer[0x128..0x130].copy_from_slice(&(at as u64).to_be_bytes());
    // Slot 6 is the first of the special ones, which are stored backwards.
    blob.extend(hash(&trailer));
    blob.extend([0; 5 * 32]);
    blob.extend(pages.concat());
    trailer[0x130..0x138].copy_from_slice(&(blob.len() as u64).to_be_bytes());
    [&image[..at], &blob, &trailer].concat()
}

/// Returns `image` with its block tables in a binary resource fork, the original form, and a `vers`
/// resource that no list has. With `both` the list is kept, the intermediate form.
pub fn with_fork(image: &[u8], both: bool) -> Vec<u8> {
    let (list, _) = read_list(&Memory::read_only(image)).expect("the image is good");
    let tables = list
        .into_iter()
        .filter(|resource| resource.kind == "blkx")
        .map(|table| table.data)
        .collect();
    let fork = fork(&[("blkx", tables), ("vers", vec![b"1.0".to_vec()])]);
    let mut trailer = image[image.len() - 512..].to_vec();
    let number =
        |at: usize| u64::from_be_bytes(trailer[at..at + 8].try_into().expect("eight bytes"));
    let at = if both {
        number(0xd8) + number(0xe0)
    } else {
        number(0xd8)
    };
    trailer[0x28..0x38]
        .copy_from_slice(&[at.to_be_bytes(), (fork.len() as u64).to_be_bytes()].concat());
    if !both {
        trailer[0xd8..0xe8].fill(0);
    }
    [&image[..at as usize], &fork, &trailer].concat()
}

/// Returns a resource fork: a header of 256 bytes, data with their lengths, a map of kinds,
/// references and names. The first of each kind has number 1, and all are named café in Mac Roman.
fn fork(kinds: &[(&str, Vec<Vec<u8>>)]) -> Vec<u8> {
    let (mut data, mut types, mut references) = (Vec::new(), Vec::new(), Vec::new());
    types.extend((kinds.len() as u16 - 1).to_be_bytes());
    for (kind, resources) in kinds {
        types.extend(kind.as_bytes());
        types.extend((resources.len() as u16 - 1).to_be_bytes());
        types.extend(((2 + 8 * kinds.len() + references.len()) as u16).to_be_bytes());
        for (number, bytes) in (1u16..).zip(resources) {
            references.extend(
                [
                    &number.to_be_bytes()[..],
                    &[0, 0],
                    &(data.len() as u32).to_be_bytes(),
                    &[0; 4],
                ]
                .concat(),
            );
            data.extend((bytes.len() as u32).to_be_bytes());
            data.extend(bytes);
        }
    }
    let names = 28 + types.len() + references.len();
    let map = [
        &[0; 24][..],
        &[0, 28],
        &(names as u16).to_be_bytes(),
        &types,
        &references,
        b"\x04caf\x8e",
    ]
    .concat();
    let header = words([
        256,
        256 + data.len() as u32,
        data.len() as u32,
        map.len() as u32,
    ]);
    [header, vec![0; 240], data, map].concat()
}

fn resource(kind: &str, id: &str, name: &str, data: Vec<u8>) -> Resource {
    let (kind, id, name, attributes) = (kind.into(), id.into(), name.into(), "0x0050".into());
    Resource {
        kind,
        id,
        name,
        attributes,
        data,
        cf_name: None,
    }
}

fn table(
    start: usize,
    number: u32,
    area: &[u8],
    sum: u32,
    codec: Option<Codec>,
    fork: &mut Vec<u8>,
) -> Vec<u8> {
    let mut runs = Vec::new();
    let mut run = |kind: u32, place: [usize; 4]| {
        runs.extend(words([kind, 0]));
        place
            .iter()
            .for_each(|&number| runs.extend((number as u64).to_be_bytes()));
    };
    for (n, plain) in area.chunks(CHUNK * SECTOR).enumerate() {
        let sectors = [n * CHUNK, plain.len() / SECTOR];
        if plain.iter().all(|&byte| byte == 0) {
            run(0, [sectors[0], sectors[1], fork.len(), 0]);
            continue;
        }
        let packed = codec
            .map(|codec| (kind(codec), packed(codec, plain)))
            .filter(|(_, packed)| packed.len() < plain.len());
        let (kind, stored) = packed.unwrap_or_else(|| (1, plain.to_vec()));
        run(kind, [sectors[0], sectors[1], fork.len(), stored.len()]);
        fork.extend(stored);
    }
    run(0xffff_ffff, [area.len() / SECTOR, 0, fork.len(), 0]);
    let mut table = [
        &b"mish\0\0\0\x01"[..],
        &((start / SECTOR) as u64).to_be_bytes(),
    ]
    .concat();
    table.extend(((area.len() / SECTOR) as u64).to_be_bytes());
    table.extend([0; 8]);
    table.extend(words([CHUNK as u32 + 8, number]));
    table.resize(0x40, 0);
    table.extend(words([2, 32, sum]));
    table.resize(0xc8, 0);
    table.extend(words([(runs.len() / 40) as u32]));
    [table, runs].concat()
}

fn kind(codec: Codec) -> u32 {
    match codec {
        Codec::Adc => 0x8000_0004,
        Codec::Zlib => 0x8000_0005,
        Codec::Bzip2 => 0x8000_0006,
        Codec::Lzfse => 0x8000_0007,
        Codec::Lzma => 0x8000_0008,
    }
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a stream of `codec` that decodes to `plain`. That of ADC encodes only runs of one byte
/// as matches.
pub fn packed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let done = match codec {
        Codec::Adc => {
            packed = adc(plain);
            Ok(())
        }
        Codec::Zlib => flate2::write::ZlibEncoder::new(&mut packed, flate2::Compression::default())
            .write_all(plain),
        Codec::Bzip2 => {
            bzip2::write::BzEncoder::new(&mut packed, bzip2::Compression::best()).write_all(plain)
        }
        Codec::Lzfse => lzfse_rust::encode_bytes(plain, &mut packed)
            .map(drop)
            .map_err(std::io::Error::other),
        Codec::Lzma => {
            let options = lzma_rust2::XzOptions::with_preset(1);
            let stream = lzma_rust2::XzWriter::new(&mut packed, options);
            stream.and_then(|mut stream| {
                stream
                    .write_all(plain)
                    .and_then(|()| stream.finish().map(drop))
            })
        }
    };
    done.expect("memory takes everything");
    packed
}

/// Encodes runs of up to 128 bytes as literals; a byte that occurs 5 to 68 times once, followed by
/// a match at distance one.
fn adc(plain: &[u8]) -> Vec<u8> {
    let (mut packed, mut at, mut literal) = (Vec::new(), 0, Vec::new());
    let flush = |packed: &mut Vec<u8>, literal: &mut Vec<u8>| {
        literal
            .chunks(128)
            .for_each(|run| packed.extend([&[0x7f + run.len() as u8][..], run].concat()));
        literal.clear();
    };
    while at < plain.len() {
        let same = plain[at..]
            .iter()
            .take(68)
            .take_while(|&&byte| byte == plain[at])
            .count();
        literal.push(plain[at]);
        at += 1;
        if same >= 5 {
            flush(&mut packed, &mut literal);
            packed.extend([0x40 + (same - 1 - 4) as u8, 0, 0]);
            at += same - 1;
        }
    }
    flush(&mut packed, &mut literal);
    packed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::container::udif::Udif;
    use crate::device::BlockDeviceExt;
    use crate::progress::Silent;

    #[test]
    fn images_are_good() {
        let mut disk: Vec<u8> = (0..300 * SECTOR).map(|n| (n / 100 % 7) as u8).collect();
        disk[100 * SECTOR..200 * SECTOR].fill(0);
        let codecs = [
            Codec::Adc,
            Codec::Zlib,
            Codec::Bzip2,
            Codec::Lzfse,
            Codec::Lzma,
        ];
        for codec in codecs.into_iter().map(Some).chain([None]) {
            let image = Udif::open(Arc::new(Memory::read_only(image(&disk, codec)))).unwrap();
            assert_eq!(image.read_vec(0, disk.len()).unwrap(), disk, "{codec:?}");
            assert!(image.warnings().is_empty());
            let verdicts = image.verify(&Silent).unwrap();
            assert!(
                verdicts.len() == 4
                    && verdicts
                        .iter()
                        .all(|verdict| verdict.agrees() == Some(true)),
                "{verdicts:?}"
            );
        }
    }
}
