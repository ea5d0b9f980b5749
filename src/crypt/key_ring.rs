//! The ways into an image, changed: passphrases and certificates come and go, the keys of the data
//! stay.

use std::sync::Arc;

use super::entry::{Content, KeyEntry, KeySlot, NewKeySlot, check_overlaps};
use super::header::{Key, Locked};
use super::keys::KeyMaterial;
use super::layout::{Header, PUBLIC_KEY};
use super::rewrite::{erase, rewrite};
use crate::device::BlockDevice;
use crate::{Error, Kind, Result};

const LAYER: &str = "encryption header";

/// The ways into an image that one of them has opened. Entries count from 0, in the order of the
/// header.
///
/// Every change is durable when it returns. A crash at any moment leaves the image with its old
/// ways in or its new ones. What an old way in opened it can open for ever in a copy of the old
/// header: the keys of the data do not change.
#[derive(Debug)]
pub struct KeyRing {
    file: Arc<dyn BlockDevice>,
    header: Header,
    entries: Vec<KeyEntry>,
    keys: KeyMaterial,
    opened: usize,
}

impl KeyRing {
    /// Unlocks the version 2 header at the beginning of `file`, an image or the token of a sparse
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

    /// The entry that opened it.
    pub fn opened(&self) -> usize {
        self.opened
    }

    /// What opens it.
    pub fn ways_in(&self) -> Vec<KeySlot> {
        self.entries.iter().map(KeyEntry::describe).collect()
    }

    /// Puts another way in in place of `entry`, of which nothing is left.
    pub fn replace(self, entry: usize, new: &NewKeySlot) -> Result<()> {
        self.check(entry)?;
        let new = new.wrap(&self.keys)?;
        let mut entries = self.stored(Some(entry))?;
        entries[entry] = new;
        self.write(&entries)
    }

    /// Adds a way in; returns its entry. Certificates stand before the others, as macOS puts them.
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

    /// Removes a way in, of which nothing is left.
    ///
    /// [`Kind::Invalid`] for the last one, and for the one that opened this: that another opens the
    /// image has to be shown.
    pub fn remove(self, entry: usize) -> Result<()> {
        self.check(entry)?;
        let refused = |message: &'static str| Err(Error::new(Kind::Invalid, LAYER, message));
        let others = self
            .entries
            .iter()
            .filter(|entry| !matches!(entry.content, Content::Unknown(..)))
            .count();
        if others == 1 && !matches!(self.entries[entry].content, Content::Unknown(..)) {
            return refused(
                "this is the last way into the image, which nothing would open any more",
            );
        }
        if entry == self.opened {
            return refused(
                "the passphrase or private key given is the one to be removed; give another, which shows that one stays",
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
                format!("has {count} key entries, no number {}", entry + 1),
            )),
        }
    }

    /// All entries as they stand, those that are not understood among them, but for one that goes.
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

/// Removes every way into the image whose version 2 header begins `file`, durably: nothing opens it
/// any more.
pub fn erase_keys(file: &dyn BlockDevice) -> Result<()> {
    let (header, _) = read(file)?.into_v2()?;
    erase(file, &header)
}

fn read(file: &dyn BlockDevice) -> Result<Locked> {
    Locked::read(file)?
        .ok_or_else(|| Error::new(Kind::Invalid, LAYER, "the image is not encrypted"))
}
