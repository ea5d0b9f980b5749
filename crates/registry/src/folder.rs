//! Location of a user's registry.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use bandsaw::{Error, Result};

use crate::{LAYER, failed};

/// Returns the folder of this user, which is created if it is missing.
pub(crate) fn of_user() -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let variable = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = place(cfg!(target_os = "macos"), user, &variable);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(failed("create", source, &folder)),
    }
    check_private(&folder, user)?;
    Ok(folder)
}

/// Returns the place of the registry: in the user's runtime folder, which ends with the session. macOS
/// has none, and removes files of three days from its folders for temporary ones; there it is in the
/// user's library.
fn place(is_mac: bool, user: u32, variable: &dyn Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let usual = || match is_mac {
        true => variable("HOME")
            .map(|home| home.join("Library/Application Support"))
            .filter(|folder| folder.is_dir()),
        false => Some(PathBuf::from(format!("/run/user/{user}"))).filter(|path| path.is_dir()),
    };
    match variable("XDG_RUNTIME_DIR").or_else(usual) {
        Some(runtime) => runtime.join("bandsaw"),
        None => env::temp_dir().join(format!("bandsaw-{user}")),
    }
}

/// Refuses a folder that another user owns or may write to.
fn check_private(folder: &Path, user: u32) -> Result<()> {
    let meta =
        fs::symlink_metadata(folder).map_err(|source| failed("read metadata", source, folder))?;
    if meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let why = "others can write to the folder; set XDG_RUNTIME_DIR to a private one";
    Err(Error::conflict(LAYER, why).in_file(folder))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use bandsaw::Kind;

    #[test]
    fn the_registry_of_a_mac_is_not_where_files_are_cleaned_up() {
        let home = tempfile::tempdir().unwrap();
        let with_home = |name: &str| (name == "HOME").then(|| home.path().to_owned());
        let no_user = u32::MAX;
        let temporary = env::temp_dir().join(format!("bandsaw-{no_user}"));
        assert_eq!(place(true, no_user, &with_home), temporary, "no library");
        let library = home.path().join("Library/Application Support");
        fs::create_dir_all(&library).unwrap();
        assert_eq!(place(true, no_user, &with_home), library.join("bandsaw"));
        assert_eq!(place(false, no_user, &with_home), temporary);
        let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| PathBuf::from("/run/x"));
        for is_mac in [false, true] {
            assert_eq!(
                place(is_mac, no_user, &runtime),
                Path::new("/run/x/bandsaw")
            );
        }
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert!(check_private(folder.path(), user).is_ok());
        assert_eq!(
            check_private(folder.path(), user + 1).unwrap_err().kind(),
            Kind::Conflict
        );
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            check_private(folder.path(), user).unwrap_err().kind(),
            Kind::Conflict
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert_eq!(
            check_private(&link, user).unwrap_err().kind(),
            Kind::Conflict
        );
    }
}
