//! The cipher of a volume with one key (§11.1).

use rayon::prelude::*;

use super::layout::BlockSize;
use crate::crypt::Xts;

/// Bytes that one core decrypts at a time; less is not worth waking another for.
const PIECE: usize = 128 << 10;

/// The cipher of an encrypted volume's names and contents.
#[derive(Debug)]
pub(super) struct VolumeCipher {
    xts: Xts,
    /// Of the cipher's units in a block.
    units: u64,
}

impl VolumeCipher {
    /// The cipher with a volume's key.
    pub(super) fn new(key: &[u8; 32], block_size: BlockSize) -> Self {
        Self { xts: Xts::new(key), units: u64::from(block_size.get()) / Xts::UNIT as u64 }
    }

    /// Decrypts blocks in place; `first` is the first one's number for the cipher: of metadata its address, of contents what the
    /// extent says.
    pub(super) fn decrypt_blocks(&self, first: u64, data: &mut [u8]) {
        self.decrypt_units(first, 0, data);
    }

    /// Decrypts units in place, the first of which is `unit` units into the block numbered `first`.
    pub(super) fn decrypt_units(&self, first: u64, unit: u64, data: &mut [u8]) {
        self.each_piece(first, unit, data, |xts, first, piece| xts.decrypt(first, piece));
    }

    /// Encrypts blocks in place, numbered as for [`decrypt_blocks`](Self::decrypt_blocks).
    pub(super) fn encrypt_blocks(&self, first: u64, data: &mut [u8]) {
        self.encrypt_units(first, 0, data);
    }

    /// Encrypts units in place, the first of which is `unit` units into the block numbered `first`.
    pub(super) fn encrypt_units(&self, first: u64, unit: u64, data: &mut [u8]) {
        self.each_piece(first, unit, data, |xts, first, piece| xts.encrypt(first, piece));
    }

    fn each_piece(&self, first: u64, unit: u64, data: &mut [u8], cipher: impl Fn(&Xts, u64, &mut [u8]) + Sync) {
        let first = first.wrapping_mul(self.units).wrapping_add(unit);
        if data.len() <= PIECE || rayon::current_thread_index().is_some() {
            return cipher(&self.xts, first, data);
        }
        let pieces = (0_u64..).step_by(PIECE / Xts::UNIT);
        let pieces: Vec<_> = pieces.zip(data.chunks_mut(PIECE)).collect();
        pieces.into_par_iter().for_each(|(at, piece)| cipher(&self.xts, first.wrapping_add(at), piece));
    }
}
