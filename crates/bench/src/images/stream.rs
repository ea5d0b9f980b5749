//! One file read, compressed and written to another file of the same volume, as in the article about
//! band sizes: reading, compressing on several threads and writing overlap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use bandsaw::codec::{Codec, Encoder, Level};
use bandsaw::progress::Progress;
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind as ErrorKind, Result};

use crate::clock::{HostClock, Stopwatch};
use crate::compressor::Compressor;
use crate::contents::{Buffer, Contents};
use crate::place::{CacheState, Place};
use crate::report::{Compression, Settings};
use crate::sample::{Direction, Sample};

const LAYER: &str = "stream benchmark";
/// Names of the source and of the destination.
const NAMES: [&str; 2] = ["stream-from", "stream-to"];
/// Size of the article's file in bytes, as its times and rates imply.
const SOURCE: f64 = 15.5e9;
/// Length in bytes of the header of a compressed piece: its length plain and compressed.
const HEADER: usize = 8;
/// Pieces per thread that are in progress at once.
const DEPTH: usize = 2;

/// A compressor of one thread, which reuses its memory.
enum Packer {
    Lz4,
    Lzfse(Box<Encoder>),
}

impl Packer {
    fn new(compressor: Compressor) -> Self {
        match compressor {
            Compressor::Lz4 => Self::Lz4,
            Compressor::Lzfse => {
                Self::Lzfse(Box::new(Encoder::new(Codec::Lzfse, Level::default())))
            }
        }
    }

    /// Replaces `packed` with a header and `plain` compressed, or with `plain` itself if it does not
    /// shrink.
    fn pack(&mut self, plain: &[u8], packed: &mut Vec<u8>) -> Result<()> {
        packed.clear();
        packed.resize(HEADER, 0);
        match self {
            Self::Lz4 => {
                let most = HEADER + lz4_flex::block::get_maximum_output_size(plain.len());
                packed.resize(most, 0);
                let len = lz4_flex::block::compress_into(plain, &mut packed[HEADER..]);
                let len = len.map_err(|error| {
                    Error::new(
                        ErrorKind::Io,
                        LAYER,
                        "LZ4 cannot compress the data of the test",
                    )
                    .caused_by(error)
                })?;
                packed.truncate(HEADER + len);
            }
            Self::Lzfse(encoder) => {
                encoder.encode(plain, packed)?;
            }
        }
        if packed.len() == HEADER || packed.len() - HEADER >= plain.len() {
            packed.truncate(HEADER);
            packed.extend_from_slice(plain);
        }
        let lengths = [plain.len(), packed.len() - HEADER];
        for (place, len) in packed[..HEADER].chunks_mut(4).zip(lengths) {
            place.copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
        }
        Ok(())
    }
}

/// Decompresses a piece that [`Packer::pack`] made of `compressor`; `packed` is without the header.
fn unpack(compressor: Compressor, packed: &[u8], plain: &mut [u8]) -> Result<()> {
    if packed.len() == plain.len() {
        plain.copy_from_slice(packed);
        return Ok(());
    }
    match compressor {
        Compressor::Lz4 => match lz4_flex::block::decompress_into(packed, plain) {
            Ok(len) if len == plain.len() => Ok(()),
            Ok(_) => Err(Error::corrupt(
                LAYER,
                0,
                "the compressed file is damaged: a piece is too short",
            )),
            Err(error) => {
                Err(Error::corrupt(LAYER, 0, "the compressed file is damaged").caused_by(error))
            }
        },
        Compressor::Lzfse => Codec::Lzfse.decode(packed, plain),
    }
}

/// Returns the size of the source at `scale`, in bytes.
pub(super) fn source_len(scale: f64) -> u64 {
    ((SOURCE * scale) as u64).max(1 << 20)
}

/// Returns the length of piece `number` of `len` bytes in pieces of `request`.
fn piece(number: u64, len: u64, request: usize) -> usize {
    let left = len.saturating_sub(number * request as u64);
    usize::try_from(left).map_or(request, |left| left.min(request))
}

