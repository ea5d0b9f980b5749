//! Encoder of new images in one pass from first to last byte, so that the output can be a pipe as
//! well as a file.
//!
//! * [`plan`]: splitting into chunks. [`chunk`]: encoding of a chunk. [`tables`]: block tables.
//!   [`sink`]: output.
//!
//! Threads encode chunk after chunk; the results are written in order. The number of chunks in
//! memory is limited to a multiple of the threads, and the number of threads by a fixed amount of
//! memory. The output depends only on the disk, its map and the options: not on time, threads, or
//! the format that stores the disk.

mod chunk;
mod plan;
mod sink;
mod tables;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crc32fast::Hasher;
use uuid::Uuid;
use zerocopy::IntoBytes;

use self::chunk::{ChunkEncoder, EncodedChunk};
use self::plan::AreaStep;
use self::tables::TableBuilder;
use super::layout::{KOLY_SIZE, KolyRaw, NewKoly};
use super::list::image_list;
use super::resources::{BLOCK_TABLE, MAX_BYTES, Resource};
use crate::codec::{Codec, Encoder, Level};
use crate::container::{Format, SECTOR};
use crate::device::BlockDevice;
use crate::progress::Progress;
use crate::size::to_usize;
use crate::sync::Mutex;
use crate::{Error, Kind, Result};

pub use sink::{DeviceSink, Sink, StreamSink};

const LAYER: &str = "udif";

/// Number of sectors in a chunk, as in recent versions of hdiutil.
const CHUNK_SECTORS: u64 = 2048;
const CHUNK: usize = to_usize(CHUNK_SECTORS * SECTOR);
/// Memory limit for the threads and their chunks, in bytes.
const MAX_MEMORY: usize = 80 << 20;
/// Maximum number of threads; more would only wait for the writer.
const MAX_THREADS: usize = 32;
/// Maximum number of chunks in progress per thread.
const AHEAD: usize = 3;
/// Time after which a wait for a chunk checks whether it is cancelled.
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// Compression options of a new image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// A UDIF format.
    pub format: Format,
    /// Compression level of UDZO. `None`: level 6, the default of zlib. Other formats have no
    /// levels.
    pub level: Option<Level>,
}

/// A part of the disk with a block table of its own: a partition, a structure of the map, or a gap
/// between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Its range on the disk in bytes, not empty.
    pub range: Range<u64>,
    /// Its name: that of the partition, or of a structure (`GPT Header`). Often empty.
    pub name: String,
    /// Its type: `Apple_HFS`, `Primary GPT Table`, `Apple_Free`.
    pub kind: String,
    /// True if it is unused space: its zeros are then stored as ignored, not as zeros, and omitted
    /// from the checksums.
    pub is_free: bool,
}

/// Numbering of the tables, which depends on the map. Source: docs/formats/udif.md §3, §4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableNumbering {
    /// A disk without a map, one area.
    Whole,
    /// Apple's map: the driver descriptor is -1.
    Apm,
    /// GPT and MBR.
    FromZero,
}

/// Result of an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodedImage {
    /// Bytes read: all chunks except those that consist only of holes or known zeros.
    pub read: u64,
    /// Length of the image in bytes.
    pub written: u64,
}

impl EncodeOptions {
    /// Fails for a level that the format does not have, and for formats other than UDIF.
    pub fn check(&self) -> Result<()> {
        if !self.format.is_udif() {
            return Err(Error::invalid(
                LAYER,
                format!("{} is not a UDIF format", self.format),
            ));
        }
        if self.level.is_some() && !self.format.has_levels() {
            return Err(Error::invalid(
                LAYER,
                format!("{} has no compression levels; only UDZO has", self.format),
            ));
        }
        Ok(())
    }
}

/// Writes an image of `disk` to `sink`, with a block table for each of `areas`, which must cover
/// the disk in order. The caller flushes.
///
/// [`Kind::Invalid`] for a disk that is not a whole number of sectors, or for invalid options.
pub fn encode(
    disk: &dyn BlockDevice,
    (numbers, areas): (TableNumbering, &[Area]),
    options: &EncodeOptions,
    sink: &mut dyn Sink,
    progress: &dyn Progress,
) -> Result<EncodedImage> {
    options.check()?;
    check_areas(disk, areas)?;
    progress.stage("copy", disk.info().len);
    let tables = areas
        .iter()
        .map(|area| TableBuilder::new(area, options.format))
        .collect();
    let mut image = ImageEncoder {
        sink,
        fork_len: 0,
        fork_sum: Hasher::new(),
        tables,
        filling: 0,
        read: 0,
    };
    encode_chunks(disk, areas, options, &mut image, progress)?;
    image.finish(numbers, areas, options, disk.info().len)
}

