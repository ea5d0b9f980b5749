//! A new image in one pass, from its first byte to its last, so that it can be written to a pipe as
//! well as to a file.
//!
//! * [`plan`]: which chunks there are. [`chunk`]: what becomes of one. [`tables`]: what is said of
//!   them. [`sink`]: where the bytes go.
//!
//! Threads take chunk after chunk; what they make is written in order. There are never more chunks
//! in memory than a multiple of the threads, and never more threads than a fixed amount of memory
//! allows. The bytes depend on nothing but the disk, its map and the options: not on time, not on
//! threads, not on what the disk is stored in.

mod chunk;
mod plan;
mod sink;
mod tables;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crc32fast::Hasher;
use uuid::Uuid;
use zerocopy::IntoBytes;

use self::chunk::{Packed, Packer};
use self::plan::AreaStep;
use self::tables::TableBuilder;
use super::layout::{KOLY_SIZE, KolyRaw, NewKoly};
use super::list::image_list;
use super::resources::{MOST_BYTES, Resource};
use crate::codec::{Codec, Encoder, Level};
use crate::container::{Format, SECTOR};
use crate::device::BlockDevice;
use crate::progress::Progress;
use crate::{Error, Kind, Result};

pub use sink::{Sink, ToDevice, ToStream};

const LAYER: &str = "udif";

/// Sectors of a chunk, as recent versions of hdiutil have it.
const CHUNK_SECTORS: u64 = 2048;
const CHUNK: usize = (CHUNK_SECTORS * SECTOR) as usize;
/// What threads and the chunks in their hands may take together.
const MOST_MEMORY: usize = 80 << 20;
/// More threads than this only wait for who writes.
const MOST_THREADS: usize = 32;
/// Chunks begun and not written yet, for each thread.
const AHEAD: usize = 3;

/// How a new image is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// A kind of UDIF.
    pub format: Format,
    /// How hard UDZO tries. `None`: as hdiutil by default, level 1. The other kinds have no levels.
    pub level: Option<Level>,
}

/// A part of the disk that gets a table of its own: a partition, a structure of the map, or what
/// lies between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Its bytes, never none.
    pub range: Range<u64>,
    /// Its name: a partition's own, or that of a structure (`GPT Header`). Often empty.
    pub name: String,
    /// What it is: `Apple_HFS`, `Primary GPT Table`, `Apple_Free`.
    pub kind: String,
    /// True if it belongs to nothing: its zeros are then not stated but left out, in the sums too.
    pub is_free: bool,
}

/// How tables are numbered, which depends on the map. Source: docs/formats/udif.md §3, §4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// A disk without a map, one area.
    Whole,
    /// Apple's map: the driver descriptor is -1.
    Apm,
    /// GPT and MBR.
    FromZero,
}

/// What became of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Encoded {
    /// Bytes read: all chunks that are not holes or stated zeros through and through.
    pub read: u64,
    /// Bytes of the image.
    pub written: u64,
}

impl EncodeOptions {
    /// Refuses a level where there is none, and formats that are no UDIF.
    pub fn check(&self) -> Result<()> {
        if !self.format.is_udif() {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                format!("{} is no kind of UDIF", self.format),
            ));
        }
        if self.level.is_some() && self.format != Format::Udzo {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                format!(
                    "{} has no levels of compression, only UDZO has",
                    self.format
                ),
            ));
        }
        Ok(())
    }

    fn codec(&self) -> Option<Codec> {
        match self.format {
            Format::Udco => Some(Codec::Adc),
            Format::Udzo => Some(Codec::Zlib),
            Format::Udbz => Some(Codec::Bzip2),
            Format::Ulfo => Some(Codec::Lzfse),
            Format::Ulmo => Some(Codec::Lzma),
            _ => None,
        }
    }
}

