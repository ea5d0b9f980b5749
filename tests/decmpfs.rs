//! Compressed files made by macOS: their decompressed data has the known checksums.

use std::sync::Arc;

use crate::common::corpus::{self, Image, sha256};
use bandsaw::decmpfs::contents;
use bandsaw::device::{BlockDevice, BlockDeviceExt, Memory};

/// Returns the attribute of a file of `size` bytes with compression type `number`.
fn attribute(number: u32, size: u64, payload: &[u8]) -> Vec<u8> {
    [
        &b"fpmc"[..],
        &number.to_le_bytes(),
        &size.to_le_bytes(),
        payload,
    ]
    .concat()
}

/// Returns the type of a piece of the corpus: `decmpfs data, type 8 (LZVN, resource fork)`,
/// `decmpfs data, type 3 (inline, ...)`.
fn kind(piece: &Image) -> (u32, bool) {
    let (_, report) = piece.format().split_once("type ").expect("a type");
    let digits: String = report.chars().take_while(char::is_ascii_digit).collect();
    (
        digits.parse().expect("a number"),
        report.contains("resource fork"),
    )
}

#[test]
fn pieces_decode_to_what_they_were() {
    let Some(images) = corpus::images("pieces_decode_to_what_they_were") else {
        return;
    };
    let pieces: Vec<_> = images
        .iter()
        .filter(|image| image.format().starts_with("decmpfs"))
        .collect();
    assert!(pieces.len() >= 5);
    for piece in pieces {
        let (number, in_fork) = kind(piece);
        let bytes = piece.bytes().expect("a file");
        let known = &piece.entry()["files"][0];
        let size = known["size"].as_u64().expect("a size");
        let (payload, fork) = if in_fork {
            (Vec::new(), bytes)
        } else {
            (bytes, Vec::new())
        };
        let fork: Arc<dyn BlockDevice> = Arc::new(Memory::read_only(fork));
        let device = contents(&attribute(number, size, &payload), || Ok(fork))
            .and_then(|device| device.read_vec(0, size as usize))
            .unwrap_or_else(|error| panic!("{}: {error:?}", piece.path()));
        assert_eq!(
            Some(sha256(&device).as_str()),
            known["sha256"].as_str(),
            "{}",
            piece.path()
        );
    }
}
