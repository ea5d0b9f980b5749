//! Encryption of what is written to an encrypted volume: the tweak of every unit is its position in
//! the container.

use std::ops::Range;

use super::{BLOCK_SIZE, LAYER};
use crate::apfs::cipher::VolumeCipher;
use bandsaw_core::crypt::Xts;
use bandsaw_core::device::{AfterDiscard, BlockDevice, Extent, FileRange, Info};
use bandsaw_core::{Error, Result};

/// A container with writes encrypted for one volume; requests are whole units of the cipher.
#[derive(Debug)]
pub(super) struct EncryptingContainer<'a> {
    device: &'a dyn BlockDevice,
    cipher: VolumeCipher,
}

impl<'a> EncryptingContainer<'a> {
    /// Returns the device with the key of the volume.
    pub(super) fn new(device: &'a dyn BlockDevice, key: &[u8; 32]) -> Self {
        Self {
            device,
            cipher: VolumeCipher::new(key, BLOCK_SIZE),
        }
    }

    /// Returns the number of the unit at which a request begins.
    fn unit(&self, offset: u64, len: usize) -> Result<u64> {
        if !offset.is_multiple_of(Xts::UNIT as u64) || !len.is_multiple_of(Xts::UNIT) {
            let message = format!("{len} bytes at {offset} are not whole cipher blocks");
            return Err(Error::invalid(LAYER, message));
        }
        Ok(offset / Xts::UNIT as u64)
    }
}

impl BlockDevice for EncryptingContainer<'_> {
    fn info(&self) -> Info {
        self.device.info()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let unit = self.unit(offset, buf.len())?;
        self.device.read_at(offset, buf)?;
        self.cipher.decrypt_units(0, unit, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let unit = self.unit(offset, buf.len())?;
        let mut sealed = buf.to_vec();
        self.cipher.encrypt_units(0, unit, &mut sealed);
        self.device.write_at(offset, &sealed)
    }

    /// Does nothing if any content may remain. Zeros are unsupported: the caller must write them.
    fn discard(&self, range: Range<u64>, leave: AfterDiscard) -> Result<()> {
        self.info().check_range(LAYER, &range)?;
        match leave {
            AfterDiscard::Any => Ok(()),
            AfterDiscard::Zeros => Err(Error::unsupported(
                LAYER,
                "an encrypted volume cannot have sparse zeros: they must be written",
            )),
        }
    }

    fn extent_at(&self, range: Range<u64>) -> Result<Extent> {
        self.info().data_extent(LAYER, &range)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn set_len(&self, _len: u64, _leave: AfterDiscard) -> Result<()> {
        Err(Error::unsupported(
            LAYER,
            "cannot change the length of a container while it is created",
        ))
    }

    fn file_range(&self, range: Range<u64>) -> Result<Option<FileRange>> {
        self.info().check_range(LAYER, &range)?;
        Ok(None)
    }
}
