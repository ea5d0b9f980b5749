//! Malicious compressed images: each is refused with the layer and the offset of the invalid field,
//! before it takes memory or time.

use std::sync::Arc;

use bandsaw::codec::Codec;
use bandsaw::container::udif::{Udif, image_list, read_list};
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};
use bandsaw::error::Place;
use bandsaw::progress::Silent;
use bandsaw::testing::udif;
use bandsaw::{Error, Kind, Result};

const LEN: usize = 600 * 512;
/// Offset of the runs in a block table, and length of a run.
const RUNS: usize = 0xcc;
const RUN: usize = 40;
const KIND: usize = 0;
const FIRST: usize = 8;
const COUNT: usize = 16;
const OFFSET: usize = 24;
const LENGTH: usize = 32;

fn disk() -> Vec<u8> {
    (0..LEN).map(|n| (n / 7 % 251) as u8).collect()
}

fn open(image: Vec<u8>) -> Result<Udif> {
    Udif::open(Arc::new(Memory::read_only(image)))
}

/// Returns the image with its first block table changed.
fn with_table(codec: Option<Codec>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let good = udif::image(&disk(), codec);
    let (mut resources, _) = read_list(&Memory::read_only(good.clone())).unwrap();
    change(&mut resources[0].data);
    let list = image_list(&resources).unwrap();
    let mut trailer = good[good.len() - 512..].to_vec();
    let at = u64::from_be_bytes(trailer[0xd8..0xe0].try_into().unwrap()) as usize;
    trailer[0xe0..0xe8].copy_from_slice(&(list.len() as u64).to_be_bytes());
    [&good[..at], &list, &trailer].concat()
}

/// Returns the image with a field of its trailer changed.
fn with_trailer(field: usize, value: u64) -> Vec<u8> {
    let mut image = udif::image(&disk(), None);
    let at = image.len() - 512 + field;
    image[at..at + 8].copy_from_slice(&value.to_be_bytes());
    image
}

