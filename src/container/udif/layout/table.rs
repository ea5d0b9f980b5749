//! On-disk structures of a block table, which is stored in a resource. Source: docs/formats/udif.md
//! §4.

use zerocopy::byteorder::big_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Checksum, ChecksumRaw};
use crate::codec::Codec;
use crate::{Error, Result};

const MISH: &str = "udif block table";

/// Maximum number of sectors of a disk: its length in bytes must fit 63 bits.
pub(crate) const MAX_SECTORS: u64 = (1 << 63) / 512;

const MISH_MAGIC: [u8; 4] = *b"mish";

/// The header of a block table, followed by its runs.
///
/// Source: images of hdiutil in keramics and john-samples (docs/formats/udif.md §4).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct MishRaw {
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

/// A run of a block table.
///
/// Source: images of hdiutil in keramics and john-samples (docs/formats/udif.md §4).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RunRaw {
    /*00*/ kind: U32,
    /*04*/ comment: U32,
    /*08*/ first_sector: U64, // within the table
    /*10*/ sector_count: U64,
    /*18*/ offset: U64, // within the data fork, plus the table's data offset
    /*20*/ length: U64,
}
const _: () = assert!(size_of::<RunRaw>() == 40);

/// Type of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// Zeros.
    Zero,
    /// Not allocated by the file system: reads as zeros, omitted from checksums.
    Ignore,
    /// Uncompressed data.
    Raw,
    /// Compressed data.
    Packed(Codec),
}

/// Type of a comment, which is not a run of the disk.
const COMMENT: u32 = 0x7FFF_FFFE;
/// Type of the terminator after the last run.
const END: u32 = 0xFFFF_FFFF;

impl RunKind {
    const ALL: [Self; 8] = [
        Self::Zero,
        Self::Ignore,
        Self::Raw,
        Self::Packed(Codec::Adc),
        Self::Packed(Codec::Zlib),
        Self::Packed(Codec::Bzip2),
        Self::Packed(Codec::Lzfse),
        Self::Packed(Codec::Lzma),
    ];

    fn of(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the code of the type in a table.
    fn code(self) -> u32 {
        match self {
            Self::Zero => 0,
            Self::Raw => 1,
            Self::Ignore => 2,
            Self::Packed(Codec::Adc) => 0x8000_0004,
            Self::Packed(Codec::Zlib) => 0x8000_0005,
            Self::Packed(Codec::Bzip2) => 0x8000_0006,
            Self::Packed(Codec::Lzfse) => 0x8000_0007,
            Self::Packed(Codec::Lzma) => 0x8000_0008,
        }
    }
}

/// A run of sectors of the disk, relative to its table, with the location of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectorRun {
    pub(crate) kind: RunKind,
    pub(crate) first_sector: u64,
    pub(crate) sector_count: u64,
    /// Offset in the joined data fork.
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// A block table: an area of the disk and its runs.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) first_sector: u64,
    pub(crate) sector_count: u64,
    pub(crate) checksum: Checksum,
    pub(crate) runs: Vec<SectorRun>,
}

impl Table {
    /// Parses the resource `bytes`; `name` is used in errors.
    pub(crate) fn parse(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged =
            |at: u64, message: String| Err(Error::corrupt(MISH, at, message).in_file(name));
        let Ok((raw, rest)) = MishRaw::ref_from_prefix(bytes) else {
            return damaged(
                0,
                format!(
                    "the table has {} bytes, fewer than its header of {}",
                    bytes.len(),
                    size_of::<MishRaw>()
                ),
            );
        };
        if raw.magic != MISH_MAGIC || raw.version.get() != 1 {
            return damaged(0, "expected the signature mish and version 1".into());
        }
        let Ok((runs, _)) =
            <[RunRaw]>::ref_from_prefix_with_elems(rest, raw.run_count.get() as usize)
        else {
            return damaged(
                0xC8,
                format!(
                    "the table records {} runs, which do not fit in its {} bytes",
                    raw.run_count,
                    rest.len()
                ),
            );
        };
        if raw
            .first_sector
            .get()
            .checked_add(raw.sector_count.get())
            .is_none_or(|end| end > MAX_SECTORS)
        {
            return damaged(
                8,
                format!(
                    "invalid run: {} sectors from {}",
                    raw.sector_count, raw.first_sector
                ),
            );
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
                COMMENT => continue,
                END => break,
                code => RunKind::of(code).ok_or_else(|| {
                    Error::unsupported(MISH, format!("unsupported run type {code:#x}"))
                        .at(at)
                        .in_file(name)
                })?,
            };
            let end = run.first_sector.get().checked_add(run.sector_count.get());
            if end.is_none_or(|end| end > table.sector_count) {
                let message = format!(
                    "the run of {} sectors from sector {} on exceeds the table of {} sectors",
                    run.sector_count, run.first_sector, raw.sector_count
                );
                return damaged(at, message);
            }
            let offset = run.offset.get().checked_add(raw.data_offset.get());
            let (offset, length) = match kind {
                RunKind::Zero | RunKind::Ignore => (0, 0),
                _ => match offset {
                    Some(offset) => (offset, run.length.get()),
                    None => {
                        return damaged(
                            at,
                            format!(
                                "invalid offset of a run: {} bytes from byte {} on exceed 2^64",
                                run.offset, raw.data_offset
                            ),
                        );
                    }
                },
            };
            let (first_sector, sector_count) = (run.first_sector.get(), run.sector_count.get());
            table.runs.push(SectorRun {
                kind,
                first_sector,
                sector_count,
                offset,
                length,
            });
        }
        Ok(table)
    }
}

impl MishRaw {
    /// Returns the header of a new table.
    pub(crate) fn new(
        first_sector: u64,
        sectors: u64,
        buffer_sectors: u32,
        descriptor: i32,
        sum: u32,
        runs: u32,
    ) -> Self {
        Self {
            magic: MISH_MAGIC,
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
    /// Returns a run of a new table. The offset of a run without data is that of the next data, as
    /// in hdiutil.
    pub(crate) fn new(
        kind: RunKind,
        first_sector: u64,
        sector_count: u64,
        offset: u64,
        length: u64,
    ) -> Self {
        Self {
            kind: kind.code().into(),
            comment: 0.into(),
            first_sector: first_sector.into(),
            sector_count: sector_count.into(),
            offset: offset.into(),
            length: length.into(),
        }
    }

    /// Returns the terminator of a table of `sectors` sectors, where the data fork ends at
    /// `offset`.
    pub(crate) fn end(sectors: u64, offset: u64) -> Self {
        Self {
            kind: END.into(),
            ..Self::new(RunKind::Zero, sectors, 0, offset, 0)
        }
    }

    /// Extends an uncompressed run by the following sectors and bytes. Returns false if the run is
    /// of another type.
    pub(crate) fn join_raw(&mut self, sectors: u64, length: u64) -> bool {
        let is_raw = self.kind.get() == RunKind::Raw.code();
        if is_raw {
            self.sector_count += sectors;
            self.length += length;
        }
        is_raw
    }
}
