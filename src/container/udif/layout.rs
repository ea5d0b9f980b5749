//! The bytes of a UDIF file's trailer and block tables. All integers are big-endian. Source: docs/formats/udif.md.

use std::ops::Range;

use uuid::Uuid;
use zerocopy::byteorder::big_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::codec::Codec;
use crate::{Error, Result};

/// A sum with its kind: 0 none, 2 CRC-32, 4 MD5, stored from the start of the field. Source: §5.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct ChecksumRaw {
    /*00*/ kind: U32,
    /*04*/ bits: U32,
    /*08*/ value: [u8; 128],
}

/// The trailer, the last 512 bytes of the file. Source: §2.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct KolyRaw {
    /*000*/ magic: [u8; 4], // "koly"
    /*004*/ version: U32, // 4
    /*008*/ size: U32, // 512
    /*00C*/ flags: U32,
    /*010*/ running_data_fork_offset: U64,
    /*018*/ data_fork_offset: U64,
    /*020*/ data_fork_length: U64,
    /*028*/ resource_fork_offset: U64,
    /*030*/ resource_fork_length: U64,
    /*038*/ segment_number: U32,
    /*03C*/ segment_count: U32,
    /*040*/ segment_id: [u8; 16],
    /*050*/ data_checksum: ChecksumRaw,
    /*0D8*/ xml_offset: U64,
    /*0E0*/ xml_length: U64,
    /*0E8*/ reserved_1: [u8; 64],
    /*128*/ signature_offset: U64,
    /*130*/ signature_length: U64,
    /*138*/ reserved_2: [u8; 40],
    /*160*/ master_checksum: ChecksumRaw,
    /*1E8*/ variant: U32, // 1 device, 2 partition
    /*1EC*/ sector_count: U64,
    /*1F4*/ reserved_3: [u8; 12],
}
pub(super) const KOLY_SIZE: u64 = 512;
pub(super) const KOLY_MAGIC: [u8; 4] = *b"koly";
const _: () = assert!(size_of::<KolyRaw>() as u64 == KOLY_SIZE);

/// A block table's head, before its runs. Source: §4.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct MishRaw {
    /*00*/ magic: [u8; 4], // "mish"
    /*04*/ version: U32, // 1
    /*08*/ first_sector: U64,
    /*10*/ sector_count: U64,
    /*18*/ data_offset: U64,
    /*20*/ buffer_sectors: U32,
    /*24*/ descriptor: I32,
    /*28*/ reserved: [u8; 24],
    /*40*/ checksum: ChecksumRaw,
    /*C8*/ run_count: U32,
}
const _: () = assert!(size_of::<MishRaw>() == 0xCC);

/// A run of a block table. Source: §4.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RunRaw {
    /*00*/ kind: U32,
    /*04*/ comment: U32,
    /*08*/ first_sector: U64, // within the table
    /*10*/ sector_count: U64,
    /*18*/ offset: U64, // within the data fork, plus the table's data offset
    /*20*/ length: U64,
}
const _: () = assert!(size_of::<RunRaw>() == 40);

const KOLY: &str = "udif trailer";
const MISH: &str = "udif block table";

/// A stored sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// None is stored.
    None,
    /// CRC-32 as in zlib.
    Crc32(u32),
    /// A kind that is not checked, by its number (4 is MD5).
    Other(u32),
}

impl ChecksumRaw {
    fn parse(&self) -> Checksum {
        match (self.kind.get(), self.bits.get()) {
            (0, _) => Checksum::None,
            (2, 32) => Checksum::Crc32(u32::from_be_bytes([self.value[0], self.value[1], self.value[2], self.value[3]])),
            (kind, _) => Checksum::Other(kind),
        }
    }
}

impl KolyRaw {
    /// The same trailer behind a list of resources at `list`. What was of the old file alone is gone: a resource fork, a
    /// code signature.
    pub(super) fn relisted(&self, list: Range<u64>) -> Self {
        Self {
            resource_fork_offset: 0.into(),
            resource_fork_length: 0.into(),
            xml_offset: list.start.into(),
            xml_length: (list.end - list.start).into(),
            signature_offset: 0.into(),
            signature_length: 0.into(),
            ..self.clone()
        }
    }

    /// The same trailer for part `segment`, whose file begins with `len` bytes of data that sum to `sum`.
    pub(super) fn of_part(&self, segment: Segment, len: u64, sum: u32) -> Self {
        Self {
            running_data_fork_offset: segment.start.into(),
            data_fork_offset: 0.into(),
            data_fork_length: len.into(),
            segment_number: segment.number.into(),
            segment_count: segment.count.into(),
            segment_id: segment.id.into_bytes(),
            data_checksum: Checksum::Crc32(sum).into(),
            ..self.clone()
        }
    }
}

impl From<Checksum> for ChecksumRaw {
    /// A sum of a kind that is not checked has no value here.
    fn from(sum: Checksum) -> Self {
        let mut value = [0; 128];
        let (kind, bits) = match sum {
            Checksum::None => (0, 0),
            Checksum::Crc32(sum) => {
                value[..4].copy_from_slice(&sum.to_be_bytes());
                (2, 32)
            }
            Checksum::Other(kind) => (kind, 0),
        };
        Self { kind: kind.into(), bits: bits.into(), value }
    }
}

