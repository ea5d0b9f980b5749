//! Sparse images in one file: UDSP and ASIF.

use std::ops::Range;
use std::sync::Arc;

use super::{describe, disk};
use crate::Result;
use crate::container::asif::{self, Asif};
use crate::container::sparseimage::{self, SparseImage, SparseImageOptions};
use crate::device::{AfterDiscard, BlockDevice, BlockDeviceExt, Memory};
use crate::problem::{Problems, Severity};
use crate::progress::Silent;

/// Maximum number of runs of one image that are read, and of bytes of each.
const MAX_RUNS: usize = 20;
const MAX_BYTES: u64 = 4096;
/// Maximum length in bytes of a band that is written: here it is entirely in memory, while a file
/// would store only the written bytes.
const MAX_BAND: u64 = 4 << 20;

/// Takes an input that describes the file of a sparse image. If `check` finds no damage, it opens;
/// if it opens, its runs read the same twice, or not at all; and it can be written or returns an
/// error.
pub fn sparse_image(input: &[u8]) {
    let Some(file) = disk(input) else { return };
    let read_only: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(file.to_vec()));
    let mut problems = Problems::default();
    let is_damaged =
        sparseimage::check(&read_only, &mut problems, &Silent).is_err() || has_damage(&problems);
    let opened = SparseImage::open(read_only);
    agree(
        is_damaged,
        opened.as_ref().map(|image| image as &dyn BlockDevice),
    );
    if let Ok(image) = SparseImage::open(Arc::new(file))
        && image.band_size() <= MAX_BAND
    {
        change(&image);
    }
}

/// Takes an input that describes the file of an ASIF image. The assertions are those of
/// [`sparse_image`].
pub fn asif(input: &[u8]) {
    let Some(file) = disk(input) else { return };
    let read_only: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(file.to_vec()));
    let mut problems = Problems::default();
    let is_damaged =
        asif::check(&read_only, &mut problems, &Silent).is_err() || has_damage(&problems);
    let opened = Asif::open(read_only);
    agree(
        is_damaged,
        opened.as_ref().map(|image| image as &dyn BlockDevice),
    );
    if let Ok(image) = Asif::open(Arc::new(file)) {
        change(&image);
    }
}

fn has_damage(problems: &Problems) -> bool {
    problems.worst() == Some(Severity::Damage)
}

fn agree(is_damaged: bool, opened: Result<&dyn BlockDevice, &crate::Error>) {
    match opened {
        Err(error) => assert!(is_damaged, "does not open, but nothing is wrong: {error}"),
        Ok(image) => read(image),
    }
}

fn read(image: &dyn BlockDevice) {
    let len = image.info().len;
    assert!(len.is_multiple_of(512));
    for extent in image.extents(0..len).take(MAX_RUNS) {
        let Ok((range, _)) = extent else { return };
        let piece = (range.end - range.start).min(MAX_BYTES);
        let whole = image.read_vec(range.start, piece as usize).ok();
        let halves = [0..piece / 2, piece / 2..piece].map(|half| {
            image
                .read_vec(range.start + half.start, (half.end - half.start) as usize)
                .ok()
        });
        if let (Some(whole), [Some(first), Some(second)]) = (whole, halves) {
            assert!(whole == [first, second].concat());
        }
    }
    assert!(image.read_at(len, &mut [0]).is_err());
}

/// Checks that written data is there, and discarded data is not, as long as nothing fails.
fn change(image: &dyn BlockDevice) {
    let len = image.info().len;
    let places = [
        0..len.min(3000),
        len / 2..(len / 2 + 5000).min(len),
        len.saturating_sub(700)..len,
    ];
    for (number, place) in (1_u8..).zip(places) {
        if write(image, &place, number).is_err() {
            return;
        }
        let read = image.read_vec(place.start, (place.end - place.start) as usize);
        assert!(read.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == number)));
    }
    let dropped = image
        .discard(0..len.min(1 << 15), AfterDiscard::Zeros)
        .and_then(|()| image.flush());
    if dropped.is_ok() {
        let read = image.read_vec(0, len.min(1 << 15) as usize);
        assert!(read.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)));
    }
}

