//! The images that are open, shared by requests.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bandsaw::address::VolumeSelector;
use bandsaw::fs::FileSystem;
use bandsaw::open::{self, Image, Keys, OpenOptions, VolumeQuery};
use bandsaw::sync::Mutex;
use bandsaw::{Error, Kind, Reason, Result};
use bandsaw_backups::{BackupVolume, volumes_of};

use crate::LAYER;
use crate::key_ring::ImageKeys;
use crate::roots::{Identity, ImageId, Located};
use crate::text;

/// Bytes of memory for cached nodes of each open HFS+ volume.
const CACHE: usize = 4 << 20;
/// Volumes and snapshots of an image that are kept open.
const MAX_VOLUMES: usize = 8;
/// Images behind URLs that are kept open: each has a cache of its own, of 32 MiB.
const MAX_URLS: usize = 2;
/// Time without use after which an image is closed, so that other programs may change it.
const IDLE: Duration = Duration::from_secs(15);
/// Locks for images that are being opened.
const STRIPES: usize = 16;

/// A volume of an image, in its current state or that of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeId {
    /// The partition from 1; 1 also for a disk without a map.
    pub(crate) partition: u32,
    /// The number within the container, from 1.
    pub(crate) number: Option<u32>,
    pub(crate) snapshot: Option<String>,
}

impl VolumeId {
    /// Returns the selector of the library.
    pub(crate) fn selector(&self) -> VolumeSelector {
        VolumeSelector::Number {
            partition: self.partition,
            volume: self.number,
        }
    }
}

/// An image that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenImage {
    image: Image,
    located: Located,
    /// Passphrases were given to open it.
    keys: Option<ImageKeys>,
    is_revoked: AtomicBool,
    volumes: Mutex<Vec<(VolumeId, Arc<dyn FileSystem>)>>,
}

impl OpenImage {
    fn open(located: Located, keys: Option<ImageKeys>) -> Result<Self> {
        let image = open::open(&located.path(), &located.options(keys.as_ref()))?;
        Ok(Self {
            image,
            located,
            keys,
            is_revoked: AtomicBool::new(false),
            volumes: Mutex::default(),
        })
    }

    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    pub(crate) fn located(&self) -> &Located {
        &self.located
    }

    /// Returns the keys that it was opened with.
    pub(crate) fn keys(&self) -> Option<&dyn Keys> {
        self.keys.as_ref().map(|keys| keys as &dyn Keys)
    }

    /// Returns an error if its passphrase was forgotten meanwhile: nothing more may be read.
    pub(crate) fn check(&self) -> Result<()> {
        match self.is_revoked.load(Ordering::Acquire) {
            true => Err(Error::new(Kind::WrongKey, LAYER, "the image was locked")),
            false => Ok(()),
        }
    }

    fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
        self.volumes.lock().clear();
    }

    /// Opens a volume.
    pub(crate) fn volume(&self, id: &VolumeId) -> Result<Arc<dyn FileSystem>> {
        self.check()?;
        let known = |volumes: &[(VolumeId, Arc<dyn FileSystem>)]| {
            let found = volumes.iter().find(|(known, _)| known == id);
            found.map(|(_, fs)| fs.clone())
        };
        // Held while the volume is opened, so that it is opened once.
        let mut volumes = self.volumes.lock();
        if let Some(fs) = known(&volumes) {
            return Ok(fs);
        }
        let selector = id.selector();
        let wanted = VolumeQuery {
            snapshot: id.snapshot.as_deref(),
            keys: self.keys(),
        };
        let fs = self.image.file_system_as(Some(&selector), wanted)?;
        if volumes.len() >= MAX_VOLUMES {
            volumes.remove(0);
        }
        volumes.push((id.clone(), fs.clone()));
        drop(volumes);
        self.check()?;
        Ok(fs)
    }

    /// Returns a volume for the search for its backups; nothing if it cannot hold any.
    pub(crate) fn backup_volumes(&self, id: &VolumeId) -> Result<Vec<BackupVolume>> {
        volumes_of(&self.image, Some(&id.selector()), self.keys())
    }
}

/// Returns the options for reading an image.
pub(crate) fn options(keys: Option<&ImageKeys>) -> OpenOptions<'_> {
    OpenOptions {
        keys: keys.map(|keys| keys as &dyn Keys),
        cache: CACHE,
        ..OpenOptions::default()
    }
}

/// The guard of an image that is being changed.
#[derive(Debug)]
pub(crate) struct Exclusive<'a> {
    images: &'a OpenImages,
    file: [u64; 2],
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let mut table = self.images.open.lock();
        table.changing.retain(|file| *file != self.file);
    }
}

/// The images that are open.
#[derive(Debug)]
pub(crate) struct OpenImages {
    open: Mutex<OpenTable>,
    stripes: [Mutex<()>; STRIPES],
    most: usize,
}

#[derive(Debug, Default)]
struct OpenTable {
    kept: Vec<CachedImage>,
    /// Files of images that are being changed.
    changing: Vec<[u64; 2]>,
    /// Every image that a passphrase opened, as long as anybody uses it: its session and name.
    unlocked: Vec<(u64, ImageId, Weak<OpenImage>)>,
}

