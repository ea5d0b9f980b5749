//! The passphrases that a session has given, in memory only.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use bandsaw::Result;
use bandsaw::crypt::aea::{ArchiveDescription, ArchiveKeys};
use bandsaw::crypt::{Description, Key, Secret};
use bandsaw::fs::{LockedVolume, VolumeKey};
use bandsaw::open::{Keys, archive_passphrase};
use bandsaw::sync::Mutex;

use crate::roots::ImageId;

/// Images whose passphrases are kept for a session.
const MAX_IMAGES: usize = 64;
/// Volumes of an image whose passphrases are kept.
const MAX_VOLUMES: usize = 64;

/// The passphrases of one session. Secrets are wiped from memory when they are forgotten.
#[derive(Default)]
pub(crate) struct KeyRing {
    known: Mutex<HashMap<ImageId, Known>>,
}

struct Known {
    keys: ImageKeys,
    used: Instant,
}

/// The passphrases of an image and of its volumes.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageKeys {
    image: Option<Secret>,
    volumes: HashMap<String, Secret>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing(..)")
    }
}

impl KeyRing {
    /// Returns the passphrases of an image, and counts that as use.
    pub(crate) fn of(&self, image: &ImageId, now: Instant) -> Option<ImageKeys> {
        let mut known = self.known.lock();
        let found = known.get_mut(image)?;
        found.used = now;
        Some(found.keys.clone())
    }

    /// Returns true if a passphrase of the image is known.
    pub(crate) fn knows(&self, image: &ImageId) -> bool {
        self.known.lock().contains_key(image)
    }

    /// Keeps the passphrase of a volume, or of the image itself.
    pub(crate) fn add(&self, image: ImageId, volume: Option<String>, secret: Secret, now: Instant) {
        let mut known = self.known.lock();
        if known.len() >= MAX_IMAGES && !known.contains_key(&image) {
            let oldest = known.iter().min_by_key(|(_, known)| known.used);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                known.remove(&oldest);
            }
        }
        let entry = known.entry(image).or_insert_with(|| Known {
            keys: ImageKeys::default(),
            used: now,
        });
        entry.used = now;
        match volume {
            None => entry.keys.image = Some(secret),
            Some(name) if entry.keys.volumes.len() < MAX_VOLUMES => {
                entry.keys.volumes.insert(name, secret);
            }
            Some(_) => {}
        }
    }

    /// Forgets all passphrases of an image.
    pub(crate) fn remove(&self, image: &ImageId) {
        self.known.lock().remove(image);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.known.lock().clear();
    }

    /// Forgets the passphrases that were not used for `time`, and returns their images.
    pub(crate) fn expire(&self, time: Duration, now: Instant) -> Vec<ImageId> {
        let mut known = self.known.lock();
        let expired: Vec<_> = known
            .iter()
            .filter(|(_, known)| now.saturating_duration_since(known.used) >= time)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &expired {
            known.remove(id);
        }
        expired
    }
}

impl ImageKeys {
    /// Returns passphrases to be tried, before they are kept.
    pub(crate) fn trial(mut self, volume: Option<String>, secret: Secret) -> Self {
        match volume {
            None => self.image = Some(secret),
            Some(name) => {
                self.volumes.insert(name, secret);
            }
        }
        self
    }
}

impl Keys for ImageKeys {
    fn key(&self, _image: &Description) -> Result<Option<Key>> {
        Ok(self.image.clone().map(Key::Passphrase))
    }

    fn archive_keys(&self, archive: &ArchiveDescription) -> Result<ArchiveKeys> {
        Ok(archive_passphrase(archive, self.image.as_ref()))
    }

    fn volume_key(&self, volume: &LockedVolume) -> Result<Option<VolumeKey>> {
        let own = self.volumes.get(&volume.name);
        Ok(own
            .or(self.image.as_ref())
            .cloned()
            .map(VolumeKey::Passphrase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ImageId {
        ImageId {
            root: Some(0),
            snapshot: None,
            path: name.as_bytes().to_vec(),
        }
    }

    #[test]
    fn keys_are_forgotten_after_a_time_without_use() {
        let (ring, begin, time) = (KeyRing::default(), Instant::now(), Duration::from_secs(60));
        ring.add(id("a"), None, Secret::new(b"one".to_vec()), begin);
        ring.add(id("b"), None, Secret::new(b"two".to_vec()), begin);
        assert!(ring.of(&id("a"), begin + time / 2).is_some());
        assert_eq!(ring.expire(time, begin + time), [id("b")]);
        assert!(ring.knows(&id("a")) && !ring.knows(&id("b")));
        ring.remove(&id("a"));
        assert!(!ring.knows(&id("a")));
        assert_eq!(format!("{ring:?}"), "KeyRing(..)");
    }

    #[test]
    fn memory_of_keys_is_bounded() {
        let (ring, begin) = (KeyRing::default(), Instant::now());
        for at in 0..1000 {
            let now = begin + Duration::from_secs(at);
            ring.add(id(&at.to_string()), None, Secret::new(vec![1]), now);
        }
        assert_eq!(ring.known.lock().len(), MAX_IMAGES);
        assert!(ring.knows(&id("999")) && !ring.knows(&id("0")));
    }
}
