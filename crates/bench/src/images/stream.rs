//! One file read while a compressed copy is written on the same volume: reads and writes compete
//! for one medium.

use bandsaw::Result;
use bandsaw::progress::Progress;

use crate::clock::{HostClock, Stopwatch};
use crate::contents::{ALIGNMENT, Buffer, Contents};
use crate::place::{Cooled, Place};
use crate::report::Settings;
use crate::sample::{Direction, Sample};

/// Names of the source and of the destination.
const NAMES: [&str; 2] = ["stream-from", "stream-to"];

/// Size of the article's file in bytes, as its times and rates imply.
const SOURCE: f64 = 15.5e9;

/// Returns the size of the source at `scale`, in bytes.
pub(super) fn source_len(scale: f64) -> u64 {
    ((SOURCE * scale) as u64).max(1 << 20)
}

/// Writes a file of `len` bytes, and times its compression into another; also what became of the
/// cache before it was read.
pub(super) fn run(
    place: &dyn Place,
    settings: &Settings,
    len: u64,
    cool: &dyn Fn(&[String]) -> Result<Cooled>,
    progress: &dyn Progress,
) -> Result<(Sample, Cooled)> {
    let clock = HostClock::default();
    let request = settings.run(place, &clock)?.contents.request();
    let mut contents = Contents::new(settings.plan.seed, request, true);
    let [from, to] = NAMES;
    progress.stage("stream", 2 * len);
    {
        let mut sink = place.create(from, len)?;
        for at in (0..len).step_by(request) {
            progress.check()?;
            let piece = request.min((len - at) as usize);
            sink.write(contents.at(0, at, piece))?;
            progress.advance(piece as u64);
        }
        sink.finish()?;
    }
    let cooled = cool(&[from.to_owned()])?;
    let (mut buffer, mut packed) = (Buffer::new(request), Vec::with_capacity(request));
    let watch = Stopwatch::start(&clock);
    let mut source = place.open(from)?;
    let mut sink = place.create(to, packed_len(len))?;
    for at in (0..len).step_by(request) {
        progress.check()?;
        let bytes = buffer.front(request.min((len - at) as usize));
        source.read(bytes)?;
        pack(bytes, &mut packed);
        sink.write(&packed)?;
        progress.advance(bytes.len() as u64);
    }
    let seconds = watch.seconds();
    sink.finish()?;
    let flushed_seconds = Some(watch.seconds());
    drop(source);
    place.remove(from)?;
    place.remove(to)?;
    let sample = Sample {
        direction: Direction::Stream,
        set: 1,
        number: 1,
        size_bytes: len,
        seconds,
        flushed_seconds,
    };
    Ok((sample, cooled))
}

/// Copies the half of each block that is noise and omits the other half, which is zeros: a
/// compressor as cheap as a copy, so that the medium is measured.
fn pack(bytes: &[u8], packed: &mut Vec<u8>) {
    packed.clear();
    for block in bytes.chunks(ALIGNMENT) {
        packed.extend_from_slice(&block[..block.len().div_ceil(2)]);
    }
}

fn packed_len(len: u64) -> u64 {
    let block = ALIGNMENT as u64;
    len / block * (block / 2) + (len % block).div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_half() {
        let mut packed = Vec::new();
        for len in [0, 1, 4096, 4097, 10_000] {
            pack(&vec![1; len], &mut packed);
            assert_eq!(packed.len() as u64, packed_len(len as u64));
        }
    }
}