/// What is to be said of a new image in one file, which begins with its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewKoly {
    pub(super) data_len: u64,
    pub(super) list_len: u64,
    pub(super) data_sum: u32,
    pub(super) master_sum: u32,
    pub(super) id: Uuid,
    pub(super) variant: u32,
    pub(super) sector_count: u64,
}

impl KolyRaw {
    /// The trailer of a new image, whose list of resources follows its data.
    pub(super) fn of_image(new: &NewKoly) -> Self {
        Self {
            magic: KOLY_MAGIC,
            version: 4.into(),
            size: (KOLY_SIZE as u32).into(),
            flags: 1.into(), // flattened
            running_data_fork_offset: 0.into(),
            data_fork_offset: 0.into(),
            data_fork_length: new.data_len.into(),
            resource_fork_offset: 0.into(),
            resource_fork_length: 0.into(),
            segment_number: 1.into(),
            segment_count: 1.into(),
            segment_id: new.id.into_bytes(),
            data_checksum: Checksum::Crc32(new.data_sum).into(),
            xml_offset: new.data_len.into(),
            xml_length: new.list_len.into(),
            reserved_1: [0; 64],
            signature_offset: 0.into(),
            signature_length: 0.into(),
            reserved_2: [0; 40],
            master_checksum: Checksum::Crc32(new.master_sum).into(),
            variant: new.variant.into(),
            sector_count: new.sector_count.into(),
            reserved_3: [0; 12],
        }
    }
}

impl MishRaw {
    /// The head of a new table.
    pub(super) fn new(first_sector: u64, sectors: u64, buffer_sectors: u32, descriptor: i32, sum: u32, runs: u32) -> Self {
        Self {
            magic: *b"mish",
            version: 1.into(),
            first_sector: first_sector.into(),
            sector_count: sectors.into(),
            data_offset: 0.into(),
            buffer_sectors: buffer_sectors.into(),
            descriptor: descriptor.into(),
            reserved: [0; 24],
            checksum: Checksum::Crc32(sum).into(),
            run_count: runs.into(),
        }
    }
}

impl RunRaw {
    /// A run of a new table. What holds no bytes names the place where the next ones are, as hdiutil has it.
    pub(super) fn new(kind: RunKind, first_sector: u64, sector_count: u64, offset: u64, length: u64) -> Self {
        let kind = match kind {
            RunKind::Zero => 0,
            RunKind::Raw => RAW,
            RunKind::Ignore => 2,
            RunKind::Packed(Codec::Adc) => 0x8000_0004_u32,
            RunKind::Packed(Codec::Zlib) => 0x8000_0005,
            RunKind::Packed(Codec::Bzip2) => 0x8000_0006,
            RunKind::Packed(Codec::Lzfse) => 0x8000_0007,
            RunKind::Packed(Codec::Lzma) => 0x8000_0008,
        };
        Self {
            kind: kind.into(),
            comment: 0.into(),
            first_sector: first_sector.into(),
            sector_count: sector_count.into(),
            offset: offset.into(),
            length: length.into(),
        }
    }

    /// The end of a table that fills `sectors`, and of the data up to it.
    pub(super) fn end(sectors: u64, offset: u64) -> Self {
        Self { kind: 0xFFFF_FFFF_u32.into(), ..Self::new(RunKind::Zero, sectors, 0, offset, 0) }
    }

    /// Makes a run of plain bytes longer by what follows it on the disk and in the data fork. `false`: it is another kind.
    pub(super) fn join_raw(&mut self, sectors: u64, length: u64) -> bool {
        let is_raw = self.kind.get() == RAW;
        if is_raw {
            self.sector_count += sectors;
            self.length += length;
        }
        is_raw
    }
}

/// A run's kind where the bytes are as they are.
const RAW: u32 = 1;

/// What the trailer says, its places checked against the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Koly {
    pub(super) data_fork: Range<u64>,
    pub(super) resource_fork: Range<u64>,
    pub(super) xml: Range<u64>,
    pub(super) signature: Range<u64>,
    pub(super) segment: Segment,
    pub(super) data_checksum: Checksum,
    pub(super) master_checksum: Checksum,
    pub(super) sector_count: u64,
}

/// Which part of a set a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Counted from 1; 0 and 1 of 0 or 1 are whole images.
    pub number: u32,
    /// Files of the set.
    pub count: u32,
    /// The same in all files of the set.
    pub id: Uuid,
    /// Where this file's data fork begins in the joined one.
    pub start: u64,
}

