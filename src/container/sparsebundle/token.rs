//! `token`: empty, or the header of an encrypted bundle. Source: docs/formats/sparsebundle.md §4.

use super::{LAYER, TOKEN};
use crate::crypt::{Blank, CipherBlocks, KeyMaterial, Locked, Protection, Sectors};
use crate::device::{Access, AfterDiscard, BlockDeviceExt};
use crate::error::Place;
use crate::store::{Open, Store};
use crate::{Error, Kind, Result};

/// What `token` holds.
pub(super) enum Token {
    /// Nothing, or no file.
    Empty,
    /// So many bytes that are no header.
    Stray(u64),
    /// The header of an encrypted bundle, still locked.
    Header(Box<Locked>),
}

/// The encryption header of the bundle in `store`, `None` where the bundle is not encrypted.
pub fn encryption(store: &dyn Store) -> Result<Option<Locked>> {
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
    if let Some(locked) = Locked::read(&*token).map_err(in_token)? {
        return Ok(Token::Header(Box::new(locked)));
    }
    // Half a header is no stray file: without it the bands would be taken for plain bytes.
    let cut_short = match len {
        0..8 => b"encrcdsa"
            .starts_with(&token.read_vec(0, len as usize)?)
            .then_some("header that they begin"),
        _ => (token.read_array::<8>(len - 8)? == *b"cdsaencr").then_some("trailer at its end"),
    };
    match cut_short {
        Some(what) => Err(Error::corrupt(
            LAYER,
            0,
            format!("{len} bytes are too few for the encryption {what}"),
        )
        .named(TOKEN)),
        None => Ok(Token::Stray(len)),
    }
}

/// An error of the header, told as one of the file it is in.
fn in_token(error: Error) -> Error {
    match error.place() {
        Place::Offset(at) => {
            let name = format!("{TOKEN}, byte {at}");
            error.named(name)
        }
        Place::Name(_) | Place::None => error.named(TOKEN),
    }
}

/// Refuses a bundle that is encrypted where no keys were given, and the reverse. Returns a warning
/// if `token` holds what is no header.
pub(super) fn check(
    store: &dyn Store,
    keys: Option<&Unlocked<'_>>,
    access: Access,
) -> Result<Option<String>> {
    match (read(store)?, keys) {
        (Token::Header(_), None) => Err(Error::new(
            Kind::WrongKey,
            LAYER,
            "the bundle is encrypted: a passphrase is needed",
        )
        .named(TOKEN)),
        (Token::Header(now), Some(unlocked)) => unlocked.check(&now, access).map(|()| None),
        (Token::Empty | Token::Stray(_), Some(_)) => Err(Error::new(
            Kind::Conflict,
            LAYER,
            "no longer holds the encryption header that was unlocked",
        )
        .named(TOKEN)),
        (Token::Stray(len), None) => Ok(Some(format!(
            "{TOKEN} holds {len} bytes that are no encryption header; they are ignored"
        ))),
        (Token::Empty, None) => Ok(None),
    }
}

/// A header and the keys that it unlocked to.
pub(super) struct Unlocked<'a> {
    pub(super) header: &'a Locked,
    pub(super) keys: &'a KeyMaterial,
}

impl Unlocked<'_> {
    /// Compares with the header that is there now: a passphrase may have been changed meanwhile,
    /// the keys may not.
    fn check(&self, now: &Locked, access: Access) -> Result<()> {
        let (then, now) = (self.header.describe(), now.describe());
        if (then.uuid, then.block, then.key_bits) != (now.uuid, now.block, now.key_bits) {
            let message = "holds another encryption header than the one that was unlocked";
            return Err(Error::new(Kind::Conflict, LAYER, message).named(TOKEN));
        }
        if now.version == 1 && access == Access::ReadWrite {
            let message = "encryption of version 1 is only read; a converted copy can be changed";
            return Err(Error::new(Kind::ReadOnly, LAYER, message).named(TOKEN));
        }
        Ok(())
    }

    pub(super) fn blocks(&self) -> Result<CipherBlocks> {
        blocks(self.keys, self.header)
    }
}

/// Makes `token` the header of a new bundle, durably but for its name.
pub(super) fn create(store: &dyn Store, protection: &Protection) -> Result<CipherBlocks> {
    let keys = KeyMaterial::random(protection.key_bits)?;
    let (header, bytes) = Locked::make(&keys, protection, 0)?;
    // In place: its inode carries the lock.
    let Some(token) = store.open(TOKEN, Open::Create)? else {
        return Err(Error::not_found(LAYER, TOKEN));
    };
    token.set_len(bytes.len() as u64, AfterDiscard::Any)?;
    token.write_at(0, &bytes)?;
    token.flush()?;
    blocks(&keys, &header)
}

fn blocks(keys: &KeyMaterial, header: &Locked) -> Result<CipherBlocks> {
    // A crash can leave a band's file longer than what was written to it, and macOS may leave gaps.
    // No cipher text is all zeros, so such a block is one that was never written, and what was
    // never written reads as zeros.
    Ok(CipherBlocks::new(
        Sectors::new(keys, header.describe().block)?,
        Blank::Zeros,
    ))
}
