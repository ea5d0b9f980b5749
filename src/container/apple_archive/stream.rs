//! The stream of a compressed archive: blocks that are decoded as they are read.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::LAYER;
use super::layout::{BlockRaw, EnvelopeRaw, PREFIX};
use crate::codec::{self, Codec};
use crate::device::{
    self, BlockDevice, BlockDeviceExt, ChunkCache, Extent, FileRange, Info, read_only,
};
use crate::size::{narrow, to_usize};
use crate::{Error, Reason, Result};

/// Size of the cache of decoded blocks in bytes.
const CACHE: usize = 32 << 20;
/// Longest block that is decoded, in bytes. Those of `aa` have 4 MiB, of updates and installers 16 MiB.
const MAX_BLOCK: u64 = 64 << 20;
/// Length above which blocks are decoded one at a time, in bytes.
const LONG_BLOCK: u64 = 16 << 20;
/// Maximum number of blocks: about 100 MB of memory.
const MAX_BLOCKS: usize = 1 << 22;

/// The compression of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockCompression {
    /// `pbz-`.
    None,
    /// `pbz4`, LZ4 in Apple's frame.
    Lz4,
    /// `pbzb`, LZBITMAP.
    Lzbitmap,
    /// `pbze`, LZFSE.
    Lzfse,
    /// `pbzx`, an xz stream.
    Lzma,
    /// `pbzz`, a zlib stream.
    Zlib,
}

impl BlockCompression {
    /// Returns the compression of a file by its first bytes.
    pub fn of(magic: &[u8; 4]) -> Option<Self> {
        let letter = magic.strip_prefix(PREFIX)?;
        Some(match letter {
            b"-" => Self::None,
            b"4" => Self::Lz4,
            b"b" => Self::Lzbitmap,
            b"e" => Self::Lzfse,
            b"x" => Self::Lzma,
            b"z" => Self::Zlib,
            _ => return None,
        })
    }

    /// Returns the name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "LZ4",
            Self::Lzbitmap => "LZBITMAP",
            Self::Lzfse => Codec::Lzfse.name(),
            Self::Lzma => Codec::Lzma.name(),
            Self::Zlib => Codec::Zlib.name(),
        }
    }

    fn decode(self, packed: &[u8], plain: &mut [u8]) -> Result<()> {
        match self {
            Self::None => {
                let message = "a block is shorter than its contents, but not compressed";
                Err(Error::corrupt(LAYER, 0, message))
            }
            Self::Lz4 => codec::decode_lz4_framed_or_raw(packed, plain),
            Self::Lzbitmap => codec::decode_lzbitmap(packed, plain),
            Self::Lzfse => Codec::Lzfse.decode(packed, plain),
            Self::Lzma => Codec::Lzma.decode(packed, plain),
            Self::Zlib => Codec::Zlib.decode(packed, plain),
        }
    }
}

/// A block in the file.
#[derive(Debug, Clone, Copy)]
struct StreamBlock {
    /// Offset of the contents in the stream, in bytes.
    start: u64,
    /// Length of the contents in bytes, 1 to [`MAX_BLOCK`].
    len: u32,
    /// Stored length in bytes, at most `len`.
    stored: u32,
    /// File offset of the stored bytes.
    at: u64,
}

impl StreamBlock {
    /// Reads the block whose header is at a byte of the file, with contents from `start` on. `None`: an empty
    /// block, which ends the stream.
    fn read(file: &dyn BlockDevice, header_at: u64, start: u64) -> Result<Option<Self>> {
        let header = size_of::<BlockRaw>();
        let file_len = file.info().len;
        let cut = || {
            let message = "the archive is truncated within a block";
            Error::corrupt(LAYER, header_at, message).because(Reason::Truncated)
        };
        let at = header_at.saturating_add(header as u64);
        if at > file_len {
            return Err(cut());
        }
        let bytes = file.read_vec(header_at, header)?;
        let raw = BlockRaw::read_from_bytes(&bytes).map_err(|_| cut())?;
        let (len, stored) = (raw.length.get(), raw.stored.get());
        if (len, stored) == (0, 0) {
            return Ok(None);
        }
        if len > MAX_BLOCK {
            let message =
                format!("a block of {len} bytes is too large: at most {MAX_BLOCK} are supported");
            return Err(Error::limit(LAYER, message).at(header_at));
        }
        if stored == 0 || stored > len {
            let message = format!("a block of {len} bytes is stored in {stored}");
            return Err(Error::corrupt(LAYER, header_at, message));
        }
        if file_len - at < stored {
            return Err(cut());
        }
        Ok(Some(Self {
            start,
            len: narrow(len),
            stored: narrow(stored),
            at,
        }))
    }

    fn decode(
        &self,
        file: &dyn BlockDevice,
        compression: BlockCompression,
        out: &mut [u8],
    ) -> Result<()> {
        if self.stored == self.len {
            return file.read_at(self.at, out);
        }
        let mut packed = device::zeros(self.stored as usize)?;
        file.read_at(self.at, &mut packed)?;
        compression.decode(&packed, out).map_err(|error| {
            Error::new(error.kind(), LAYER, "cannot decompress a block")
                .at(self.at)
                .caused_by(error)
        })
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }
}

