//! The parameters of compression, and the types of attributes that follow from them.

use zerocopy::IntoBytes;

use super::layout::{HeaderRaw, MAGIC};
use super::{LAYER, Method, Place};
use crate::codec::Level;
use crate::{Error, Result};

/// Compression parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackOptions {
    pub(super) method: Method,
    pub(super) level: Level,
}

impl PackOptions {
    /// Creates parameters; `level` applies only to zlib. [`Kind::Unsupported`](crate::Kind) for methods that are
    /// not written: LZBITMAP, LZ4, and stored contents.
    pub fn new(method: Method, level: Level) -> Result<Self> {
        match method {
            Method::Zlib | Method::Lzvn | Method::Lzfse => Ok(Self { method, level }),
            Method::Stored | Method::Lzbitmap | Method::Lz4 => Err(Error::unsupported(
                LAYER,
                format!("cannot compress by {method}: only zlib, LZVN and LZFSE are supported"),
            )),
        }
    }

    /// Returns the number of the type (§3) for contents at this location.
    pub(super) fn number(self, place: Place) -> u32 {
        let in_attribute = match self.method {
            Method::Lzvn => 7,
            Method::Lzfse => 11,
            _ => 3,
        };
        in_attribute + u32::from(place == Place::Fork)
    }

    /// Returns the attribute of contents of `len` bytes.
    pub(super) fn attribute(self, place: Place, len: u64, payload: &[u8]) -> Vec<u8> {
        let compression_type = self.number(place).into();
        let header = HeaderRaw {
            magic: MAGIC,
            compression_type,
            uncompressed_size: len.into(),
        };
        [header.as_bytes(), payload].concat()
    }
}