impl Koly {
    /// `at` is where the trailer stands; everything it names lies before it.
    pub(super) fn parse(raw: &KolyRaw, at: u64) -> Result<Self> {
        if raw.magic != KOLY_MAGIC {
            return Err(Error::corrupt(KOLY, at, "koly expected"));
        }
        if (raw.version.get(), raw.size.get()) != (4, KOLY_SIZE as u32) {
            let message = format!("version {} of {} bytes; 4 of {KOLY_SIZE} is known", raw.version, raw.size);
            return Err(Error::unsupported(KOLY, message).at(at + 4));
        }
        let within = |name: &str, field: u64, offset: U64, length: U64| match offset.get().checked_add(length.get()) {
            Some(end) if end <= at => Ok(offset.get()..end),
            _ => Err(Error::corrupt(
                KOLY,
                at + field,
                format!("the {name}, {length} bytes at {offset}, reaches past the trailer at {at}"),
            )),
        };
        Ok(Self {
            data_fork: within("data fork", 0x18, raw.data_fork_offset, raw.data_fork_length)?,
            resource_fork: within("resource fork", 0x28, raw.resource_fork_offset, raw.resource_fork_length)?,
            xml: within("property list", 0xD8, raw.xml_offset, raw.xml_length)?,
            signature: within("code signature", 0x128, raw.signature_offset, raw.signature_length)?,
            segment: Segment {
                number: raw.segment_number.get(),
                count: raw.segment_count.get(),
                id: Uuid::from_bytes(raw.segment_id),
                start: raw.running_data_fork_offset.get(),
            },
            data_checksum: raw.data_checksum.parse(),
            master_checksum: raw.master_checksum.parse(),
            sector_count: raw.sector_count.get(),
        })
    }
}

/// What a run holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunKind {
    /// Zeros.
    Zero,
    /// Not allocated by the file system: reads as zeros, left out of the sums.
    Ignore,
    /// Bytes as they are.
    Raw,
    /// Compressed bytes.
    Packed(Codec),
}

/// A run of sectors of the disk, relative to its table, and where its bytes are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) kind: RunKind,
    pub(super) first_sector: u64,
    pub(super) sector_count: u64,
    /// Within the joined data fork.
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// A block table: an area of the disk and its runs.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) first_sector: u64,
    pub(super) sector_count: u64,
    pub(super) checksum: Checksum,
    pub(super) runs: Vec<Run>,
}

impl Table {
    /// `bytes` is the resource that `name` is known by.
    pub(super) fn parse(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |at: u64, message: String| Err(Error::corrupt(MISH, at, message).in_file(name));
        let Ok((raw, rest)) = MishRaw::ref_from_prefix(bytes) else {
            return damaged(0, format!("{} bytes, its head has {}", bytes.len(), size_of::<MishRaw>()));
        };
        if raw.magic != *b"mish" || raw.version.get() != 1 {
            return damaged(0, "mish, version 1, expected".into());
        }
        let Ok((runs, _)) = <[RunRaw]>::ref_from_prefix_with_elems(rest, raw.run_count.get() as usize) else {
            return damaged(0xC8, format!("{} runs in {} bytes", raw.run_count, rest.len()));
        };
        if raw.first_sector.get().checked_add(raw.sector_count.get()).is_none_or(|end| end > MOST_SECTORS) {
            return damaged(8, format!("{} sectors from {} are no part of a disk", raw.sector_count, raw.first_sector));
        }
        let mut table = Self {
            first_sector: raw.first_sector.get(),
            sector_count: raw.sector_count.get(),
            checksum: raw.checksum.parse(),
            runs: Vec::with_capacity(runs.len()),
        };
        for (n, run) in runs.iter().enumerate() {
            let at = (size_of::<MishRaw>() + n * size_of::<RunRaw>()) as u64;
            let kind = match run.kind.get() {
                0 => RunKind::Zero,
                RAW => RunKind::Raw,
                2 => RunKind::Ignore,
                0x8000_0004 => RunKind::Packed(Codec::Adc),
                0x8000_0005 => RunKind::Packed(Codec::Zlib),
                0x8000_0006 => RunKind::Packed(Codec::Bzip2),
                0x8000_0007 => RunKind::Packed(Codec::Lzfse),
                0x8000_0008 => RunKind::Packed(Codec::Lzma),
                0x7FFF_FFFE => continue, // a comment
                0xFFFF_FFFF => break,    // the end
                other => {
                    return Err(Error::unsupported(MISH, format!("runs of kind {other:#x} are not known")).at(at).in_file(name));
                }
            };
            let end = run.first_sector.get().checked_add(run.sector_count.get());
            if end.is_none_or(|end| end > table.sector_count) {
                let message =
                    format!("{} sectors from {} in a table of {}", run.sector_count, run.first_sector, raw.sector_count);
                return damaged(at, message);
            }
            let offset = run.offset.get().checked_add(raw.data_offset.get());
            let (offset, length) = match kind {
                RunKind::Zero | RunKind::Ignore => (0, 0),
                _ => match offset {
                    Some(offset) => (offset, run.length.get()),
                    None => {
                        return damaged(at, format!("{} bytes beyond {} are no place in a file", run.offset, raw.data_offset));
                    }
                },
            };
            let (first_sector, sector_count) = (run.first_sector.get(), run.sector_count.get());
            table.runs.push(Run { kind, first_sector, sector_count, offset, length });
        }
        Ok(table)
    }
}

/// No disk has more: its bytes would not fit 63 bits.
pub(super) const MOST_SECTORS: u64 = (1 << 63) / 512;
