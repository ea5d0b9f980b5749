//! The cipher of a volume with one key (§11.1).

use std::convert::Infallible;

use super::layout::BlockSize;
use bandsaw_core::Result;
use bandsaw_core::crypt::Xts;
use bandsaw_core::crypt::parallel::{self, PIECE};

/// The cipher for names and contents of an encrypted volume.
#[derive(Debug)]
pub(super) struct VolumeCipher {
    xts: Xts,
    /// Number of cipher units in a block.
    units: u64,
}

impl VolumeCipher {
    /// Returns the cipher with a volume's key.
    pub(super) fn new(key: &[u8; 32], block_size: BlockSize) -> Self {
        Self {
            xts: Xts::new(key),
            units: u64::from(block_size.get()) / Xts::UNIT as u64,
        }
    }

    /// Decrypts blocks in place. `first` is the tweak number of the first block: its block number
    /// for metadata, the crypto ID of the extent for contents.
    pub(super) fn decrypt_blocks(&self, first: u64, data: &mut [u8]) {
        self.decrypt_units(first, 0, data);
    }

    /// Decrypts units in place, the first of which is `unit` units into the block numbered `first`.
    pub(super) fn decrypt_units(&self, first: u64, unit: u64, data: &mut [u8]) {
        self.xts.decrypt(self.number(first, unit), data);
    }

    /// Fills `data`, whole units numbered as for [`decrypt_units`](Self::decrypt_units), and
    /// decrypts it in pieces while each is still in the processor's cache. `read` is called with
    /// the offset of a piece in `data`, in bytes.
    pub(super) fn read_units(
        &self,
        first: u64,
        unit: u64,
        data: &mut [u8],
        read: impl Fn(u64, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        let first = self.number(first, unit);
        parallel::each_mut(data, |number, piece| {
            let at = (number * PIECE) as u64;
            read(at, piece)?;
            self.xts
                .decrypt(first.wrapping_add(at / Xts::UNIT as u64), piece);
            Ok(())
        })
    }

    /// Encrypts blocks in place, numbered as for [`decrypt_blocks`](Self::decrypt_blocks).
    pub(super) fn encrypt_blocks(&self, first: u64, data: &mut [u8]) {
        self.encrypt_units(first, 0, data);
    }

    /// Encrypts units in place, the first of which is `unit` units into the block numbered `first`.
    pub(super) fn encrypt_units(&self, first: u64, unit: u64, data: &mut [u8]) {
        let first = self.number(first, unit);
        let Ok(()) = parallel::each_mut::<Infallible>(data, |number, piece| {
            self.xts.encrypt(
                first.wrapping_add((number * PIECE / Xts::UNIT) as u64),
                piece,
            );
            Ok(())
        });
    }

    /// Returns the number of a unit on the volume.
    fn number(&self, first: u64, unit: u64) -> u64 {
        first.wrapping_mul(self.units).wrapping_add(unit)
    }
}