fn contents(settings: &Settings, request: usize) -> Contents {
    Contents::new(settings.plan.seed, request, true)
}

/// Compresses the contents of the source from memory to memory, on as many threads as the stream
/// test uses; returns the speed, and the length of the result, which is always the same.
pub(super) fn from_memory(
    settings: &Settings,
    compressor: Compressor,
    request: usize,
    progress: &dyn Progress,
) -> Result<Compression> {
    let len = source_len(settings.plan.scale);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut contents = contents(settings, request);
    let pieces = len.div_ceil(request as u64);
    let batch = (threads * 16) as u64;
    let mut plain: Vec<Vec<u8>> = Vec::new();
    let (mut seconds, mut packed_len) = (0.0, 0);
    // Memory that is used for the first time is slow: the first batch is compressed twice.
    let warm_up = [(0, false)].into_iter();
    let rounds = (0..pieces).step_by(batch as usize).map(|at| (at, true));
    progress.stage("compress in memory", len);
    let mut packers: Vec<(Packer, Vec<u8>)> = (0..threads)
        .map(|_| (Packer::new(compressor), Vec::new()))
        .collect();
    for (from, counts) in warm_up.chain(rounds) {
        progress.check()?;
        let numbers = from..(from + batch).min(pieces);
        plain.resize((numbers.end - numbers.start) as usize, Vec::new());
        for (bytes, number) in plain.iter_mut().zip(numbers) {
            let piece = piece(number, len, request);
            bytes.clear();
            bytes.extend_from_slice(contents.at(0, number * request as u64, piece));
        }
        let clock = HostClock::default();
        let watch = Stopwatch::start(&clock);
        let share = plain.len().div_ceil(threads);
        let lens = thread::scope(|scope| {
            let running: Vec<_> = plain
                .chunks(share)
                .zip(&mut packers)
                .map(|(pieces, (packer, packed))| {
                    scope.spawn(move || {
                        pieces.iter().try_fold(0, |sum, bytes| {
                            packer.pack(bytes, packed)?;
                            Ok::<u64, Error>(sum + packed.len() as u64)
                        })
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().map_err(|_| ended())?)
                .collect::<Result<Vec<u64>>>()
        })?;
        if counts {
            seconds += watch.seconds();
            packed_len += lens.into_iter().sum::<u64>();
            progress.advance(plain.iter().map(|bytes| bytes.len() as u64).sum());
        }
    }
    Ok(Compression {
        compressor,
        threads,
        rate: len as f64 / f64::max(seconds, 1e-9),
        bytes: len,
        packed: packed_len,
    })
}

fn ended() -> Error {
    Error::new(ErrorKind::Io, LAYER, "a thread ended unexpectedly")
}

/// Parameters of the test on one volume.
pub(super) struct StreamTest<'a> {
    pub(super) place: &'a dyn Place,
    pub(super) settings: &'a Settings,
    pub(super) compression: &'a Compression,
    pub(super) progress: &'a dyn Progress,
}

impl StreamTest<'_> {
    /// Writes the source, and times its compression into another file; returns also the state of the
    /// cache before it was read. The caller removes both files.
    pub(super) fn run(
        &self,
        round: u32,
        cool: &dyn Fn(&[String]) -> Result<CacheState>,
    ) -> Result<(Sample, CacheState)> {
        let clock = HostClock::default();
        let request = self.settings.run(self.place, &clock)?.contents.request();
        let (len, [from, _]) = (self.compression.bytes, NAMES);
        self.progress.stage("stream", 2 * len);
        let mut contents = contents(self.settings, request);
        let mut sink = self.place.create(from, len)?;
        for at in (0..len).step_by(request) {
            self.progress.check()?;
            let piece = piece(at / request as u64, len, request);
            sink.write(contents.at(0, at, piece))?;
            self.progress.advance(piece as u64);
        }
        sink.finish()?;
        let cooled = cool(&[from.to_owned()])?;
        let (seconds, flushed) = self.compress(request)?;
        if self.settings.verify {
            self.check(request, &mut contents)?;
        }
        let sample = Sample {
            direction: Direction::Stream,
            set: round,
            number: round,
            size_bytes: len,
            seconds,
            flushed_seconds: Some(flushed),
        };
        Ok((sample, cooled))
    }

    pub(super) fn remove(&self) -> Result<()> {
        NAMES.iter().try_for_each(|name| self.place.remove(name))
    }

    /// Reads, compresses and writes at once; returns the seconds without and with the final flush.
    fn compress(&self, request: usize) -> Result<(f64, f64)> {
        let Self {
            place,
            compression,
            progress,
            ..
        } = *self;
        let (len, [from, to]) = (compression.bytes, NAMES);
        let pieces = len.div_ceil(request as u64);
        let depth = DEPTH * compression.threads;
        let (full, to_pack) = sync_channel::<(u64, Buffer)>(depth);
        let (packed, to_write) = sync_channel::<(u64, Result<Vec<u8>>)>(depth);
        let (used, empty) = sync_channel::<Buffer>(4 * depth);
        let (written, spare) = sync_channel::<Vec<u8>>(4 * depth);
        for _ in 0..2 * depth {
            // There is room for all of them.
            let _ = used.send(Buffer::new(request));
            let _ = written.send(Vec::with_capacity(request + request / 8));
        }
        // The threads own what they receive from, so that its senders end with them.
        let (to_pack, spare) = (Arc::new(Mutex::new(to_pack)), Arc::new(Mutex::new(spare)));
        let clock = HostClock::default();
        let watch = Stopwatch::start(&clock);
        let mut source = place.open(from)?;
        let mut sink = place.create(to, compression.packed)?;
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                for number in 0..pieces {
                    // The others end early only if one failed, and that error is returned.
                    let Ok(mut buffer) = empty.recv() else { break };
                    source.read(buffer.front(piece(number, len, request)))?;
                    if full.send((number, buffer)).is_err() {
                        break;
                    }
                }
                Ok::<(), Error>(())
            });
            let packers: Vec<_> = (0..compression.threads)
                .map(|_| {
                    let (packed, used) = (packed.clone(), used.clone());
                    let (to_pack, spare) = (to_pack.clone(), spare.clone());
                    scope.spawn(move || {
                        let mut packer = Packer::new(compression.compressor);
                        // Memory first: a piece that waited for it could be overtaken by all that
                        // have it, while the writer waits for that piece.
                        while let Some(mut bytes) = next(&spare) {
                            let Some((number, mut buffer)) = next(&to_pack) else {
                                break;
                            };
                            let plain = buffer.front(piece(number, len, request));
                            let result = packer.pack(plain, &mut bytes).map(|()| bytes);
                            // The reader may have ended.
                            let _ = used.try_send(buffer);
                            if packed.send((number, result)).is_err() {
                                break;
                            }
                        }
                    })
                })
                .collect();
            // They end with the copies of the threads.
            drop((packed, used, to_pack, spare));
            let writing = write(&mut *sink, to_write, written, request, |number| {
                progress.advance(piece(number, len, request) as u64);
                progress.check()
            });
            // An error of the writer ends the others: their channels are closed.
            let mut result = reader.join().map_err(|_| ended()).flatten();
            for packer in packers {
                result = result.and(packer.join().map_err(|_| ended()));
            }
            result.and(writing)
        })?;
        let seconds = watch.seconds();
        sink.finish()?;
        Ok((seconds, watch.seconds()))
    }

    /// Decompresses the destination, and compares it with the source.
    fn check(&self, request: usize, contents: &mut Contents) -> Result<()> {
        let Compression {
            compressor,
            bytes,
            packed,
            ..
        } = *self.compression;
        let mut source = self.place.open(NAMES[1])?;
        let mut buffer = Buffer::new(request);
        let (mut read, mut at, mut tail) = (0, 0, Vec::<u8>::new());
        let mut plain = vec![0; request];
        while at < bytes {
            self.progress.check()?;
            let lengths: Option<(usize, usize)> = tail.get(..HEADER).map(|header: &[u8]| {
                let of = |n: usize| {
                    u32::from_le_bytes([header[n], header[n + 1], header[n + 2], header[n + 3]])
                        as usize
                };
                (of(0), of(4))
            });
            let whole = lengths.filter(|(_, packed)| tail.len() >= HEADER + packed);
            let Some((len, packed_len)) = whole else {
                let more = request.min(usize::try_from(packed - read).unwrap_or(request));
                if more == 0 {
                    return Err(Error::corrupt(
                        LAYER,
                        read,
                        "the compressed file is too short",
                    ));
                }
                let bytes = buffer.front(more);
                source.read(bytes)?;
                tail.extend_from_slice(bytes);
                read += more as u64;
                continue;
            };
            let Some(plain) = plain.get_mut(..len).filter(|_| len > 0) else {
                return Err(Error::corrupt(
                    LAYER,
                    read,
                    "the compressed file is damaged: a piece is too long",
                ));
            };
            unpack(compressor, &tail[HEADER..HEADER + packed_len], plain)?;
            contents
                .check(0, at, plain)
                .map_err(|error| error.named(NAMES[1]))?;
            tail.drain(..HEADER + packed_len);
            at += len as u64;
        }
        Ok(())
    }
}