fn write(image: &dyn BlockDevice, place: &Range<u64>, byte: u8) -> Result<()> {
    image.write_at(place.start, &vec![byte; (place.end - place.start) as usize])?;
    image.flush()
}

/// Bytes of the smallest round chunk that contains a whole table of an ASIF image.
pub const SMALL_CHUNK: u64 = 36 * 512;

/// Creates a blank ASIF image with small chunks, for tests that read everything repeatedly. Such
/// images are not used in practice, but the header allows them. Three tables of 2048 chunks can be
/// addressed, and there is no metadata.
pub fn small_asif(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; SMALL_CHUNK as usize];
    let fields: [(usize, &[u8]); 8] = [
        (0, b"shdw\0\0\0\x01\0\0\x02\0"),
        (0x10, &512_u64.to_be_bytes()),
        (0x18, &1024_u64.to_be_bytes()),
        (0x20, &[7; 16]),
        (0x30, &(len / 512).to_be_bytes()),
        (0x38, &(3 * 2048 * 36_u64).to_be_bytes()),
        (0x40, &(SMALL_CHUNK as u32).to_be_bytes()),
        (0x44, &512_u16.to_be_bytes()),
    ];
    for (at, field) in fields {
        bytes[at..at + field.len()].copy_from_slice(field);
    }
    bytes
}

pub(super) fn sparse_image_seeds() -> Vec<Vec<u8>> {
    // Small bands, bands beyond the first node, and larger ones.
    [
        (64 << 10, 4096, 16 << 10),
        (600 << 10, 512, 530 << 10),
        (3 << 20, 64 << 10, 9000),
    ]
    .map(sparse_image_file)
    .into()
}

fn sparse_image_file((len, band_size, filled): (u64, u64, usize)) -> Vec<u8> {
    let file = Arc::new(Memory::zeros(0));
    let made = SparseImage::create(
        file.clone(),
        &SparseImageOptions {
            len,
            band_size: Some(band_size),
        },
    );
    let filled = made.and_then(|image| {
        image.write_at(0, &vec![5; filled])?;
        image.write_at(len - 512, &[6; 512])?;
        image.flush()
    });
    filled.expect("memory takes everything");
    describe(&file.to_vec())
}

pub(super) fn asif_seeds() -> Vec<Vec<u8>> {
    let file = Arc::new(Memory::from(small_asif(2049 * SMALL_CHUNK)));
    let filled = Asif::open(file.clone()).and_then(|image| {
        image.write_at(0, &vec![5; 2 * SMALL_CHUNK as usize])?;
        image.write_at(3 * SMALL_CHUNK + 1000, &[6; 700])?;
        image.write_at(2048 * SMALL_CHUNK, &[7; 512])?;
        image.flush()?;
        image.discard(SMALL_CHUNK..2 * SMALL_CHUNK, AfterDiscard::Zeros)?;
        image.flush()
    });
    filled.expect("memory takes everything");
    let blank = Arc::new(Memory::zeros(0));
    let options = asif::AsifOptions {
        len: 1 << 30,
        block: 512,
        kind: asif::LayerKind::Disk,
    };
    assert!(Asif::create(blank.clone(), &options).is_ok());
    vec![describe(&file.to_vec()), describe(&blank.to_vec())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_good() {
        for seed in sparse_image_seeds() {
            let image = SparseImage::open(Arc::new(disk(&seed).unwrap())).unwrap();
            assert_eq!(image.read_vec(0, 512).unwrap(), [5; 512]);
        }
        for seed in asif_seeds() {
            let mut problems = Problems::default();
            let file: Arc<dyn BlockDevice> = Arc::new(disk(&seed).unwrap());
            asif::check(&file, &mut problems, &Silent).unwrap();
            assert_eq!(problems.worst(), None);
        }
    }
}
