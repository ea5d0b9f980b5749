//! The blocks of a container, read and verified.

use std::fmt::Display;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::layout::{BlockSize, ObjectRaw, Oid, Paddr, object_type, verify};
use bandsaw_core::device::{self, BlockDevice, BlockDeviceExt};
use bandsaw_core::{Error, Kind, Result};

/// A container's blocks.
#[derive(Debug, Clone)]
pub(super) struct Store {
    /// The device of the whole container.
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) block_size: BlockSize,
    /// Number of blocks according to the superblock; the device may be shorter.
    pub(super) blocks: u64,
}

impl Store {
    /// Reads `count` blocks, beginning with `first`.
    pub(super) fn read(&self, layer: &'static str, first: Paddr, count: u64) -> Result<Box<[u8]>> {
        let mut bytes = device::zeros(self.length(layer, first, count)?)?.into_boxed_slice();
        self.device.read_at(self.offset(first), &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the length of `count` blocks in bytes; they must be within the container and the
    /// device.
    fn length(&self, layer: &'static str, first: Paddr, count: u64) -> Result<usize> {
        let end = first.0.checked_add(count).filter(|&end| end <= self.blocks);
        let Some(end) = end.and_then(|end| self.block_size.of(end)) else {
            let message = format!(
                "{count} blocks from block {first} reach past the end of the container, which has \
                 {} blocks",
                self.blocks
            );
            return Err(Error::new(Kind::Corrupt, layer, message));
        };
        let len = self.device.info().len;
        if end > len {
            let message = format!(
                "the image is truncated: {count} blocks from block {first} are past its end at \
                 byte {len}"
            );
            return Err(Error::corrupt(layer, self.offset(first), message));
        }
        let bytes = self
            .block_size
            .of(count)
            .and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| Error::limit(layer, format!("{count} blocks do not fit in memory")))
    }

    /// Reads the block of an object without verification. Errors name the object.
    pub(super) fn block(&self, layer: &'static str, oid: Oid, paddr: Paddr) -> Result<Box<[u8]>> {
        self.read(layer, paddr, 1)
            .map_err(|error| match error.kind() {
                Kind::Corrupt => self.corrupt(layer, oid, paddr, error.message()),
                _ => error,
            })
    }

    /// Reads a physical object of one block and verifies its header.
    pub(super) fn object(&self, layer: &'static str, paddr: Paddr, kind: u32) -> Result<Box<[u8]>> {
        let block = self.block(layer, Oid(paddr.0), paddr)?;
        self.check(
            layer,
            &block,
            paddr,
            &Expected {
                oid: Oid(paddr.0),
                kind,
                subtype: 0,
            },
        )?;
        Ok(block)
    }

    /// Verifies an object read from `paddr`; returns its header.
    pub(super) fn check(
        &self,
        layer: &'static str,
        object: &[u8],
        paddr: Paddr,
        expected: &Expected,
    ) -> Result<ObjectRaw> {
        let corrupt = |message: String| self.corrupt(layer, expected.oid, paddr, message);
        let Ok((header, _)) = ObjectRaw::read_from_prefix(object) else {
            return Err(corrupt("is truncated".to_owned()));
        };
        if !verify(object) {
            return Err(corrupt("checksum mismatch".to_owned()));
        }
        if Oid::from(header.oid) != expected.oid {
            return Err(corrupt(format!(
                "unexpected object {:#x}",
                header.oid.get()
            )));
        }
        let kind = header.object_type();
        let root_for_node =
            expected.kind == object_type::BTREE_NODE && kind == object_type::BTREE_ROOT;
        if (kind != expected.kind && !root_for_node) || header.subtype.get() != expected.subtype {
            let (subtype, wanted) = (header.subtype.get(), (expected.kind, expected.subtype));
            return Err(corrupt(format!(
                "expected type {:#x}/{:#x}, found {kind:#x}/{subtype:#x}",
                wanted.0, wanted.1
            )));
        }
        Ok(header)
    }

    /// Returns an error about an object and its block.
    pub(super) fn corrupt(
        &self,
        layer: &'static str,
        oid: Oid,
        paddr: Paddr,
        message: impl Display,
    ) -> Error {
        Error::corrupt(
            layer,
            self.offset(paddr),
            format!("object {oid:#x} in block {paddr}: {message}"),
        )
    }

    /// Returns the offset of a block in bytes; `u64::MAX` on overflow.
    pub(super) fn offset(&self, paddr: Paddr) -> u64 {
        self.block_size.offset(paddr).unwrap_or(u64::MAX)
    }

    /// Reads the first `N` bytes of block `paddr` without verification.
    pub(super) fn peek<const N: usize>(&self, paddr: Paddr) -> Result<[u8; N]> {
        self.device.read_array(self.offset(paddr))
    }
}

/// The expected fields of an object's header. [`object_type::BTREE_NODE`] also accepts a root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) oid: Oid,
    pub(super) kind: u32,
    pub(super) subtype: u32,
}