/// Takes the next item of a channel that several threads receive from; `None` at its end.
fn next<T>(from: &Mutex<Receiver<T>>) -> Option<T> {
    from.lock().recv().ok()
}

/// Writes pieces in their order, in whole requests, and returns their memory.
fn write(
    sink: &mut dyn crate::place::Sink,
    pieces: Receiver<(u64, Result<Vec<u8>>)>,
    written: SyncSender<Vec<u8>>,
    request: usize,
    mut done: impl FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    let mut buffer = Buffer::new(request);
    let mut filled = 0;
    for (number, bytes) in pieces {
        waiting.insert(number, bytes?);
        while let Some(bytes) = waiting.remove(&next) {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let len = rest.len().min(request - filled);
                buffer.front(request)[filled..filled + len].copy_from_slice(&rest[..len]);
                (filled, rest) = (filled + len, &rest[len..]);
                if filled == request {
                    sink.write(buffer.front(request))?;
                    filled = 0;
                }
            }
            done(next)?;
            next += 1;
            // All threads may have ended.
            let _ = written.try_send(bytes);
        }
    }
    if filled > 0 {
        sink.write(buffer.front(filled))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::SplitMix64;

    #[test]
    fn pieces_are_compressed_and_come_back() {
        let text = b"a band of a bundle, ".repeat(2_500);
        let mut noise = vec![0; 50_000];
        SplitMix64::new(3).fill(&mut noise);
        for compressor in [Compressor::Lz4, Compressor::Lzfse] {
            let (mut packer, mut packed) = (Packer::new(compressor), Vec::new());
            for (plain, shrinks) in [(&text[..], true), (&noise[..], false), (&text[..1], false)] {
                packer.pack(plain, &mut packed).unwrap();
                let len = packed.len() - HEADER;
                assert_eq!(len < plain.len() * 9 / 10, shrinks, "{compressor:?} {len}");
                assert!(len <= plain.len());
                let mut again = vec![1; plain.len()];
                unpack(compressor, &packed[HEADER..], &mut again).unwrap();
                assert_eq!(again, plain);
            }
            packer.pack(&text, &mut packed).unwrap();
            let end = HEADER + (packed.len() - HEADER) / 2;
            assert!(unpack(compressor, &packed[HEADER..end], &mut vec![0; text.len()]).is_err());
        }
    }
}
