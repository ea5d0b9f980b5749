//! NDIF images for tests.

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use super::layout::{ADC, BlockTableRaw, END, RAW, RunRaw, ZERO};
use crate::codec::{Codec, Encoder, Level};
use crate::size::narrow;

/// Bytes of a run.
const RUN: usize = 512 * 128;

/// The two parts of an NDIF image.
#[derive(Debug, Clone)]
pub struct NdifFixture {
    /// The data fork.
    pub data: Vec<u8>,
    /// The resource `bcem` 128.
    pub table: Vec<u8>,
}

impl NdifFixture {
    /// Returns the image of a disk, compressed by ADC where that is shorter.
    pub fn of(disk: &[u8]) -> Self {
        let mut encoder = Encoder::new(Codec::Adc, Level::default());
        let (mut data, mut runs) = (Vec::new(), Vec::new());
        for (number, plain) in disk.chunks(RUN).enumerate() {
            let at = data.len();
            let kind = if plain.iter().all(|byte| *byte == 0) {
                ZERO
            } else if encoder.encode(plain, &mut data).unwrap_or(false) {
                ADC
            } else {
                data.extend(plain);
                RAW
            };
            runs.push(run(number * RUN, kind, at, data.len() - at));
        }
        runs.push(run(disk.len(), END, 0, 0));
        let header = BlockTableRaw {
            version: 10.into(),
            driver: 0.into(),
            name_length: 0,
            name: [0; 63],
            sectors: narrow::<u32>(disk.len() / 512).into(),
            max_run: narrow::<u32>(RUN / 512).into(),
            data_offset: 0.into(),
            checksum: 0x0123_4567.into(),
            is_segmented: 0.into(),
            unknown: [U32::ZERO; 7],
            is_encrypted: 0.into(),
            hash: 0.into(),
            runs: narrow::<u32>(runs.len()).into(),
        };
        Self {
            data,
            table: [header.as_bytes(), runs.as_bytes()].concat(),
        }
    }
}

fn run(start: usize, kind: u8, at: usize, len: usize) -> RunRaw {
    let [_, sector @ ..] = narrow::<u32>(start / 512).to_be_bytes();
    RunRaw {
        sector,
        kind,
        offset: narrow::<u32>(at).into(),
        length: narrow::<u32>(len).into(),
    }
}
