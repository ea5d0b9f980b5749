//! Transparent compression of one file: what macOS shows as ordinary contents is kept packed, in an
//! extended attribute or in the resource fork. Sections of `docs/formats/decmpfs.md` are cited as
//! §n throughout.
//!
//! A file system finds the attribute [`ATTRIBUTE`] of a file that has the flag for it, asks
//! [`Compression::parse`] what it says, and hands out [`contents`] in place of the empty data fork.

mod chunk;
mod contents;
mod encode;
mod fork;
pub(crate) mod layout;
mod pack;
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
use crate::{Error, Kind, Result};

pub use self::pack::{Bounds, MAX_LEN, Packed, Packing, Plain, pack};

/// The attribute that describes compressed contents.
pub const ATTRIBUTE: &str = "com.apple.decmpfs";

const LAYER: &str = "decmpfs";
/// Contents are cut into chunks of this many bytes, each packed by itself (§4).
pub(crate) const CHUNK: u64 = 65536;
/// Contents in an attribute are no longer than this. macOS writes one chunk at most; this bounds
/// what damage can ask for.
const MAX_INLINE: u64 = 4 << 20;

/// How chunks are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Not at all.
    Stored,
    /// zlib streams.
    Zlib,
    /// LZVN without a frame.
    Lzvn,
    /// LZFSE streams.
    Lzfse,
    /// LZBITMAP streams.
    Lzbitmap,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stored => "stored",
            Self::Zlib => "zlib",
            Self::Lzvn => "LZVN",
            Self::Lzfse => "LZFSE",
            Self::Lzbitmap => "LZBITMAP",
        })
    }
}

/// Where the chunks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Behind the attribute's header.
    Attribute,
    /// In the resource fork.
    Fork,
    /// Nowhere: the contents are zeros.
    Nowhere,
    /// Not on this disk: they come from a server when a Mac reads the file.
    Server,
}

/// How a file is compressed, as its attribute says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The type's number (§3).
    pub number: u32,
    /// Bytes of the contents.
    pub size: u64,
}

impl Compression {
    /// What `value`, an attribute of name [`ATTRIBUTE`], says; `None` where macOS takes the file
    /// for a plain one.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (header, _) = HeaderRaw::ref_from_prefix(value).ok()?;
        (header.magic == MAGIC && value.len() <= MAX_ATTRIBUTE).then(|| Self {
            number: header.compression_type.get(),
            size: layout::size(header),
        })
    }

    /// How the chunks are packed and where they are; `None` for a type that nobody has described.
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
            layout::DATALESS_FILE | layout::DATALESS_PACKAGE => (Method::Stored, Place::Server),
            _ => return None,
        })
    }
}

/// The contents of a file whose attribute is `value`, as a read-only device. `fork` opens its
/// resource fork.
///
/// Contents in the attribute are decoded here; of those in a fork only the head of the table is
/// looked at.
pub fn contents(
    value: &[u8],
    fork: impl FnOnce() -> Result<Arc<dyn BlockDevice>>,
) -> Result<Arc<dyn BlockDevice>> {
    let compression = Compression::parse(value)
        .ok_or_else(|| Error::corrupt(LAYER, 0, "an attribute that begins with `fpmc` expected"))?;
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
            let message = "the contents are not on this disk but on a server (iCloud or the like), from where a Mac would fetch them";
            Err(Error::unsupported(LAYER, message))
        }
        None => {
            let message = format!(
                "contents are compressed in a way that is not known (type {})",
                compression.number
            );
            Err(Error::unsupported(LAYER, message))
        }
    }
}

/// Decodes contents that stand in the attribute, `packed`.
fn inline(compression: Compression, method: Method, packed: &[u8]) -> Result<Vec<u8>> {
    let Compression { number, size } = compression;
    if size > MAX_INLINE {
        let message =
            format!("{size} bytes cannot be packed in an attribute; up to {MAX_INLINE} expected");
        return Err(Error::new(Kind::Corrupt, LAYER, message));
    }
    let len = size as usize;
    if number == 1 {
        return match packed.len() == len {
            true => Ok(packed.to_vec()),
            false => {
                let message = format!(
                    "the attribute holds {} bytes, {len} expected by its size field",
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
