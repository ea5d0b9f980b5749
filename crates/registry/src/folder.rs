//! Location of a user's registry.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Kind, Result};

use crate::{LAYER, failed};

/// Returns the folder of this user, which is created if it is missing.
pub(crate) fn of_user() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let configured = env::var_os("XDG_RUNTIME_DIR")
        .filter(|path| Path::new(path).is_absolute())
        .map(PathBuf::from);
    let usual = || Some(PathBuf::from(format!("/run/user/{user}"))).filter(|path| path.is_dir());
    let folder = match configured.or_else(usual) {
        Some(runtime) => runtime.join("bandsaw"),
        None => env::temp_dir().join(format!("bandsaw-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(failed("create", source, &folder)),
    }
    check(&folder, user)?;
    Ok(folder)
}

/// Refuses a folder that another user owns or may write to.
fn check(folder: &Path, user: u32) -> Result<()> {
    let meta =
        fs::symlink_metadata(folder).map_err(|source| failed("read metadata", source, folder))?;
    if meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = "others can write to the folder; set XDG_RUNTIME_DIR to a private one";
    Err(Error::new(Kind::Conflict, LAYER, why).in_file(folder))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert!(check(folder.path(), user).is_ok());
        assert_eq!(
            check(folder.path(), user + 1).unwrap_err().kind(),
            Kind::Conflict
        );
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            check(folder.path(), user).unwrap_err().kind(),
            Kind::Conflict
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert_eq!(check(&link, user).unwrap_err().kind(), Kind::Conflict);
    }
}
