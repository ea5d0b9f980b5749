//! LZMA2 in xz streams, as in ULMO images.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lzma_rust2::{Lzma2Options, Lzma2Writer, LzmaOptions, MfType, XzReader};

use super::{BROKEN, CodecError, Level, TOO_LONG, TOO_SHORT, is_free, zlib};
use crate::size::narrow;
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Memory limit of the decoder in KiB: the largest preset has a dictionary of 64 MiB, macOS uses 8.
const MAX_KIB: u32 = 96 << 10;

/// Memory of a decoder in bytes, with the dictionary of 8 MiB that macOS uses.
const DECODER: usize = 10 << 20;

pub(super) fn decode(packed: &[u8], plain: &mut [u8]) -> Result<(), CodecError> {
    let mut stream = XzReader::new_mem_limit(packed, false, MAX_KIB);
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => CodecError::new(TOO_SHORT),
        ErrorKind::OutOfMemory => CodecError::no_memory(),
        _ => CodecError::caused(BROKEN, error),
    };
    // Allocates with the first byte.
    let (first, rest) = plain.split_at_mut(plain.len().min(1));
    super::with_memory(DECODER, || stream.read_exact(first))?.map_err(failed)?;
    stream.read_exact(rest).map_err(failed)?;
    // Reading to the end also verifies the checksums of the stream.
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(CodecError::new(TOO_LONG)),
        Err(error) => Err(CodecError::caused(BROKEN, error)),
    }
}

/// The preset of all of macOS's streams, inferred from their size.
const PRESET: u32 = 6;

/// The number of earlier strings that the encoder compares at each position, and the length of a match
/// after which it looks for no longer one. The preset's 48 and 64 take two thirds more time for up to 1 % less
/// space with programs, and for no less with text.
const DEPTH: i32 = 8;
const NICE_LEN: u32 = 32;

/// The number of earlier strings that are compared in data with few repetitions. The encoder finds
/// them by hash chains there: a fifth less time for the same space. In programs and text, trees
/// take 1 to 2 % less space.
const DEPTH_OF_CHAINS: i32 = 12;

/// The preset that finds out if a piece gets shorter at all: it is ten times as fast, and finds
/// repetitions at any distance.
const PROBE_PRESET: u32 = 0;

/// The length of everything but the data in a stream, at most.
const FRAME: usize = 256;

/// Bytes that are compressed before the encoder can stop.
const BETWEEN_STOPS: usize = 64 << 10;

/// Returns the memory of an encoder of `len` bytes, in bytes.
pub(super) fn memory(len: usize) -> usize {
    memory_of(&options(len))
}

fn memory_of(options: &Lzma2Options) -> usize {
    (options.lzma_options.get_memory_usage() as usize) << 10
}

/// Limits the dictionary to the input length, as matches cannot reach further back. Data with few
/// repetitions need less memory than this says.
fn options(len: usize) -> Lzma2Options {
    let mut options = LzmaOptions::with_preset(PRESET);
    options.depth_limit = DEPTH;
    options.nice_len = NICE_LEN;
    options.dict_size = window(len, options.dict_size);
    Lzma2Options {
        lzma_options: options,
        ..Lzma2Options::default()
    }
}

fn window(len: usize, longest: u32) -> u32 {
    let len = u32::try_from(len).unwrap_or(longest).min(longest);
    len.next_power_of_two()
        .clamp(lzma_rust2::DICT_SIZE_MIN, longest)
}

/// Appends an xz stream of `plain`, and returns true; returns false at once if it would not be
/// shorter.
///
/// Fails soon after `stop` becomes true: a piece of a mebibyte takes up to a second.
pub(super) fn encode(
    plain: &[u8],
    packed: &mut Vec<u8>,
    stop: &AtomicBool,
) -> Result<bool, CodecError> {
    let mut options = options(plain.len());
    if plain.len() >= BETWEEN_STOPS {
        match repetitions(plain, stop)? {
            Repetitions::None => return Ok(false),
            Repetitions::Few => {
                options.lzma_options.mf = MfType::Hc4;
                options.lzma_options.depth_limit = DEPTH_OF_CHAINS;
            }
            Repetitions::Many => {}
        }
    }
    let data = lzma2(plain, options, stop)?;
    packed
        .try_reserve(data.len() + FRAME)
        .map_err(|_| CodecError::no_memory())?;
    xz(&data, plain.len(), packed);
    Ok(true)
}

