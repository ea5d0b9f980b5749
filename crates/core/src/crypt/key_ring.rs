//! Changing the key entries of an image: passphrases and certificates are added and removed, the
//! keys of the data stay.

use std::sync::Arc;

use super::entry::{Content, KeyEntry, KeySlot, NewKeySlot, check_overlaps};
use super::header::{Key, LockedHeader};
use super::keys::KeyMaterial;
use super::layout::{Header, PUBLIC_KEY};
use super::rewrite::{erase, rewrite};
use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";

/// The key entries of an unlocked image. Entries count from 0, in the order of the header.
///
/// Every change is durable on return. A crash at any time leaves the image with its old or its new
/// entries. A removed passphrase or key can still open a copy of the image with the old header: the
/// keys of the data do not change.
#[derive(Debug)]
pub struct KeyRing {
    file: Arc<dyn BlockDevice>,
    header: Header,
    entries: Vec<KeyEntry>,
    keys: KeyMaterial,
    opened: usize,
}

impl KeyRing {
    /// Unlocks the version 2 header at the start of `file`, an image or the token of a sparse
    /// bundle.
    pub fn unlock(file: Arc<dyn BlockDevice>, key: &Key) -> Result<Self> {
        let locked = read(&*file)?;
        let (keys, opened) = locked.open_with(key)?;
        let (header, entries) = locked.into_v2()?;
        Ok(Self {
            file,
            header,
            entries,
            keys,
            opened,
        })
    }

    /// Returns the number of the entry that unlocked it.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// Returns the key entries.
    pub fn key_slots(&self) -> Vec<KeySlot> {
        self.entries.iter().map(KeyEntry::describe).collect()
    }

    /// Replaces `entry` with another key entry, and wipes the old one.
    pub fn replace(self, entry: usize, new: &NewKeySlot) -> Result<()> {
        self.check(entry)?;
        let new = new.wrap(&self.keys)?;
        let mut entries = self.stored(Some(entry))?;
        entries[entry] = new;
        self.write(&entries)
    }

    /// Adds a key entry and returns its number. Certificates precede the others, as in macOS.
    pub fn insert(self, new: &NewKeySlot) -> Result<usize> {
        let new = new.wrap(&self.keys)?;
        let mut entries = self.stored(None)?;
        let before = |(kind, _): &(u32, Vec<u8>)| *kind == PUBLIC_KEY;
        let place = if before(&new) {
            entries.iter().take_while(|entry| before(entry)).count()
        } else {
            entries.len()
        };
        entries.insert(place, new);
        self.write(&entries)?;
        Ok(place)
    }

    /// Removes a key entry and wipes it.
    ///
    /// [`Kind::Invalid`] for the last supported one, and for the one that unlocked this, because
    /// the caller must prove that another one opens the image.
    pub fn remove(self, entry: usize) -> Result<()> {
        self.check(entry)?;
        let refused = |message: &'static str| Err(Error::invalid(LAYER, message));
        let others = self
            .entries
            .iter()
            .filter(|entry| !matches!(entry.content, Content::Unknown(..)))
            .count();
        if others == 1 && !matches!(self.entries[entry].content, Content::Unknown(..)) {
            return refused("cannot remove the last key entry: nothing else unlocks the image");
        }
        if entry == self.opened {
            return refused(
                "the given passphrase or private key is the one to be removed; give another to \
                 prove that one remains",
            );
        }
        let mut entries = self.stored(Some(entry))?;
        entries.remove(entry);
        self.write(&entries)
    }

    fn check(&self, entry: usize) -> Result<()> {
        match self.entries.len() {
            count if entry < count => Ok(()),
            count => Err(Error::new(
                Kind::NotFound,
                LAYER,
                format!(
                    "no key entry has the number {}: the last one is {count}",
                    entry + 1
                ),
            )),
        }
    }

    /// Returns all entries as stored, including unsupported ones, with an empty one for `but`.
    fn stored(&self, but: Option<usize>) -> Result<Vec<(u32, Vec<u8>)>> {
        let stays = |number| but != Some(number);
        check_overlaps(
            self.entries
                .iter()
                .enumerate()
                .filter(|(number, _)| stays(*number))
                .map(|(_, entry)| entry),
        )?;
        let bytes = |(number, entry): (usize, &KeyEntry)| {
            let bytes = if stays(number) {
                entry.bytes(&*self.file)?
            } else {
                Vec::new()
            };
            Ok((entry.kind, bytes))
        };
        self.entries.iter().enumerate().map(bytes).collect()
    }

    fn write(&self, entries: &[(u32, Vec<u8>)]) -> Result<()> {
        rewrite(&*self.file, &self.header, &self.entries, entries)
    }
}

/// Removes all key entries of the image whose version 2 header is at the start of `file`, durably.
/// Nothing can open the image any more.
pub fn erase_keys(file: &dyn BlockDevice) -> Result<()> {
    let (header, _) = read(file)?.into_v2()?;
    erase(file, &header)
}

fn read(file: &dyn BlockDevice) -> Result<LockedHeader> {
    LockedHeader::read(file)?.ok_or_else(|| Error::invalid(LAYER, "the image is not encrypted"))
}
