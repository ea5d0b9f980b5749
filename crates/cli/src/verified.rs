//! The images that were verified, remembered in the user's cache folder.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fmt};

use bandsaw::open::{Image, Layer};

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
        let known = folder().and_then(|folder| read(&folder));
        known.is_some_and(|known| known.lines().any(|line| line == self.line))
    }

    /// Records that these files are verified. Does nothing if the cache folder is not private to
    /// the user, or a file was changed just now.
    pub(crate) fn remember(&self) {
        let age = SystemTime::now().duration_since(self.changed);
        if age.is_ok_and(|age| age >= CLOCK_TICK)
            && let Some(folder) = folder()
        {
            // Best effort: otherwise the image is verified again.
            let _ = self.add_to(&folder);
        }
    }

    fn add_to(&self, folder: &Path) -> io::Result<()> {
        let known = read(folder).unwrap_or_default();
        let mut lines: Vec<_> = known.lines().filter(|line| *line != self.line).collect();
        lines.push(&self.line);
        let kept = lines.split_off(lines.len().saturating_sub(MAX_ENTRIES));
        let new = folder.join(format!("verified.{}", std::process::id()));
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all((kept.join("\n") + "\n").as_bytes()))
            .and_then(|()| fs::rename(&new, folder.join("verified")));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }
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

/// Returns the cache folder, which is made if it is missing. `None` if there is none that belongs
/// to the user alone.
fn folder() -> Option<PathBuf> {
    let absolute = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    let folder = caches.join("bandsaw");
    let _ = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder);
    let meta = fs::symlink_metadata(&folder).ok()?;
    (meta.is_dir() && is_private(&meta)).then_some(folder)
}

/// Returns true if the user owns the file or folder and nobody else may write to it.
fn is_private(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

/// Returns the list, if it is a file of the user.
fn read(folder: &Path) -> Option<String> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(no_follow.bits()).ok()?;
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(folder.join("verified"))
        .ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || !is_private(&meta) || meta.len() > MAX_LEN {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text).ok()?;
    Some(text)
}
