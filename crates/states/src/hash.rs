//! The hash of a file: BLAKE3, in hexadecimal.

use bandsaw::device::BlockDevice;
use bandsaw::progress::Progress;
use bandsaw::store::{Open, Store};
use bandsaw::{Error, Result};

use crate::LAYER;

/// Bytes read at a time.
const PIECE: u64 = 1 << 20;

/// Returns the hash of a file of a store, and its length in bytes. `None`: it does not exist.
pub(crate) fn hash(
    store: &dyn Store,
    name: &str,
    progress: &dyn Progress,
) -> Result<Option<(String, u64)>> {
    match store.open(name, Open::Read)? {
        Some(file) => hash_device(&*file, progress).map(Some),
        None => Ok(None),
    }
}

/// Does the same for a file that must exist.
pub(crate) fn hash_existing(
    store: &dyn Store,
    name: &str,
    progress: &dyn Progress,
) -> Result<(String, u64)> {
    hash(store, name, progress)?.ok_or_else(|| Error::not_found(LAYER, name))
}

fn hash_device(file: &dyn BlockDevice, progress: &dyn Progress) -> Result<(String, u64)> {
    let len = file.info().len;
    let mut hasher = blake3::Hasher::new();
    let mut buf = vec![0; bandsaw::size::to_usize(PIECE.min(len))];
    let mut at = 0;
    while at < len {
        progress.check()?;
        let piece = bandsaw::size::to_usize(PIECE.min(len - at));
        file.read_at(at, &mut buf[..piece])?;
        hasher.update(&buf[..piece]);
        at += piece as u64;
        progress.advance(piece as u64);
    }
    Ok((hasher.finalize().to_hex().to_string(), len))
}
