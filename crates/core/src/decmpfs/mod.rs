//! Transparent compression of a file by macOS: its contents are stored compressed in an extended
//! attribute or in the resource fork. Sections of `docs/formats/decmpfs.md` are cited as §n
//! throughout.
//!
//! For a file with the compression flag, a file system reads the attribute [`ATTRIBUTE`], parses it
//! with [`Compression::parse`], and presents [`contents`] instead of the empty data fork.

mod chunk;
mod contents;
mod fork;
pub mod layout;
mod pack;
mod pack_options;
mod table;
mod zeros;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use zerocopy::FromBytes;

use self::contents::Contents;
use self::fork::PackedFork;
use self::layout::{HeaderRaw, MAGIC, MAX_ATTRIBUTE};
use self::table::ChunkTable;
use self::zeros::Zeros;
use crate::device::{BlockDevice, Memory};
use crate::size::to_usize;
use crate::{Error, Kind, Result};

pub use self::pack::{Bounds, MAX_LEN, PackedFile, PlainContents, pack};
pub use self::pack_options::PackOptions;

/// Name of the attribute that describes compressed contents.
pub const ATTRIBUTE: &str = "com.apple.decmpfs";

const LAYER: &str = "decmpfs";
/// Size of a chunk of the contents in bytes; each is compressed separately (§4).
pub(crate) const CHUNK: u64 = 65536;
/// Maximum length of contents in an attribute, in bytes. macOS writes at most one chunk; this
/// limits the memory that a damaged attribute can request.
const MAX_INLINE: u64 = 4 << 20;

/// Compression method of the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Not compressed.
    Stored,
    /// zlib streams.
    Zlib,
    /// LZVN without a frame.
    Lzvn,
    /// LZFSE streams.
    Lzfse,
    /// LZBITMAP streams.
    Lzbitmap,
    /// LZ4 in Apple's frame; macOS 27 and later.
    Lz4,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stored => "stored",
            Self::Zlib => "zlib",
            Self::Lzvn => "LZVN",
            Self::Lzfse => "LZFSE",
            Self::Lzbitmap => "LZBITMAP",
            Self::Lz4 => "LZ4",
        })
    }
}

/// Location of the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// After the header of the attribute.
    Attribute,
    /// In the resource fork.
    Fork,
    /// Not stored: the contents are zeros.
    Nowhere,
    /// Not on this disk: downloaded from a server when a Mac reads the file.
    Server,
}

/// Compression of a file, as described by its attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// Number of the type (§3).
    pub number: u32,
    /// Length of the contents in bytes.
    pub size: u64,
}

impl Compression {
    /// Parses `value`, the attribute named [`ATTRIBUTE`]. Returns `None` if macOS treats the file
    /// as uncompressed.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (header, _) = HeaderRaw::ref_from_prefix(value).ok()?;
        (header.magic == MAGIC && value.len() <= MAX_ATTRIBUTE).then(|| Self {
            number: header.compression_type.get(),
            size: layout::size(header),
        })
    }

    /// Returns the compression method and the location of the chunks; `None` for an undocumented
    /// type.
    pub fn method(self) -> Option<(Method, Place)> {
        Some(match self.number {
            1 | 9 => (Method::Stored, Place::Attribute),
            3 => (Method::Zlib, Place::Attribute),
            4 => (Method::Zlib, Place::Fork),
            5 => (Method::Stored, Place::Nowhere),
            7 => (Method::Lzvn, Place::Attribute),
            8 => (Method::Lzvn, Place::Fork),
            10 => (Method::Stored, Place::Fork),
            11 => (Method::Lzfse, Place::Attribute),
            12 => (Method::Lzfse, Place::Fork),
            13 => (Method::Lzbitmap, Place::Attribute),
            14 => (Method::Lzbitmap, Place::Fork),
            15 => (Method::Lz4, Place::Attribute),
            16 => (Method::Lz4, Place::Fork),
            layout::DATALESS_FILE | layout::DATALESS_PACKAGE => (Method::Stored, Place::Server),
            _ => return None,
        })
    }
}

/// Returns the contents of a file with the attribute `value` as a read-only device. `fork` opens
/// its resource fork.
///
/// Contents in the attribute are decoded here; for those in a fork only the head of the table is
/// read.
pub fn contents(
    value: &[u8],
    fork: impl FnOnce() -> Result<Arc<dyn BlockDevice>>,
) -> Result<Arc<dyn BlockDevice>> {
    let compression = Compression::parse(value)
        .ok_or_else(|| Error::corrupt(LAYER, 0, "expected the signature `fpmc`"))?;
    let size = compression.size;
    match compression.method() {
        Some((method, Place::Attribute)) => {
            let plain = inline(compression, method, &value[size_of::<HeaderRaw>()..])?;
            Ok(Arc::new(Memory::read_only(plain)))
        }
        Some((_, Place::Nowhere)) => Ok(Arc::new(Zeros { len: size })),
        Some((method, Place::Fork)) => {
            let fork = PackedFork::new(fork()?)?;
            let table = ChunkTable::open(&fork, method, size)?;
            Ok(Arc::new(Contents::new(fork, table, method, size)))
        }
        Some((_, Place::Server)) => {
            let message = "the contents are on a server (iCloud, for example) and not on this disk";
            Err(Error::unsupported(LAYER, message))
        }
        None => {
            let message = format!("unsupported compression type {}", compression.number);
            Err(Error::unsupported(LAYER, message))
        }
    }
}

/// Decodes `packed`, contents in the attribute.
fn inline(compression: Compression, method: Method, packed: &[u8]) -> Result<Vec<u8>> {
    let Compression { number, size } = compression;
    if size > MAX_INLINE {
        let message =
            format!("{size} bytes do not fit in an attribute: the maximum is {MAX_INLINE}");
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    let len = to_usize(size);
    if number == 1 {
        return match packed.len() == len {
            true => Ok(packed.to_vec()),
            false => {
                let message = format!(
                    "the attribute has {} bytes; expected {len} by its size field",
                    packed.len()
                );
                Err(Error::new(Kind::Corrupt, LAYER, message))
            }
        };
    }
    let mut plain = vec![0; len];
    if len > 0 || !packed.is_empty() {
        chunk::decode(method, packed, &mut plain)?;
    }
    Ok(plain)
}
