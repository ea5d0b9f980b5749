//! Files of an image, restored into a folder that the server was given: complete under a temporary
//! name first.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use bandsaw::fs::{FileKind, FileSystem, FileSystemExt};
use bandsaw::ops::export::{Exported, FolderOptions, to_folder};
use bandsaw::progress::Progress;
use bandsaw::{Error, Reason, Result};
use rustix::fs::{AtFlags, Mode, RenameFlags};
use rustix::io::Errno;

use crate::LAYER;
use crate::text;
use crate::token::Token;
use crate::visitor_folders::failed;

/// Begin of the names of incomplete restores.
const TEMPORARY: &str = ".bandsaw-restore-";

/// Restores what is at a path of a volume into a folder, as `name`, which must not exist there. The
/// result is durable on return. What cannot be read is among the problems; after an error nothing is
/// left.
pub(crate) fn restore(
    fs: &dyn FileSystem,
    path: &str,
    folder: &OwnedFd,
    name: &str,
    progress: &dyn Progress,
) -> Result<Exported> {
    if rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(exists(name));
    }
    let found = fs.resolve(path)?;
    let random: String = Token::new()?.reveal().chars().take(16).collect();
    let temporary = format!("{TEMPORARY}{random}");
    rustix::fs::mkdirat(folder, &*temporary, Mode::from_raw_mode(0o700))
        .map_err(|errno| failed("create", errno))?;
    let inside = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(&temporary);
    let temporary = Temporary(inside.clone());
    let (place, options) = match found.kind {
        FileKind::Folder => (inside.join(name), FolderOptions::default()),
        _ => (
            inside.clone(),
            FolderOptions {
                name: Some(name.to_owned()),
                ..FolderOptions::default()
            },
        ),
    };
    let done = to_folder(fs, path, &place, &options, progress)?;
    progress.check()?;
    rustix::fs::syncfs(folder).map_err(|errno| failed("write", errno))?;
    let from = inside.join(name);
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(rustix::fs::CWD, &from, folder, name, flags) {
        Ok(()) => {}
        // Something that was skipped, as a device, has not arrived.
        Err(Errno::NOENT) => return Ok(done),
        Err(Errno::EXIST) => return Err(exists(name)),
        Err(errno) => return Err(failed("rename", errno)),
    }
    drop(temporary);
    rustix::fs::fsync(folder).map_err(|errno| failed("write", errno))?;
    Ok(done)
}

/// The folder of an incomplete restore, which is removed at the end.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the name that a restored object gets: its own, or that of its volume.
pub(crate) fn name_of(path: &str, volume: &str) -> String {
    let own = path.rsplit('/').next().unwrap_or_default();
    let name = if own.is_empty() { volume } else { own };
    let is_component = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    let name = if is_component { name } else { "volume" };
    name.to_owned()
}

fn exists(name: &str) -> Error {
    Error::conflict(LAYER, text::EXISTS)
        .because(Reason::Exists)
        .named(Path::new(name).display().to_string())
}