/// The amount of repetitions in data.
enum Repetitions {
    /// Neither zlib nor the fastest preset makes them shorter by a hundredth, as for data that are
    /// compressed or encrypted already.
    None,
    /// zlib makes them shorter by less than two fifths.
    Few,
    Many,
}

fn repetitions(plain: &[u8], stop: &AtomicBool) -> Result<Repetitions, CodecError> {
    let limit = plain.len() - plain.len() / 100;
    let mut packed = Vec::new();
    if zlib::Encoder::new(Level::FASTEST).encode(plain, &mut packed)? {
        match packed.len() {
            len if len < plain.len() / 5 * 3 => return Ok(Repetitions::Many),
            len if len < limit => return Ok(Repetitions::Few),
            _ => {}
        }
    }
    drop(packed);
    let mut options = LzmaOptions::with_preset(PROBE_PRESET);
    options.dict_size = window(plain.len(), 1 << 20);
    let options = Lzma2Options {
        lzma_options: options,
        ..Lzma2Options::default()
    };
    if lzma2(plain, options, stop)?.len() < limit {
        return Ok(Repetitions::Few);
    }
    Ok(Repetitions::None)
}

/// Returns the LZMA2 data of `plain`.
fn lzma2(plain: &[u8], options: Lzma2Options, stop: &AtomicBool) -> Result<Vec<u8>, CodecError> {
    let failed = |error| CodecError::caused("compression failed", error);
    let (mut stream, _active) = start(plain.len(), options, stop)?;
    for part in plain.chunks(BETWEEN_STOPS) {
        check_stop(stop)?;
        stream.write_all(part).map_err(failed)?;
    }
    stream.finish().map_err(failed)
}

fn check_stop(stop: &AtomicBool) -> Result<(), CodecError> {
    if stop.load(Ordering::Relaxed) {
        return Err(CodecError::new("compression was stopped"));
    }
    Ok(())
}

/// The number of encoders that exist, and the signal that one has ended.
static ENCODERS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// Time between two attempts to get memory.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// An encoder that counts in [`ENCODERS`] until it is dropped.
struct EncoderPermit;

impl Drop for EncoderPermit {
    fn drop(&mut self) {
        *encoders() -= 1;
        ENCODERS.1.notify_all();
    }
}

fn encoders() -> MutexGuard<'static, usize> {
    ENCODERS.0.lock()
}

/// Creates an encoder of `len` bytes. The library aborts the process if it gets no memory, so the
/// same amount is reserved first, by one thread at a time. If there is too little, waits for the end
/// of another encoder; without another, fails.
fn start(
    len: usize,
    options: Lzma2Options,
    stop: &AtomicBool,
) -> Result<(Lzma2Writer<Vec<u8>>, EncoderPermit), CodecError> {
    let mut count = encoders();
    loop {
        // Data that does not get shorter is stored with 3 bytes for each 64 KiB.
        let mut out = Vec::new();
        if out.try_reserve_exact(len + len / 1024 + 4096).is_ok() && is_free(memory_of(&options)) {
            let stream = Lzma2Writer::new(out, options);
            *count += 1;
            return Ok((stream, EncoderPermit));
        }
        drop(out);
        if *count == 0 {
            return Err(CodecError::no_memory());
        }
        check_stop(stop)?;
        let waited = ENCODERS.1.wait_timeout(count, BETWEEN_ATTEMPTS);
        count = waited.0;
    }
}

