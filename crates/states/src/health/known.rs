//! The bundles that were found sound, remembered in a cache folder of the user.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bandsaw::fs::Timestamp;
use serde::{Deserialize, Serialize};

use super::Depth;
use super::contents::Contents;
use super::growth::Sizes;
use crate::PrivateCache;
use crate::sealed::{self, Found};

/// Name of the file.
const NAME: &str = "health";
/// Version of its format.
const FORMAT: u64 = 1;
/// The number of bundles remembered; the oldest are forgotten.
const MAX_BUNDLES: usize = 1000;
/// The length up to which the file is read, in bytes.
const MAX_LEN: u64 = 4 << 20;

/// A bundle that was found sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownBundle {
    /// Numbers of its folder and of the file system with it.
    device: u64,
    inode: u64,
    /// The fingerprint of its files.
    files: String,
    /// True if all structures were checked.
    whole: bool,
    /// Time of the check, in seconds since 1970.
    read: i64,
    contents: Contents,
    /// Its storage at earlier checks.
    #[serde(default)]
    sizes: Sizes,
}

impl KnownBundle {
    /// Returns what a check that begins at `now` found in the bundle at `path`. `None` if the host
    /// cannot tell which folder that is.
    pub(super) fn new(
        path: &Path,
        files: String,
        depth: Depth,
        now: Timestamp,
        contents: Contents,
    ) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            files,
            whole: depth == Depth::Full,
            read: now.seconds,
            contents,
            sizes: Sizes::default(),
        })
    }

    /// Returns the results of the last check of this depth, if all files are as they were then.
    pub(super) fn find(
        cache: &PrivateCache,
        path: &Path,
        files: &str,
        depth: Depth,
    ) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        let known = read(cache)?.bundles.into_iter();
        let mut known = known.filter(|one| {
            (one.device, one.inode, &*one.files) == (meta.dev(), meta.ino(), files)
                && (one.whole || depth == Depth::Quick)
        });
        known.next()
    }

    /// Returns the bytes by which the storage of the bundle at `path` grew each day, if it is `bytes` now.
    /// `None`: there was no check a day ago or before.
    pub(super) fn growth(
        cache: &PrivateCache,
        path: &Path,
        now: Timestamp,
        bytes: u64,
    ) -> Option<i64> {
        let meta = fs::metadata(path).ok()?;
        let known = read(cache)?.bundles.into_iter();
        let mut known = known.filter(|one| (one.device, one.inode) == (meta.dev(), meta.ino()));
        known.next()?.sizes.per_day(now.seconds, bytes)
    }

    /// Returns the time of the check that read the bundle.
    pub(super) fn read_at(&self) -> Timestamp {
        Timestamp::from_seconds(self.read)
    }

    /// Returns what that check read.
    pub(super) fn contents(&self) -> Contents {
        self.contents
    }

    /// Records the results, in the place of older ones about this bundle.
    pub(super) fn remember(mut self, cache: &PrivateCache) {
        let mut all = read(cache).unwrap_or_default();
        // A cheaper check of the same files adds nothing.
        let number = (self.device, self.inode);
        let is_same = |one: &Self| (one.device, one.inode) == number;
        let knows_more = |one: &Self| is_same(one) && one.files == self.files && one.whole;
        if !self.whole && all.bundles.iter().any(knows_more) {
            return;
        }
        if let Some(before) = all.bundles.iter().find(|one| is_same(one)) {
            self.sizes = before.sizes.clone();
        }
        if let Some(allocated) = self.contents.allocated {
            self.sizes.add(self.read, allocated);
        }
        all.bundles.retain(|one| !is_same(one));
        all.bundles.push(self);
        all.version = env!("CARGO_PKG_VERSION").to_owned();
        let oldest = all.bundles.len().saturating_sub(MAX_BUNDLES);
        all.bundles.drain(..oldest);
        // Best effort: otherwise the bundle is read again.
        if let Ok(bytes) = sealed::to_bytes(FORMAT, &all) {
            let _ = cache.write(NAME, &bytes);
        }
    }
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct KnownBundles {
    /// Version of the command: another one may check more.
    version: String,
    bundles: Vec<KnownBundle>,
}

/// Returns the file, if it is whole and of this version of the command.
fn read(cache: &PrivateCache) -> Option<KnownBundles> {
    match sealed::from_bytes::<KnownBundles>(&cache.read(NAME, MAX_LEN)?, FORMAT) {
        Ok(Found::Whole(all)) if all.version == env!("CARGO_PKG_VERSION") => Some(all),
        _ => None,
    }
}