/// Writes an image of `disk` to `sink`, with a table for each of `areas`, which together are all of
/// it, in order.
///
/// [`Kind::Invalid`] for a disk that is no whole number of sectors, or options that make no sense.
/// The caller flushes.
pub fn encode(
    disk: &dyn BlockDevice,
    (numbers, areas): (Numbers, &[Area]),
    options: &EncodeOptions,
    sink: &mut dyn Sink,
    progress: &dyn Progress,
) -> Result<Encoded> {
    options.check()?;
    check_areas(disk, areas)?;
    progress.stage("copy", disk.info().len);
    let tables = areas
        .iter()
        .map(|area| TableBuilder::new(area, options.format))
        .collect();
    let mut image = Image {
        sink,
        fork_len: 0,
        fork_sum: Hasher::new(),
        tables,
        filling: 0,
        read: 0,
    };
    run(disk, areas, options, &mut image, progress)?;
    image.finish(numbers, areas, options, disk.info().len)
}

/// That the areas are all of the disk, in order.
fn check_areas(disk: &dyn BlockDevice, areas: &[Area]) -> Result<()> {
    let len = disk.info().len;
    crate::container::check_len(LAYER, len)?;
    let mut at = 0;
    for area in areas {
        if area.range.start != at || area.range.is_empty() || !area.range.end.is_multiple_of(SECTOR)
        {
            return Err(Error::new(
                Kind::Invalid,
                LAYER,
                "areas that leave gaps or are no whole sectors",
            )
            .at(at));
        }
        at = area.range.end;
    }
    if at != len {
        return Err(Error::new(
            Kind::Invalid,
            LAYER,
            format!("areas of {at} bytes on a disk of {len}"),
        ));
    }
    Ok(())
}

/// A chunk to be packed, and who waits for it.
struct Job<'a> {
    step: plan::Read,
    area: &'a Area,
    /// Room to pack into, used before.
    room: Vec<u8>,
    reply: Sender<Result<Packed>>,
}

/// What is to be written, in order.
enum Next {
    Chunk(Receiver<Result<Packed>>, u64),
    Zeros(u64),
    End,
}

/// Has threads pack all chunks, and hands them to `image` in order.
fn run(
    disk: &dyn BlockDevice,
    areas: &[Area],
    options: &EncodeOptions,
    image: &mut Image<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    let threads = threads(options.codec());
    let (give, take) = channel::<Job<'_>>();
    let take = Mutex::new(take);
    let work = || {
        let mut packer = Packer::new(options);
        loop {
            // The lock is held while waiting for a job, not while doing it.
            let job = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job {
                step,
                area,
                room,
                reply,
            }) = job
            else {
                return;
            };
            // Nobody waits any more after a failure.
            let _ = reply.send(packer.pack(disk, &step, area, room));
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
        // Dropped on the way out, whichever it is: the threads then end.
        let give = give;
        let (mut queue, mut begun, mut spare) = (VecDeque::new(), 0, Vec::new());
        for area in areas {
            for step in plan::steps(disk, area) {
                match step? {
                    AreaStep::Zeros(len) => queue.push_back(Next::Zeros(len)),
                    AreaStep::Read(step) => {
                        let (reply, wait) = channel();
                        queue.push_back(Next::Chunk(wait, step.len));
                        begun += 1;
                        // Fails only when all threads have died, which is then told by the chunk.
                        let _ = give.send(Job {
                            step,
                            area,
                            room: spare.pop().unwrap_or_default(),
                            reply,
                        });
                    }
                }
                // Before more is begun than memory is meant for, the oldest is waited for.
                while begun >= threads * AHEAD
                    && let Some(next) = queue.pop_front()
                {
                    begun -= usize::from(matches!(next, Next::Chunk(..)));
                    image.take(next, &mut spare, progress)?;
                }
            }
            queue.push_back(Next::End);
        }
        queue
            .into_iter()
            .try_for_each(|next| image.take(next, &mut spare, progress))
    })
}

/// As many threads as there are cores and as memory allows.
fn threads(codec: Option<Codec>) -> usize {
    let each = codec.map_or(0, |codec| Encoder::memory(codec, CHUNK))
        + CHUNK
        + AHEAD * (CHUNK + CHUNK / 8);
    let cores = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST_THREADS);
    cores.min(MOST_MEMORY / each).max(1)
}

