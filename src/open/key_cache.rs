//! Keys that are requested once, because a repair opens an image several times.

use std::collections::HashMap;
use std::fmt;

use super::Keys;
use crate::Result;
use crate::crypt::aea::{ArchiveDescription, ArchiveKeys};
use crate::crypt::{Description, Key};
use crate::fs::{LockedVolume, VolumeKey};
use crate::sync::Mutex;

/// A cache of the answers of `keys`.
pub(crate) struct CachedKeys<'a> {
    keys: &'a dyn Keys,
    image: Mutex<Option<Key>>,
    archive: Mutex<Option<ArchiveKeys>>,
    volumes: Mutex<HashMap<String, VolumeKey>>,
}

impl<'a> CachedKeys<'a> {
    pub(crate) fn new(keys: &'a dyn Keys) -> Self {
        Self {
            keys,
            image: Mutex::default(),
            archive: Mutex::default(),
            volumes: Mutex::default(),
        }
    }
}

impl fmt::Debug for CachedKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedKeys")
    }
}

impl Keys for CachedKeys<'_> {
    fn key(&self, image: &Description) -> Result<Option<Key>> {
        let mut known = self.image.lock();
        if known.is_none() {
            *known = self.keys.key(image)?;
        }
        Ok(known.clone())
    }

    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys> {
        let mut known = self.archive.lock();
        match &*known {
            Some(known) => Ok(known.clone()),
            None => Ok(known.insert(self.keys.archive_keys(archive)?).clone()),
        }
    }

    fn may_fetch_key(&self) -> bool {
        self.keys.may_fetch_key()
    }

    fn volume_key(&self, volume: &LockedVolume) -> Result<Option<VolumeKey>> {
        let mut known = self.volumes.lock();
        if let Some(key) = known.get(&volume.name) {
            return Ok(Some(key.clone()));
        }
        let key = self.keys.volume_key(volume)?;
        if let Some(key) = &key {
            known.insert(volume.name.clone(), key.clone());
        }
        Ok(key)
    }
}
