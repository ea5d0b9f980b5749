//! The images that were verified, remembered in the user's cache folder.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use bandsaw::open::{Image, Layer};
use bandsaw_states::PrivateCache;

use crate::private_cache;

/// The name of the list.
const NAME: &str = "verified";

/// The number of images remembered; the oldest are forgotten.
const MAX_ENTRIES: usize = 1000;
/// The length up to which the list is read, in bytes.
const MAX_LEN: u64 = 1 << 20;
/// The age below which a change of a file may be followed by another with the same times.
const CLOCK_TICK: Duration = Duration::from_millis(100);

/// The files of an image, each with device, inode, size and times. Two are equal if the files are
/// the same and unchanged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VerifiedFiles {
    line: String,
    changed: SystemTime,
}

impl VerifiedFiles {
    /// Returns the files of an open image. `None` if the host cannot tell.
    pub(crate) fn of(image: &Image) -> Option<Self> {
        let files = image.layers().iter().filter_map(|layer| match layer {
            Layer::File(file) => Some(file.metadata()),
            _ => None,
        });
        let files: Vec<Metadata> = files.collect::<Result<_, _>>().ok()?;
        let changed = files.iter().map(changed).max()?;
        let line = files.iter().map(|file| Identity(file).to_string());
        let line = line.collect::<Vec<_>>().join(" ");
        Some(Self { line, changed })
    }

    /// Returns true if these files were verified before.
    pub(crate) fn is_remembered(&self) -> bool {
        let known = private_cache::open().and_then(|cache| read(&cache));
        known.is_some_and(|known| known.lines().any(|line| line == self.line))
    }

    /// Records that these files are verified. Does nothing if the cache folder is not private to
    /// the user, or a file was changed just now.
    pub(crate) fn remember(&self) {
        let age = SystemTime::now().duration_since(self.changed);
        if age.is_ok_and(|age| age >= CLOCK_TICK)
            && let Some(cache) = private_cache::open()
        {
            // Best effort: otherwise the image is verified again.
            let _ = self.add_to(&cache);
        }
    }

    fn add_to(&self, cache: &PrivateCache) -> io::Result<()> {
        let known = read(cache).unwrap_or_default();
        let mut lines: Vec<_> = known.lines().filter(|line| *line != self.line).collect();
        lines.push(&self.line);
        let kept = lines.split_off(lines.len().saturating_sub(MAX_ENTRIES));
        cache.write(NAME, (kept.join("\n") + "\n").as_bytes())
    }
}

fn read(cache: &PrivateCache) -> Option<String> {
    String::from_utf8(cache.read(NAME, MAX_LEN)?).ok()
}

/// The time of the last change of contents or metadata, which no program can set.
fn changed(file: &Metadata) -> SystemTime {
    let seconds = u64::try_from(file.ctime()).unwrap_or_default();
    let nanos = u64::try_from(file.ctime_nsec()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// Formats the identity of a file.
struct Identity<'a>(&'a Metadata);

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(file) = self;
        let (device, inode, size) = (file.dev(), file.ino(), file.size());
        let (mtime, mtime_nsec) = (file.mtime(), file.mtime_nsec());
        let (ctime, ctime_nsec) = (file.ctime(), file.ctime_nsec());
        write!(
            f,
            "{device}:{inode}:{size}:{mtime}.{mtime_nsec:09}:{ctime}.{ctime_nsec:09}"
        )
    }
}
