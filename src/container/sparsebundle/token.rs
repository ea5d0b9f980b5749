//! `token`: empty, or the header of an encrypted bundle. Source: docs/formats/sparsebundle.md §4.

use super::{LAYER, TOKEN};
use crate::crypt::{
    self, CipherBlocks, KeyMaterial, LockedHeader, Protection, Sectors, ZeroBlockMeaning,
};
use crate::device::{Access, AfterDiscard, BlockDeviceExt};
use crate::error::Place;
use crate::size::to_usize;
use crate::store::{Open, Store};
use crate::{Error, Kind, Result};

pub(super) enum Token {
    /// The file is empty or missing.
    Empty,
    /// A file of this many bytes that is not a header.
    Stray(u64),
    /// The header of an encrypted bundle, still locked.
    Header(Box<LockedHeader>),
}

/// Describes a token of `len` bytes that is not a header.
pub(super) fn describe_stray(len: u64) -> String {
    format!(
        "has {len} bytes that are not an encryption header: if the bundle is encrypted, its header \
         is damaged; restore `{TOKEN}` from a backup"
    )
}

/// Returns the error for a token that holds bytes and no header, or `None`.
pub fn damaged(store: &dyn Store) -> Result<Option<Error>> {
    Ok(match read(store)? {
        Token::Stray(len) => Some(damaged_token(len)),
        Token::Empty | Token::Header(_) => None,
    })
}

fn damaged_token(len: u64) -> Error {
    Error::new(Kind::Corrupt, LAYER, describe_stray(len)).named(TOKEN)
}

/// Returns the encryption header of the bundle in `store`, or `None` if the bundle is not
/// encrypted.
pub fn encryption(store: &dyn Store) -> Result<Option<LockedHeader>> {
    Ok(match read(store)? {
        Token::Header(locked) => Some(*locked),
        Token::Empty | Token::Stray(_) => None,
    })
}

pub(super) fn read(store: &dyn Store) -> Result<Token> {
    let Some(token) = store.open(TOKEN, Open::Read)? else {
        return Ok(Token::Empty);
    };
    let len = token.info().len;
    if len == 0 {
        return Ok(Token::Empty);
    }
    if let Some(locked) = LockedHeader::read(&*token).map_err(in_token)? {
        return Ok(Token::Header(Box::new(locked)));
    }
    // A truncated header is an error: without it the bands would be read as plain data.
    let cut_short = match len {
        0..8 => crypt::HEADER_MAGIC
            .starts_with(&token.read_vec(0, to_usize(len))?)
            .then_some("header that they begin"),
        _ => (token.read_array::<8>(len - 8)? == crypt::TRAILER_MAGIC)
            .then_some("trailer at its end"),
    };
    match cut_short {
        Some(what) => Err(Error::corrupt(
            LAYER,
            0,
            format!("the file is truncated: its {len} bytes are too few for the encryption {what}"),
        )
        .named(TOKEN)),
        None => Ok(Token::Stray(len)),
    }
}

/// Adds the file name to an error of the header.
fn in_token(error: Error) -> Error {
    match error.place() {
        Place::Offset(at) => {
            let name = format!("{TOKEN}, byte {at}");
            error.named(name)
        }
        Place::Name(_) | Place::None => error.named(TOKEN),
    }
}

/// Checks that keys are given if and only if the bundle is encrypted. Returns a warning if `token`
/// holds data that is not a header.
pub(super) fn check_keys(
    store: &dyn Store,
    keys: Option<&UnlockedToken<'_>>,
    access: Access,
) -> Result<Option<String>> {
    match (read(store)?, keys) {
        (Token::Header(_), None) => Err(Error::new(
            Kind::WrongKey,
            LAYER,
            "the bundle is encrypted: a passphrase is required",
        )
        .named(TOKEN)),
        (Token::Header(now), Some(unlocked)) => unlocked.check(&now, access).map(|()| None),
        (Token::Empty | Token::Stray(_), Some(_)) => Err(Error::conflict(
            LAYER,
            "the encryption header was replaced since it was unlocked",
        )
        .named(TOKEN)),
        (Token::Stray(len), None) => Ok(Some(format!("{TOKEN} {}", describe_stray(len)))),
        (Token::Empty, None) => Ok(None),
    }
}

/// A header and the keys that it unlocked to.
pub(super) struct UnlockedToken<'a> {
    pub(super) header: &'a LockedHeader,
    pub(super) keys: &'a KeyMaterial,
}

impl UnlockedToken<'_> {
    /// Compares with the current header: a passphrase may have changed in the meantime, but the
    /// keys must be the same.
    fn check(&self, now: &LockedHeader, access: Access) -> Result<()> {
        let (then, now) = (self.header.describe(), now.describe());
        if (then.uuid, then.block, then.key_bits) != (now.uuid, now.block, now.key_bits) {
            let message = "the encryption header was replaced since it was unlocked";
            return Err(Error::conflict(LAYER, message).named(TOKEN));
        }
        if now.version == 1 && access == Access::ReadWrite {
            let message = "encryption version 1 is read-only";
            return Err(Error::new(Kind::ReadOnly, LAYER, message).named(TOKEN));
        }
        Ok(())
    }

    pub(super) fn blocks(&self) -> Result<CipherBlocks> {
        blocks(self.keys, self.header)
    }
}

/// Writes the header of a new bundle to `token`. Its contents are durable, its name is not.
pub(super) fn create(store: &dyn Store, protection: &Protection) -> Result<CipherBlocks> {
    let keys = KeyMaterial::random(protection.key_bits)?;
    let (header, bytes) = LockedHeader::make(&keys, protection, 0)?;
    // In place: the inode carries the lock.
    let Some(token) = store.open(TOKEN, Open::Create)? else {
        return Err(Error::not_found(LAYER, TOKEN));
    };
    token.set_len(bytes.len() as u64, AfterDiscard::Any)?;
    token.write_at(0, &bytes)?;
    token.flush()?;
    blocks(&keys, &header)
}

fn blocks(keys: &KeyMaterial, header: &LockedHeader) -> Result<CipherBlocks> {
    // A crash can leave a band's file longer than the data written to it, and macOS may leave gaps.
    // No cipher text is all zeros, so an all-zero block was never written and reads as zeros.
    Ok(CipherBlocks::new(
        Sectors::new(keys, header.describe().block)?,
        ZeroBlockMeaning::Zeros,
    ))
}