/// The image as far as it is written.
struct Image<'a> {
    sink: &'a mut dyn Sink,
    fork_len: u64,
    fork_sum: Hasher,
    /// One for each area; those before `filling` are full.
    tables: Vec<TableBuilder>,
    filling: usize,
    read: u64,
}

impl Image<'_> {
    /// Writes what comes next. Room that is free again goes to `spare`.
    fn take(
        &mut self,
        next: Next,
        spare: &mut Vec<Vec<u8>>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let Some(table) = self.tables.get_mut(self.filling) else {
            return Ok(());
        };
        match next {
            Next::End => {
                table.end(self.fork_len)?;
                self.filling += 1;
            }
            Next::Zeros(len) => {
                progress.check()?;
                table.zeros(len / SECTOR);
                table.sum_zeros(len);
                progress.advance(len);
            }
            Next::Chunk(wait, len) => {
                progress.check()?;
                let died = |_| Error::new(Kind::Io, LAYER, "a thread that compresses has ended");
                let packed = wait.recv().map_err(died)??;
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

    /// Writes what follows the data: the list of resources and the trailer.
    fn finish(
        self,
        numbers: Numbers,
        areas: &[Area],
        options: &EncodeOptions,
        len: u64,
    ) -> Result<Encoded> {
        let (mut resources, mut master) =
            (Vec::with_capacity(self.tables.len() + 1), Hasher::new());
        for ((number, table), area) in (0..).zip(self.tables).zip(areas) {
            let (id, descriptor) = numbers.of(number);
            let (data, sum) = table.finish(buffer_sectors(options.codec()), descriptor);
            master.update(&sum.to_be_bytes());
            let name = format!(
                "{} ({} : {number})",
                printable(&area.name),
                printable(&area.kind)
            );
            resources.push(Resource {
                kind: "blkx".into(),
                id: id.to_string(),
                cf_name: Some(name.clone()),
                name,
                attributes: ATTRIBUTES.into(),
                data,
            });
        }
        resources.push(plst());
        let list = image_list(&resources)?;
        if list.len() as u64 > MOST_BYTES {
            let message = format!(
                "{len} bytes are more than fit an image: its tables would take {} bytes",
                list.len()
            );
            return Err(Error::new(Kind::Limit, LAYER, message));
        }
        let trailer = KolyRaw::of_image(&NewKoly {
            data_len: self.fork_len,
            list_len: list.len() as u64,
            data_sum: self.fork_sum.finalize(),
            master_sum: master.finalize(),
            // Of what the tables say, among it the sums of all that the disk holds.
            id: Uuid::new_v5(&Uuid::NAMESPACE_OID, &list),
            variant: if numbers == Numbers::Whole {
                PARTITION
            } else {
                DEVICE
            },
            sector_count: len / SECTOR,
        });
        self.sink.append(&list)?;
        self.sink.append(trailer.as_bytes())?;
        Ok(Encoded {
            read: self.read,
            written: self.fork_len + list.len() as u64 + KOLY_SIZE,
        })
    }
}

const ATTRIBUTES: &str = "0x0050";
/// Variants of images: with a map, and one volume alone.
const DEVICE: u32 = 1;
const PARTITION: u32 = 2;

impl Numbers {
    /// The resource's number and the table's, for area `number`.
    fn of(self, number: i32) -> (i32, i32) {
        match self {
            Self::Whole => (number, -2 - number),
            Self::Apm => (number - 1, number - 1),
            Self::FromZero => (number - 1, number),
        }
    }
}

/// Sectors of memory that a reader is told to have for a chunk. Source: docs/formats/udif.md §4.1.
fn buffer_sectors(codec: Option<Codec>) -> u32 {
    match codec {
        None => 0,
        Some(Codec::Adc) => 2049,
        Some(Codec::Zlib) => 2056,
        Some(Codec::Bzip2 | Codec::Lzma) => 2051,
        Some(Codec::Lzfse) => 2053,
    }
}

/// The resource that every image of hdiutil has, whatever it is for. Source: docs/formats/udif.md
/// §3.
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

/// Names come from a disk, and a list cannot hold every character.
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