/// Checks that the areas cover the disk in order.
fn check_areas(disk: &dyn BlockDevice, areas: &[Area]) -> Result<()> {
    let len = disk.info().len;
    crate::container::check_len(LAYER, len)?;
    let mut at = 0;
    for area in areas {
        if area.range.start != at || area.range.is_empty() || !area.range.end.is_multiple_of(SECTOR)
        {
            return Err(Error::invalid(
                LAYER,
                "invalid areas: they leave a gap, overlap, or are not whole sectors",
            )
            .at(at));
        }
        at = area.range.end;
    }
    if at != len {
        return Err(Error::invalid(
            LAYER,
            format!("the areas have {at} bytes in all, but the disk has {len}"),
        ));
    }
    Ok(())
}

/// A chunk to be encoded, with the channel for the result.
struct ChunkJob<'a> {
    step: plan::PlannedRead,
    area: &'a Area,
    /// A reused buffer for the result.
    room: Vec<u8>,
    reply: Sender<Result<EncodedChunk>>,
}

/// The next part of the output.
enum NextOutput {
    Chunk(Receiver<Result<EncodedChunk>>, u64),
    Zeros(u64),
    End,
}

/// Encodes all chunks in threads and passes them to `image` in order.
fn encode_chunks(
    disk: &dyn BlockDevice,
    areas: &[Area],
    options: &EncodeOptions,
    image: &mut ImageEncoder<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    let threads = threads(options.format.codec());
    let (give, take) = channel::<ChunkJob<'_>>();
    let take = Mutex::new(take);
    let stop = Arc::new(AtomicBool::new(false));
    let work = || {
        let mut packer = ChunkEncoder::new(options, &stop);
        loop {
            // The lock is held while waiting for a job, but not during the job.
            let job = take.lock().recv();
            let Ok(ChunkJob {
                step,
                area,
                room,
                reply,
            }) = job
            else {
                return;
            };
            if stop.load(Ordering::Relaxed) {
                return;
            }
            // Ignored: after a failure the result has no receiver.
            let _ = reply.send(packer.pack(disk, &step, area, room));
        }
    };
    thread::scope(|scope| {
        let mut started = 0;
        for _ in 0..threads {
            // Fewer threads suffice if the system or its memory allows no more.
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(_) => started += 1,
                Err(source) if started == 0 => {
                    return Err(Error::io(LAYER, "start a thread", source));
                }
                Err(_) => break,
            }
        }
        // Dropped on every return path, which ends the threads.
        let give = give;
        let _stop = StopOnDrop(&stop);
        let (mut queue, mut begun, mut spare) = (VecDeque::new(), 0, Vec::new());
        for area in areas {
            for step in plan::steps(disk, area) {
                match step? {
                    AreaStep::Zeros(len) => queue.push_back(NextOutput::Zeros(len)),
                    AreaStep::Read(step) => {
                        let (reply, wait) = channel();
                        queue.push_back(NextOutput::Chunk(wait, step.len));
                        begun += 1;
                        // Fails only if all threads have panicked; then receiving the result fails.
                        let _ = give.send(ChunkJob {
                            step,
                            area,
                            room: spare.pop().unwrap_or_default(),
                            reply,
                        });
                    }
                }
                // Bounds memory: waits for the oldest chunk before another is started.
                while begun >= threads * AHEAD
                    && let Some(next) = queue.pop_front()
                {
                    begun -= usize::from(matches!(next, NextOutput::Chunk(..)));
                    image.write_part(next, &mut spare, progress)?;
                }
            }
            queue.push_back(NextOutput::End);
        }
        queue
            .into_iter()
            .try_for_each(|next| image.write_part(next, &mut spare, progress))
    })
}

/// Stops the threads when the encoding ends early; at its normal end they have nothing left to do.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the number of threads, limited by the cores and by memory.
fn threads(codec: Option<Codec>) -> usize {
    let each = codec.map_or(0, |codec| Encoder::memory(codec, CHUNK))
        + CHUNK
        + AHEAD * (CHUNK + CHUNK / 8);
    let cores = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_THREADS);
    cores.min(MAX_MEMORY / each).max(1)
}

/// An image that is being written.
struct ImageEncoder<'a> {
    sink: &'a mut dyn Sink,
    fork_len: u64,
    fork_sum: Hasher,
    /// One for each area; those before `filling` are complete.
    tables: Vec<TableBuilder>,
    filling: usize,
    read: u64,
}

