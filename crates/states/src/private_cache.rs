//! Small files in a cache folder of the user, which nobody else can write.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process;

/// A cache folder of the user.
#[derive(Debug, Clone)]
pub struct PrivateCache {
    folder: PathBuf,
}

impl PrivateCache {
    /// Opens a folder, which is made if it is missing. `None` if none there belongs to the user alone.
    pub fn open(folder: PathBuf) -> Option<Self> {
        let _ = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        let meta = fs::symlink_metadata(&folder).ok()?;
        (meta.is_dir() && is_private(&meta)).then_some(Self { folder })
    }

    /// Returns the contents of a file of at most `max_len` bytes. `None` if there is none that
    /// belongs to the user alone.
    pub fn read(&self, name: &str, max_len: u64) -> Option<Vec<u8>> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(no_follow.bits()).ok()?;
        let file = File::options()
            .read(true)
            .custom_flags(flags)
            .open(self.folder.join(name))
            .ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || !is_private(&meta) || meta.len() > max_len {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(max_len).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Replaces a file in one step. It need not survive the loss of power.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(format!("{name}.{}", process::id()));
        let written = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&new, self.folder.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }
}

/// Returns true if the user owns the file or folder and nobody else may write to it.
fn is_private(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}