/// Frames LZMA2 data as macOS does: one block with its two lengths, a window of 8 MiB regardless of
/// its use, and no check, since images have checksums of their own. Source: docs/formats/udif.md §6
/// and the xz file format, 1.2.
fn xz(data: &[u8], plain_len: usize, packed: &mut Vec<u8>) {
    const FLAGS: [u8; 2] = [0, 0]; // check: none
    const LENGTHS_STATED: u8 = 0xC0; // of one filter
    const LZMA2: [u8; 3] = [0x21, 1, 22]; // its number, bytes of properties, the code of 8 MiB
    packed.extend(*b"\xFD7zXZ\0");
    packed.extend(FLAGS);
    packed.extend(crc32fast::hash(&FLAGS).to_le_bytes());

    let mut header = vec![0, LENGTHS_STATED];
    put_number(data.len() as u64, &mut header);
    put_number(plain_len as u64, &mut header);
    header.extend(LZMA2);
    // Padding for longer lengths, as macOS reserves before it knows them.
    header.resize(header.len().max(12).next_multiple_of(4), 0);
    header[0] = narrow(header.len() / 4); // in words, the sum counted and one taken off
    header.extend(crc32fast::hash(&header).to_le_bytes());
    let block = header.len() + data.len();
    packed.extend(header);
    packed.extend_from_slice(data);
    packed.resize(packed.len() + block.next_multiple_of(4) - block, 0);

    let mut index = vec![0, 1]; // an index, of one block
    put_number(block as u64, &mut index);
    put_number(plain_len as u64, &mut index);
    pad(&mut index);
    index.extend(crc32fast::hash(&index).to_le_bytes());
    let footer = [
        &(narrow::<u32>(index.len()) / 4 - 1).to_le_bytes()[..],
        &FLAGS,
    ]
    .concat();
    packed.extend(index);
    packed.extend(crc32fast::hash(&footer).to_le_bytes());
    packed.extend(footer);
    packed.extend(*b"YZ");
}

/// Appends a number with seven bits per byte, the lowest first; the highest bit means that more
/// follow.
fn put_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(narrow::<u8>(number & 0x7F) | 0x80);
        number >>= 7;
    }
    bytes.push(narrow(number));
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_framed_as_macos_frames_them() {
        let (plain, mut packed) = ([0; 512], vec![1]);
        assert!(encode(&plain, &mut packed, &AtomicBool::new(false)).unwrap());
        let packed = &packed[1..];
        // The bytes before and after the data in `udif/dmgwiz-lzma.dmg` of the corpus, for the same
        // length.
        assert_eq!(packed[..14], *b"\xFD7zXZ\0\0\0\xFF\x12\xD9\x41\x03\xC0");
        assert_eq!(packed[15..20], [0x80, 4, 0x21, 1, 0x16]);
        assert_eq!(
            packed[packed.len() - 12..],
            [0xA8, 0, 0x0A, 0xFC, 2, 0, 0, 0, 0, 0, b'Y', b'Z']
        );
        let mut back = [1; 512];
        decode(packed, &mut back).unwrap();
        assert_eq!(back, plain);
    }

    #[test]
    fn pieces_that_do_not_get_shorter_are_left() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) as u8
        })
        .take(300_000)
        .collect();
        let running = AtomicBool::new(false);
        let mut packed = vec![7];
        assert!(!encode(&noise, &mut packed, &running).unwrap());
        assert_eq!(packed, [7]);
        // The second copy lies behind the window of zlib.
        let twice = [&noise[..], &noise].concat();
        assert!(encode(&twice, &mut packed, &running).unwrap());
        assert!(packed.len() < 310_000, "{}", packed.len());
    }

    #[test]
    fn windows_are_as_long_as_the_piece() {
        for (len, window) in [
            (0, 4096),
            (512, 4096),
            (5000, 8192),
            (1 << 20, 1 << 20),
            (1 << 40, 8 << 20),
        ] {
            assert_eq!(options(len).lzma_options.dict_size, window);
        }
        assert!(memory(1 << 20) < 24 << 20, "{}", memory(1 << 20));
    }

    #[test]
    fn encoders_without_memory_fail_and_others_wait_for_them() {
        let running = AtomicBool::new(false);
        let failed = start(1 << 60, options(1 << 60), &running).err().unwrap();
        assert!(failed.no_memory);
        let (_stream, active) = start(512, options(512), &running).unwrap();
        // Stopped while it waits for the other encoder.
        assert!(
            !start(1 << 60, options(1 << 60), &AtomicBool::new(true))
                .err()
                .unwrap()
                .no_memory
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                start(1 << 60, options(1 << 60), &running)
                    .err()
                    .unwrap()
                    .no_memory
            });
            drop(active);
            assert!(waiting.join().unwrap());
        });
    }
}
