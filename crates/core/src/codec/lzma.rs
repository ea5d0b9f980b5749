//! LZMA2 in xz streams, as in ULMO images.

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lzma_rust2::{Lzma2Options, Lzma2Writer, XzReader};

use super::{BROKEN, CodecError, TOO_LONG, TOO_SHORT, is_free};
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

/// The length of everything but the data in a stream, at most.
const FRAME: usize = 256;

/// Bytes that are compressed before the encoder can stop.
const BETWEEN_STOPS: usize = 64 << 10;

/// Returns the memory of an encoder of `len` bytes, in bytes.
pub(super) fn memory(len: usize) -> usize {
    (options(len).lzma_options.get_memory_usage() as usize) << 10
}

/// Limits the dictionary to the input length, as matches cannot reach further back.
fn options(len: usize) -> Lzma2Options {
    let mut options = Lzma2Options::with_preset(PRESET);
    let longest = options.lzma_options.dict_size;
    let len = u32::try_from(len).unwrap_or(longest).min(longest);
    options.lzma_options.dict_size = len
        .next_power_of_two()
        .clamp(lzma_rust2::DICT_SIZE_MIN, longest);
    options
}

/// Appends an xz stream of `plain`.
///
/// Fails soon after `stop` becomes true: a piece of a mebibyte takes up to a second.
pub(super) fn encode(
    plain: &[u8],
    packed: &mut Vec<u8>,
    stop: &AtomicBool,
) -> Result<bool, CodecError> {
    let failed = |error| CodecError::caused("compression failed", error);
    let (mut stream, _active) = start(plain.len(), stop)?;
    for part in plain.chunks(BETWEEN_STOPS) {
        check(stop)?;
        stream.write_all(part).map_err(failed)?;
    }
    let data = stream.finish().map_err(failed)?;
    packed
        .try_reserve(data.len() + FRAME)
        .map_err(|_| CodecError::no_memory())?;
    xz(&data, plain.len(), packed);
    Ok(true)
}

fn check(stop: &AtomicBool) -> Result<(), CodecError> {
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
    stop: &AtomicBool,
) -> Result<(Lzma2Writer<Vec<u8>>, EncoderPermit), CodecError> {
    let mut count = encoders();
    loop {
        // Data that does not get shorter is stored with 3 bytes for each 64 KiB.
        let mut out = Vec::new();
        if out.try_reserve_exact(len + len / 1024 + 4096).is_ok() && is_free(memory(len)) {
            let stream = Lzma2Writer::new(out, options(len));
            *count += 1;
            return Ok((stream, EncoderPermit));
        }
        drop(out);
        if *count == 0 {
            return Err(CodecError::no_memory());
        }
        check(stop)?;
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
    header[0] = (header.len() / 4) as u8; // in words, the sum counted and one taken off
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
    let footer = [&(index.len() as u32 / 4 - 1).to_le_bytes()[..], &FLAGS].concat();
    packed.extend(index);
    packed.extend(crc32fast::hash(&footer).to_le_bytes());
    packed.extend(footer);
    packed.extend(*b"YZ");
}

/// Appends a number with seven bits per byte, the lowest first; the highest bit means that more
/// follow.
fn put_number(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
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
        let failed = start(1 << 60, &running).err().unwrap();
        assert!(failed.no_memory);
        let (_stream, active) = start(512, &running).unwrap();
        // Stopped while it waits for the other encoder.
        assert!(
            !start(1 << 60, &AtomicBool::new(true))
                .err()
                .unwrap()
                .no_memory
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| start(1 << 60, &running).err().unwrap().no_memory);
            drop(active);
            assert!(waiting.join().unwrap());
        });
    }
}