#[derive(Debug)]
struct CachedImage {
    id: ImageId,
    /// The session whose passphrase opened it. `None`: no passphrase was given, so that everybody
    /// may use it.
    owner: Option<u64>,
    image: Arc<OpenImage>,
    used: Instant,
}

impl OpenImages {
    /// Creates a table of at most `most` open images; the least recently used is closed for another.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            open: Mutex::default(),
            stripes: std::array::from_fn(|_| Mutex::new(())),
            most,
        }
    }

    /// Returns an open image, for a session with these keys.
    pub(crate) fn get(
        &self,
        id: &ImageId,
        located: Located,
        session: u64,
        keys: Option<ImageKeys>,
    ) -> Result<Arc<OpenImage>> {
        let owner = keys.is_some().then_some(session);
        let _stripe = self.stripe(id).map(Mutex::lock);
        let now = Instant::now();
        if self.is_changing(located.identity()) {
            return Err(Error::conflict(LAYER, text::CHANGING)
                .because(Reason::InUse)
                .in_file(located.shown()));
        }
        let find = |open: &mut Vec<CachedImage>| {
            let identity = located.identity();
            open.retain(|kept| kept.id != *id || kept.image.located.identity() == identity);
            let found = open
                .iter_mut()
                .find(|kept| kept.id == *id && kept.owner == owner)?;
            found.used = now;
            Some(found.image.clone())
        };
        if let Some(image) = find(&mut self.open.lock().kept) {
            return Ok(image);
        }
        let image = Arc::new(OpenImage::open(located, keys)?);
        let mut table = self.open.lock();
        if let Some(owner) = owner {
            let OpenTable { unlocked, .. } = &mut *table;
            unlocked.retain(|(_, _, image)| image.strong_count() > 0);
            unlocked.push((owner, id.clone(), Arc::downgrade(&image)));
        }
        let open = &mut table.kept;
        let of_url = |kept: &CachedImage| kept.image.located.is_url();
        while image.located.is_url()
            && open.iter().filter(|kept| of_url(kept)).count() >= MAX_URLS
            && let Some((oldest, _)) = open
                .iter()
                .enumerate()
                .filter(|(_, kept)| of_url(kept))
                .min_by_key(|(_, kept)| kept.used)
        {
            open.swap_remove(oldest);
        }
        while open.len() >= self.most.max(1)
            && let Some((oldest, _)) = open.iter().enumerate().min_by_key(|(_, kept)| kept.used)
        {
            open.swap_remove(oldest);
        }
        open.push(CachedImage {
            id: id.clone(),
            owner,
            image: image.clone(),
            used: now,
        });
        Ok(image)
    }

    /// Closes an image for a change: until the guard is dropped, nobody else opens it here. Requests
    /// that read from it go on. [`Kind::Conflict`] if another change runs.
    pub(crate) fn exclusive(&self, identity: Identity) -> Result<Exclusive<'_>> {
        let file = identity.file();
        let mut table = self.open.lock();
        if table.changing.contains(&file) {
            return Err(Error::conflict(LAYER, text::CHANGING).because(Reason::InUse));
        }
        table.changing.push(file);
        let (closed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut table.kept)
            .into_iter()
            .partition(|kept| kept.image.located.identity().file() == file);
        table.kept = kept;
        drop(table);
        drop(closed);
        Ok(Exclusive { images: self, file })
    }

    /// Returns true if an image is being changed.
    pub(crate) fn is_changing(&self, identity: Identity) -> bool {
        self.open.lock().changing.contains(&identity.file())
    }

    fn stripe(&self, id: &ImageId) -> Option<&Mutex<()>> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % STRIPES as u64).ok()?;
        self.stripes.get(at)
    }

    /// Closes what the passphrases of a session opened: one image, or all of them. Streams that
    /// read from it end.
    pub(crate) fn revoke(&self, session: u64, id: Option<&ImageId>) {
        let concerns =
            |owner: u64, image: &ImageId| owner == session && id.is_none_or(|id| image == id);
        let mut revoked = Vec::new();
        let mut table = self.open.lock();
        table.unlocked.retain(|(owner, image, open)| {
            let is_revoked = concerns(*owner, image);
            if is_revoked {
                revoked.extend(open.upgrade());
            }
            !is_revoked
        });
        table
            .kept
            .retain(|kept| !kept.owner.is_some_and(|owner| concerns(owner, &kept.id)));
        drop(table);
        for image in revoked {
            image.revoke();
        }
    }

    /// Closes images that are not in use.
    pub(crate) fn close_idle(&self, now: Instant) {
        let mut table = self.open.lock();
        let idle = |kept: &CachedImage| now.saturating_duration_since(kept.used) >= IDLE;
        let (closed, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut table.kept)
            .into_iter()
            .partition(|kept| idle(kept) && Arc::strong_count(&kept.image) == 1);
        table.kept = kept;
        drop(table);
        drop(closed);
    }
}