fn put(table: &mut [u8], run: usize, field: usize, value: u64) {
    let at = RUNS + run * RUN + field;
    table[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// Opens an image and returns the error, which must have this layer and offset.
fn refused(image: Vec<u8>, layer: &str, offset: u64) -> Error {
    let error = open(image).unwrap_err();
    assert_eq!(
        (error.layer(), error.place()),
        (layer, &Place::Offset(offset)),
        "{error}"
    );
    assert_eq!(error.kind(), Kind::Corrupt, "{error}");
    error
}

#[test]
fn chunks_outside_the_file() {
    for (field, value) in [
        (OFFSET, 1 << 40),
        (LENGTH, 1 << 40),
        (OFFSET, u64::MAX - 5),
        (LENGTH, u64::MAX),
    ] {
        let error = refused(
            with_table(None, |table| put(table, 1, field, value)),
            "udif chunk map",
            64 * 512,
        );
        assert!(
            error.message().contains("past the end of the data fork"),
            "{error}"
        );
    }
}

#[test]
fn places_that_overflow() {
    // The table's own base, added to the offset of each run.
    let image = with_table(None, |table| {
        table[0x18..0x20].copy_from_slice(&u64::MAX.to_be_bytes());
        put(table, 1, OFFSET, 1);
    });
    let error = open(image).unwrap_err();
    assert!(
        error.layer() == "udif block table" || error.layer() == "udif chunk map",
        "{error}"
    );
}

#[test]
fn overlapping_chunks() {
    let error = refused(
        with_table(None, |table| put(table, 1, FIRST, 63)),
        "udif chunk map",
        63 * 512,
    );
    assert!(error.message().contains("two chunks"), "{error}");
}

#[test]
fn runs_outside_their_table() {
    for (field, value) in [
        (FIRST, 1 << 30),
        (COUNT, 1 << 30),
        (COUNT, u64::MAX),
        (FIRST, u64::MAX),
    ] {
        refused(
            with_table(None, |table| put(table, 1, field, value)),
            "udif block table",
            (RUNS + RUN) as u64,
        );
    }
}

#[test]
fn more_runs_than_there_is_room_for() {
    for count in [1000, u32::MAX] {
        let image = with_table(None, |table| {
            table[0xc8..0xcc].copy_from_slice(&count.to_be_bytes())
        });
        refused(image, "udif block table", 0xc8);
    }
}

#[test]
fn a_table_beyond_any_disk() {
    for value in [u64::MAX, 1 << 60] {
        refused(
            with_table(None, |table| {
                table[8..16].copy_from_slice(&value.to_be_bytes())
            }),
            "udif block table",
            8,
        );
    }
}

#[test]
fn tables_outside_the_disk() {
    let error = refused(with_trailer(0x1ec, 100), "udif", 0x1ec);
    assert!(error.message().contains("100 sectors"), "{error}");
    refused(with_trailer(0x1ec, u64::MAX), "udif", 0x1ec);
}

#[test]
fn forks_and_lists_outside_the_file() {
    let at = udif::image(&disk(), None).len() as u64 - 512;
    // Adjacent offsets and lengths; the error names the first of the two.
    for (field, named) in [
        (0x18, 0x18),
        (0x20, 0x18),
        (0x28, 0x28),
        (0x30, 0x28),
        (0xd8, 0xd8),
        (0xe0, 0xd8),
        (0x128, 0x128),
    ] {
        for value in [u64::MAX, 1 << 40] {
            refused(with_trailer(field, value), "udif trailer", at + named);
        }
    }
}

#[test]
fn a_stream_of_more_than_it_says() {
    // A mebibyte of zeros in a thousand bytes, for a chunk of 32 KiB: decoding stops at the end of
    // the chunk.
    let bomb = udif::packed(Codec::Zlib, &vec![0; 1 << 20]);
    let mut image = with_table(Some(Codec::Zlib), |table| {
        put(table, 0, LENGTH, bomb.len() as u64)
    });
    image[..bomb.len()].copy_from_slice(&bomb);
    let error = open(image).unwrap().read_vec(0, 512).unwrap_err();
    assert_eq!(
        (error.kind(), error.layer(), error.place()),
        (Kind::Corrupt, "udif", &Place::Offset(0)),
        "{error}"
    );
}

#[test]
fn a_chunk_of_more_than_is_decoded_at_once() {
    let image = with_table(Some(Codec::Zlib), |table| {
        table.truncate(RUNS + RUN);
        table[0x10..0x18].copy_from_slice(&(1u64 << 40).to_be_bytes());
        table[0xc8..0xcc].copy_from_slice(&1u32.to_be_bytes());
        put(table, 0, COUNT, 1 << 40);
    });
    let error = refused(image, "udif chunk map", 0);
    assert!(error.message().contains("at most"), "{error}");
}

#[test]
fn streams_that_say_nothing() {
    for codec in [
        Codec::Adc,
        Codec::Zlib,
        Codec::Bzip2,
        Codec::Lzfse,
        Codec::Lzma,
    ] {
        let image = with_table(Some(codec), |table| put(table, 1, LENGTH, 0));
        let image = open(image).unwrap();
        let error = image.read_vec(64 * 512, 512).unwrap_err();
        assert_eq!(
            (error.kind(), error.layer()),
            (Kind::Corrupt, "udif"),
            "{codec:?}: {error}"
        );
        assert!(image.verify(&Silent).is_err(), "{codec:?}");
        assert!(image.read_vec(0, 512).is_ok(), "the chunk before is whole");
    }
}

#[test]
fn a_table_for_every_sector_is_missed() {
    // A longer disk than the tables cover: zeros are read, with a warning, and verify fails.
    let image = open(with_trailer(0x1ec, 700)).unwrap();
    assert_eq!(image.info().len, 700 * 512);
    assert!(
        image.warnings()[0].contains("sectors 600 to 699"),
        "{:?}",
        image.warnings()
    );
    let error = image.verify(&Silent).unwrap_err();
    assert_eq!(
        (error.layer(), error.place()),
        ("udif chunk map", &Place::Offset(600 * 512)),
        "{error}"
    );
}

#[test]
fn an_image_without_tables_is_none() {
    let good = udif::image(&disk(), None);
    let text = String::from_utf8_lossy(&good).into_owned();
    assert!(text.contains("blkx"));
    let at = good.windows(4).position(|bytes| bytes == b"blkx").unwrap();
    let mut image = good;
    image[at..at + 4].copy_from_slice(b"blky");
    let error = open(image).unwrap_err();
    assert!(
        error.kind() == Kind::Corrupt && error.message().contains("block table"),
        "{error}"
    );
}

#[test]
fn very_long_ignore_runs_are_read() {
    // 2^50 unused sectors in one run.
    let sectors = 1u64 << 50;
    let mut image = with_table(None, |table| {
        table.truncate(RUNS + RUN);
        table[8..16].copy_from_slice(&600u64.to_be_bytes());
        table[0x10..0x18].copy_from_slice(&sectors.to_be_bytes());
        table[0x40..0xc8].fill(0);
        table[0xc8..0xcc].copy_from_slice(&1u32.to_be_bytes());
        table[RUNS + KIND..RUNS + 4].copy_from_slice(&2u32.to_be_bytes());
        put(table, 0, COUNT, sectors);
    });
    let at = image.len() - 512 + 0x1ec;
    image[at..at + 8].fill(0);
    let image = open(image).unwrap();
    assert_eq!(image.info().len, (600 + sectors) * 512);
    assert_eq!(
        image.read_vec((600 + sectors - 1) * 512, 512).unwrap(),
        vec![0; 512]
    );
    assert!(
        image.verify(&Silent).is_err(),
        "the first sectors are in no table now"
    );
}
