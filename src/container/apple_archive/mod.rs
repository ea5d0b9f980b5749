//! Apple Archive as a file: a stream of entries as it is (`.aar`, `.yaa`), or compressed in blocks (`pbze`,
//! `pbzx`, ...). The stream is the disk; `fs::apple_archive` reads the files in it.
//! Source: docs/formats/apple-archive.md.

#[cfg(any(test, feature = "testing"))]
pub mod fixture;
mod layout;
mod stream;

use std::ops::Range;
use std::sync::Arc;

use self::layout::MAGICS;
use super::Format;
use super::checksum::StoredChecksum;
use super::mapped::{ChunkPlace, DiskMap, MappedChunk};
use crate::Result;
use crate::device::{BlockDevice, BlockDeviceExt};
use crate::problem::Problems;
use crate::progress::Progress;
use crate::size;

pub use self::stream::BlockCompression;
use self::stream::BlockStream;

const LAYER: &str = "apple archive";

/// Returns true if `file` is an archive. A compressed file of anything else is none.
pub fn probe(file: &dyn BlockDevice) -> Result<bool> {
    if file.info().len < MAGICS[0].len() as u64 {
        return Ok(false);
    }
    let magic = file.read_array::<4>(0)?;
    if MAGICS.contains(&magic) {
        return Ok(true);
    }
    let Some(compression) = BlockCompression::of(&magic) else {
        return Ok(false);
    };
    match stream::first_bytes(file, compression) {
        Ok(start) => Ok(MAGICS.contains(&start)),
        // Opening it reports what is damaged.
        Err(error) if error.kind() != crate::Kind::Io => Ok(true),
        Err(error) => Err(error),
    }
}

/// An archive in a file.
#[derive(Debug)]
pub struct AppleArchiveFile {
    stream: Arc<dyn BlockDevice>,
    /// The compression and the number of blocks.
    blocks: Option<(BlockCompression, u64)>,
}

impl AppleArchiveFile {
    /// Opens the archive in `file`. Of a compressed one the headers of all blocks are read.
    pub fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let magic = file.read_array::<4>(0)?;
        let Some(compression) = BlockCompression::of(&magic) else {
            return Ok(Self {
                stream: file,
                blocks: None,
            });
        };
        let stream = BlockStream::open(file, compression)?;
        Ok(Self {
            blocks: Some((compression, stream.blocks())),
            stream: Arc::new(stream),
        })
    }
}

impl DiskMap for AppleArchiveFile {
    fn format(&self) -> Format {
        Format::Aar
    }

    fn layer(&self) -> &'static str {
        LAYER
    }

    fn disk_len(&self) -> u64 {
        self.stream.info().len
    }

    fn chunk_at(&self, _offset: u64) -> Result<MappedChunk> {
        Ok(MappedChunk {
            range: 0..self.disk_len(),
            place: ChunkPlace::Stored(self.stream.clone(), 0),
        })
    }

    fn decode(&self, chunk: &Range<u64>, out: &mut [u8]) -> Result<()> {
        self.stream.read_at(chunk.start, out)
    }

    // The check of the files reads all blocks.
    fn check(&self, _problems: &mut Problems, _progress: &dyn Progress) -> Result<()> {
        Ok(())
    }

    fn verify(&self, _progress: &dyn Progress) -> Result<Vec<StoredChecksum>> {
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self.blocks {
            None => vec![("compressed", "no".to_owned())],
            Some((compression, count)) => vec![
                ("compressed", format!("by {}", compression.name())),
                ("blocks", size::counted(count, "block", "blocks")),
            ],
        }
    }
}