impl ImageEncoder<'_> {
    /// Writes the next part. Adds reusable buffers to `spare`.
    fn write_part(
        &mut self,
        next: NextOutput,
        spare: &mut Vec<Vec<u8>>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let Some(table) = self.tables.get_mut(self.filling) else {
            return Ok(());
        };
        match next {
            NextOutput::End => {
                table.end(self.fork_len)?;
                self.filling += 1;
            }
            NextOutput::Zeros(len) => {
                progress.check()?;
                table.zeros(len / SECTOR);
                table.sum_zeros(len);
                progress.advance(len);
            }
            NextOutput::Chunk(wait, len) => {
                let packed = loop {
                    progress.check()?;
                    match wait.recv_timeout(BETWEEN_CHECKS) {
                        Ok(packed) => break packed?,
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => {
                            let died = "a compression thread stopped";
                            return Err(Error::new(Kind::Io, LAYER, died));
                        }
                    }
                };
                for piece in &packed.pieces {
                    table.piece(piece, self.fork_len)?;
                    self.fork_len += piece.stored;
                }
                table.sum(&packed.plain_sum);
                self.fork_sum.combine(&packed.stored_sum);
                self.sink.append(&packed.bytes)?;
                self.read += len;
                spare.push(packed.bytes);
                progress.advance(len);
            }
        }
        Ok(())
    }

    /// Writes the list of resources and the trailer.
    fn finish(
        self,
        numbers: TableNumbering,
        areas: &[Area],
        options: &EncodeOptions,
        len: u64,
    ) -> Result<EncodedImage> {
        let (mut resources, mut master) =
            (Vec::with_capacity(self.tables.len() + 1), Hasher::new());
        for ((number, table), area) in (0..).zip(self.tables).zip(areas) {
            let (id, descriptor) = numbers.of(number);
            let (data, sum) = table.finish(buffer_sectors(options.format.codec()), descriptor);
            master.update(&sum.to_be_bytes());
            let name = format!(
                "{} ({} : {number})",
                printable(&area.name),
                printable(&area.kind)
            );
            resources.push(Resource {
                kind: BLOCK_TABLE.into(),
                id: id.to_string(),
                cf_name: Some(name.clone()),
                name,
                attributes: ATTRIBUTES.into(),
                data,
            });
        }
        resources.push(plst());
        let list = image_list(&resources)?;
        if list.len() as u64 > MAX_BYTES {
            let message = format!(
                "{len} bytes are too many for an image: its tables would have {} bytes",
                list.len()
            );
            return Err(Error::limit(LAYER, message));
        }
        let trailer = KolyRaw::of_image(&NewKoly {
            data_len: self.fork_len,
            list_len: list.len() as u64,
            data_sum: self.fork_sum.finalize(),
            master_sum: master.finalize(),
            // Derived from the tables, which include the checksums of the disk.
            id: Uuid::new_v5(&Uuid::NAMESPACE_OID, &list),
            variant: if numbers == TableNumbering::Whole {
                PARTITION
            } else {
                DEVICE
            },
            sector_count: len / SECTOR,
        });
        self.sink.append(&list)?;
        self.sink.append(trailer.as_bytes())?;
        Ok(EncodedImage {
            read: self.read,
            written: self.fork_len + list.len() as u64 + KOLY_SIZE,
        })
    }
}

const ATTRIBUTES: &str = "0x0050";
/// Image variants: a disk with a map, and a single volume.
const DEVICE: u32 = 1;
const PARTITION: u32 = 2;

impl TableNumbering {
    /// Returns the resource number and the descriptor of the table of area `number`.
    fn of(self, number: i32) -> (i32, i32) {
        match self {
            Self::Whole => (number, -2 - number),
            Self::Apm => (number - 1, number - 1),
            Self::FromZero => (number - 1, number),
        }
    }
}

/// Returns the buffer size for a chunk that the table states, in sectors. Source:
/// docs/formats/udif.md §4.1.
fn buffer_sectors(codec: Option<Codec>) -> u32 {
    match codec {
        None => 0,
        Some(Codec::Adc) => 2049,
        Some(Codec::Zlib) => 2056,
        Some(Codec::Bzip2 | Codec::Lzma) => 2051,
        Some(Codec::Lzfse) => 2053,
    }
}

/// Returns the `plst` resource of every hdiutil image, whose purpose is unknown. Source:
/// docs/formats/udif.md §3.
fn plst() -> Resource {
    let mut data = vec![0; 1032];
    (data[517], data[519]) = (1, 1);
    Resource {
        kind: "plst".into(),
        id: "0".into(),
        attributes: ATTRIBUTES.into(),
        data,
        ..Resource::default()
    }
}

/// Replaces characters of a name from the disk that an XML list cannot contain.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') {
                '?'
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
