//! DART images for tests.

use zerocopy::IntoBytes;

use super::layout::{BEST, DartRaw, FAST, PLAIN, STORED};
use super::lzhuf::{HuffmanTree, SHORTEST, WINDOW, distance_code};
use super::{BLOCK, DATA, TAGS};
use crate::size::narrow;

/// The compression of a new image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Runs of words.
    Fast,
    /// LZHUF.
    Best,
    /// None.
    Plain,
}

/// Returns the image of a disk with its tags: 12 bytes for each sector, or none.
pub fn image(disk: &[u8], tags: &[u8], packing: Packing) -> Vec<u8> {
    let size = disk.len() / 1024;
    let count = if size == 1440 { 72 } else { 40 };
    let compression = match packing {
        Packing::Fast => FAST,
        Packing::Best => BEST,
        Packing::Plain => PLAIN,
    };
    let header = DartRaw {
        compression,
        disk_type: match size {
            1440 => 16,
            720 => 17,
            _ => 1,
        },
        disk_size: narrow::<u16>(size).into(),
    };
    let (mut lengths, mut blocks) = (vec![0_u16; count], Vec::new());
    for (number, data) in disk.chunks(DATA).enumerate() {
        let mut block = data.to_vec();
        block.extend(tags.iter().skip(number * TAGS).take(TAGS));
        block.resize(BLOCK, 0);
        let (packed, unit) = match packing {
            Packing::Fast => (rle_encode(&block), 2),
            Packing::Best => (lzhuf_encode(&block), 1),
            Packing::Plain => (block.clone(), 1),
        };
        if packing != Packing::Plain && packed.len() >= BLOCK {
            lengths[number] = STORED;
            blocks.extend(block);
        } else {
            lengths[number] = narrow(packed.len() / unit);
            blocks.extend(packed);
        }
    }
    let lengths: Vec<u8> = lengths
        .iter()
        .flat_map(|length| length.to_be_bytes())
        .collect();
    [header.as_bytes(), &lengths, &blocks].concat()
}

fn rle_encode(block: &[u8]) -> Vec<u8> {
    let words = block.as_chunks::<2>().0;
    let (mut packed, mut at) = (Vec::new(), 0);
    let run_at = |at: usize| {
        let same = words[at..].iter().take_while(|word| **word == words[at]);
        same.count().min(0x7FFF)
    };
    while at < words.len() {
        let run = run_at(at);
        if run >= 3 {
            packed.extend((-i16::try_from(run).unwrap_or(i16::MAX)).to_be_bytes());
            packed.extend(words[at]);
            at += run;
            continue;
        }
        let start = at;
        while at < words.len() && run_at(at) < 3 {
            at += 1;
        }
        packed.extend(narrow::<u16>(at - start).to_be_bytes());
        packed.extend(words[start..at].as_flattened());
    }
    packed
}

/// Encodes by LZHUF, with the longest match of a few candidates.
pub fn lzhuf_encode(plain: &[u8]) -> Vec<u8> {
    let (mut tree, mut bits, mut at) = (HuffmanTree::new(), Vec::new(), 0);
    let mut latest = std::collections::HashMap::<&[u8], usize>::new();
    while at < plain.len() {
        let key = plain.get(at..at + SHORTEST);
        let found = key.and_then(|key| latest.get(key)).copied();
        let found = found.filter(|from| at - from <= WINDOW);
        let len = found.map_or(1, |from| {
            let same = plain[from..].iter().zip(&plain[at..]);
            same.take_while(|(one, other)| one == other).count().min(60)
        });
        let symbol = match found {
            Some(_) => 256 + len - SHORTEST,
            None => plain[at].into(),
        };
        bits.extend(tree.code(symbol));
        tree.count(symbol);
        if let Some(from) = found {
            let distance = at - from - 1;
            let mut codes = (0..256).map(|next| (next, distance_code(next)));
            if let Some((next, (_, len))) = codes.find(|(_, (upper, _))| *upper == distance >> 6) {
                bits.extend((0..len).map(|bit| next >> (7 - bit) & 1 == 1));
            }
            bits.extend((0..6).rev().map(|bit| distance >> bit & 1 == 1));
        }
        for at in at..at + len {
            if let Some(key) = plain.get(at..at + SHORTEST) {
                latest.insert(key, at);
            }
        }
        at += len;
    }
    bits.chunks(8)
        .map(|byte| {
            let bits = byte.iter().enumerate();
            bits.fold(0, |byte, (at, bit)| byte | u8::from(*bit) << (7 - at))
        })
        .collect()
}
