//! Snapshots of sparse bundles in image names: `Name.sparsebundle@SNAPSHOT`, read-only.
//!
//! An existing file or folder of exactly that name takes precedence. Otherwise the bundle's name is
//! the longest text before an `@` that names a bundle.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::{LAYER, remote};
use crate::address::Address;
use crate::container::sparsebundle::{SNAPSHOTS, is_bundle};
use crate::device::Access;
use crate::store::{Local, check_name};
use crate::{Error, Kind, Reason, Result};

/// Returns the splits of a text into a bundle and a snapshot's name, the longest bundle first.
pub(super) fn cuts(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let last = text.rfind('/').map_or(0, |slash| slash + 1);
    let cuts = text
        .rmatch_indices('@')
        .map(|(at, _)| at)
        .take_while(move |at| *at > last);
    cuts.map(|at| (&text[..at], &text[at + 1..]))
}

/// Returns the folder on this host that `path` names, if that is a snapshot's. [`Kind::NotFound`]
/// for a bundle without a snapshot of this name.
pub(crate) fn on_host(path: &Path) -> Result<Option<PathBuf>> {
    let Some(text) = path
        .to_str()
        .filter(|text| text.contains('@') && remote::url(path).is_none())
    else {
        return Ok(None);
    };
    if path.symlink_metadata().is_ok() {
        return Ok(None);
    }
    for (bundle, name) in cuts(text) {
        if !Path::new(bundle).is_dir() || !is_bundle(&Local::new(bundle))? {
            continue;
        }
        let folder = Path::new(bundle).join(SNAPSHOTS).join(name);
        let is_one = !name.starts_with('.')
            && check_name(name).is_ok()
            && folder.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        let missing = || {
            Error::new(
                Kind::NotFound,
                LAYER,
                format!("does not exist, and {bundle} has no snapshot {name:?}"),
            )
            .because(Reason::NoSuchSnapshot)
        };
        return if is_one {
            Ok(Some(folder))
        } else {
            Err(missing())
        };
    }
    Ok(None)
}

impl Address {
    /// Parses an address, checking on the host which paths and snapshots of bundles exist.
    pub fn parse_on_host(text: impl AsRef<OsStr>) -> Result<Self> {
        Self::parse_os(text.as_ref(), &|path| {
            path.symlink_metadata().is_ok() || matches!(on_host(path), Ok(Some(_)))
        })
    }
}

/// Refuses changes of a snapshot.
pub(super) fn refuse_changes(access: Access) -> Result<()> {
    match access {
        Access::ReadOnly => Ok(()),
        Access::ReadWrite => Err(read_only()),
    }
}

/// Returns the error about a change of a snapshot.
pub(crate) fn read_only() -> Error {
    Error::new(
        Kind::ReadOnly,
        LAYER,
        "a snapshot is read-only: restore it (`bandsaw snapshot restore`) or convert it to a new \
         image (`bandsaw convert`)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_and_a_snapshot() {
        let cuts = |text| cuts(text).collect::<Vec<_>>();
        assert_eq!(cuts("a.sparsebundle@b"), [("a.sparsebundle", "b")]);
        assert_eq!(
            cuts("s3://x@y/me@home.sparsebundle@a@b"),
            [
                ("s3://x@y/me@home.sparsebundle@a", "b"),
                ("s3://x@y/me@home.sparsebundle", "a@b"),
                ("s3://x@y/me", "home.sparsebundle@a@b"),
            ]
        );
        assert_eq!(cuts("a@b/c"), []);
        assert_eq!(cuts("a/@b"), []);
    }
}