/// Returns the first bytes of the stream of a compressed file; zeros if it is shorter.
pub(super) fn first_bytes(
    file: &dyn BlockDevice,
    compression: BlockCompression,
) -> Result<[u8; 4]> {
    let mut start = [0; 4];
    let first = StreamBlock::read(file, size_of::<EnvelopeRaw>() as u64, 0)?;
    if let Some(first) = first {
        let mut plain = device::zeros(first.len as usize)?;
        first.decode(file, compression, &mut plain)?;
        let len = plain.len().min(start.len());
        start[..len].copy_from_slice(&plain[..len]);
    }
    Ok(start)
}

/// The stream of a compressed file.
#[derive(Debug)]
pub(super) struct BlockStream {
    file: Arc<dyn BlockDevice>,
    compression: BlockCompression,
    /// In order, without gaps.
    blocks: Vec<StreamBlock>,
    /// In bytes.
    len: u64,
    cache: ChunkCache<u32>,
}

impl BlockStream {
    /// Opens the stream in a file.
    pub(super) fn open(file: Arc<dyn BlockDevice>, compression: BlockCompression) -> Result<Self> {
        let (mut blocks, mut at, mut len) = (Vec::new(), size_of::<EnvelopeRaw>() as u64, 0_u64);
        while at < file.info().len {
            let Some(block) = StreamBlock::read(&*file, at, len)? else {
                at += size_of::<BlockRaw>() as u64;
                if at < file.info().len {
                    let message = "bytes follow the empty block at the end of the archive";
                    return Err(Error::corrupt(LAYER, at, message));
                }
                break;
            };
            if blocks.len() == MAX_BLOCKS {
                let message = format!("more than {MAX_BLOCKS} blocks");
                return Err(Error::limit(LAYER, message).at(at));
            }
            at = block.at + u64::from(block.stored);
            len = block.end();
            blocks.push(block);
        }
        Ok(Self {
            file,
            compression,
            blocks,
            len,
            cache: ChunkCache::new(CACHE),
        })
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Returns the contents of a block, through the cache.
    fn decoded(&self, index: usize, block: &StreamBlock) -> Result<Arc<Vec<u8>>> {
        self.cache.get(narrow(index), || {
            let _turn = (u64::from(block.len) > LONG_BLOCK).then(|| {
                let turn = self.cache.lock_for_large_chunk();
                self.cache.clear();
                turn
            });
            let mut plain = device::zeros(block.len as usize)?;
            block.decode(&*self.file, self.compression, &mut plain)?;
            Ok(Arc::new(plain))
        })
    }
}

impl BlockDevice for BlockStream {
    fn info(&self) -> Info {
        Info::read_only(self.len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.info().check(LAYER, offset, buf.len() as u64)?;
        let (mut at, mut rest) = (offset, buf);
        let mut index = self.blocks.partition_point(|block| block.end() <= offset);
        while !rest.is_empty() {
            let block = self
                .blocks
                .get(index)
                .ok_or_else(|| Error::out_of_range(LAYER, at, rest.len() as u64, self.len))?;
            let within = to_usize(at - block.start);
            let len = to_usize(block.end() - at).min(rest.len());
            let (out, after) = rest.split_at_mut(len);
            if block.stored == block.len {
                self.file.read_at(block.at + within as u64, out)?;
            } else {
                out.copy_from_slice(&self.decoded(index, block)?[within..within + len]);
            }
            (at, rest, index) = (at + len as u64, after, index + 1);
        }
        Ok(())
    }

    read_only!(LAYER);

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    /// Returns no range: blocks are decoded.
    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::packed;
    use super::*;
    use crate::Kind;
    use crate::device::Memory;
    use crate::testing::conformance;

    fn opened(bytes: Vec<u8>) -> Result<BlockStream> {
        let magic = *bytes.first_chunk().unwrap();
        let compression = BlockCompression::of(&magic).unwrap();
        BlockStream::open(Arc::new(Memory::read_only(bytes)), compression)
    }

    fn contents() -> Vec<u8> {
        (0..300_000_u32)
            .flat_map(|n| (n / 9).to_le_bytes())
            .collect()
    }

    #[test]
    fn every_compression_is_read() {
        let plain = contents();
        for letter in *b"-4exz" {
            let stream = opened(packed(letter, 100_000, &plain)).unwrap();
            assert_eq!(stream.blocks(), 12);
            let read = stream.read_vec(0, plain.len()).unwrap();
            assert!(read == plain, "{}", char::from(letter));
            assert_eq!(stream.read_vec(99_998, 5).unwrap(), plain[99_998..100_003]);
            conformance::read_only(Arc::new(stream));
        }
    }

    #[test]
    fn damage_is_an_error() {
        let whole = packed(b'z', 100_000, &contents());
        let changed = |at: usize, bytes: &[u8]| {
            let mut file = whole.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            opened(file)
        };
        // The length of the first block, and its stored length.
        let error = changed(12, &(1_u64 << 40).to_be_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
        let error = changed(20, &(1_u64 << 40).to_be_bytes()).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        let error = changed(12, &[0; 16]).unwrap_err();
        assert!(error.to_string().contains("empty block"), "{error}");
        let stream = changed(40, &[0xff; 64]).unwrap();
        let error = stream.read_vec(0, 10).unwrap_err();
        assert_eq!(error.kind(), Kind::Corrupt, "{error}");
        for len in [13, 27, 28, 100, whole.len() - 1] {
            let error = opened(whole[..len].to_vec()).unwrap_err();
            assert_eq!(error.reason(), Some(Reason::Truncated), "{len}: {error}");
        }
        let mut ended = whole;
        ended.extend([0; 16]);
        assert_eq!(opened(ended).unwrap().info().len, 1_200_000);
    }
}
